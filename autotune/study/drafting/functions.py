"""The functions of a preprocessed text, and the words that kernels reach in it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from autotune.study.drafting.syntax import NAME, closing, declarator, opening, split


class Function(NamedTuple):
    """The names of a function's arguments, its body's tokens, and the extents of arrays that arguments point to."""

    takes: tuple[str, ...]
    body: Sequence[str]
    rows: Mapping[str, list[list[str]]] = {}


def functions_of(tokens: Sequence[str]) -> dict[str, Function]:
    """Return the functions that a text defines."""
    found, at = dict[str, Function](), 0
    while at < len(tokens):
        if tokens[at] != "{":
            at += 1
            continue
        end = closing(tokens, at)
        if at and tokens[at - 1] == ")":
            start = opening(tokens, at - 1)
            parts = split(tokens[start + 1 : at - 1])
            taken = [_taken(part) for part in parts]
            rows = {name: extents for name, extents in taken if extents}
            found.setdefault(tokens[start - 1], Function(tuple(name for name, _ in taken), tokens[at + 1 : end], rows))
        at = end + 1
    return found


def _taken(part: Sequence[str]) -> tuple[str, list[list[str]]]:
    """Return the name of an argument, and the extents of the arrays that it points to: `(*a)[N]`, `a[][N]`."""
    begun = part.index("(") if "(" in part else len(part)
    if (found := declarator(part[begun:])).name:
        return found.name, found.extents
    ended = part.index("[") if "[" in part else len(part)
    extents = declarator(["(", "*", ")", *part[ended:]]).extents
    return next((word for word in reversed(part[:ended]) if NAME.fullmatch(word)), ""), extents[1:]


def called(functions: Mapping[str, Function], kernels: Collection[str]) -> set[str]:
    """Return these kernels and the functions that they call, if the text defines them."""
    found, due = set[str](), [*kernels]
    while due:
        if (name := due.pop()) in functions and name not in found:
            found.add(name)
            due += functions[name].body
    return found


def reached(tokens: Sequence[str], kernels: Collection[str]) -> set[str]:
    """Return the words of a text, except those of functions and other kernels that these kernels do not call."""
    kept = {*kernels} | called(functions_of(tokens), kernels)
    found, start, at = set[str](), 0, 0
    while at < len(tokens):
        if tokens[at] not in ("{", ";"):
            at += 1
            continue
        end = closing(tokens, at) if tokens[at] == "{" else at
        words = {*tokens[start : end + 1]}
        if tokens[at] == ";" or tokens[at - 1] != ")" or words & kept:
            found |= words
        start = at = end + 1
    return found
