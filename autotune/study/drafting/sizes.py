"""Which of a kernel's whole numbers are sizes, and their first values."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from math import lcm

from autotune.errors import UsageError
from autotune.expression import Expression
from autotune.study.drafting.byvalue import NARROW
from autotune.study.drafting.groups import by_default
from autotune.study.drafting.nouns import WINDOW_NAME
from autotune.study.drafting.proposal import Proposal
from autotune.study.drafting.syntax import names_in
from autotune.study.drafting.terms import Sum
from autotune.study.drafting.uses import Uses

_LONGEST_OF_IMAGES = 13
"""The exponent of 2 for the number of pixels along an axis that every device's images allow."""
_MOST_ELEMENTS = 2**24
"""The most elements of a study's largest buffer at its first sizes, as far as its extents tell."""
_COUNTED = 1024
"""The largest first value of a macro that is a size and was given as 1."""
_WIDEST = 256
"""A size that a launch counts may be raised to this, to fill a work-group."""
_ENTRIES_EACH = 16
"""The proposed number of entries per row of arrays that other arrays index."""


def _degree(extent: Sum, names: Collection[str]) -> int:
    """Return the largest number of the names that are multiplied in an extent."""
    return max((sum(bool(names_in(name) & {*names}) for name in product) for product in extent.terms), default=0)


def _least(name: str) -> int:
    """Return the first value of a small size."""
    return 3 if WINDOW_NAME.match(name) else 1


class Sizes:
    """The sizes of a study. `items`: the work-items of each kernel's launch along its axes, None if unknown.

    `names` are the kernel's numbers that are sizes, `idle` its numbers that no extent depends on.
    """

    def __init__(self, of: Proposal, uses: Uses, items: Mapping[str, Sequence[str | None]]) -> None:
        self._of, self._shapes, self._shifts, self._items = of, uses.shapes, uses.shifts, items
        counted = {extent or "" for extents in items.values() for extent in extents}
        told = [extents for name, extents in uses.shapes.items() if name not in uses.unread]
        used = {name for extents in told for extent in extents for name in names_in(str(extent))}
        used |= {name for extent in counted for name in names_in(extent)}
        buffers = [one.name for one in of.arguments.values() if one.type_name.endswith("*")]
        read = all(name in uses.shapes for name in buffers) and bool(used)
        self.idle = {*of.whole} - used
        self._most = {one.name: NARROW[one.type_name] for one in of.arguments.values() if one.type_name in NARROW}
        self._most |= of.by_value.most
        asked = [] if read else [name for name in of.whole if not of.is_small(name) and name not in self._most]
        exponents = set[str]().union(*(shapes.reading.exponents for shapes in of.shapes.values()))
        asked = [name for name in asked if name not in uses.shifts.keys() | exponents]
        wanted = {*asked} - {*of.members.values()} - uses.codes()
        wanted |= set[str]().union(*(shapes.along_rows() | shapes.divisors() for shapes in of.shapes.values()))
        self.names = [name for name in of.whole if name in (used | wanted) - uses.counts.keys()]
        self._big = [name for name in (*self.names, *of.made) if not (self.is_small(name) or name[:7] == "ENTRIES")]

    def is_small(self, name: str) -> bool:
        """Whether a size is small.

        It is by its name, because a launch subtracts it, because it is the number of things that each item processes,
        or because it is the number of a group's items that share something.
        """
        counted = [str(extent) for shapes in self._of.tuned.values() for extent in shapes.axes.values()]
        padded = any(name in shapes.padded() for shapes in self._of.shapes.values())
        if padded or any(re.fullmatch(rf"{name}( // \d+)?", extent) for extent in counted):
            return False
        items = [extent or "" for items in self._items.values() for extent in items]
        told = (quotient for shapes in self._of.shapes.values() for quotient in shapes.reading.quotients.values())
        if any(by == Sum.of(name) and {each[:4] for each in of.names} <= {"lid#", "lsz#"} for of, by in told):
            return True
        if self._of.is_small(name) or any(re.search(rf"- (?:\d+ \* )?{name}\b", extent) for extent in items):
            return True
        shared = any(re.search(rf"(?:, |// ){name}\b", extent) for extent in items)  # so many for each item
        return shared and not any(name in names_in(str(extent)) for shape in self._shapes.values() for extent in shape)

    @property
    def each(self) -> int:
        """The first value of a size: smaller if there are several, or if it is several extents of one buffer.

        Such a buffer then holds at most about a million elements.
        """
        of, big = self._of, {*self._big}
        ranks = (sum(bool(big & names_in(str(extent))) for extent in shape) for shape in self._shapes.values())
        dimensions = max([len(big), *ranks, *map(len, of.locals.values())])
        degree = max((sum(_degree(extent, big) for extent in shape) for shape in self._shapes.values()), default=0)
        images = {name for name, one in of.arguments.items() if one.type_name.startswith("image")}
        along = [extent for name in images & self._shapes.keys() for extent in self._shapes[name]]
        most = max((_degree(extent, big) for extent in along), default=0)
        few = [1 << _LONGEST_OF_IMAGES // most] if most > 1 else []
        few += [max(1 << 20 // degree, 8)] if degree > 3 else []
        if few:
            return min(few)
        line = 2**12 if any(shapes.each_with_each() for shapes in of.shapes.values()) else 2**16
        first = {0: line, 1: line, 2: 512}.get(dimensions, 128)
        return min([first, *(self._fitting(shape, big) for shape in self._shapes.values())])

    def _fitting(self, shape: Sequence[Sum], names: Collection[str]) -> int:
        """Return the largest power of two for names in a buffer's extents that stays within `_MOST_ELEMENTS`."""
        degree, several = 0, 1
        for extent in shape:
            terms = ((sum(name in names for name in product), factor) for product, factor in extent.terms.items())
            more, factor = max(terms, default=(0, 1))
            degree, several = degree + more, several * max(factor, 1)
        exponent = max(_MOST_ELEMENTS // several, 1).bit_length() - 1
        return 1 << exponent // degree if degree else _MOST_ELEMENTS

    def count(self, name: str, given: int) -> int:
        """Return the first value of a macro that is a size.

        If a launch counts to it, 1 is replaced (users are told to give unknown names as 1): there would be nothing to
        divide among items.
        """
        counted = any(name in (extents or ()) for extents in self._items.values())
        return min(self.each, _COUNTED) if counted and given == 1 else given

    def first(self, name: str) -> int:
        """Return the first value of a size: at least the longest row of that length, at most what its type holds."""
        number = max(self._begun(name), self._longest.get(name, 0))
        most = min((each[name] for each in (self._most, self._held) if name in each), default=None)
        return number if most is None or number <= most else 2 ** (most.bit_length() - 1)

    def _begun(self, name: str) -> int:
        """Return a multiple of the work-group, plus a rim, if no guard handles these."""
        if name.startswith("ENTRIES"):
            return self.each * _ENTRIES_EACH
        if self.is_small(name) and name not in self._of.made:
            return _least(name)
        of, numbers = self._of, self._of.configuration()
        defaults = {name: number for name, number in numbers.items() if isinstance(number, int)}
        rims, whole = [0], 1
        for entry, axis in ((entry, axis) for entry, told in of.tuned.items() for axis in told.inferred):
            extent = self._items[entry][axis] or ""
            rims += map(int, re.findall(rf"\b{name} - (\d{{1,3}})\b", extent))
            if (rim := self._rim(name, extent)) is not None:
                rims.append(rim)
                whole = lcm(whole, int(by_default(of.locals[entry][axis], defaults)) or 1)
        several = any(sum(_degree(extent, {name}) for extent in shape) > 1 for shape in self._shapes.values())
        whole = whole if whole <= (self.each if several else max(self.each, _WIDEST)) else 1
        return -(-self.each // whole) * whole + max(rims)

    def _rim(self, name: str, extent: str) -> int | None:
        """Return how much less than a size a launch counts: `radius - 1` in `width - radius + 1`; None for others."""
        term = r" ([-+]) (?:(\d+) \* )?(\w+)"
        if re.fullmatch(rf"{name}(?:{term})*", extent) is None:
            return None
        known = self._of.tasks | {each: _least(each) for each in self.names if self.is_small(each)}
        parts = [
            (int(factor or 1) * (1 if sign == "-" else -1), part) for sign, factor, part in re.findall(term, extent)
        ]
        found = [
            factor * (int(part) if part.isdigit() else known[part])
            for factor, part in parts
            if part.isdigit() or part in known
        ]
        return sum(found) if len(found) == len(parts) else None

    @cached_property
    def _held(self) -> dict[str, int]:
        """The largest values of sizes that bound the indices of arrays of a fixed length."""
        members = dict[str, list[int | None]]()
        for kind, bracket, extents in (m.partition("[") for listed in self._of.structs.values() for m in listed):
            told = re.findall(r"\[([^\[\]]*)\]", bracket + extents)
            members["".join(kind.split()[-1:])] = [int(each) if each.isdecimal() else None for each in told]
        found = dict[str, int]()
        for shapes in self._of.shapes.values():
            arrays = {**shapes.reading.arrays, **shapes.reading.private}
            numbers = {name: [each.number if each else None for each in extents] for name, extents in arrays.items()}
            lengths = {**members, **numbers}
            for cell in (*shapes.reading.cells, *shapes.reading.inner):
                length = next(iter(lengths.get(cell.array, [])[cell.dimension :]), None)
                if length and (most := str(shapes.upper(cell.place))) in self.names:
                    found[most] = min(found.get(most, length), length)
        return found

    @cached_property
    def _longest(self) -> dict[str, int]:
        """The longest row of which a size is the length, in the size's units."""
        known = {name: int(name not in self._shifts) for name in self._of.whole} | self._of.tasks | self._of.counts
        known |= {name: self._begun(name) for name in (*self.names, *self._of.made)}
        found = dict[str, int]()
        for name, part, most in (row for shapes in self._of.shapes.values() for row in shapes.row_lengths()):
            try:
                length = Expression.parse(str(most)).evaluate(known)
            except (UsageError, ArithmeticError):
                continue
            found[name] = max(found.get(name, 0), int(length) * part)
        return found
