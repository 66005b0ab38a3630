"""Searching without a device: recorded tuning spaces, and an evaluator that answers from recorded trials."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autotune.errors import UsageError
from autotune.model import Configuration, Measurement, Outcome, Trial, identity
from autotune.pool import Evaluator
from autotune.space import Space

_OUTCOMES = (Outcome.OK, Outcome.COMPILE_ERROR, Outcome.LAUNCH_ERROR)  # by code of the recording


@dataclass(frozen=True, eq=False)
class Recording:
    """An exhaustively measured space: a file `<kernel>__<device>.npz` of recorded configurations.

    The file holds `parameters` (p,), `configs` (n, p), `time_ms` (n,) with NaN where it failed, and
    `outcome` (n,): 0 ok, 1 compile error, 2 runtime error. Here `time_ns` and `outcome` go by row of `space`.
    """

    name: str
    space: Space
    time_ns: NDArray[np.float64]
    outcome: NDArray[np.uint8]

    @classmethod
    def load(cls, path: Path) -> Recording:
        """Read one recorded space; UsageError where the file is not one."""
        try:
            with np.load(path) as arrays:
                names, configs = [str(name) for name in arrays["parameters"]], arrays["configs"]
                time_ms, outcome = arrays["time_ms"], arrays["outcome"]
        except (OSError, ValueError, KeyError) as error:
            raise UsageError(f"not a recorded space ({error})", where=str(path)) from error
        space, order = _space_of(names, configs)
        return cls(path.stem, space, time_ms[order] * 1e6, outcome[order])

    @property
    def kernel(self) -> str:
        """The part of the name before the device: spaces that share it are of one kernel."""
        return self.name.partition("__")[0]

    @property
    def best_ns(self) -> float:
        """The lowest time recorded."""
        return float(np.nanmin(self.time_ns))

    def trial(self, row: int) -> Trial:
        """What measuring this row of the space gave."""
        outcome = _OUTCOMES[int(self.outcome[row])]
        measured = Measurement((round(float(self.time_ns[row])),)) if outcome == Outcome.OK else None
        return Trial(self.space.configuration(row), outcome, measurement=measured)


def _space_of(names: Sequence[str], configs: NDArray[np.int16]) -> tuple[Space, NDArray[np.int64]]:
    """The space that holds exactly these configurations, and the order that sorts them by row."""
    listed = [np.unique(configs[:, column], return_inverse=True) for column in range(configs.shape[1])]
    values = {name: [int(value) for value in values] for name, (values, _) in zip(names, listed, strict=True)}
    table = np.column_stack([inverse for _, inverse in listed]).astype(np.int16)
    space = Space.of_indices(values, table)
    return space, np.argsort(space.rows(table))


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

    @classmethod
    def of(cls, recording: Recording, capacity: int = 1) -> ReplayEvaluator:
        """Answer from a recorded space."""
        return cls(map(recording.trial, range(len(recording.space))), capacity)

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
