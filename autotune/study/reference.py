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
from autotune.study.arguments import Buffer, Data, Scalar
from autotune.study.arrays import check_names, evaluate, physical, shape_of
from autotune.study.function import call
from autotune.study.problem import Problem
from autotune.study.structs import leaves, member_of, struct_name, widened
from autotune.study.types import numpy_type, scalar_type
from autotune.text import did_you_mean

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
        found: Mapping[str, Any] = {
            name: _map(lambda text, where: evaluate(text, names, where, room=room), given, f"reference.numpy.{name}")
            for name, given in reference.numpy.items()
        }
    elif isinstance(reference.function, tuple):
        path, name = reference.function
        if python is None:
            what = "the reference is Python code of the study's author"
            raise StudyError(what, where=str(path), hint="allow it with --allow-python")
        found = python(path, name, names)
    elif reference.function is not None:
        found = call(reference.function, names)
    return {name: _fitted(buffer, found.get(name), inputs.get(name)) for name, buffer in problem.outputs.items()}


def _map(step: Callable[[str, str], Any], given: str | Mapping[str, str], where: str) -> Any:
    """Apply a step to an expression and its place, or to that of each member of a struct."""
    if isinstance(given, str):
        return step(given, where)
    return {member: step(text, f"{where}.{member}") for member, text in given.items()}


def check_reference(problem: Problem) -> None:
    """Raise StudyError where a NumPy reference is malformed, names what is not there, or has another shape.

    Computes nothing.
    """
    names: dict[str, Any] = {**problem.size, **_scalars(problem)}
    for name, buffer in problem.inputs.items():
        names[name] = np.broadcast_to(np.zeros((), widened(numpy_type(buffer.type)[0])), buffer.data_shape)

    def outlined(text: str, where: str) -> tuple[int, ...] | None:
        check_names(text, names, where)
        return shape_of(text, names, where)

    for name, given in (problem.study.reference.numpy or {}).items():
        where, buffer = f"{problem.study.path}: reference.numpy.{name}", problem.outputs[name]
        shapes = _map(outlined, given, where)
        if isinstance(given, str):
            if shapes is not None:
                _require_shape(buffer.data_shape, shapes, where)
            continue
        fields = _members(buffer, given, where)
        for member, shape in shapes.items():
            if shape is not None:
                _require_shape(fields[member], shape, f"{where}.{member}")


def _draw(buffer: Buffer) -> NDArray[Any]:
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
    if data.distribution == "range":
        return np.arange(np.prod(shape)).reshape(shape).astype(dtype)
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


def _widened(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array in the widest type of its kind, so that the reference is better than the kernel."""
    return array.astype(widened(array.dtype))


def _fitted(buffer: Buffer, found: Any, given: NDArray[Any] | None) -> NDArray[Any]:
    """Check an expected output against its buffer; integers wrap to its type.

    Of a struct there are some members, which the others of what was `given` join, or all in an array of NumPy's.
    """
    where = f"reference of {buffer.name}"
    if found is None:
        raise StudyError("the function returned nothing for it", where=where)
    dtype, _ = numpy_type(buffer.type)
    if dtype.names is not None:
        return _record(buffer, found, given, where)
    array = np.asarray(found)
    if array.dtype.kind not in "biuf":
        raise StudyError(f"holds {array.dtype}, not numbers", where=where)
    _require_shape(buffer.data_shape, array.shape, where)
    if dtype.kind == "f":
        return array.astype(np.float64)
    return array.astype(np.int64 if dtype.kind == "i" else np.uint64).astype(dtype)


def _record(buffer: Buffer, found: Any, given: NDArray[Any] | None, where: str) -> NDArray[Any]:
    dtype, _ = numpy_type(buffer.type)
    if not isinstance(found, Mapping):
        array = np.asarray(found)
        if array.dtype.names is None:
            what = f"{struct_name(buffer.type)} is a struct, the reference gives plain numbers"
            first = (dtype.names or ("MEMBER",))[0]
            raise StudyError(what, where=where, hint=f'give its members: {buffer.name} = {{ {first} = "..." }}')
        found = {name: array[name] for name in array.dtype.names}
    fields = _members(buffer, found, where)
    record: NDArray[Any] = np.zeros(buffer.shape, dtype) if given is None else given.copy()
    for name, part in found.items():
        array = np.asarray(part)
        _require_shape(fields[name], array.shape, where)
        if array.dtype.kind not in "biufV":
            raise StudyError(f"{name} holds {array.dtype}, not numbers", where=where)
        kind = record[name].dtype
        with np.errstate(all="ignore"):  # what leaves the range of the kernel's type does so in the kernel too
            whole = array.dtype.kind in "biuf" and kind.kind in "iu"
            record[name] = array.astype(np.int64 if kind.kind == "i" else np.uint64) if whole else array
    return record


def _members(buffer: Buffer, found: Mapping[str, Any], where: str) -> dict[str, tuple[int, ...]]:
    """Return the shape of each member of an output. Raises StudyError where other members are given, or too few."""
    dtype, _ = numpy_type(buffer.type)
    if dtype.names is None:
        what = f"gives members, and {buffer.name} is no struct"
        raise StudyError(what, where=where, hint='write one expression: "..."')
    fields = {name: (*buffer.shape, *dtype[name].shape) for name in dtype.names}
    for name in found:
        if name not in fields:
            what = f"{struct_name(buffer.type)} has no {name!r}{did_you_mean(name, fields)}"
            raise StudyError(what, where=where)
    lacks = [name for name in fields if name not in found]
    if lacks and not buffer.reads:
        hint = 'what keeps its value may be left out where access = "inout"'
        raise StudyError(f"lacks {', '.join(lacks)}", where=where, hint=hint)
    return fields


def _require_shape(wanted: tuple[int, ...], found: tuple[int, ...], where: str) -> None:
    if found != wanted:
        raise StudyError(f"has shape {found}, the output has {wanted}", where=where)


def _scalars(problem: Problem) -> dict[str, Any]:
    """The scalar arguments, as the default configuration has them."""
    arguments = problem.plan(problem.default).arguments.values()
    return {argument.name: argument.named for argument in arguments if isinstance(argument, Scalar)}
