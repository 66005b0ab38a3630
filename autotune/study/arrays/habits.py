"""What programmers are used to from NumPy and OpenCL C, and references write differently."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection

from autotune.errors import StudyError
from autotune.expression import unsuffixed

_SIGNED = {"add": "x + y", "subtract": "x - y", "multiply": "x * y", "divide": "x / y", "power": "x ** y",
           "newaxis": "None", "pi": "3.141592653589793"}  # fmt: skip
"""What NumPy has names for and expressions write differently."""

_OF_C = {
    "fmax": "maximum", "fmin": "minimum", "fabs": "abs", "fma": "a * b + c", "mad": "a * b + c", "pow": "a ** b",
    "powr": "a ** b", "pown": "a ** b", "rsqrt": "1 / sqrt(a)", "clamp": "clip", "select": "where(condition, a, b)",
    "rint": "round", "acos": "arccos", "asin": "arcsin", "atan": "arctan", "atan2": "arctan2", "mix": "a + (b - a) * t",
    "length": "sqrt(sum(a ** 2, axis=-1))",
}  # fmt: skip
"""What functions of OpenCL C are called in references."""

_COMPONENT = re.compile("[xyzw]|s([0-9a-fA-F])")
"""What OpenCL C calls one component of a vector."""


def require_in_language(node: ast.AST, functions: Collection[str], where: str) -> None:
    """Raise StudyError for what NumPy writes differently from this language, which has `functions`."""
    hint = ""
    match node:
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            what, hint = "no comprehensions here", "write operations on whole arrays: arange(N) * 2"
        case ast.Attribute(value=ast.Name(id="np" | "numpy" as module), attr=attribute):
            if attribute in functions or attribute in _SIGNED:
                what, hint = f"no {module}. here, names stand alone", f"write {_SIGNED.get(attribute, attribute)}"
        case ast.Call(func=ast.Attribute(value=ast.Name(id="np" | "numpy"))):
            pass  # its function is next
        case ast.Call(func=ast.Attribute(attr=name)) if name in functions:
            what, hint = "no methods here", f"write {name}(x, ...) with the array first"
        case ast.IfExp():
            what, hint = "no `if` here", "write where(condition, a, b)"
        case ast.BoolOp() | ast.UnaryOp(op=ast.Not()):
            what, hint = "no `and`, `or`, `not` here", "write (a > 0) & (b > 0), | and ~"
        case ast.Compare(ops=[_, _, *_]):
            what, hint = "no chains of comparisons here", "write (a < b) & (b < c)"
    if hint:
        raise StudyError(f"`{ast.unparse(node)}`: {what}", where=where, hint=hint)


def require_no_component(node: ast.Attribute) -> None:
    """Raise StudyError for `v.y`, an attribute of an array that is one of a vector in OpenCL C."""
    if component := _COMPONENT.fullmatch(node.attr):
        index = int(component[1], 16) if component[1] else "xyzw".find(node.attr)
        hint = f"components are the last axis: write {ast.unparse(node.value)}[..., {index}]"
        raise StudyError(f"`{ast.unparse(node)}`: an array has no components by name", hint=hint)


def of_c(name: str) -> str:
    """Return what a function of OpenCL C is called in references; empty for others."""
    name = name.removeprefix("native_").removeprefix("half_")
    return _OF_C.get(name, "")


def syntax_of_c(text: str) -> str:
    """Return what to write instead of C's operators and suffixes in a text that is not an expression. Else empty."""
    if "?" in text:
        return "write where(condition, a, b)"
    if re.search(r"&&|\|\||!(?!=)", text):
        return "write (a > 0) & (b > 0), | and ~"
    return unsuffixed(text)
