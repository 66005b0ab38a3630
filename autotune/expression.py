"""The small safe language of constraints and sizes: parsed by `ast`, never run by `eval`.

Arithmetic, comparisons (chained), `and`, `or`, `not`, `a if c else b`, `x in (1, 2)`, text in quotes and
the functions of `operators.FUNCTIONS`, besides `has_extension("cl_khr_fp16")`. `and`, `or` and `not` give
truth values; they, `if` and chained comparisons leave aside what they do not need, row by row in `mask`.

The cost is bounded before anything is computed: length, nodes and nesting of the text, size of numbers,
exponents. Constant parts are computed when the text is parsed, so `9**9**9` is refused there.
"""

from __future__ import annotations

import ast
import difflib
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune import nodes
from autotune.errors import ExpressionError
from autotune.nodes import Frame, Node
from autotune.operators import BINARY, COMPARISONS, FUNCTIONS, LIMIT, NOT, UNARY, FaultError, bounded, truth

MAX_LENGTH = 4_000
MAX_NODES = 500
MAX_NESTING = 100

_OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.USub: "-",
    ast.UAdd: "+",
}
_INSTEAD = {"BitAnd": "use `and`", "BitOr": "use `or`", "Invert": "use `not`", "Is": "use ==", "IsNot": "use !="}


class Expression:
    """One expression; immutable, equal and hashable by its text. Make one with `Expression.parse`."""

    __slots__ = ("names", "text", "tree", "where")

    text: str
    where: str
    names: frozenset[str]
    """The free names; `extensions` among them where `has_extension` is used."""
    tree: Node

    def __init__(self, text: str, where: str, tree: Node) -> None:
        for attribute, value in (("text", text), ("where", where), ("tree", tree), ("names", tree.names)):
            object.__setattr__(self, attribute, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"an expression does not change ({name})")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expression) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"

    def __reduce__(self) -> tuple[Callable[..., Expression], tuple[str, str]]:
        return _parse, (self.text, self.where)

    @classmethod
    def parse(cls, text: str | int | float, *, where: str = "") -> Expression:
        """Return the expression of a text, or of a number; ExpressionError, placed at `where`, if it is none."""
        return _parse(text if isinstance(text, str) else repr(text), where)

    def evaluate(self, names: Mapping[str, Any]) -> int | float | bool | str:
        """Return the value for scalar `names`; ExpressionError for an unknown name, a zero divisor, a bound."""
        known = {name: nodes.scalar(self._look_up(names, name)) for name in self.names}
        try:
            for name, value in known.items():
                nodes.check_scalar(name, value)
            return self.tree.scalar(known)
        except FaultError as fault:
            raise self._error(fault, known) from None

    def mask(self, names: Mapping[str, Any]) -> NDArray[np.bool_]:
        """Return for each row whether the expression is true (a number: non-zero), shape (rows,).

        `names` gives scalars and 1-D arrays of equal length; without any array there is one row. Row by
        row the same as `evaluate`, with its ExpressionError for the first row that has one.
        """
        true, failed = self.decide(names)
        if failed.any():
            self._raise_for_row(names, int(np.argmax(failed)))
        return true

    def decide(self, names: Mapping[str, Any]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Like `mask`, without raising for rows: the rows that are true, and those that cannot be computed."""
        frame = Frame({name: self._look_up(names, name) for name in self.names})
        true = nodes.truth_column(self.tree.columns(frame, ~frame.failed), frame)
        return true & ~frame.failed, frame.failed

    def _look_up(self, names: Mapping[str, Any], name: str) -> Any:
        try:
            return names[name]
        except KeyError:
            raise unknown_name(self.text, name, names, where=self.where) from None

    def _raise_for_row(self, names: Mapping[str, Any], row: int) -> None:
        one = {name: names[name] for name in self.names}
        one = {n: v.reshape(-1)[row] if isinstance(v, np.ndarray) and v.ndim else v for n, v in one.items()}
        try:
            known = {name: nodes.scalar(value) for name, value in one.items()}
            truth(self.evaluate(known))
        except FaultError as fault:
            raise self._error(fault, known) from None
        raise AssertionError(f"{self!r}: the forms of an operator differ for {one}")

    def _error(self, fault: FaultError, names: Mapping[str, Any]) -> ExpressionError:
        shown = ", ".join(f"{n}={v!r}" for n, v in sorted(names.items()) if not isinstance(v, tuple))
        return ExpressionError(f"`{self.text}` {fault}" + (f" where {shown}" if shown else ""), where=self.where)


def unknown_name(text: str, name: str, known: Iterable[str], *, where: str = "") -> ExpressionError:
    """The error for a name that `text` uses and nobody defines, with the names it may have meant."""
    close = difflib.get_close_matches(name, sorted(known), n=3, cutoff=0.5)
    close = close or difflib.get_close_matches(name.upper(), sorted(known), n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(close)}?" if close else f"known are {', '.join(sorted(known)) or 'none'}"
    return ExpressionError(f"`{text}` uses {name}, which is not defined", where=where, hint=hint)


# --- parsing ------------------------------------------------------------------------------------------


def _parse(text: str, where: str) -> Expression:
    text = text.strip()
    shown = text if len(text) <= 80 else text[:77] + "..."

    def refuse(what: str, hint: str = "") -> ExpressionError:
        return ExpressionError(f"`{shown}` {what}", where=where, hint=hint)

    if not text:
        raise ExpressionError("an expression is empty", where=where)
    if len(text) > MAX_LENGTH:
        raise refuse(f"is longer than {MAX_LENGTH} characters")
    # Parentheses let a text run over several lines of a study.
    source = f"(\n{text}\n)" if "\n" in text else text
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # `1if x else 2`, "\d": doubtful, so refused
            syntax = ast.parse(source, mode="eval").body
        _check_size(syntax)
        tree = _Builder().build(syntax)
    except SyntaxError as error:
        raise refuse(f"is no expression: {error.msg}") from None
    except (ValueError, OverflowError):
        raise refuse("is no expression: a character or a number that cannot be read") from None
    except (RecursionError, MemoryError):
        raise refuse("is nested too deeply") from None
    except _NotAllowedError as error:
        raise refuse(str(error), error.hint) from None
    except FaultError as fault:
        raise refuse(str(fault)) from None
    return Expression(text, where, tree)


def _check_size(syntax: ast.AST) -> None:
    """Count nodes and levels without recursion."""
    level, count, nesting = [syntax], 0, 0
    while level:
        count, nesting = count + len(level), nesting + 1
        if count > MAX_NODES:
            raise _NotAllowedError(f"has more than {MAX_NODES} parts")
        if nesting > MAX_NESTING:
            raise _NotAllowedError(f"is nested more than {MAX_NESTING} levels deep")
        level = [
            child
            for node in level
            for child in ast.iter_child_nodes(node)
            if not isinstance(child, ast.operator | ast.cmpop | ast.unaryop | ast.boolop | ast.expr_context)
        ]


class _NotAllowedError(Exception):
    """Python that is not part of the language."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.hint = hint


class _Builder:
    """Syntax -> nodes, by an allow-list: a method per kind of syntax; whatever has none is refused."""

    def build(self, syntax: ast.AST) -> Node:
        method = getattr(self, f"_{type(syntax).__name__.lower()}", None)
        if method is None:
            raise _NotAllowedError(
                f"uses Python's {type(syntax).__name__}, which is not part of the language",
                "there are + - * / // % **, comparisons, and, or, not, if-else, in and "
                + ", ".join(f"{name}()" for name in sorted([*FUNCTIONS, "has_extension"])),
            )
        node: Node = method(syntax)
        return node

    def _constant(self, syntax: ast.Constant) -> Node:
        value = syntax.value
        if isinstance(value, int | float):
            return nodes.Constant(bounded(value))
        if isinstance(value, str):
            return nodes.Constant(value)
        raise _NotAllowedError(f"holds {value!r}, which is neither a number nor text")

    def _name(self, syntax: ast.Name) -> Node:
        if syntax.id in FUNCTIONS or syntax.id == "has_extension":
            raise _NotAllowedError(f"uses the function {syntax.id} without parentheses")
        return nodes.Name(syntax.id)

    def _binop(self, syntax: ast.BinOp) -> Node:
        operator = BINARY[self._sign(syntax.op)]
        return _fold(nodes.Apply(operator, (self.build(syntax.left), self.build(syntax.right))))

    def _unaryop(self, syntax: ast.UnaryOp) -> Node:
        operator = NOT if isinstance(syntax.op, ast.Not) else UNARY[self._sign(syntax.op)]
        return _fold(nodes.Apply(operator, (self.build(syntax.operand),)))

    def _boolop(self, syntax: ast.BoolOp) -> Node:
        parts = tuple(self.build(value) for value in syntax.values)
        return nodes.Both(parts) if isinstance(syntax.op, ast.And) else nodes.Either(parts)

    def _ifexp(self, syntax: ast.IfExp) -> Node:
        return nodes.Choice(self.build(syntax.test), self.build(syntax.body), self.build(syntax.orelse))

    def _compare(self, syntax: ast.Compare) -> Node:
        links: list[Node] = []
        left = self.build(syntax.left)
        for sign, part in zip(syntax.ops, syntax.comparators, strict=True):
            if isinstance(sign, ast.In | ast.NotIn):
                if len(syntax.ops) > 1:
                    raise _NotAllowedError("chains `in` with another comparison", "join the two with `and`")
                return self._membership(left, part, isinstance(sign, ast.NotIn))
            right = self.build(part)
            links.append(_fold(nodes.Apply(COMPARISONS[self._sign(sign)], (left, right))))
            left = right
        return links[0] if len(links) == 1 else nodes.Both(tuple(links))

    def _membership(self, item: Node, syntax: ast.AST, negated: bool) -> Node:
        if not isinstance(syntax, ast.Tuple | ast.List) or not syntax.elts:
            raise _NotAllowedError("has no list after `in`", "write `x in (1, 2)` or `x in ('A', 'B')`")
        parts = tuple(self.build(element) for element in syntax.elts)
        same = nodes.Either(tuple(nodes.Apply(COMPARISONS["=="], (item, part)) for part in parts))
        return nodes.Apply(NOT, (same,)) if negated else same

    def _call(self, syntax: ast.Call) -> Node:
        name = syntax.func.id if isinstance(syntax.func, ast.Name) else None
        if name is None or syntax.keywords or any(isinstance(a, ast.Starred) for a in syntax.args):
            raise _NotAllowedError("calls something that is not a plain function", "write `ceil_div(a, b)`")
        if name == "has_extension":
            return self._extension(syntax)
        if name not in FUNCTIONS:
            known = sorted([*FUNCTIONS, "has_extension"])
            close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
            hint = f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(known)}"
            raise _NotAllowedError(f"calls {name}, which is no function of the language", hint)
        function = FUNCTIONS[name]
        if not function.least <= len(syntax.args) <= function.most:
            wanted = f"{function.least}" if function.least == function.most else f"at least {function.least}"
            raise _NotAllowedError(f"gives {name} {len(syntax.args)} values; it takes {wanted}")
        return _fold(nodes.Apply(function, tuple(self.build(argument) for argument in syntax.args)))

    def _extension(self, syntax: ast.Call) -> Node:
        match syntax.args:
            case [ast.Constant(value=str(extension))]:
                return nodes.Extension(extension)
        raise _NotAllowedError("gives has_extension no name", 'write `has_extension("cl_khr_fp16")`')

    def _sign(self, syntax: ast.AST) -> str:
        sign = _OPERATORS.get(type(syntax))
        if sign is None:
            name = type(syntax).__name__
            raise _NotAllowedError(f"uses Python's {name}, which is not part of the language", _INSTEAD.get(name, ""))
        return sign


def _fold(node: nodes.Apply) -> Node:
    """Compute what has only constant operands."""
    if all(isinstance(operand, nodes.Constant) for operand in node.operands):
        return nodes.Constant(node.scalar({}))
    return node


__all__ = ["LIMIT", "MAX_LENGTH", "MAX_NESTING", "MAX_NODES", "Expression", "unknown_name"]
