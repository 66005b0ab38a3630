"""Long runs make way for tasks that are ready (they are interrupted), while no best is known that would bound them."""

from __future__ import annotations

from dataclasses import replace
from threading import Lock

from autotune.bench import Limits, Report
from autotune.pool.process import GivesUp
from autotune.pool.tasks import Task, Waiting


class MakingWay:
    """Decides which runs make way for others, and whether an interrupted task runs again. Threads share it.

    A run makes way for a ready task after `_patience_s`, which each interrupted run doubles. Otherwise a kernel that
    never ends would hold the others up for a minute; a kernel that is only slow gets its time later. `lost_s` is the
    total time of interrupted runs.
    """

    def __init__(self, waiting: Waiting, limits: Limits) -> None:
        self.lost_s = 0.0
        self._waiting = waiting
        self._limits = limits
        self._patience_s = limits.floor_s
        self._giving_up: dict[Task, float] = {}  # and after how many seconds
        self._past: dict[Task, tuple[float, Report]] = {}
        self._lock = Lock()

    def of(self, task: Task) -> GivesUp:
        """Return the function that decides, given phase and seconds so far, whether a run of the task makes way."""

        def gives_up(phase: str, ran_s: float) -> bool:
            makes_way = phase == "run" and ran_s >= self._patience_s and self._waiting.any_ready()
            if makes_way:
                self._giving_up[task] = ran_s
            return makes_way

        return gives_up

    def made(self, task: Task, report: Report) -> bool:
        """Take the report of a run that has ended; say whether it made way, so that the task must wait again."""
        ran_s = self._giving_up.pop(task, 0.0)
        if not ran_s:
            return False
        with self._lock:
            self._patience_s = max(self._patience_s, 2 * ran_s)
            self.lost_s += report.verify_s
        task.lost_s += report.verify_s
        self._past[task] = ran_s, replace(report, verify_s=0.0)
        return True

    def verdict(self, task: Task, best_ns: float | None) -> Report | None:
        """Return the report of a task that made way after it had run as long as a run may take now, or None."""
        ran_s, report = self._past.get(task, (0.0, None))
        return report if ran_s >= self._limits.run_s(best_ns) else None
