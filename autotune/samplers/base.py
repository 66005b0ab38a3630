"""The base of all samplers, which picks an untried row; random, grid, and one that asks a sampler of Optuna's."""

from __future__ import annotations

import sys
from abc import abstractmethod
from contextlib import AbstractContextManager
from functools import cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler, GPSampler, TPESampler
from optuna.study import Study
from optuna.trial import FrozenTrial
from threadpoolctl import ThreadpoolController

from autotune.errors import SpaceError
from autotune.samplers.registry import Donors
from autotune.samplers.rows import Codec, Fixed, History
from autotune.space import Space

LISTED_ROWS = 1_000_000
"""A space with more rows than this is searched by random samples of this many."""


class RowSampler(BaseSampler):
    """Proposes valid configurations only, and none twice, in flight or done.

    A proposal is a function of the seed, the number of the trial and the trials before it, so that a
    search which is resumed from stored trials goes on exactly as one that was never interrupted. `ordered`
    says how it has Optuna see the space (`Codec`); only one with a model makes anything of `donors`.
    """

    ordered = False

    def __init__(self, space: Space, seed: int, donors: Donors = ()) -> None:
        self.codec = Codec(space, ordered=self.ordered)
        self.space = space
        self.seed = seed
        self.history = History(self.codec)

    @abstractmethod
    def choose(self, study: Study, trial: FrozenTrial, fixed: Fixed) -> int:
        """Pick an untried row that agrees with the `fixed` Optuna parameters (mostly none)."""

    def expected_gain(self, trials: int) -> float | None:
        """Share of the best time that the next `trials` are expected to save; None: cannot be said."""
        return None

    def random(self, trial: FrozenTrial) -> np.random.Generator:
        """The generator of one proposal."""
        return np.random.default_rng([self.seed, trial.number])

    def candidates(self, rng: np.random.Generator, fixed: Fixed) -> NDArray[np.int64]:
        """All rows that may be proposed, or of a large space a random sample of them; never empty."""
        size = len(self.space)
        rows = np.arange(size) if size <= LISTED_ROWS else self.space.sample(rng, LISTED_ROWS)
        found = rows[self.history.allowed(rows, fixed)]
        if not len(found):
            raise SpaceError("every valid configuration has been tried")
        return found

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """All parameters are chosen together."""
        return self.codec.distributions

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The parameters of an untried row that agrees with whatever the trial was enqueued with."""
        fixed = trial.system_attrs.get("fixed_params", {})
        if all(name in fixed for name in self.codec.distributions):
            return dict(fixed)
        self.history.update(study)
        return self.codec.params(self.choose(study, trial, fixed))

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Never right for one parameter alone: the others decide what is valid."""
        raise SpaceError(f"parameter {param_name!r} is not one of the space {list(self.codec.distributions)}")


class RandomSampler(RowSampler):
    """Uniform over the untried valid configurations."""

    def choose(self, study: Study, trial: FrozenTrial, fixed: Fixed) -> int:
        """Try a few draws first: nearly all rows of a large space are untried."""
        rng = self.random(trial)
        rows = rng.integers(len(self.space), size=32)
        drawn = rows[self.history.allowed(rows, fixed)]
        return int(drawn[0] if len(drawn) else rng.choice(self.candidates(rng, fixed)))


class GridSampler(RowSampler):
    """All valid configurations in the order of the space."""

    def choose(self, study: Study, trial: FrozenTrial, fixed: Fixed) -> int:
        """The first untried row, looked for in pieces: a search rarely gets far into a large space."""
        size, step = len(self.space), 1 << 16
        for start in range(0, size, step):
            rows = np.arange(start, min(start + step, size))
            allowed = self.history.allowed(rows, fixed)
            if allowed.any():
                return int(rows[allowed.argmax()])
        raise SpaceError("every valid configuration has been tried")


class StockSampler(RowSampler):
    """Asks a `stock` sampler, which knows nothing of constraints, then moves its answer to the nearest allowed row.

    The moved answer is what the trial holds, so the stock sampler learns from what was truly measured.
    It is made anew for each proposal, with a seed of its own, because its generator cannot be restored
    when a search is resumed.
    """

    stock: ClassVar[type]

    def choose(self, study: Study, trial: FrozenTrial, fixed: Fixed) -> int:
        """The stock sampler's proposal if it is allowed, else the nearest allowed row."""
        rng = self.random(trial)
        params = self._propose(study, trial, seed=int(rng.integers(2**31)))
        wanted = self.codec.indices(params | dict(fixed))
        row = self.space.rows(wanted[None, :])
        if row[0] >= 0 and self.history.allowed(row, fixed)[0]:
            return int(row[0])
        candidates = self.candidates(rng, fixed)
        return int(candidates[nearest(self.space.indices(candidates), wanted, rng)])

    def _propose(self, study: Study, trial: FrozenTrial, seed: int) -> dict[str, Any]:
        sampler = self.stock(seed=seed)
        params: dict[str, Any] = sampler.sample_relative(study, trial, self.codec.distributions)
        for name, distribution in self.codec.distributions.items():
            if name not in params:
                params[name] = sampler.sample_independent(study, trial, name, distribution)
        return params


class TPE(StockSampler):
    """Optuna's TPE. Categorical: on the recorded spaces .83 after 25 evaluations, against .71 for indices."""

    stock = TPESampler


class GP(StockSampler):
    """Optuna's Gaussian process, which needs torch."""

    stock, ordered = GPSampler, True


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


@cache
def _controller(scipy: bool) -> ThreadpoolController:
    return ThreadpoolController()


def one_thread() -> AbstractContextManager[object]:
    """One thread of BLAS and OpenMP inside the block, in the libraries that are loaded: NumPy's, later SciPy's too.

    A proposal multiplies matrices of a few hundred rows: more threads save nothing, and while compilers keep
    the cores busy they wait for each other (measured on two busy cores: 23 s instead of 2 s).
    """
    limits: AbstractContextManager[object] = _controller("scipy.linalg" in sys.modules).limit(limits=1)
    return limits
