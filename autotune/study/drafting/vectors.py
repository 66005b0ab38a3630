"""Vectors whose width a macro or a branch decides.

`widths`: for each word that `##` makes, the macro whose number it ends with: VEC for `float4` and for `vload4`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from autotune.devices import KernelArgument
from autotune.study.drafting.branches import VECTOR
from autotune.study.drafting.findings import Pointer
from autotune.study.drafting.terms import Sum
from autotune.study.drafting.touching import bytes_of, components

if TYPE_CHECKING:
    from autotune.study.drafting.proposal import Proposal


def widths_of(of: Proposal, *, tuned: bool) -> dict[str, str]:
    """Return the widths for reading a kernel, `tuned` or with the defaults."""
    kept, numbers = of.kept(tuned=tuned), {**of.tasks, **of.counts, **of.parameters}
    if of.code.tokens(kept) is None:
        return {}
    joined = of.code.joined.items()
    pairs = [(word, name) for word, names in joined if VECTOR.match(word) for name in names if name in kept]
    return {word: name for word, name in pairs if re.search(rf"\D{numbers[name]}$", word)}


def elements(kind: str, of: str, widths: Mapping[str, str]) -> Sum:
    """Return how many elements of type `of` make one of type `kind`: 4 `float` in a `float4`, or a macro's name."""
    count, parts = max(bytes_of(kind) // (bytes_of(of) or 1), 1), components(kind)[1]
    return Sum.of(widths[kind]) * Sum.of(count // parts) if kind in widths and count % parts == 0 else Sum.of(count)


def of_components(of: Proposal, one: KernelArgument) -> str:
    """Return the type of an argument in the study: the component's if a macro, typedef or choice decides the width."""
    told, star, _ = one.type_name.partition("*")
    kind = of.meant(told)
    component, count = components(kind)
    decided = kind != told or (kind in widths_of(of, tuned=True) and of.stated.get(one.name) != kind)
    return component + star if star and count > 1 and decided else one.type_name


def pointer(of: Proposal, one: KernelArgument, widths: Mapping[str, str]) -> Pointer:
    """Return a pointer to the beginning of a buffer: of the kernel's vectors, where the study has their components."""
    kind = of.meant(of.arguments[one.name].type_name)
    return Pointer(one.name, Sum(), kind, elements(of.meant(one.type_name), kind, widths))
