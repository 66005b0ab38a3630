"""The part of C that index arithmetic needs: tokens, brackets, and what changes a name; for expressions see trees.py.

This is a modest reader: it skips what it does not understand, and raises only NotRead, which ends a statement.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

NAME = re.compile(r"[A-Za-z_]\w*")
_TOKEN = re.compile(
    r"[A-Za-z_]\w*|0[xX][0-9a-fA-F]+|\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'"
    r"|<<=|>>=|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|##|\S"
)
_LOOSER = {"||", "&&", "|", "^", "&", "==", "!=", "<", ">", "<=", ">=", "<<", ">>", "?", ","}
"""Operators that bind less tightly than a sum."""
ASSIGN = ("=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>=")
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
    return set(NAME.findall(text))


def with_values(text: str, values: Mapping[str, str]) -> str:
    """Return a text with the names that have values replaced by these."""
    return NAME.sub(lambda name: values.get(name[0], name[0]), text)


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


class Declarator(NamedTuple):
    """A pointer to arrays: its name, the extents of the arrays, and the number of words that declare it."""

    name: str
    extents: list[list[str]]
    length: int


def declarator(words: Sequence[str]) -> Declarator:
    """Return the pointer to arrays that words declare after a type, `(*a)[N]`; its name is empty if there is none."""
    if words[:2] != ["(", "*"] or (end := closing(words, 0)) >= len(words):
        return Declarator("", [], 0)
    names = [word for word in words[2:end] if word not in QUALIFIERS]
    name, extents, at = "".join(names[-1:]), list[list[str]](), end + 1
    while words[at : at + 1] == ["["]:
        behind = closing(words, at) + 1
        extents.append([*words[at + 1 : behind - 1]])
        at = behind
    return Declarator(name, extents, at)


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
        elif before in ("++", "--") or after in ("++", "--", *ASSIGN):
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
        if token == name and depth == 0 and tokens[end + 1 : end + 2] and tokens[end + 1] in ASSIGN:
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
