"""The samplers by name. A new one is a class and a row here; tests/test_samplers.py then tests it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import optuna

from autotune.samplers.bayes import BayesSampler
from autotune.samplers.codec import Codec
from autotune.samplers.rows import GridSampler, RandomSampler, RowSampler
from autotune.samplers.stock import StockSampler
from autotune.space import Space


@dataclass(frozen=True)
class SamplerEntry:
    """One way to search: what it is, and how to make it for a space and a seed."""

    about: str
    make: Callable[[Space, int], RowSampler]


def _tpe(space: Space, seed: int) -> RowSampler:
    # Categorical: on the recorded spaces .83 after 25 evaluations, against .71 for indices.
    return StockSampler(Codec(space), seed, lambda one: optuna.samplers.TPESampler(seed=one))


SAMPLERS: dict[str, SamplerEntry] = {
    "bayes": SamplerEntry("Gaussian process over all valid", lambda s, seed: BayesSampler(Codec(s), seed)),
    "random": SamplerEntry("uniform over what is untried", lambda s, seed: RandomSampler(Codec(s), seed)),
    "tpe": SamplerEntry("Optuna's tree-structured Parzen estimator", _tpe),
    "grid": SamplerEntry("every valid configuration, in order", lambda s, seed: GridSampler(Codec(s), seed)),
}

DEFAULT_SAMPLER = "bayes"
