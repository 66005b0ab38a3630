"""The processes that build ahead of a device: a few begin, the others are added if the device waits for builds.

A driver creates one context after the other. With seventeen at once on an H200, all of them wait for a second, and
again for a second when they end, and this disturbs what is timed meanwhile. If trials take as long as builds, or are
few, a few builders are enough. The others are started once the device has waited for as long as their start costs. The
total cost is then at most twice the cost with perfect foresight (ski rental; A. Karlin et al., Competitive snoopy
caching, Algorithmica 3, 1988).
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from autotune.model import DeviceInfo
from autotune.pool.keeper import Keeper

FIRST = 8
"""Builders of each device that begin at once if the number of trials is not known."""

LONG_S = 0.35
"""A build that takes longer starts the other builders at once. The first build of each builder loads the compiler."""

COST_S = 0.5
"""Seconds for which the start of the other builders makes the device wait: a dozen contexts of an H200."""


def count_first(trials: int | None, devices: int) -> int:
    """Return how many builders begin for so many trials (None: not known), over all devices.

    Starting a builder takes about as long as a short build: this number makes starts and builds together shortest.
    """
    return FIRST * devices if trials is None else max(devices, math.ceil(math.sqrt(trials)))


class Builders:
    """The keepers of these processes. The first `first` of them begin with `start`.

    Creating a context disturbs what runs: so no builder begins while a trial runs, and no trial while one begins.
    """

    def __init__(self, keepers: Sequence[Keeper], first: int) -> None:
        self.begun = list(keepers[:first])
        self._others = list(keepers[first:])
        self._due: list[Keeper] = []  # begin as soon as no trial runs
        self._trials = 0  # that run now
        self._sound = len(keepers)
        self._waited_s = 0.0
        self._changed = threading.Condition()

    def start(self) -> None:
        """Start the first builders."""
        for keeper in self.begun:
            keeper.start()

    @contextmanager
    def building(self) -> Iterator[None]:
        """Start the other builders if the block takes longer than `LONG_S`."""
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
        """Record that a device has waited for a build while all builders were busy."""
        with self._changed:
            self._waited_s += seconds
            worth_it = self._waited_s > COST_S
        if worth_it:
            self.complete()

    def complete(self) -> None:
        """Start the builders that have not begun."""
        with self._changed:
            self._due += self._others
            self._others = []
            self._begin_due()

    def have(self, device: DeviceInfo, count: int) -> None:
        """Start a device's builders until `count` have begun, and wait until those that have begun are ready."""
        with self._changed:
            begun = sum(keeper.device == device for keeper in self.begun)
            more = [keeper for keeper in self._others if keeper.device == device][: max(0, count - begun)]
            self._others = [keeper for keeper in self._others if keeper not in more]
            self._due += more
            self._begin_due()
        self.wait_ready()

    def _begin_due(self) -> None:
        """Start the builders that are due, unless a trial runs: its end starts them."""
        if self._trials:
            return
        due, self._due = self._due, []
        self.begun += due
        for keeper in due:
            keeper.start()

    @contextmanager
    def borrowed(self, device: DeviceInfo, most: int) -> Iterator[list[Keeper]]:
        """Keep the idle builders of a device from building, and yield up to `most` of them."""
        with ExitStack() as held:
            ours = [keeper for keeper in self.begun if keeper.device == device]
            yield [keeper for keeper in ours if held.enter_context(keeper.borrowed())][:most]

    def lose(self) -> bool:
        """Record that a builder cannot go on, and say whether it was the last one. Others take over its work."""
        with self._changed:
            self._sound -= 1
            lost = self._sound == 0
        self.complete()
        return lost

    def wait_ready(self) -> None:
        """Wait until the builders that have begun are ready."""
        for keeper in list(self.begun):
            keeper.started.wait()

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Run a trial in the block, in which no builder begins. Builders that are due begin and get ready first."""
        self._await_turn()
        try:
            yield
        finally:
            with self._changed:
                self._trials -= 1
                self._begin_due()
                self._changed.notify_all()

    def _await_turn(self) -> None:
        while True:
            self.wait_ready()
            with self._changed:
                if self._due:  # trials of other devices run, and will end
                    self._changed.wait()
                elif all(keeper.started.is_set() for keeper in self.begun):
                    self._trials += 1
                    return

    def close(self) -> None:
        """End the builders' processes; no more begin."""
        with self._changed:
            self._others, self._due = [], []
            self._changed.notify_all()
        for keeper in self.begun:
            keeper.close()
