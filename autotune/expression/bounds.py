"""What an expression may give where some names are only known to lie between bounds.

Interval arithmetic in float64, vectorised over rows: IEEE operations are monotone, so the bounds of a
result are the operations on the bounds. Beyond 2**53, where whole numbers are no longer exact, a bound
opens to infinity. `safe` keeps apart what surely can be computed: a row is only ever called false when
no value within the bounds makes it fail instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.expression.nodes import Apply, Both, Chain, Choice, Constant, Either, Member, Name, Node
from autotune.expression.operators import Column
from autotune.expression.scalars import MAX_EXPONENT

_EXACT = 2.0**53
Reals = NDArray[np.float64]
Truths = NDArray[np.bool_]


@dataclass(frozen=True)
class Bounds:
    """`low` <= value <= `high` on each row (or one for all rows); `kind` "whole", "real" or "other" (text)."""

    low: Reals
    high: Reals
    safe: Truths
    kind: str = "whole"

    @classmethod
    def of_column(cls, column: Column) -> Bounds:
        """Known values, one per row."""
        if column.dtype.kind not in "bif":
            return _UNKNOWN_TEXT
        real = column.astype(np.float64)
        return _widened(real, real, np.True_, "real" if column.dtype.kind == "f" else "whole")

    @classmethod
    def of_values(cls, values: Sequence[Any]) -> Bounds:
        """One of several values, not known which."""
        if any(isinstance(value, str) for value in values):
            return _UNKNOWN_TEXT
        kind = "whole" if all(isinstance(value, int) for value in values) else "real"
        return _widened(np.float64(min(values)), np.float64(max(values)), np.True_, kind)

    @property
    def true(self) -> Truths:
        """Where the value is surely not zero."""
        return np.asarray((self.low > 0) | (self.high < 0))

    @property
    def false(self) -> Truths:
        """Where the value is surely zero."""
        return np.asarray((self.low == 0) & (self.high == 0))


def surely_false(tree: Node, names: Mapping[str, Bounds]) -> Truths:
    """The rows on which `tree` is false, and can be computed, for all values within the bounds."""
    found = _bounds(tree, names)
    return np.asarray(found.false & found.safe)


def _widened(low: Any, high: Any, safe: Any, kind: str) -> Bounds:
    """Bounds as computed, opened where float64 is not exact; what may leave its range may fail."""
    low, high = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
    low = np.where(np.isnan(low) | (low < -_EXACT), -np.inf, np.minimum(low, _EXACT))
    high = np.where(np.isnan(high) | (high > _EXACT), np.inf, np.maximum(high, -_EXACT))
    return Bounds(low, high, np.asarray(safe & np.isfinite(low) & np.isfinite(high)), kind)


_NEVER = np.asarray(False)
_UNKNOWN = Bounds(np.asarray(-np.inf), np.asarray(np.inf), _NEVER, "other")
_UNKNOWN_TEXT = Bounds(np.asarray(-np.inf), np.asarray(np.inf), np.asarray(True), "other")


def _decided(true: Any, false: Any, safe: Any) -> Bounds:
    """A truth value from where it is surely true and surely false."""
    return Bounds(np.where(true, 1.0, 0.0), np.where(false, 0.0, 1.0), np.asarray(safe))


def _bounds(tree: Node, names: Mapping[str, Bounds]) -> Bounds:
    match tree:
        case Constant(value=value):
            return Bounds.of_values([value])
        case Name(name=name):
            return names[name]
        case Apply():
            return _applied(tree, [_bounds(part, names) for part in tree.parts])
        case Both():
            return _chained([_bounds(part, names) for part in tree.parts])
        case Either():
            return _negated(_chained([_negated(_bounds(part, names)) for part in tree.parts]))
        case Chain():
            return _compared(tree, [_bounds(part, names) for part in tree.parts])
        case Member():
            item, *listed = [_bounds(part, names) for part in tree.parts]
            safe = reduce(np.logical_and, [each.safe for each in listed], item.safe)
            same = [_equal(item, each) for each in listed]
            true = reduce(np.logical_or, [each.true for each in same])
            false = reduce(np.logical_and, [each.false for each in same])
            return _decided(true, false, safe)
        case Choice():
            return _chosen(*[_bounds(part, names) for part in tree.parts])
    return _UNKNOWN


def _chained(parts: Sequence[Bounds]) -> Bounds:
    """`and`: false where a part is, and no part before it can fail."""
    true, false, safe = np.asarray(True), _NEVER, np.asarray(True)
    for part in parts:
        safe = safe & part.safe & (part.kind != "other")
        true, false = true & part.true, false | (part.false & safe)
    return _decided(true, false, safe | false)


def _negated(part: Bounds) -> Bounds:
    return _decided(part.false, part.true, part.safe & (part.kind != "other"))


def _compared(tree: Chain, parts: Sequence[Bounds]) -> Bounds:
    links = []
    for operator, left, right in zip(tree.operators, parts, parts[1:], strict=False):
        links.append(_rule(operator.sign, [left, right]))
    return _chained(links)


def _chosen(condition: Bounds, body: Bounds, other: Bounds) -> Bounds:
    true, false = condition.true, condition.false
    low = np.where(true, body.low, np.where(false, other.low, np.minimum(body.low, other.low)))
    high = np.where(true, body.high, np.where(false, other.high, np.maximum(body.high, other.high)))
    safe = condition.safe & (condition.kind != "other") & (body.safe | false) & (other.safe | true)
    kind = body.kind if body.kind == other.kind else "other" if "other" in (body.kind, other.kind) else "real"
    return Bounds(low, high, np.asarray(safe), kind)


def _applied(tree: Apply, parts: Sequence[Bounds]) -> Bounds:
    if len(parts) == 1:
        return _unary(tree.operator.sign, parts[0])
    return _rule(tree.operator.sign, parts)


def _rule(sign: str, parts: Sequence[Bounds]) -> Bounds:
    if sign == "==":
        return _equal(*parts)
    if sign == "!=":
        return _negated(_equal(*parts))
    if any(part.kind == "other" for part in parts):
        return _UNKNOWN
    with np.errstate(all="ignore"):
        low, high, possible = _RULES[sign](*parts)
    safe = reduce(np.logical_and, [part.safe for part in parts], np.asarray(possible))
    if sign in ("<", "<=", ">", ">="):
        return _decided(low, high, safe)
    whole = sign != "/" and all(part.kind == "whole" for part in parts)
    if sign in ("ceil_div", "round_up") and not whole:
        return _UNKNOWN
    return _widened(low, high, safe, "whole" if whole else "real")


def _unary(sign: str, part: Bounds) -> Bounds:
    if sign == "not":
        return _negated(part)
    if part.kind == "other":
        return _UNKNOWN
    if sign == "-":
        return Bounds(-part.high, -part.low, part.safe, part.kind)
    if sign == "+":
        return part
    if sign == "abs":
        low = np.where(part.low > 0, part.low, np.where(part.high < 0, -part.high, 0.0))
        return Bounds(low, np.maximum(-part.low, part.high), part.safe, part.kind)
    if sign == "is_power_of_two":
        return _decided(_NEVER, part.high < 1, part.safe & (part.kind == "whole"))
    if sign == "log2":
        with np.errstate(all="ignore"):
            low, high = np.log2(part.low) - _SLACK, np.log2(part.high) + _SLACK
        return _widened(low, high, part.safe & (part.low > 0), "real")
    return _UNKNOWN


_SLACK = 1e-12  # more than NumPy's and the C library's log2 and pow may differ by, for values in range


def _equal(a: Bounds, b: Bounds) -> Bounds:
    if "other" in (a.kind, b.kind):
        return _decided(_NEVER, _NEVER, a.safe & b.safe)
    true = (a.low == a.high) & (b.low == b.high) & (a.low == b.low) & np.isfinite(a.low)
    return _decided(true, (a.high < b.low) | (a.low > b.high), a.safe & b.safe)


Rule = Callable[..., tuple[Any, Any, Any]]
"""Bounds of the operands -> low, high, where it can be computed (of a comparison: true, false, ...)."""


def _corners(function: Callable[[Any, Any], Any], a: Bounds, b: Bounds) -> tuple[Any, Any]:
    values = [function(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    return reduce(np.minimum, values), reduce(np.maximum, values)


def _times(a: Bounds, b: Bounds) -> tuple[Any, Any, Any]:
    def product(x: Any, y: Any) -> Any:
        return np.where((x == 0) | (y == 0), 0.0, x * y)  # 0 * inf: infinity stands for any number

    return *_corners(product, a, b), True


def _divided(function: Callable[[Any, Any], Any]) -> Rule:
    def rule(a: Bounds, b: Bounds) -> tuple[Any, Any, Any]:
        possible = (b.low > 0) | (b.high < 0)
        low, high = _corners(function, a, b)
        return np.where(possible, low, -np.inf), np.where(possible, high, np.inf), possible

    return rule


def _remainder(a: Bounds, b: Bounds) -> tuple[Any, Any, Any]:
    positive = b.low > 0
    largest = b.high - (1.0 if a.kind == b.kind == "whole" else 0.0)
    high = np.where(a.low >= 0, np.minimum(largest, a.high), largest)
    low = np.where((a.low >= 0) & (a.high < b.low), a.low, 0.0)  # x % y is x where x < y
    low, high = np.where(positive, low, np.minimum(b.low, 0)), np.where(positive, high, np.maximum(b.high, 0))
    return low, high, positive | (b.high < 0)


def _raised(a: Bounds, b: Bounds) -> tuple[Any, Any, Any]:
    possible = (a.low >= 0) & (b.low >= 0) & (b.high <= MAX_EXPONENT) & (b.kind == "whole")
    low, high = _corners(np.power, a, b)
    return np.where(possible, low * (1 - _SLACK), -np.inf), np.where(possible, high * (1 + _SLACK), np.inf), possible


def _ceiling(a: Bounds, b: Bounds) -> tuple[Any, Any, Any]:
    return _divided(lambda x, y: -np.floor_divide(-x, y))(a, b)


def _rounded_up(a: Bounds, b: Bounds) -> tuple[Any, Any, Any]:
    low, high, possible = _ceiling(a, b)
    return *_times(_widened(low, high, possible, "whole"), b)[:2], possible


_RULES: dict[str, Rule] = {
    "+": lambda a, b: (a.low + b.low, a.high + b.high, True),
    "-": lambda a, b: (a.low - b.high, a.high - b.low, True),
    "*": _times,
    "/": _divided(np.true_divide),
    "//": _divided(np.floor_divide),
    "%": _remainder,
    "**": _raised,
    "ceil_div": _ceiling,
    "round_up": _rounded_up,
    "min": lambda *parts: (
        reduce(np.minimum, [part.low for part in parts]),
        reduce(np.minimum, [part.high for part in parts]),
        True,
    ),
    "max": lambda *parts: (
        reduce(np.maximum, [part.low for part in parts]),
        reduce(np.maximum, [part.high for part in parts]),
        True,
    ),
    "<": lambda a, b: (a.high < b.low, a.low >= b.high, True),
    "<=": lambda a, b: (a.high <= b.low, a.low > b.high, True),
    ">": lambda a, b: (a.low > b.high, a.high <= b.low, True),
    ">=": lambda a, b: (a.low >= b.high, a.high < b.low, True),
}
