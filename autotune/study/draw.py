"""Numbers of a distribution for an input, seeded: each member of a struct from its own, where it has one."""

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
from autotune.study.types import numpy_type, scalar_type
from autotune.text import did_you_mean


def draw(buffer: Buffer) -> NDArray[Any]:
    """Return numbers of a buffer's distribution in its type, the same for the same seed and name. Raises StudyError."""
    dtype, _ = numpy_type(buffer.type)
    check_drawn(buffer)
    if dtype.names is None:
        drawn = _drawn(buffer.data, buffer.data_shape, dtype, buffer.name)
        if scalar_type(buffer.type)[2] == 3:  # what pads a vector of three has no value
            drawn[..., 3] = 0
        return drawn
    record: NDArray[Any] = np.zeros(buffer.shape, dtype)
    for leaf in leaves(buffer.type):
        place, data = member_of(record, leaf), _data_of(buffer.data, leaf.path)
        place[...] = _drawn(data, place.shape, place.dtype, f"{buffer.name}{leaf.label}")
    return record


def _data_of(data: Data, path: tuple[str, ...]) -> Data:
    """Return what the innermost member of a path, that has a distribution of its own, is drawn from."""
    inner = dict(data.fields).get(path[0]) if path else None
    return data if inner is None else _data_of(inner, path[1:])


def check_drawn(buffer: Buffer) -> None:
    """Raise StudyError where a distribution names members that there are not, or gives what the type cannot hold."""
    dtype, _ = numpy_type(buffer.type)
    where = f"arguments.{buffer.name}.data"
    _require_fields(buffer.data, dtype, f"{where}.fields")
    for leaf in leaves(buffer.type) if dtype.names is not None else ():
        extents = (*buffer.shape, *(extent for extent, _ in leaf.axes))
        _require_held(_data_of(buffer.data, leaf.path), extents, numpy_type(leaf.scalar)[0], where)
    if dtype.names is None:
        _require_held(buffer.data, buffer.data_shape, dtype, where)


def _require_fields(data: Data, dtype: np.dtype[Any], where: str) -> None:
    fields: Mapping[str, Any] = dtype.fields or {}
    if data.fields and not fields:
        raise StudyError("belong to structs, and this is none", where=where, hint="leave fields out")
    for name, inner in data.fields:
        if name not in fields:
            raise StudyError(f"the struct has no member {name!r}{did_you_mean(name, fields)}", where=where)
        _require_fields(inner, fields[name][0].base, f"{where}.{name}.fields")


def _require_held(data: Data, shape: tuple[int, ...], dtype: np.dtype[Any], where: str) -> None:
    """Raise StudyError for numbers that there are not, or that the type does not hold."""
    for key in ("low", "high", "value"):
        if not math.isfinite(getattr(data, key)):
            raise StudyError(f"{getattr(data, key)} is no number", where=f"{where}.{key}")
    whole = dtype.kind in "iu"
    if data.distribution in ("range", "permutation"):
        given, what = math.prod(shape) - 1, f"{data.distribution} counts to"
    elif data.distribution == "constant":
        given, what = data.value, "holds"
    elif data.distribution in ("uniform", "integers") and data.low > data.high:
        raise StudyError(f"low is {data.low}, above high, {data.high}", where=where, hint="let low be the lesser")
    else:
        return
    limits = np.iinfo(dtype) if whole else np.finfo(dtype)
    if not float(limits.min) <= given <= float(limits.max) or (whole and given != int(given)):
        raise StudyError(f"{what} {given}, which {dtype} cannot", where=where, hint="another type, or another number")


def _drawn(data: Data, shape: tuple[int, ...], dtype: np.dtype[Any], name: str) -> NDArray[Any]:
    generator = np.random.default_rng([data.seed, zlib.crc32(name.encode())])
    if data.distribution == "constant":
        return np.full(shape, data.value).astype(dtype)
    if data.distribution in ("range", "permutation"):
        numbers = np.arange(np.prod(shape))
        order = generator.permutation(numbers) if data.distribution == "permutation" else numbers
        return order.reshape(shape).astype(dtype)
    if dtype.kind in "iu" or data.distribution == "integers":
        return _integers(data, shape, dtype, generator, name)
    kind = np.float64 if dtype == np.float64 else np.float32
    if data.distribution == "normal":
        return generator.standard_normal(shape, dtype=kind).astype(dtype, copy=False)
    values = generator.random(shape, dtype=kind)
    values *= kind(data.high - data.low)
    values += kind(data.low)
    return values.astype(dtype, copy=False)


def _integers(
    data: Data, shape: tuple[int, ...], dtype: np.dtype[Any], generator: np.random.Generator, name: str
) -> NDArray[Any]:
    """Whole numbers from `low` to `high`, both included, as far as the type holds them."""
    limits = np.iinfo(dtype) if dtype.kind in "iu" else np.iinfo(np.int64)
    low, high = max(int(data.low), int(limits.min)), min(int(data.high), int(limits.max))
    if low > high:
        where = f"arguments.{name.partition('.')[0]}.data"
        raise StudyError(f"low {data.low} .. high {data.high} holds no {dtype}", where=where)
    if limits.min == 0 and high > np.iinfo(np.int64).max:
        return generator.integers(low, high, size=shape, endpoint=True, dtype=np.uint64).astype(dtype)
    return generator.integers(low, high, size=shape, endpoint=True).astype(dtype)
