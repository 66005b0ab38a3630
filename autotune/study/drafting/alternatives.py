"""Alternative kernels in a file: all overwrite the same buffers, nothing reads these between, one is launched.

A kernel whose results only one alternative reads is launched with it. A parameter selects the alternative, so that a
search finds the fastest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count

from autotune.study.drafting.accesses import in_memory
from autotune.study.drafting.branches import asked_by_directives
from autotune.study.drafting.functions import reached
from autotune.study.drafting.proposal import Proposal
from autotune.study.drafting.syntax import names_in
from autotune.study.drafting.uses import Uses

_NAME = "KERNEL"


@dataclass(frozen=True)
class Alternatives:
    """The parameter `name` says which of the kernels `entries` is launched.

    `owner` maps a kernel to the alternative with which it is launched; `written`: the buffers that all `entries` write.
    """

    name: str
    entries: Sequence[str]
    owner: Mapping[str, str]
    written: Sequence[str]

    def when(self, entry: str) -> str:
        """Return the condition under which a kernel is launched, or an empty string if it always is."""
        return f"{self.name} == '{self.owner[entry]}'" if entry in self.owner else ""


def alternatives(of: Proposal, uses: Uses) -> list[Alternatives]:
    """Return the groups of a file's kernels that are alternatives."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for entry in of.launched:
        if written := _written_anew(of, uses, entry):
            alike.setdefault(written, []).append(entry)
    found, taken = list[Alternatives](), names_in(of.sketch.source) | of.arguments.keys()
    for written, entries in alike.items():
        if len(entries) > 1 and not _is_read_between(of, uses, entries, written):
            names = chain([_NAME], (f"{_NAME}_{number}" for number in count(2)))
            taken.add(name := next(name for name in names if name not in taken))
            found.append(Alternatives(name, entries, _owners(of, uses, entries), written))
    return found


def idle(of: Proposal, some: Sequence[Alternatives]) -> list[tuple[str, str]]:
    """Return constraints, with reasons, that fix parameters at their defaults for alternatives that do not use them."""
    asked = {entry: _asked(of, entry) for entry in of.launched} if some else {}
    everywhere = asked_by_directives(of.text)
    found = list[tuple[str, str]]()
    for name, default in {**of.parameters, **of.extra}.items():
        users = [entry for entry, met in asked.items() if name in met]
        for one in some:
            owners = [entry for entry in one.entries if entry in {one.owner.get(user) for user in users}]
            shared = name in everywhere or name in of.words or any(user not in one.owner for user in users)
            if owners and len(owners) < len(one.entries) and not shared:
                chosen = " or ".join(f"{one.name} == '{entry}'" for entry in owners)
                found.append((f"{chosen} or {name} == {default}", f"{name} is used only by {', '.join(owners)}"))
                break
    return found


def _asked(of: Proposal, entry: str) -> set[str]:
    """Return the words in a kernel, in what it calls, and in its work-group."""
    tokens = of.code.tokens(of.kept(tuned=True))
    found = names_in(of.text) if tokens is None else reached(tokens, [entry])
    return found.union(*map(names_in, of.locals[entry]))


def _written_anew(of: Proposal, uses: Uses, entry: str) -> tuple[str, ...]:
    """Return the buffers that a kernel writes; empty if it also reads one of them."""
    kinds = {name: uses.kinds(entry, name) for name, one in of.arguments.items() if in_memory(one)}
    written = tuple(name for name, each in kinds.items() if each - {"read"})
    return written if all(kinds[name] == {"write"} for name in written) else ()


def _is_read_between(of: Proposal, uses: Uses, entries: Sequence[str], written: Sequence[str]) -> bool:
    launched = list(of.launched)
    between = launched[launched.index(entries[0]) : launched.index(entries[-1])]
    return any(uses.kinds(entry, name) for entry in between if entry not in entries for name in written)


def _owners(of: Proposal, uses: Uses, entries: Sequence[str]) -> dict[str, str]:
    """Return the alternative with which each kernel is launched: itself, or the only one that reads its results."""
    owner = {entry: entry for entry in entries}
    for entry in reversed(of.launched):
        if entry not in owner and (readers := _readers(of, uses, entry)):
            owners = {owner.get(reader) for reader in readers}
            if len(owners) == 1 and (only := owners.pop()) is not None:
                owner[entry] = only
    return owner


def _readers(of: Proposal, uses: Uses, entry: str) -> list[str]:
    """Return the later kernels that use what a kernel writes, until another kernel overwrites it."""
    launched = list(of.launched)
    after, found = launched[launched.index(entry) + 1 :], list[str]()
    for name, one in of.arguments.items():
        if not in_memory(one) or not uses.kinds(entry, name) - {"read"}:
            continue
        for later in after:
            kinds = uses.kinds(later, name)
            if kinds == {"write"}:
                break
            found += [later] if kinds else []
    return found
