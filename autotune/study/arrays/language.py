"""Text -> tree -> value: an allow-list of Python's syntax, each step sized before it is taken."""

from __future__ import annotations

import ast
import keyword
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from autotune.errors import StudyError, without
from autotune.expression import MAX_LENGTH, MAX_NESTING, MAX_NODES
from autotune.study.arrays import products, sizes
from autotune.study.arrays.bounds import (
    MAX_SHIFT,
    BoundError,
    Meter,
    Outline,
    Size,
    UnknownError,
    bounded,
    outline,
    physical,
    shape_of_value,
)  # fmt: skip
from autotune.study.arrays.habits import of_c, require_in_language, require_no_component, syntax_of_c
from autotune.study.scope import GAP, UNWRITTEN, word_of_python
from autotune.text import did_you_mean

_SHARED: dict[Callable[..., Size], str] = {
    sizes.unary: "abs arccos arcsin arctan ceil cos cosh exp exp2 floor log log10 log1p log2 sign sin sinh sqrt square "
    "tan tanh trunc",
    sizes.binary: "arctan2 hypot maximum minimum",
    sizes.round_: "round",
    sizes.reduction: "argmax argmin max mean min prod std sum var",
    sizes.cumulative: "cumprod cumsum",
    sizes.ordered: "argsort sort",
    sizes.triangle: "tril triu",
    sizes.filled: "ones zeros",
    sizes.view_along: "expand_dims flip squeeze transpose",
}
_OWN: tuple[Callable[..., Size], ...] = (
    sizes.where, sizes.clip, sizes.astype, sizes.trace, sizes.roll, sizes.diff, sizes.take, sizes.repeat, sizes.tile,
    sizes.pad, sizes.concatenate, sizes.stack, sizes.arange, sizes.eye, sizes.full, sizes.reshape, sizes.swapaxes,
    sizes.rot90, products.outer, products.kron, products.inner, products.dot, products.vdot, products.matmul,
    products.tensordot, products.convolve, products.cross, products.einsum,
)  # fmt: skip
FUNCTIONS = {name: rule for rule, names in _SHARED.items() for name in names.split()}
FUNCTIONS |= {rule.__name__: rule for rule in _OWN}
"""The NumPy functions that may be called, by name; each with the rule that sizes its result from the same arguments."""

_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.MatMult: operator.matmul,
    ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert, ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_, ast.BitXor: operator.xor, ast.LShift: operator.lshift, ast.RShift: operator.rshift,
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}  # fmt: skip


def evaluate(text: str, names: Mapping[str, Any], where: str = "", *, room: Callable[[], float] = physical) -> Any:
    """Return the value of a NumPy expression: operators, indexing, and the functions of `FUNCTIONS`; never `eval`.

    `room` returns the bytes of memory that a result may take. Raises StudyError if the text is not such an
    expression, exceeds the limits, or NumPy refuses it.
    """
    return _run(text, names, where, Meter(room))


def shape_of(text: str, names: Mapping[str, Any], where: str = "") -> tuple[int, ...] | None:
    """Return the shape that an expression will have, computing nothing; None if the data decides it.

    Only the shapes of arrays in `names` matter. Raises StudyError as `evaluate` does.
    """
    outlined = {
        name: outline(value.shape, value.dtype if value.dtype.names else np.float64)
        if isinstance(value, np.ndarray)
        else value
        for name, value in names.items()
    }
    try:
        return tuple(np.shape(_run(text, outlined, where, Meter(None))))
    except UnknownError:
        return None


def check_names(text: str, names: Mapping[str, Any], where: str) -> None:
    """Raise StudyError if a NumPy expression is malformed or uses an unknown name; computes nothing."""
    for name, called in _named(_parse(text, where)):
        known: Mapping[str, Any] = FUNCTIONS if called else names
        if name == GAP:
            raise StudyError(UNWRITTEN, where=where)
        if name not in known:
            hint = f"known here: {', '.join(sorted(names)) or 'none'}"
            meant = did_you_mean(name, known)
            if called:
                hint = "docs/studies-reference.md lists the functions"
            if called and (own := of_c(name)):
                meant, hint = "", f"write {own}"
            raise StudyError(f"unknown name {name!r}{meant}", where=where, hint=hint)


def names_of(text: str, where: str = "") -> set[str]:
    """Return the names in an expression, except functions. Raises StudyError if it is malformed."""
    return {name for name, called in _named(_parse(text, where)) if not called}


def _named(tree: ast.expr) -> Iterator[tuple[str, bool]]:
    """Yield the names in an expression, and whether each is that of a function."""
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    yield from ((node.id, id(node) in called) for node in ast.walk(tree) if isinstance(node, ast.Name))


def _run(text: str, names: Mapping[str, Any], where: str, meter: Meter) -> Any:
    tree = _parse(text, where)
    try:
        with np.errstate(all="ignore"), without(Warning):  # an expected NaN is compared
            return _Evaluator(names, meter).value(tree)
    except RecursionError as error:
        raise StudyError(f"not an expression: {text}", where=where) from error
    except MemoryError as error:
        raise StudyError(f"{text}: out of memory: {error}", where=where, hint="ask for a smaller size") from error
    except StudyError as error:
        raise error.at(where) from None
    except BoundError as error:
        hint = "ask for a smaller size" if str(error).startswith(("out of memory", "too much work")) else ""
        raise StudyError(f"{text}: {error}", where=where, hint=hint) from error
    except (ValueError, TypeError, IndexError, ArithmeticError) as error:
        hint = "powers are written **" if "'bitwise_xor'" in str(error) else ""
        raise StudyError(f"{text}: {error}", where=where, hint=hint) from error


def _parse(text: str, where: str) -> ast.expr:
    if len(text) > MAX_LENGTH:
        raise StudyError(f"longer than {MAX_LENGTH} characters", where=where)
    try:
        with without(Warning):
            # Parentheses let a text run over several lines of a study.
            tree = ast.parse(f"(\n{text}\n)" if "\n" in text.strip() else text.strip(), mode="eval").body
    except (SyntaxError, RecursionError, MemoryError, ValueError) as error:
        words = [word for word in re.findall(r"[A-Za-z_]+", text) if keyword.iskeyword(word)]
        hint = syntax_of_c(text) or (word_of_python(words[0]) if words else "")
        raise StudyError(f"not an expression: {_told(text, error)}", where=where, hint=hint) from error
    level: list[ast.AST] = [tree]
    count = depth = 0
    while level:
        count, depth = count + len(level), depth + 1
        if count > MAX_NODES or depth > MAX_NESTING:
            limit = f"{MAX_NODES} parts" if count > MAX_NODES else f"{MAX_NESTING} levels"
            raise StudyError(f"an expression of more than {limit}", where=where)
        for node in level:
            require_in_language(node, FUNCTIONS, where)
        children = [child for node in level for child in ast.iter_child_nodes(node)]
        level = [child for child in children if not isinstance(child, ast.expr_context | ast.operator | ast.cmpop)]
    return tree


def _told(text: str, error: Exception) -> str:
    """Return what is wrong with a text that is not an expression, and the text at that place."""
    if not isinstance(error, SyntaxError) or not error.text:
        return f"`{' '.join(text.split()):.60}` is nested too deeply, or holds what cannot be read"
    place = max(0, (error.offset or 1) - 31)
    return f"`{error.text[place : place + 60].strip()}`: {error.msg}"


_ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod, ast.Pow)
_BITWISE = (ast.BitAnd, ast.BitOr, ast.BitXor, ast.LShift, ast.RShift)


def _counted(operand: Any) -> Any:
    """Return booleans as 0 and 1: a sum of booleans is a boolean in NumPy, but a count in a kernel."""
    if isinstance(operand, np.ndarray | np.generic) and operand.dtype.kind == "b":
        return operand.astype(np.int64)
    return int(operand) if isinstance(operand, bool) else operand


def _wrapped(operand: Any, other: Any) -> Any:
    """Return a whole number as uint64 if the other operand is uint64, as in C; NumPy would use floats."""
    if not isinstance(other, np.ndarray | np.generic) or other.dtype != np.uint64:
        return operand
    if isinstance(operand, np.ndarray | np.generic) and operand.dtype.kind in "iub":
        return operand.astype(np.uint64)
    return np.uint64(operand % 2**64) if type(operand) is int else operand


class _Evaluator:
    """Evaluates a tree; a step on arrays is sized first, and if only shapes are wanted, it ends there."""

    def __init__(self, names: Mapping[str, Any], meter: Meter) -> None:
        self._names = names
        self._meter = meter

    def value(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=int() | float() | str() | None):
                return bounded(node.value)
            case ast.Name():
                if node.id not in self._names:
                    raise StudyError(f"unknown name {node.id!r}{did_you_mean(node.id, self._names)}")
                return self._names[node.id]
            case ast.BinOp():
                return self._binary(type(node.op), self.value(node.left), self.value(node.right))
            case ast.UnaryOp() if type(node.op) in _OPERATORS:
                operand = self.value(node.operand)
                operand = operand if isinstance(node.op, ast.Invert) else _counted(operand)
                return self._step(_OPERATORS[type(node.op)], sizes.unary(operand), operand)
            case ast.Compare(ops=[op], comparators=[right]) if type(op) in _OPERATORS:
                return self._binary(type(op), self.value(node.left), self.value(right))
            case ast.Tuple() | ast.List():
                return tuple(self.value(part) for part in node.elts)
            case ast.Subscript():
                return self._item(self.value(node.value), self._index(node.slice))
            case ast.Attribute(attr=attribute):
                operand = self.value(node.value)
                if _fields(operand):
                    return _field(operand, attribute)
                if attribute == "T":
                    return self._step(np.transpose, sizes.view(operand), operand)
                require_no_component(node)
            case ast.Call(func=ast.Name(id=name)):
                return self._call(name, node)
        raise StudyError(f"may not contain: {ast.unparse(node)}")

    def _call(self, name: str, node: ast.Call) -> Any:
        if name not in FUNCTIONS:
            raise StudyError(f"no function {name!r} here{did_you_mean(name, FUNCTIONS)}")
        given = [self.value(argument) for argument in node.args]
        keywords = {str(word.arg): self.value(word.value) for word in node.keywords}
        try:
            size = FUNCTIONS[name](*given, **keywords)
        except TypeError as error:  # of Python: too few arguments, or one that the language does not pass on
            raise BoundError(re.sub(r"^\w+\(\)", f"{name}()", str(error))) from None
        if name == "argsort":
            keywords["kind"] = "stable"  # NumPy's default order of equal keys depends on the processor
        return self._step(astype if name == "astype" else getattr(np, name), size, *given, **keywords)

    def _step(self, call: Callable[..., Any], size: Size, *given: Any, **keywords: Any) -> Any:
        self._meter.allow(size, call.__name__)
        if size.shape is not None and self._meter.outlines and (size.shape or _outlined(given)):
            return outline(size.shape)
        found = call(*given, **keywords)
        if isinstance(found, np.ndarray | np.generic) and found.dtype.kind not in "biuf":
            raise BoundError("gives values that are not real numbers")
        return bounded(found)

    def _binary(self, sign: type[ast.AST], a: Any, b: Any) -> Any:
        size = products.matmul(a, b) if sign is ast.MatMult else sizes.binary(a, b)
        if not self._meter.outlines:
            a, b = (np.asarray(part) if isinstance(part, tuple) else part for part in (a, b))
        grows = sign in (ast.Pow, ast.LShift, ast.RShift) and isinstance(a, int) and isinstance(b, int)
        if grows and abs(b) > MAX_SHIFT:
            raise BoundError(f"{a} to the power of, or shifted by, {b}; at most {MAX_SHIFT}")
        if sign in _ARITHMETIC:
            a, b = _counted(a), _counted(b)
        if sign in _ARITHMETIC or sign in _BITWISE:
            a, b = _wrapped(a, b), _wrapped(b, a)
        return self._step(_OPERATORS[sign], size, a, b)

    def _item(self, value: Any, index: Any) -> Any:
        if isinstance(index, str):
            return _field(value, index)
        if isinstance(value, tuple) and isinstance(index, int):
            return value[index]
        if not isinstance(value, np.ndarray):
            raise BoundError("only arrays can be indexed")
        parts = index if isinstance(index, tuple) else (index,)
        lists = [part for part in parts if isinstance(part, np.ndarray | np.generic | bool)]
        if any(isinstance(part, Outline) for part in lists) or (lists and isinstance(value, Outline)):
            raise UnknownError
        chosen = math.prod(np.broadcast_shapes(*(_index_shape(part) for part in lists)))
        # Each index replaces an axis; at worst, the smallest.
        rest = math.prod(sorted(value.shape, reverse=True)[: max(0, value.ndim - len(lists))])
        count = chosen * max(rest, 1) if lists else 0
        self._meter.allow(Size(None, count, count), "the index")
        found = value[index]
        # NumPy returns a single element as a scalar; of an outline, it is as unknown as the array.
        known = isinstance(found, np.ndarray) or not isinstance(value, Outline)
        return found if known else outline((), value.dtype)

    def _index(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Tuple):
            return tuple(self._index(part) for part in node.elts)
        if isinstance(node, ast.Slice):
            parts = (None if part is None else self.value(part) for part in (node.lower, node.upper, node.step))
            return slice(*map(_bound, parts))
        found = self.value(node)
        return _array(found) if isinstance(found, tuple) else found


def _fields(value: Any) -> tuple[str, ...]:
    """Return the names of a struct's members; empty for other values."""
    return (value.dtype.names or ()) if isinstance(value, np.ndarray | np.generic) else ()


def _field(value: Any, name: str) -> Any:
    if name not in _fields(value):
        what = (
            f"no member {name!r}{did_you_mean(name, _fields(value))}" if _fields(value) else f"no struct has {name!r}"
        )
        raise BoundError(what)
    return value[name]


def _outlined(value: Any) -> bool:
    """Whether some part is known only by its shape."""
    return isinstance(value, Outline) or (isinstance(value, tuple) and any(map(_outlined, value)))


def astype(a: Any, dtype: Any) -> Any:
    """Return numbers in another type, as NumPy does for arrays; here a size or a list may be given as well."""
    return np.asarray(a).astype(dtype)


def _bound(value: Any) -> Any:
    if isinstance(value, Outline):
        raise UnknownError
    return value


def _array(found: tuple[Any, ...]) -> Any:
    shape_of_value(found)
    if _outlined(found):
        raise UnknownError
    return np.asarray(found)


def _index_shape(part: Any) -> tuple[int, ...]:
    """Return the shape that an index gives; a mask gives as many elements as it has True."""
    array = np.asarray(part)
    return (int(np.count_nonzero(array)),) if array.dtype.kind == "b" else array.shape
