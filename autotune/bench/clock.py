"""How a run is timed: by the device's events, or in batches on the host's clock, whichever is right for its length.

Profiling events put a gap around every launch on some drivers, which a short kernel notices and a program that queues
it never meets. A short one is therefore timed as a program runs it: a batch of runs on a queue without profiling,
held back until all of them are there, from its release until its end, less what a batch without the runs takes.

What restores a buffer before each run is in the batch too. By itself it would take longer than among runs: the driver
hands over fills more slowly than the device fills. So it is timed among runs of a kernel whose time is known.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from functools import cached_property
from typing import Protocol

import numpy as np

from autotune.bench.kernels import FILLER, common_options
from autotune.bench.launcher import INSENSITIVE_NS, Launcher, noticing_loss
from autotune.bench.prepare import Built
from autotune.devices import Session
from autotune.ranking import median

QUEUED_NS = 500_000
"""A launch of this length does not notice a gap of two microseconds."""

BATCH_NS = 1_000_000
"""Device time of a batch: the host's clock starts and stops it to within a few microseconds."""

MOST_COMMANDS = 512
"""Launches, copies and fills in a batch; the device's queue is tried with twice as many."""

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


class Filler:
    """A kernel that keeps the device at work for some microseconds, without touching its caches."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._kernel = session.build(FILLER, common_options(session)).kernel("filler")
        self._word = session.allocate(4)  # a kernel does not keep its arguments alive
        session.set_arguments(self._kernel, (self._word, np.uint32(4000)))

    def launch(self) -> None:
        """Enqueue it."""
        self._session.launch(self._kernel, (1,), (1,))

    def batch_ns(self, runs: int) -> int:
        """Return the host's ns of a batch of so many."""
        with noticing_loss(), self._session.batch() as batch:
            for _ in range(runs):
                self.launch()
        return batch.ns


class QueueClock:
    """Times batches of runs. One that is made has woken the device for `wake_ns` and knows how long a batch must be."""

    poisons = False

    def __init__(
        self, launcher: Launcher, built: Built, run_ns: float, filler: Filler | None, *, aim_ns: int, wake_ns: int
    ) -> None:
        """Settle on the length of a batch; `filler` is needed where buffers are restored before each run."""
        self._launcher = launcher
        self._filler = filler
        self._longest_ns = run_ns
        self._aim_ns = aim_ns * (2 if filler else 1)  # the difference of batches that are alike is less sure
        commands = len(built.kernels) + sum(guarded.restored for guarded in built.buffers)
        self._most = max(1, MOST_COMMANDS // commands)
        self.runs, self.run_ns = 1, run_ns
        spent_ns, tries = 0, 0
        while not tries or spent_ns < wake_ns or (tries < 5 and self.runs < self._runs() // 2):
            self.runs = self._runs()
            self._empty_ns: deque[int] = deque(maxlen=9)
            self._restoring_ns: deque[int] = deque(maxlen=9)
            self.run_ns = self._batch(built) / self.runs
            spent_ns += round(self.run_ns * self.runs)
            tries += 1
        self.runs = self._runs()
        self._restoring_ns.clear()

    def sample(self, built: Built, count: int) -> list[int]:
        """Return the net times of so many batches."""
        return [self._batch(built) for _ in range(count)]

    def facts(self) -> Mapping[str, str | int | float]:
        """Say which clock this was, its runs per sample, and what a batch takes beside the runs."""
        return {"clock": "queue", "runs_per_sample": self.runs, "batch_overhead_ns": min(self._empty_ns)}

    def _runs(self) -> int:
        return min(self._most, max(1, round(self._aim_ns / self.run_ns)))

    def _batch(self, built: Built) -> int:
        # All kinds in turn: what a batch takes beside the runs changes with the host's clock and what else it does.
        # An empty one is never too fast, and often slow: the host goes to sleep after it at once.
        self._empty_ns.append(self._launcher.batch(built, 0, self._longest_ns))
        if self._filler:
            mixed_ns = self._launcher.batch(built, self.runs, self._longest_ns, self._filler.launch)
            self._restoring_ns.append(mixed_ns - self._filler.batch_ns(self.runs))
        whole_ns = self._launcher.batch(built, self.runs, self._longest_ns)
        restoring_ns = median(self._restoring_ns) if self._filler else 0
        return max(1, round(whole_ns - restoring_ns - min(self._empty_ns)))


class Clocks:
    """Chooses the clock of each plan on one session, by what was found out of the device."""

    def __init__(self, session: Session, launcher: Launcher) -> None:
        self._session = session
        self._launcher = launcher
        # A device that shares the host's cores would run the host's clock too.
        special = session.traits
        own = special.checks_on_device and not special.shares_cores
        self._queues = own and session.holds_back(2 * MOST_COMMANDS)
        self._awake_s = 0.0  # when it last ran for long

    def choose(self, built: Built, run_ns: int, aim_ns: int = BATCH_NS) -> Clock:
        """Return the clock of a plan whose first run took `run_ns` by its events. Raises Fault.

        `aim_ns` is the device time of a batch: the longer, the surer.
        """
        limit_ns = QUEUED_NS * len(built.kernels)
        # The first run may have met a sleeping device, at a quarter of its clock.
        if self._queues and built.plan.cache == "warm" and run_ns < 4 * limit_ns:
            idle = time.monotonic() - self._awake_s > _IDLE_S
            wake_ns = WAKE_NS if idle else 0
            filler = self._filler if any(guarded.restored for guarded in built.buffers) else None
            clock = QueueClock(self._launcher, built, run_ns, filler, aim_ns=aim_ns, wake_ns=wake_ns)
            if clock.run_ns < limit_ns:
                return clock
        return EventClock(self._launcher, run_ns)

    @cached_property
    def _filler(self) -> Filler:
        return Filler(self._session)

    def rest(self) -> None:
        """Note that the device is awake now, and may fall asleep from here on."""
        self._awake_s = time.monotonic()
