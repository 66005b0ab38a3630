"""How fast the machine is now compared with before: an anchor, a plan that was timed earlier, is timed again regularly.

A throttled clock or another program can slow everything down for seconds. Times taken then do not depend on the
configuration alone: if the pace changed meanwhile, they are taken again, and times are compared relative to the pace.

Where kernels run on the host's cores, the system's scheduler tells how long threads waited for a core. When a driver's
threads have slept, it first puts several on one core, where they wait for each other although the machine is idle: a
first run took twice as long as the next because of that. A program that queues its runs hardly meets this. Each thread
is therefore given a core of its own.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import ceil
from operator import sub
from pathlib import Path
from statistics import fmean, median_high
from typing import TYPE_CHECKING

from autotune.bench.clock import Clock
from autotune.bench.report import Fault
from autotune.ranking import median
from autotune.study import Plan

if TYPE_CHECKING:
    from autotune.bench.trial import Bench

STEP = 0.1
"""A change of the pace by less than this share may be noise of the anchor; the finalists' re-timing settles it."""

SLOW = 1.3
"""Finalists are not judged while everything takes this many times as long as usual."""

SHARE = 0.05
"""Share of the time that readings may take."""

SHARE_UNUSUAL = 0.25
"""The same while the pace is unusual: the end of a temporary disturbance must be noticed soon."""

_FIRST, _MORE = 3, 9
"""Samples of a reading, and how many more are taken to confirm a change."""

_MOST = 8.0
"""A pace above this, or below its inverse, is not believed: launches of microseconds met something on a busy CPU."""

_READING_NS = 2_000_000
"""Device time that a reading should have; it takes up to fifteen times its samples for that, since a few launches of
microseconds tell little."""

_FASTER = 0.99
"""A new anchor takes at most this share of the time of the one before: the faster it is, the less a reading costs."""

LONG_NS = 250_000_000
"""The times of runs of this length do not depend on what was in the caches: a CPU refills them in a hundredth of it."""

CONTENDED = 0.05
"""Times count as undisturbed if the kernel's threads waited for a core for less than this share of their time."""

_SHORT_NS = 100_000
"""In shorter samples the effect of waiting cannot be estimated."""

_WAKING_NS = 50_000
"""An upper bound of how long a thread waits each time it wakes up; beside other programs it waits for milliseconds."""

_AT_WORK = 0.25
"""Threads that ran for at least this share of the busiest thread's time share a kernel's work with it."""

Place = Callable[[Sequence[int], Sequence[int]], bool]
"""Called with the threads that share a kernel's work, and those that have cores now; says if the former got cores."""

_TASKS = Path("/proc/self/task")


class Contention:
    """How long the threads of this process waited for a core that something else had, since the last reading.

    Linux keeps statistics of each thread: how long it ran, and how long it was ready but did not run ("run delay" of
    sched-stats). Without these statistics a reading is 0.
    """

    def __init__(self, tasks: Path = _TASKS, place: Place | None = None) -> None:
        self._tasks = tasks
        self._place = place or give_cores
        self._given: Sequence[int] = ()
        self._before = self._accounts()

    def read(self) -> float:
        """Return the share of their time, 0..1, for which the other threads waited for a core; it costs 10 us a thread.

        The calling thread enqueues launches: the time for which it takes a core from the others is subtracted.
        """
        before, self._before = self._before, self._accounts()
        since = {
            thread: tuple(map(sub, now, before.get(thread, (0, 0, 0))))
            for thread, now in self._before.items()
            if before
        }
        asking, _, _ = since.pop(threading.get_native_id(), (0, 0, 0))
        ran, waited, turns = (sum(account[place] for account in since.values()) for place in range(3))
        sharing = at_work({thread: account[0] for thread, account in since.items()})
        given = [thread for thread in self._given if thread in self._before]
        if sharing != given and self._place(sharing, given):
            self._given = sharing
        waited -= asking + turns * _WAKING_NS
        return waited / (ran + waited) if waited > 0 else 0.0

    def _accounts(self) -> dict[int, tuple[int, int, int]]:
        """Nanoseconds run and waited, and how often the thread was scheduled, by thread."""
        found = {}
        for task in self._tasks.iterdir() if os.path.isdir(self._tasks) else ():
            with suppress(OSError, ValueError):  # it has ended meanwhile, or there are no statistics
                ran, waited, turns = (task / "schedstat").read_text(encoding="utf-8").split()
                found[int(task.name)] = int(ran), int(waited), int(turns)
        return found


def at_work(ran_ns: Mapping[int, int]) -> list[int]:
    """Return the threads that share a kernel's work, given how long each thread ran. Python's threads do not count."""
    python = {thread.native_id for thread in threading.enumerate()}
    ran = {thread: ns for thread, ns in ran_ns.items() if thread not in python}
    return sorted(thread for thread, ns in ran.items() if ns > 0 and ns >= _AT_WORK * max(ran.values()))


def give_cores(threads: Sequence[int], before: Sequence[int] = ()) -> bool:
    """Give each thread one of the cores that this process may use, on Linux, if there are as many; return whether.

    The threads in `before`, which had a core of their own, may use any core again: if there are more threads than
    cores, the work is shared by different threads each time.
    """
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if not cores or len(threads) != len(cores):
        return False
    given = {thread: set(cores) for thread in before}
    given |= {thread: {core} for thread, core in zip(threads, cores, strict=True)}
    for thread, some in given.items():
        with suppress(OSError):  # it has ended meanwhile, or may not be changed
            os.sched_setaffinity(thread, some)
    return True


def stretch(samples_ns: Sequence[float], contention: float) -> float:
    """Return how many times as long the samples' median is as it would be with the cores to itself: 1 or more.

    Without waiting, all samples together would have taken the share of their time that was not waiting. If that share
    is 0, the kernel ran in the calling thread. Short samples are left alone: much of their time lies between launches,
    where threads wait as well.
    """
    found = median(samples_ns)
    if not CONTENDED < contention < 1 or found < _SHORT_NS:
        return 1.0
    return max(1.0, found / (fmean(samples_ns) * (1 - contention)))


class Pace:
    """The time of an anchor divided by its first time: 1 at first, 2 while everything takes twice as long.

    A faster anchor may take over, at the pace that the last one has shown. `clock_s` returns the time in seconds.
    """

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self.now = 1.0
        self.base_ns = 0.0
        self._readings = [self.now]
        self._clock_s = clock_s
        self._rested_s, self._cost_s = clock_s(), 0.0

    @property
    def usual(self) -> float:
        """The median of all readings, the slower of two: if it were too quick, all that follows would seem slow."""
        return median_high(self._readings)

    @property
    def is_due(self) -> bool:
        """Whether there is an anchor, and a reading now would stay within its share of the time."""
        share = SHARE if self._is_usual else SHARE_UNUSUAL
        return self.base_ns > 0 and self._clock_s() - self._rested_s >= self._cost_s / share

    @property
    def _is_usual(self) -> bool:
        return abs(self.now / self.usual - 1) <= STEP

    def offer(self, run_ns: float) -> bool:
        """Say whether a plan that has just taken `run_ns` becomes the anchor.

        It does not replace one at an unusual pace, which may be over by now: that error would distort all that follows.
        """
        faster = self._is_usual and run_ns / self.now < self.base_ns * _FASTER
        taken = not self.base_ns or faster
        if taken:
            self.base_ns = run_ns / self.now
            self._cost_s = max(self._cost_s, (_FIRST + 1) * run_ns * 1e-9)
        return taken

    def read(self, take: Callable[[int], Sequence[float]]) -> bool:
        """Time the anchor and say whether the pace has changed.

        `take(count)` returns the nanoseconds of `count` runs, or nothing if they would not be meaningful.
        """
        began_s, before = self._clock_s(), self.now
        samples = list(take(_FIRST))
        if self._differs(samples):
            samples += take(_MORE if self.base_ns < LONG_NS else _FIRST)
        if self._differs(samples) and 1 / _MOST < median(samples) / self.base_ns < _MOST:
            self.now = median(samples) / self.base_ns
        if samples:
            self._readings.append(self.now)
        self._rested_s = self._clock_s()
        self._cost_s = self._rested_s - began_s
        return self.now != before

    def is_slow(self, samples_ns: Sequence[float]) -> bool:
        """Say whether these times of the anchor show a machine that is slower than usual."""
        return self.base_ns > 0 and median(samples_ns) > SLOW * self.usual * self.base_ns

    def _differs(self, samples_ns: Sequence[float]) -> bool:
        return len(samples_ns) > 0 and abs(median(samples_ns) / self.base_ns / self.now - 1) > STEP


class Anchor:
    """The fastest plan that a bench has timed so far, and the pace that it shows."""

    def __init__(self, bench: Bench) -> None:
        self.pace = Pace()
        self.plan: Plan | None = None
        self._clock: Clock | None = None
        self._bench: Bench = weakref.proxy(bench)  # so that a bench that is dropped frees device memory

    def offer(self, plan: Plan, clock: Clock, run_ns: float) -> None:
        """Make a plan that has just been timed the anchor, if it is suitable."""
        if self.pace.offer(run_ns):
            self.plan, self._clock = plan, clock

    def has_moved(self) -> bool:
        """Take a reading and say whether the pace has changed since the last one; False if no reading is due.

        After a reading the buffers hold the anchor's results. Raises Fault if the device is lost.
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
        # The first samples still meet the last plan's data in the caches, and threads that have slept.
        asleep = 1 + count // 10 if self.pace.base_ns < LONG_NS else 0
        if self._bench.settling.needed:
            settle_ns = self._bench.settling.seconds(self.plan, self._clock) * 1e9
            asleep = max(asleep, ceil(settle_ns / (runs * self.pace.base_ns)))
        self._bench.contention()  # from here on
        samples = self._clock.sample(built, asleep + count)[asleep:]
        return [] if self._bench.contention() > CONTENDED else [ns / runs for ns in samples]
