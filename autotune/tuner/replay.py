"""Searching without a device: an evaluator that answers from recorded trials."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from autotune.errors import UsageError
from autotune.model import Configuration, Measurement, Outcome, Trial, identity
from autotune.pool import Evaluator


class ReplayEvaluator(Evaluator):
    """An `Evaluator` that answers from recorded trials, in the order submitted.

    `usage` adds up the recorded seconds. A configuration without a record is a UsageError.
    """

    capacity = 1

    def __init__(self, trials: Iterable[Trial], capacity: int = 1) -> None:
        self.capacity = capacity
        self.best_ns: float | None = None
        self._trials = {identity(trial.configuration): trial for trial in trials}
        self._submitted: deque[Trial] = deque()
        self._usage = dict.fromkeys(("build", "verify", "time", "finalists", "idle"), 0.0)

    def submit(self, configuration: Configuration) -> None:
        """Look up the trial of a configuration."""
        trial = self._trials.get(identity(configuration))
        if trial is None:
            raise UsageError(f"no recorded trial of {dict(configuration)}")
        self._submitted.append(trial)

    def collect(self, timeout_s: float | None = None) -> Trial:
        """Return the recorded trial of the configuration submitted first."""
        trial = self._submitted.popleft()
        self._usage["build"] += trial.build_s
        self._usage["verify"] += trial.verify_s
        self._usage["time"] += trial.time_s
        if trial.outcome is Outcome.OK:
            self.best_ns = min(trial.time_ns, self.best_ns or trial.time_ns)
        return trial

    @property
    def ready(self) -> int:
        """Always 0: a trial ends only when it is collected."""
        return 0

    def retime(
        self, configurations: Sequence[Configuration], budget_s: float = 5.0, stop: threading.Event | None = None
    ) -> list[Measurement | Trial | None]:
        """Return the recorded measurements again; a failed trial itself, and None for a missing one."""
        found = [self._trials.get(identity(configuration)) for configuration in configurations]
        return [
            trial if trial is None or trial.outcome.failed else trial.retimed or trial.measurement for trial in found
        ]

    def withdraw(self, leave: int = 0, *, building: bool = False) -> list[Configuration]:
        """Withdraw the latest configurations, except `leave` and the first submitted, which counts as begun."""
        return [self._submitted.pop().configuration for _ in range(len(self._submitted) - 1 - leave)]

    def usage(self) -> Mapping[str, float]:
        """Return the recorded seconds by step."""
        return dict(self._usage)

    def close(self) -> None:
        """Do nothing."""
