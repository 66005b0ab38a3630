"""The operators of the expression language, each twice: on scalars and on whole NumPy columns.

The scalar form defines the meaning. The column form gives the same results for the same operands, or
`None` where NumPy would not be exact (integers beyond 2**53 beside floats, operands of mixed types);
the caller then goes row by row through the scalar form. A row that cannot be computed is marked, not
raised, so that `and`, `or` and `if` may still leave it aside.

Whole numbers stay within +-2**62 (scalars.py), so that a sum never wraps in int64 unseen.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.expression import scalars
from autotune.expression.scalars import LIMIT, Scalar, truth

_EXACT = 2**53  # whole numbers up to here are exact in float64

Column = NDArray[Any]
Operand = Scalar | Column
Answer = tuple[Column, Column | None] | None
"""A column and the rows it does not hold for (None: it holds for all); or None: go row by row."""


@dataclass(frozen=True)
class Operator:
    """One operator or function: its sign in the text, its two forms, and how many operands it takes."""

    sign: str
    scalar: Callable[..., Scalar]
    columns: Callable[..., Answer]
    least: int = 2
    most: int = 2


def kind(value: Operand) -> str:
    """`i` whole numbers and truth values, `f` floats, `s` text, `o` a column of several of these."""
    if isinstance(value, np.ndarray):
        return {"b": "i", "i": "i", "f": "f", "U": "s"}.get(value.dtype.kind, "o")
    return "s" if isinstance(value, str) else "f" if isinstance(value, float) else "i"


def _kinds(*values: Operand) -> str:
    return "".join(sorted({kind(value) for value in values}))


def _largest(value: Operand) -> int:
    """The largest magnitude among whole numbers (as a Python int: no wrap)."""
    if isinstance(value, np.ndarray):
        return max(abs(int(value.max())), abs(int(value.min()))) if value.size else 0
    return abs(int(value))


def _exact(*values: Operand) -> bool:
    return all(kind(value) == "f" or _largest(value) <= _EXACT for value in values)


def _whole_column(value: Operand) -> Any:
    """Truth values count as 0 and 1."""
    if isinstance(value, np.ndarray):
        return value.astype(np.int64) if value.dtype == np.bool_ else value
    return int(value) if isinstance(value, bool) else value


def _outside(result: Column) -> Column | None:
    """The rows beyond the bounds; None where there are none."""
    if result.dtype.kind == "f":
        bad = ~np.isfinite(result)
        return bad if bad.any() else None
    if not result.size or (int(result.max()) <= LIMIT and int(result.min()) >= -LIMIT):
        return None
    return np.asarray((result > LIMIT) | (result < -LIMIT))


def _linear(function: Callable[[Any, Any], Any]) -> Callable[[Operand, Operand], Answer]:
    """Addition and subtraction: operands within 2**62 wrap, if at all, to a visible -2**63."""

    def columns(a: Operand, b: Operand) -> Answer:
        if _kinds(a, b) not in ("i", "f", "fi"):
            return None
        result = function(_whole_column(a), _whole_column(b))
        return result, _outside(result)

    return columns


def _product(a: Operand, b: Operand) -> Answer:
    if _kinds(a, b) not in ("i", "f", "fi"):
        return None
    x, y = _whole_column(a), _whole_column(b)
    result = x * y
    if result.dtype.kind == "f":
        return result, _outside(result)
    if _largest(x) * _largest(y) <= LIMIT:
        return result, None
    # The float product is right to a part in 2**52: beyond 1.5 * 2**62 it is certainly too large,
    # below that int64 has not wrapped and its own bound is exact.
    estimate = np.abs(np.multiply(x, y, dtype=np.float64))
    return result, (estimate > 1.5 * LIMIT) | (result > LIMIT) | (result < -LIMIT)


def _division(function: Callable[[Any, Any], Any], *, exact: bool) -> Callable[[Operand, Operand], Answer]:
    """Divisions; `exact`: only where every operand is exact as a float."""

    def columns(a: Operand, b: Operand) -> Answer:
        if _kinds(a, b) not in ("i", "f", "fi") or (exact and not _exact(a, b)):
            return None
        x, y = np.asarray(_whole_column(a)), np.asarray(_whole_column(b))
        zero = y == 0
        result = np.asarray(function(x, np.where(zero, 1, y)))
        outside = _outside(result)
        bad = np.broadcast_to(zero, result.shape) if zero.any() else None
        if outside is not None:
            bad = outside if bad is None else bad | outside
        return result, bad

    return columns


def _comparison(function: Callable[[Any, Any], Any], *, text: bool) -> Callable[[Operand, Operand], Answer]:
    def columns(a: Operand, b: Operand) -> Answer:
        kinds = _kinds(a, b)
        if kinds in ("i", "f") or (kinds == "fi" and _exact(a, b)) or (text and kinds == "s"):
            return np.asarray(function(a, b)), None
        return None

    return columns


def _unary(function: Callable[[Any], Any], *, kinds: str) -> Callable[[Operand], Answer]:
    def columns(a: Operand) -> Answer:
        return (np.asarray(function(_whole_column(a))), None) if kind(a) in kinds else None

    return columns


def _extreme(function: Callable[[Any, Any], Any]) -> Callable[..., Answer]:
    def columns(*values: Operand) -> Answer:
        if _kinds(*values) not in ("i", "f"):
            return None
        result = _whole_column(values[0])
        for value in values[1:]:
            result = function(result, _whole_column(value))
        return np.asarray(result), None

    return columns


def _ceil_div_columns(a: Operand, b: Operand) -> Answer:
    if _kinds(a, b) != "i":
        return None
    x, y = np.asarray(_whole_column(a)), np.asarray(_whole_column(b))
    zero = y == 0
    result = -(-x // np.where(zero, 1, y))
    return result, np.broadcast_to(zero, result.shape) if zero.any() else None


def _round_up_columns(a: Operand, b: Operand) -> Answer:
    quotient = _ceil_div_columns(a, b)
    if quotient is None:
        return None
    product = _product(quotient[0], b)
    if product is None or quotient[1] is None:
        return product
    return product[0], quotient[1] if product[1] is None else product[1] | quotient[1]


def _row_by_row(*_: Operand) -> Answer:
    """NumPy's own form may differ in the last bit (its SIMD `log2` and `power` are not the C library's)."""
    return None


_power_of_two_columns = _unary(lambda x: (x > 0) & ((x & (x - 1)) == 0), kinds="i")

BINARY = {
    "+": Operator("+", scalars.calculation(operator.add), _linear(np.add)),
    "-": Operator("-", scalars.calculation(operator.sub), _linear(np.subtract)),
    "*": Operator("*", scalars.calculation(operator.mul), _product),
    "/": Operator("/", scalars.calculation(operator.truediv), _division(np.true_divide, exact=True)),
    "//": Operator("//", scalars.calculation(operator.floordiv), _division(np.floor_divide, exact=False)),
    "%": Operator("%", scalars.calculation(operator.mod), _division(np.remainder, exact=False)),
    "**": Operator("**", scalars.power, _row_by_row),
}
COMPARISONS = {
    "==": Operator("==", operator.eq, _comparison(np.equal, text=True)),
    "!=": Operator("!=", operator.ne, _comparison(np.not_equal, text=True)),
    "<": Operator("<", scalars.ordering("<", operator.lt), _comparison(np.less, text=False)),
    "<=": Operator("<=", scalars.ordering("<=", operator.le), _comparison(np.less_equal, text=False)),
    ">": Operator(">", scalars.ordering(">", operator.gt), _comparison(np.greater, text=False)),
    ">=": Operator(">=", scalars.ordering(">=", operator.ge), _comparison(np.greater_equal, text=False)),
}
UNARY = {
    "-": Operator("-", scalars.negative, _unary(np.negative, kinds="if"), 1, 1),
    "+": Operator("+", scalars.positive, _unary(np.positive, kinds="if"), 1, 1),
}
TRUTH = Operator("truth", truth, _unary(lambda x: x != 0, kinds="if"), 1, 1)
NOT = Operator("not", lambda a: not truth(a), _unary(lambda x: x == 0, kinds="if"), 1, 1)
FUNCTIONS = {
    "abs": Operator("abs", scalars.absolute, _unary(np.abs, kinds="if"), 1, 1),
    "ceil_div": Operator("ceil_div", scalars.ceil_div, _ceil_div_columns),
    "is_power_of_two": Operator("is_power_of_two", scalars.is_power_of_two, _power_of_two_columns, 1, 1),
    "log2": Operator("log2", scalars.log2, _row_by_row, 1, 1),
    "max": Operator("max", scalars.maximum, _extreme(np.maximum), 2, 100),
    "min": Operator("min", scalars.minimum, _extreme(np.minimum), 2, 100),
    "round_up": Operator("round_up", scalars.round_up, _round_up_columns),
}
