"""The extents of a work-group that a kernel's indices tell: of tiles, `group * TILE + item`, and of local arrays."""

from __future__ import annotations

from autotune.study.drafting.reading import Reading
from autotune.study.drafting.terms import Sum, apart, places_of_group

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
