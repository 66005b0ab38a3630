"""Macros that decide which arguments a kernel takes, or of what type.

A study has one list of arguments and one type for each, so such a macro is none to tune.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

from autotune.study.drafting.branches import asked_by_directives
from autotune.study.drafting.scanning import scanned, struct_bodies, without_unions
from autotune.study.drafting.touching import components
from autotune.study.drafting.typedefs import typedefs_in
from autotune.study.types import is_plain

if TYPE_CHECKING:
    from autotune.study.drafting.proposal import Proposal


class _Taken(NamedTuple):
    """What a kernel takes: `scalar` is the type of one component, or those of a struct's members; empty if unknown."""

    address: str
    pointer: bool
    scalar: str


def deciding(of: Proposal, names: Collection[str]) -> set[str]:
    """Return the names whose values decide the launched kernels' arguments, as `#if PRECISION == 64` may.

    The number of a vector's components does not count: the study has the components.
    """
    asked = asked_by_directives(of.text)
    numbers = {name: of.values(name, of.parameters[name]).numbers for name in names if name in asked}
    return {name for name, tried in numbers.items() if _differ(of.texts(name, tried), of.launched)}


def _differ(texts: Mapping[int, Sequence[str]], kernels: Collection[str]) -> bool:
    each = [_signatures(" ".join(tokens), kernels) for tokens in texts.values()]
    return any(
        not _alike(one[entry], two[entry]) for one, two in combinations(each, 2) for entry in one.keys() & two.keys()
    )


def _signatures(text: str, kernels: Collection[str]) -> dict[str, list[_Taken]]:
    text = without_unions(text)
    meant, structs = typedefs_in(text), struct_bodies(text)

    def scalar(name: str) -> str:
        kind = meant.get(name, name)
        return components(kind)[0] if is_plain(kind) else ""

    def taken(address: str, type_name: str) -> _Taken:
        name = type_name.removesuffix("*")
        members = " ".join(scalar(member.partition(" ")[0]) for member in structs.get(name, ()))
        return _Taken(address, type_name != name, scalar(name) or members)

    told = {entry: arguments for entry, arguments in scanned(text).items() if entry in kernels}
    return {entry: [taken(one.address, one.type_name) for one in arguments] for entry, arguments in told.items()}


def _alike(one: Sequence[_Taken], two: Sequence[_Taken]) -> bool:
    """Whether two signatures are the same, as far as types are known: with some values a kernel does not compile."""
    pairs = zip(one, two, strict=False)
    return len(one) == len(two) and all(
        a[:2] == b[:2] and (a.scalar == b.scalar or not a.scalar or not b.scalar) for a, b in pairs
    )
