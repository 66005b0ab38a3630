"""Input data and expected outputs of a problem: seeded arrays, NumPy expressions, Python functions.

A reference is computed once per search, in float64 (or exact integers), whatever the kernel's type.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import StudyError
from autotune.study.arguments import Buffer, Scalar
from autotune.study.arrays import check_names, evaluate, physical, shape_of
from autotune.study.function import call
from autotune.study.problem import Problem
from autotune.study.types import numpy_type

Arrays = dict[str, NDArray[Any]]
PythonCaller = Callable[[Path, str, Mapping[str, Any]], Mapping[str, Any]]
"""Runs a function of a file on arrays and numbers by name: file, function, names -> arrays by name."""


def input_data(problem: Problem) -> Arrays:
    """Return the contents of each `in` and `inout` buffer, in its logical shape, the same for the same seed.

    A vector type adds a last axis of its components. Raises StudyError for data that the type cannot hold.
    """
    return {name: _draw(buffer) for name, buffer in problem.inputs.items()}


def expected_data(
    problem: Problem,
    inputs: Mapping[str, NDArray[Any]],
    *,
    python: PythonCaller | None = None,
    room: Callable[[], float] = physical,
) -> Arrays | None:
    """Return the expected contents of each output, or None where the reference is a kernel.

    Floating-point outputs are computed and returned in float64; integers are computed in 64 bits and wrapped
    to the output's type, as the device does. `python` runs a reference that is a file of Python; None: it may not.
    `room` tells the bytes of memory that an array may take. Raises StudyError where the expression fails or the shape
    differs.
    """
    if problem.study.reference.source is not None:
        return None
    try:
        return _expected(problem, inputs, python, room)
    except StudyError as error:
        raise error.at(problem.study.path) from None


def _expected(
    problem: Problem,
    inputs: Mapping[str, NDArray[Any]],
    python: PythonCaller | None,
    room: Callable[[], float],
) -> Arrays:
    reference = problem.study.reference
    names: dict[str, Any] = {**problem.size, **_scalars(problem), **{k: _widened(v) for k, v in inputs.items()}}
    if reference.numpy is not None:
        texts = reference.numpy.items()
        found: Mapping[str, Any] = {
            name: evaluate(text, names, f"reference.numpy.{name}", room=room) for name, text in texts
        }
    elif isinstance(reference.function, tuple):
        path, name = reference.function
        if python is None:
            what = "the reference is Python code of the study's author"
            raise StudyError(what, where=str(path), hint="allow it with --allow-python")
        found = python(path, name, names)
    elif reference.function is not None:
        found = call(reference.function, names)
    return {name: _fitted(buffer, found.get(name)) for name, buffer in problem.outputs.items()}


def check_reference(problem: Problem) -> None:
    """Raise StudyError where a NumPy reference is malformed, names what is not there, or has another shape.

    Computes nothing.
    """
    names: dict[str, Any] = {**problem.size, **_scalars(problem)}
    names |= {name: np.broadcast_to(np.zeros(()), buffer.data_shape) for name, buffer in problem.inputs.items()}
    for name, text in (problem.study.reference.numpy or {}).items():
        where = f"{problem.study.path}: reference.numpy.{name}"
        check_names(text, names, where)
        shape = shape_of(text, names, where)
        if shape is not None:
            _require_shape(problem.outputs[name], shape, where)


def _draw(buffer: Buffer) -> NDArray[Any]:
    dtype: np.dtype[Any] = numpy_type(buffer.type)[0]
    data, shape = buffer.data, buffer.data_shape
    generator = np.random.default_rng([data.seed, zlib.crc32(buffer.name.encode())])
    if data.distribution == "constant":
        return np.full(shape, data.value).astype(dtype)
    if data.distribution == "range":
        return np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    if dtype.kind in "iu" or data.distribution == "integers":
        return _integers(buffer, dtype, generator)
    kind = np.float64 if dtype == np.float64 else np.float32
    if data.distribution == "normal":
        return generator.standard_normal(shape, dtype=kind).astype(dtype, copy=False)
    values = generator.random(shape, dtype=kind)
    values *= kind(data.high - data.low)
    values += kind(data.low)
    return values.astype(dtype, copy=False)


def _integers(buffer: Buffer, dtype: np.dtype[Any], generator: np.random.Generator) -> NDArray[Any]:
    """Whole numbers from `low` to `high`, both included, as far as the type holds them."""
    data, shape = buffer.data, buffer.data_shape
    limits = np.iinfo(dtype) if dtype.kind in "iu" else np.iinfo(np.int64)
    low, high = max(int(data.low), int(limits.min)), min(int(data.high), int(limits.max))
    if low > high:
        raise StudyError(f"low {data.low} .. high {data.high} holds no {buffer.type}", where=f"arguments.{buffer.name}")
    if limits.min == 0 and high > np.iinfo(np.int64).max:
        return generator.integers(low, high, size=shape, endpoint=True, dtype=np.uint64).astype(dtype)
    return generator.integers(low, high, size=shape, endpoint=True).astype(dtype)


def _widened(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array in the widest type of its kind, so that the reference is better than the kernel."""
    return array.astype({"f": np.float64, "i": np.int64, "u": np.uint64}[array.dtype.kind])


def _fitted(buffer: Buffer, found: Any) -> NDArray[Any]:
    """Check an expected output against its buffer; integers wrap to its type."""
    where = f"reference of {buffer.name}"
    if found is None:
        raise StudyError("the function returned nothing for it", where=where)
    dtype, _ = numpy_type(buffer.type)
    array = np.asarray(found)
    if array.dtype.kind not in "biuf":
        raise StudyError(f"holds {array.dtype}, not numbers", where=where)
    _require_shape(buffer, array.shape, where)
    if dtype.kind == "f":
        return array.astype(np.float64)
    return array.astype(np.int64 if dtype.kind == "i" else np.uint64).astype(dtype)


def _require_shape(buffer: Buffer, found: tuple[int, ...], where: str) -> None:
    if found != buffer.data_shape:
        raise StudyError(f"has shape {found}, the output has {buffer.data_shape}", where=where)


def _scalars(problem: Problem) -> dict[str, int | float]:
    """The scalar arguments, as the default configuration has them."""
    arguments = problem.plan(problem.default).arguments.values()
    return {argument.name: argument.value for argument in arguments if isinstance(argument, Scalar)}
