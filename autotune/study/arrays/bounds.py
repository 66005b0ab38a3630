"""The limits of the language: how large a result may get, and how much work an expression may be."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

LIMIT = 2**62
"""Whole numbers stay within this, either way."""

MAX_SHIFT = 64
"""Exponents of whole numbers, and shifts."""

MAX_WORK = 2**45
"""Operations of one expression, as a fast matrix product does them: minutes."""

_ITEM = 8
"""Bytes of an element: everything is computed in 64 bits."""


class BoundError(ValueError):
    """An expression leaves the bounds."""


class UnknownError(Exception):
    """A shape that depends on the data."""


class Outline(np.ndarray):
    """An array of which only the shape is known: it takes no memory, and its elements mean nothing."""


class Size(NamedTuple):
    """The size of a call's result: at most so many `elements`, `work` operations; its shape if known before."""

    shape: tuple[int, ...] | None
    elements: int
    work: float


def outline(shape: tuple[int, ...], dtype: Any = np.float64) -> Outline:
    """Return an array of that shape which takes no memory; `dtype` where it has fields."""
    return np.broadcast_to(np.zeros((), dtype), shape).view(Outline)


def sized(shape: tuple[int, ...], work: float = 0) -> Size:
    """Return the size of a result of a known shape; its work is at least one operation for each element."""
    count = math.prod(shape)
    return Size(shape, count, max(count, work))


class Meter:
    """Counts the work of one expression; `room` returns the free bytes of memory, None: only shapes are wanted."""

    def __init__(self, room: Callable[[], float] | None) -> None:
        self.outlines = room is None
        self._room = room
        self._work = 0.0

    def allow(self, size: Size, name: str) -> None:
        """Raise BoundError if a result of this size does not fit into memory, or is too much work."""
        needed, free = size.elements * _ITEM, math.inf if self._room is None else self._room()
        if needed > free:
            raise BoundError(f"out of memory: {name} takes {needed / 2**30:.3g} GiB, {free / 2**30:.3g} GiB are free")
        self._work += size.work
        if self._work > MAX_WORK:
            raise BoundError(f"too much work: {self._work:.2g} operations up to {name}, {MAX_WORK:.2g} are allowed")


def physical() -> float:
    """Return the bytes of memory that this machine has; infinite if it does not tell."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (OSError, ValueError):
        return math.inf


def shape_of_value(value: Any) -> tuple[int, ...]:
    """Return the shape of an operand. Raises BoundError for text, and for other operands that are not numbers."""
    if isinstance(value, tuple):
        shapes = {shape_of_value(part) for part in value}
        if len(shapes) > 1:
            raise BoundError("a list holds parts of different shapes")
        return (len(value), *(shapes.pop() if shapes else ()))
    if not isinstance(value, int | float | np.ndarray | np.generic):
        raise BoundError(f"calculates with {value!r:.40}, which is not a number")
    return np.shape(value)


def whole(value: Any) -> int:
    """Return a whole number as Python's int. Raises UnknownError if only the shape is known."""
    if isinstance(value, Outline):
        raise UnknownError
    if not isinstance(value, int | np.ndarray | np.integer) or np.shape(value):
        raise BoundError(f"{value!r:.40} is not a whole number")
    return int(bounded(int(value)))


def extents(value: Any) -> tuple[int, ...]:
    """Return a shape given as one whole number or several."""
    found = tuple(whole(part) for part in listed(value))
    if any(extent < 0 for extent in found):
        raise BoundError(f"{found} is not a shape")
    return found


def listed(value: Any) -> tuple[Any, ...]:
    """Return one value or several as a tuple."""
    return value if isinstance(value, tuple) else tuple(value) if np.shape(value) else (value,)


def bounded(value: Any) -> Any:
    """Return a value unchanged. Raises BoundError for an int of Python beyond 2**62, and for a complex number."""
    if isinstance(value, int) and not -LIMIT <= value <= LIMIT:
        raise BoundError("a whole number beyond 2**62")
    if isinstance(value, complex) and not isinstance(value, int | float):
        raise BoundError("a complex number")
    return value


def plain_type(dtype: Any) -> None:
    """Raise BoundError for an element type other than numbers of up to 64 bits; None is float64."""
    found: np.dtype[Any] = np.dtype(dtype)
    if found.kind not in "biuf" or found.itemsize > _ITEM:
        raise BoundError(f"not a type of numbers of up to 64 bits: {dtype!r:.40}")
