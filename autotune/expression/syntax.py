"""Text -> tree of nodes, by an allow-list, with every cost bounded before anything is computed."""

from __future__ import annotations

import ast
import difflib
import re
import warnings
from itertools import pairwise

from autotune.errors import ExpressionError
from autotune.expression import nodes
from autotune.expression.nodes import Node
from autotune.expression.operators import BINARY, COMPARISONS, FUNCTIONS, NOT, UNARY
from autotune.expression.scalars import FaultError, bounded

MAX_LENGTH = 4_000
MAX_NODES = 500
MAX_NESTING = 100

_SIGNS: dict[type[ast.AST], str] = {
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
_INSTEAD = {
    "BitAnd": "use `and`",
    "BitOr": "use `or`",
    "BitXor": "powers are written **",
    "LShift": "use `* 2 ** n`",
    "RShift": "use `// 2 ** n`",
    "Invert": "use `not`",
    "Is": "use ==",
    "IsNot": "use !=",
    "Attribute": "names have no parts",
}
_C_HINT = "write `and`, `or`, `not` and `a if c else b`"
_CALLABLE = sorted([*FUNCTIONS, "has_extension"])
_NOT_COUNTED = (ast.operator, ast.cmpop, ast.unaryop, ast.boolop, ast.expr_context)


class _NotAllowedError(Exception):
    """Python that is not part of the language; `hint` says what is."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.hint = hint


def parse(text: str, where: str) -> Node:
    """Return the tree of a text; ExpressionError, placed at `where`, where it is not of the language."""
    shown = text if len(text) <= 80 else text[:77] + "..."
    if not text:
        raise ExpressionError("an expression is empty", where=where)
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"`{shown}` is longer than {MAX_LENGTH} characters", where=where)
    try:
        return _tree(text)
    except SyntaxError as error:
        what, hint = f"is no expression: {error.msg}", _C_HINT if re.search(r"&&|\|\||!(?!=)|\?", text) else ""
    except (ValueError, OverflowError):
        what, hint = "is no expression: it holds a character or a number that cannot be read", ""
    except (RecursionError, MemoryError):
        what, hint = "is nested too deeply", ""
    except _NotAllowedError as error:
        what, hint = str(error), error.hint
    except FaultError as fault:
        what, hint = str(fault), ""
    raise ExpressionError(f"`{shown}` {what}", where=where, hint=hint)


def _tree(text: str) -> Node:
    # Parentheses let a text run over several lines of a study.
    source = f"(\n{text}\n)" if "\n" in text else text
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # `1if x else 2` and "\d" are doubtful, so refused
        syntax = ast.parse(source, mode="eval").body
    _check_size(syntax)
    return _Builder().build(syntax)


def _check_size(syntax: ast.AST) -> None:
    """Count nodes and levels, without recursion."""
    level, count, nesting = [syntax], 0, 0
    while level:
        count, nesting = count + len(level), nesting + 1
        if count > MAX_NODES:
            raise _NotAllowedError(f"has more than {MAX_NODES} parts")
        if nesting > MAX_NESTING:
            raise _NotAllowedError(f"is nested more than {MAX_NESTING} levels deep")
        children = [child for node in level for child in ast.iter_child_nodes(node)]
        level = [child for child in children if not isinstance(child, _NOT_COUNTED)]


class _Builder:
    """A method per kind of syntax, named after it; syntax without a method is refused."""

    def build(self, syntax: ast.AST) -> Node:
        method = getattr(self, f"_{type(syntax).__name__.lower()}", None)
        if method is None:
            raise _foreign(syntax)
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
        if syntax.id in _CALLABLE:
            raise _NotAllowedError(f"uses the function {syntax.id} without parentheses")
        return nodes.Name(syntax.id)

    def _binop(self, syntax: ast.BinOp) -> Node:
        sign = _sign(syntax.op)
        return _fold(nodes.Apply(BINARY[sign], (self.build(syntax.left), self.build(syntax.right))))

    def _unaryop(self, syntax: ast.UnaryOp) -> Node:
        operator = NOT if isinstance(syntax.op, ast.Not) else UNARY[_sign(syntax.op)]
        return _fold(nodes.Apply(operator, (self.build(syntax.operand),)))

    def _boolop(self, syntax: ast.BoolOp) -> Node:
        parts = tuple(self.build(value) for value in syntax.values)
        return nodes.Both(parts) if isinstance(syntax.op, ast.And) else nodes.Either(parts)

    def _ifexp(self, syntax: ast.IfExp) -> Node:
        return nodes.Choice((self.build(syntax.test), self.build(syntax.body), self.build(syntax.orelse)))

    def _compare(self, syntax: ast.Compare) -> Node:
        if any(isinstance(sign, ast.In | ast.NotIn) for sign in syntax.ops):
            return self._membership(syntax)
        operators = tuple(COMPARISONS[_sign(sign)] for sign in syntax.ops)
        parts = tuple(self.build(part) for part in [syntax.left, *syntax.comparators])
        if len(operators) > 1 and not all(isinstance(part, nodes.Leaf) for part in parts[1:-1]):
            return nodes.Chain(parts, operators)
        # What stands between costs nothing to look at twice: `a < b < c` is `a < b and b < c`.
        links = [_fold(nodes.Apply(o, pair)) for o, pair in zip(operators, pairwise(parts), strict=True)]
        return nodes.Both(tuple(links)) if len(links) > 1 else links[0]

    def _membership(self, syntax: ast.Compare) -> Node:
        if len(syntax.ops) > 1:
            raise _NotAllowedError("chains `in` with another comparison", "join the two with `and`")
        listed = syntax.comparators[0]
        if not isinstance(listed, ast.Tuple | ast.List) or not listed.elts:
            raise _NotAllowedError("has no list after `in`", "write `x in (1, 2)` or `x in ('A', 'B')`")
        parts = (self.build(syntax.left), *(self.build(element) for element in listed.elts))
        node = nodes.Member(parts)
        return nodes.Apply(NOT, (node,)) if isinstance(syntax.ops[0], ast.NotIn) else node

    def _call(self, syntax: ast.Call) -> Node:
        name = syntax.func.id if isinstance(syntax.func, ast.Name) else None
        if name is None or syntax.keywords or any(isinstance(a, ast.Starred) for a in syntax.args):
            raise _NotAllowedError("calls something that is not a plain function", "write `ceil_div(a, b)`")
        if name == "has_extension":
            return _extension(syntax)
        if name not in FUNCTIONS:
            close = difflib.get_close_matches(name, _CALLABLE, n=3, cutoff=0.5)
            hint = f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(_CALLABLE)}"
            raise _NotAllowedError(f"calls {name}, which is no function of the language", hint)
        function = FUNCTIONS[name]
        if not function.least <= len(syntax.args) <= function.most:
            wanted = f"{function.least}" if function.least == function.most else f"at least {function.least}"
            raise _NotAllowedError(f"gives {name} {len(syntax.args)} values; it takes {wanted}")
        return _fold(nodes.Apply(function, tuple(self.build(argument) for argument in syntax.args)))


def _extension(syntax: ast.Call) -> Node:
    match syntax.args:
        case [ast.Constant(value=str(extension))]:
            return nodes.Extension(extension)
    raise _NotAllowedError("gives has_extension no name", 'write `has_extension("cl_khr_fp16")`')


def _sign(syntax: ast.AST) -> str:
    if type(syntax) not in _SIGNS:
        raise _foreign(syntax)
    return _SIGNS[type(syntax)]


def _foreign(syntax: ast.AST) -> _NotAllowedError:
    name = type(syntax).__name__
    language = "there are + - * / // % **, comparisons, and, or, not, if-else, in, " + ", ".join(_CALLABLE)
    return _NotAllowedError(f"uses Python's {name}, which is not part of the language", _INSTEAD.get(name, language))


def _fold(node: nodes.Apply) -> Node:
    """Compute what has only constant operands."""
    if all(isinstance(part, nodes.Constant) for part in node.parts):
        return nodes.Constant(node.scalar({}))
    return node
