"""How a run is timed: by the device's events, or in batches on the host's clock, whichever is right for its length.

Profiling events put a gap around every launch on some drivers, which a short kernel notices and a program that queues
it never meets. A short one is therefore timed as a program runs it: a batch of runs on a queue without profiling,
held back until all of them are there, from its release until its end, less what a batch without the runs takes.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from typing import Protocol

from autotune.bench.launcher import INSENSITIVE_NS, Launcher
from autotune.bench.prepare import Built
from autotune.devices import Session
from autotune.ranking import median

QUEUED_NS = 500_000
"""A launch of this length does not notice a gap of two microseconds."""

BATCH_NS = 1_000_000
"""Device time of a batch: the host's clock starts and stops it to within a few microseconds."""

MOST_COMMANDS = 512
"""Launches, copies and fills in a batch; the device's queue is tried with as many."""

WAKE_NS = 10_000_000
"""Device time after which a device that was idle runs at its full clock."""

_IDLE_S = 0.05
"""A pause after which a device may have lowered its clock."""


class Clock(Protocol):
    """Times one plan. `runs` make up a sample; `poisons`: the last run of each call wrote on poisoned outputs."""

    runs: int

    @property
    def poisons(self) -> bool: ...

    def sample(self, built: Built, count: int) -> list[int]:
        """Return so many samples: the nanoseconds that `runs` runs took. Raises Fault."""

    def facts(self) -> Mapping[str, str | int | float]:
        """Say which clock this was, for the trial's environment."""


class EventClock:
    """Times each run by its events, from the start of its first launch to the end of its last."""

    runs = 1

    def __init__(self, launcher: Launcher, run_ns: int) -> None:
        self._launcher = launcher
        self._longest_ns = run_ns

    @property
    def poisons(self) -> bool:
        """Long runs do not notice that their outputs were filled before."""
        return self._longest_ns >= INSENSITIVE_NS

    def sample(self, built: Built, count: int) -> list[int]:
        """Return the spans of so many runs."""
        times = self._launcher.repeat(built, count, self._longest_ns)
        self._longest_ns = max(self._longest_ns, *times)
        return times

    def facts(self) -> Mapping[str, str | int | float]:
        """Say which clock this was."""
        return {"clock": "events"}


class QueueClock:
    """Times batches of runs. One that is made has woken the device for `wake_ns` and knows how long a batch must be."""

    poisons = False

    def __init__(self, launcher: Launcher, built: Built, run_ns: float, wake_ns: int = 0) -> None:
        self._launcher = launcher
        self._longest_ns = run_ns
        self._empty_ns: deque[int] = deque(maxlen=9)
        restored = sum(guarded.restored for guarded in built.buffers)
        self._aim_ns = BATCH_NS * (2 if restored else 1)  # the difference of two batches that are alike is less sure
        self._most = max(1, MOST_COMMANDS // (len(built.kernels) + restored))
        self.runs, self.run_ns = 1, run_ns
        spent_ns, tries = 0, 0
        while not tries or spent_ns < wake_ns or (tries < 5 and self.runs < self._runs() // 2):
            self.runs = self._runs()
            self.run_ns = self._batch(built) / self.runs
            spent_ns += round(self.run_ns * self.runs)
            tries += 1
        self.runs = self._runs()

    def sample(self, built: Built, count: int) -> list[int]:
        """Return the net times of so many batches."""
        return [self._batch(built) for _ in range(count)]

    def facts(self) -> Mapping[str, str | int | float]:
        """Say which clock this was, its runs per sample, and what a batch takes beside the runs."""
        return {"clock": "queue", "runs_per_sample": self.runs, "batch_overhead_ns": round(median(self._empty_ns))}

    def _runs(self) -> int:
        return min(self._most, max(1, round(self._aim_ns / self.run_ns)))

    def _batch(self, built: Built) -> int:
        # Both kinds in turn: what a batch takes beside the runs changes with the host's clock and what else it does.
        self._empty_ns.append(self._launcher.batch(built, self.runs, self._longest_ns, empty=True))
        whole_ns = self._launcher.batch(built, self.runs, self._longest_ns)
        return max(1, whole_ns - round(median(self._empty_ns)))


class Clocks:
    """Chooses the clock of each plan on one session, by what was found out of the device."""

    def __init__(self, session: Session, launcher: Launcher) -> None:
        self._launcher = launcher
        # A device that shares the host's cores would run the host's clock too.
        self._queues = not session.traits.shares_cores and session.find_gate(MOST_COMMANDS) != ""
        self._awake_s = 0.0  # when it last ran for long

    def choose(self, built: Built, run_ns: int) -> Clock:
        """Return the clock of a plan whose first run took `run_ns` by its events. Raises Fault."""
        limit_ns = QUEUED_NS * len(built.kernels)
        # The first run may have met a sleeping device, at a quarter of its clock.
        if self._queues and built.plan.cache == "warm" and run_ns < 4 * limit_ns:
            idle = time.monotonic() - self._awake_s > _IDLE_S
            clock = QueueClock(self._launcher, built, run_ns, WAKE_NS if idle else 0)
            if clock.run_ns < limit_ns:
                return clock
        return EventClock(self._launcher, run_ns)

    def rest(self) -> None:
        """Note that the device is awake now, and may fall asleep from here on."""
        self._awake_s = time.monotonic()
