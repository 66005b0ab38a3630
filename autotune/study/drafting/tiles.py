"""The extents of a work-group that a kernel's indices tell: of tiles, `group * TILE + item`, and of local arrays."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator

from autotune.study.drafting.findings import Cell
from autotune.study.drafting.indices import words
from autotune.study.drafting.reading import Reading
from autotune.study.drafting.terms import Sum, apart, places_of_group, remainder, spread_out

_MOST_ITEMS = 1024
"""The most items in a work-group that devices usually allow."""


def in_tiles(reading: Reading) -> dict[int, Sum]:
    """Return a work-group's extents by axis, from sums such as `group * TILE + item`."""
    found: dict[int, Sum] = {}
    sums = [loop.start for loop in reading.loops.values() if "lsz#" not in str(loop.step)]  # others fit any width
    sums += [guard.varying for guard in reading.guards]
    for each in (reading.started(value, shared=False) for value in (*sums, *reading.places)):
        for axis in range(3):
            extent = places_of_group(each, axis)
            several = extent is not None and (extent.names or 1 < (extent.number or 0) <= _MOST_ITEMS)
            if extent is not None and several and (axis not in found or found[axis].over(extent) is not None):
                found[axis] = extent
    return {axis: _items_of(reading, axis, extent) for axis, extent in found.items()}


def _items_of(reading: Reading, axis: int, extent: Sum) -> Sum:
    """The items of a group that uses `extent` places along an axis: fewer if each item uses several places."""
    counted = Sum.of(f"wid#{axis}") * extent + Sum.of(f"lid#{axis}")
    for name in dict.fromkeys(mention.name for mention in reading.mentions):
        rests = {place - counted for mention in reading.of(name) for place in mention.places}
        taken = {rest for rest in rests if rest == rest.fixed}.union(*(_by_turns(reading, rest) for rest in rests))
        if (items := apart(extent, taken)) != extent:
            return items
    return extent


def _by_turns(reading: Reading, value: Sum) -> set[Sum]:
    """The values of a loop variable's multiple in each turn, 0, 64, 128 for `k * 64`; empty for any other sum."""
    names = value.names & reading.loops.keys() if len(value.terms) == 1 else set[str]()
    if len(names) != 1:
        return set()
    (name,) = names
    each, turns, loop = value.factor_of(name), reading.turns(name), reading.loops[name]
    if turns is None or turns.number is None or loop.start or loop.step != Sum.of(1) or not each.known:
        return set()
    return {each * Sum.of(turn) for turn in range(min(turns.number, _MOST_ITEMS))}


def ends(reading: Reading) -> list[Sum]:
    """Return the bounds of global ids and of variables that begin at one, and the starts that conditions tell."""
    found = [*reading.starts]
    ids = [{f"gid#{axis}"} for axis in range(3)] + [{f"wid#{axis}", f"lid#{axis}"} for axis in in_tiles(reading)]
    for varying, limit in reading.guards:
        begun = (reading.loops[name].start.names for name in varying.names & reading.loops.keys())
        names = varying.names.union(*begun)
        if any(each <= names for each in ids):
            found.append(limit)
    return found


def in_local_arrays(reading: Reading, parameters: Collection[str]) -> dict[int, Sum]:
    """Return the extents that local arrays tell, by axis: `t[WG]` with `t[item]`, `k += ROWS` with `t[item + k]`.

    If none does, return those of loops that items share: `for (k = item; k < n; k += WG)`.
    """
    arrays = _LocalArrays(reading)
    steps, shared = _by_axis(arrays.steps()), _by_axis(_shared(reading))
    whole = _by_axis([*_wrapped(reading), *arrays.extents()])
    found = {}
    for axis in range(3):
        alike = {each for each in steps[axis] or whole[axis] if is_extent(each, parameters)}
        alike = alike or {each for each in shared[axis] if is_extent(each, parameters)}
        if len(alike) == 1:
            found[axis] = alike.pop()
    return found


def _by_axis(told: Iterable[tuple[int, Sum]]) -> defaultdict[int, set[Sum]]:
    found = defaultdict[int, set[Sum]](set)
    for axis, extent in told:
        found[axis].add(extent)
    return found


def is_extent(value: Sum, parameters: Collection[str]) -> bool:
    """Whether a sum is a product of parameters or their quotients, not `2 * WG`, or a power of two up to 1024."""
    if value.number is not None:
        return 1 < value.number <= _MOST_ITEMS and value.number.bit_count() == 1
    names = {word for name in value.names for word in words(name) if not word.isdigit()}
    return bool(names) and names <= {*parameters} and [*value.terms.values()] == [1]


class _LocalArrays:
    """What the places in a kernel's local arrays tell of its work-group; the methods yield pairs with the axis."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._left_out = {guard.varying for guard in reading.guards}
        """Places whose guard leaves out items: the group is wider than the array."""
        self._beside = defaultdict[tuple[str, int, Sum], set[Sum]](set)
        """The numbers that are added to the same place."""
        for cell in reading.cells:
            self._beside[self._unshifted(cell)].add(cell.place.fixed)

    def _unshifted(self, cell: Cell) -> tuple[str, int, Sum]:
        return cell.array, cell.dimension, cell.place - cell.place.fixed

    def steps(self) -> Iterator[tuple[int, Sum]]:
        """Yield the distances between the places that an item uses one after another."""
        for cell in self._reading.cells:
            if (axis := _axis_of(cell)) is not None and (step := self._stride(_beside_item(cell, axis))) is not None:
                yield axis, step
            loop = self._reading.loops.get(str(cell.place))
            step = loop.known_step if loop is not None else None
            if loop is not None and step is not None and step.names:
                yield from ((axis, step) for axis in range(3) if loop.start == Sum.of(f"lid#{axis}"))

    def _stride(self, moved: Sum) -> Sum | None:
        variables = [name for name in moved.names if "#" in name]
        if len(variables) != 1 or variables[0] not in self._reading.loops:
            return None
        step, factor = self._reading.loops[variables[0]].known_step, moved.factor_of(variables[0])
        return factor * step if step is not None and factor.known and (factor * step).names else None

    def extents(self) -> Iterator[tuple[int, Sum]]:
        """Yield the extents of arrays along which items count."""
        for cell in self._reading.cells:
            extents = self._reading.arrays[cell.array]
            extent = extents[cell.dimension] if cell.dimension < len(extents) else None
            if extent is None or (axis := _axis_of(cell)) is None:
                continue
            if moved := _beside_item(cell, axis):
                yield from _flat_rows(axis, moved, extent)
            elif extent.number is None or cell.place not in self._left_out:
                rim = cell.place.fixed - cell.place.constant
                items = apart(extent, self._beside[self._unshifted(cell)])
                yield axis, items if items != extent else _without_number(extent - rim - rim)


def _axis_of(cell: Cell) -> int | None:
    """The axis whose local id alone is added in a place."""
    axes = [axis for axis in range(3) if cell.place.factor_of(f"lid#{axis}") == Sum.of(1)]
    return axes[0] if len(axes) == 1 else None


def _beside_item(cell: Cell, axis: int) -> Sum:
    """The part of a place that varies beside the local id."""
    return cell.place - cell.place.fixed - Sum.of(f"lid#{axis}")


def _without_number(extent: Sum) -> Sum:
    """An extent with names, without the number that is added: the rim."""
    return extent if extent.number is not None else extent - extent.constant


def _flat_rows(axis: int, moved: Sum, places: Sum) -> Iterator[tuple[int, Sum]]:
    """Yield the extents, without a rim, of an array that is indexed row by row, `t[y * W + x]` in `t[H * W]`.

    None unless the local id of one other axis alone counts the rows.
    """
    other = next((each for each in range(3) if each != axis and moved.names & {f"lid#{each}"}), axis)
    row = moved.factor_of(f"lid#{other}")
    if other == axis or not row.known or moved != row * Sum.of(f"lid#{other}"):
        return
    for of, extent in ((axis, row), (other, places.over(row))):
        if extent is not None:
            yield of, _without_number((spread_out(min(extent.names)) if len(extent.names) == 1 else None) or extent)


def _wrapped(reading: Reading) -> Iterator[tuple[int, Sum]]:
    """Yield C if each index into a local array has `item % C`: more items of a group would share places."""
    for axis in range(3):
        limits = [guard.limit for guard in reading.guards]
        remainders = {remainder(Sum.of(f"lid#{axis}"), limit): limit for limit in limits}
        for array in reading.arrays:
            cells = [cell for cell in reading.cells if cell.array == array]
            names = {name for cell in cells for name in cell.place.names if f"lid#{axis}" in name}
            limit = remainders.get(Sum.of(min(names))) if len(names) == 1 else None
            without = {cell.dimension for cell in cells if not names <= cell.place.names}
            if limit is not None and {cell.dimension for cell in cells} - without:
                yield axis, limit
                break


def _shared(reading: Reading) -> Iterator[tuple[int, Sum]]:
    """Yield the steps of loops that begin at an item's local id, by axis: so many items share the loop."""
    for loop in reading.loops.values():
        axes = [axis for axis in range(3) if f"lid#{axis}" in loop.start.names]
        each = loop.start.factor_of(f"lid#{axes[0]}") if len(axes) == 1 else Sum()
        taking = loop.known_step.over(each) if loop.known_step is not None and each.known and each else None
        if taking is not None and taking == Sum.of(next(iter(taking.names), 1)):  # part of a product may be unrolling
            yield axes[0], taking
