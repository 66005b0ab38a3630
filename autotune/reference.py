"""Input data and expected outputs of a problem: seeded arrays, a small NumPy expression language, functions.

A reference is computed once per search, in float64 (or exact integers), whatever the kernel's type.
"""

from __future__ import annotations

import ast
import importlib.util
import keyword
import operator
import re
import traceback
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import StudyError
from autotune.library import did_you_mean
from autotune.plan import Buffer, Plan, Scalar, numpy_type
from autotune.problem import Problem
from autotune.schema import DataTable

Arrays = dict[str, NDArray[Any]]

FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: getattr(np, name)
    for name in (
        "abs", "arange", "arccos", "arcsin", "arctan", "arctan2", "argmax", "argmin", "argsort", "astype", "ceil",
        "clip", "concatenate", "convolve", "cos", "cosh", "cross", "cumprod", "cumsum", "diff", "dot", "einsum",
        "exp", "exp2", "expand_dims", "flip", "floor", "full", "hypot", "inner", "kron", "log", "log10", "log1p",
        "log2", "matmul", "max", "maximum", "mean", "min", "minimum", "ones", "outer", "pad", "prod", "repeat",
        "reshape", "roll", "rot90", "round", "sign", "sin", "sinh", "sort", "sqrt", "square", "squeeze", "stack",
        "std", "sum", "swapaxes", "take", "tan", "tanh", "tensordot", "tile", "trace", "transpose", "tril", "triu",
        "trunc", "var", "vdot", "where", "zeros",
    )
}  # fmt: skip
"""The NumPy functions that a reference expression may call, by their NumPy names."""

_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.MatMult: operator.matmul,
    ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert, ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_, ast.BitXor: operator.xor, ast.LShift: operator.lshift, ast.RShift: operator.rshift,
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}  # fmt: skip
_MAX_TEXT = 4000


def input_data(problem: Problem) -> Arrays:
    """Return the contents of each `in` and `inout` buffer, in its logical shape, the same for the same seed.

    A vector type adds a last axis of its components. Raises StudyError for data that the type cannot hold.
    """
    declared = problem.study.arguments.items()
    inputs = {name: argument.data for name, argument in declared if argument.access in ("in", "inout")}
    return {name: _draw(problem.buffer(name), data) for name, data in inputs.items()}


def expected(problem: Problem, inputs: Mapping[str, NDArray[Any]], *, allow_python: bool = False) -> Arrays | None:
    """Return the expected contents of each output, or None where the reference is a kernel.

    Floating-point outputs are computed and returned in float64; integers are computed in 64 bits and wrapped
    to the output's type, as the device does. Raises StudyError where the expression fails or the shape differs.
    """
    if problem.study.reference.source is not None:
        return None
    try:
        return _expected(problem, inputs, allow_python)
    except StudyError as error:
        raise error.at(str(problem.study.text.path)) from None


def _expected(problem: Problem, inputs: Mapping[str, NDArray[Any]], allow_python: bool) -> Arrays:
    reference = problem.study.reference
    names: dict[str, Any] = {**problem.size, **_scalars(problem), **{k: _widened(v) for k, v in inputs.items()}}
    if reference.numpy is not None:
        found = {name: evaluate(text, names, f"reference.numpy.{name}") for name, text in reference.numpy.items()}
    else:
        found = _call(_function(reference.function, allow_python), names)
    return {name: _fitted(problem.buffer(name), found.get(name)) for name in _outputs(problem)}


def evaluate(text: str, names: Mapping[str, Any], where: str = "") -> Any:
    """Return the value of a NumPy expression: operators, indexing, and the functions of `FUNCTIONS`; never `eval`.

    Raises StudyError where the text is not such an expression, or NumPy refuses it.
    """
    if len(text) > _MAX_TEXT:
        raise StudyError(f"longer than {_MAX_TEXT} characters", where=where)
    try:
        tree = _parse(text, where).body
        with np.errstate(all="ignore"):  # a NaN that is expected is compared as one
            return _value(tree, names)
    except RecursionError as error:
        raise StudyError(f"not an expression: {text}", where=where) from error
    except MemoryError as error:
        raise StudyError(f"{text}: out of memory: {error}", where=where, hint="ask for a smaller size") from error
    except StudyError as error:
        raise error.at(where) from None
    except (ValueError, TypeError, IndexError, ArithmeticError) as error:
        raise StudyError(f"{text}: {error}", where=where) from error


def _parse(text: str, where: str) -> ast.Expression:
    try:
        return ast.parse(text.strip(), mode="eval")
    except (SyntaxError, RecursionError, MemoryError, ValueError) as error:
        words = [word for word in re.findall(r"[A-Za-z_]+", text) if keyword.iskeyword(word)]
        hint = f"{words[0]!r} is a word of Python: no buffer or scalar can be called so here" if words else ""
        raise StudyError(f"not an expression: {text}", where=where, hint=hint) from error


def check(problem: Problem) -> None:
    """Raise StudyError where a NumPy reference is malformed or names what is not there; computes nothing."""
    inputs = [name for name, argument in problem.study.arguments.items() if argument.access in ("in", "inout")]
    names = {**problem.size, **_scalars(problem), **dict.fromkeys(inputs)}
    for name, text in (problem.study.reference.numpy or {}).items():
        check_names(text, names, f"{problem.study.text.path}: reference.numpy.{name}")


def check_names(text: str, names: Mapping[str, Any], where: str) -> None:
    """Raise StudyError where a NumPy expression is malformed or names what is not there; computes nothing."""
    tree = _parse(text, where)
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            known = FUNCTIONS if id(node) in called else names
            if node.id not in known:
                raise StudyError(f"unknown name {node.id!r}{did_you_mean(node.id, known)}", where=where)


def _value(node: ast.expr, names: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=int() | float() | str() | None):
            return node.value
        case ast.Name():
            if node.id not in names:
                raise StudyError(f"unknown name {node.id!r}{did_you_mean(node.id, names)}")
            return names[node.id]
        case ast.BinOp():
            return _OPERATORS[type(node.op)](_value(node.left, names), _value(node.right, names))
        case ast.UnaryOp() if type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](_value(node.operand, names))
        case ast.Compare(ops=[op], comparators=[right]) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(node.left, names), _value(right, names))
        case ast.Tuple() | ast.List():
            return tuple(_value(part, names) for part in node.elts)
        case ast.Subscript():
            return _value(node.value, names)[_index(node.slice, names)]
        case ast.Attribute(attr="T"):
            return np.transpose(_value(node.value, names))
        case ast.Call(func=ast.Name(id=name)):
            if name not in FUNCTIONS:
                raise StudyError(f"no function {name!r} here{did_you_mean(name, FUNCTIONS)}")
            keywords = {str(word.arg): _value(word.value, names) for word in node.keywords}
            return FUNCTIONS[name](*(_value(argument, names) for argument in node.args), **keywords)
    raise StudyError(f"may not contain: {ast.unparse(node)}")


def _index(node: ast.expr, names: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Tuple):
        return tuple(_index(part, names) for part in node.elts)
    if isinstance(node, ast.Slice):
        return slice(*(None if part is None else _value(part, names) for part in (node.lower, node.upper, node.step)))
    return _value(node, names)


def _draw(buffer: Buffer, data: DataTable) -> NDArray[Any]:
    dtype: np.dtype[Any]
    dtype, width = numpy_type(buffer.type)
    shape = (*buffer.shape, width) if width > 1 else buffer.shape
    generator = np.random.default_rng([data.seed, zlib.crc32(buffer.name.encode())])
    if data.distribution == "constant":
        return np.full(shape, data.value).astype(dtype)
    if data.distribution == "range":
        return np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    if dtype.kind in "iu" or data.distribution == "integers":
        return _integers(buffer, data, dtype, shape, generator)
    kind = np.float64 if dtype == np.float64 else np.float32
    if data.distribution == "normal":
        return generator.standard_normal(shape, dtype=kind).astype(dtype, copy=False)
    values = generator.random(shape, dtype=kind)
    values *= kind(data.high - data.low)
    values += kind(data.low)
    return values.astype(dtype, copy=False)


def _integers(
    buffer: Buffer, data: DataTable, dtype: np.dtype[Any], shape: tuple[int, ...], generator: np.random.Generator
) -> NDArray[Any]:
    """Whole numbers from `low` to `high`, both included, as far as the type holds them."""
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
    dtype, width = numpy_type(buffer.type)
    shape = (*buffer.shape, width) if width > 1 else buffer.shape
    array = np.asarray(found)
    if array.shape != shape:
        raise StudyError(f"has shape {array.shape}, the output has {shape}", where=where)
    if dtype.kind == "f":
        return array.astype(np.float64)
    return array.astype(np.int64 if dtype.kind == "i" else np.uint64).astype(dtype)


def _outputs(problem: Problem) -> list[str]:
    return [name for name, argument in problem.study.arguments.items() if argument.access in ("out", "inout")]


def _scalars(problem: Problem) -> dict[str, int | float]:
    """The scalar arguments, where no parameter enters them."""
    plan: Plan = problem.plan(problem.default)
    return {name: argument.value for name, argument in plan.arguments.items() if isinstance(argument, Scalar)}


def _call(function: Callable[..., Mapping[str, Any]], names: Mapping[str, Any]) -> dict[str, Any]:
    """Call the author's function; whatever it raises is the study's error, with the line it came from."""
    try:
        found = function(**names)
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        what = f"the reference function failed: {type(error).__name__}: {error}"
        raise StudyError(what, where=f"{Path(last.filename).name}:{last.lineno}") from error
    if not isinstance(found, Mapping):
        raise StudyError(
            f"the reference function returned {type(found).__name__}", hint="return a dict with an array per output"
        )
    return dict(found)


def _function(function: Any, allow_python: bool) -> Callable[..., Mapping[str, Any]]:
    if callable(function):
        return function  # type: ignore[no-any-return]
    path, name = function
    if not allow_python:
        raise StudyError(
            "the reference is Python code of the study's author", where=str(path), hint="allow it with --allow-python"
        )
    return _load(path, name)


def _load(path: Path, name: str) -> Callable[..., Mapping[str, Any]]:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise StudyError("cannot be loaded as Python", where=str(path))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not callable(getattr(module, name, None)):
        raise StudyError(f"defines no function {name!r}", where=str(path))
    return getattr(module, name)  # type: ignore[no-any-return]
