"""How fast the machine is now, beside how fast it was: an anchor is timed again every little while.

A clock that throttles and a neighbour that comes and goes slow everything down for seconds. Times taken then are not
those of the configuration alone: where the pace changed meanwhile they are taken again, and they are compared by it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from autotune.bench.clock import Clock
from autotune.bench.report import Fault
from autotune.ranking import median
from autotune.study import Plan

if TYPE_CHECKING:
    from autotune.bench.trial import Bench

STEP = 0.1
"""A change of the pace by less than this may be the anchor's own noise, and is left to the finalists."""

SLOW = 1.3
"""Finalists are not judged where everything takes this many times as long as usual."""

SHARE = 0.05
"""Share of the time that readings may take."""

_FIRST, _MORE = 3, 9
"""Samples of a reading; where they show a change, as many more make sure of it."""

_MOST = 8.0
"""What shows another pace than up to this met something else: launches of microseconds on a CPU that is taken."""

_READING_NS = 2_000_000
"""Device time of the least reading, as far as fifteen times its samples make it: a few launches of microseconds say
little."""

_FASTER = 0.99
"""What takes over as anchor is faster than the one before by this factor: the faster, the less a reading costs."""


class Pace:
    """The times of an anchor as shares of its first: 1 at first, 2 where everything takes twice as long.

    Anchors may follow each other: a faster one takes over at the pace that the last has shown. `clock_s` tells seconds.
    """

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self.now = 1.0
        self.base_ns = 0.0
        self._readings: list[float] = []
        self._clock_s = clock_s
        self._rested_s, self._cost_s = clock_s(), 0.0

    @property
    def usual(self) -> float:
        """The median of what was read."""
        return median(self._readings) if self._readings else 1.0

    @property
    def is_due(self) -> bool:
        """Say whether there is an anchor, and a reading would keep within its share of the time."""
        return self.base_ns > 0 and self._clock_s() - self._rested_s >= self._cost_s / SHARE

    def offer(self, run_ns: float) -> bool:
        """Say whether a plan that has just taken so long is the anchor from here on."""
        taken = not self.base_ns or run_ns / self.now < self.base_ns * _FASTER
        if taken:
            self.base_ns = run_ns / self.now
        return taken

    def read(self, take: Callable[[int], Sequence[float]]) -> bool:
        """Time the anchor with `take`, so many runs in nanoseconds each; say whether the pace has changed."""
        began_s, before = self._clock_s(), self.now
        samples = list(take(_FIRST))
        if self._differs(samples):
            samples += take(_MORE)
        found = median(samples) / self.base_ns
        if self._differs(samples) and 1 / _MOST < found < _MOST:
            self.now = found
        self._readings.append(self.now)
        self._rested_s = self._clock_s()
        self._cost_s = self._rested_s - began_s
        return self.now != before

    def is_slow(self, samples_ns: Sequence[float]) -> bool:
        """Say whether these times of the anchor are those of a machine that is slower than usual."""
        return self.base_ns > 0 and median(samples_ns) > SLOW * self.usual * self.base_ns

    def _differs(self, samples_ns: Sequence[float]) -> bool:
        return abs(median(samples_ns) / self.base_ns / self.now - 1) > STEP


class Anchor:
    """The fastest plan that a bench has timed so far, and the pace that it shows."""

    def __init__(self, bench: Bench) -> None:
        self.pace = Pace()
        self.plan: Plan | None = None
        self._clock: Clock | None = None
        self._bench = bench

    def offer(self, plan: Plan, clock: Clock, run_ns: float) -> None:
        """Consider a plan that has just been timed."""
        if self.pace.offer(run_ns):
            self.plan, self._clock = plan, clock

    def has_moved(self) -> bool:
        """Say whether the pace is another than at the last reading; where none is due, it is not known to be.

        The buffers hold the anchor's results then. Raises Fault where the device is lost.
        """
        if not self.pace.is_due or self.plan is None:
            return False
        try:
            return self.pace.read(self._take)
        except Fault as fault:
            if fault.fatal:
                raise
            self.pace, self.plan, self._clock = Pace(), None, None
            return False

    def _take(self, count: int) -> list[float]:
        assert self.plan is not None
        built = self._bench.build(self.plan)
        assert self._clock is not None
        runs = self._clock.runs
        count *= max(1, min(15, round(_READING_NS / (_FIRST * runs * self.pace.base_ns))))
        # The first samples still meet what the last plan left in the caches, and threads that slept.
        asleep = 1 + count // 10
        return [ns / runs for ns in self._clock.sample(built, asleep + count)[asleep:]]
