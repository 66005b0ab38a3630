"""What travels through the threads of a search: configurations with their plans, and requests to time some again."""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from queue import SimpleQueue
from threading import Lock
from typing import Any

from autotune.engine.report import Report
from autotune.model import Configuration, DeviceInfo, Measurement, Outcome, Trial
from autotune.plan import Plan


@dataclass(eq=False)
class Task:
    """One configuration on its way through the engine; hashed by identity."""

    configuration: Configuration
    plan: Plan
    started: datetime = field(default_factory=lambda: datetime.now(UTC))
    built: Report | None = None


class Waiting:
    """The tasks that no device has begun, oldest first. Threads share it: each method is atomic."""

    def __init__(self) -> None:
        self._tasks: dict[Task, None] = {}

    def add(self, task: Task) -> None:
        """Take in a task."""
        self._tasks[task] = None

    def __contains__(self, task: Task) -> bool:
        return task in self._tasks

    def claim(self, task: Task) -> bool:
        """Say whether a task still waits, and take it out: it can no longer be withdrawn."""
        return self._tasks.pop(task, self) is None

    def withdraw(self, leave: int) -> list[Configuration]:
        """Take out all but the oldest; return their configurations."""
        taken = []
        with suppress(KeyError):  # the last was claimed meanwhile
            while len(self._tasks) > leave:
                taken.append(self._tasks.popitem()[0].configuration)
        return taken


class Opening:
    """Keeps back what is built until the task that comes first has ended: its time bounds what the others may take.

    Builders end in any order, and a kernel that never ends would have the longest limit where no time is known.
    """

    def __init__(self, to_run: SimpleQueue[Any]) -> None:
        self._to_run = to_run
        self._lock = Lock()
        self._first: Task | None = None
        self._kept: list[Task] = []
        self._open = True

    def begin(self, task: Task) -> None:
        """Let this task come first, if it is the first to be named."""
        with self._lock:
            if self._first is None:
                self._first, self._open = task, False

    def put(self, task: Task) -> None:
        """Hand a task on to the devices, now or once the first has ended."""
        with self._lock:
            if self._open or task is self._first:
                self._to_run.put(task)
            else:
                self._kept.append(task)

    def end(self, task: Task) -> None:
        """Hear of a task's end, whatever it was; that of the first lets the others through."""
        with self._lock:
            if task is self._first and not self._open:
                self._open = True
                for kept in self._kept:
                    self._to_run.put(kept)
                self._kept.clear()


@dataclass
class Finalists:
    """A request to time configurations interleaved; the answer goes into the future."""

    tasks: list[Task]
    budget_s: float
    answer: Future[list[Measurement | Trial]] = field(default_factory=Future)


def make_trial(task: Task, report: Report, device: DeviceInfo) -> Trial:
    """Return the trial that a report, and that of the build before it, make of a task."""
    built = task.built if task.built is not None and task.built is not report else Report(Outcome.OK)
    return Trial(
        configuration=task.configuration,
        outcome=report.outcome,
        reason=report.reason,
        measurement=report.measurement,
        max_error=report.max_error,
        build_s=built.build_s + report.build_s,
        verify_s=report.verify_s,
        time_s=report.time_s,
        build_log=built.build_log or report.build_log,
        binary_hash=built.binary_hash or report.binary_hash,
        driver=device.driver,
        device_index=device.index,
        started=task.started,
        finished=datetime.now(UTC),
        environment={**report.environment, **built.environment},
    )
