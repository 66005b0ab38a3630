"""Evaluators put configurations through compile, verify and time: always one Trial with exactly one outcome.

`DeviceEvaluator` does so on real devices, in worker processes that a broken kernel may take down. On a GPU, a
pool of builders works ahead of the device and leaves the binaries in a private cache of the driver's. Where
kernels share the cores with compilers they do so too, and are halted while a trial runs: building would disturb it.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass, field, replace
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Protocol, Self

from autotune.bench import Job, Limits, Report, Rules, Setup
from autotune.devices import require_usable, traits
from autotune.errors import AutotuneError, StudyError, WorkerError
from autotune.model import Configuration, DeviceInfo, Measurement, Outcome, Trial
from autotune.pool import data
from autotune.pool.crew import Cancelled, Keeper
from autotune.pool.memory import require_room
from autotune.pool.pause import Pause
from autotune.pool.runtime import RunFolder, lock_devices
from autotune.pool.sizing import capacity, count_builders
from autotune.pool.supervise import LONGEST_WAIT_S
from autotune.pool.tasks import Finalists, Task, Waiting, make_trial
from autotune.study import Plan, Problem, made_of


@dataclass(frozen=True, slots=True)
class Settings:
    """How trials are run. `builders`: processes that build ahead; None: as many as the machine suggests."""

    rules: Rules = field(default_factory=Rules)
    limits: Limits = field(default_factory=Limits)
    builders: int | None = None
    allow_python: bool = False


class Evaluator(Protocol):
    """Turns configurations into trials, several at a time.

    `capacity` is how many it wants in flight; `best_ns` bounds early stop and timeouts, None while unknown: given at
    the start, and lowered here as trials pass.
    """

    capacity: int
    best_ns: float | None

    def submit(self, configuration: Configuration) -> None:
        """Begin a trial; returns at once."""

    def collect(self, timeout_s: float | None = None) -> Trial:
        """Return the next finished trial. Only called while some are in flight. Raises TimeoutError."""

    def retime(
        self, configurations: Sequence[Configuration], budget_s: float = 5.0
    ) -> Sequence[Measurement | Trial | None]:
        """Time configurations interleaved; none may be in flight.

        A failed Trial for one that fails, None where there is no saying.
        """

    def withdraw(self, leave: int = 0, *, building: bool = False) -> Sequence[Configuration]:
        """Take back the trials that no device has begun, but for some; return their configurations.

        With `building`, also those whose kernel a device's worker still builds.
        """

    def usage(self) -> Mapping[str, float]:
        """Return where the wall time went, in seconds: build, verify, time, idle."""

    def close(self) -> None:
        """End every process and remove every file."""


class DeviceEvaluator:
    """Runs the configurations of a problem on one device, or spreads them over several of one model.

    Waits on construction until no other search uses the devices (and says so). The input data and expected
    outputs are computed in the background; an error there, or a worker that cannot start, is raised by
    `collect`. Close it, or use it as a context manager. Raises DeviceError where the data has no room, SetupError.
    """

    def __init__(self, problem: Problem, devices: Sequence[DeviceInfo], settings: Settings | None = None) -> None:
        require_usable(devices[0])
        self._traits = traits(devices[0])
        require_room(problem.plan(problem.default), devices[0], on_host=problem.reference_plan() is None)
        self._problem = problem
        self._devices = list(devices)
        self._settings = settings or Settings()
        self.best_ns: float | None = None
        self._locks = lock_devices(self._devices)
        self._folder = RunFolder()
        self._data: Future[Setup] = Future()
        self._expected: Mapping[str, str] = {}
        self._reference_turn = threading.Lock()
        self._to_build: SimpleQueue[Task | None] = SimpleQueue()
        self._to_run: SimpleQueue[Task | Finalists | None] = SimpleQueue()
        self._waiting = Waiting(self._settings.limits.floor_s)
        self._first: Task | None = None
        self._done: SimpleQueue[tuple[Task, Report, Trial] | AutotuneError] = SimpleQueue()
        self._usage = dict.fromkeys(("build", "verify", "time", "built_ahead", "device"), 0.0)
        self._running_since: dict[Keeper, float] = {}
        self._turns = threading.Lock()
        self._at_work: dict[Keeper, Task] = {}
        self._failure: AutotuneError | None = None
        builders = count_builders(self._devices, self._settings.builders)
        self._pause = Pause()
        self.capacity = capacity(builders, len(devices))
        threading.Thread(target=self._compute_data, name="autotune-data", daemon=True).start()
        self._builders_left = builders
        self._builders = [self._builder(self._devices[number % len(devices)]) for number in range(builders)]
        self._runners = [self._runner(device) for device in self._devices]
        self._lost_s = dict.fromkeys(self._runners, 0.0)
        for keeper in (*self._runners, *self._builders):
            keeper.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def submit(self, configuration: Configuration) -> None:
        """Begin a trial; returns at once."""
        try:
            plan = self._problem.plan(configuration)
        except AutotuneError as error:
            nothing = Plan("", (), (), {})
            self._end(Task(configuration, nothing), Report(Outcome.LAUNCH_ERROR, str(error)), self._devices[0])
            return
        task = Task(configuration, plan, made_of(self._problem, plan, configuration))
        if self._first is None and self.best_ns is None:
            self._first = task
        self._waiting.add(task, ready=not self._builders)
        if self._builders:
            self._to_build.put(task)
        else:
            self._to_run.put(task)

    def collect(self, timeout_s: float | None = None) -> Trial:
        """Return the next finished trial. Raises AutotuneError where no worker can be set up.

        Raises TimeoutError after that time, and after an hour.
        """
        try:
            found = self._done.get(timeout=None if timeout_s is None else min(timeout_s, LONGEST_WAIT_S))
        except Empty:
            raise TimeoutError from None
        if isinstance(found, AutotuneError):
            raise found
        task, report, trial = found
        self._count(task, report)
        return trial

    def retime(self, configurations: Sequence[Configuration], budget_s: float = 5.0) -> list[Measurement | Trial]:
        """Time configurations interleaved on one device, round by round; a failed Trial for one that fails."""
        tasks = [Task(configuration, self._problem.plan(configuration)) for configuration in configurations]
        request = Finalists(tasks, budget_s)
        self._to_run.put(request)
        while True:
            with suppress(TimeoutError):
                return request.answer.result(timeout=0.2)
            if self._failure is not None:
                raise self._failure

    def withdraw(self, leave: int = 0, *, building: bool = False) -> list[Configuration]:
        """Take back what no device has begun, but for the oldest; what is being built is of no more interest.

        With `building`, the device's worker is ended too where it has not come to run the kernel.
        """
        found = self._waiting.withdraw(leave)
        with self._turns:
            for keeper, task in list(self._at_work.items()) if building else ():
                if keeper.building:
                    del self._at_work[keeper]
                    keeper.cancel()
                    found.append(task.configuration)
        return found

    def usage(self) -> Mapping[str, float]:
        """Return seconds of wall time of the device workers: build, verify, time, idle.

        `device` is the part in which kernels executed; `built_ahead` the time of the builders, beside all that.
        """
        now = time.monotonic()
        verify_s = self._usage["verify"] + sum(self._lost_s.values())
        worked = self._usage["build"] + verify_s + self._usage["time"]
        idle = max(0.0, sum(now - since for since in self._running_since.values()) - worked)
        return {**self._usage, "verify": verify_s, "idle": idle}

    def close(self) -> None:
        """End every process and thread of this evaluator, remove its files and release its devices."""
        keepers = (*self._runners, *self._builders)
        for keeper in keepers:
            keeper.close()
        for _ in self._runners:
            self._to_run.put(None)
        for _ in self._builders:
            self._to_build.put(None)
        with suppress(InvalidStateError):
            self._data.set_exception(WorkerError("closed"))
        for keeper in keepers:
            keeper.join()
        self._folder.remove()
        for lock in self._locks:
            lock.release()

    def _count(self, task: Task, report: Report) -> None:
        if task.built is not None:
            self._usage["built_ahead"] += task.built.build_s
        if report is not task.built:
            for step, seconds in (("build", report.build_s), ("verify", report.verify_s), ("time", report.time_s)):
                self._usage[step] += seconds
            self._usage["device"] += report.busy_s

    # -- set-up ---------------------------------------------------------------------------------

    def _runner(self, device: DeviceInfo) -> Keeper:
        def set_up(keeper: Keeper) -> None:
            self._set_up_runner(keeper, device)

        def run(keeper: Keeper, task: Task | Finalists) -> None:
            keeper.resume()
            if isinstance(task, Finalists):
                plans = [one.plan for one in task.tasks]
                with self._pause.held():
                    found = keeper.retime(plans, self.best_ns, task.budget_s, self._settings.limits.build_s)
                task.answer.set_result([
                    make_trial(one, answer, device) if isinstance(answer, Report) else answer
                    for one, answer in zip(task.tasks, found, strict=True)
                ])  # fmt: skip
            elif self._begin(keeper, task):
                with suppress(Cancelled):
                    self._run(keeper, task, device)

        return Keeper("device", self._to_run, run, self._fail, set_up, self._folder.path)

    def _compute_data(self) -> None:
        given, failure = self._settings, None
        try:
            setup = data.compute(
                self._problem, self._folder.path, given.rules, given.limits, allow_python=given.allow_python
            )
        except AutotuneError as error:
            failure = error
        except (Exception, SystemExit) as error:  # a reference in Python may raise anything; `collect` reports it
            failure = StudyError(f"the reference failed: {type(error).__name__}: {error}")
        with suppress(InvalidStateError):  # closed meanwhile
            if failure is None:
                self._data.set_result(setup)
            else:
                self._data.set_exception(failure)

    def _set_up_runner(self, keeper: Keeper, device: DeviceInfo) -> None:
        def setup() -> Setup:
            known = self._data.result()
            return replace(known, expected=self._expected or known.expected)

        # A reference kernel runs once: the first worker leaves its outputs on disk for the others.
        alone = not self._expected and self._problem.reference_plan() is not None
        with self._reference_turn if alone else nullcontext():
            ready = keeper.start_worker(device, setup, self._folder.environment(device))
            self._expected = ready.expected
        self._running_since.setdefault(keeper, time.monotonic())  # not again where a worker is replaced

    def _builder(self, device: DeviceInfo) -> Keeper:
        nothing = Setup("", {}, {}, None, self._settings.rules, self._settings.limits)
        setup = self._data.result if self._traits.builds_at_launch else lambda: nothing

        def set_up(keeper: Keeper) -> None:
            keeper.start_worker(device, setup, self._folder.environment(device))

        pause = self._pause if self._traits.shares_cores else None
        return Keeper("builder", self._to_build, self._build, self._fail_builder, set_up, self._folder.path, pause)

    # -- in the keepers' threads ----------------------------------------------------------------

    def _build(self, keeper: Keeper, task: Task) -> None:
        if task not in self._waiting:
            return
        try:
            report = keeper.attempt(Job(task.plan), self._settings.limits.build_s)
        except WorkerError:  # no builder can be started: the device's worker builds it
            if self._waiting.make_ready(task):
                self._to_run.put(task)
            raise
        # Where the first launch compiles, a builder launches a part: what that does, a whole trial has to say.
        ran = report.outcome is Outcome.CRASH or (report.outcome is Outcome.TIMEOUT and report.phase == "run")
        undecided = self._traits.builds_at_launch and ran
        if report.outcome is not Outcome.OK and not undecided:
            task.built = report
            if self._waiting.claim(task):
                self._end(task, report, self._devices[0])
            return
        task.built = None if undecided else report
        if self._waiting.make_ready(task):
            self._to_run.put(task)

    def _run(self, keeper: Keeper, task: Task, device: DeviceInfo) -> None:
        for builder in self._builders:  # a context in the making disturbs what runs
            builder.started.wait()
        best, shared = self.best_ns, self._traits.shares_cores and bool(self._builders)
        if (known := task.made_way) is not None and known.made_way_s >= self._settings.limits.run_s(best):
            if self._stop(keeper, task):
                self._end(task, replace(known, verify_s=0.0), device)  # its last run is in `lost_s`
            return
        ahead = task.built is not None
        # The default's time is part of the answer, even if another was faster meanwhile. What a builder gave up is not.
        patient = task is self._first and (ahead or not self._builders)
        job = Job(task.plan, best, patient=patient, built_ahead=ahead, asks=shared)
        with ExitStack() as turn:
            report = keeper.attempt(
                job,
                self._settings.limits.build_s,
                on_built=lambda: turn.enter_context(self._pause.held()),
                makes_way=self._waiting.makes_way if best is None and not patient else None,
            )
        if not self._stop(keeper, task):
            return
        if report.made_way_s:
            self._lost_s[keeper] += report.verify_s
            task.lost_s += report.verify_s
            task.made_way = report
            self._waiting.put_back(task, report.made_way_s)
            self._to_run.put(task)
        else:
            self._end(task, report, device)

    def _begin(self, keeper: Keeper, task: Task) -> bool:
        """Note that a device's worker turns to a task; False where that was withdrawn."""
        with self._turns:
            if not self._waiting.claim(task):
                return False
            self._at_work[keeper] = task
            return True

    def _stop(self, keeper: Keeper, task: Task) -> bool:
        """Note that a device's worker is done with a task; False where that was withdrawn meanwhile."""
        with self._turns:
            return self._at_work.pop(keeper, None) is task

    def _end(self, task: Task, report: Report, device: DeviceInfo) -> None:
        """Hand a trial over to `collect`; what follows on this device is bounded by it already."""
        trial = make_trial(task, report, device)
        if trial.outcome is Outcome.OK and not trial.time_ns > (self.best_ns or math.inf):
            self.best_ns = trial.time_ns
        self._done.put((task, report, trial))

    def _fail_builder(self, error: AutotuneError) -> None:
        """A search goes on with the builders that are left, as long as there are any and the machine is sound."""
        with self._turns:
            self._builders_left -= 1
        if not isinstance(error, WorkerError) or self._builders_left == 0:
            self._fail(error)

    def _fail(self, error: AutotuneError) -> None:
        self._failure = error
        self._done.put(error)
