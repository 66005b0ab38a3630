"""Where to look before there is a model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from autotune.model import Value
from autotune.space import Space

GROUP = 32
"""Threads run in groups of 32 or 64, memory moves in units of 32 bytes and more."""


def maximin(points: NDArray[np.float64], count: int) -> list[int]:
    """Positions of points far from each other: the first, then always the farthest from those chosen.

    The greedy rule of Gonzalez ("Clustering to minimize the maximum intercluster distance", 1985).
    `points` has the shape (n, size); at most n are chosen.
    """
    chosen = [0]
    distance = np.square(points - points[0]).sum(axis=1)
    while len(chosen) < min(count, len(points)):
        chosen.append(int(distance.argmax()))
        distance = np.minimum(distance, np.square(points - points[chosen[-1]]).sum(axis=1))
    return chosen


def aligned(space: Space, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Positions of the better aligned half of some rows (more where many are equal).

    Counts that reach a warp (the list of values goes to 32 or beyond) fit the hardware when they are
    multiples of 32, less so as multiples of 16, 8, ...; other parameters have no say.
    """
    score = np.zeros(len(rows))
    indices = space.indices(rows)
    for column, values in enumerate(space.values):
        if _is_count(values):
            bits = [min((int(value) & -int(value)).bit_length() - 1, 5) for value in values]
            score += np.array(bits, dtype=np.float64)[indices[:, column]]
    return np.flatnonzero(score >= np.median(score))


def _is_count(values: Sequence[Value]) -> bool:
    return all(isinstance(value, int) and value > 0 for value in values) and max(map(float, values)) >= GROUP
