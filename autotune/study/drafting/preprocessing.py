"""Preprocess a C text: expand macros and take the branches of #if."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from autotune.study.drafting.functions import Function, functions_of
from autotune.study.drafting.syntax import NotRead, closings, split, tokens_of
from autotune.study.drafting.trees import expression, folded
from autotune.study.includes import without_comments

_DEFINE = re.compile(r"[ \t]+(\w+)(\([^()]*\))?(.*)", re.DOTALL)
_IS_DEFINED = re.compile(r"defined\s*(?:\(\s*)?(\w+)\s*\)?")
_MOST_TOKENS = 400_000
_MOST_STEPS = 1_000_000
"""The most tokens to look at while macros are expanded."""
_DEEPEST = 12
_MOST_CONDITION = 2000
"""The longest condition that is read, in tokens: nested calls take more than linear time."""


class Macro(NamedTuple):
    """A #define: its parameters, or None if it takes none, and its text in tokens."""

    takes: tuple[str, ...] | None
    body: tuple[str, ...]


class Preprocessed:
    """A source with macros given from outside, preprocessed once for each set of macros that remain names."""

    def __init__(self, source: str, stated: Mapping[str, str]) -> None:
        self._source, self._stated = source, stated
        self._tokens: dict[tuple[str, ...], list[str] | None] = {}
        self._functions: dict[tuple[str, ...], dict[str, Function]] = {}
        self.joined: dict[str, set[str]] = {}
        """For each word that `##` makes, the names in it that remain names elsewhere."""
        self.asked = set[str]()
        """The words in conditions, with macros expanded, except in conditions after a branch that is taken."""

    def tokens(self, kept: Sequence[str] = ()) -> list[str] | None:
        """Return the text's tokens, None if it cannot be read; `kept` macros remain names."""
        if (key := tuple(kept)) not in self._tokens:
            try:
                self._tokens[key] = preprocessed(self._source, self._stated, kept, self.joined, self.asked)
            except NotRead:
                self._tokens[key] = None
        return self._tokens[key]

    def functions(self, kept: Sequence[str] = ()) -> dict[str, Function]:
        """Return the functions in the same tokens; none if the text cannot be read."""
        if (key := tuple(kept)) not in self._functions:
            self._functions[key] = functions_of(self.tokens(kept) or ())
        return self._functions[key]


def preprocessed(
    source: str,
    stated: Mapping[str, str],
    kept: Collection[str],
    joined: dict[str, set[str]] | None = None,
    asked: set[str] | None = None,
) -> list[str]:
    """Return the tokens of a source without its directives.

    `stated`: macros given from outside; `kept`: macros that remain names, except in words that `##` makes. `joined`
    gets these words with the names in them; `asked` gets the words of the conditions that decide, with macros expanded.
    A branch is taken if its condition is true with what is known; if that cannot be told, all branches are taken.
    """
    macros = dict(_stated(name, value) for name, value in stated.items())
    return _Preprocessor(macros, kept, joined, set() if asked is None else asked).tokens(source)


@dataclass
class _Branch:
    """An open #if.

    `taken`: whether its branch is, None if that is not known; `done`: whether an earlier one was; `within`: whether the
    #if itself is in a branch that is taken.
    """

    taken: bool | None
    done: bool
    within: bool

    @property
    def on(self) -> bool:
        """Whether the lines of its branch are read."""
        return self.taken is not False and self.within


class _Preprocessor:
    """A text being preprocessed. `given`: the macros from outside, which the text does not define again."""

    def __init__(
        self, given: Mapping[str, Macro], kept: Collection[str], joined: dict[str, set[str]] | None, asked: set[str]
    ) -> None:
        self._macros, self._given, self._kept, self._asked = {**given}, given, kept, asked
        self._text, self._conditions = _Expander(self._macros, kept, joined), _Expander(self._macros, ())
        self._branches: list[_Branch] = []

    def tokens(self, source: str) -> list[str]:
        """Return the tokens that are left. Raises NotRead if they are too many."""
        found, due = list[str](), list[str]()  # a macro's arguments may continue on further lines
        for line in (*without_comments(source).replace("\\\n", " ").split("\n"), "#"):
            if directive := re.match(r"[ \t]*#[ \t]*(\w*)(.*)", line):
                found += self._text.expanded(due)
                due.clear()
                if len(found) > _MOST_TOKENS:
                    raise NotRead
                self._obey(directive[1], directive[2])
            elif self._on:
                due += tokens_of(line)
        return found

    @property
    def _on(self) -> bool:
        return not self._branches or self._branches[-1].on

    def _obey(self, word: str, rest: str) -> None:
        """Do what a directive asks for."""
        if word in ("if", "ifdef", "ifndef"):
            self._branches.append(_Branch(self._holds(word, rest, within=self._on), done=False, within=self._on))
        elif word in ("elif", "else") and self._branches:
            last = self._branches[-1]
            last.done |= last.taken is True
            last.taken = False if last.done else self._holds(word, rest, within=last.within)
        elif word == "endif" and self._branches:
            self._branches.pop()
        elif self._on and word == "define" and (define := _DEFINE.match(rest)) and define[1] not in self._given:
            self._macros[define[1]] = _macro(define[2], define[3])
            self._forget()
        elif self._on and word == "undef":
            self._macros.pop(rest.strip(), None)
            self._forget()

    def _forget(self) -> None:
        self._text.forget()
        self._conditions.forget()

    def _holds(self, word: str, rest: str, *, within: bool) -> bool | None:
        """Whether a branch is taken, None if that is not known; notes the words of a condition that decides."""
        asked = self._asked if within else set[str]()
        if word == "else":
            return True
        if word in ("ifdef", "ifndef"):
            asked.add(name := rest.strip().split(" ")[0])
            return self._is_defined(name) == (word == "ifdef")
        text = _IS_DEFINED.sub(lambda name: str(int(self._is_defined(name[1]))), rest)
        tokens = self._conditions.expanded(tokens_of(text))
        asked.update(tokens, (name[1] for name in _IS_DEFINED.finditer(rest)))
        value = value_of(tokens) if len(tokens) <= _MOST_CONDITION else None
        return None if value is None else value != 0

    def _is_defined(self, name: str) -> bool:
        return name in self._macros or name in self._kept


def _stated(name: str, text: str) -> tuple[str, Macro]:
    """Return the name and the Macro of a given macro, `NAME` or `NAME(a,b)`."""
    called, bracket, takes = name.partition("(")
    return called, _macro(bracket + takes or None, text)


def _macro(takes: str | None, text: str) -> Macro:
    """Return the Macro of what follows a macro's name: parameters in parentheses, if it has any, and the text."""
    names = None if takes is None else tuple(part.strip() for part in takes.strip("()").split(","))
    return Macro(names, tuple(tokens_of(text)))


def value_of(tokens: Sequence[str]) -> int | None:
    """Return the value of an expression of numbers, as `folded` does; None also if it cannot be read."""
    try:
        return folded(expression(tokens))
    except (NotRead, RecursionError):
        return None


class _Expander:
    """Expands macros in at most `_MOST_STEPS` steps. `kept`: names that remain, except in words that `##` makes."""

    def __init__(
        self, macros: Mapping[str, Macro], kept: Collection[str], joined: dict[str, set[str]] | None = None
    ) -> None:
        self._macros, self._kept = macros, {*kept}
        self._joined = dict[str, set[str]]() if joined is None else joined
        self._left = _MOST_STEPS
        self._known: dict[tuple[str, int], tuple[list[str], int]] = {}
        """The expansions of macros without parameters, by name and depth, and the number of steps."""
        self._glued = 0

    def forget(self) -> None:
        """Forget all known expansions, because a macro was defined or undefined."""
        self._known.clear()

    def expanded(self, tokens: Sequence[str], depth: int = 0) -> list[str]:
        """Return the tokens with macros expanded. Raises NotRead."""
        self._left -= len(tokens)
        if self._left < 0:
            raise NotRead
        found: list[str] = []
        ends = closings(tokens) if self._asks(tokens) else {}
        at, became = 0, False  # an expansion may be the name of another macro, called with what follows
        while at < len(tokens):
            called = became and at in ends and self._takes(found[-1])
            at, became = at - called, False
            token = found.pop() if called else tokens[at]
            macro = self._macros.get(token) if depth < _DEEPEST and token not in self._kept else None
            at += 1
            if macro is None:
                found.append(token)
            elif macro.takes is None:
                found += self._put_in(token, macro, depth)
                became = bool(found)
            elif tokens[at : at + 1] == ["("] and at in ends:
                given = _given(macro.takes, split(tokens[at + 1 : ends[at]]))
                found += self.expanded(self._filled(macro, given, depth), depth + 1)
                at, became = ends[at] + 1, bool(found)
            else:
                found.append(token)
        return found

    def _put_in(self, name: str, macro: Macro, depth: int) -> list[str]:
        """Return the expansion of a macro without parameters.

        It is computed once, except if `##` makes words: the names recorded for these depend on what was met before.
        """
        found, steps = self._known.get((name, depth), (None, 0))
        if found is None:
            left, glued = self._left, self._glued
            found = self.expanded(self._filled(macro, {}, depth), depth + 1)
            if glued == self._glued:
                self._known[name, depth] = found, left - self._left
        self._left -= steps
        if self._left < 0:
            raise NotRead
        return found

    def _asks(self, tokens: Sequence[str]) -> bool:
        return any(token in self._macros for token in tokens)

    def _takes(self, token: str) -> bool:
        macro = self._macros.get(token)
        return macro is not None and macro.takes is not None

    def _filled(self, macro: Macro, given: Mapping[str, Sequence[str]], depth: int) -> list[str]:
        """Return a macro's text with its arguments, as in C: unchanged beside ##, else with macros expanded."""
        found, body, names = list[str](), macro.body, set[str]()
        if "##" not in body:
            whole = {name: self.expanded(part, depth + 1) for name, part in given.items() if self._asks(part)}
            filled = {**given, **whole}
            return [each for word in body for each in filled.get(word, (word,))]
        self._glued += 1
        for place, word in enumerate(body):
            glued, ahead = body[place - 1 : place] == ("##",), body[place + 1 : place + 2] == ("##",)
            if word == "##":
                continue
            part = given.get(word, [word])
            beside = part[:1] if glued or ahead else ()
            names = (names if glued else set()).union(
                self._kept.intersection(beside), *(self._joined.get(each, ()) for each in beside)
            )
            if glued or ahead:
                part = [self._value(part[0]), *part[1:]] if part else [""]  # an empty argument joins as an empty word
            elif word in given and self._asks(part):
                part = self.expanded(part, depth + 1)
            if glued and found:
                found[-1] += part[0]
                part = part[1:]
                self._joined.setdefault(found[-1], set()).update(names)
            found += part
        return [word for word in found if word]

    def _value(self, token: str) -> str:
        """Return the value of a kept name if that is one word, else the token."""
        macro = self._macros.get(token) if token in self._kept else None
        return macro.body[0] if macro is not None and macro.takes is None and len(macro.body) == 1 else token


def _given(takes: Sequence[str], parts: Sequence[Sequence[str]]) -> dict[str, Sequence[str]]:
    """Return the argument of each of a macro's parameters; `__VA_ARGS__` gets all the rest if the last is `...`."""
    given: dict[str, Sequence[str]] = {**dict.fromkeys(takes, ()), **dict(zip(takes, parts, strict=False))}
    if takes and takes[-1] == "...":
        rest = [word for part in parts[len(takes) - 1 :] for word in (",", *part)]
        given["__VA_ARGS__"] = rest[1:]
    return given
