"""Macros that decide what is computed.

Such a macro is the number of steps that compute a value from itself (rounds of a hash, steps of an iteration), an
operand of a stored value, the length of an input, or a code that tells cases apart.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from autotune.study.drafting.indices import rows_of_ids
from autotune.study.drafting.nouns import is_extent_name, is_of_group
from autotune.study.drafting.syntax import closing, names_in, split
from autotune.study.drafting.terms import Sum
from autotune.study.drafting.touching import is_understood

if TYPE_CHECKING:
    from autotune.study.drafting.proposal import Proposal
    from autotune.study.drafting.reading import Reading


def repeats(tokens: Sequence[str], names: Collection[str], pointers: Collection[str]) -> set[str]:
    """Return the names that only bound repeating loops: with another number the result differs.

    The body of such a loop uses neither its counter nor memory, so its turns cannot be shares of the work. A name that
    is used anywhere else, as in the step of an outer loop, may be an unrolling factor, and is left out.
    """
    bounds = Counter(name for name in _bounds(tokens, pointers) if name in names)
    return {name for name, count in bounds.items() if tokens.count(name) == count}


def operands(tokens: Sequence[str], names: Collection[str], pointers: Collection[str]) -> set[str]:
    """Return the names that are operands in stored values, as in `y[i] = SCALE * x[i]`, not counting indices."""
    found = set[str]()
    for at in [place for place, token in enumerate(tokens[:-1]) if token in pointers and tokens[place + 1] == "["]:
        start = closing(tokens, at + 1) + 1
        if tokens[start : start + 1] and tokens[start] in _STORES:
            end = next((place for place in range(start, len(tokens)) if tokens[place] == ";"), len(tokens))
            value = ["=", *_without_indices(tokens[start + 1 : end]), ";"]
            around = zip(value, value[1:], value[2:], strict=False)
            found |= {name for before, name, after in around if name in names and {before, after} & _ARITHMETIC}
    return found


def lengths(of: Proposal, names: Collection[str]) -> set[str]:
    """Return the names that alone make the extents of an input, `QUERY` in `query[QUERY]`.

    Also those that are multiplied with numbers that the kernel takes: `DIM` in `points[n * DIM]`.
    """
    found = set[str]()
    inputs = [one.name for one in of.arguments.values() if one.const and one.address != "local"]
    for shapes in of.tuned.values():
        for one in inputs:
            extents = shapes.shape(one, written=False) or []
            met = names_in(" ".join(map(str, extents)))
            if one in shapes.doubts or not met <= {*names, *of.whole}:
                continue
            if met <= {*names} and not any(map(is_of_group, met)):
                found |= met
            plain = [product for extent in extents for product in extent.terms if len(extent.terms) == 1]
            found = found.union(*({*product} & {*names} for product in plain if {*product} & {*of.whole}))
    return found


def radii(of: Proposal) -> set[str]:
    """Return the names at whose negative loops begin, `for (i = -r; i <= r; i++)`: they go around a middle."""
    loops = (loop for entry in of.launched for loop in of.read_by_own_names(entry).loops.values())
    return {name for loop in loops for name in loop.start.names if loop.start == -Sum.of(name)}


def row_lengths(reading: Reading, names: Collection[str]) -> set[str]:
    """Return the names that are the length of rows with one place for each work-item: they count the work-items."""
    return {name for name in rows_of_ids(reading) & {*names} if not is_extent_name(name)}


def codes(tokens: Sequence[str], names: Collection[str]) -> set[str]:
    """Return the names that only tell cases apart: compared for equality, a `case`, or tested for truth."""
    around = list(zip(["", "", *tokens], ["", *tokens], tokens, [*tokens[1:], ""], strict=False))
    told, other = set[str](), set[str]()
    for ahead, before, name, after in around:
        true = {before, after} <= _LOGIC and ((before, after) != ("(", ")") or ahead == "if")  # `if (name && ...)`
        (told if true or {before, after} & _TELLING else other).add(name)
    return told & {*names} - other


_TELLING = {"==", "!=", "case", "!"}
_LOGIC = {"(", ")", "&&", "||", "?"}
_STORES = ("=", "+=", "-=", "*=", "/=")
_ARITHMETIC = {"+", "-", "*", "/"}


def _without_indices(tokens: Sequence[str]) -> list[str]:
    found, at = list[str](), 0
    while at < len(tokens):
        if tokens[at] == "[":
            at = closing(tokens, at)
        else:
            found.append(tokens[at])
        at += 1
    return found


def _bounds(tokens: Sequence[str], pointers: Collection[str]) -> Iterator[str]:
    """Yield the bound of each repeating loop, `NAME` in `for (int i = 0; i < NAME; ++i)`."""
    own = _own_arrays(tokens)
    for at in [place for place, token in enumerate(tokens[:-1]) if token == "for" and tokens[place + 1] == "("]:
        end = closing(tokens, at + 1)
        match split(tokens[at + 2 : end], ";"):
            case [_, [counter, "<" | "<=", name], (["++", turned] | [turned, "++"] | [turned, "+=", _]) as step]:
                body = _body(tokens, end + 1)
                plain = len(step) == 2 or step[2].isdigit()  # a step by a name may be unrolled work
                if plain and turned == counter and counter not in body and not _touches_memory(body, pointers, own):
                    yield name


def _own_arrays(tokens: Sequence[str]) -> set[str]:
    """Return the arrays that each work-item has for itself, `float t[4]`, as far as their declarations are plain."""
    own, shared = set[str](), {"if", "while", "for", "switch", "sizeof"}
    words, plain = list[str](), True  # the words since the statement began, and whether it has only words so far
    for token in tokens:
        if token in (";", "{", "}", "(", ")"):
            words, plain = [], True
        elif plain and re.match(r"[A-Za-z_]", token):
            words.append(token)
        elif plain:
            if token == "[" and len(words) >= 2:
                (shared if {"local", "global", "constant", "return"} & {*words} else own).add(words[-1])
            plain = False
    return own - shared


def _touches_memory(body: Sequence[str], pointers: Collection[str], own: Collection[str]) -> bool:
    """Whether a body may read or write memory that other items see: by an index, a pointer or an OpenCL function.

    `own`: arrays that no other item sees.
    """
    followed = any(
        token == "*" and not re.match(r"[\w)\]]", before) for before, token in zip(["", *body], body, strict=False)
    )
    indexed = any(token == "[" and before not in own for before, token in zip(["", *body], body, strict=False))
    return followed or indexed or any(token in ("->", *pointers) or is_understood(token) for token in body)


def _body(tokens: Sequence[str], at: int) -> Sequence[str]:
    """Return the tokens of the statement that begins at a place, including heads of loops and branches before it."""
    end = at
    while end < len(tokens) and tokens[end] not in (";", "{"):
        end = closing(tokens, end) + 1 if tokens[end] in "([" else end + 1
    return tokens[at : closing(tokens, end) if tokens[end : end + 1] == ["{"] else end]
