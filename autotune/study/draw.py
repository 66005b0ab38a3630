"""Numbers of a distribution for an input, seeded: each member of a struct from its own, where it has one."""

from __future__ import annotations

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
    if dtype.names is None:
        drawn = _drawn(buffer.data, buffer.data_shape, dtype, buffer.name)
        if scalar_type(buffer.type)[2] == 3:  # what pads a vector of three has no value
            drawn[..., 3] = 0
        return drawn
    record: NDArray[Any] = np.zeros(buffer.shape, dtype)
    _require_fields(buffer.data, dtype, f"arguments.{buffer.name}.data.fields")
    for leaf in leaves(buffer.type):
        place, data = member_of(record, leaf), _data_of(buffer.data, leaf.path)
        place[...] = _drawn(data, place.shape, place.dtype, f"{buffer.name}{leaf.label}")
    return record


def _data_of(data: Data, path: tuple[str, ...]) -> Data:
    """Return what the innermost member of a path, that has a distribution of its own, is drawn from."""
    inner = dict(data.fields).get(path[0]) if path else None
    return data if inner is None else _data_of(inner, path[1:])


def _require_fields(data: Data, dtype: np.dtype[Any], where: str) -> None:
    fields: Mapping[str, Any] = dtype.fields or {}
    for name, inner in data.fields:
        if name not in fields:
            raise StudyError(f"the struct has no {name!r}{did_you_mean(name, fields)}", where=where)
        _require_fields(inner, fields[name][0].base, f"{where}.{name}.fields")


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
        raise StudyError(f"low {data.low} .. high {data.high} holds no {dtype}", where=f"arguments.{name}")
    if limits.min == 0 and high > np.iinfo(np.int64).max:
        return generator.integers(low, high, size=shape, endpoint=True, dtype=np.uint64).astype(dtype)
    return generator.integers(low, high, size=shape, endpoint=True).astype(dtype)
