"""Samplers without our own model: random, grid, and wrappers of Optuna's own samplers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from optuna.samplers import GPSampler, TPESampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState, create_trial

from autotune.errors import SpaceError
from autotune.samplers.base import LISTED_ROWS, RowSampler, State, Told


class RandomSampler(RowSampler):
    """Chooses uniformly among the untried valid configurations."""

    def choose(self, study: Study, trial: FrozenTrial) -> int:
        """Return a random untried row: from a few draws if possible, as most rows of a large space are untried."""
        rng = self.random(trial)
        rows = rng.integers(len(self.space), size=32)
        drawn = rows[self.history.allowed(rows)]
        return int(drawn[0] if len(drawn) else rng.choice(self.candidates(rng)))


class GridSampler(RowSampler):
    """Proposes all valid configurations in the order of the space."""

    def choose(self, study: Study, trial: FrozenTrial) -> int:
        """Return the first untried row, looking in blocks: a search rarely gets far into a large space."""
        size, step = len(self.space), 1 << 16
        for start in range(0, size, step):
            rows = np.arange(start, min(start + step, size))
            allowed = self.history.allowed(rows)
            if allowed.any():
                return int(rows[allowed.argmax()])
        raise SpaceError("every valid configuration has been tried")


class StockSampler(RowSampler):
    """Asks a `stock` sampler, which does not know constraints, then moves its proposal to the nearest allowed row.

    The trial gets the moved proposal, so the stock sampler learns from what was really measured. A new one
    is made for each proposal, with its own seed, because its generator cannot be restored when a search is
    resumed.
    """

    stock: ClassVar[type]

    def know(self, study: Study, told: Sequence[Told]) -> None:
        """Put the trials into the study, where the stock sampler reads them."""
        for one in told:
            timed, bounded = one.state == State.TIMED, one.state == State.BOUNDED
            study.add_trial(
                create_trial(
                    state=TrialState.COMPLETE if timed else TrialState.PRUNED,
                    value=one.time_ns if timed else None,
                    params=self.codec.params(one.row),
                    distributions=self.codec.distributions,
                    intermediate_values={0: one.time_ns} if bounded else {},
                )
            )

    def choose(self, study: Study, trial: FrozenTrial) -> int:
        """Return the stock sampler's proposal if it is allowed, else the nearest allowed row among the candidates."""
        rng = self.random(trial)
        params = self._propose(study, trial, seed=int(rng.integers(2**31)))
        wanted = self.codec.indices(params)
        row = self.space.rows(wanted[None, :])
        if row[0] >= 0 and self.history.allowed(row)[0]:
            return int(row[0])
        candidates = self.candidates(rng) if len(self.space) <= LISTED_ROWS else self._beside(wanted)
        return int(candidates[nearest(self.space.indices(candidates), wanted, rng)])

    def _beside(self, wanted: NDArray[np.int16]) -> NDArray[np.int64]:
        """Return allowed rows near the nearest valid one: in a large space, a random sample would be far from it."""
        center = self.space.nearest_row(wanted)
        for distance in range(1, len(wanted) + 1):
            rows = np.append(center, self.space.neighbours(center, distance))
            if len(found := rows[self.history.allowed(rows)]):
                return found
        raise SpaceError("every valid configuration has been tried")

    def _propose(self, study: Study, trial: FrozenTrial, seed: int) -> dict[str, Any]:
        sampler = self.stock(seed=seed)
        params: dict[str, Any] = sampler.sample_relative(study, trial, self.codec.distributions)
        for name, distribution in self.codec.distributions.items():
            if name not in params:
                params[name] = sampler.sample_independent(study, trial, name, distribution)
        return params


class TPE(StockSampler):
    """Optuna's TPE. Parameters are categorical: on the recorded spaces .83 after 25 evaluations; with indices .71."""

    stock = TPESampler


class GP(StockSampler):
    """Optuna's Gaussian process, which needs torch."""

    stock, ordered = GPSampler, True


def nearest(table: NDArray[np.int16], wanted: NDArray[np.int16], rng: np.random.Generator) -> int:
    """Return the table's entry with the fewest changed values; ties: the fewest steps, then a random choice."""
    different = np.zeros(len(table), dtype=np.int32)
    steps = np.zeros(len(table), dtype=np.int32)
    for column, index in enumerate(wanted):
        away = np.abs(table[:, column].astype(np.int32) - int(index))
        different += away > 0
        steps += away
    cost = different * (int(steps.max()) + 1) + steps
    return int(rng.choice(np.flatnonzero(cost == cost.min())))
