"""The size and the cost of each kind of function's result: called with the function's arguments before it is.

A signature here is also the list of the arguments that the language passes on: NumPy's `out` is not among them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from autotune.study.arrays.bounds import (
    BoundError,
    Outline,
    Size,
    UnknownError,
    extents,
    listed,
    plain_type,
    shape_of_value,
    sized,
    whole,
)  # fmt: skip

_PAD_MODES = ("constant", "edge", "maximum", "mean", "median", "minimum", "reflect", "symmetric", "wrap")


def unary(a: Any) -> Size:
    """An element for each."""
    return sized(shape_of_value(a))


def binary(a: Any, b: Any) -> Size:
    """Two operands, broadcast."""
    return sized(np.broadcast_shapes(shape_of_value(a), shape_of_value(b)))


def where(condition: Any, x: Any, y: Any) -> Size:
    """Three operands, broadcast."""
    return sized(np.broadcast_shapes(*map(shape_of_value, (condition, x, y))))


def clip(a: Any, a_min: Any = None, a_max: Any = None) -> Size:
    """Up to three operands, broadcast."""
    return sized(np.broadcast_shapes(*(shape_of_value(part) for part in (a, a_min, a_max) if part is not None)))


def round_(a: Any, decimals: Any = 0) -> Size:
    """An element for each."""
    if abs(whole(decimals)) > 300:
        raise BoundError(f"{decimals} decimals")
    return sized(shape_of_value(a))


def astype(a: Any, dtype: Any) -> Size:
    """An element for each, of another type."""
    plain_type(dtype)
    return sized(shape_of_value(a))


def reduction(a: Any, axis: Any = None, *, keepdims: Any = False, dtype: Any = None, ddof: Any = 0) -> Size:
    """All elements along some axes into one; `ddof` is that of var and std."""
    plain_type(dtype)
    shape = shape_of_value(a)
    gone = set(range(len(shape))) if axis is None else {_axis(each, len(shape)) for each in listed(axis)}
    kept = tuple(1 if n in gone else extent for n, extent in enumerate(shape) if keepdims or n not in gone)
    return sized(kept, math.prod(shape))


def trace(a: Any, offset: Any = 0, axis1: Any = 0, axis2: Any = 1) -> Size:
    """Two axes into one element."""
    whole(offset)
    return reduction(a, (axis1, axis2))


def cumulative(a: Any, axis: Any = None, *, dtype: Any = None) -> Size:
    """An element for each, flat without an axis."""
    plain_type(dtype)
    return _flat_or_same(a, axis)


def ordered(a: Any, axis: Any = -1) -> Size:
    """An element for each, in another order; flat where the axis is None."""
    size = _flat_or_same(a, axis)
    return size._replace(work=size.elements * 32)


def roll(a: Any, shift: Any, axis: Any = None) -> Size:
    """An element for each."""
    for each in listed(shift):
        whole(each)
    return sized(shape_of_value(a))


def triangle(m: Any, k: Any = 0) -> Size:
    """An element for each; a vector is broadcast to a square."""
    whole(k)
    shape = shape_of_value(m)
    return sized(shape * 2 if len(shape) == 1 else shape)


def diff(a: Any, n: Any = 1, axis: Any = -1) -> Size:
    """Fewer elements along an axis; each difference is a pass over all elements."""
    shape, times = list(shape_of_value(a)), whole(n)
    at = _axis(axis, len(shape))
    if not 0 <= times <= shape[at]:
        raise BoundError(f"{times} differences of {shape[at]} elements")
    work = math.prod(shape) * times
    shape[at] -= times
    return sized(tuple(shape), work)


def take(a: Any, indices: Any, axis: Any = None) -> Size:
    """For each index an element, or all that lies at one place of an axis."""
    shape, chosen = shape_of_value(a), shape_of_value(indices)
    if axis is None:
        return sized(chosen)
    at = _axis(axis, len(shape))
    return sized((*shape[:at], *chosen, *shape[at + 1 :]))


def repeat(a: Any, repeats: Any, axis: Any = None) -> Size:
    """Each element, or all that lies at one place of an axis, several times."""
    shape = shape_of_value(a)
    if axis is None:
        shape = (math.prod(shape),)
    at = _axis(0 if axis is None else axis, len(shape))
    if isinstance(repeats, Outline):
        raise UnknownError
    times = np.asarray(repeats)
    if times.dtype.kind not in "iu" or times.ndim > 1 or (times.size and times.min() < 0):
        raise BoundError("repeats are whole numbers from 0")
    many = whole(times.reshape(-1)[0]) * shape[at] if times.size == 1 else sum(times.tolist())
    return sized((*shape[:at], many, *shape[at + 1 :]))


def tile(A: Any, reps: Any) -> Size:
    """The whole several times, along each axis."""
    shape, times = shape_of_value(A), extents(reps)
    dimensions = max(len(shape), len(times))
    shape, times = ((1,) * (dimensions - len(part)) + part for part in (shape, times))
    return sized(tuple(extent * each for extent, each in zip(shape, times, strict=True)))


def pad(array: Any, pad_width: Any, mode: Any = "constant", *, constant_values: Any = 0) -> Size:
    """More elements at the ends of each axis."""
    if mode not in _PAD_MODES:
        raise BoundError(f"no mode {mode!r:.40}; there are {', '.join(_PAD_MODES)}")
    shape = shape_of_value(array)
    shape_of_value(constant_values)
    if isinstance(pad_width, Outline):
        raise UnknownError
    widths = np.broadcast_to(np.asarray(pad_width), (len(shape), 2)).tolist()
    added = [whole(before) + whole(after) for before, after in widths]
    if any(whole(each) < 0 for pair in widths for each in pair):
        raise BoundError("a pad width below 0")
    return sized(tuple(extent + more for extent, more in zip(shape, added, strict=True)))


def concatenate(arrays: Any, axis: Any = 0) -> Size:
    """One after the other along an axis that they have; flat if the axis is None."""
    shapes = [shape_of_value(each) for each in _parts(arrays)]
    if axis is None:
        return sized((sum(map(math.prod, shapes)),))
    at = _axis(axis, len(shapes[0]))
    others = {(*shape[:at], 0, *shape[at + 1 :]) for shape in shapes}
    if len(others) > 1:
        raise BoundError(f"parts of the shapes {', '.join(map(str, shapes))[:80]}")
    return sized((*shapes[0][:at], sum(shape[at] for shape in shapes), *shapes[0][at + 1 :]))


def stack(arrays: Any, axis: Any = 0) -> Size:
    """One after the other along an axis of their own."""
    count, *shape = shape_of_value(tuple(_parts(arrays)))
    at = _axis(axis, len(shape) + 1)
    return sized((*shape[:at], count, *shape[at:]))


def arange(start: Any, stop: Any = None, step: Any = 1, *, dtype: Any = None) -> Size:
    """Numbers from start (0 where it is alone) to below stop."""
    plain_type(dtype)
    low, high = (0, start) if stop is None else (start, stop)
    for each in (low, high, step):
        if isinstance(each, Outline):
            raise UnknownError
        if shape_of_value(each):
            raise BoundError("a range needs numbers, not arrays")
    return sized((max(0, math.ceil((high - low) / step)),))


def filled(shape: Any, *, dtype: Any = None) -> Size:
    """Zeros or ones."""
    plain_type(dtype)
    return sized(extents(shape))


def eye(N: Any, M: Any = None, k: Any = 0, *, dtype: Any = None) -> Size:
    """Ones on a diagonal, of N rows and M columns (N if M is None)."""
    return filled((N, N if M is None else M), dtype=dtype)


def full(shape: Any, fill_value: Any, *, dtype: Any = None) -> Size:
    """One value everywhere."""
    size = filled(shape, dtype=dtype)
    np.broadcast_shapes(shape_of_value(fill_value), extents(shape))
    return size


# -- what needs no new elements: the function itself is called to see its shape -------------------


def view(a: Any) -> Size:
    """No new elements, unless NumPy copies."""
    return Size(None, math.prod(shape_of_value(a)), 0)


def view_along(a: Any, axis: Any = None, *, axes: Any = None) -> Size:
    """The same, with an axis or several."""
    _places((*listed(axis), *listed(axes)))
    return view(a)


def reshape(a: Any, shape: Any) -> Size:
    """The same, in another shape."""
    _places(shape)
    return view(a)


def swapaxes(a: Any, axis1: Any, axis2: Any) -> Size:
    """The same, with two axes."""
    _places((axis1, axis2))
    return view(a)


def rot90(m: Any, k: Any = 1, axes: Any = (0, 1)) -> Size:
    """The same, turned."""
    _places((k, *listed(axes)))
    return view(m)


def _places(value: Any) -> None:
    for each in listed(value):
        if each is not None:
            whole(each)


def _parts(arrays: Any) -> tuple[Any, ...]:
    if not isinstance(arrays, tuple) or not arrays:
        raise BoundError("takes a list of arrays: (a, b)")
    return arrays


def _axis(axis: Any, dimensions: int) -> int:
    at = whole(axis)
    if not -dimensions <= at < dimensions:
        raise BoundError(f"no axis {at} of {dimensions}")
    return at % dimensions


def _flat_or_same(a: Any, axis: Any) -> Size:
    shape = shape_of_value(a)
    if axis is None:
        return sized((math.prod(shape),))
    _axis(axis, len(shape))
    return sized(shape)
