"""A connection to PostgreSQL that prints a message if its server hangs: the network connection stays alive then.

There is no limit to the wait: a migration may take minutes, and `lock_timeout` ends waits for locks.
"""

from __future__ import annotations

import math
import time
from collections.abc import Generator
from typing import Any

import psycopg

from autotune.text import say

SILENT_S = 5.0
"""How long to wait for an answer before the message."""


class Waiting(psycopg.Connection[Any]):
    """A connection with such messages; `where` is the database's name in them."""

    where = ""

    def wait(self, gen: Generator[Any, Any, Any], *arguments: Any, **named: Any) -> Any:
        """Run a generator of psycopg, which is resumed several times a second while the server is silent."""
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
