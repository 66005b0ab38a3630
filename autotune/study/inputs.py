"""The contents of inputs: drawn, read from files, computed by expressions, made by Python; each once per search."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import StudyError, placed
from autotune.study.arguments import Buffer, Data, Scalar
from autotune.study.arrays import check_names, evaluate, names_of, physical, shape_of
from autotune.study.draw import check_drawn, draw
from autotune.study.file_data import header_in, read_array
from autotune.study.function import ALONE, call
from autotune.study.places import python_place
from autotune.study.scope import in_order
from autotune.study.structs import paired, struct_name, wide_type, widened
from autotune.study.types import numpy_type, scalar_name

if TYPE_CHECKING:
    from autotune.study.problem import Problem

Arrays = dict[str, NDArray[Any]]
PythonCaller = Callable[[Path, str, Mapping[str, Any]], Mapping[str, Any]]
"""Runs a function of a file on arrays and numbers by name: file, function, names -> arrays by name."""


def input_data(problem: Problem, *, python: PythonCaller | None = None, room: Callable[[], float] = physical) -> Arrays:
    """Return the contents of each `in` and `inout` buffer, in its logical shape, the same for the same study.

    A vector type adds a last axis of its components. `python` calls functions of Python files; None: they are refused.
    `room` returns the bytes of memory that an array may take. Raises StudyError, naming both, for data that does not
    fit its argument.
    """
    with placed(problem.study.path):
        return _Inputs(problem, python, room).all()


def check_inputs(problem: Problem) -> None:
    """Raise StudyError if data is malformed, uses an unknown name or has a wrong shape.

    Computes nothing; of files, only the headers are read.
    """
    with placed(problem.study.path):
        names = plain_names(problem) | outlines(problem)
        for buffer in problem.inputs.values():
            _check_input(problem, buffer, names)
        _order(problem)


def _check_input(problem: Problem, buffer: Buffer, names: Mapping[str, Any]) -> None:
    where, data, own = f"arguments.{buffer.name}.data", buffer.data, dict[str, Any]()
    shape: tuple[int, ...] | None = buffer.data_shape
    used = set() if data.numpy is None else names_of(data.numpy, f"{where}.numpy")
    if _is_drawn(data) and (data.numpy is None or buffer.name in used):
        check_drawn(buffer)
    if data.file is not None:
        header = header_in(problem, data, where)
        own[buffer.name] = _outlined(header.shape, np.dtype(np.float64), where)
        shape = shaped(header.shape, buffer) if data.numpy is None else None
    if data.numpy is not None:
        check_names(data.numpy, names, f"{where}.numpy")
        shape = shape_of(data.numpy, {**names, **own}, f"{where}.numpy")
    if shape is not None:
        require_shape(buffer.data_shape, shape, where)


def plain_names(problem: Problem) -> dict[str, Any]:
    """Return the numbers that data may be made of: fixed numbers, and scalars that no configuration decides."""
    tuned = problem.study.parameters.keys()
    names: dict[str, Any] = dict(problem.fixed)
    for argument in problem.study.arguments.values():
        if isinstance(argument, Scalar) and not argument.names & (tuned | problem.study.steps):
            names[argument.name] = argument.concrete(problem.constants).named
    return names


def outlines(problem: Problem) -> Arrays:
    """Return arrays of the inputs' shapes that take no memory."""
    return {name: outline(buffer) for name, buffer in problem.inputs.items()}


def outline(buffer: Buffer) -> NDArray[Any]:
    """Return an array of a buffer's shape, and of its widest type, that takes no memory."""
    dtype = wide_type(numpy_type(buffer.type)[0])
    return _outlined(buffer.data_shape, dtype, f"arguments.{buffer.name}.{buffer.key}")


def _outlined(shape: tuple[int, ...], dtype: np.dtype[Any], where: str) -> NDArray[Any]:
    try:
        return np.broadcast_to(np.zeros((), dtype), shape)
    except ValueError:
        raise StudyError(f"{shape} is more than any memory holds", where=where) from None


def require_shape(wanted: tuple[int, ...], found: tuple[int, ...], where: str, what: str = "argument") -> None:
    """Raise StudyError if contents do not have the wanted shape."""
    if found != wanted:
        three = wanted[-1:] == (4,) and found == (*wanted[:-1], 3)
        cure = ": a vector of three takes the space of four, so give it a fourth component, 0" * three
        raise StudyError(f"has shape {found}, the {what} has {wanted}{cure}", where=where)


def require_real(dtype: np.dtype[Any], where: str) -> None:
    """Raise StudyError if contents are not real numbers."""
    if dtype.kind not in "biuf":
        hint = "a complex z is two numbers: np.stack((z.real, z.imag), -1)" if dtype.kind == "c" else ""
        raise StudyError(f"holds {dtype}, not numbers", where=where, hint=hint)


def fitted(buffer: Buffer, found: NDArray[Any], where: str) -> NDArray[Any]:
    """Return contents in their buffer's type. Raises StudyError for a wrong shape or a value it cannot hold."""
    dtype, _ = numpy_type(buffer.type)
    if dtype.names is not None:
        return _record(buffer, dtype, found, where)
    require_real(found.dtype, where)
    require_shape(buffer.data_shape, found.shape, where)
    return _held(dtype, buffer.type, found, where)


def _held(dtype: np.dtype[Any], kind: str, found: NDArray[Any], where: str) -> NDArray[Any]:
    """Return numbers in a type, called `kind` in messages. Raises StudyError for a number that it cannot hold."""
    with np.errstate(over="ignore", invalid="ignore"):
        typed = found.astype(dtype)
    if dtype.kind == "f":
        lost = np.isinf(typed) & np.isfinite(found)
    elif found.dtype.kind == "f":
        lost = typed.astype(found.dtype) != found  # NaN too: it never equals itself
        lost |= (found < float(np.iinfo(dtype).min)) | (found >= float(np.iinfo(dtype).max) + 1)
    else:
        lost = (typed.astype(found.dtype) != found) | ((typed < 0) != (found < 0))
    if lost.any():
        value = found[np.unravel_index(int(np.argmax(lost)), found.shape)]
        raise StudyError(f"holds {value}, which {kind} cannot", where=where)
    return typed


def _record(buffer: Buffer, dtype: np.dtype[Any], found: NDArray[Any], where: str) -> NDArray[Any]:
    """Return contents as structs, with members matched by name. Raises StudyError."""
    require_shape(buffer.shape, found.shape, where)
    if found.dtype.names is None or set(found.dtype.names) != set(dtype.names or ()):
        what = f"holds {found.dtype!s:.80}, the argument is {struct_name(buffer.type)}"
        raise StudyError(what, where=where, hint=f"its members are {', '.join(dtype.names or ())}")
    record: NDArray[Any] = np.zeros(buffer.shape, dtype)
    try:
        pairs = [*paired(record, found)]
    except ValueError as error:
        raise StudyError(str(error), where=where) from None
    for path, place, part in pairs:
        own = f"{where}: {path[1:]}"
        require_real(part.dtype, own)
        held = _held(place.dtype, scalar_name(place.dtype), part, own)
        try:
            place[...] = held
        except ValueError as error:
            raise StudyError(str(error), where=own) from None
    return record


def _of_members(buffer: Buffer, found: Mapping[str, Any]) -> NDArray[Any]:
    """Return an array of structs made of one array for each member, whose types stay. Raises ValueError."""
    parts = {str(name): np.asarray(part) for name, part in found.items()}
    own = [(name, part.dtype, part.shape[len(buffer.shape) :]) for name, part in parts.items()]
    record: NDArray[Any] = np.zeros(buffer.shape, own)
    for name, part in parts.items():
        record[name] = part
    return record


def shaped(found: tuple[int, ...], buffer: Buffer) -> tuple[int, ...]:
    """Return the shape for a file's contents: that of the buffer for a flat array of as many numbers."""
    flat = len(found) == 1 and found[0] == int(np.prod(buffer.data_shape, dtype=object))
    return buffer.data_shape if flat else found


def _order(problem: Problem) -> list[str]:
    """Return the inputs in an order in which each comes after the inputs it is computed from. Raises StudyError."""
    needs = {
        name: (names_of(buffer.data.numpy, f"arguments.{name}.data.numpy") & problem.inputs.keys()) - {name}
        if buffer.data.numpy is not None
        else set()
        for name, buffer in problem.inputs.items()
    }
    return in_order(needs, "arguments.{}.data")


class _Inputs:
    """Makes the inputs of a problem; calls each Python function once and keeps its result for all inputs it makes."""

    def __init__(self, problem: Problem, python: PythonCaller | None, room: Callable[[], float]) -> None:
        self._problem = problem
        self._python = python
        self._room = room
        self._names = plain_names(problem)
        self._called: dict[Any, Mapping[str, Any]] = {}
        self._made: Arrays = {}

    def all(self) -> Arrays:
        for name in _order(self._problem):
            self._made[name] = self._make(self._problem.inputs[name])
        return {name: self._made[name] for name in self._problem.inputs}

    def _make(self, buffer: Buffer) -> NDArray[Any]:
        where, data = f"arguments.{buffer.name}.data", buffer.data
        used = set() if data.numpy is None else names_of(data.numpy, f"{where}.numpy")
        own: NDArray[Any] | None = None
        if data.numpy is None or buffer.name in used:
            own = self._source(buffer, where)
        if data.numpy is None and own is not None:
            return own if _is_drawn(data) else fitted(buffer, own.reshape(shaped(own.shape, buffer)), where)
        names = self._names | {name: widened(self._made[name]) for name in used & self._made.keys()}
        if own is not None:
            names[buffer.name] = widened(own) if own.dtype.kind in "iuf" else own
        found = evaluate(str(data.numpy), names, f"{where}.numpy", room=self._room)
        return fitted(buffer, np.asarray(found), f"{where}.numpy")

    def _source(self, buffer: Buffer, where: str) -> NDArray[Any]:
        """Return the contents that the keys beside `numpy` give."""
        data = buffer.data
        if data.file is not None:
            return read_array(self._problem, data, where, self._room)
        if data.python is not None:
            return self._from(self._function(data.python, where), buffer, where)
        if data.given is not None:
            given = self._problem.study.given[buffer.name]
            if not callable(given):
                return np.asarray(given)
            called = id(given)
            if called not in self._called:
                names = {**self._problem.choices, **self._names}
                with placed(where):
                    self._called[called] = call(given, names)
            return self._from(self._called[called], buffer, where)
        return draw(buffer)

    def _function(self, named: str, where: str) -> Mapping[str, Any]:
        if named not in self._called:
            file, _, function = named.partition(":")
            path = python_place(self._problem.study.text, file, f"{where}.python")
            if self._python is None:
                what = "the data is made by Python code of the study's author"
                raise StudyError(what, where=str(path), hint="allow it with --allow-python")
            with placed(where):
                self._called[named] = self._python(path, function, {**self._problem.choices, **self._names})
        return self._called[named]

    def _from(self, found: Mapping[str, Any], buffer: Buffer, where: str) -> NDArray[Any]:
        array = found.get(buffer.name, found.get(ALONE))
        if array is None:
            raise StudyError(
                "the function returned nothing for it", where=where, hint="return a dict of arrays by name"
            )
        try:
            return _of_members(buffer, array) if isinstance(array, Mapping) else np.asarray(array)
        except ValueError as error:
            raise StudyError(f"the function returned no numbers: {error}", where=where) from None


def _is_drawn(data: Data) -> bool:
    return data.file is None and data.python is None and data.given is None
