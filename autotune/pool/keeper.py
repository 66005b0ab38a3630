"""Threads of the search, each of which manages one worker process: a builder, or the device's worker.

A thread sends its worker one message at a time, waits for the answer within the limits, and starts another worker if
the old one died, exceeded a limit or reported itself lost. Threads are enough, since Python only waits here.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from autotune.bench import Job, Onward, Probe, Ready, Report, Retime, Setup, Sound, Turn, Visited
from autotune.errors import AutotuneError, SetupError, WorkerError
from autotune.model import DeviceInfo, Measurement
from autotune.pool.allowance import MORE_ROOM
from autotune.pool.blame import forgiving, is_from_outside, machine_fault, may_be_the_machines, unwritable
from autotune.pool.pause import Pause
from autotune.pool.process import GivesUp, Start, WorkerDied, WorkerOverran, WorkerProcess, not_started, unready
from autotune.study import Plan

_START_DELAYS_S = (0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0)
"""Pauses before another try to start a worker that was ended from outside, maybe because the machine lacked memory."""

_DOUBTS_S = (0.5, 2.0)
"""Pauses before a kernel known to be good is tried again after it failed: its linker may have been killed."""

_START_S = 120.0
"""Limit for the start of a driver, a context, and the upload of the data; a reference kernel announces its own limits.
"""


Visiting = Callable[[Retime, Onward], tuple[Visited, ...]]
"""Has other workers visit the plans, and returns what is known then; it is given what the device's worker knows."""


class Closed(Exception):
    """The evaluator is closing; the thread ends."""


class Cancelled(Exception):
    """The worker's task was cancelled, and the worker was ended."""


class Keeper(threading.Thread):
    """Keeps one worker process alive and passes each task of a queue to `handle`, until it gets None.

    `set_up` starts the worker, by `start_worker`, and may first wait for what that needs. `fail` is called if no worker
    can be started; then the thread ends. The worker halts while the `pause` is held. `start` starts its process.
    `opened` is set once the first worker has opened its device, `started` once it is ready; both are also set if that
    will never happen. `since` is when it was ready; `waited_s` is how long the thread waited for its current task.
    """

    def __init__(
        self,
        role: str,
        device: DeviceInfo,
        tasks: SimpleQueue[Any],
        handle: Callable[[Keeper, Any], None],
        fail: Callable[[AutotuneError], None],
        set_up: Callable[[Keeper], None],
        folder: Path,
        pause: Pause | None = None,
        start: Start | None = None,
    ) -> None:
        super().__init__(name=f"autotune-{role}", daemon=True)
        self.role = role
        self.device = device
        self._tasks = tasks
        self._serve = handle
        self._fail = fail
        self._set_up = set_up
        self._folder = folder
        self._pause = pause
        self._start = start
        self._worker: WorkerProcess | None = None
        self._closing = False
        self._interrupted = threading.Event()  # by `close` or `cancel`
        self._at_work = threading.Lock()
        self._sound = role != "device"  # a builder is probed only once its failures are in doubt
        self.opened, self.started = threading.Event(), threading.Event()
        self.since: float | None = None
        self.waited_s = 0.0

    def run(self) -> None:
        """Start a worker, then take and handle tasks."""
        try:
            with self._at_work:
                self._set_up(self)
                self.started.set()
            while (task := self._next()) is not None and not self._closing:
                with self._at_work:
                    self._serve(self, task)
        except Closed:
            pass
        except Exception as error:
            if self._closing:  # its files are being removed
                return
            if not isinstance(error, AutotuneError):  # if it were not reported, the search would wait for ever
                text = f"the thread of the {self.role} worker failed: {type(error).__name__}: {error}"
                error = WorkerError(text, detail=traceback.format_exc())
            self._fail(error)
        finally:
            self.opened.set()
            self.started.set()
            self._drop()

    def _next(self) -> Any:
        began = time.monotonic()
        task = self._tasks.get()
        self.waited_s = time.monotonic() - began
        return task

    @contextmanager
    def borrowed(self) -> Iterator[bool]:
        """Keep it from taking tasks, while another thread uses its worker; yield False if it is busy or not ready."""
        free = self._at_work.acquire(blocking=False)
        try:
            yield free and self.since is not None
        finally:
            if free:
                self._at_work.release()

    def close(self) -> None:
        """End the worker process now; the thread then ends by itself."""
        self._closing = True
        self.cancel()

    def cancel(self) -> None:
        """End the worker's task by killing its process: `attempt` raises Cancelled until `resume`."""
        self._interrupted.set()
        worker = self._worker
        if worker is not None:
            worker.stop()

    def resume(self) -> None:
        """Go on after `cancel`."""
        self._interrupted.clear()
        if self._closing:  # in whichever order they came: `close` must not be missed
            self._interrupted.set()

    @property
    def building(self) -> bool:
        """Whether no kernel of a trial runs: the worker starts, waits or builds."""
        worker = self._worker
        return worker is None or worker.phase not in ("run", "verify", "time")

    def start_worker(self, device: DeviceInfo, setup: Callable[[], Setup], environment: Mapping[str, str]) -> Ready:
        """Start the worker process and return its answer to Setup; `setup` may take a while.

        A worker that is ended from outside is started again after `_START_DELAYS_S`. Raises WorkerError if it cannot
        start, SetupError if the machine is at fault, Closed, Cancelled.
        """

        def start() -> Any:
            self._worker = WorkerProcess(self.role, self._folder, environment, self._start)
            self._exchange(self._worker, device, _START_S)
            if self.role == "device":
                _require_begun(self.role, self._hear(self._worker, _START_S))
            self.opened.set()
            if not self._sound:
                self._probe(self._worker)
            if self._pause is not None:
                self._pause.join(self._worker)
            return self._exchange(self._worker, setup(), _START_S)

        for delay_s in (*_START_DELAYS_S, None):
            try:
                answer = self._surely(start)
                break
            except (WorkerDied, WorkerOverran) as error:
                if full := unwritable(self._folder):
                    raise SetupError(f"the {self.role} worker cannot start: {full}", hint=MORE_ROOM) from None
                outside = isinstance(error, WorkerDied) and is_from_outside(error)
                if not outside or delay_s is None:
                    raise not_started(self.role, error) from None
            if self._interrupted.wait(delay_s):
                raise self._end()
        if isinstance(answer, Report):
            raise unready(self.role, answer)
        assert isinstance(answer, Ready)
        self.since = self.since or time.monotonic()  # not changed when a worker is replaced
        return answer

    def _surely(self, start: Callable[[], Any]) -> Any:
        """Start a worker, up to twice more if the machine seems at fault: a temporary fault does not count."""
        for delay_s in _DOUBTS_S:
            try:
                return start()
            except SetupError:
                self._drop()
                if unwritable(self._folder):
                    raise
            if self._interrupted.wait(delay_s):
                raise self._end()
        return start()

    def ask(
        self,
        message: Any,
        limit_s: float,
        on_built: Callable[[], object] | None = None,
        gives_up: GivesUp | None = None,
    ) -> Any:
        """Send a message to a worker that is ready, and return its answer. `on_built` returns the reply to a Turn.

        `gives_up`: see `WorkerProcess.receive`. Raises WorkerDied and WorkerOverran after the worker has ended;
        WorkerError, SetupError and StudyError if none can be set up; Closed, Cancelled.
        """

        def once() -> Any:
            if self._worker is None:
                self._set_up(self)
            assert self._worker is not None
            answer = self._exchange(self._worker, message, limit_s, gives_up)
            if isinstance(answer, Turn):
                answer = self._exchange(self._worker, on_built() if on_built else None, limit_s, gives_up)
            return answer

        return forgiving(once)

    def attempt(
        self,
        job: Job,
        limit_s: float,
        on_built: Callable[[], object] | None = None,
        gives_up: GivesUp | None = None,
    ) -> Report:
        """Run a job and turn whatever happens to the worker into a report.

        If the job `asks`, `on_built` is called before its kernel runs.
        """
        began = time.monotonic()
        try:
            report = self.ask(job, limit_s, on_built, gives_up)
        except (WorkerOverran, WorkerDied) as end:
            report = Report(end.outcome, str(end), phase=end.phase, **_spent(end.phase, began))
        assert isinstance(report, Report)
        if may_be_the_machines(report):
            self._require_sound_machine()
        return report

    def _require_sound_machine(self) -> None:
        """Raise SetupError if even a kernel that is known to be good does not build and run here."""
        self._sound = False
        if self._worker is None:
            self._set_up(self)
        else:
            try:
                self._probe(self._worker)
            except (WorkerDied, WorkerOverran):  # ended from outside: no verdict
                pass
            except SetupError:  # it may be temporary: probe again with another worker
                self._drop()
                self._set_up(self)

    def _probe(self, worker: WorkerProcess) -> None:
        try:
            answer = self._exchange(worker, Probe(new_salt()), _START_S)
        except WorkerDied as death:
            if is_from_outside(death):
                raise
            raise machine_fault(str(death), self._folder) from None
        _require_begun(self.role, answer)
        assert isinstance(answer, Sound)
        reason = answer.reason or unwritable(self._folder)
        if reason:
            raise machine_fault(reason, self._folder, answer.detail)
        self._sound = True

    def retime(
        self, plans: Sequence[Plan], best_ns: float | None, budget_s: float, limit_s: float, visit: Visiting
    ) -> list[Measurement | Report]:
        """Time plans interleaved; the answer for a plan that fails is a report. `visit` is called if the worker asks.

        If the worker is lost, its current plan is left out, and the others are timed again from the start.
        """
        answers: dict[int, Measurement | Report] = {}
        while left := [index for index in range(len(plans)) if index not in answers]:
            request = Retime(tuple(plans[index] for index in left), best_ns, budget_s)
            try:
                found = self._retime(request, limit_s, visit)
            except (WorkerOverran, WorkerDied) as end:
                found = Report(end.outcome, str(end), place=end.place)
            if isinstance(found, list):
                answers |= dict(zip(left, found, strict=True))
            else:
                answers[left[found.place]] = found
        return [answers[index] for index in range(len(plans))]

    def _retime(self, request: Retime, limit_s: float, visit: Visiting) -> list[Measurement | Report] | Report:
        until = time.monotonic() + request.budget_s
        answer = self.ask(request, limit_s)
        if isinstance(answer, Onward):
            known = visit(replace(request, budget_s=until - time.monotonic()), answer)
            answer = self.ask(replace(request, visited=known, budget_s=until - time.monotonic()), limit_s)
        assert isinstance(answer, list | Report)
        return answer

    def _exchange(self, worker: WorkerProcess, message: Any, limit_s: float, gives_up: GivesUp | None = None) -> Any:
        if self._interrupted.is_set():
            self._drop()
            raise self._end()
        with self._losing():
            worker.send(message)
        return self._hear(worker, limit_s, gives_up)

    def _hear(self, worker: WorkerProcess, limit_s: float, gives_up: GivesUp | None = None) -> Any:
        with self._losing():
            answer = worker.receive(limit_s, gives_up)
        if isinstance(answer, Report) and answer.fatal:
            self._drop()
        return answer

    @contextmanager
    def _losing(self) -> Iterator[None]:
        """Drop the worker if it is lost in the block."""
        try:
            yield
        except WorkerError:
            self._drop()
            if self._interrupted.is_set():
                raise self._end() from None
            raise

    def _end(self) -> Closed | Cancelled:
        return Closed() if self._closing else Cancelled()

    def _drop(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.kill()
            if self._pause is not None:
                self._pause.leave(worker)


def _require_begun(role: str, answer: Any) -> None:
    """Raise WorkerError if a worker answers with a report: it could not open its device."""
    if isinstance(answer, Report):
        raise WorkerError(f"the {role} worker cannot start: {answer.reason}", detail=answer.build_log)


def new_salt() -> int:
    """Return a salt that no probe had before: a cached probe would use neither compiler nor linker."""
    return time.time_ns() % 2**31


def _spent(phase: str, began: float) -> dict[str, Any]:
    """Return the time since `began`, assigned to the step of the worker's last phase."""
    step = {"build": "build", "launch": "build", "time": "time"}.get(phase, "verify")
    return {f"{step}_s": time.monotonic() - began}
