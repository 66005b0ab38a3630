"""Text -> tree, by an allow-list, with every cost bounded before anything is computed."""

from __future__ import annotations

import ast
import difflib
import re
import warnings
from collections.abc import Iterable, Mapping
from itertools import pairwise

from autotune.errors import ExpressionError
from autotune.expression.tree import FUNCTIONS, Node, bounded, compiled, constant, fault

EXTENSIONS = "extensions"
"""The name in which `has_extension` looks: a tuple of text."""

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
    ast.USub: "negative",
    ast.UAdd: "positive",
    ast.Not: "not",
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
    syntax = read(text, where)
    try:
        return _Builder().build(syntax)
    except _NotAllowedError as error:
        what, hint = str(error), error.hint
    except ArithmeticError as error:
        what, hint = fault(error), ""
    raise ExpressionError(f"`{_shown(text)}` {what}", where=where, hint=hint)


def read(text: str, where: str) -> ast.expr:
    """Return Python's syntax of a text of bounded length, size and nesting; else ExpressionError, placed at `where`."""
    if not text:
        raise ExpressionError("an expression is empty", where=where)
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"`{_shown(text)}` is longer than {MAX_LENGTH} characters", where=where)
    # Parentheses let a text run over several lines of a study.
    source = f"(\n{text}\n)" if "\n" in text else text
    hint = ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # `1if x else 2` and "\d" are doubtful, so refused
            syntax = ast.parse(source, mode="eval").body
        _check_size(syntax)
        return syntax
    except SyntaxError as error:
        what, hint = f"is no expression: {error.msg}", _C_HINT if re.search(r"&&|\|\||!(?!=)|\?", text) else ""
    except (ValueError, OverflowError):
        what = "is no expression: it holds a character or a number that cannot be read"
    except (RecursionError, MemoryError):
        what = "is nested too deeply"
    except _NotAllowedError as error:
        what = str(error)
    raise ExpressionError(f"`{_shown(text)}` {what}", where=where, hint=hint)


def replaced(text: str, parts: Mapping[str, str], where: str) -> str:
    """Return a text of the language with texts in the place of names, as its tree has them; bounded in length."""
    tree = _Replacement({name: read(part, where) for name, part in parts.items()}).visit(read(text, where))
    found = ast.unparse(tree)
    if len(found) > MAX_LENGTH:
        raise ExpressionError(f"`{_shown(text)}` is longer than {MAX_LENGTH} characters with its names", where=where)
    return found


class _Replacement(ast.NodeTransformer):
    def __init__(self, parts: Mapping[str, ast.expr]) -> None:
        self._parts = parts

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._parts.get(node.id, node)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        node.args = [self.visit(part) for part in node.args]
        return node


def _shown(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."


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
            return constant(bounded(value))
        if isinstance(value, str):
            return constant(value)
        raise _NotAllowedError(f"holds {value!r}, which is neither a number nor text")

    def _name(self, syntax: ast.Name) -> Node:
        if syntax.id in _CALLABLE:
            raise _NotAllowedError(f"uses the function {syntax.id} without parentheses")
        name = Node("name", value=syntax.id)
        return Node("unlisted", (name,)) if syntax.id == EXTENSIONS else name

    def _binop(self, syntax: ast.BinOp) -> Node:
        return _applied(_sign(syntax.op), self._all([syntax.left, syntax.right]))

    def _unaryop(self, syntax: ast.UnaryOp) -> Node:
        return _applied(_sign(syntax.op), self._all([syntax.operand]))

    def _boolop(self, syntax: ast.BoolOp) -> Node:
        return Node("and" if isinstance(syntax.op, ast.And) else "or", self._all(syntax.values))

    def _ifexp(self, syntax: ast.IfExp) -> Node:
        return Node("if", self._all([syntax.test, syntax.body, syntax.orelse]))

    def _compare(self, syntax: ast.Compare) -> Node:
        if any(isinstance(sign, ast.In | ast.NotIn) for sign in syntax.ops):
            return self._membership(syntax)
        signs = tuple(_sign(sign) for sign in syntax.ops)
        parts = self._all([syntax.left, *syntax.comparators])
        if any(part.parts for part in parts[1:-1]):
            return Node("chain", parts, signs)
        # What stands between costs nothing to look at twice: `a < b < c` is `a < b and b < c`.
        links = [_applied(sign, pair) for sign, pair in zip(signs, pairwise(parts), strict=True)]
        return Node("and", tuple(links)) if len(links) > 1 else links[0]

    def _membership(self, syntax: ast.Compare) -> Node:
        if len(syntax.ops) > 1:
            raise _NotAllowedError("chains `in` with another comparison", "join the two with `and`")
        listed = syntax.comparators[0]
        if not isinstance(listed, ast.Tuple | ast.List) or not listed.elts:
            raise _NotAllowedError("has no list after `in`", "write `x in (1, 2)` or `x in ('A', 'B')`")
        node = Node("in", self._all([syntax.left, *listed.elts]))
        return Node("not", (node,)) if isinstance(syntax.ops[0], ast.NotIn) else node

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
        return _applied(name, self._all(syntax.args))

    def _all(self, parts: Iterable[ast.AST]) -> tuple[Node, ...]:
        return tuple(self.build(part) for part in parts)


def _extension(syntax: ast.Call) -> Node:
    match syntax.args:
        case [ast.Constant(value=str(extension))]:
            return Node("has_extension", (Node("name", value=EXTENSIONS), constant(extension)))
    raise _NotAllowedError("gives has_extension no name", 'write `has_extension("cl_khr_fp16")`')


def _sign(syntax: ast.AST) -> str:
    if type(syntax) not in _SIGNS:
        raise _foreign(syntax)
    return _SIGNS[type(syntax)]


def _foreign(syntax: ast.AST) -> _NotAllowedError:
    name = type(syntax).__name__
    language = "there are + - * / // % **, comparisons, and, or, not, if-else, in, " + ", ".join(_CALLABLE)
    return _NotAllowedError(f"uses Python's {name}, which is not part of the language", _INSTEAD.get(name, language))


def _applied(sign: str, parts: tuple[Node, ...]) -> Node:
    """An operator on its parts; where they are all constant, what it gives."""
    node = Node(sign, parts)
    return constant(compiled(node)()) if all(part.is_constant for part in parts) else node
