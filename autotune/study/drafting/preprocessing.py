"""What is left of a C text once it is preprocessed: macros put in, branches of #if taken."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from autotune.study.drafting.reading import Function, functions_of
from autotune.study.drafting.syntax import NotRead, closing, expression, folded, split, tokens_of
from autotune.study.includes import without_comments

_DEFINE = re.compile(r"[ \t]*#[ \t]*define[ \t]+(\w+)(\([^()]*\))?(.*)", re.DOTALL)
_MOST_TOKENS = 200_000
_MOST_CONDITION = 2000
"""Tokens of a condition that are read: calls within calls take longer than there are of them."""


class Macro(NamedTuple):
    """A #define: its parameters, None where it takes none, and its text in tokens."""

    takes: tuple[str, ...] | None
    body: tuple[str, ...]


class Preprocessed:
    """A source with macros that are given from outside, preprocessed once for each set of macros that stay names."""

    def __init__(self, source: str, stated: Mapping[str, str]) -> None:
        self._source, self._stated = source, stated
        self._tokens: dict[tuple[str, ...], list[str] | None] = {}
        self._functions: dict[tuple[str, ...], dict[str, Function]] = {}

    def tokens(self, kept: Sequence[str] = ()) -> list[str]:
        """Return the text's tokens, `kept` macros as names. Raises NotRead."""
        if (key := tuple(kept)) not in self._tokens:
            try:
                self._tokens[key] = preprocessed(self._source, self._stated, kept)
            except NotRead:
                self._tokens[key] = None
        found = self._tokens[key]
        if found is None:
            raise NotRead
        return found

    def functions(self, kept: Sequence[str] = ()) -> dict[str, Function]:
        """Return the functions of the same. Raises NotRead."""
        tokens = self.tokens(kept)
        if (key := tuple(kept)) not in self._functions:
            self._functions[key] = functions_of(tokens)
        return self._functions[key]


def preprocessed(source: str, stated: Mapping[str, str], kept: Collection[str]) -> list[str]:
    """Return the tokens of a source without its directives. `stated`: macros given from outside; `kept` stay names.

    A branch is taken where its condition is true with what is known; where that cannot be told, all are.
    """
    macros = dict(_stated(name, value) for name, value in stated.items())
    given = {*macros}
    found: list[str] = []
    # Of each #if around: whether its branch is taken, whether one before was, and whether the #if itself is.
    taken: list[tuple[bool | None, bool, bool]] = []
    for line in without_comments(source).replace("\\\n", " ").split("\n"):
        directive = re.match(r"[ \t]*#[ \t]*(\w+)(.*)", line)
        on = not taken or (taken[-1][0] is not False and taken[-1][2])
        if directive is None:
            if on:
                found += _expanded(tokens_of(line), macros, kept)
            if len(found) > _MOST_TOKENS:
                raise NotRead
            continue
        word, rest = directive.groups()
        if word in ("if", "ifdef", "ifndef"):
            taken.append((_holds(word, rest, macros, kept), False, on))
        elif word in ("elif", "else") and taken:
            done = taken[-1][0] is True or taken[-1][1]
            taken[-1] = (False if done else _holds(word, rest, macros, kept)), done, taken[-1][2]
        elif word == "endif" and taken:
            taken.pop()
        elif on and (define := _DEFINE.match(line)) and define[1] not in given:
            macros[define[1]] = _macro(define[2], define[3])
        elif on and word == "undef":
            macros.pop(rest.strip(), None)
    return found


def _stated(name: str, text: str) -> tuple[str, Macro]:
    """A macro that is given, `NAME` or `NAME(a,b)`."""
    called, bracket, takes = name.partition("(")
    return called, _macro(bracket + takes or None, text)


def _macro(takes: str | None, text: str) -> Macro:
    """A macro of what stands behind its name: its parameters in parentheses, if it has any, and its text."""
    names = None if takes is None else tuple(part.strip() for part in takes.strip("()").split(","))
    return Macro(names, tuple(tokens_of(text)))


def _holds(word: str, rest: str, macros: Mapping[str, Macro], kept: Collection[str]) -> bool | None:
    """Say whether a branch is taken; None where that is not known."""
    name = rest.strip().split(" ")[0]
    if word == "else":
        return True
    if word != "if" and word != "elif":
        return (name in macros or name in kept) == (word == "ifdef")
    text = re.sub(r"defined\s*(?:\(\s*)?(\w+)\s*\)?", lambda m: str(int(m[1] in macros or m[1] in kept)), rest)
    tokens = _expanded(tokens_of(text), macros, ())
    if len(tokens) > _MOST_CONDITION:
        return None
    try:
        value = folded(expression(tokens))
    except (NotRead, RecursionError):
        return None
    return None if value is None else value != 0


def _expanded(tokens: Sequence[str], macros: Mapping[str, Macro], kept: Collection[str], depth: int = 0) -> list[str]:
    found: list[str] = []
    at = 0
    while at < len(tokens):
        token = tokens[at]
        macro = macros.get(token) if depth < 12 and token not in kept else None
        at += 1
        if macro is None:
            found.append(token)
            continue
        body, begin = macro.body, at
        if macro.takes is not None:
            if tokens[at : at + 1] != ["("]:
                found.append(token)
                continue
            end = closing(tokens, at)
            given = dict(zip(macro.takes, split(tokens[at + 1 : end]), strict=False))
            body = tuple(part for word in body for part in (given.get(word, [word])))
            at = end + 1
        if "##" in body or len(found) > _MOST_TOKENS:  # a call of what is not known
            found += [token, *tokens[begin:at]]
            continue
        found += _expanded(body, macros, kept, depth + 1)
    return found
