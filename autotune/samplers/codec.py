"""Between a row of a space and the parameters of an Optuna trial."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.trial import FrozenTrial

from autotune.space import Space


class Codec:
    """How a space looks to Optuna: one parameter per space parameter with more than one value.

    `ordered=False` shows each as a categorical of its values; `ordered=True` as an integer, the index
    into its ordered list of values. Parameters with a single value are left out: there is nothing to choose.
    """

    def __init__(self, space: Space, *, ordered: bool = False) -> None:
        self.space = space
        self.ordered = ordered
        self.columns = [column for column, values in enumerate(space.values) if len(values) > 1]
        self.distributions: dict[str, BaseDistribution] = {
            space.names[column]: self._distribution(column) for column in self.columns
        }

    def _distribution(self, column: int) -> BaseDistribution:
        values = self.space.values[column]
        return IntDistribution(0, len(values) - 1) if self.ordered else CategoricalDistribution(values)

    def params(self, row: int) -> dict[str, Any]:
        """The Optuna parameters of one valid configuration."""
        configuration = self.space.configuration(row)
        chosen = {name: configuration[name] for name in self.distributions}
        if not self.ordered:
            return chosen
        return {name: self._position(name, value) for name, value in chosen.items()}

    def indices(self, params: Mapping[str, Any]) -> NDArray[np.int16]:
        """The value indices, shape (p,), of a full set of Optuna parameters, valid or not."""
        found = np.zeros(len(self.space.names), dtype=np.int16)
        for column in self.columns:
            name = self.space.names[column]
            found[column] = params[name] if self.ordered else self._position(name, params[name])
        return found

    def row(self, trial: FrozenTrial) -> int | None:
        """The row of a trial that has all its parameters; None where it has not, or is not valid."""
        if any(name not in trial.params for name in self.distributions):
            return None
        found = int(self.space.rows(self.indices(trial.params)[None, :])[0])
        return found if found >= 0 else None

    def matching(self, rows: NDArray[np.int64], fixed: Mapping[str, Any]) -> NDArray[np.bool_]:
        """Mask of the rows that agree with the given Optuna parameters, same shape as `rows`."""
        table = self.space.indices(rows)
        mask = np.ones(len(rows), dtype=np.bool_)
        for column in self.columns:
            name = self.space.names[column]
            if name in fixed:
                mask &= table[:, column] == (fixed[name] if self.ordered else self._position(name, fixed[name]))
        return mask

    def _position(self, name: str, value: Any) -> int:
        return self.space.values[self.space.names.index(name)].index(value)
