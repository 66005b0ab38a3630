"""The position of an open submission: its place in its queue, and whether a server works on that queue."""

from __future__ import annotations

import shlex
from functools import cache
from typing import TYPE_CHECKING

from autotune.store import OPEN, QUEUED, STOPPED, STOPPING, Submission
from autotune.text import line

if TYPE_CHECKING:
    from autotune.service.state import Service


class Queues:
    """What one view shows of the queues; each is read once, for any number of submissions."""

    def __init__(self, service: Service) -> None:
        self._waiting = cache(lambda server: _places(service.store.waiting(server)))
        self._is_at_work = cache(service.is_at_work)

    def place(self, one: Submission) -> int | None:
        """The place in the queue (0: the next); None if it does not wait, or if no server works on the queue."""
        if one.state != QUEUED or not self._is_at_work(one.server):
            return None
        found: int | None = self._waiting(one.server).get(one.uuid)
        return found

    def state(self, one: Submission) -> tuple[str, str]:
        """The state and the reason for it; for what a killed server left, the state that its next start will find."""
        if one.state not in OPEN or self._is_at_work(one.server):
            return one.state, one.reason
        if one.state == STOPPING:
            return STOPPED, "stopped; its server is not at work"
        again = f"autotune serve --name {shlex.quote(one.server)}"
        return QUEUED, f"its server {line(one.server)} is not at work; it goes on once that is: {line(again)}"


def _places(waiting: dict[str, list[str]]) -> dict[str, int]:
    return {name: place for names in waiting.values() for place, name in enumerate(names)}
