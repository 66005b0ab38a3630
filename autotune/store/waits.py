"""A connection to PostgreSQL that says so where its server does not answer: one that hangs keeps the network alive.

How long it may take nobody knows: a migration has minutes, and what is locked is given up by `lock_timeout`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Generator
from typing import Any

import psycopg

from autotune.text import say

SILENT_S = 5.0
"""How long an answer is waited for without a word."""


class Waiting(psycopg.Connection[Any]):
    """`where` is the database as messages name it."""

    where = ""

    def wait(self, gen: Generator[Any, Any, Any], *arguments: Any, **named: Any) -> Any:
        """Consume a generator of psycopg, which is told several times a second while the server is silent."""
        return super().wait(self._told(gen), *arguments, **named)

    def _told(self, gen: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        due, ready = time.monotonic() + SILENT_S, None
        while True:
            try:
                asked = gen.send(ready)
            except StopIteration as end:
                return end.value
            ready = yield asked
            if not ready and time.monotonic() > due:
                say(f"autotune: {self.where}: has not answered for {SILENT_S:g} s; waiting for it")
                due = math.inf
