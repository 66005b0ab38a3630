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

    `usage` sums the seconds that the recorded trials say they took. A configuration without a record is
    a UsageError.
    """

    capacity = 1

    def __init__(self, trials: Iterable[Trial], capacity: int = 1) -> None:
        self.capacity = capacity
        self.best_ns: float | None = None
        self._trials = {identity(trial.configuration): trial for trial in trials}
        self._submitted: deque[Trial] = deque()
        self._usage = {"build": 0.0, "verify": 0.0, "time": 0.0, "idle": 0.0}

    def submit(self, configuration: Configuration) -> None:
        """Take a configuration to answer for."""
        trial = self._trials.get(identity(configuration))
        if trial is None:
            raise UsageError(f"no recorded trial of {dict(configuration)}")
        self._submitted.append(trial)

    def collect(self, timeout_s: float | None = None) -> Trial:
        """The recorded trial of the configuration submitted first."""
        trial = self._submitted.popleft()
        self._usage["build"] += trial.build_s
        self._usage["verify"] += trial.verify_s
        self._usage["time"] += trial.time_s
        if trial.outcome is Outcome.OK:
            self.best_ns = min(trial.time_ns, self.best_ns or trial.time_ns)
        return trial

    @property
    def ready(self) -> int:
        """None: a trial ends when it is asked for."""
        return 0

    def retime(
        self, configurations: Sequence[Configuration], budget_s: float = 5.0, stop: threading.Event | None = None
    ) -> list[Measurement | Trial | None]:
        """The recorded measurements once more; the trial itself where it failed, None where there is none."""
        found = [self._trials.get(identity(configuration)) for configuration in configurations]
        return [
            trial if trial is None or trial.outcome.failed else trial.retimed or trial.measurement for trial in found
        ]

    def withdraw(self, leave: int = 0, *, building: bool = False) -> list[Configuration]:
        """Take back the latest, all but the one submitted first, as if that had begun, and `leave` more."""
        return [self._submitted.pop().configuration for _ in range(len(self._submitted) - 1 - leave)]

    def usage(self) -> Mapping[str, float]:
        """Seconds by what they were spent on, as recorded."""
        return dict(self._usage)

    def close(self) -> None:
        """Nothing to let go of."""
