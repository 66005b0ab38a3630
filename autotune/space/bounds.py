"""Find the rows that a constraint forbids, whatever values the parameters that are not bound yet take.

Interval arithmetic in float64, vectorised over rows: IEEE operations are monotone, so the bounds of a
result are the operations on the bounds. Beyond 2**53, where whole numbers are no longer exact, a bound
becomes infinite. `safe` marks what surely can be computed: a row is called false only if no value within
the bounds makes the computation fail instead. Text is safe but unbounded: it can only be compared for
equality, and values with infinite bounds are not safe in any other operation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from autotune.expression import Node
from autotune.space.diagram import Column

_EXACT = 2.0**53


class Bounds(NamedTuple):
    """`low` <= value <= `high` on each row (or for all rows); `whole`: values are whole numbers or truth values."""

    low: Any
    high: Any
    safe: Any = True
    whole: bool = True

    def at(self, place: NDArray[np.int64]) -> Bounds:
        """Return the bounds at these indices."""
        return Bounds(self.low[place], self.high[place], self.safe[place], self.whole)

    @property
    def usable(self) -> Any:
        """The rows on which every operator can use the value."""
        return self.safe & np.isfinite(self.low) & np.isfinite(self.high)

    @property
    def true(self) -> Any:
        """The rows on which the value is surely not zero."""
        return (self.low > 0) | (self.high < 0)

    @property
    def false(self) -> Any:
        """The rows on which the value is surely zero."""
        return (self.low == 0) & (self.high == 0)


_ANY = Bounds(np.float64(-np.inf), np.float64(np.inf), False, False)
_TEXT = _ANY._replace(safe=True)


def of_column(column: Column) -> Bounds:
    """Return the bounds of known values, one per row."""
    if column.dtype.kind not in "bif":
        return _TEXT
    real = column.astype(np.float64)
    return _opened(real, real, True, column.dtype.kind != "f")


def of_values(values: Sequence[Any]) -> Bounds:
    """Return the bounds of one unknown value among several."""
    if not all(isinstance(value, int | float) for value in values):
        return _TEXT
    whole = all(isinstance(value, int) for value in values)
    return _opened(np.float64(min(values)), np.float64(max(values)), True, whole)


def of_blocks(values: Sequence[Any], block: int) -> Bounds:
    """Return the bounds of each `block` values in turn. The values are numbers."""
    real = np.array(values, dtype=np.float64)
    begins = np.arange(0, len(real), block)
    whole = all(isinstance(value, int) for value in values)
    return _opened(np.minimum.reduceat(real, begins), np.maximum.reduceat(real, begins), True, whole)


def decided(tree: Node, names: Mapping[str, Bounds]) -> tuple[Any, Any]:
    """Return the rows on which `tree` can be computed and is true for all values within the bounds, and is false."""
    with np.errstate(all="ignore"):
        found = _bounds(tree, names)
    return found.true & found.safe, found.false & found.safe


def whole_number(tree: Node, names: Mapping[str, Bounds]) -> NDArray[np.int64] | None:
    """Return the whole number that `tree` gives on each row; None if it is unknown, or not whole, on any row."""
    if tree.sign not in _GIVE_WHOLE:
        return None
    with np.errstate(all="ignore"):
        found = _bounds(tree, names)
    known = found.whole and np.all(found.usable & (found.low == found.high))
    return np.asarray(found.low).astype(np.int64) if known else None


def surely_false(tree: Node, names: Mapping[str, Bounds]) -> NDArray[np.bool_]:
    """The rows on which `tree` is false, and can be computed, for all values within the bounds."""
    return np.asarray(decided(tree, names)[1])


def _opened(low: Any, high: Any, safe: Any, whole: bool) -> Bounds:
    """Return computed bounds, infinite beyond float64's exact range; a value that may leave this range is not safe."""
    low = np.where(np.isnan(low) | (low < -_EXACT), -np.inf, np.minimum(low, _EXACT))
    high = np.where(np.isnan(high) | (high > _EXACT), np.inf, np.maximum(high, -_EXACT))
    return Bounds(low, high, safe & np.isfinite(low) & np.isfinite(high), whole)


def _decided(true: Any, false: Any, safe: Any) -> Bounds:
    """Return a truth value from the rows on which it is surely true and surely false."""
    return Bounds(np.where(true, 1.0, 0.0), np.where(false, 0.0, 1.0), safe)


def _bounds(tree: Node, names: Mapping[str, Bounds]) -> Bounds:
    if tree.sign == "name":
        return names[tree.value]
    if tree.is_constant:
        return of_values([tree.value])
    parts = [_bounds(part, names) for part in tree.parts]
    if tree.sign == "chain":
        return _both(*[_RULES[sign](a, b) for sign, a, b in zip(tree.value, parts, parts[1:], strict=False)])
    return _RULES[tree.sign](*parts) if tree.sign in _RULES else _ANY


def _both(*parts: Bounds) -> Bounds:
    """`and`: false on rows on which a part is false and no part before it can fail."""
    true, false, safe = np.asarray(True), np.asarray(False), np.asarray(True)
    for part in parts:
        safe = safe & part.usable
        true, false = true & part.true, false | (part.false & safe)
    return _decided(true, false, safe | false)


def _not(part: Bounds) -> Bounds:
    return _decided(part.false, part.true, part.usable)


def _equal(a: Bounds, b: Bounds) -> Bounds:
    true = (a.low == a.high) & (b.low == b.high) & (a.low == b.low) & np.isfinite(a.low)
    return _decided(true, (a.high < b.low) | (a.low > b.high), a.safe & b.safe)


def _member(item: Bounds, *listed: Bounds) -> Bounds:
    same = [_equal(item, each) for each in listed]
    true, false = reduce(np.logical_or, [s.true for s in same]), reduce(np.logical_and, [s.false for s in same])
    return _decided(true, false, reduce(np.logical_and, [s.safe for s in same]))


def _chosen(condition: Bounds, body: Bounds, other: Bounds) -> Bounds:
    true, false = condition.true, condition.false
    low = np.where(true, body.low, np.where(false, other.low, np.minimum(body.low, other.low)))
    high = np.where(true, body.high, np.where(false, other.high, np.maximum(body.high, other.high)))
    safe = condition.usable & (body.safe | false) & (other.safe | true)
    return Bounds(low, high, safe, body.whole and other.whole)


def _comparison(rule: Callable[[Bounds, Bounds], tuple[Any, Any]]) -> Callable[..., Bounds]:
    """Return a comparison from a rule that gives where it is surely true and surely false."""

    def compared(a: Bounds, b: Bounds) -> Bounds:
        return _decided(*rule(a, b), a.usable & b.usable)

    return compared


def _number(rule: Callable[..., tuple[Any, Any]], *, whole: bool = True) -> Callable[..., Bounds]:
    """Return an operation from a rule that gives its low and high end; `whole`: whole operands give whole results."""

    def computed(*parts: Bounds) -> Bounds:
        safe = reduce(np.logical_and, [part.usable for part in parts])
        return _opened(*rule(*parts), safe, whole and all(part.whole for part in parts))

    return computed


def _corners(function: Callable[[Any, Any], Any], a: Bounds, b: Bounds) -> tuple[Any, Any]:
    values = [function(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    return reduce(np.minimum, values), reduce(np.maximum, values)


def _times(a: Bounds, b: Bounds) -> tuple[Any, Any]:
    # 0 * inf: infinity stands for any number
    return _corners(lambda x, y: np.where((x == 0) | (y == 0), 0.0, x * y), a, b)


def _divided(function: Callable[[Any, Any], Any]) -> Callable[[Bounds, Bounds], tuple[Any, Any]]:
    return lambda a, b: _unless_zero(b, *_corners(function, a, b))


def _unless_zero(divisor: Bounds, low: Any, high: Any) -> tuple[Any, Any]:
    possible = (divisor.low > 0) | (divisor.high < 0)
    return np.where(possible, low, -np.inf), np.where(possible, high, np.inf)


def _remainder(a: Bounds, b: Bounds) -> tuple[Any, Any]:
    largest = b.high - (1.0 if a.whole and b.whole else 0.0)
    high = np.where(a.low >= 0, np.minimum(largest, a.high), largest)
    low = np.where((a.low >= 0) & (a.high < b.low), a.low, 0.0)  # x % y is x where x < y
    positive = b.low > 0
    low, high = np.where(positive, low, b.low), np.where(positive, high, 0.0)
    exact = (a.low == a.high) & (b.low == b.high)
    if np.any(exact):
        rest = np.mod(a.low, b.low)
        low, high = np.where(exact, rest, low), np.where(exact, rest, high)
    return _unless_zero(b, low, high)


def _ceil_div(a: Bounds, b: Bounds) -> Bounds:
    return _ceiling(a, b) if a.whole and b.whole else _ANY


def _round_up(a: Bounds, b: Bounds) -> Bounds:
    return _RULES["*"](_ceil_div(a, b), b)


def _absolute(a: Bounds) -> tuple[Any, Any]:
    return np.maximum(np.maximum(a.low, -a.high), 0.0), np.maximum(-a.low, a.high)


_ceiling = _number(_divided(lambda x, y: -np.floor_divide(-x, y)))
_RULES: dict[str, Callable[..., Bounds]] = {
    "and": _both,
    "or": lambda *parts: _not(_both(*map(_not, parts))),
    "not": _not,
    "if": _chosen,
    "in": _member,
    "==": _equal,
    "!=": lambda a, b: _not(_equal(a, b)),
    "<": _comparison(lambda a, b: (a.high < b.low, a.low >= b.high)),
    "<=": _comparison(lambda a, b: (a.high <= b.low, a.low > b.high)),
    ">": _comparison(lambda a, b: (a.low > b.high, a.high <= b.low)),
    ">=": _comparison(lambda a, b: (a.low >= b.high, a.high < b.low)),
    "+": _number(lambda a, b: (a.low + b.low, a.high + b.high)),
    "-": _number(lambda a, b: (a.low - b.high, a.high - b.low)),
    "*": _number(_times),
    "/": _number(_divided(np.true_divide), whole=False),
    "//": _number(_divided(np.floor_divide)),
    "%": _number(_remainder),
    "negative": _number(lambda a: (-a.high, -a.low)),
    "positive": _number(lambda a: (a.low, a.high)),
    "abs": _number(_absolute),
    "ceil_div": _ceil_div,
    "round_up": _round_up,
    "min": _number(
        lambda *parts: (reduce(np.minimum, [p.low for p in parts]), reduce(np.minimum, [p.high for p in parts]))
    ),
    "max": _number(
        lambda *parts: (reduce(np.maximum, [p.low for p in parts]), reduce(np.maximum, [p.high for p in parts]))
    ),
}
"""Signs that are not listed may give any value, and may fail."""

_GIVE_WHOLE = frozenset({"+", "-", "*", "//", "%", "negative", "positive", "abs", "ceil_div", "round_up"})
"""Signs that give whole numbers for whole numbers and truth values. Others may give a truth value."""
