"""The meaning of types that a kernel file names itself."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING

from autotune.devices import KernelArgument
from autotune.study.drafting.preprocessing import value_of
from autotune.study.drafting.scanning import DEFINE, opencl_name, scanned, struct_bodies, without_unions
from autotune.study.drafting.syntax import names_in, tokens_of, with_values
from autotune.study.drafting.touching import bytes_of
from autotune.study.includes import without_comments
from autotune.study.types import is_plain

if TYPE_CHECKING:
    from autotune.study.drafting.proposal import Proposal
    from autotune.study.drafting.reading import Reading

_LONGEST = 8
"""The most typedefs and macros to follow from one to the next."""


def spelt_out(
    signatures: Mapping[str, Sequence[KernelArgument]], source: str, choices: Collection[str]
) -> dict[str, list[KernelArgument]]:
    """Return signatures with names of types replaced by the OpenCL types, or `choices`, that they stand for.

    A name that may stand for several types, depending on branches of the preprocessor, is left unchanged.
    """
    text = without_unions(without_comments(source))
    names = {one.type_name.removesuffix("*") for told in signatures.values() for one in told}
    called = {name: meant.pop() for name in names if len(meant := _meanings(text, name, choices)) == 1}

    def plain(one: KernelArgument) -> KernelArgument:
        name = one.type_name.removesuffix("*")
        return replace(one, type_name=called.get(name, name) + one.type_name[len(name) :])

    return {entry: [plain(one) for one in told] for entry, told in signatures.items()}


def as_written(
    signatures: Mapping[str, Sequence[KernelArgument]], source: str, choices: Collection[str]
) -> dict[str, str]:
    """Return the types of arguments as written in a text, by name, with `choices` kept and its own names resolved."""
    written = spelt_out(scanned(source), source, choices)
    pairs = [(told, written[entry]) for entry, told in signatures.items() if len(told) == len(written.get(entry, ()))]
    return {one.name: text.type_name.removesuffix("*") for pair in pairs for one, text in zip(*pair, strict=True)}


def typedefs_of(of: Proposal) -> dict[str, str]:
    """Return what typedefs finally stand for in the branches that the preprocessor takes."""
    tokens = of.code.tokens([*of.choices])
    return typedefs_in(without_unions(of.text if tokens is None else " ".join(tokens)))


def typedefs_in(text: str) -> dict[str, str]:
    """Return what the typedefs and enums of a text without directives finally stand for."""
    found = {name: opencl_name(meant) for meant, name in re.findall(r"\btypedef\s+([\w ]+?)\s+(\w+)\s*;", text)}
    found |= dict.fromkeys((f"enum {name}" for name in re.findall(r"\benum\s+(\w+)", text)), "int")
    for _ in range(_LONGEST):
        found = {name: found.get(meant, meant) for name, meant in found.items()}
    return found


@lru_cache(maxsize=1)
def enumerators(text: str) -> Mapping[str, str]:
    """Return the numbers that the names in a text's enums are; names whose numbers are not said as such are left out,
    with those behind them.
    """
    found: dict[str, str] = {}
    for body in re.findall(r"\benum\b[^;{}()]*\{([^{}]*)\}", text):
        number: int | None = 0
        for name, said in re.findall(r"([A-Za-z_]\w*)\s*(?:=([^,]*))?(?:,|$)", body.strip()):
            number = _number(found.get(said.strip(), said)) if said else number
            if number is None:
                break
            found[name], number = str(number), number + 1
    return found


def _number(text: str) -> int | None:
    return None if names_in(re.sub(r"0[xX]\w+", "", text)) else value_of(tokens_of(text))


def cast_to(of: Proposal, readings: Iterable[Reading]) -> dict[str, str]:
    """Return the type to which each `void *` argument is cast, if that is one type."""
    untyped = [name for name, one in of.arguments.items() if one.type_name == "void*"]
    read, found = [*readings] if untyped else [], dict[str, str]()
    for name in untyped:
        kinds = {of.kind(kind) for reading in read for kind in reading.seen.get(name, ())}
        if len(kinds) == 1 and is_plain(of.choices.get(kind := kinds.pop(), kind)) and kind != "void":
            found[name] = kind
    return found


def structs_of(of: Proposal) -> dict[str, list[str]]:
    """Return the members of the structs in a text; if a struct has directives in it, the preprocessor's result."""
    left = struct_bodies(" ".join(of.code.tokens([*of.choices]) or ()))
    given = {**enumerators(of.text)}
    given |= {name: str(number) for name, number in (of.parameters | of.tasks | of.counts).items()}
    bodies = struct_bodies(of.text)
    pairs = (zip(bodies[name], left[name], strict=False) for name in bodies.keys() & left.keys())
    macros = {one.partition(" ")[0]: other.partition(" ")[0] for pair in pairs for one, other in pair}
    return members_spelt_out({**left, **bodies}, of.text, {*of.choices}, given, macros | typedefs_of(of))


def in_structs(text: str, names: Collection[str], arguments: Iterable[KernelArgument]) -> set[str]:
    """Return the names that are used in the structs of arguments, such as array lengths.

    The layout of structs must not depend on parameters.
    """
    bodies, left, reached = struct_bodies(text), [one.type_name for one in arguments], set[str]()
    while left:
        for word in {*re.findall(r"\w+", left.pop())} - reached:
            reached.add(word)
            left += bodies.get(word, [])
    return reached & {*names}


def members_spelt_out(
    structs: Mapping[str, Sequence[str]],
    source: str,
    choices: Collection[str],
    given: Mapping[str, str] = MappingProxyType({}),
    typedefs: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, list[str]]:
    """Return the members of structs with names replaced by OpenCL's types, or `choices`, and by numbers.

    `given`: the numbers of macros from outside; `typedefs`: those of the branches that are taken, for names with
    several meanings.
    """
    text, meanings = without_comments(source), dict[str, set[str]]()
    for name, value in DEFINE.findall(text):
        meanings.setdefault(name, set()).add(value.strip())
    stated = {name: values.pop() for name, values in meanings.items() if len(values) == 1} | dict(given)

    def number(extent: re.Match[str]) -> str:
        said = re.sub(r"\bsizeof\s*\(([\w\s]+)\)", lambda of: str(bytes_of(opencl_name(of[1])) or of[0]), extent[1])
        said = with_values(said, stated)
        value = None if re.search(r"[A-Za-z_]", said) else value_of(tokens_of(said))
        return f"[{said if value is None else value}]"

    def plain(member: str) -> str:
        kind, _, name = member.partition(" ")
        meant = set() if kind in structs else _meanings(text, kind, choices)
        if len(meant) != 1 and is_plain(typedefs.get(kind, "")):
            meant = {typedefs[kind]}
        name = re.sub(r"\[([^\[\]]+)\]", number, name)
        return f"{meant.pop() if len(meant) == 1 else kind} {name}"

    return {struct: [plain(member) for member in members] for struct, members in structs.items()}


def _meanings(text: str, name: str, choices: Collection[str]) -> set[str]:
    """Return all types that a name may stand for; empty if one of its meanings cannot be followed."""
    due, found = {name}, set[str]()
    for _ in range(_LONGEST):
        found |= {one for one in due if is_plain(one) or one in choices}
        followed = [_next(text, one) for one in due - found]
        if not all(followed):
            return set()
        due = {meant for told in followed for meant in told}
        if not due:
            return found
    return set()


def _next(text: str, name: str) -> list[str]:
    if is_plain(atomic := name.removeprefix("atomic_")):
        return [atomic]
    typedefs = re.findall(rf"\btypedef\s+([\w\s]+?)\s+{re.escape(name)}\s*;", text)
    macros = re.findall(rf"^[ \t]*#[ \t]*define[ \t]+{re.escape(name)}[ \t]+([\w ]+)$", text, re.MULTILINE)
    enums = re.findall(rf"\btypedef\s+enum\b[^;{{}}]*\{{[^{{}}]*\}}\s*{re.escape(name)}\s*;", text)
    return [opencl_name(one) for one in (*typedefs, *macros, *("int" for _ in enums))]
