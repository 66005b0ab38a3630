"""Families of matrices that are hard to multiply accurately: badly scaled ones, and ones whose products cancel."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
Pair = tuple[Matrix, Matrix]
Generator = np.random.Generator

APART = 1e-6
"""How far cancelling terms are from cancelling exactly, relative to their size."""


def inputs(name: str, rows: int, columns: int, depth: int) -> dict[str, NDArray[np.float32]]:
    """Return A (rows x depth) and B (depth x columns) of a family, always the same."""
    a, b = FAMILIES[name](np.random.default_rng([rows, columns, depth]), rows, columns, depth)
    return {"A": a.astype(np.float32), "B": b.astype(np.float32)}


def _uniform(rng: Generator, rows: int, columns: int, depth: int) -> Pair:
    return rng.uniform(-1, 1, (rows, depth)), rng.uniform(-1, 1, (depth, columns))


def _positive(rng: Generator, rows: int, columns: int, depth: int) -> Pair:
    return rng.uniform(0, 1, (rows, depth)), rng.uniform(0, 1, (depth, columns))


def _scaled_elements(rng: Generator, rows: int, columns: int, depth: int) -> Pair:
    a, b = _uniform(rng, rows, columns, depth)
    return a * _scales(rng, a.shape), b * _scales(rng, b.shape)


def _scaled_rows(rng: Generator, rows: int, columns: int, depth: int) -> Pair:
    """Rows of A and columns of B of very different sizes; so C has very different sizes too."""
    a, b = _uniform(rng, rows, columns, depth)
    return a * _scales(rng, (rows, 1)), b * _scales(rng, (1, columns))


def _scaled_depth(rng: Generator, rows: int, columns: int, depth: int) -> Pair:
    """Columns of A of very different sizes, and rows of B that compensate: no product is negligible."""
    a, b = _uniform(rng, rows, columns, depth)
    scales = _scales(rng, (1, depth))
    return a * scales, b / scales.T


def _cancelling_halves(rng: Generator, rows: int, columns: int, depth: int) -> Pair:
    """The second half of the products cancels the first."""
    half = depth // 2
    a, b = _uniform(rng, rows, columns, depth)
    a[:, half : 2 * half] = -a[:, :half] * (1 + APART * rng.standard_normal((rows, half)))
    b[half : 2 * half] = b[:half]
    return a, b


def _cancelling_neighbours(rng: Generator, rows: int, columns: int, depth: int) -> Pair:
    """Every second product cancels the one before; the last one of an odd depth is small."""
    even = depth // 2 * 2
    a, b = _uniform(rng, rows, columns, depth)
    a[:, 1:even:2] = -a[:, 0:even:2]
    b[1:even:2] = b[0:even:2] * (1 + APART)
    a[:, even:] *= 1e-3
    return a, b


def _scales(rng: Generator, shape: tuple[int, ...]) -> Matrix:
    return 10.0 ** rng.uniform(-4, 4, shape)


FAMILIES: dict[str, Callable[[Generator, int, int, int], Pair]] = {
    "random": _uniform,
    "random, positive": _positive,
    "every element scaled": _scaled_elements,
    "rows and columns scaled": _scaled_rows,
    "along K scaled": _scaled_depth,
    "halves cancel": _cancelling_halves,
    "neighbours cancel": _cancelling_neighbours,
}
"""Scales are 10^-4 to 10^4, evenly distributed in the exponent."""
