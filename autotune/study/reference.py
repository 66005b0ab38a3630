"""Expected outputs of a problem: NumPy expressions, Python functions, files.

A reference is computed once per search, in float64 (or exact integers), whatever the kernel's type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import StudyError
from autotune.study.arguments import Buffer, Scalar
from autotune.study.arrays import check_names, evaluate, physical, shape_of
from autotune.study.function import ALONE, call
from autotune.study.inputs import Arrays, PythonCaller, fitted, outlines, read_array, require_shape, widened
from autotune.study.problem import Problem
from autotune.study.types import numpy_type


def expected_data(
    problem: Problem,
    inputs: Mapping[str, NDArray[Any]],
    *,
    python: PythonCaller | None = None,
    room: Callable[[], float] = physical,
) -> Arrays | None:
    """Return the expected contents of each output, and value of each check, or None where the reference is a kernel.

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
    if reference.files is not None:
        return {name: _golden(problem, name, room) for name in (*problem.outputs, *problem.study.checks)}
    names = _numbers(problem) | {name: widened(array) for name, array in inputs.items()}
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
    if ALONE in found and len(problem.outputs) + len(problem.study.checks) == 1:
        found = dict.fromkeys((*problem.outputs, *problem.study.checks), found[ALONE])
    expected = {name: _fitted(buffer, found.get(name)) for name, buffer in problem.outputs.items()}
    return expected | {name: _numeric(name, found.get(name)) for name in problem.study.checks}


def check_reference(problem: Problem) -> None:
    """Raise StudyError where a reference or a check is malformed, names what is not there, or has another shape.

    Computes nothing; of files, the headers are read.
    """
    names = _numbers(problem) | outlines(problem)
    for name, text in (problem.study.reference.numpy or {}).items():
        where = f"{problem.study.path}: reference.numpy.{name}"
        check_names(text, names, where)
        shape = shape_of(text, names, where)
        if shape is not None and name in problem.outputs:
            require_shape(problem.outputs[name], shape, where, "output")
    plan = problem.plan(problem.default)
    written = {
        buffer.name: np.broadcast_to(np.zeros(()), buffer.data_shape) for buffer in plan.buffers if buffer.writes
    }
    for name, check in plan.checks.items():
        where = f"{problem.study.path}: check.{name}"
        check_names(check.text, names | written, where)
        shape_of(check.text, names | written, where)


def _golden(problem: Problem, name: str, room: Callable[[], float]) -> NDArray[Any]:
    """What a file holds of an output, or for a check."""
    where, files = f"reference.file.{name}", problem.study.reference.files or {}
    array = read_array(problem, files[name], where, room)
    if name not in problem.outputs:
        return _numeric(name, array)
    buffer = problem.outputs[name]
    if array.ndim == 1 and array.size == np.prod(buffer.data_shape, dtype=object):
        array = array.reshape(buffer.data_shape)
    if numpy_type(buffer.type)[0].kind == "f" and array.dtype.kind in "biuf":  # better than the kernel's type
        require_shape(buffer, array.shape, where, "output")
        return array.astype(np.float64)
    return fitted(buffer, array, where)


def _numeric(name: str, found: Any) -> NDArray[Any]:
    """Check what a check is compared with."""
    where = f"reference of {name}"
    if found is None:
        raise StudyError("the function returned nothing for it", where=where)
    array = np.asarray(found)
    if array.dtype.kind not in "biuf":
        raise StudyError(f"holds {array.dtype}, not numbers", where=where)
    return array.astype(np.float64) if array.dtype.kind == "f" else array.astype(np.int64)


def _fitted(buffer: Buffer, found: Any) -> NDArray[Any]:
    """Check an expected output against its buffer; integers wrap to its type."""
    where = f"reference of {buffer.name}"
    if found is None:
        raise StudyError("the function returned nothing for it", where=where)
    dtype, _ = numpy_type(buffer.type)
    array = np.asarray(found)
    if array.dtype.kind not in "biuf":
        raise StudyError(f"holds {array.dtype}, not numbers", where=where)
    require_shape(buffer, array.shape, where, "output")
    if dtype.kind == "f":
        return array.astype(np.float64)
    return array.astype(np.int64 if dtype.kind == "i" else np.uint64).astype(dtype)


def _numbers(problem: Problem) -> dict[str, Any]:
    """Sizes, computed names, and the scalar arguments as the default configuration has them."""
    arguments = problem.plan(problem.default).arguments.values()
    scalars = {argument.name: argument.value for argument in arguments if isinstance(argument, Scalar)}
    return {**problem.size, **problem.defined, **scalars}
