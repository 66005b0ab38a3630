"""The work-items of a launch along each axis, in whole work-groups, from what was read of a kernel's indices."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence

from autotune.study.drafting.findings import Guard
from autotune.study.drafting.indices import Indices, coordinates, items_by_numbers, rows_of_ids, tile_of, words
from autotune.study.drafting.nouns import MUCH_NAME
from autotune.study.drafting.reading import EXTENT, Reading
from autotune.study.drafting.terms import Sum, plain, quotient

AXIS_NAMES = {1: ("N",), 2: ("WIDTH", "HEIGHT"), 3: ("NX", "NY", "NZ")}
IMAGE_NAMES = ("WIDTH", "HEIGHT", "DEPTH")
"""Names of sizes that the kernel does not take: the extents of its launch, or of images."""


def plain_call(text: str) -> str:
    """Return an expression without its calls."""
    return re.sub(r"\w+\((?:[^()]|\([^()]*\))*\)", "", text)


def extent_of(text: str) -> Sum:
    """Return an extent of a work-group as a sum."""
    return Sum.of(int(text)) if text.isdigit() else Sum.of(text if text.isidentifier() else f"({text})")


def _rounded(count: str, local: str) -> str:
    return count if local == "1" else f"round_up({count}, {plain(local)})"


def _in_groups(groups: str, local: str) -> str:
    if local == "1":
        return groups
    groups = f"({groups})" if " " in plain_call(groups) else groups
    return f"{groups} * {local if local.isalnum() or local.isidentifier() else f'({plain(local)})'}"


class Launches(Indices):
    """The launch of one kernel, from its reading; `sizes` are its whole numbers, and whether each is small.

    `local` are the extents of a work-group. `inferred` are the axes that no guard bounds as it should.
    Sizes that had to be made up are added to `made`, under names that are not `taken`. `each`: the number of places
    that an item writes along axes that nothing bounds, if it is known already.
    """

    def __init__(
        self,
        reading: Reading,
        sizes: Mapping[str, bool],
        local: Sequence[str],
        taken: Iterable[str],
        made: dict[str, str],
        each: Mapping[int, Sum],
    ) -> None:
        super().__init__(reading, sizes, made)
        self._local, self._taken, self.each = local, set(taken), {**each}
        self._places = [self._started(place) for place in reading.places]
        self._stored = [place for each in reading.stores for place in each.places]
        self.axes: dict[int, Sum] = {}
        self.rows: dict[int, Sum] = {}
        """The number of work-groups along axes where each has its own place and nothing says how many there are."""
        self.tiles: dict[int, Sum] = {}
        """The number of places in each work-group's tile, along axes with tiles."""
        self.wholes: dict[int, Sum] = {}
        """The number of places along axes that nothing bounds; each item may write several of them."""
        self._limits: dict[tuple[int, Sum, Sum], Sum] = {}
        self._open = {axis for axis in range(3) if self._is_open(axis)}
        parted = {name for varying in reading.parted for name in self._started(varying).names}
        self.barred = {axis for axis in range(3) if f"gid#{axis}" in parted}
        """Axes along which a guard keeps items from a barrier that all items of a group have to reach."""
        self.inferred = self._open | self.barred
        for axis in range(3):
            if (extent := self._axis(axis)) is not None:
                self.axes[axis] = self._named(extent)
            elif axis < len(local) and self._is_grouped(axis):
                self.inferred.add(axis)
                name = "GROUPS" if len(local) == 1 else f"GROUPS_{'XYZ'[axis]}"
                self.rows[axis] = self._row_of_groups(axis) or self._left(axis, name)

    @abstractmethod
    def _in_turns(self, index: Sum) -> Sum:
        """Replace variables that a loop steps beside its bounded one by their start plus turns times steps."""

    def strides(self, name: str) -> set[str]:
        """Return the names in the factors of a buffer's places, and in the steps of loops that count them."""
        places = [place for mention in self.reading.of(name) for place in mention.places]
        steps = [self.reading.loops[each].step for place in places for each in place.names & self.reading.loops.keys()]
        products = [product for place in places for product in self._started(place).varying]
        return {each for product in products for each in product} | {n for step in steps if step for n in step.names}

    def each_with_each(self) -> bool:
        """Whether every work-item loops over as much as the launch counts."""
        alone = [guard.limit for guard in self.reading.guards if not self._ids(self._started(guard.varying))]
        return any(extent in alone for extent in self.axes.values())

    # -- the launch -------------------------------------------------------------------------------

    def _guards(self, axis: int) -> list[Guard]:
        """Return the guards on an axis of the launch, the plainest first.

        If items write places that no comparison keeps them from, the limits are without the rim.
        """
        found = [
            Guard(varying, limit - min(limit.constant, 0) if axis in self._open else limit)
            for varying, limit in self.reading.guards
            if self._ids(self._started(varying)) == {axis} and limit.names and not limit.names <= set(self._local)
        ]
        found.sort(key=lambda guard: (not self._sized(guard.limit), len(guard.limit.terms)))
        return [Guard(found[0].varying, self._largest(axis, *found[0])), *found[1:]] if found else []

    def _largest(self, axis: int, varying: Sum, limit: Sum) -> Sum:
        """Return the largest of a guard's limit and those where other things are written: in two `if`s, `max(n, m)`."""
        if (axis, varying, limit) not in self._limits:
            written = [
                {told for other, told in self.holding(number) if other == varying and self._sized(told)}
                for number, mention in enumerate(self.reading.mentions)
                if mention.writes and any(axis in self._ids(self._started(each)) for each in mention.places)
            ]
            others = {min(told, key=lambda each: (len(each.terms), str(each))) for told in written if told - {limit}}
            most = limit
            if all(written) and not all(limit in told for told in written):
                for other in sorted((each for each in others if each.known), key=str):
                    ahead = [*(other - most).terms.values()]
                    if min(ahead, default=0) >= 0:
                        most = other
                    elif max(ahead) > 0:
                        most = Sum.of(f"max({most}, {other})")
            self._limits[axis, varying, limit] = most
        return self._limits[axis, varying, limit]

    def holding(self, number: int) -> list[Guard]:
        """Return the comparisons, as guards, that hold where a mention is, or that only choose between values."""
        return [each.guard for each in self.reading.comparisons if each.holds(number) or each.chooses]

    def _is_open(self, axis: int) -> bool:
        """Whether items along an axis write their own places without any comparison that could keep them from it."""
        of_axis = [each for each in self.reading.comparisons if axis in self._ids(self._started(each.guard.varying))]
        return any(
            mention.writes
            and any(f"gid#{axis}" in self._started(place).names for place in mention.places)
            and not any(each.holds(number) for each in of_axis)
            for number, mention in enumerate(self.reading.mentions)
        )

    def _used(self, axis: int) -> bool:
        """Whether the work-items along an axis do different things."""
        sums = [*self._places, *(self._started(guard.varying) for guard in self.reading.guards)]
        return any(axis in self._ids(each) for each in sums)

    def _axis(self, axis: int) -> Sum | None:
        """Return what an axis of the launch counts to; a made-up size if the kernel does not bound it."""
        for varying, limit in self._guards(axis):
            if self._sized(limit) and any(f"{kind}#{axis}" in self._started(varying).names for kind in ("gid", "wid")):
                return self._named(limit)
        indices = [each for each in self._places if f"gid#{axis}" in each.names]
        if not indices:
            return self._tiled(axis)
        self.inferred.add(axis)
        stored = {self._started(place) for place in self._stored}
        indices.sort(key=lambda index: index not in stored)  # written places tell more
        turning = {
            self._started(place): self._in_turns(place)
            for place in sorted(self.reading.places, key=lambda each: len(each.names))
        }
        images = {self._started(place) for place in coordinates(self.reading)}
        plain_ones = [each for each in indices if not self._strided(each) and each not in images]
        rows = [
            self._along(extent, counted, axis, written=each in stored)
            for each in plain_ones
            for extent, counted in (self._levels(turning[each]) or self._levels(each))[1:]
            if f"gid#{axis}" in counted.names
        ]
        if rows:  # the shortest row of the kind: others have a rim
            kind = [each for each in rows if {*words(str(each))} & {*words(str(rows[0]))}]
            return min(kind, key=lambda extent: self.elements([extent]))
        plain, own = [one.name for one in self.reading.mentions if len(one.places) == 1], set(indices)
        for name in dict.fromkeys(plain):  # an array whose other indices are bounded by guards
            others = {each.places[0] for each in self.reading.of(name)}
            if others & own and (found := next((u for i in others if (u := self._counted(i))), None)):
                return found
        apart = [name for name in sorted(rows_of_ids(self.reading, [axis])) if self._sized(Sum.of(name))]
        if len(apart) == 1 and apart[0] not in self._small:
            return Sum.of(apart[0])
        if numbers := [*filter(None, (items_by_numbers(place, axis) for place in self._stored))]:
            return Sum.of(min(numbers))
        names = IMAGE_NAMES if images else AXIS_NAMES[3 if self._used(2) else 2 if self._used(1) else 1]
        spread = {turns for place in self._stored if (turns := self._over_launch(place, axis))}
        self._note_each(axis, spread or {each.factor_of(f"gid#{axis}") for each in own & stored})
        self.wholes[axis] = self._left(axis, names[axis])
        return quotient(self.wholes[axis], self.each.get(axis, Sum.of(1)))

    def _over_launch(self, index: Sum, axis: int) -> Sum:
        """How often a loop steps an index by the global size: WPT in `k * get_global_size(0) + item`; 0 for others."""
        steps = (name for name in index.names if index.factor_of(name) == Sum.of(f"gsz#{axis}"))
        turns = self.upper(Sum.of(next(steps, "#"))) if index.factor_of(f"gid#{axis}") == Sum.of(1) else None
        return turns if turns is not None and turns.known else Sum()

    def _note_each(self, axis: int, factors: set[Sum]) -> None:
        """Note the number of places that each item writes, if parameters give it: `y[item * WPT + k]`."""
        each = factors.pop() if len(factors) == 1 else Sum()
        if self._is_share(each):
            self.each.setdefault(axis, each)

    def _is_share(self, each: Sum) -> bool:
        return each.known and bool(each.names) and not self._sized(each)

    def _along(self, extent: Sum, counted: Sum, axis: int, *, written: bool) -> Sum:
        """The number of items along a row: without its rim, and fewer if each item writes several places."""
        each = counted.factor_of(f"gid#{axis}")
        several = max(each.number or 1, 1)
        rim = Sum.of(max(counted.constant, 0) // several * several)
        beyond = self.upper(counted - Sum.of(f"gid#{axis}")) if each.number == 1 else None
        if beyond is not None and beyond.names and beyond.names <= self._sizes.keys():  # `i + k`, all along a mask
            rim = beyond - 1
        extent = extent - rim
        return quotient(extent, each) if written and (several > 1 or self._is_share(each)) else extent

    def _tiled(self, axis: int) -> Sum | None:
        """Return what an axis counts to if each work-group has its own tile and no guard bounds it; None for others."""
        stored = {self._started(place) for place in self._stored}
        places = sorted(self._places, key=lambda place: place not in stored)  # what is read may have a rim
        found = [self._levels(each) for each in places if f"wid#{axis}" in each.names]
        rows = [levels[0] for levels in found if levels]
        for extent, counted in [*(level for levels in found for level in levels[1:]), *rows]:
            tile = tile_of(counted, axis) if not self._guards(axis) else None
            if tile is not None and (name := "" if extent else self._unused(axis)):
                extent = Sum.of(name)
            if tile is not None and extent and extent.known:
                self.tiles[axis] = self._named(tile)
                self.inferred.add(axis)
                return self._named(extent)
        return None

    def _is_grouped(self, axis: int) -> bool:
        """Whether each work-group along an axis has its own places and no guard bounds them."""
        return any(each.factor_of(f"wid#{axis}") for each in self._places) and not self._guards(axis)

    def _row_of_groups(self, axis: int) -> Sum | None:
        """Return the length of rows in which each group is an element, W in `(y * W + group) * 64 + item`; or None."""
        levels = (level for place in self._stored for level in self._levels(place)[1:])
        alone = (extent for extent, counted in levels if counted == Sum.of(f"wid#{axis}"))
        return next((self._named(extent) for extent in alone if extent.known and self._sized(extent)), None)

    def _left(self, axis: int, name: str) -> Sum:
        """Return the size that counts along an axis: a size that nothing else uses, or else a new one of that name."""
        return Sum.of(self._unused(axis) or self._new(name))

    def _unused(self, axis: int) -> str:
        """Return a size that nothing but an axis can use; an empty string if there is none."""
        indices = [each for each in self._places if axis in self._ids(each)]
        bounds = [guard.limit for guard in self.reading.guards]
        bounds += [quotient.by for quotient in self.reading.quotients.values()]
        bounds += [loop.start for loop in self.reading.loops.values()]
        names = {each for bound in bounds for each in bound.names}
        names |= {each for index in indices for each in index.names if "#" not in each}
        bounded = {word for each in names for word in words(each)}
        taken = {str(extent) for extent in (*self.axes.values(), *self.rows.values())}
        left = [size for size in self._sizes if size not in {*bounded, *self._small, *taken} and MUCH_NAME.search(size)]
        return left[0] if left else ""

    def _counted(self, index: Sum) -> Sum | None:
        """The limit of an index, if a guard has exactly this index."""
        return next((self._named(limit) for limit in self.reading.limits_of(index) if self._sized(limit)), None)

    def _new(self, name: str) -> str:
        while name in self._taken and name not in self.made:
            name += "_"
        self.made[name] = "guess: the kernel has no such argument"
        return name

    def _grouped(self, value: Sum) -> Sum:
        """Replace local sizes by the extents of the work-group."""
        for axis, local in enumerate(self._local):
            value = value.with_value(f"lsz#{axis}", extent_of(local))
        return value

    def _named(self, value: Sum) -> Sum:
        """Replace local sizes by the extents of the work-group, and extents of images by named sizes."""
        value = self._grouped(value)
        for axis in range(3):
            if f"{EXTENT}{axis}" in value.names:
                value = value.with_value(f"{EXTENT}{axis}", Sum.of(self._new(IMAGE_NAMES[axis])))
        return value

    def items(self, axis: int) -> str | None:
        """Return the work-items along an axis as an expression; None if nothing says how many."""
        local = self._local[axis]
        group, whole = extent_of(local), "1" if axis in self.inferred else local
        for varying, limit in self._guards(axis):
            extent = self._named(limit)
            for loop in [self.reading.loops[name] for name in varying.names & self.reading.loops.keys()]:
                if loop.step == Sum.of(f"gsz#{axis}") and self._is_summed(axis):
                    return plain(local)
                step = loop.known_step
                stated = step is not None and (step.names or (step.number or 0) > 1)
                item = Sum.of(f"wid#{axis}") * group + Sum.of(f"lid#{axis}")  # with the macro for the size of a group
                if stated and self._started(loop.start) in (Sum.of(f"gid#{axis}"), item):
                    return str(step)
            begun = self._started(varying)
            each = begun.factor_of(f"gid#{axis}")
            groups = begun.factor_of(f"wid#{axis}").with_value(f"lsz#{axis}", group)
            if each.known and each:
                for name in varying.names:  # a loop over the whole launch
                    turns = self.upper(Sum.of(name)) if varying.factor_of(name) == Sum.of(f"gsz#{axis}") else None
                    each = turns if turns is not None and turns.known else each
                return _rounded(str(extent) if each == Sum.of(1) else f"ceil_div({extent}, {each})", whole)
            if groups.known and groups:
                if groups == group:
                    return _rounded(str(extent), whole)
                return _in_groups(str(extent) if groups == Sum.of(1) else f"ceil_div({extent}, {groups})", local)
        if axis in self.tiles and self.tiles[axis] != group:
            return _in_groups(f"ceil_div({self.axes[axis]}, {self.tiles[axis]})", local)
        if axis in self.axes:  # if nothing bounds the axis, no more items than there are places
            return str(self.axes[axis]) if axis in self.inferred else _rounded(str(self.axes[axis]), local)
        if axis in self.rows:
            return str(self.rows[axis] if local == "1" else self.rows[axis] * group)
        alone = (
            axis in self.reading.ids.lone and not self.reading.ids.lost and not self._used(axis)
        )  # one item does it all
        return None if axis in self.reading.ids.spread and not alone else plain(local)

    def _is_summed(self, axis: int) -> bool:
        """Whether there can be only one group along an axis: its result is at a place that others would write too."""
        met = [(each.kind, self._started(place).names) for each in self.reading.stores for place in each.places]
        by_item = any(names & {f"gid#{axis}", f"wid#{axis}"} for _, names in met)
        return not by_item and any(kind == "write" and f"lid#{axis}" not in names for kind, names in met)

    def _groups(self, axis: int) -> Sum | None:
        """The number of work-groups along an axis; None if unknown."""
        if axis in self.rows:
            return self.rows[axis]
        items = self.items(axis) if axis < len(self._local) else None
        if items is None:
            return None
        local = self._local[axis]
        if items.endswith(f" * {local}"):
            items = items.removesuffix(f" * {local}")
            return Sum.of(f"({items})" if " " in plain_call(items) else items)
        return Sum.of(f"ceil_div({items}, {plain(local)})")
