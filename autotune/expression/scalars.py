"""The operators on scalars: what they mean, and when they cannot be computed.

Whole numbers stay within +-2**62, floats stay finite, exponents are small: no operator takes long.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

LIMIT = 2**62
MAX_EXPONENT = 64

Scalar = bool | int | float | str


class FaultError(Exception):
    """Why an expression cannot be computed: a phrase whose subject is the expression."""


def bounded(value: Any) -> Any:
    """Return a number as it is; FaultError where it leaves +-2**62 or is no finite float."""
    if isinstance(value, float):
        if not math.isfinite(value):
            raise FaultError("gives a number too large for a float")
    elif not -LIMIT <= value <= LIMIT:
        raise FaultError("gives a whole number beyond 2**62")
    return value


def truth(value: Scalar) -> bool:
    """Whether a number is non-zero; text has no truth value (it is mostly a forgotten `NAME ==`)."""
    if isinstance(value, str):
        raise FaultError(f"uses the text {value!r} as a condition")
    return bool(value)


def _number(value: Scalar) -> int | float:
    if isinstance(value, str):
        raise FaultError(f"calculates with the text {value!r}")
    return value


def _whole(value: Scalar, name: str) -> int:
    if not isinstance(value, int):
        raise FaultError(f"gives {name} {value!r}, which is no whole number (// divides without remainder)")
    return value


def calculation(function: Callable[[Any, Any], Any]) -> Callable[[Scalar, Scalar], Scalar]:
    """An arithmetic operator on two numbers."""

    def scalar(a: Scalar, b: Scalar) -> Scalar:
        try:
            return bounded(function(_number(a), _number(b)))  # type: ignore[no-any-return]
        except ZeroDivisionError:
            raise FaultError("divides by zero") from None

    return scalar


def power(a: Scalar, b: Scalar) -> Scalar:
    """a ** b, with b a whole number from 0 to MAX_EXPONENT."""
    base = _number(a)
    if not isinstance(b, int) or not 0 <= b <= MAX_EXPONENT:
        raise FaultError(f"raises to the power {b!r}; exponents are whole numbers from 0 to {MAX_EXPONENT}")
    try:
        return bounded(base**b)  # type: ignore[no-any-return]
    except OverflowError:
        raise FaultError("gives a number too large for a float") from None


def ordering(sign: str, function: Callable[[Any, Any], bool]) -> Callable[[Scalar, Scalar], bool]:
    """A comparison by size."""

    def scalar(a: Scalar, b: Scalar) -> bool:
        if isinstance(a, str) or isinstance(b, str):
            raise FaultError(f"compares text with {sign}; text compares with ==, != and in")
        return function(a, b)

    return scalar


def negative(a: Scalar) -> Scalar:
    """-a"""
    return -_number(a)


def positive(a: Scalar) -> Scalar:
    """+a, of a number."""
    return +_number(a)


def absolute(a: Scalar) -> Scalar:
    """|a|"""
    return abs(_number(a))


def minimum(*values: Scalar) -> Scalar:
    """The least of some numbers."""
    return min(_number(value) for value in values)


def maximum(*values: Scalar) -> Scalar:
    """The largest of some numbers."""
    return max(_number(value) for value in values)


def ceil_div(a: Scalar, b: Scalar) -> int:
    """a / b rounded up, of whole numbers."""
    whole, divisor = _whole(a, "ceil_div"), _whole(b, "ceil_div")
    if divisor == 0:
        raise FaultError("divides by zero")
    return -(-whole // divisor)


def round_up(a: Scalar, b: Scalar) -> Scalar:
    """The least multiple of b that is not below a, of whole numbers."""
    whole, step = _whole(a, "round_up"), _whole(b, "round_up")
    return bounded(ceil_div(whole, step) * step)  # type: ignore[no-any-return]


def log2(a: Scalar) -> float:
    """The logarithm to base 2 of a positive number."""
    value = _number(a)
    if value <= 0:
        raise FaultError(f"takes log2 of {value}")
    return math.log2(value)


def is_power_of_two(a: Scalar) -> bool:
    """Whether a whole number is 1, 2, 4, 8, ..."""
    value = _whole(a, "is_power_of_two")
    return value > 0 and value & (value - 1) == 0
