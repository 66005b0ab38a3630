"""Text -> tree, by an allow-list, with all costs limited before anything is computed."""

from __future__ import annotations

import ast
import difflib
import keyword
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from autotune.errors import ExpressionError
from autotune.expression.tree import FUNCTIONS, Node, bounded, compiled, constant, fault

EXTENSIONS = "extensions"
"""The name whose value `has_extension` searches: a tuple of text."""

MAX_LENGTH = 4_000
MAX_NODES = 500
MAX_NESTING = 100
"""Limits of a text in this language and in the array language."""

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
    "BitAnd": "use `and`; the last bit is `X % 2`",
    "BitOr": "use `or`",
    "BitXor": "powers are written **",
    "LShift": "use `* 2 ** n`",
    "RShift": "use `// 2 ** n`",
    "Invert": "use `not`",
    "Is": "use ==",
    "IsNot": "use !=",
    "Attribute": "names have no parts",
    "Subscript": "a name stands by itself: `X`, not `p['X']`",
    "Lambda": "write the part after its colon",
    "List": 'quote each part, not the list: ["1", "2"]',
    "Tuple": "a list after `in` stands in parentheses: `X in (1, 2)`",
}
_C_HINT = "write `and`, `or`, `not` and `a if c else b`"
_WORDS = {"and", "or", "not", "if", "else", "in"}
_CALLABLE = sorted([*FUNCTIONS, "has_extension"])
_NOT_COUNTED = (ast.operator, ast.cmpop, ast.unaryop, ast.boolop, ast.expr_context)


class _NotAllowedError(Exception):
    """Python that is not part of the language; `hint` says what is."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.hint = hint


def parse(text: str, where: str) -> Node:
    """Return the tree of a text. Raises ExpressionError, placed at `where`, if it is not part of the language."""
    syntax = read(text, where)
    try:
        return _built(syntax)
    except _NotAllowedError as error:
        what, hint = str(error), error.hint
    except ArithmeticError as error:
        what, hint = fault(error), ""
    raise ExpressionError(f"`{_shown(text)}` {what}", where=where, hint=hint)


def read(text: str, where: str) -> ast.expr:
    """Return Python's syntax tree of a text. Raises ExpressionError, placed at `where`, if it exceeds a limit."""
    if not text:
        raise ExpressionError("an expression is empty", where=where)
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"`{_shown(text)}` is longer than {MAX_LENGTH} characters", where=where)
    # Parentheses allow a text of several lines in a study.
    source = f"(\n{text}\n)" if "\n" in text else text
    hint = ""
    try:
        _require_undoubted(text)
        syntax = ast.parse(source, mode="eval").body
        return syntax if _levels(syntax) <= MAX_NESTING else _within_levels(_Halved().visit(syntax))
    except SyntaxError as error:
        what, hint = f"is not an expression: {error.msg.partition('. Maybe')[0]}", _syntax_hint(text)
    except (ValueError, OverflowError):
        what = "is not an expression: it holds a character or a number that cannot be read"
    except (RecursionError, MemoryError):
        what = "is nested too deeply"
    except _NotAllowedError as error:
        what = str(error)
    raise ExpressionError(f"`{_shown(text)}` {what}", where=where, hint=hint)


_QUOTED_OR_COMMENT = re.compile(r"""('{3}|"{3}|'|")(?:\\.|(?!\1).)*\1|\#[^\n]*""", re.DOTALL)
_ESCAPE = re.compile(r"\\([4-7][0-7]{2}|.)", re.DOTALL)
_SUFFIXED = re.compile(r"(?<!\w)((?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)(?:f|u?l{1,2}|u)\b", re.IGNORECASE)
_RUN_TOGETHER = re.compile(r"(?<!\w)\d[\w.]*?(?:and|else|for|if|in|is|not|or)")


def _require_undoubted(text: str) -> None:
    """Raise SyntaxError for what Python's parser accepts with a warning: `1if x else 2`, and the text "\\d".

    Warning filters, which could turn these into errors, are process-wide: other threads' warnings would be raised too.
    """
    for found in _QUOTED_OR_COMMENT.finditer(text):
        for escaped in _ESCAPE.findall(found[0]) if found[1] else ():
            if len(escaped) > 1 or escaped not in "\n'\"\\abfnrtvxNuU01234567":
                raise SyntaxError(f"\\{escaped} is not an escape of a character")
    if together := _RUN_TOGETHER.search(_QUOTED_OR_COMMENT.sub(" ", text)):
        raise SyntaxError(f"a word follows a number without a space, {together[0]}")


def _syntax_hint(text: str) -> str:
    """Return a hint for C's operators and numbers, for `=`, or for a name that is a reserved word of Python."""
    plain = _QUOTED_OR_COMMENT.sub(" ", text)
    if re.search(r"&&|\|\||!(?!=)|\?", plain):
        return _C_HINT
    if re.search(r"(?<![=<>!*/%+:-])=(?!=)", plain):
        return "write == to compare"
    if number := unsuffixed(plain):
        return number
    words = [word for word in re.findall(r"\w+", text) if keyword.iskeyword(word) and word not in _WORDS]
    return f"{words[0]!r} is a word of Python, which no expression can name: choose another name" if words else ""


def unsuffixed(text: str) -> str:
    """Return a hint for the first number with a suffix of C, such as `1e-5f`; empty if there is none."""
    found = _SUFFIXED.search(text)
    return f"write {found[1]}, without the suffix" if found else ""


def replaced(text: str, parts: Mapping[str, str], where: str) -> str:
    """Return a text of the language with the names in its tree replaced by texts; limited in length."""
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


def _levels(syntax: ast.AST) -> int:
    """Count nodes and levels, without recursion. Raises _NotAllowedError for too many nodes."""
    level, count, nesting = [syntax], 0, 0
    while level:
        count, nesting = count + len(level), nesting + 1
        if count > MAX_NODES:
            raise _NotAllowedError(f"has more than {MAX_NODES} parts")
        children = [child for node in level for child in ast.iter_child_nodes(node)]
        level = [child for child in children if not isinstance(child, _NOT_COUNTED)]
    return nesting


def _within_levels(syntax: ast.expr) -> ast.expr:
    if _levels(syntax) > MAX_NESTING:
        raise _NotAllowedError(f"is nested more than {MAX_NESTING} levels deep")
    return syntax


class _Halved(ast.NodeTransformer):
    """Splits long sums and products into halves: Python nests `a + b + c` as deep as it has terms."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        if not isinstance(node.op, ast.Add | ast.Mult):
            return self.generic_visit(node)  # type: ignore[return-value]
        terms: list[ast.expr] = []
        first: ast.expr = node
        while isinstance(first, ast.BinOp) and type(first.op) is type(node.op):
            terms.append(first.right)
            first = first.left
        return _halves([self.visit(term) for term in (first, *reversed(terms))], node.op)


def _halves(terms: list[ast.expr], sign: ast.operator) -> ast.expr:
    if len(terms) == 1:
        return terms[0]
    middle = len(terms) // 2
    return ast.BinOp(_halves(terms[:middle], sign), sign, _halves(terms[middle:], sign))


def _built(syntax: ast.AST) -> Node:
    """Return the node of a piece of syntax. Raises _NotAllowedError for syntax that is not listed here."""
    match syntax:
        case ast.Constant(value=int() | float() as number):
            return constant(bounded(number))
        case ast.Constant(value=str() as text):
            return constant(text)
        case ast.Constant(value=other):
            raise _NotAllowedError(f"holds {other!r}, which is neither a number nor text")
        case ast.Name(id=name) if name in _CALLABLE:
            raise _NotAllowedError(f"uses the function {name} without parentheses")
        case ast.Name(id=name):
            node = Node("name", value=name)
            return Node("unlisted", (node,)) if name == EXTENSIONS else node
        case ast.BinOp(left=left, op=sign, right=right):
            return _applied(_sign(sign), _all([left, right]))
        case ast.UnaryOp(op=sign, operand=part):
            return _applied(_sign(sign), _all([part]))
        case ast.BoolOp(op=sign, values=parts):
            _require_conditions(parts)
            return Node("and" if isinstance(sign, ast.And) else "or", _all(parts))
        case ast.IfExp(test=test, body=body, orelse=other):
            return Node("if", _all([test, body, other]))
        case ast.Compare():
            return _compared(syntax)
        case ast.Call():
            return _called(syntax)
    raise _foreign(syntax)


def _require_conditions(parts: Sequence[ast.expr]) -> None:
    """Raise _NotAllowedError for a number after a comparison, `X == 1 or 2`: it is not a condition."""
    for before, part in pairwise(parts):
        match before, part:
            case ast.Compare(), ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
                raise _NotAllowedError(f"has the number {number} for a condition", "write `x in (1, 2)`")


def _all(parts: Iterable[ast.AST]) -> tuple[Node, ...]:
    return tuple(_built(part) for part in parts)


def _compared(syntax: ast.Compare) -> Node:
    if any(isinstance(sign, ast.In | ast.NotIn) for sign in syntax.ops):
        return _membership(syntax)
    signs = tuple(_sign(sign) for sign in syntax.ops)
    parts = _all([syntax.left, *syntax.comparators])
    if any(part.parts for part in parts[1:-1]):
        return Node("chain", parts, signs)
    # If the middle parts are simple, computing them twice costs nothing: `a < b < c` is `a < b and b < c`.
    links = [_applied(sign, pair) for sign, pair in zip(signs, pairwise(parts), strict=True)]
    return Node("and", tuple(links)) if len(links) > 1 else links[0]


def _membership(syntax: ast.Compare) -> Node:
    if len(syntax.ops) > 1:
        raise _NotAllowedError("chains `in` with another comparison", "join the two with `and`")
    listed = syntax.comparators[0]
    if not isinstance(listed, ast.Tuple | ast.List) or not listed.elts:
        raise _NotAllowedError("has no list after `in`", "write `x in (1, 2)` or `x in ('A', 'B')`")
    node = Node("in", _all([syntax.left, *listed.elts]))
    return Node("not", (node,)) if isinstance(syntax.ops[0], ast.NotIn) else node


def _called(syntax: ast.Call) -> Node:
    name = syntax.func.id if isinstance(syntax.func, ast.Name) else None
    if name is None or syntax.keywords or any(isinstance(a, ast.Starred) for a in syntax.args):
        raise _NotAllowedError("calls something that is not a plain function", "write `ceil_div(a, b)`")
    if name == "has_extension":
        return _extension(syntax)
    if name not in FUNCTIONS:
        close = difflib.get_close_matches(name, _CALLABLE, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(_CALLABLE)}"
        if name in ("int", "floor"):
            hint = "whole quotients are written `a // b`"
        raise _NotAllowedError(f"calls {name}, which is not a function of the language", hint)
    function = FUNCTIONS[name]
    if not function.least <= len(syntax.args) <= function.most:
        wanted = f"{function.least}" if function.least == function.most else f"at least {function.least}"
        raise _NotAllowedError(f"gives {name} {len(syntax.args)} values; it takes {wanted}")
    return _applied(name, _all(syntax.args))


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
    """Return the node of an operator on its parts; if all are constant, the constant result."""
    node = Node(sign, parts)
    return constant(compiled(node)()) if all(part.is_constant for part in parts) else node
