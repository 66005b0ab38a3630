"""Recorded tuning spaces: all of their configurations, each measured once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autotune.errors import SpaceError, UsageError
from autotune.model import Measurement, Outcome, Trial, Value
from autotune.space import Space
from autotune.space.diagram import Diagram
from autotune.tuner import ReplayEvaluator

_OUTCOMES = (Outcome.OK, Outcome.COMPILE_ERROR, Outcome.LAUNCH_ERROR)  # by code of the recording


@dataclass(frozen=True, eq=False)
class Recording:
    """An exhaustively measured space: a file `<kernel>__<device>.npz` of recorded configurations.

    The file holds `parameters` (p,), `configs` (n, p), `time_ms` (n,) with NaN for failures, and `outcome` (n,): 0 ok,
    1 compile error, 2 runtime error. Here `time_ns` and `outcome` are ordered by row of `space`.
    """

    name: str
    space: Space
    time_ns: NDArray[np.float64]
    outcome: NDArray[np.uint8]

    @classmethod
    def load(cls, path: Path) -> Recording:
        """Read one recorded space. Raises UsageError if the file is not one."""
        try:
            with np.load(path) as arrays:
                names, configs = [str(name) for name in arrays["parameters"]], arrays["configs"]
                time_ms, outcome = arrays["time_ms"], arrays["outcome"]
        except (OSError, ValueError, KeyError) as error:
            raise UsageError(f"not a recorded space ({error})", where=str(path)) from error
        space, order = ordered_space(names, configs)
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
        """The result of measuring this row of the space."""
        outcome = _OUTCOMES[int(self.outcome[row])]
        measured = Measurement((round(float(self.time_ns[row])),)) if outcome == Outcome.OK else None
        return Trial(self.space.configuration(row), outcome, measurement=measured)

    def evaluator(self, capacity: int = 1) -> ReplayEvaluator:
        """An evaluator that answers from the recording."""
        return ReplayEvaluator(map(self.trial, range(len(self.space))), capacity)


def ordered_space(names: Sequence[str], configs: NDArray[np.int16]) -> tuple[Space, NDArray[np.int64]]:
    """The space that holds exactly these configurations, and the order that sorts them by row."""
    listed = [np.unique(configs[:, column], return_inverse=True) for column in range(configs.shape[1])]
    values = {name: [int(value) for value in values] for name, (values, _) in zip(names, listed, strict=True)}
    table = np.column_stack([inverse for _, inverse in listed]).astype(np.int16)
    space = listed_space(values, table)
    return space, np.argsort(space.rows(table))


def listed_space(parameters: Mapping[str, Sequence[Value]], indices: NDArray[np.int16]) -> Space:
    """The space of exactly these configurations, given as value indices, shape (n, parameters), distinct."""
    names, values = tuple(parameters), tuple(tuple(listed) for listed in parameters.values())
    table = indices[np.lexsort(indices.T[::-1])].astype(np.int64)
    if not len(table):
        raise SpaceError("no configuration is valid: none is listed")
    keys, targets = [], []
    state = np.zeros(len(table), dtype=np.int64)
    for column, listed in enumerate(values):
        key, state = np.unique(state * len(listed) + table[:, column], return_inverse=True)
        keys.append(key)
        targets.append(np.arange(len(key), dtype=np.int64))
    columns = [(column, len(listed)) for column, listed in enumerate(values)]
    return Space(names, values, (), {}, Diagram.link(columns, keys, targets))
