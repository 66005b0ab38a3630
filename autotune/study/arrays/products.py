"""The size and the cost of products of arrays: they take more operations than they have elements."""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import Any

import numpy as np

from autotune.study.arrays.bounds import BoundError, Size, shape_of_value, sized, whole

_SLOW = 16
"""How much longer a plain loop takes than a fast matrix product, for each operation."""


def outer(a: Any, b: Any) -> Size:
    """Each element of the one with each of the other."""
    return sized((math.prod(shape_of_value(a)), math.prod(shape_of_value(b))))


def kron(a: Any, b: Any) -> Size:
    """The second array for each element of the first."""
    first, second = shape_of_value(a), shape_of_value(b)
    dimensions = max(len(first), len(second))
    first, second = ((1,) * (dimensions - len(part)) + part for part in (first, second))
    return sized(tuple(one * other for one, other in zip(first, second, strict=True)))


def inner(a: Any, b: Any) -> Size:
    """Sums over the last axes."""
    first, second = shape_of_value(a), shape_of_value(b)
    if not first or not second:
        return sized(first or second)
    return _sums((*first[:-1], *second[:-1]), first[-1], second[-1], a, b)


def dot(a: Any, b: Any) -> Size:
    """Sums over the last axis of the first and the last but one of the second."""
    first, second = shape_of_value(a), shape_of_value(b)
    if len(first) < 1 or len(second) < 1:
        return sized(first or second)
    return _sums((*first[:-1], *second[:-2], *second[-1:][: len(second) - 1]), first[-1], second[-2:][0], a, b)


def vdot(a: Any, b: Any) -> Size:
    """One sum over everything."""
    return _sums((), math.prod(shape_of_value(a)), math.prod(shape_of_value(b)), a, b)


def matmul(a: Any, b: Any) -> Size:
    """A matrix product, or one for each of the axes before."""
    first, second = shape_of_value(a), shape_of_value(b)
    if not first or not second:
        raise BoundError("a matrix product with a number")
    before = np.broadcast_shapes(first[:-2], second[:-2])
    rows, columns = first[-2:-1], second[-1:] if len(second) > 1 else ()
    return _sums((*before, *rows, *columns), first[-1], second[-2:][0], a, b)


def tensordot(a: Any, b: Any, axes: Any = 2) -> Size:
    """Sums over the axes named: the last of the first and the first of the second, or two lists."""
    first, second = shape_of_value(a), shape_of_value(b)
    if isinstance(axes, tuple):
        ours, theirs = (each if isinstance(each, tuple) else (each,) for each in axes)
    else:
        count = whole(axes)
        if not 0 <= count <= min(len(first), len(second)):
            raise BoundError(f"no {count} axes in common")
        ours, theirs = tuple(range(-count, 0)), tuple(range(count))
    gone = [[whole(axis) % max(1, len(shape)) for axis in some] for some, shape in ((ours, first), (theirs, second))]
    if any(axis >= len(shape) for some, shape in zip(gone, (first, second), strict=True) for axis in some):
        raise BoundError("an axis that does not exist")
    kept = [
        tuple(extent for n, extent in enumerate(shape) if n not in some)
        for some, shape in zip(gone, (first, second), strict=True)
    ]
    depth = [math.prod(shape[n] for n in some) for some, shape in zip(gone, (first, second), strict=True)]
    return _sums((*kept[0], *kept[1]), depth[0], depth[1], a, b)


def convolve(a: Any, v: Any, mode: Any = "full") -> Size:
    """Two vectors."""
    first, second = (math.prod(shape_of_value(each)) for each in (a, v))
    lengths = {"full": first + second - 1, "same": max(first, second), "valid": abs(first - second) + 1}
    if mode not in lengths:
        raise BoundError(f"no mode {mode!r:.40}; there are full, same and valid")
    return sized((max(0, lengths[mode]),), _SLOW * first * second)


def cross(a: Any, b: Any) -> Size:
    """Vectors of three."""
    shape = np.broadcast_shapes(shape_of_value(a), shape_of_value(b))
    if shape[-1:] != (3,) or shape_of_value(a)[-1:] != shape_of_value(b)[-1:]:
        raise BoundError("needs vectors of three in the last axis")
    return sized(shape)


def einsum(subscripts: Any, *operands: Any) -> Size:
    """Sums over the letters that the result lacks; `...` stands for further axes, which are broadcast."""
    if not isinstance(subscripts, str) or not operands:
        raise BoundError("begins with a text such as 'ij,jk->ik'")
    text = subscripts.replace(" ", "")
    if not re.fullmatch(r"[A-Za-z.,]*(->[A-Za-z.]*)?", text):
        raise BoundError(f"{subscripts!r:.40} are not subscripts")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(operands):
        raise BoundError(f"{len(terms)} subscripts for {len(operands)} arrays")
    extent: dict[str, int] = {}
    further: tuple[int, ...] = ()
    for term, operand in zip(terms, operands, strict=True):
        shape, (before, dots, after) = shape_of_value(operand), term.partition("...")
        more = len(shape) - len(before) - len(after)
        if more < 0 or (more and not dots):
            raise BoundError(f"{term} for an array of {len(shape)} axes")
        further = np.broadcast_shapes(further, shape[len(before) : len(before) + more])
        named = (*shape[: len(before)], *shape[len(before) + more :])
        for letter, each in zip(before + after, named, strict=True):
            if extent.setdefault(letter, each) != each and 1 not in (extent[letter], each):
                raise BoundError(f"{letter} is {extent[letter]} and {each}")
            extent[letter] = max(extent[letter], each)
    if not arrow:
        letters = Counter(left.replace(",", "").replace(".", ""))
        right = "..." * ("..." in left) + "".join(sorted(each for each, count in letters.items() if count == 1))
    before, dots, after = right.partition("...")
    if not set(before + after) <= extent.keys():
        raise BoundError(f"{right} has letters that no array has")
    shape = (*(extent[each] for each in before), *(further if dots else ()), *(extent[each] for each in after))
    return sized(shape, _SLOW * math.prod(extent.values()) * math.prod(further))


def _sums(shape: tuple[int, ...], depth: int, other: int, a: Any, b: Any) -> Size:
    if depth != other:
        raise BoundError(f"sums over {depth} and {other} elements")
    fast = any(np.asarray(each).dtype.kind == "f" for each in (a, b) if isinstance(each, np.ndarray))
    return sized(shape, math.prod(shape) * depth * (1 if fast else _SLOW))
