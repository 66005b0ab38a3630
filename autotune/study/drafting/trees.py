"""Expressions of C as trees."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from autotune.study.drafting.syntax import ASSIGN, NAME, QUALIFIERS, NotRead, closing, declarator, is_type, split

Tree = tuple[Any, ...]
"""An operator, or `name`, `number`, `text` in quotes, `call`, `index`, `member`, `cast` to a pointer, followed by its
operands.
"""

_LEVELS: tuple[tuple[str, ...], ...] = (
    ("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<", ">", "<=", ">="), ("<<", ">>"), ("+", "-"),
    ("*", "/", "%"),
)  # fmt: skip
_LEVEL = {operator: level for level, operators in enumerate(_LEVELS) for operator in operators}


def expression(tokens: Sequence[str]) -> Tree:
    """Return the tree of an expression. Raises NotRead."""
    reader = _Reader(tokens)
    tree = reader.assignment()
    if reader.at != len(tokens):
        raise NotRead
    return tree


def folded(tree: Tree) -> int | None:
    """Return the value of a tree of numbers, or None; a name is 0, as an undefined one in #if."""
    match tree:
        case ("number", str(text)):
            return whole(text)
        case ("name", _):
            return 0
        case ("unary", "!", tuple(inner)):
            value = folded(inner)
            return None if value is None else int(not value)
        case (str(operator), tuple(left), tuple(right)) if operator in _FOLD:
            one, other = folded(left), folded(right)
            return None if one is None or other is None else _FOLD[operator](one, other)
    return None


_FOLD: dict[str, Callable[[int, int], int | None]] = {
    "||": lambda a, b: int(bool(a or b)), "&&": lambda a, b: int(bool(a and b)), "==": lambda a, b: int(a == b),
    "!=": lambda a, b: int(a != b), "<": lambda a, b: int(a < b), ">": lambda a, b: int(a > b),
    "<=": lambda a, b: int(a <= b), ">=": lambda a, b: int(a >= b), "+": lambda a, b: a + b, "-": lambda a, b: a - b,
    "*": lambda a, b: a * b, "/": lambda a, b: a // b if b else None, "%": lambda a, b: a % b if b else None,
}  # fmt: skip


def whole(text: str) -> int | None:
    """Return the whole number that a token is; None for other tokens."""
    if re.fullmatch(r"0[xX][0-9a-fA-F]{1,15}", text):
        return int(text, 16)
    return int(text) if re.fullmatch(r"\d{1,15}", text) else None


class _Reader:
    """Recursive descent over C's expressions."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self.at = 0
        self._depth = 0
        self._tokens = tokens

    def _next(self, *wanted: str) -> str:
        """Take the next token if it is one of `wanted`; return "" if it is not."""
        return self._word() if self.at < len(self._tokens) and self._tokens[self.at] in wanted else ""

    def assignment(self) -> Tree:
        self._depth += 1
        if self._depth > 60:
            raise NotRead
        left = self._ternary()
        if operator := self._next(*ASSIGN):
            left = ("assign", operator, left, self.assignment())
        self._depth -= 1
        return left

    def _ternary(self) -> Tree:
        condition = self._binary(0)
        if not self._next("?"):
            return condition
        first = self.assignment()
        if not self._next(":"):
            raise NotRead
        return ("cond", condition, first, self.assignment())

    def _binary(self, least: int) -> Tree:
        """Read operands joined by operators of a level or above, by precedence climbing."""
        left = self._unary()
        while self.at < len(self._tokens) and (level := _LEVEL.get(self._tokens[self.at], -1)) >= least:
            left = (self._word(), left, self._binary(level + 1))
        return left

    def _unary(self) -> Tree:
        self._depth += 1
        if self._depth > 60:
            raise NotRead
        tree: Tree
        if self._tokens[self.at : self.at + 2] == ["sizeof", "("]:
            end = closing(self._tokens, self.at + 1)
            tree = ("sizeof", " ".join(self._tokens[self.at + 2 : end]))
            self.at = end + 1
        elif operator := self._next("+", "-", "!", "~", "*", "&", "++", "--"):
            tree = ("unary", operator, self._unary())
        elif (cast := self._cast()) is not None:
            tree = cast
        else:
            tree = self._postfix(self._primary())
        self._depth -= 1
        return tree

    def _cast(self) -> Tree | None:
        """Read a cast, or a vector: `(int2)(x, y)`, `(int2){x, y}`; None if there is none."""
        if self._tokens[self.at : self.at + 1] != ["("]:
            return None
        end = closing(self._tokens, self.at)
        words = self._tokens[self.at + 1 : end]
        named = [word for word in words if word not in QUALIFIERS and word != "*"]
        if words[-1:] == ["*"] and len(named) == 1:
            self.at = end + 1
            return ("cast", named[0], self._unary())
        if named[1:2] == ["("]:
            name, extents, length = declarator(words[(begun := words.index("(")) :])  # `(float (*)[N])`
            if extents and not name and begun + length == len(words):
                self.at = end + 1
                return ("cast", named[0], self._unary(), *map(expression, extents))
        whole_type = len(named) <= 1 and all(map(is_type, named))
        if not words or not whole_type or (not named and "unsigned" not in words):
            return None
        self.at = end + 1
        if "*" not in words and self._tokens[self.at : self.at + 1] in (["("], ["{"]):
            inner, braces = closing(self._tokens, self.at), self._tokens[self.at] == "{"
            parts = [part for part in split(self._tokens[self.at + 1 : inner]) if part]
            if len(parts) > 1 or (braces and parts):
                self.at = inner + 1
                each = [*map(expression, parts)]
                return self._postfix(("vector", *each)) if len(each) > 1 else each[0]
        return self._unary()

    def _postfix(self, tree: Tree) -> Tree:
        """Read what follows a tree: an index, arguments, members."""
        while operator := self._next("[", "(", ".", "->", "++", "--"):
            if operator in (".", "->"):
                tree = ("member", tree, self._word())
            elif operator in ("++", "--"):
                tree = ("unary", operator, tree)
            else:
                end = closing(self._tokens, self.at - 1)
                inner = [*map(expression, split(self._tokens[self.at : end]))]
                self.at = end + 1
                if operator == "[" and len(inner) != 1:
                    raise NotRead
                tree = ("index", tree, inner[0]) if operator == "[" else ("call", tree, *inner)
        return tree

    def _word(self) -> str:
        if self.at >= len(self._tokens):
            raise NotRead
        self.at += 1
        return self._tokens[self.at - 1]

    def _primary(self) -> Tree:
        token = self._word()
        if token == "(":
            tree = self.assignment()
            if not self._next(")"):
                raise NotRead
            return tree
        if token[0].isdigit() or (token[0] == "." and len(token) > 1):
            suffix = self._tokens[self.at : self.at + 1]
            if suffix and re.fullmatch(r"[uUlLfFhH]{1,3}", suffix[0]):
                self.at += 1
            return ("number", token)
        if NAME.fullmatch(token):
            return ("name", token)
        if token[0] in "\"'" and len(token) > 2:
            return ("number", str(ord(token[1]))) if len(token) == 3 and token[0] == "'" else ("text", token)
        raise NotRead
