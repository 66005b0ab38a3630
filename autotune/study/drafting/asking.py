"""What the #ifs of a text that does not compile ask for: the macros that decide about an `#error`, a name, a kernel."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from autotune.study.drafting.branches import OF_COMPILER, compared
from autotune.study.drafting.preprocessing import preprocessed
from autotune.study.drafting.scanning import KERNEL
from autotune.study.drafting.syntax import NAME, NotRead
from autotune.study.includes import DIRECTIVE, without_comments

_SAYS_NOTHING = re.compile(r":\d+:\d+:(?: error:)?[ \t]*$", re.MULTILINE)
"""The end of a compiler's line on an `#error` without a text."""
_MOST = 16
"""The most names in one condition, and conditions around a kernel."""


def asked_by_error(source: str, told: str) -> tuple[list[str], bool]:
    """Return the macros that decide about a met `#error`, and whether it only requires one of them to be defined."""
    for each in _directives(without_comments(source)):
        met = each.rest.strip('"') in told if each.rest else _SAYS_NOTHING.search(told)
        if each.word == "error" and each.opened and met:
            return [*dict.fromkeys(each.opened[-1].names)], each.opened[-1].asks_for_one
    return [], False


def brought(source: str, name: str, known: Collection[str] = ()) -> tuple[str, str]:
    """Return the macro, with its value, that makes a text define a name within an #if; empty if no single one does.

    This is `FLOAT` if the text has `#ifdef FLOAT` with `#define real float` or `typedef float real;`. `known` macros
    come first, then those that make the name `float`, which each device has.
    """
    asked, text = dict[str, bool](), without_comments(source)
    unusable = _include_guards(text)
    typedef = re.compile(rf"\btypedef\b([^;{{}}]*)\b{name}\s*;")
    for each in _directives(text):
        typed = typedef.search(each.before)
        stated = each.rest if each.word == "define" and each.rest.split("(")[0].split()[:1] == [name] else None
        plain = "float" in (typed[1] if typed else stated or "").split()
        for branch in each.opened if typed or stated is not None else ():
            for macro in (one for one in branch.names if not OF_COMPILER.match(one) and one not in unusable):
                asked[macro] = asked.get(macro, False) or (plain and macro in (branch.last or branch.names))
    numbers = compared(source) if asked else {}
    if asked and _is_meant(source, "", "", name):
        return "", ""
    for macro in sorted([*asked][:_MOST], key=lambda macro: (macro not in known, not asked[macro])):
        told = numbers.get(macro)
        for value in ("1", *map(str, sorted(told.numbers - {1})[:_MOST] if told else ())):
            if _is_meant(source, macro, value, name):
                return macro, value
    return "", ""


def _include_guards(text: str) -> set[str]:
    """Return the macros that a text defines, without a value, if they are not defined: given, they remove a file."""
    lines = [(word, re.sub(r"[()\s!]|defined", "", rest)) for word, rest in DIRECTIVE.findall(text) if word != "line"]
    return {name for (word, name), then in pairwise(lines) if word in ("ifndef", "if") and then == ("define", name)}


def _is_meant(source: str, macro: str, value: str, name: str) -> bool:
    """Whether a name is defined or gone in the preprocessed text if a macro is given."""
    left = _left(source, macro, value)
    return not re.search(rf"\b{name}\b", left) or bool(re.search(rf"\btypedef\b[^;{{}}]*\b{name} ;", left))


@lru_cache(maxsize=64)
def _left(source: str, macro: str, value: str) -> str:
    """Return the preprocessed text with a macro given (empty: none); the names in the text if it cannot be read."""
    try:
        return " ".join(preprocessed(source, {macro: value} if macro else {}, ()))
    except NotRead:
        return " ".join(NAME.findall(source))


def hiding(source: str) -> tuple[list[str], list[str]]:
    """Return a text's kernels and the macros that hide them, if the preprocessor leaves none; else empty lists."""
    text = without_comments(source)
    try:
        left = {*preprocessed(source, {}, ())}
    except NotRead:
        return [], []
    names, kernels = dict[str, None](), list[str]()
    for each in _directives(f"{text}\n#end"):
        if inside := [found[2] for found in KERNEL.finditer(each.before)]:
            kernels += inside
            names |= dict.fromkeys(name for branch in each.opened[-_MOST:] for name in branch.names)
    return ([], []) if left & {*kernels} else (kernels, list(names))


@dataclass
class _Branch:
    """An open #if.

    `names`: the macros in its conditions up to here; `asks_for_one`: whether the branch is taken if one macro is not
    defined; `last`: the macros of the last condition.
    """

    names: list[str]
    asks_for_one: bool
    last: list[str]


class _Directive(NamedTuple):
    """A directive, with the branches that are open there and the text since the last directive."""

    word: str
    rest: str
    opened: list[_Branch]
    before: str


def _directives(text: str) -> Iterator[_Directive]:
    opened, read = list[_Branch](), 0
    for match in DIRECTIVE.finditer(text):
        yield _Directive(match[1], match[2].strip(), opened, text[read : match.start()])
        _step(opened, match[1], match[2].strip())
        read = match.end()


def _step(opened: list[_Branch], word: str, rest: str) -> None:
    """Open, change or close a branch, as a directive does."""
    names = [name for name in dict.fromkeys(NAME.findall(rest)) if name != "defined"]
    if word in ("if", "ifdef", "ifndef"):
        asked = re.findall(r"\w+|[^\w\s()]", rest) if len(names) == 1 else []
        alone = asked == names if word == "ifndef" else word == "if" and asked == ["!", "defined", *names]
        opened.append(_Branch(names[:_MOST], alone, names[:_MOST]))
    elif word in ("elif", "else") and opened:
        opened[-1].names += names[: _MOST - len(opened[-1].names)]
        opened[-1].asks_for_one, opened[-1].last = False, names[:_MOST]
    elif word == "endif":
        del opened[-1:]
