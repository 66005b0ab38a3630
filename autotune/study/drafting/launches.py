"""The work-items of a launch along each axis, in whole work-groups, from what was read of a kernel's indices."""

from __future__ import annotations

import re
from abc import ABC

from autotune.study.drafting.axes import Axes, extent_of
from autotune.study.drafting.findings import Guard
from autotune.study.drafting.terms import Sum, plain


def plain_call(text: str) -> str:
    """Return an expression without its calls."""
    return re.sub(r"\w+\((?:[^()]|\([^()]*\))*\)", "", text)


def _rounded(count: str, local: str) -> str:
    return count if local == "1" else f"round_up({count}, {plain(local)})"


def _in_groups(groups: str, local: str) -> str:
    if local == "1":
        return groups
    groups = f"({groups})" if " " in plain_call(groups) else groups
    return f"{groups} * {local if local.isalnum() or local.isidentifier() else f'({plain(local)})'}"


def _parts(extent: Sum, each: Sum) -> str:
    return str(extent) if each == Sum.of(1) else f"ceil_div({extent}, {each})"


class Launches(Axes, ABC):
    """The launch of one kernel."""

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

    def items(self, axis: int) -> str | None:
        """Return the work-items along an axis as an expression; None if nothing says how many."""
        local = self._local[axis]
        group = extent_of(local)
        guards = (self._in_loops(axis, guard) or self._shared_by(axis, guard) for guard in self._guards(axis))
        if told := next(filter(None, guards), ""):
            return told
        if axis in self.tiles and self.tiles[axis] != group:
            return _in_groups(f"ceil_div({self.axes[axis]}, {self.tiles[axis]})", local)
        if axis in self.axes:  # if nothing bounds the axis, no more items than there are places
            return str(self.axes[axis]) if axis in self.inferred else _rounded(str(self.axes[axis]), local)
        if axis in self.rows:
            return str(self.rows[axis] if local == "1" else self.rows[axis] * group)
        ids = self.reading.ids
        alone = axis in ids.lone and not ids.lost and not self._used(axis)  # one item does it all
        return None if axis in ids.spread and not alone else plain(local)

    def _in_loops(self, axis: int, guard: Guard) -> str:
        """The items if the guarded variable's loop takes steps of the whole launch; or an empty string."""
        local = self._local[axis]
        for loop in [self.reading.loops[name] for name in guard.varying.names & self.reading.loops.keys()]:
            if loop.step == Sum.of(f"gsz#{axis}") and self._is_summed(axis):
                return plain(local)
            step = loop.known_step
            stated = step is not None and (step.names or (step.number or 0) > 1)
            item = Sum.of(f"wid#{axis}") * extent_of(local) + Sum.of(f"lid#{axis}")  # with the macro for a group's size
            if stated and self._started(loop.start) in (Sum.of(f"gid#{axis}"), item):
                return str(step)
        return ""

    def _shared_by(self, axis: int, guard: Guard) -> str:
        """The items that share what a guard counts to; an empty string if neither items nor groups do."""
        local, begun, extent = self._local[axis], self._started(guard.varying), self._named(guard.limit)
        group, whole = extent_of(local), "1" if axis in self.inferred else local
        each = begun.factor_of(f"gid#{axis}")
        groups = begun.factor_of(f"wid#{axis}").with_value(f"lsz#{axis}", group)
        if each.known and each:
            for name in guard.varying.names:  # a loop over the whole launch
                turns = self.upper(Sum.of(name)) if guard.varying.factor_of(name) == Sum.of(f"gsz#{axis}") else None
                each = turns if turns is not None and turns.known else each
            return _rounded(_parts(extent, each), whole)
        if groups.known and groups:
            return _rounded(str(extent), whole) if groups == group else _in_groups(_parts(extent, groups), local)
        return ""

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
