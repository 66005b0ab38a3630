"""Proposals of extents and launches from what was read of a kernel's indices."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import gcd

from autotune.study.drafting.indices import Indices, words
from autotune.study.drafting.reading import EXTENT, Reading
from autotune.study.drafting.terms import Sum, plain

AXIS_NAMES = {1: ("N",), 2: ("WIDTH", "HEIGHT"), 3: ("NX", "NY", "NZ")}
IMAGE_NAMES = ("WIDTH", "HEIGHT", "DEPTH")
"""What sizes are called that a kernel is not given: the extents of its launch."""


COUNTED = re.compile(
    r"^[nmkwh]$|^n[a-z0-9]?$|^(n|num)[A-Z_0-9]|(?i:size|width|height|depth|len|count|rows?$|cols?$|dim|total|elem|items|points|pixels)"
)
"""What numbers are called that say how much there is."""

BEYOND = "by the places that were understood; others may lie farther"
"""Why the extents of a buffer are a guess."""


def plain_call(text: str) -> str:
    """What is left of an expression beside one call around it."""
    return re.sub(r"\w+\((?:[^()]|\([^()]*\))*\)", "", text)


def _extent(text: str) -> Sum:
    return Sum.of(int(text)) if text.isdigit() else Sum.of(text if text.isidentifier() else f"({text})")


def _number(value: Sum) -> int:
    return value.terms.get((), 0)


def _factors(value: Sum) -> tuple[int, ...]:
    return tuple(value.terms.values())


def _is_multiple(value: Sum, least: Sum) -> bool:
    """Whether a sum has the same products as another, none less often: of `x[i]` and `x[i + n]` that goes farther."""
    same = value.terms.keys() == least.terms.keys()
    return same and all(more >= less for more, less in zip(_factors(value), _factors(least), strict=True))


def _rounded(count: str, local: str) -> str:
    return count if local == "1" else f"round_up({count}, {plain(local)})"


class Shapes(Indices):
    """What one kernel's reading says of extents; `sizes` are its whole numbers, and whether each is small.

    `local` are the extents of a work-group. `inferred` are the axes that no guard bounds. Sizes that had to be made up
    are added to `made`, under names that are not `taken`.
    """

    def __init__(
        self,
        reading: Reading,
        sizes: Mapping[str, bool],
        local: Sequence[str],
        taken: Iterable[str],
        made: dict[str, str],
    ) -> None:
        super().__init__(reading, sizes, made)
        self._local, self._taken = local, set(taken)
        self._places = [self._started(place) for place in reading.places]
        self.doubts: dict[str, str] = {}
        """Why the extents of a buffer are a guess."""
        self.axes: dict[int, Sum] = {}
        self.rows: dict[int, Sum] = {}
        """How many work-groups there are, along axes where each has a place of its own and nothing says how many."""
        self.inferred: set[int] = set()
        for axis in range(3):
            if (extent := self._axis(axis)) is not None:
                self.axes[axis] = self._named(extent)
            elif axis < len(local) and self._is_grouped(axis):
                self.inferred.add(axis)
                self.rows[axis] = self._left(axis, "GROUPS" if len(local) == 1 else f"GROUPS_{'XYZ'[axis]}")

    def each_with_each(self) -> bool:
        """Whether every work-item walks over what the launch counts."""
        alone = [limit for varying, limit in self.reading.guards if not self._ids(self._started(varying))]
        return any(extent in alone for extent in self.axes.values())

    # -- the launch -------------------------------------------------------------------------------

    def _started(self, value: Sum) -> Sum:
        """With the variables of loops where they begin."""
        for _ in range(4):
            for name in value.names & self.reading.loops.keys():
                value = value.with_value(name, self.reading.loops[name][0])
        return value

    def _ids(self, value: Sum) -> set[int]:
        """The axes whose ids are in a sum, also within what is not taken apart."""
        return {axis for axis in range(3) for name in value.names if f"gid#{axis}" in name or f"wid#{axis}" in name}

    def _guards(self, axis: int) -> list[tuple[Sum, Sum]]:
        """The guards that bound what an axis of the launch counts, the plainest first."""
        found = [
            (varying, limit)
            for varying, limit in self.reading.guards
            if self._ids(self._started(varying)) == {axis} and limit.names and not limit.names <= set(self._local)
        ]
        return sorted(found, key=lambda pair: (not self._sized(pair[1]), len(pair[1].terms)))

    def _used(self, axis: int) -> bool:
        """Whether the work-items along an axis do different things."""
        sums = [*self._places, *(self._started(varying) for varying, _ in self.reading.guards)]
        return any(axis in self._ids(each) for each in sums)

    def _axis(self, axis: int) -> Sum | None:
        """What an axis of the launch counts to; made up where the kernel does not bound it."""
        for varying, limit in self._guards(axis):
            if self._sized(limit) and any(f"{kind}#{axis}" in self._started(varying).names for kind in ("gid", "wid")):
                return self._named(limit)
        indices = [each for each in self._places if f"gid#{axis}" in each.names]
        if not indices:
            return None
        self.inferred.add(axis)
        stored = {
            self._started(place) for each in self.reading.mentions if each.kind != "read" for place in each.places
        }
        indices.sort(key=lambda index: index not in stored)  # what is read may have a rim
        for index in [each for each in indices if not self._strided(each)]:  # within a row: as long as the row is
            for extent, counted in self._levels(index)[1:]:
                if f"gid#{axis}" in counted.names:
                    return extent
        for mention in self.reading.mentions:  # in an array whose places something else counts
            others = {each.places[0] for each in self.reading.of(mention.name)} if len(mention.places) == 1 else set()
            if others & set(indices) and (found := next((u for i in others if (u := self._counted(i))), None)):
                return found
        images = any(len(mention.places) > 1 for mention in self.reading.mentions)
        names = IMAGE_NAMES if images else AXIS_NAMES[3 if self._used(2) else 2 if self._used(1) else 1]
        return self._left(axis, names[axis])

    def _is_grouped(self, axis: int) -> bool:
        """Whether each work-group along an axis has places of its own, that nothing bounds."""
        return any(each.factor_of(f"wid#{axis}") for each in self._places) and not self._guards(axis)

    def _left(self, axis: int, name: str) -> Sum:
        """The size that counts along an axis: one that nothing else has a use for, else a new one of that name."""
        indices = [each for each in self._places if axis in self._ids(each)]
        bounded = {word for _, limit in self.reading.guards for each in limit.names for word in words(each)}
        bounded |= {word for index in indices for each in index.names if "#" not in each for word in words(each)}
        taken = {str(extent) for extent in (*self.axes.values(), *self.rows.values())}
        left = [size for size in self._sizes if size not in {*bounded, *self._small, *taken} and COUNTED.search(size)]
        return Sum.of(left[0] if left else self._new(name))

    def _counted(self, index: Sum) -> Sum | None:
        """The limit of an index that stands in a guard as it is."""
        found = [limit for varying, limit in self.reading.guards if varying == index and self._sized(limit)]
        return self._named(found[0]) if found else None

    def _new(self, name: str) -> str:
        while name in self._taken and name not in self.made:
            name += "_"
        self.made[name] = "guess: the kernel takes no such number"
        return name

    def _named(self, value: Sum) -> Sum:
        """With names for the extents of images, and the extents of a work-group."""
        for axis, local in enumerate(self._local):
            value = value.with_value(f"lsz#{axis}", _extent(local))
        for axis in range(3):
            if f"{EXTENT}{axis}" in value.names:
                value = value.with_value(f"{EXTENT}{axis}", Sum.of(self._new(IMAGE_NAMES[axis])))
        return value

    def items(self, axis: int) -> str | None:
        """Return work-items along an axis as an expression; None where nothing says how many."""
        local = self._local[axis]
        group = _extent(local)
        for varying, limit in self._guards(axis):
            extent = self._named(limit)
            steps = [self.reading.loops[name] for name in varying.names & self.reading.loops.keys()]
            for start, step in steps:
                stated = step is not None and step.known and step.names
                if stated and self._started(start) == Sum.of(f"gid#{axis}"):
                    return str(step)
            begun = self._started(varying)
            each = begun.factor_of(f"gid#{axis}")
            groups = begun.factor_of(f"wid#{axis}").with_value(f"lsz#{axis}", group)
            if each.known and each:
                for name in varying.names:  # a loop over the whole launch
                    turns = self.upper(Sum.of(name)) if varying.factor_of(name) == Sum.of(f"gsz#{axis}") else None
                    each = turns if turns is not None and turns.known else each
                return _rounded(str(extent) if each == Sum.of(1) else f"ceil_div({extent}, {each})", local)
            if groups.known and groups:
                if groups == group:
                    return _rounded(str(extent), local)
                if local == "1":
                    return f"ceil_div({extent}, {groups})"
                return f"ceil_div({extent}, {groups}) * {local if local.isidentifier() else f'({plain(local)})'}"
        if axis in self.axes:
            return _rounded(str(self.axes[axis]), local)
        if axis in self.rows:
            return str(self.rows[axis] if local == "1" else self.rows[axis] * group)
        alone = axis in self.reading.lone and not self.reading.lost and not self._used(axis)  # one item does it all
        return None if axis in self.reading.spread and not alone else plain(local)

    def _groups(self, axis: int, *, more: bool) -> Sum | None:
        """How many work-groups there are along an axis, and one more."""
        if axis in self.rows:
            return self.rows[axis] + more
        items = self.items(axis) if axis < len(self._local) else None
        if items is None:
            return None
        local = self._local[axis]
        if items.endswith(f" * {local}"):
            items = items.removesuffix(f" * {local}")
            return Sum.of(f"({items})" if " " in plain_call(items) else items) + more
        return Sum.of(f"ceil_div({items}, {plain(local)})") + more

    # -- limits -----------------------------------------------------------------------------------

    def upper(self, value: Sum, depth: int = 0) -> Sum | None:
        """Return what a sum stays below; None where nothing says so."""
        if value.known:
            return self._named(value) + 1
        if depth > 5:
            return None
        stated = [limit + rest for varying, limit in self.reading.guards if (rest := value - varying).known]
        if stated:
            first = min(stated, key=lambda each: (not self._sized(each), len((each - _number(each)).terms)))
            alike = [each for each in stated if (each - first).number is not None]
            return self._named(min(alike, key=lambda each: (len(each.terms), _number(each))))
        if value.names & self.reading.between.keys():
            name = "ENTRIES" if "ENTRIES" not in self._taken else "ENTRIES_"
            self.made[name] = "guess: how many places the rows hold in all"
            return Sum.of(name)
        total = value.fixed + 1
        for name in sorted(value.names):
            if "#" not in name:
                continue
            factor, below = value.factor_of(name), self._of_variable(name, depth)
            if factor.known and all(each < 0 for each in factor.terms.values()) and self._from_zero(name):
                continue
            if below is None or not factor.known or any(each < 0 for each in factor.terms.values()):
                return None
            total += factor * (below - 1)
        return self._named(total)

    def _from_zero(self, name: str) -> bool:
        """Whether a variable is never negative: an id, or one that begins at such a sum."""
        if name.partition("#")[0] in ("gid", "lid", "wid"):
            return True
        begun = self.reading.loops.get(name, (None, None))[0]
        return begun is not None and not begun.names and min(begun.terms.values(), default=0) >= 0

    def _of_variable(self, name: str, depth: int) -> Sum | None:
        kind, _, axis = name.partition("#")
        if kind == "gid":
            return self.axes.get(int(axis))
        if kind in ("lid", "lsz"):
            local = self._local[int(axis)] if int(axis) < len(self._local) else "1"
            return _extent(local) + (kind == "lsz")
        if kind in ("wid", "ngr"):
            return self._groups(int(axis), more=kind == "ngr")
        if kind == "gsz":
            return self.axes[int(axis)] + 1 if int(axis) in self.axes else None
        if name in self.reading.either:
            return self._larger(*(self.upper(value, depth + 1) for value in self.reading.either[name]))
        guarded = any(varying == Sum.of(name) for varying, _ in self.reading.guards)
        return self.upper(Sum.of(name), depth + 1) if guarded or name in self.reading.between else None

    def _of_several(self, index: Sum, rows: tuple[Sum, list[Sum]]) -> tuple[Sum, list[Sum]]:
        """An index taken apart, of elements that are several numbers each: `2 * (y * W + x)` counts pairs."""
        several = gcd(*(factor for product, factor in index.terms.items() if product))
        counted, extent = self._levels(index)[-1][1], rows[1][-1]
        limit = self.upper(counted) if several > 1 else None
        row = next(iter(extent.terms), ())
        if limit is None or limit.terms.get(row, 0) < 2 * extent.terms.get(row, 1):
            return rows
        each = Sum((product, factor // several) for product, factor in index.terms.items())
        outer = self._rows(each)
        return rows if outer is None else (outer[0], [*outer[1], Sum.of(several)])

    def _begun(self, value: Sum) -> Sum:
        """With what they are in the place of variables that change only later."""
        guarded = {name for varying, _ in self.reading.guards for name in varying.names}
        for name in (value.names & self.reading.either.keys()) - guarded:
            one, other = self.reading.either[name]
            value = value.with_value(name, one) if one == other else value
        return value

    def _larger(self, one: Sum | None, other: Sum | None) -> Sum | None:
        if one is None or other is None:
            return None
        return max(one, other, key=lambda limit: self.elements([limit]))

    # -- shapes -----------------------------------------------------------------------------------

    def shape(self, name: str, *, written: bool, farthest: bool = False) -> list[Sum] | None:
        """Return the extents of a buffer, row by row; None where its indices do not tell.

        What most indices say counts, since rims may be left out in ways that are not read; or the `farthest`.
        """
        found: list[tuple[list[Sum], Sum, int]] = []
        stored = list[Sum]()
        guarded = list[Sum]()
        for mention in self.reading.of(name):
            index = self._begun(mention.places[0])
            whole = any((index - varying).known for varying, _ in self.reading.guards)
            for axis, extent in self.axes.items() if not whole else ():
                index = index.with_value(f"gsz#{axis}", extent)
            index = self._factored(index)
            rows = self._rows(index) if not whole or not self._strided(index) else (index, [])
            rows = self._of_several(index, rows) if rows is not None and rows[1] else rows
            if rows is None or (limit := self.upper(rows[0])) is None or not limit.known:
                if not index.names & self.reading.contents.keys():  # contents are bounded by their data
                    self.doubts[name] = BEYOND
                continue
            found.append((rows[1], limit, rows[0].terms.get((), 0)))
            stored += [limit] if mention.kind != "read" else []
            guarded += [limit - _number(limit)] if whole else []
        if name in self.reading.unread:
            self.doubts[name] = BEYOND
        if not found:
            return None
        most = max(len(inner) for inner, *_ in found)

        def most_of(counted: tuple[tuple[Sum, ...], Sum]) -> float:
            return self.elements([counted[1], *counted[0]])

        counted = Counter((tuple(inner), limit - _number(limit)) for inner, limit, _ in found if len(inner) == most)
        (inner, kind), _ = max(counted.items(), key=lambda item: (self._sized(item[0][1]), item[1], most_of(item[0])))
        if farthest:
            inner, kind = max(counted, key=most_of)
        kind = max([kind, *(each for each in guarded if not inner and _is_multiple(each, kind))], key=_factors)
        alike = [each for each in found if tuple(each[0]) == inner and each[1] - _number(each[1]) == kind]
        beyond = max(_number(limit) for _, limit, _ in alike)
        # Neighbours on both sides of what is bounded: the rim is left out in a way that was not read.
        plainly = any(not number and not _number(limit) for _, limit, number in alike)
        if plainly and (written or min(number for *_, number in alike) < 0):
            beyond = max((_number(limit) for limit in stored if limit - _number(limit) == kind), default=0)
        shape = [kind + beyond, *map(self._named, inner)]
        if any(self.elements([limit, *inner]) > self.elements(shape) for inner, limit, _ in found if not plainly):
            self.doubts[name] = BEYOND
        return shape

    def image(self, name: str, dimensions: int) -> list[Sum] | None:
        """Return the extents of an image, as NumPy counts them."""
        found: list[Sum | None] = [None] * dimensions
        for mention in self.reading.mentions:
            if mention.name != name:
                continue
            for place, coordinate in enumerate(mention.places[:dimensions]):
                ids = self._ids(self._started(coordinate))
                extent = self.axes.get(min(ids)) if len(ids) == 1 else self.upper(coordinate)
                found[place] = found[place] or extent
        whole = [each for each in found if each is not None]
        return whole[::-1] if len(whole) == dimensions else None
