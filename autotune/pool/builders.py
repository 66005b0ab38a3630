"""The processes that build ahead of a device: a few begin, the others where builds take long.

A driver makes one context after the other: with seventeen at once on an H200 all of them wait for a second, and as
long again for their end. Builds of a tenth of a second are done by few.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from autotune.pool.keeper import Keeper

FIRST = 4
"""Builders of each device that begin at once."""

SHORT_S = 0.15
"""A build that takes longer brings in the others."""


class Builders:
    """The keepers of these processes. `first` of them begin with `start`."""

    def __init__(self, keepers: Sequence[Keeper], first: int) -> None:
        self.begun = list(keepers[:first])
        self._others = list(keepers[first:])
        self._sound = len(keepers)
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start those that begin."""
        for keeper in self.begun:
            keeper.start()

    @contextmanager
    def building(self) -> Iterator[None]:
        """Bring in the others where what is done within takes longer than a short build."""
        timer = threading.Timer(SHORT_S, self.complete) if self._others else None
        if timer is not None:
            timer.daemon = True
            timer.start()
        try:
            yield
        finally:
            if timer is not None:
                timer.cancel()

    def complete(self) -> None:
        """Start those that have not begun."""
        with self._lock:
            others, self._others = self._others, []
            self.begun += others
            for keeper in others:
                keeper.start()

    def lose(self) -> bool:
        """Note that one of them cannot go on, and say whether it was the last; what it would have done others do."""
        with self._lock:
            self._sound -= 1
            lost = self._sound == 0
        self.complete()
        return lost

    def wait_ready(self) -> None:
        """Wait for those that begin to be ready: a context in the making disturbs what runs."""
        for keeper in list(self.begun):
            keeper.started.wait()

    def close(self) -> None:
        """End their processes; no more begin."""
        with self._lock:
            self._others = []
        for keeper in self.begun:
            keeper.close()
