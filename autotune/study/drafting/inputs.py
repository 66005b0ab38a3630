"""Proposals for what arguments hold: the data of buffers, the values of numbers, and the structs of both."""

from __future__ import annotations

import re
from collections.abc import Collection

from autotune.devices import KernelArgument
from autotune.errors import StudyError
from autotune.study.drafting.byvalue import letters
from autotune.study.drafting.contents import leads, offsets, places_in, scatters
from autotune.study.drafting.proposal import Proposal
from autotune.study.drafting.scanning import of_unions, struct_attributes
from autotune.study.drafting.shapes import product
from autotune.study.drafting.syntax import names_in
from autotune.study.drafting.terms import Sum, spread_out
from autotune.study.drafting.touching import components
from autotune.study.drafting.uses import Uses
from autotune.study.types import is_plain, scalar_type

_REAL = ("half", "float", "double")

_REALS = (0.5, 0.75, 0.625, 0.875, 0.5625, 0.6875, 0.8125, 0.9375)
"""Values for floating-point numbers, exact in each of these types, and different so that swapped ones show."""


def is_whole(kind: str) -> bool:
    """Whether a type is one of whole numbers."""
    return is_plain(kind) and scalar_type(kind)[1] not in _REAL


def is_real(one: KernelArgument) -> bool:
    """Whether an argument has floating-point numbers, or a type that is not OpenCL's."""
    try:
        return scalar_type(one.type_name.removesuffix("*"))[1] in _REAL
    except StudyError:
        return True


class Inputs:
    """The data and values of all arguments."""

    def __init__(self, proposal: Proposal, uses: Uses) -> None:
        self._of, self._uses, self._shapes = proposal, uses, uses.shapes
        self._reals: dict[str, int] = {}  # the index into _REALS for an argument or member

    def data(self, one: KernelArgument, kind: str, sizes: Collection[str]) -> tuple[str, str]:
        """Return the key for an input's data, in terms of `sizes`, and a remark; empty strings for the default data."""
        of = self._of
        if not is_whole(kind):
            led = kind in of.structs and any(leads(each.reading, one.name) for each in of.shapes.values())
            said = "its data: members of it are indices into other arguments"
            return (of.by_value.first_places(kind), said) if led else ("", "")
        others = {*of.whole} - {*sizes}
        elements = {name: product(shape) for name, shape in self._shapes.items()}
        for each in (*of.tuned.values(), *of.shapes.values()):
            if one.name in offsets(each.reading) and one.name in self._shapes:
                return self._offsets(one.name)
            places = places_in(each.reading, one.name, elements, each.upper)
            for name in others:
                places = places and places.with_value(name, Sum.of(int(name not in self._uses.shifts)))
            if places is not None and not names_in(str(places)) & {*of.parameters, *of.extra, *others}:
                if scatters(each.reading, one.name) and self._shapes.get(one.name) == [places]:
                    return ', data = { distribution = "permutation" }', "indices of the places to write, each once"
                return self._indices(one.name, kind, places)
        if of.kinds(one.name) and set().union(*of.kinds(one.name)) == {"both"}:
            return ', data = { distribution = "constant", value = 0 }', "it starts at 0, as results are added to it"
        return ", data = { low = 0, high = 100 }", "its data"

    def _offsets(self, name: str) -> tuple[str, str]:
        """Return the data of a buffer that says where rows begin."""
        rows = self._shapes[name][0] - 1
        steps = f"arange({rows + 1}) * ENTRIES // {rows if len(rows.terms) == 1 else f'({rows})'}"
        real = 'rows of equal length; for a real matrix { file = "FILE.mtx", part = "indptr" }'
        return f', data = {{ numpy = "{steps}" }}', real

    def _indices(self, name: str, kind: str, places: Sum) -> tuple[str, str]:
        """Return the data of a buffer whose contents are so many places."""
        largest = {"uchar": 255, "char": 127}.get(kind)
        high = f"{(spread_out(f'({places})') or places) - 1}"
        taken_off = any(factor < 0 < len(names) for names, factor in places.terms.items())
        if taken_off or "//" in high:  # the number of places might be 0
            high = f"max({high}, 0)"
        high = high if largest is None else f"min({high}, {largest})"
        of_rows = any("ENTRIES" in str(extent) for extent in self._shapes.get(name, []))
        real = '; for a real matrix { file = "FILE.mtx", part = "indices" }' if of_rows else ""
        return f', data = {{ low = 0, high = "{high}" }}', f"random indices{real}"

    def value(self, kind: str, path: str, sizes: Collection[str]) -> str:
        """Return a value of a type: by member for a struct, by part if the parts differ.

        `path`: its place in an argument, such as `world.origin`; `sizes`: those that the study has.
        """
        if kind in self._of.structs:
            members = self._of.by_value.members(kind)
            table = (f"{name} = {self._part(of, f'{path}.{name}', length, sizes)}" for name, of, length in members)
            return "{ " + ", ".join(table) + " }"
        parts = [
            self._number(f"{path}.{letter}", kind, sizes, of=path)
            for letter in letters(components(self._of.meant(kind))[1])
        ]
        return self._number(path, kind, sizes) if len({*parts}) == 1 else f"[{', '.join(parts)}]"

    def _part(self, kind: str, path: str, length: int | None, sizes: Collection[str]) -> str:
        numbers = [self._number(f"{path}[{place}]", kind, sizes) for place in range(length or 0)]
        return f"[{', '.join(numbers)}]" if len({*numbers}) > 1 else self.value(kind, path, sizes)

    def _number(self, path: str, kind: str, sizes: Collection[str], of: str = "") -> str:
        """Return a number in an argument, or a component `of` a vector: its size, 0 if it only shifts places, else 1.

        A floating-point number is not 1, so that a product with it shows, and differs from the others.
        """
        if path in self._uses.counts:
            return f'"{self._uses.counts[path]}"'
        size = self._of.members.get(path, path)
        if size in sizes and path in self._of.members:
            return f'"{size}"'
        meant = self._of.meant(kind)
        if size in self._uses.shifts or not is_plain(meant) or is_whole(meant):
            return '"0"' if size in self._uses.shifts else '"1"'
        place = self._reals.setdefault(of or path, len(self._reals))
        return f'"{_REALS[place % len(_REALS)]}"'

    def structs(self) -> list[tuple[str, str, str]]:
        """Return the lines for the structs of arguments, inner ones first, each with what is missing and a remark."""
        attributes, unions = struct_attributes(self._of.text), of_unions(self._of.text)
        bodies, lines = self._of.structs, dict[str, tuple[str, str, str]]()

        def add(name: str) -> None:
            if name in lines or name not in bodies:
                return
            for member in bodies[name]:
                add(member.split()[0])
            listed = ", ".join(f'"{member}"' for member in (*attributes.get(name, ()), *bodies[name]))
            unread = ", ".join(member for member in bodies[name] if not self._is_member(member))
            asked = f"its members: the meaning of {unread} is not known" if unread else ""
            said = "the largest member of a union" if unions & {*bodies[name]} else ""
            lines[name] = f"{name} = [{listed}]", asked, said

        for one in self._of.arguments.values():
            add(one.type_name.removesuffix("*").removeprefix("struct ").strip())
        return list(lines.values())

    def _is_member(self, member: str) -> bool:
        kind, _, name = member.partition(" ")
        return self._of.is_known(kind) and re.fullmatch(r"\w+(\s*\[\s*\d+\s*\])*", name) is not None
