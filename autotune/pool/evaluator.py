"""Takes configurations through compile, verify and time on real devices: always one Trial with exactly one outcome.

This is done in worker processes, which a broken kernel may crash. On a GPU, a pool of builders works ahead of the
device and leaves the binaries in a private cache of the driver. Builders also work ahead where kernels and compilers
share cores, but are halted while a trial runs, because building would disturb it.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from itertools import cycle, islice
from queue import SimpleQueue

from autotune.bench import Job, Report
from autotune.devices import require_usable, traits
from autotune.errors import AutotuneError, WorkerError
from autotune.model import Configuration, DeviceInfo, Measurement, Outcome, Trial
from autotune.pool.builders import Builders, count_first
from autotune.pool.contract import Settings
from autotune.pool.data import Setups
from autotune.pool.folder import RunFolder
from autotune.pool.forkserver import Forkserver, can_hold
from autotune.pool.keeper import Cancelled, Closed, Keeper
from autotune.pool.listing import let_go
from autotune.pool.lock import lock_devices
from autotune.pool.pause import Pause
from autotune.pool.retiming import Retiming
from autotune.pool.sizing import count_builders, require_room
from autotune.pool.tasks import Ahead, AtWork, Delivering, Finalists, Task, Usage, Waiting, make_trial
from autotune.pool.way import MakingWay
from autotune.study import Problem

log = logging.getLogger(__name__)

_ALONE_S = 0.5
"""How long `close` waits for the devices' workers, if they end slowly, before it ends the builders too."""


class DeviceEvaluator(Delivering):
    """Runs the configurations of a problem on one device, or spreads them over several of one model.

        submit -> _to_build -> _build -> _to_run -> _run -> deliver -> collect

    Each step between two queues is taken in a keeper's thread, with its worker; `_waiting` holds the tasks that no
    device has begun. A task that is not built ahead starts in `_to_run`; one whose build fails is delivered.

    The constructor waits until no other search uses the devices (and says so). It raises Stopped if `stop` is set
    meanwhile; `before_waiting` may raise an error that makes waiting useless. Input data and expected outputs are
    computed in the background; `collect` raises the error if that fails or a worker cannot start. Close it, or use it
    as a context manager. Raises DeviceError if there is no room for the data, SetupError.
    """

    def __init__(
        self,
        problem: Problem,
        devices: Sequence[DeviceInfo],
        settings: Settings | None = None,
        stop: threading.Event | None = None,
        before_waiting: Callable[[], object] | None = None,
    ) -> None:
        super().__init__()
        require_usable(devices[0])
        self._traits = traits(devices[0])
        on_host = problem.reference_plan() is None
        require_room(problem.plan(problem.default), devices[0], on_host=on_host, hint=problem.smaller)
        settings = settings or Settings()
        self._problem = problem
        self._device = devices[0]
        self._limits = settings.limits
        self._stops_slow = settings.stops_slow
        self._learns = settings.learns
        self.best_ns: float | None = None
        self._ending = threading.Lock()
        with ExitStack() as held:
            for lock in lock_devices(devices, stop, before_waiting):
                held.callback(lock.release)
            self._folder = RunFolder()
            held.callback(self._folder.remove)
            self._begin(problem, devices, settings)
            self._held = held.pop_all()

    def _begin(self, problem: Problem, devices: Sequence[DeviceInfo], settings: Settings) -> None:
        self._setups = Setups(problem, self._folder, settings)
        self._to_build: SimpleQueue[Task | None] = SimpleQueue()
        self._to_run: SimpleQueue[Task | Finalists | None] = SimpleQueue()
        self._waiting = Waiting()
        self._way = MakingWay(self._waiting, settings.limits)
        self._first: Task | None = None
        self._usage = Usage()
        self._at_work = AtWork(len(devices), self._waiting)
        self._pause = Pause()
        self._forks = Forkserver() if can_hold() else None
        self._start = self._forks.start if self._forks is not None else None
        builders = count_builders(devices, settings.builders)
        self._ahead = Ahead(builders, len(devices), in_turns=self._traits.shares_cores)
        self._builds_ahead = builders > 0
        self._begins = self._builds_ahead and self._traits.shares_cores and settings.trials != 1
        self._runners = [self._runner(device) for device in devices]
        pairs = cycle(zip(devices, self._runners, strict=True))
        self._builders = Builders(
            [self._builder(number, *pair) for number, pair in enumerate(islice(pairs, builders))],
            count_first(settings.trials, len(devices)),
        )
        self._retiming = Retiming(problem, self._setups, self._builders, self._pause, settings.limits.build_s)
        for keeper in self._runners:
            keeper.start()
        self._builders.start()

    def submit(self, configuration: Configuration) -> None:
        """Begin a trial; returns at once. A configuration that cannot be planned is a launch error."""
        task = Task(configuration, opens=self._begins and configuration == self._problem.default)
        self._begins = False
        if self._first is None and self.best_ns is None:
            self._first = task
        ready = task.opens or not self._builds_ahead
        self._waiting.add(task, ready=ready)
        (self._to_run if ready else self._to_build).put(task)

    @property
    def capacity(self) -> int:
        """How many trials are wanted in flight now, by recent builds and trials, or `most` if trials teach nothing."""
        return self._ahead.wanted(len(self._builders.begun)) if self._learns else self._ahead.most

    @property
    def most(self) -> int:
        """How many trials are ever wanted in flight."""
        return self._ahead.most

    def retime(
        self, configurations: Sequence[Configuration], budget_s: float = 5.0, stop: threading.Event | None = None
    ) -> list[Measurement | Trial]:
        """Time configurations interleaved on one device, round by round. The answer for one that fails is its Trial."""
        request = Finalists([Task(configuration) for configuration in configurations], budget_s)
        self._to_run.put(request)
        return self.wait_for(request.answer, stop)

    def withdraw(self, leave: int = 0, *, building: bool = False) -> list[Configuration]:
        """Take back the tasks that no device has begun, except the `leave` oldest; their builds no longer matter.

        With `building`, the device's worker is also ended if it has not begun to run its kernel.
        """
        return self._waiting.withdraw(leave) + (self._at_work.withdraw_building() if building else [])

    def usage(self) -> Mapping[str, float]:
        """Return seconds of wall time of the device workers: build, verify, time, finalists, idle.

        `device` is the part of the trials in which kernels executed; `built_ahead` is the time of the builders, which
        is extra.
        """
        return self._usage.told(self._way.lost_s, (keeper.since for keeper in self._runners))

    def close(self) -> None:
        """End every process and thread of this evaluator, remove its files and release its devices.

        Builders that end slowly are killed and not waited for: the system cleans up after them. The devices' workers
        end first, so that their end need not wait for that of the builders.
        """
        waits = not self._traits.ends_slowly
        for keeper in self._runners:
            keeper.close()
            self._to_run.put(None)
        for keeper in () if waits else self._runners:
            keeper.join(_ALONE_S)  # it may be waiting for a builder
        self._builders.close()
        for _ in self._builders.begun:
            self._to_build.put(None)
        self._setups.close()
        if self._forks is not None:
            self._forks.close(wait=False)  # a keeper may be waiting for a worker from it
        for keeper in (*self._runners, *(self._builders.begun if waits else ())):
            keeper.join()
        if self._forks is not None:
            self._forks.close(wait=waits)
        self._held.close()

    def _runner(self, device: DeviceInfo) -> Keeper:
        def run(keeper: Keeper, task: Task | Finalists) -> None:
            keeper.resume()
            try:
                if isinstance(task, Finalists):
                    with self._usage.finalists():
                        self._retiming.answer(task, keeper, device, self.best_ns)
                elif self._at_work.begin(keeper, task):
                    with suppress(Cancelled):
                        self._run(keeper, task, device)
            except (Closed, Cancelled):
                raise
            except Exception:  # mostly: no worker can be started any more. Another device takes over the task
                self._pass_on(keeper, task)
                raise

        def set_up(keeper: Keeper) -> None:
            self._setups.start_runner(keeper, device)
            let_go()

        def fail(error: AutotuneError) -> None:
            self._fail("device", self._at_work.lose(), error)

        return Keeper("device", device, self._to_run, run, fail, set_up, self._folder.path, start=self._start)

    def _builder(self, number: int, device: DeviceInfo, runner: Keeper) -> Keeper:
        def set_up(keeper: Keeper) -> None:
            # Contexts are created one by one: first for the device's worker, which then has more to do, and a builder.
            if not self._traits.shares_cores and number >= len(self._runners):
                runner.opened.wait()
            self._setups.start_builder(keeper, device)

        def fail(error: AutotuneError) -> None:
            self._fail("builder", self._builders.lose(), error)

        pause = self._pause if self._traits.shares_cores else None
        return Keeper(
            "builder", device, self._to_build, self._build, fail, set_up, self._folder.path, pause, self._start
        )

    # -- in the keepers' threads ----------------------------------------------------------------

    def _build(self, keeper: Keeper, task: Task) -> None:
        if task not in self._waiting:
            return
        try:
            report = self._attempt_build(keeper, task)
        except Closed:
            raise
        except Exception:  # mostly: no builder can be started. The device's worker builds the task
            if self._waiting.make_ready(task):
                self._to_run.put(task)
            raise
        # If kernels compile at the first launch, a builder launches a part of them: failures there need a whole trial.
        ran = report.outcome is Outcome.CRASH or (report.outcome is Outcome.TIMEOUT and report.phase == "run")
        undecided = self._traits.builds_at_launch and ran
        task.built = None if undecided else report
        if report.outcome is Outcome.OK or undecided:
            if self._waiting.make_ready(task):
                self._to_run.put(task)
        elif self._waiting.claim(task):
            self._end(task, report, self._device)

    def _attempt_build(self, keeper: Keeper, task: Task) -> Report:
        plan = task.plan(self._problem)
        if isinstance(plan, Report):
            return plan
        began = time.monotonic()
        with self._builders.building():
            report = keeper.attempt(Job(plan), self._limits.build_s)
        self._ahead.built(time.monotonic() - began)
        return report

    def _run(self, keeper: Keeper, task: Task, device: DeviceInfo) -> None:
        if self._ahead.has_run and self._waiting.unbuilt() + 1 >= len(self._builders.begun):
            self._builders.waited(task.waited_for(keeper.waited_s))
        with nullcontext() if task.opens else self._builders.undisturbed():
            best_ns = self.best_ns
            known = self._way.verdict(task, best_ns)
            report = known or self._attempt(keeper, task, best_ns)
        if not self._at_work.stop(keeper, task):
            return
        if known is None and self._way.made(task, report):
            self._waiting.add(task, ready=True)
            self._to_run.put(task)
        else:
            self._end(task, report, device)

    def _attempt(self, keeper: Keeper, task: Task, best_ns: float | None) -> Report:
        plan = task.plan(self._problem)
        if isinstance(plan, Report):
            return plan
        ahead = task.built is not None
        # The default's time is part of the answer, even if another configuration was faster meanwhile, or in an earlier
        # search that was killed. A default that a builder gave up is treated like the others.
        awaited = task is self._first or task.configuration == self._problem.default
        patient = awaited and (ahead or task.opens or not self._builds_ahead)
        asks = self._traits.shares_cores and self._builds_ahead
        began = time.monotonic()
        with ExitStack() as turn:

            def take_turn() -> None:
                self._builders.wait_ready()
                turn.enter_context(self._pause.held())

            report = keeper.attempt(
                Job(plan, None if patient else best_ns, built_ahead=ahead, asks=asks),
                self._limits.build_s,
                on_built=take_turn,
                gives_up=self._way.of(task) if best_ns is None and not patient else None,
            )
        self._retiming.note_built(task.configuration)
        if not task.opens:
            self._ahead.ran(time.monotonic() - began)
        return report

    def _end(self, task: Task, report: Report, device: DeviceInfo) -> None:
        """Hand a trial over to `collect`. Its time bounds the next trial of this device at once."""
        trial = make_trial(task, report, device)
        with self._ending:  # several devices end trials at once
            self._usage.count(task, report)
            if self._stops_slow and trial.outcome is Outcome.OK and not trial.bounding_ns > (self.best_ns or math.inf):
                self.best_ns = trial.bounding_ns
        self.deliver(trial)

    def _pass_on(self, keeper: Keeper, task: Task | Finalists) -> None:
        """Give the task of a lost device to the other devices."""
        if isinstance(task, Finalists):
            self._to_run.put(task)
        elif self._at_work.stop(keeper, task):
            self._waiting.add(task, ready=True)
            self._to_run.put(task)

    def _fail(self, what: str, last: bool, error: AutotuneError) -> None:
        """Go on with the workers that are left, unless this was the last one or the machine is at fault."""
        if last or not isinstance(error, WorkerError):
            self.deliver(error)
        else:
            log.warning("a %s is lost, the search goes on with the others: %s", what, error)
