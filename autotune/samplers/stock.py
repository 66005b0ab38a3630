"""Optuna's own samplers, made to propose unseen valid configurations only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna.samplers import BaseSampler, GPSampler, TPESampler
from optuna.study import Study
from optuna.trial import FrozenTrial

from autotune.samplers.codec import Codec
from autotune.samplers.rows import RowSampler
from autotune.space import Space


class StockSampler(RowSampler):
    """Asks a sampler that knows nothing of constraints, then moves its answer to the nearest allowed row.

    The moved answer is what the trial holds, so the stock sampler learns from what was truly measured.
    It is made anew for each proposal, with a seed of its own, because its generator cannot be restored
    when a search is resumed.
    """

    def __init__(self, codec: Codec, seed: int, make: Callable[[int], BaseSampler]) -> None:
        super().__init__(codec, seed)
        self._make = make

    def choose(self, study: Study, trial: FrozenTrial, fixed: Mapping[str, Any]) -> int:
        """The stock sampler's proposal if it is allowed, else the nearest allowed row."""
        rng = self.random(trial)
        params = self._propose(study, trial, seed=int(rng.integers(2**31)))
        wanted = self.codec.indices(params | dict(fixed))
        row = self.space.rows(wanted[None, :])
        if row[0] >= 0 and self.allowed(row, fixed)[0]:
            return int(row[0])
        candidates = self.candidates(rng, fixed)
        return int(candidates[nearest(self.space.indices(candidates), wanted, rng)])

    def _propose(self, study: Study, trial: FrozenTrial, seed: int) -> dict[str, Any]:
        sampler = self._make(seed)
        params = sampler.sample_relative(study, trial, self.codec.distributions)
        for name, distribution in self.codec.distributions.items():
            if name not in params:
                params[name] = sampler.sample_independent(study, trial, name, distribution)
        return params


def tpe(space: Space, seed: int) -> StockSampler:
    """Optuna's TPE. Categorical: on the recorded spaces .83 after 25 evaluations, against .71 for indices."""
    return StockSampler(Codec(space), seed, lambda one: TPESampler(seed=one))


def gp(space: Space, seed: int) -> StockSampler:
    """Optuna's Gaussian process, which needs torch."""
    return StockSampler(Codec(space, ordered=True), seed, lambda one: GPSampler(seed=one))


def nearest(table: NDArray[np.int16], wanted: NDArray[np.int16], rng: np.random.Generator) -> int:
    """The entry of the table with the fewest values changed; among these the fewest steps; then by lot."""
    different = np.zeros(len(table), dtype=np.int32)
    steps = np.zeros(len(table), dtype=np.int32)
    for column, index in enumerate(wanted):
        away = np.abs(table[:, column].astype(np.int32) - int(index))
        different += away > 0
        steps += away
    cost = different * (int(steps.max()) + 1) + steps
    return int(rng.choice(np.flatnonzero(cost == cost.min())))
