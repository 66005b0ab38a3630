"""How a model looks at a search: coordinates of a row, and what is expected there before any trial."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from autotune.samplers.features import Features
from autotune.samplers.gaussian import Prior

Array = NDArray[np.float64]
Rows = NDArray[np.int64]


class View(Protocol):
    """What a model is built on.

    `encode` gives the coordinates (n, size) of rows, the last `prior.linear` of which enter linearly, and the
    expected log time over the best (n,). `scale` is the unit of that, None: the deviation of what is seen;
    `least_cap` is how far above the best, in log time, the cap of the targets is at least.
    """

    prior: Prior
    first_fit: int
    scale: float | None
    least_cap: float

    def encode(self, rows: Rows) -> tuple[Array, Array]: ...


class ColdView:
    """Nothing is known but the space."""

    prior = Prior()
    first_fit = 8
    scale: float | None = None
    least_cap = 0.0

    def __init__(self, features: Features) -> None:
        self._features = features

    def encode(self, rows: Rows) -> tuple[Array, Array]:
        """The features, and no expectation."""
        return self._features.of_rows(rows), np.zeros(len(rows))
