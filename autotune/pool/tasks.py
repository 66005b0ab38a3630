"""What travels through the threads of a search: configurations with their plans, and requests to time some again."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Lock
from typing import Any

from autotune.bench import Report
from autotune.model import Configuration, DeviceInfo, Measurement, Outcome, Trial
from autotune.study import Plan


@dataclass(eq=False)
class Task:
    """One configuration on its way through the engine; hashed by identity.

    `made_way` is what was known when its run last made way for others, `lost_s` the time that went into such runs.
    """

    configuration: Configuration
    plan: Plan
    made: Mapping[str, Any] | None = None
    started: datetime = field(default_factory=lambda: datetime.now(UTC))
    built: Report | None = None
    made_way: Report | None = None
    lost_s: float = 0.0


class Waiting:
    """The tasks that no device is at, oldest first, and which of them are ready to run. Threads share it.

    A run makes way for what is ready after `patience_s`, and each that did so doubles that: a kernel that never ends
    would hold the others up for a minute, and what is merely slow gets its time.
    """

    def __init__(self, patience_s: float) -> None:
        self._lock = Lock()
        self._ready: dict[Task, bool] = {}
        self._patience_s = patience_s

    def add(self, task: Task, *, ready: bool) -> None:
        """Take in a task, which may have to be built first."""
        with self._lock:
            self._ready[task] = ready

    def make_ready(self, task: Task) -> bool:
        """Note that a task is built; say whether it still waits."""
        with self._lock:
            waits = task in self._ready
            if waits:
                self._ready[task] = True
            return waits

    def __contains__(self, task: Task) -> bool:
        return task in self._ready

    def makes_way(self, ran_s: float) -> bool:
        """Say whether a run of so many seconds should make way: a device that is free could go on with another."""
        with self._lock:
            return ran_s >= self._patience_s and any(self._ready.values())

    def put_back(self, task: Task, ran_s: float) -> None:
        """Take in again a task whose run made way after this time."""
        with self._lock:
            self._ready[task] = True
            self._patience_s = max(self._patience_s, 2 * ran_s)

    def claim(self, task: Task) -> bool:
        """Say whether a task still waits, and take it out: it can no longer be withdrawn."""
        with self._lock:
            return self._ready.pop(task, None) is not None

    def withdraw(self, leave: int) -> list[Configuration]:
        """Take out all but the oldest; return their configurations."""
        with self._lock:
            count = max(0, len(self._ready) - leave)
            return [self._ready.popitem()[0].configuration for _ in range(count)]


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
        made=task.made,
    )
