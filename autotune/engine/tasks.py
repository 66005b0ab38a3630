"""What travels through the threads of a search: configurations with their plans, and requests to time some again."""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

from autotune.engine.report import Report
from autotune.model import Configuration, DeviceInfo, Measurement, Outcome, Trial
from autotune.plan import Plan


@dataclass(eq=False)
class Task:
    """One configuration on its way through the engine; hashed by identity. `lost_s` went into runs cut short."""

    configuration: Configuration
    plan: Plan
    started: datetime = field(default_factory=lambda: datetime.now(UTC))
    built: Report | None = None
    lost_s: float = 0.0


class Waiting:
    """The tasks that no device has begun, oldest first. Threads share it: each method is atomic."""

    def __init__(self) -> None:
        self._tasks: dict[Task, None] = {}

    def add(self, task: Task) -> None:
        """Take in a task."""
        self._tasks[task] = None

    def __bool__(self) -> bool:
        return bool(self._tasks)

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
        verify_s=report.verify_s + task.lost_s,
        time_s=report.time_s,
        build_log=built.build_log or report.build_log,
        binary_hash=built.binary_hash or report.binary_hash,
        driver=device.driver,
        device_index=device.index,
        started=task.started,
        finished=datetime.now(UTC),
        environment={**report.environment, **built.environment},
    )
