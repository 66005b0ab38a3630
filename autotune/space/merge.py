"""Equal rows of several columns become one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotune.expression.operators import Column
from autotune.space.diagram import Integers

_RADIX_LIMIT = 2**62


def merge(columns: Sequence[Column], length: int) -> tuple[Integers, Integers]:
    """Return the first position of each distinct row, and for every row which of these it equals.

    The distinct rows stand in ascending order of their columns, so the result does not depend on the
    order in which equal rows came.
    """
    code, radix = np.zeros(length, dtype=np.int64), 1
    for column in columns:
        codes, count = _codes(column)
        if radix * count > _RADIX_LIMIT:
            distinct, code = np.unique(code, return_inverse=True)
            radix = len(distinct)
        code, radix = code * count + codes, radix * count
    if radix > 4 * length + 1000:
        _, first, inverse = np.unique(code, return_index=True, return_inverse=True)
        return first, inverse
    last = np.full(radix, -1, dtype=np.int64)
    last[code[::-1]] = np.arange(length - 1, -1, -1)
    present = last >= 0
    return last[present], (np.cumsum(present) - 1)[code]


def narrow(column: Column) -> Column:
    """The column with whole numbers in the smallest signed type that holds them."""
    if column.dtype != np.int64 or not len(column):
        return column
    low, high = int(column.min()), int(column.max())
    fits = (t for t in (np.int8, np.int16, np.int32) if np.iinfo(t).min <= low and high <= np.iinfo(t).max)
    return column.astype(next(fits, np.int64))


def _codes(column: Column) -> tuple[Integers, int]:
    """A column as numbers from 0 in the order of its values, and how many there may be."""
    if column.dtype == np.bool_:
        return column.astype(np.int64), 2
    if column.dtype.kind == "i" and len(column):
        low, high = int(column.min()), int(column.max())
        if high - low < 2**31:
            return column.astype(np.int64) - low, high - low + 1
    if column.dtype.kind == "O":
        seen: dict[tuple[type, object], int] = {}
        return np.array([seen.setdefault((type(v), v), len(seen)) for v in column.tolist()], dtype=np.int64), len(seen)
    distinct, inverse = np.unique(column, return_inverse=True)
    return inverse.astype(np.int64), len(distinct)
