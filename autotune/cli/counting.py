"""What is said on stderr where the valid configurations of a study take long to count."""

from __future__ import annotations

import time
from collections.abc import Callable

from autotune import text
from autotune.cli.output import say
from autotune.errors import Counted

EVERY_S = 5.0
"""Seconds before the first line, and between two."""


class Lines:
    """Prints a line now and then: which parameter is at its turn, for how long it has gone on, how long it may yet."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = self._at = self._turn = 0.0
        self._last = 0

    def __call__(self, counted: Counted) -> None:
        now = self._clock()
        if counted.place != self._last:
            if counted.place < self._last or not self._last:
                self._began = self._at = now
            self._turn, self._last = now, counted.place
        if now - self._at < EVERY_S:
            return
        self._at = now
        said = f"counting the valid configurations: parameter {counted.place} of {counted.parameters}"
        say(f"{said} ({counted.parameter}), {text.duration(round(now - self._began))} so far{self._left(counted, now)}")

    def _left(self, counted: Counted, now: float) -> str:
        """How long it may yet take: the rest of this parameter, and each of the others as long as all of this one."""
        if not counted.share:
            return ""
        whole_s = (now - self._turn) / counted.share
        left_s = whole_s * (1 - counted.share + counted.parameters - counted.place)
        return f", about {text.duration(max(1, round(left_s)))} left if each of the others takes as long as this"
