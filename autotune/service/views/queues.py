"""Where an open submission stands: its place in its queue, and whether there is a server that works that queue."""

from __future__ import annotations

import shlex
from functools import cache
from typing import TYPE_CHECKING

from autotune.store import OPEN, QUEUED, STOPPED, STOPPING, Submission
from autotune.text import line

if TYPE_CHECKING:
    from autotune.service.state import Service


class Queues:
    """What one view tells of the queues, each asked for once however many submissions it shows."""

    def __init__(self, service: Service) -> None:
        self._waiting = cache(lambda server: _places(service.store.waiting(server)))
        self._is_at_work = cache(service.is_at_work)

    def place(self, one: Submission) -> int | None:
        """The place of what is queued (0: the next); None where nobody is there to work the queue."""
        if one.state != QUEUED or not self._is_at_work(one.server):
            return None
        found: int | None = self._waiting(one.server).get(one.uuid)
        return found

    def state(self, one: Submission) -> tuple[str, str]:
        """The state and the reason for it; what a killed server left is as the next of its name will find it."""
        if one.state not in OPEN or self._is_at_work(one.server):
            return one.state, one.reason
        if one.state == STOPPING:
            return STOPPED, "stopped; its server is not at work"
        again = f"autotune serve --name {shlex.quote(one.server)}"
        return QUEUED, f"its server {line(one.server)} is not at work; it goes on once that is: {line(again)}"


def _places(waiting: dict[str, list[str]]) -> dict[str, int]:
    return {name: place for names in waiting.values() for place, name in enumerate(names)}
