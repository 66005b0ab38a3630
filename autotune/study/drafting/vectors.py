"""Vectors whose width a macro or a branch decides.

`widths`: the macro whose number a word ends with that macros put together, by word: VEC of `float4` and of `vload4`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from autotune.devices import KernelArgument
from autotune.study.drafting.branches import VECTOR
from autotune.study.drafting.reading import Pointer
from autotune.study.drafting.syntax import NotRead
from autotune.study.drafting.terms import Sum
from autotune.study.drafting.touching import bytes_of, components

if TYPE_CHECKING:
    from autotune.study.drafting.proposal import Proposal


def widths_of(of: Proposal, *, tuned: bool) -> dict[str, str]:
    """Return the widths as a kernel is read: `tuned` or as the defaults leave it."""
    kept, numbers = of.kept(tuned=tuned), {**of.tasks, **of.counts, **of.parameters}
    try:
        of.code.tokens(kept)
    except NotRead:
        return {}
    joined = of.code.joined.items()
    pairs = [(word, name) for word, names in joined if VECTOR.match(word) for name in names if name in kept]
    return {word: name for word, name in pairs if re.search(rf"\D{numbers[name]}$", word)}


def elements(kind: str, of: str, widths: Mapping[str, str]) -> Sum:
    """Return how many elements of one type are one of another: of `float` in a `float4` four, or what a macro says."""
    count, parts = max(bytes_of(kind) // (bytes_of(of) or 1), 1), components(kind)[1]
    return Sum.of(widths[kind]) * Sum.of(count // parts) if kind in widths and count % parts == 0 else Sum.of(count)


def of_components(of: Proposal, one: KernelArgument) -> str:
    """Return the type of an argument as the study counts it: where it is told how wide a vector is, by components."""
    told, star, _ = one.type_name.partition("*")
    kind = of.meant(told)
    component, count = components(kind)
    decided = kind != told or (kind in widths_of(of, tuned=True) and of.stated.get(one.name) != kind)
    return component + star if star and count > 1 and decided else one.type_name


def pointer(of: Proposal, one: KernelArgument, widths: Mapping[str, str]) -> Pointer:
    """Where a buffer begins, as a kernel sees it: of vectors, where the study has it of their components."""
    kind = of.meant(of.arguments[one.name].type_name)
    return Pointer(one.name, Sum(), kind, elements(of.meant(one.type_name), kind, widths))
