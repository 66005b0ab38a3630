"""How a run is timed: by the device's events, or in batches on the host's clock, whichever is right for its length.

On some drivers profiling events put a gap around every launch. It distorts the time of a short kernel, and a program
that queues the kernel never meets it. Short kernels are therefore timed as a program runs them, in batches on a queue
without profiling. A kernel ahead of the batch (holder.py) keeps the device busy until all of it is enqueued, because a
driver submits launches of a few microseconds more slowly than the device runs them. The time of a batch without the
launches is subtracted.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Protocol

from autotune.bench.holder import Holder, can_hold
from autotune.bench.launcher import Launcher, noticing_loss
from autotune.bench.messages import Batches
from autotune.bench.prepare import Built
from autotune.bench.report import Fault
from autotune.devices import Batch, Session
from autotune.model import ENQUEUE
from autotune.ranking import median

QUEUED_NS = 500_000
"""Launches of at least this length hardly suffer from a gap of two microseconds."""

INSENSITIVE_NS = 1_000_000
"""The time of a longer run does not depend on whether its outputs were filled just before it."""

BATCH_NS = 1_000_000
"""Device time of a batch: the host's clock starts and stops it to within a few microseconds."""

MOST_COMMANDS = 200
"""Launches, copies and fills in a batch: NVIDIA's driver accepted 240 while the device was busy, and blocked at 400."""

COMMAND_NS = 5000.0
"""Nanoseconds that the host takes to enqueue a command, until it has been measured."""

_MOST_LOST = 20
"""Once so many batches of a plan have taken too little time, no more are timed anew."""

_LATE, _UNEVEN = 0.25, 0.02
"""The host started its clock too late if the device seems to have been held for longer than usual, by more than
`_LATE` of the batch's time and `_UNEVEN` of the usual hold (which itself varies by a per cent or two)."""

_LONGEST_HOLD_NS = 20_000_000
"""If a batch needs a longer hold, the host is too busy: batches are then timed without one."""

WAKE_NS = 10_000_000
"""Device time after which a device that was idle runs at its full clock."""

_DISTURBED, _DISTURBED_NS = 2.0, 10_000
"""A batch was disturbed if a run of it took longer than `_DISTURBED` times the first run plus `_DISTURBED_NS` for each
command: the first was timed by events, which put gaps between launches, and the device may have been asleep. A
disturbance, such as another program's new context, takes milliseconds of the device."""

_NEAR = 0.8
"""A batch timed while learning already counts as a sample if its number of runs is right to within this factor."""

_IDLE_S = 0.05
"""A pause after which a device may have lowered its clock."""


class Clock(Protocol):
    """Times one plan. A sample is the time of `runs` runs, which are a `share` of the time that taking it costs.

    `poisons`: the last run of each call wrote on poisoned outputs. `ramps`: the device's clock may still have been
    ramping up during a sample. `fits`: samples are about as long as they should be. `known`: samples taken before any
    was asked for; whoever uses one removes it. `first_ns`: the time of the first run by its events. `batches`: how
    batches are made up, or None.
    """

    runs: int
    poisons: bool
    ramps: bool
    known: list[int]
    first_ns: float

    @property
    def share(self) -> float: ...

    @property
    def fits(self) -> bool: ...

    @property
    def batches(self) -> Batches | None: ...

    def sample(self, built: Built, count: int) -> list[int]:
        """Return `count` samples: the nanoseconds that `runs` runs took. Raises Fault."""

    def facts(self) -> Mapping[str, str | int | float]:
        """Return which clock this was, for the trial's environment."""


class EventClock:
    """Times each run by its events, from the start of its first launch to the end of its last.

    If a driver's events do not tell the time, each launch is timed by the host's clock instead.
    """

    runs = 1
    share = 1.0
    ramps = True
    fits = True
    batches = None

    def __init__(self, session: Session, launcher: Launcher, run_ns: int) -> None:
        self.known = [run_ns]
        self.first_ns: float = run_ns
        self.poisons = run_ns >= INSENSITIVE_NS
        self._session = session
        self._launcher = launcher
        self._longest_ns = run_ns

    def sample(self, built: Built, count: int) -> list[int]:
        """Return the spans of `count` runs."""
        self.poisons = self._longest_ns >= INSENSITIVE_NS  # decided by earlier runs
        times = self._launcher.repeat(built, count, self._longest_ns, poison=self.poisons)
        self._longest_ns = max(self._longest_ns, *times)
        return times

    def facts(self) -> Mapping[str, str | int | float]:
        """Return which clock this was."""
        return {"clock": self._session.timer}


class QueueClock:
    """Times batches of runs. Its constructor wakes the device for `wake_ns` and learns how many runs make a batch.

    `command_ns` is the time that the host takes to enqueue a command: an estimate at first, then that of the last
    batch. `run_ns` is the device time of a run, from which the number of `runs` of a batch follows. `usual` gives all
    three as they were for the same plan on another session, if known.
    """

    poisons = False
    ramps = False

    def __init__(
        self,
        launcher: Launcher,
        holder: Holder,
        built: Built,
        run_ns: float,
        *,
        aim_ns: int,
        wake_ns: int,
        command_ns: float,
        usual: Batches | None,
    ) -> None:
        self._launcher = launcher
        self._holder = holder
        self._longest_ns = run_ns
        self._aim_ns = aim_ns
        self._commands = len(built.kernels) + sum(guarded.restored for guarded in built.buffers)
        # More launches than a driver accepts ahead can only be enqueued while they run, as in any program.
        self._holds = self._commands <= MOST_COMMANDS
        self._hold_ns = 0.0  # how long the device is held before a batch
        self._bases: deque[Batch] = deque(maxlen=9)  # batches without launches, behind the same hold
        self._count, self._lost = 0, 0  # batches timed, and timed anew
        self.runs, self.run_ns, self.first_ns, self.command_ns = 1, run_ns, run_ns, command_ns
        self.known: list[int] = []
        if usual is not None:
            self.runs, self.run_ns, self.command_ns = usual.runs, usual.run_ns, usual.command_ns
        self._latest_ns = self.run_ns  # a run's time in the last batches
        self._learn(built, 0 if usual is not None else 5, wake_ns)

    def _learn(self, built: Built, most: int, wake_ns: int) -> None:
        """Time up to `most` batches, until one is long enough and undisturbed, and for `wake_ns` at least."""
        spent_ns, tries = 0.0, 0
        while spent_ns < wake_ns or (tries < most and (not tries or not self.fits or self._was_disturbed())):
            self._fit()
            self.known = [self._batch(built)]
            self.run_ns = self._latest_ns = self.known[0] / self.runs
            spent_ns += self._hold_ns + self.known[0]
            tries += 1
        if not self.known or not _NEAR <= self.runs / self._fitting(self.run_ns) <= 1 / _NEAR:
            self.known = []
            self._fit()

    def _was_disturbed(self) -> bool:
        return self.run_ns > _DISTURBED * self.first_ns + _DISTURBED_NS * self._commands

    def sample(self, built: Built, count: int) -> list[int]:
        """Return the net times of `count` batches."""
        times = [self._batch(built) for _ in range(count)]
        self._latest_ns = median(times) / self.runs
        return times

    @property
    def fits(self) -> bool:
        """Whether batches are at least half as long as they should be, going by the latest times of runs.

        Short batches are noisy, and their times come out too low if the host notices the end of a long hold late.
        """
        return self.runs >= self._fitting(self._latest_ns) // 2

    @property
    def batches(self) -> Batches:
        """How batches are made up now."""
        return Batches(self.runs, self.run_ns, self.command_ns)

    def facts(self) -> Mapping[str, str | int | float]:
        """Return which clock this was, its runs per sample, and two times in nanoseconds.

        These are the host's time for a command and the device's for an empty launch.
        """
        known = {ENQUEUE: round(self.command_ns), "launch_ns": round(self._holder.launch_ns)}
        return {"clock": "queue", "runs_per_sample": self.runs, **known}

    @property
    def share(self) -> float:
        """The share of a sample's time that its runs take; in the rest the device is held."""
        device_ns = self.run_ns * self.runs
        return device_ns / (device_ns + self._hold_ns) if self._holds else 1.0

    def _fitting(self, run_ns: float) -> int:
        most = max(1, MOST_COMMANDS // self._commands)
        return min(most, max(1, round(self._aim_ns / run_ns)))

    def _fit(self) -> None:
        """Set the runs of a batch, and a hold that is a quarter longer than the host takes to enqueue them."""
        self.runs = self._fitting(self.run_ns)
        self._hold_ns = 1.25 * self.command_ns * self._commands * self.runs + 100_000
        self._bases.clear()

    def _batch(self, built: Built) -> int:
        hold = self._holder.holding(self._hold_ns) if self._holds else None
        batch = self._launcher.batch(built, self.runs, self._longest_ns, hold)
        self.command_ns = batch.enqueued_ns / self.runs / self._commands
        # The device may have begun before the host's clock: hold it longer, up to the limit.
        if self._holds and not (batch.held_ns and batch.enqueued_ns < self._hold_ns):
            self._holds = self._hold_ns < _LONGEST_HOLD_NS
            self._hold_ns = min(_LONGEST_HOLD_NS, max(2.0 * batch.enqueued_ns, 1.5 * self._hold_ns))
            self._bases.clear()
            return self._batch(built)
        self._count += 1
        if len(self._bases) < 3 or self._count % 3 == 0:
            self._bases.append(self._launcher.batch(built, self.runs, self._longest_ns, hold, launches=False))
        net_ns = round(batch.ns - median([base.ns for base in self._bases]))
        usual_ns = median([base.held_ns for base in self._bases])
        late_ns = round(batch.held_ns - usual_ns)
        if net_ns >= self.runs and late_ns <= _LATE * net_ns + _UNEVEN * usual_ns:
            return net_ns
        return self._again(built, batch, net_ns + late_ns)

    def _again(self, built: Built, batch: Batch, rough_ns: int) -> int:
        """Time a batch anew that took too little: the host was busy when it began, or while an empty batch ran.

        `rough_ns` is by how much it took longer than an empty batch, both timed from the beginning of the hold.
        """
        self._bases.clear()
        self._lost += 1
        if self._lost < _MOST_LOST:
            return self._batch(built)
        # On a host that is always busy the time is only known roughly, or as an upper bound.
        return rough_ns if rough_ns >= self.runs else batch.held_ns + batch.ns


class Clocks:
    """Chooses the clock of each plan on one session."""

    def __init__(self, session: Session, launcher: Launcher) -> None:
        self._session = session
        self._launcher = launcher
        self._queues = can_hold(session)
        self._known_holder: Holder | None = None
        self._awake_s = 0.0  # when the device was last known to be awake
        self._command_ns = COMMAND_NS

    def choose(self, built: Built, run_ns: int, aim_ns: int = BATCH_NS, usual: Batches | None = None) -> Clock:
        """Return the clock of a plan whose first run took `run_ns` by its events. Raises Fault.

        `aim_ns` is the device time of a batch: the longer, the more precise. `usual` says how the plan's batches were
        made up on another session.
        """
        limit_ns = QUEUED_NS * len(built.kernels)
        # The device may have been asleep in the first run, at a quarter of its clock rate.
        if self._queues and built.plan.cache == "warm" and run_ns < 4 * limit_ns:
            idle = time.monotonic() - self._awake_s > _IDLE_S
            clock = QueueClock(
                self._launcher,
                self._holder(),
                built,
                run_ns,
                aim_ns=aim_ns,
                wake_ns=WAKE_NS if idle else 0,
                command_ns=self._command_ns,
                usual=usual,
            )
            self._command_ns = clock.command_ns
            self.rest()
            if clock.run_ns < limit_ns:
                return clock
        return EventClock(self._session, self._launcher, run_ns)

    def prepare(self) -> None:
        """Build the holder while nothing waits for it. If that fails, it fails again, and is reported, in a trial."""
        if self._queues:
            with suppress(Fault):
                self._holder()

    def _holder(self) -> Holder:
        if self._known_holder is None:
            with noticing_loss():
                self._known_holder = Holder(self._session)
        return self._known_holder

    def rest(self) -> None:
        """Record that the device is awake now; it may fall asleep from now on."""
        self._awake_s = time.monotonic()
