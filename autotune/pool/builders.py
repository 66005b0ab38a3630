"""The processes that build ahead of a device: a few begin, the others where the device waits for builds.

A driver makes one context after the other: with seventeen at once on an H200 all of them wait for a second, and as
long again for their end, and what is timed meanwhile is disturbed. Where trials take as long as builds, or there are
few of them, a few builders do. The others are started once the device has waited for as long as that costs: it is then
at most twice as bad as had it been known before (ski rental; A. Karlin et al., Competitive snoopy caching,
Algorithmica 3, 1988).
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from autotune.model import DeviceInfo
from autotune.pool.keeper import Keeper

FIRST = 8
"""Builders of each device that begin at once, where nobody knows for how many trials."""

LONG_S = 0.35
"""A build that takes longer brings in the others at once. The first of each builder loads the compiler."""

COST_S = 0.5
"""Seconds that the device waits for the others' start: a dozen contexts of an H200."""


def count_first(trials: int | None, devices: int) -> int:
    """Return how many builders begin for so many trials (None: not known), over all devices.

    To start one takes about as long as a short build: so many that both together take least.
    """
    return FIRST * devices if trials is None else max(devices, math.ceil(math.sqrt(trials)))


class Builders:
    """The keepers of these processes. `first` of them begin with `start`.

    A context in the making disturbs what runs: none begins while a trial does, and none of those runs meanwhile.
    """

    def __init__(self, keepers: Sequence[Keeper], first: int) -> None:
        self.begun = list(keepers[:first])
        self._others = list(keepers[first:])
        self._due: list[Keeper] = []  # as soon as no trial runs
        self._trials = 0  # that run
        self._sound = len(keepers)
        self._waited_s = 0.0
        self._changed = threading.Condition()

    def start(self) -> None:
        """Start those that begin."""
        for keeper in self.begun:
            keeper.start()

    @contextmanager
    def building(self) -> Iterator[None]:
        """Bring in the others where what is done within takes long."""
        timer = threading.Timer(LONG_S, self.complete) if self._others else None
        if timer is not None:
            timer.daemon = True
            timer.start()
        try:
            yield
        finally:
            if timer is not None:
                timer.cancel()

    def waited(self, seconds: float) -> None:
        """Note that a device has waited for a build, all of them being busy."""
        with self._changed:
            self._waited_s += seconds
            worth_it = self._waited_s > COST_S
        if worth_it:
            self.complete()

    def complete(self) -> None:
        """Start those that have not begun."""
        with self._changed:
            self._due += self._others
            self._others = []
            if not self._trials:
                self._begin_due()

    def have(self, device: DeviceInfo, count: int) -> None:
        """Start as many of a device's as are lacking to so many, and wait for those that have begun to be ready."""
        with self._changed:
            begun = sum(keeper.device == device for keeper in self.begun)
            more = [keeper for keeper in self._others if keeper.device == device][: max(0, count - begun)]
            self._others = [keeper for keeper in self._others if keeper not in more]
            self._due += more
            if not self._trials:
                self._begin_due()
        self.wait_ready()

    def _begin_due(self) -> None:
        due, self._due = self._due, []
        self.begun += due
        for keeper in due:
            keeper.start()

    @contextmanager
    def borrowed(self, device: DeviceInfo, most: int) -> Iterator[list[Keeper]]:
        """Keep those of a device that are idle from building, as many as that."""
        with ExitStack() as held:
            ours = [keeper for keeper in self.begun if keeper.device == device]
            yield [keeper for keeper in ours if held.enter_context(keeper.borrowed())][:most]

    def lose(self) -> bool:
        """Note that one of them cannot go on, and say whether it was the last; what it would have done others do."""
        with self._changed:
            self._sound -= 1
            lost = self._sound == 0
        self.complete()
        return lost

    def wait_ready(self) -> None:
        """Wait for those that have begun to be ready."""
        for keeper in list(self.begun):
            keeper.started.wait()

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Run a trial within, while none begins; those that are due begin first, and are waited for."""
        self._await_turn()
        try:
            yield
        finally:
            with self._changed:
                self._trials -= 1
                if not self._trials:
                    self._begin_due()
                self._changed.notify_all()

    def _await_turn(self) -> None:
        while True:
            self.wait_ready()
            with self._changed:
                if self._due:  # trials of other devices run, and end
                    self._changed.wait()
                elif all(keeper.started.is_set() for keeper in self.begun):
                    self._trials += 1
                    return

    def close(self) -> None:
        """End their processes; no more begin."""
        with self._changed:
            self._others, self._due = [], []
            self._changed.notify_all()
        for keeper in self.begun:
            keeper.close()
