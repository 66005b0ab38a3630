"""Draws seeded random numbers for an input; each member of a struct may have a distribution of its own."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import StudyError
from autotune.study.arguments import Buffer, Data
from autotune.study.structs import leaves, member_of
from autotune.study.types import holds, numpy_type, scalar_type
from autotune.text import did_you_mean


def draw(buffer: Buffer) -> NDArray[Any]:
    """Return numbers of a buffer's distribution in its type, the same for the same seed and name. Raises StudyError."""
    dtype, _ = numpy_type(buffer.type)
    check_drawn(buffer)
    if dtype.names is None:
        drawn = _drawn(buffer.data, buffer.data_shape, dtype, buffer.name)
        if scalar_type(buffer.type)[2] == 3:  # the padding of a vector of three
            drawn[..., 3] = 0
        return drawn
    record: NDArray[Any] = np.zeros(buffer.shape, dtype)
    for leaf in leaves(buffer.type):
        place, data = member_of(record, leaf), _data_of(buffer.data, leaf.path)
        place[...] = _drawn(data, place.shape, place.dtype, f"{buffer.name}{leaf.label}")
    return record


def _data_of(data: Data, path: tuple[str, ...]) -> Data:
    """Return the distribution for a path of members: that of the innermost member that has its own."""
    inner = dict(data.fields).get(path[0]) if path else None
    return data if inner is None else _data_of(inner, path[1:])


def check_drawn(buffer: Buffer) -> None:
    """Raise StudyError if a distribution names unknown members, or gives numbers that the type cannot hold."""
    dtype, _ = numpy_type(buffer.type)
    where = f"arguments.{buffer.name}.data"
    _require_fields(buffer.data, dtype, f"{where}.fields")
    for leaf in leaves(buffer.type) if dtype.names is not None else ():
        extents = (*buffer.shape, *(extent for extent, _ in leaf.axes))
        own = f"{where}.fields{leaf.label}"
        _require_held(_data_of(buffer.data, leaf.path), extents, leaf.scalar, own)
    if dtype.names is None:
        _require_held(buffer.data, buffer.data_shape, scalar_type(buffer.type)[1], where)


def _require_fields(data: Data, dtype: np.dtype[Any], where: str) -> None:
    fields: Mapping[str, Any] = dtype.fields or {}
    if data.fields and not fields:
        raise StudyError("belong to structs, and this is not one", where=where, hint="leave fields out")
    for name, inner in data.fields:
        if name not in fields:
            raise StudyError(f"the struct has no member {name!r}{did_you_mean(name, fields)}", where=where)
        _require_fields(inner, fields[name][0].base, f"{where}.{name}.fields")


def _require_held(data: Data, shape: tuple[int, ...], scalar: str, where: str) -> None:
    """Raise StudyError for numbers that are not finite, or that the type cannot hold."""
    for key in ("low", "high", "value"):
        if not math.isfinite(getattr(data, key) or 0):
            raise StudyError(f"{getattr(data, key)} is not a number", where=f"{where}.{key}")
    dtype, _ = numpy_type(scalar)
    if data.distribution in ("uniform", "integers"):
        _require_bounds(data, dtype, scalar, where)
        return
    if data.distribution == "normal":
        return
    constant = data.distribution == "constant"
    given = data.value if constant else math.prod(shape) - 1
    if not holds(dtype, given):
        what = "holds" if constant else f"{data.distribution} reaches"
        raise StudyError(f"{what} {given}, which {scalar} cannot", where=where, hint="another type, or another number")


def _require_bounds(data: Data, dtype: np.dtype[Any], scalar: str, where: str) -> None:
    """Raise StudyError if `low` is above `high`, or the type cannot hold a written bound or their distance."""
    low, high = data.bounds
    if low > high:
        raise StudyError(f"low is {low}, above high, {high}", where=where, hint="write the smaller one as low")
    whole = data.distribution == "integers" and dtype.kind == "f"
    for key, bound in (("low", data.low), ("high", data.high)):
        if bound is not None and not _fits(dtype, bound):
            raise StudyError(f"{bound}, which {scalar} cannot hold", where=f"{where}.{key}", hint="write another there")
        if bound is not None and whole and not holds(np.dtype(np.int64), bound):
            raise StudyError(f"{bound} is not a whole number", where=f"{where}.{key}", hint="write another there")
    apart = high - low
    if dtype.kind == "f" and not whole and not (math.isfinite(apart) and holds(np.dtype(_real(dtype)), apart)):
        raise StudyError(f"from {low} to {high} is more than {scalar} holds", where=where, hint="narrower bounds")


def _fits(dtype: np.dtype[Any], bound: float) -> bool:
    """Whether a type holds a bound, or the bound is the type's greatest number as a float: 2**64 for ulong."""
    return holds(dtype, bound) or (
        dtype.kind in "iu" and isinstance(bound, float) and bound == float(np.iinfo(dtype).max)
    )


def _real(dtype: np.dtype[Any]) -> type[np.float64] | type[np.float32]:
    """Return the type in which numbers are drawn."""
    return np.float64 if dtype == np.float64 else np.float32


def _drawn(data: Data, shape: tuple[int, ...], dtype: np.dtype[Any], name: str) -> NDArray[Any]:
    generator = np.random.default_rng([data.seed, zlib.crc32(name.encode())])
    if data.distribution == "constant":
        return np.full(shape, data.value).astype(dtype)
    if data.distribution in ("range", "permutation"):
        numbers = np.arange(np.prod(shape))
        order = generator.permutation(numbers) if data.distribution == "permutation" else numbers
        return order.reshape(shape).astype(dtype)
    if dtype.kind in "iu" or data.distribution == "integers":
        return _integers(data, shape, dtype, generator)
    kind, (low, high) = _real(dtype), data.bounds
    if data.distribution == "normal":
        return generator.standard_normal(shape, dtype=kind).astype(dtype, copy=False)
    values = generator.random(shape, dtype=kind)
    values *= kind(high - low)
    values += kind(low)
    return values.astype(dtype, copy=False)


def _integers(data: Data, shape: tuple[int, ...], dtype: np.dtype[Any], generator: np.random.Generator) -> NDArray[Any]:
    """Return whole numbers from `low` to `high`, both included; default bounds are cut to the type's range."""
    limits = np.iinfo(dtype) if dtype.kind in "iu" else np.iinfo(np.int64)
    low, high = (int(bound) for bound in data.bounds)
    low, high = max(low, int(limits.min)), min(high, int(limits.max))
    if limits.min == 0 and high > np.iinfo(np.int64).max:
        return generator.integers(low, high, size=shape, endpoint=True, dtype=np.uint64).astype(dtype)
    return generator.integers(low, high, size=shape, endpoint=True).astype(dtype)
