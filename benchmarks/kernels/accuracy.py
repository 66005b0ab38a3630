"""Errors relative to the roundings that a sum allows: max |found - exact| / sum |terms|, exact in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Arrays = Mapping[str, Array]

SAMPLE = 512
"""How many rows (elements, if the output is a vector) are compared: evenly spread, with the first and the last."""


def sample(count: int) -> NDArray[np.intp]:
    """Return the sampled indices of `count` rows; all of them if there are few."""
    return np.unique(np.linspace(0, count - 1, min(count, SAMPLE)).round().astype(np.intp))


def product(inputs: Arrays, found: Array) -> float:
    """max |C - C64| / (|A| |B|), elementwise; integers wrap as the device's do."""
    rows = sample(found.shape[0])
    a, b = inputs["A"][rows].astype(np.float64), inputs["B"].astype(np.float64)
    exact = a @ b
    if found.dtype.kind == "i":
        exact = exact.astype(np.int64).astype(found.dtype)
    return _worst(found[rows], exact, np.abs(a) @ np.abs(b))


def product_sum(inputs: Arrays, found: Array) -> float:
    """max |C - C64| / (|A| sum |B|)."""
    rows = sample(found.shape[0])
    a, b = inputs["A"][rows].astype(np.float64), inputs["B"].astype(np.float64)
    return _worst(found[rows], a * b.sum(), np.abs(a) * np.abs(b).sum())


def element_mult(inputs: Arrays, found: Array) -> float:
    """max |result - result64| / sum |terms|, the factor among the terms."""
    rows = sample(found.shape[0])
    terms = 1.5 * inputs["vector"] * inputs["matrix"][rows].astype(np.float64) * inputs["matrix2"][rows]
    return _worst(found[rows], terms.sum(axis=1), np.abs(terms).sum(axis=1))


def _worst(found: Array, exact: Array, scale: Array) -> float:
    apart = np.abs(found.astype(np.float64) - exact)
    return float(np.max(np.where(apart == 0, 0.0, apart / np.where(scale == 0, np.finfo(np.float64).tiny, scale))))


ERRORS: dict[str, Callable[[Arrays, Array], float]] = {
    "sgemm": product,
    "matmul": product,
    "product_sum": product_sum,
    "element_mult": element_mult,
}
"""The errors, by the study's name."""
