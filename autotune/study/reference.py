"""Expected outputs of a problem: NumPy expressions, Python functions, files.

A reference is computed once per search, in float64 (or exact integers), whatever the kernel's type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import ExpressionError, StudyError, placed
from autotune.study.arguments import Buffer, Scalar
from autotune.study.arrays import check_names, evaluate, names_of, physical, shape_of
from autotune.study.file_data import header_in, read_array
from autotune.study.function import ALONE, call
from autotune.study.inputs import (
    Arrays,
    PythonCaller,
    fitted,
    outline,
    outlines,
    require_real,
    require_shape,
    shaped,
)
from autotune.study.structs import paired, struct_name, widened
from autotune.study.types import numpy_type
from autotune.text import did_you_mean

if TYPE_CHECKING:
    from autotune.study.problem import Problem


def expected_data(
    problem: Problem,
    inputs: Mapping[str, NDArray[Any]],
    *,
    python: PythonCaller | None = None,
    room: Callable[[], float] = physical,
) -> Arrays | None:
    """Return the expected contents of each output and value of each check; None if the reference is a kernel.

    Floating-point outputs are computed and returned in float64; integers are computed in 64 bits and wrapped
    to the output's type, as the device does. `python` runs a reference that is a Python file; None: such a reference
    is refused. `room` returns the bytes of memory that an array may take. Raises StudyError if the expression fails or
    the shape differs.
    """
    if problem.study.reference.on_device:
        return None
    with placed(problem.study.path):
        found = _expected(problem, inputs, python, room)
        require_numbers(found, inputs, "so it does for these inputs: check the low and high of their data")
    return found


def require_numbers(expected: Mapping[str, NDArray[Any]], inputs: Mapping[str, NDArray[Any]], why: str) -> None:
    """Raise StudyError if an expected array is all NaN: a kernel that writes nothing would pass.

    `why` explains the NaN if no input holds any.
    """
    for name, data in expected.items():
        # The first element is checked first, so that few arrays are read as a whole.
        if data.dtype.kind == "f" and data.size and np.isnan(data.flat[0]) and np.isnan(data).all():
            real = (one for one, given in inputs.items() if given.dtype.kind == "f" and np.isnan(given).any())
            source = next(real, None)
            said = why if source is None else f"the data of {source!r} holds NaN"
            raise StudyError(f"the reference gives only NaN for {name!r}: {said}")


def _expected(
    problem: Problem,
    inputs: Mapping[str, NDArray[Any]],
    python: PythonCaller | None,
    room: Callable[[], float],
) -> Arrays:
    reference = problem.study.reference
    if reference.files is not None:
        return {name: _golden(problem, name, room) for name in (*problem.outputs, *problem.study.checks)}
    names = _numbers(problem) | {name: widened(array) for name, array in inputs.items()}
    if reference.numpy is not None:

        def computed(text: str, where: str) -> Any:
            _check_choices(problem, text, names, where)
            return evaluate(text, names, where, room=room)

        found: Mapping[str, Any] = {
            name: _map(computed, given, f"reference.numpy.{name}") for name, given in reference.numpy.items()
        }
    elif isinstance(reference.function, tuple):
        path, name = reference.function
        if python is None:
            what = "the reference is Python code of the study's author"
            raise StudyError(what, where=str(path), hint="allow it with --allow-python")
        found = python(path, name, {**problem.choices, **names})
    elif reference.function is not None:
        found = call(reference.function, {**problem.choices, **names})
    wanted = (*problem.outputs, *problem.study.checks)
    if ALONE in found and len(wanted) == 1:
        found = dict.fromkeys(wanted, found[ALONE])
    _require_wanted(found, wanted)
    expected = {name: _fitted(buffer, found[name], inputs.get(name)) for name, buffer in problem.outputs.items()}
    return expected | {name: _numeric(name, found[name]) for name in problem.study.checks}


def _require_wanted(found: Mapping[str, Any], wanted: Sequence[str]) -> None:
    """Raise StudyError if a result is missing, or compared with nothing: the author would believe it verified."""
    more = [str(name) for name in found if name not in wanted and name != ALONE]
    if more:
        what = f"the reference gives {', '.join(more)}, which nothing is compared with"
        lacking = [name for name in wanted if found.get(name) is None and ALONE not in found]
        what += f", and lacks {', '.join(lacking)}" * bool(lacking)
        hint = f'leave {"it" if len(more) == 1 else "them"} out, or give {more[0]} access = "out" in [arguments]'
        raise StudyError(what, where="reference", hint=hint)
    for name in wanted:
        if found.get(name) is None:
            raise StudyError("the function returned nothing for it", where=f"reference of {name}")


def _map(step: Callable[[str, str], Any], given: str | Mapping[str, str], where: str) -> Any:
    """Apply a step to an expression and its key, or to the expression and key of each member of a struct."""
    if isinstance(given, str):
        return step(given, where)
    return {member: step(text, f"{where}.{member}") for member, text in given.items()}


def check_reference(problem: Problem) -> None:
    """Raise StudyError if a reference or a check is malformed, uses an unknown name, or has a wrong shape.

    Computes nothing; of files, only the headers are read.
    """
    for name in problem.study.reference.files or {}:
        with placed(problem.study.path):
            _check_golden(problem, name)
    names = _numbers(problem) | outlines(problem)

    def outlined(text: str, where: str) -> tuple[int, ...] | None:
        for name in sorted(names_of(text, where) & problem.outputs.keys() - names.keys()):
            what = f"names {name!r}, which is an output: only an inout can be read, with its old values"
            raise StudyError(what, where=where, hint=f'declare {name} with access = "inout", or name inputs only')
        for name in sorted(names_of(text, where) & problem.study.arguments.keys() - names.keys()):
            if name not in problem.study.launched:
                hint = f"put {name} among the arguments of its [[launch]], in the kernel's order"
                raise StudyError(f"names {name!r}, which no launch takes", where=where, hint=hint)
        _check_choices(problem, text, names, where)
        check_names(text, names, where)
        return shape_of(text, names, where)

    for name, given in (problem.study.reference.numpy or {}).items():
        where, buffer = f"{problem.study.path}: reference.numpy.{name}", problem.outputs.get(name)
        shapes = _map(outlined, given, where)
        if buffer is not None and isinstance(given, str) and shapes is not None:
            require_shape(buffer.data_shape, shapes, where, "output")
        if buffer is None or isinstance(given, str):
            continue
        fields = _members(buffer, given, where)
        for member, shape in shapes.items():
            if shape is not None:
                require_shape(fields[member], shape, f"{where}.{member}", "output")
    plan = problem.plan(problem.default)
    written = {buffer.name: outline(buffer) for buffer in plan.buffers if buffer.writes}
    for name, check in plan.checks.items():
        where, known = f"{problem.study.path}: check.{name}", names | written | dict(check.numbers)
        check_names(check.text, known, where)
        shape_of(check.text, known, where)


def _check_choices(problem: Problem, text: str, names: Mapping[str, Any], where: str) -> None:
    """Raise StudyError if an expression uses a choice whose value is text, not a number."""
    for name in sorted(names_of(text, where) & problem.choices.keys() - names.keys()):
        value = problem.choices[name]
        hint = f"write its values as numbers, [{value}, ...]" if str(value).isdecimal() else "name numbers only"
        raise StudyError(f"{name!r} is a choice of words", where=where, hint=hint)


def _check_golden(problem: Problem, name: str) -> None:
    """Raise StudyError if the header of a file does not fit its output; a file for a check may have any shape."""
    where, files = f"reference.file.{name}", problem.study.reference.files or {}
    header = header_in(problem, files[name], where)
    if name in problem.outputs:
        wanted = problem.outputs[name]
        require_shape(wanted.data_shape, shaped(header.shape, wanted), where, "output")


def _golden(problem: Problem, name: str, room: Callable[[], float]) -> NDArray[Any]:
    """Return the contents of an output, or the value of a check, from a file."""
    where, files = f"reference.file.{name}", problem.study.reference.files or {}
    array = read_array(problem, files[name], where, room)
    if name not in problem.outputs:
        return _numeric(name, array)
    buffer = problem.outputs[name]
    array = array.reshape(shaped(array.shape, buffer))
    if numpy_type(buffer.type)[0].kind == "f" and array.dtype.kind in "biuf":  # more precise than the kernel's type
        require_shape(buffer.data_shape, array.shape, where, "output")
        return array.astype(np.float64)
    return fitted(buffer, array, where)


def _numeric(name: str, found: Any) -> NDArray[Any]:
    """Return the value that a check is compared with, in 64 bits. Raises StudyError if it is not real numbers."""
    array = np.asarray(found)
    require_real(array.dtype, f"reference of {name}")
    return array.astype(np.float64) if array.dtype.kind == "f" else array.astype(np.int64)


def _fitted(buffer: Buffer, found: Any, given: NDArray[Any] | None) -> NDArray[Any]:
    """Return an expected output as its buffer holds it; integers wrap to its type. Raises StudyError.

    A struct is a mapping of some members, with the others taken from the input `given`, or NumPy's structured array.
    """
    where = f"reference of {buffer.name}"
    dtype, _ = numpy_type(buffer.type)
    if dtype.names is not None:
        return _record(buffer, found, given, where)
    array = np.asarray(found)
    require_real(array.dtype, where)
    require_shape(buffer.data_shape, array.shape, where, "output")
    if dtype.kind == "f":
        return array.astype(np.float64)
    if array.dtype.kind == "f":
        _require_whole(array, dtype, buffer.type, where)
    return array.astype(np.int64 if dtype.kind == "i" else np.uint64).astype(dtype)


def _require_whole(array: NDArray[Any], dtype: np.dtype[Any], kind: str, where: str) -> None:
    """Raise StudyError for floats that a type of whole numbers cannot hold even without their fractions."""
    bounds, cut = np.iinfo(dtype), np.trunc(array)
    wrong = ~((cut >= float(bounds.min)) & (cut < float(bounds.max) + 1))
    if wrong.any():
        hint = f"a conversion that saturates is clip(..., {bounds.min}, {bounds.max})"
        raise StudyError(f"gives {array[wrong].flat[0]:.6g}, which {kind} cannot hold", where=where, hint=hint)


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
        require_shape(fields[name], array.shape, f"{where}.{name}", "output")
        if array.dtype.kind not in "biufV":
            raise StudyError(f"{name} holds {array.dtype}, not numbers", where=where)
        try:
            for _, place, numbers in paired(record[name], array):
                place[...] = _wrapped(place.dtype, numbers)
        except ValueError as error:
            raise StudyError(str(error), where=f"{where}.{name}") from None
    return record


def _wrapped(dtype: np.dtype[Any], numbers: NDArray[Any]) -> NDArray[Any]:
    """Return numbers in a type; a number beyond its range overflows, as in the kernel."""
    with np.errstate(all="ignore"):
        if numbers.dtype.kind in "biuf" and dtype.kind in "iu":
            numbers = numbers.astype(np.int64 if dtype.kind == "i" else np.uint64)
        return numbers.astype(dtype)


def _members(buffer: Buffer, found: Mapping[str, Any], where: str) -> dict[str, tuple[int, ...]]:
    """Return the shape of each member of an output. Raises StudyError if unknown members are given, or too few."""
    dtype, _ = numpy_type(buffer.type)
    if dtype.names is None:
        what = f"gives members, and {buffer.name} is not a struct"
        raise StudyError(what, where=where, hint='write one expression: "..."')
    fields = {name: (*buffer.shape, *dtype[name].shape) for name in dtype.names}
    for name in found:
        if name not in fields:
            what = f"{struct_name(buffer.type)} has no {name!r}{did_you_mean(name, fields)}"
            raise StudyError(what, where=where)
    lacks = [name for name in fields if name not in found]
    if lacks and not buffer.reads:
        hint = 'a member that keeps its value may be left out if access = "inout"'
        raise StudyError(f"lacks {', '.join(lacks)}", where=where, hint=hint)
    return fields


def _numbers(problem: Problem) -> dict[str, Any]:
    """Return the fixed numbers, and the scalar arguments as the default configuration has them.

    Scalars of a launch that does not take place with that configuration or size are included if they have a value.
    """
    passed, declared = problem.plan(problem.default).arguments, problem.study.arguments
    found = {name: one.named for name, one in passed.items() if isinstance(one, Scalar)}
    for name in problem.study.launched & declared.keys() - passed.keys():
        one = declared[name]
        if isinstance(one, Scalar):
            with suppress(StudyError, ExpressionError):
                found[name] = one.concrete({**problem.constants, **problem.default}).named
    return {**problem.fixed, **found}
