"""The work-group that a kernel requires by its attribute, in terms of parameters."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from autotune.errors import UsageError
from autotune.expression import Expression
from autotune.study.drafting.syntax import closing, names_in, split, tokens_of
from autotune.study.drafting.terms import plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from autotune.study.drafting.proposal import Proposal

_ATTRIBUTE = "reqd_work_group_size"
_MOST_TEXT = 1000
"""The longest text of an extent that is read, in characters."""


def required(of: Proposal, entry: str) -> list[str]:
    """Return the required work-group of the last kernel of a name, in terms of parameters; empty if there is none."""
    found, tokens = [], of.code.tokens(of.kept(tuned=True)) or []
    if entry not in tokens:  # it is in a branch that only the compiler takes
        tokens = tokens_of(of.text)
    for at in [place for place, pair in enumerate(pairwise(tokens)) if pair == (entry, "(")]:
        begun = next((place for place in range(at - 1, -1, -1) if tokens[place] in (";", "}")), -1) + 1
        before = tokens[begun:at]
        if {"kernel", _ATTRIBUTE} <= {*before}:
            asked = before.index(_ATTRIBUTE) + 1
            extents = split(before[asked + 1 : closing(before, asked)])
            found.append([_spelt(of, " ".join(extent)) for extent in extents])
    usable = [each for each in found if len(each) == 3 and all(each)]
    return usable[-1] if usable else []


def _spelt(of: Proposal, text: str) -> str:
    """Return a C expression as an expression over parameters; an empty string if it is not one."""
    if len(text) > _MOST_TEXT:
        return ""
    text = re.sub(r"\b(\d+)\s*[uUlL]{1,3}\b", r"\1", text)
    text = re.sub(r"\(\s*(\w+)\s*<<\s*(\w+)\s*\)", r"(\1 * 2 ** \2)", text)
    names = names_in(text)
    usable = names <= set(of.parameters) and re.fullmatch(r"[\w\s()+*/%-]+", text) is not None
    spelt = re.sub(r"(?<=\() | (?=\))", "", " ".join(re.sub(r"(?<!/)/(?!/)", "//", text).split()))
    while spelt != plain(spelt):
        spelt = plain(spelt)
    return "" if not usable else spelt if names else by_default(spelt, {})


def by_default(extent: str, defaults: Mapping[str, int]) -> str:
    """Return an extent of a work-group with its names replaced by numbers, evaluated; "1" if that fails."""
    filled = re.sub(r"[A-Za-z_]\w*", lambda name: str(defaults.get(name[0], 1)), extent)
    if re.fullmatch(r"[\d\s()+*/%-]{1,200}", filled) is None:
        return "1"
    try:
        return str(int(Expression.parse(filled).evaluate({})))
    except UsageError:  # divided by 0, or beyond what is counted
        return "1"
