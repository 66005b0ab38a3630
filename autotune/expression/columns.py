"""Frame: the names of one evaluation over many rows, and which rows have failed in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.expression.operators import TRUTH, Column, Operand, Operator
from autotune.expression.scalars import LIMIT, FaultError, Scalar, bounded

Rows = NDArray[np.bool_]


class Frame:
    """Scalars, tuples and columns by name; `failed` marks the rows that cannot be computed.

    Columns have one length and a type that the operators know: truth values, int64, float64, text, or
    objects where a column holds several of these.
    """

    def __init__(self, names: Mapping[str, Any]) -> None:
        shapes = {value.shape for value in names.values() if isinstance(value, np.ndarray) and value.ndim}
        if len(shapes) > 1 or any(len(shape) != 1 for shape in shapes):
            raise ValueError(f"columns of one length are needed, not {sorted(shapes)}")
        self.length: int = next(iter(shapes))[0] if shapes else 1
        self.failed: Rows = np.zeros(self.length, dtype=np.bool_)
        self.names = {name: self._load(name, value) for name, value in names.items()}

    def _load(self, name: str, value: Any) -> Any:
        if isinstance(value, np.ndarray) and value.ndim:
            column, bad = _column(value)
            if bad is not None:
                self.failed |= bad
            return column
        value = plain(value)
        if not _is_usable(value):
            self.failed[:] = True
        return value

    def apply(self, operator: Operator, operands: tuple[Operand, ...], active: Rows) -> Operand:
        """One operator on the active rows that have not failed; a row it cannot compute fails."""
        active = active & ~self.failed
        if not any(isinstance(operand, np.ndarray) for operand in operands):
            try:
                return operator.scalar(*operands)
            except FaultError:
                self.failed |= active
                return 0
        with np.errstate(all="ignore"):
            answer = operator.columns(*operands)
        if answer is None:
            return self._row_by_row(operator, operands, active)
        result, bad = answer
        if bad is not None:
            self.failed |= bad & active
        return result

    def truth(self, value: Operand, active: Rows) -> Rows:
        """Whether a value is true, shape (rows,); False where the row is not active or has failed."""
        true = np.asarray(self.apply(TRUTH, (value,), active), dtype=np.bool_)
        return true & active & ~self.failed

    def _row_by_row(self, operator: Operator, operands: tuple[Operand, ...], active: Rows) -> Column:
        rows = np.flatnonzero(active)
        listed = [o[rows].tolist() if isinstance(o, np.ndarray) else [o] * len(rows) for o in operands]
        results: list[Scalar | None] = []
        for row, values in zip(rows, zip(*listed, strict=True), strict=True):
            try:
                results.append(operator.scalar(*values))
            except FaultError:
                self.failed[row] = True
                results.append(None)
        return _spread(results, rows, self.length)


def check(name: str, value: Any) -> None:
    """FaultError where a name's value is no number within bounds, no text and no tuple (of extensions)."""
    if isinstance(value, int | float):
        try:
            bounded(value)
        except FaultError:
            raise FaultError(f"uses {name}, which is out of bounds") from None
    elif not isinstance(value, str | tuple):
        raise FaultError(f"uses {name}, which is neither a number nor text")


def plain(value: Any) -> Any:
    """NumPy's scalars as Python's; a list as a tuple."""
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and not value.ndim):
        return value.item()
    return tuple(value) if isinstance(value, list) else value


def at_row(value: Any, row: int) -> Any:
    """What a name stands for in one row."""
    return value[row] if isinstance(value, np.ndarray) and value.ndim else value


def column_of(values: Sequence[Any]) -> Column:
    """Python values as a column: objects where they are of several types, so that each keeps its own."""
    if len({type(value) for value in values}) > 1:
        column: Column = np.empty(len(values), dtype=object)
        column[:] = values
        return column
    return np.array(values)


def _is_usable(value: Any) -> bool:
    try:
        check("", value)
    except FaultError:
        return False
    return True


def _column(values: Column) -> tuple[Column, Rows | None]:
    """A column in one of the types that the operators know, and its rows out of bounds."""
    kind = values.dtype.kind
    if kind in "bU":
        return values, None
    if kind in "iu":
        if values.size and (int(values.max()) > LIMIT or int(values.min()) < -LIMIT):
            bad = (values > LIMIT) | (values < -LIMIT)
            return np.where(bad, 0, values).astype(np.int64), bad
        return values.astype(np.int64, copy=False), None
    if kind == "f":
        column = values.astype(np.float64, copy=False)
        bad = ~np.isfinite(column)
        return column, bad if bad.any() else None
    if kind != "O":
        raise ValueError(f"an expression cannot use a column of {values.dtype}")
    listed = [plain(value) for value in values]
    results = [value if _is_usable(value) and not isinstance(value, tuple) else None for value in listed]
    bad = np.array([result is None for result in results], dtype=np.bool_)
    return _spread(results, np.arange(len(results)), len(results)), bad


def _spread(results: Sequence[Scalar | None], rows: NDArray[np.intp], length: int) -> Column:
    """Results at their rows, in a column of their type; the other rows hold a filler."""
    types = {type(result) for result in results if result is not None}
    filler = next(iter(types))() if len(types) == 1 else 0
    filled = column_of([filler if result is None else result for result in results])
    column: Column = np.zeros(length, dtype=filled.dtype)
    column[rows] = filled
    return column
