"""The part of C that index arithmetic needs: tokens, brackets, expressions as trees.

This is a modest reader: it skips what it does not understand, and raises only NotRead, which ends a statement.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

Tree = tuple[Any, ...]
"""An operator, or `name`, `number`, `text` in quotes, `call`, `index`, `member`, `cast` to a pointer, followed by its
operands.
"""

_TOKEN = re.compile(
    r"[A-Za-z_]\w*|0[xX][0-9a-fA-F]+|\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'"
    r"|<<=|>>=|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|##|\S"
)
_LEVELS: tuple[tuple[str, ...], ...] = (
    ("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<", ">", "<=", ">="), ("<<", ">>"), ("+", "-"),
    ("*", "/", "%"),
)  # fmt: skip
_LEVEL = {operator: level for level, operators in enumerate(_LEVELS) for operator in operators}
_LOOSER = {"||", "&&", "|", "^", "&", "==", "!=", "<", ">", "<=", ">=", "<<", ">>", "?", ","}
"""Operators that bind less tightly than a sum."""
_ASSIGN = ("=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>=")
_PLAIN = re.compile(r"(?:u?(?:char|short|int|long)|half|float|double|size_t|bool|ptrdiff_t)(?:2|3|4|8|16)?")
QUALIFIERS = frozenset({
    "const", "restrict", "volatile", "global", "constant", "local", "private", "unsigned", "signed", "struct", "static",
    "inline", "read_only", "write_only", "read_write", "register", "kernel", "__const",
})  # fmt: skip


class NotRead(Exception):
    """The text cannot be read here."""


def tokens_of(text: str) -> list[str]:
    """Return the tokens of a text; `__global` is `global`."""
    found: list[str] = _TOKEN.findall(text)
    if "__" in text:
        found = [re.sub(r"^__(?=[a-z]+$)", "", token) if token[:2] == "__" else token for token in found]
    return found


def names_in(text: str) -> set[str]:
    """Return the names in a text."""
    return set(re.findall(r"[A-Za-z_]\w*", text))


def closing(tokens: Sequence[str], at: int) -> int:
    """Return the place of the bracket that closes the one at a place; the end if there is none."""
    pairs, depth = {"(": ")", "[": "]", "{": "}"}, 0
    for place in range(at, len(tokens)):
        depth += (tokens[place] in pairs) - (tokens[place] in pairs.values())
        if depth == 0:
            return place
    return len(tokens)


def opening(tokens: Sequence[str], at: int) -> int:
    """Return the place of the parenthesis that the one at a place closes; -1 if there is none."""
    depth = 0
    for place in range(at, -1, -1):
        depth += (tokens[place] == ")") - (tokens[place] == "(")
        if depth == 0:
            return place
    return -1


def closings(tokens: Sequence[str]) -> dict[int, int]:
    """Return the place of the closing bracket, by the place of each opening bracket that is closed."""
    found, opened = dict[int, int](), list[int]()
    for place, token in enumerate(tokens):
        if token in ("(", "[", "{"):
            opened.append(place)
        elif token in (")", "]", "}") and opened:
            found[opened.pop()] = place
    return found


def split(tokens: Sequence[str], between: str = ",") -> list[list[str]]:
    """Return the parts between separators that are outside brackets."""
    parts: list[list[str]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token in "([{") - (token in ")]}")
        if token == between and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts if parts != [[]] else []


def declarator(words: Sequence[str]) -> tuple[str, list[list[str]], int]:
    """Return the pointer to arrays that words declare after a type: name, extents of the arrays, number of words used.

    `(*a)[N]` gives `a` and N; the name is empty if they declare no such pointer.
    """
    if words[:2] != ["(", "*"] or (end := closing(words, 0)) >= len(words):
        return "", [], 0
    names = [word for word in words[2:end] if word not in QUALIFIERS]
    name, extents, at = "".join(names[-1:]), list[list[str]](), end + 1
    while words[at : at + 1] == ["["]:
        behind = closing(words, at) + 1
        extents.append([*words[at + 1 : behind - 1]])
        at = behind
    return name, extents, at


def changes(name: str, tokens: Sequence[str]) -> int:
    """Return how often a name is assigned or changed after its declaration; `&name` as an argument counts as two."""
    found = 0
    for place, token in enumerate(tokens):
        if token != name:
            continue
        before, after = tokens[place - 1] if place else "", tokens[place + 1] if place + 1 < len(tokens) else ""
        if before in (".", "->"):  # a member of something else
            continue
        declared = before in ("*", ",") or (before[:1].isalpha() and before not in ("else", "do", "return"))
        if before == "&" and after != "[" and place > 1 and tokens[place - 2] in ("(", ","):
            found += 2
        elif before in ("++", "--") or after in ("++", "--", *_ASSIGN):
            found += not (after == "=" and declared)
    return found


def changes_plainly(name: str, tokens: Sequence[str]) -> bool:
    """Whether a name is changed, up to the end of the block, only by plain assignments and by stepping loops.

    Assignments must be outside branches; loops, which may be within an `if`, step it in one statement.
    """
    found = depth = guards = end = 0
    for end, token in enumerate(tokens):
        guards += depth == guards and _is_guard(tokens, end)
        depth += (token in ("(", "[", "{")) - (token in (")", "]", "}"))
        guards = min(guards, depth)
        if depth < 0:
            break
        if token == name and depth == 0 and tokens[end + 1 : end + 2] and tokens[end + 1] in _ASSIGN:
            found += end == 0 or tokens[end - 1] in (";", "}")
        elif token == "for" and depth == guards:
            body = closing(tokens, end + 1) + 1
            found += step_of(name, tokens[end : ended(tokens, body)], body - end) is not None
    return found == changes(name, tokens[: end + 1])


def _is_guard(tokens: Sequence[str], at: int) -> bool:
    """Whether the block of an `if` begins at a place, and not that of an `else if`."""
    if tokens[at] != "{" or tokens[at - 1 : at] != [")"]:
        return False
    place = opening(tokens, at - 1)
    return place > 0 and tokens[place - 1] == "if" and tokens[max(place - 2, 0)] != "else"


def ended(tokens: Sequence[str], at: int) -> int:
    """Return the place after the statement or block that begins at a place."""
    while at < len(tokens) and tokens[at] not in (";", "}"):
        at, block = (closing(tokens, at), tokens[at] == "{") if tokens[at] in ("(", "[", "{") else (at, False)
        if block:
            break
        at += 1
    return at + 1


def step_of(name: str, loop: Sequence[str], body: int) -> list[str] | None:
    """Return the step of a name in each turn of a loop, `+ 1` for `name++`; None if there is no such step.

    One statement of the body must step it, and nothing else change it. `body`: where in the tokens the body begins.
    """
    if name not in loop[body:] or changes(name, loop) != 1:
        return None
    depth, block = 0, loop[body : body + 1] == ["{"]
    for at in range(body, len(loop)):
        depth += (loop[at] in ("(", "[", "{")) - (loop[at] in (")", "]", "}"))
        begins = loop[at - 1] in (";", "{", "}") or at == body
        if depth > block or not begins:
            continue
        words = loop[at : ended(loop, at) - 1]
        if words[:1] == [name] and words[1:2] in (["+="], ["-="]):
            return [words[1][0], "(", *words[2:], ")"]
        if words[:3] == [name, "=", name] and words[3:4] in (["+"], ["-"]) and not {*words[4:]} & _LOOSER:
            return [*words[3:]]
        if name in words[:2] and {*words} in ({name, "++"}, {name, "--"}):
            return [next(word for word in words if word != name)[0], "1"]
    return None


def is_type(token: str) -> bool:
    """Whether a token is one of OpenCL's types for numbers."""
    return _PLAIN.fullmatch(token) is not None


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
        if operator := self._next(*_ASSIGN):
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
        if re.fullmatch(r"[A-Za-z_]\w*", token):
            return ("name", token)
        if token[0] in "\"'" and len(token) > 2:
            return ("number", str(ord(token[1]))) if len(token) == 3 and token[0] == "'" else ("text", token)
        raise NotRead
