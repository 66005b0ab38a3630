"""What each axis of a launch counts to, from what was read of a kernel's indices and guards."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property

from autotune.study.drafting.findings import Guard, Mention
from autotune.study.drafting.indices import (
    Basis,
    Indices,
    coordinates,
    items_by_numbers,
    rows_of_ids,
    tile_of,
    words,
)
from autotune.study.drafting.nouns import MUCH_NAME
from autotune.study.drafting.reading import EXTENT
from autotune.study.drafting.terms import Sum, quotient

AXIS_NAMES = {1: ("N",), 2: ("WIDTH", "HEIGHT"), 3: ("NX", "NY", "NZ")}
IMAGE_NAMES = ("WIDTH", "HEIGHT", "DEPTH")
"""Names of sizes that the kernel does not take: the extents of its launch, or of images."""


def extent_of(text: str) -> Sum:
    """Return an extent of a work-group as a sum."""
    return Sum.of(int(text)) if text.isdigit() else Sum.of(text if text.isidentifier() else f"({text})")


class Axes(Indices, ABC):
    """The axes of one kernel's launch. `inferred`: those that no guard bounds as it should."""

    def __init__(self, basis: Basis) -> None:
        super().__init__(basis)
        self._local, self._taken, self.each = basis.local, {*basis.taken}, {**basis.each}
        self._places = [self._started(place) for place in self.reading.places]
        self._stored = [place for each in self.reading.stores for place in each.places]
        self.axes: dict[int, Sum] = {}
        self.rows: dict[int, Sum] = {}
        """The number of work-groups along axes where each has its own place and nothing says how many there are."""
        self.tiles: dict[int, Sum] = {}
        """The number of places in each work-group's tile, along axes with tiles."""
        self.wholes: dict[int, Sum] = {}
        """The number of places along axes that nothing bounds; each item may write several of them."""
        self._limits: dict[tuple[int, Sum, Sum], Sum] = {}
        self._open = {axis for axis in range(3) if self._is_open(axis)}
        parted = {name for varying in self.reading.parted for name in self._started(varying).names}
        self.barred = {axis for axis in range(3) if f"gid#{axis}" in parted}
        """Axes along which a guard keeps items from a barrier that all items of a group have to reach."""
        self.inferred = self._open | self.barred
        for axis in range(3):
            if (extent := self._axis(axis)) is not None:
                self.axes[axis] = self._named(extent)
            elif axis < len(self._local) and self._is_grouped(axis):
                self.inferred.add(axis)
                name = "GROUPS" if len(self._local) == 1 else f"GROUPS_{'XYZ'[axis]}"
                self.rows[axis] = self._row_of_groups(axis) or self._left(axis, name)

    @abstractmethod
    def _in_turns(self, index: Sum) -> Sum:
        """Replace variables that a loop steps beside its bounded one by their start plus turns times steps."""

    # -- guards -----------------------------------------------------------------------------------

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
                {told for other, told in self.holding(mention) if other == varying and self._sized(told)}
                for mention in self.reading.stores
                if any(axis in self._ids(self._started(each)) for each in mention.places)
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

    def holding(self, mention: Mention) -> list[Guard]:
        """Return the comparisons, as guards, that hold where a mention is, or that only choose between values."""
        return [each.guard for each in self.reading.comparisons if each.holds(mention) or each.chooses]

    def _is_open(self, axis: int) -> bool:
        """Whether items along an axis write their own places without any comparison that could keep them from it."""
        of_axis = [each for each in self.reading.comparisons if axis in self._ids(self._started(each.guard.varying))]
        return any(
            any(f"gid#{axis}" in self._started(place).names for place in mention.places)
            and not any(each.holds(mention) for each in of_axis)
            for mention in self.reading.stores
        )

    def _used(self, axis: int) -> bool:
        """Whether the work-items along an axis do different things."""
        sums = [*self._places, *(self._started(guard.varying) for guard in self.reading.guards)]
        return any(axis in self._ids(each) for each in sums)

    # -- what an axis counts to -------------------------------------------------------------------

    def _axis(self, axis: int) -> Sum | None:
        """Return what an axis of the launch counts to; a made-up size if the kernel does not bound it."""
        if (bound := self._bounded(axis)) is not None:
            return bound
        if not self._indices(axis):
            return self._tiled(axis)
        self.inferred.add(axis)
        ways = (self._shortest_row, self._beside_bounded, self._row_alone, self._by_numbers, self._unbounded)
        return next(found for way in ways if (found := way(axis)) is not None)

    def _bounded(self, axis: int) -> Sum | None:
        """The limit of the plainest guard on an axis."""
        for varying, limit in self._guards(axis):
            if self._sized(limit) and self._started(varying).names & {f"gid#{axis}", f"wid#{axis}"}:
                return self._named(limit)
        return None

    def _indices(self, axis: int) -> list[Sum]:
        """The places along an axis, written ones first, as these tell more."""
        indices = [each for each in self._places if f"gid#{axis}" in each.names]
        return sorted(indices, key=lambda index: index not in self._written)

    @cached_property
    def _written(self) -> set[Sum]:
        return {self._started(place) for place in self._stored}

    @cached_property
    def _in_images(self) -> set[Sum]:
        return {self._started(place) for place in coordinates(self.reading)}

    def _shortest_row(self, axis: int) -> Sum | None:
        """The shortest of the rows along which items count: others have a rim."""
        turning = {
            self._started(place): self._in_turns(place)
            for place in sorted(self.reading.places, key=lambda each: len(each.names))
        }
        rows = [
            self._along(extent, counted, axis, written=each in self._written)
            for each in self._indices(axis)
            if not self._strided(each) and each not in self._in_images
            for extent, counted in (self._levels(turning[each]) or self._levels(each))[1:]
            if f"gid#{axis}" in counted.names
        ]
        kind = [each for each in rows if {*words(str(each))} & {*words(str(rows[0]))}]
        return min(kind, key=lambda extent: self.elements([extent]), default=None)

    def _beside_bounded(self, axis: int) -> Sum | None:
        """The limit of an array's other indices, if guards bound these."""
        own = {*self._indices(axis)}
        for name in dict.fromkeys(one.name for one in self.reading.mentions if len(one.places) == 1):
            places = dict.fromkeys(each.places[0] for each in self.reading.of(name))
            limits = (limit for place in places for limit in self.reading.limits_of(place) if self._sized(limit))
            if own & places.keys() and (limit := next(limits, None)) is not None:
                return self._named(limit)
        return None

    def _row_alone(self, axis: int) -> Sum | None:
        """The only size that is the length of rows along an axis."""
        apart = [name for name in rows_of_ids(self.reading, [axis]) if self._sized(Sum.of(name))]
        return Sum.of(apart[0]) if len(apart) == 1 and apart[0] not in self._small else None

    def _by_numbers(self, axis: int) -> Sum | None:
        numbers = [*filter(None, (items_by_numbers(place, axis) for place in self._stored))]
        return Sum.of(min(numbers)) if numbers else None

    def _unbounded(self, axis: int) -> Sum | None:
        """The share of a size that nothing else uses, or of a new one."""
        names = IMAGE_NAMES if self._in_images else AXIS_NAMES[3 if self._used(2) else 2 if self._used(1) else 1]
        spread = {turns for place in self._stored if (turns := self._over_launch(place, axis))}
        own = {*self._indices(axis)} & self._written
        each = spread or {place.factor_of(f"gid#{axis}") for place in own}
        if len(each) == 1 and self._is_share(share := each.pop()):  # `y[item * WPT + k]`
            self.each.setdefault(axis, share)
        self.wholes[axis] = self._left(axis, names[axis])
        return quotient(self.wholes[axis], self.each.get(axis, Sum.of(1)))

    def _over_launch(self, index: Sum, axis: int) -> Sum:
        """How often a loop steps an index by the global size: WPT in `k * get_global_size(0) + item`; 0 for others."""
        steps = (name for name in index.names if index.factor_of(name) == Sum.of(f"gsz#{axis}"))
        turns = self.upper(Sum.of(next(steps, "#"))) if index.factor_of(f"gid#{axis}") == Sum.of(1) else None
        return turns if turns is not None and turns.known else Sum()

    def _is_share(self, each: Sum) -> bool:
        """Whether parameters give the number of places that each item writes."""
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
        outermost = [levels[0] for levels in found if levels]
        for extent, counted in [*(level for levels in found for level in levels[1:]), *outermost]:
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

    # -- names ------------------------------------------------------------------------------------

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
