"""Configurations as vectors for the model, in which distances have a meaning."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from autotune.model import Configuration, Value
from autotune.space import Space

LISTED_KINDS = 4
"""Integers counted from 0 with at most this many values may be numbers of variants: they get indicators too."""

FLAG, FEW, MANY, OTHER, INDICATOR = 3.5, 1.45, 1.14, 2.6, 2.0
"""The expected length over which the time changes, in widths of the list of values: for two values, for three or four
positive ones, for more, for others with an order, and for one value against the rest (docs/search.md)."""


class Features:
    """Maps configurations to vectors, one or more coordinates for each parameter with a choice.

    Numbers above 0 give their log2, other numbers their rank in the list, both scaled to 0..1 over the
    parameter's values. Integers that are not all powers of two also give their number of trailing zero bits:
    values aligned to a warp, a cache line or a vector are often fast when their neighbours are not. Text, and
    a few integers counted from 0, give one indicator for each value. Names of parameters are never used.
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        self._columns = [column for column, values in enumerate(space.values) if len(values) > 1]
        listed = [_coordinates(space.values[column], space.values[column]) for column in self._columns]
        self._tables = [np.column_stack([one.column for one in found]) for found in listed]
        self.lengths = tuple(one.length for found in listed for one in found)
        self.size = len(self.lengths)

    def of_rows(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the vectors of some rows of the space, shape (n, size)."""
        indices = self._space.indices(rows)
        parts = [found[indices[:, column]] for column, found in zip(self._columns, self._tables, strict=True)]
        return np.hstack([np.zeros((len(rows), 0)), *parts])

    def of(self, configurations: Iterable[Configuration]) -> NDArray[np.float64]:
        """Return the vectors, shape (n, size), of configurations whose values need not be among those of the space."""
        listed, names, values = list(configurations), self._space.names, self._space.values
        parts = [table(values[column], [one[names[column]] for one in listed]) for column in self._columns]
        return np.hstack([np.zeros((len(listed), 0)), *parts])


class Coordinate(NamedTuple):
    """One coordinate of some values, shape (n,), and the centre of its length's prior."""

    column: NDArray[np.float64]
    length: float


def table(values: Sequence[Value], of: Sequence[Value] | None = None) -> NDArray[np.float64]:
    """Return the coordinates of the values `of`, scaled by the range of `values`: shape (len(of), coordinates)."""
    return np.column_stack([one.column for one in _coordinates(values, values if of is None else of)])


def _coordinates(values: Sequence[Value], of: Sequence[Value]) -> list[Coordinate]:
    if any(isinstance(value, str) for value in values):
        return _indicators(values, of)
    found = [_ordinal(values, of)]
    if all(isinstance(value, int) for value in values):
        whole = [int(value) for value in values]
        if min(whole) > 0 and any(value & (value - 1) for value in whole):
            found.append(Coordinate(_scaled([_zeros(v) for v in of], [_zeros(v) for v in whole]), OTHER))
        if min(whole) == 0 and 2 < len(whole) <= LISTED_KINDS:
            found += _indicators(values, of)
    return found


def _ordinal(values: Sequence[Value], of: Sequence[Value]) -> Coordinate:
    """Return the logarithm if all are positive, else the rank in the list."""
    numbers = [float(value) for value in values]
    if min(numbers) > 0:
        column = _scaled([math.log2(max(float(v), 1e-300)) for v in of], [math.log2(v) for v in numbers])
        length = MANY if len(values) > LISTED_KINDS else FEW
    else:
        places = np.argsort(np.argsort(numbers)).astype(float)
        order = np.argsort(numbers)
        found = np.interp([float(v) for v in of], np.array(numbers)[order], places[order])
        column, length = _scaled(list(found), list(places)), OTHER
    return Coordinate(column, FLAG if len(values) == 2 else length)


def _scaled(of: Sequence[float], listed: Sequence[float]) -> NDArray[np.float64]:
    low, high = min(listed), max(listed)
    return (np.array(of, dtype=np.float64) - low) / ((high - low) or 1.0)


def _zeros(value: Value) -> float:
    """Return the number of trailing zero bits of a positive integer."""
    number = int(value)
    return float((number & -number).bit_length() - 1) if number > 0 else 0.0


def _indicators(values: Sequence[Value], of: Sequence[Value]) -> list[Coordinate]:
    """Return one coordinate per listed value; two different values are at distance 1."""
    return [Coordinate(np.array([float(one == other) for one in of]) / math.sqrt(2.0), INDICATOR) for other in values]
