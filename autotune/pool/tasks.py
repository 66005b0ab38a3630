"""Tasks of a search's threads: which wait, run or have ended, how many to have in flight, the time they took."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from queue import Empty, SimpleQueue
from threading import TIMEOUT_MAX, Event, Lock
from typing import TYPE_CHECKING, Any, TypeVar

from autotune.bench import Report
from autotune.errors import AutotuneError
from autotune.model import Configuration, DeviceInfo, Measurement, Outcome, Trial
from autotune.pool.contract import Evaluator
from autotune.pool.lock import Stopped
from autotune.ranking import median
from autotune.study import Plan, Problem, made_of

if TYPE_CHECKING:
    from autotune.pool.keeper import Keeper

RECENT = 16
"""The medians of this many builds and trials predict how long the next will take."""

SPARE = 1.25
"""Factor by which more builds are in flight than would be enough if all took equally long."""

UNKNOWN = 2.0
"""Assumed time of a build as a multiple of a trial's, before both are known. A search that learns comes within 5 % and
2 % of the best sooner if builders wait for its first trial than if all of them get work blindly.
"""

_POLL_S = 0.2
"""How often, in seconds, a wait for the finalists checks whether it should end."""

_Answer = TypeVar("_Answer")


@dataclass(eq=False)
class Task:
    """One configuration on its way through the pool; hashed by identity.

    `submitted` is a time of the monotonic clock. `built` is what its builder reported, `lost_s` the seconds of runs
    that were interrupted for others (way.py), `made` what the store keeps of the plan. `opens`: it is the first task of
    all, and the device's worker builds it by itself if it shares cores with the builders, since a part of a build that
    is handed over is done twice.
    """

    configuration: Configuration
    opens: bool = False
    started: datetime = field(default_factory=lambda: datetime.now(UTC))
    submitted: float = field(default_factory=time.monotonic)
    built: Report | None = None
    lost_s: float = 0.0
    made: Mapping[str, Any] | None = None
    _plan: Plan | None = None

    def waited_for(self, waited_s: float) -> float:
        """Return how much of a wait that ends now was for this task, which may have been submitted late."""
        return min(waited_s, time.monotonic() - self.submitted)

    def plan(self, problem: Problem) -> Plan | Report:
        """Return the plan, which the first call makes, or a report if there can be none."""
        if self._plan is None:
            try:
                self._plan = problem.plan(self.configuration)
            except AutotuneError as error:
                return Report(Outcome.LAUNCH_ERROR, str(error))
            self.made = made_of(problem, self._plan, self.configuration)
        return self._plan


class Waiting:
    """The tasks that no device has begun, oldest first, and which of them are ready to run. Threads share it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._ready: dict[Task, bool] = {}

    def add(self, task: Task, *, ready: bool) -> None:
        """Add a task; it is not `ready` if it must be built first."""
        with self._lock:
            self._ready[task] = ready

    def make_ready(self, task: Task) -> bool:
        """Record that a task is built; say whether it still waits."""
        with self._lock:
            waits = task in self._ready
            if waits:
                self._ready[task] = True
            return waits

    def __contains__(self, task: Task) -> bool:
        return task in self._ready

    def unbuilt(self) -> int:
        """Return how many tasks must be built first."""
        with self._lock:
            return sum(not ready for ready in self._ready.values())

    def any_ready(self) -> bool:
        """Say whether there is a task that a free device could run."""
        with self._lock:
            return any(self._ready.values())

    def claim(self, task: Task) -> bool:
        """Say whether a task still waits, and take it out: it can no longer be withdrawn."""
        with self._lock:
            return self._ready.pop(task, None) is not None

    def withdraw(self, leave: int) -> list[Configuration]:
        """Remove all tasks except the `leave` oldest; return their configurations."""
        with self._lock:
            count = max(0, len(self._ready) - leave)
            return [self._ready.popitem()[0].configuration for _ in range(count)]


class AtWork:
    """The current tasks of the devices' workers. The workers' threads call it, and a thread that withdraws tasks."""

    def __init__(self, devices: int, waiting: Waiting) -> None:
        self._lock = Lock()
        self._tasks: dict[Keeper, Task] = {}
        self._waiting = waiting
        self._sound = devices

    def begin(self, keeper: Keeper, task: Task) -> bool:
        """Record that a device's worker begins a task; False if the task was withdrawn."""
        with self._lock:
            if not self._waiting.claim(task):
                return False
            self._tasks[keeper] = task
            return True

    def stop(self, keeper: Keeper, task: Task) -> bool:
        """Record that a device's worker has finished a task; False if the task was withdrawn meanwhile."""
        with self._lock:
            return self._tasks.pop(keeper, None) is task

    def withdraw_building(self) -> list[Configuration]:
        """End the workers that have not yet run the kernel of their task; return the configurations of these tasks."""
        with self._lock:
            early = [(keeper, task) for keeper, task in self._tasks.items() if keeper.building]
            for keeper, _ in early:
                del self._tasks[keeper]
                keeper.cancel()
            return [task.configuration for _, task in early]

    def lose(self) -> bool:
        """Record that a device is lost, and say whether it was the last."""
        with self._lock:
            self._sound -= 1
            return self._sound == 0


@dataclass
class Finalists:
    """A request to time configurations interleaved; the answer goes into the future."""

    tasks: list[Task]
    budget_s: float
    answer: Future[list[Measurement | Trial]] = field(default_factory=Future)

    def finish(self, found: Sequence[Measurement | Report], device: DeviceInfo) -> None:
        """Answer with what a device's worker found for each."""
        self.answer.set_result([
            make_trial(one, answer, device) if isinstance(answer, Report) else answer
            for one, answer in zip(self.tasks, found, strict=True)
        ])  # fmt: skip


class Delivering(Evaluator):
    """An evaluator whose trials end in other threads, which deliver them to the thread that collects them."""

    def __init__(self) -> None:
        self._done: SimpleQueue[Trial | AutotuneError] = SimpleQueue()
        self._failure: AutotuneError | None = None

    def deliver(self, found: Trial | AutotuneError) -> None:
        """Hand a finished trial to `collect`, or the error that it raises because nothing is left to run any."""
        if isinstance(found, AutotuneError):
            self._failure = found
        self._done.put(found)

    def collect(self, timeout_s: float | None = None) -> Trial:
        """Return the next finished trial. Raises AutotuneError if nothing is left to run it.

        Raises TimeoutError after `timeout_s`; if that is None, it waits.
        """
        try:
            found = self._done.get(timeout=None if timeout_s is None else min(timeout_s, TIMEOUT_MAX))
        except Empty:
            raise TimeoutError from None
        if isinstance(found, AutotuneError):
            raise found
        return found

    @property
    def ready(self) -> int:
        """How many finished trials wait to be collected."""
        return self._done.qsize()

    def wait_for(self, finalists: Future[_Answer], stop: Event | None) -> _Answer:
        """Return the answer for finalists. Raises Stopped, and the error if nothing is left to time them."""
        while stop is None or not stop.is_set():
            with suppress(TimeoutError):
                return finalists.result(timeout=_POLL_S)
            if self._failure is not None:
                raise self._failure
        raise Stopped


def make_trial(task: Task, report: Report, device: DeviceInfo) -> Trial:
    """Return the trial of a task, from its report and the report of the build before it."""
    built = task.built if task.built is not None and task.built is not report else Report(Outcome.OK)
    return Trial(
        configuration=task.configuration,
        outcome=report.outcome,
        reason=report.reason,
        measurement=report.measurement,
        max_error=report.max_error,
        build_s=built.build_s + report.build_s,
        verify_s=report.verify_s + task.lost_s,
        time_s=report.time_s,
        build_log=built.build_log or report.build_log,
        binary_hash=built.binary_hash or report.binary_hash,
        driver=device.driver,
        device_index=device.index,
        started=task.started,
        finished=datetime.now(UTC),
        environment={**report.environment, **built.environment},
        made=task.made,
    )


class Usage:
    """Adds up the time that the trials and the finalists of one evaluator took."""

    def __init__(self) -> None:
        self._spent_s = dict.fromkeys(("build", "verify", "time", "finalists", "built_ahead", "device"), 0.0)

    def count(self, task: Task, report: Report) -> None:
        """Add a trial that has ended."""
        if task.built is not None:
            self._spent_s["built_ahead"] += task.built.build_s
        if report is not task.built:
            for step, seconds in (("build", report.build_s), ("verify", report.verify_s), ("time", report.time_s)):
                self._spent_s[step] += seconds
            self._spent_s["device"] += report.busy_s

    @contextmanager
    def finalists(self) -> Iterator[None]:
        """Add the time of the block, in which finalists are built, timed again and verified."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._spent_s["finalists"] += time.monotonic() - began

    def told(self, lost_s: float, ready: Iterable[float | None]) -> Mapping[str, float]:
        """Return the seconds of each step, and those without any (`idle`).

        `lost_s` are the seconds of interrupted runs; `ready` is when each worker became ready, None if it has not.
        """
        now = time.monotonic()
        verify_s = self._spent_s["verify"] + lost_s
        worked_s = self._spent_s["build"] + verify_s + self._spent_s["time"] + self._spent_s["finalists"]
        there_s = sum(now - since for since in ready if since is not None)
        return {**self._spent_s, "verify": verify_s, "idle": max(0.0, there_s - worked_s)}


class Ahead:
    """How many configurations should be in flight: enough to keep builders and devices busy, and no more.

    Each further one is proposed without the results of those before it: with sixteen in flight, a search that learns
    needs one and a half times the evaluations (docs/search.md). If a trial takes as long as a build, four keep the
    device as busy. Threads share it.

    If `in_turns`, builders halt while a trial runs, so all of them are needed for the builds between two trials.
    """

    def __init__(self, builders: int, devices: int, *, in_turns: bool = False) -> None:
        self.most = builders + 2 * devices if builders else devices
        """How many are wanted at most."""
        self._builders = builders
        self._devices = devices
        self._in_turns = in_turns
        self._built_s: deque[float] = deque(maxlen=RECENT)
        self._ran_s: deque[float] = deque(maxlen=RECENT)
        self._lock = Lock()

    def built(self, seconds: float) -> None:
        """Record the time of a build that has ended."""
        with self._lock:
            self._built_s.append(seconds)

    def ran(self, seconds: float) -> None:
        """Record the time that a device took for a trial."""
        with self._lock:
            self._ran_s.append(seconds)

    @property
    def has_run(self) -> bool:
        """Whether a trial has ended: before that, more builders would not shorten the device's wait."""
        return bool(self._ran_s)

    def wanted(self, begun: int) -> int:
        """Return how many are wanted if `begun` builders have begun.

        These are, for each device, a task that runs and one that is ready, and the tasks that are being built.
        """
        if not self._builders:
            return self._devices
        with self._lock:
            known = self._built_s and self._ran_s
            builds = median(self._built_s) / median(self._ran_s) if known else UNKNOWN
        builds = math.inf if self._in_turns else builds
        return 2 * self._devices + max(1, math.ceil(min(begun, SPARE * self._devices * builds)))
