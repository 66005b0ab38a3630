"""The proposed work-group of a kernel: from its attribute, the extents of local arrays, and the names of macros."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from autotune.errors import UsageError
from autotune.expression import Expression
from autotune.study.drafting.findings import Loop
from autotune.study.drafting.functions import reached
from autotune.study.drafting.indices import flat_rows, words, wrapped
from autotune.study.drafting.parts import alike
from autotune.study.drafting.reading import Reading
from autotune.study.drafting.scanning import number_of
from autotune.study.drafting.syntax import closing, names_in, split, tokens_of
from autotune.study.drafting.terms import Sum, apart, plain
from autotune.study.drafting.tiles import in_tiles

if TYPE_CHECKING:
    from autotune.study.drafting.proposal import Proposal

EXTENT_NAME = re.compile(
    r"(WG|WGS|LWS|WORK_?GROUP|GROUP|LOCAL|BLOCK|THREADS?|TB|BS|LS)(_?SIZE|_?DIM)?_?[XYZ012]?|[WLB][XYZ]", re.IGNORECASE
)
"""Names of macros that can only be extents of a work-group."""
_NEAR = re.compile(r"(^|_)(WG|WGS|LWS|GROUP|BLOCK|LOCAL|THREADS|BS|LS)|DIM", re.IGNORECASE)
_COUNTED = re.compile(r"(GROUPS|BLOCKS|TILES)($|_)|^(NUM|N)_|_(COUNT|NUM)$|^N(GROUPS|BLOCKS|THREADS)", re.IGNORECASE)
"""Names that say how many work-groups there are."""
_SIDE = re.compile(r"(^|[A-Z0-9]_?|_)[XYZ]$|(TILE|SIZE)", re.IGNORECASE)
"""Names of macros that may be extents although the kernel itself does not use them."""
_ASKS = re.compile(
    r"get_(global|local|group|num_groups|enqueued|sub_group|max_sub)|(sub|work)_group_|async_work|barrier"
)

_REQUIRED = "reqd_work_group_size"
_MOST_TEXT = 1000
"""The longest text of an extent that is read, in characters."""

BY_ARRAYS = "from the kernel's own numbers: the size of its local arrays, or the steps of its loops"
BY_NAME = "by its name; nothing else in the kernel gives the work-group"
BY_TASK = "the number of items decides what is computed"
BY_PLACES = "from the places per group; nothing says that an item takes only one"


FIRST = {1: 64, 2: 16, 3: 4}
"""The default of a work-group's extents that nothing tells, by their number."""


class Group(NamedTuple):
    """The extents of a work-group; `doubt`: why it is a guess, or an empty string if the kernel says it."""

    extents: list[str]
    doubt: str = ""


def work_group(of: Proposal, entry: str, reading: Reading, dimensions: int) -> Group | None:
    """Return the work-group of a kernel, in terms of its macros; None if nothing tells it."""
    if required := _required(of, entry):
        asked = max([dimensions, *(axis + 1 for axis, extent in enumerate(required) if extent != "1")])
        return Group(required[:asked])
    wide = _wide_axes(of, entry, reading) or {*range(dimensions)}
    held = _held(reading, set(of.parameters))
    if wide <= held.keys() and any(held[axis].names for axis in wide):
        return Group([str(held[axis]) if axis in wide else "1" for axis in range(dimensions)])
    arrays = _held(of.read_by_own_names(entry), {*of.parameters, *of.own})
    if wide <= arrays.keys():
        said = all(arrays[axis].names and all(map(EXTENT_NAME.fullmatch, arrays[axis].names)) for axis in wide)
        named = [str(arrays[axis]) if axis in wide else "1" for axis in range(dimensions)]
        extents = _in_numbers(of, named)
        for axis in wide & held.keys():  # the smaller of two numbers, as with `t[WIDE]` and `t[item + 256]`
            most, least = extents[axis], held[axis].number
            extents[axis] = str(least) if least is not None and most.isdigit() and least < int(most) else most
        return Group(extents, "" if said else BY_ARRAYS)
    shares = _shares(reading)
    named = [name for name in of.parameters if not _COUNTED.search(name) and name not in shares]
    exact = [name for name in named if EXTENT_NAME.fullmatch(name) and not of.is_idle(name)]
    near = [name for name in named if (EXTENT_NAME.fullmatch(name) or _NEAR.search(name)) and not of.is_idle(name)]
    if found := _of_names(of.parameters, exact, wide, dimensions):
        return Group(found)
    places = _by_places(reading) | held
    if len(places) == dimensions:
        return Group([str(places[axis]) for axis in range(dimensions)], BY_PLACES)
    if found := _of_names(of.parameters, near, wide, dimensions):
        return Group(found, BY_NAME)
    if found := _of_own_names(of, entry, wide, dimensions):
        return Group(_in_numbers(of, found), BY_NAME)
    counted = _in_own_numbers(of, entry)
    if wide and wide <= counted.keys():
        return Group([counted[axis] if axis in wide else "1" for axis in range(dimensions)], BY_PLACES)
    idle = [name for name in named if of.is_idle(name) and (_NEAR.search(name) or _SIDE.search(name))]
    idle += [name for name in named if of.is_idle(name) and EXTENT_NAME.fullmatch(name) and name not in idle]
    if len(idle) == dimensions:
        return Group(sorted(idle, key=_axis), "" if all(map(EXTENT_NAME.fullmatch, idle)) else BY_NAME)
    for names in (near, idle):
        if 0 < len(names) == dimensions - 1:  # flat along the last axis
            return Group([*sorted(names, key=_axis), "1"], BY_NAME)
    return None


def _shares(reading: Reading) -> set[str]:
    """The names that say how many places each item has, DIM in `item * DIM + c`: they are not the width of a group."""
    products = [product for place in reading.places for product in reading.started(place).terms]
    return {name for product in products if any(each[:4] == "gid#" for each in product) for name in product}


MADE = frozenset({"WG", "WX", "WY", "WZ"})
"""Names of new parameters, for extents that are no macro of the kernel."""
OF_GROUPS = "work-items of a work-group"


def widths(default: int) -> list[int]:
    """Return the proposed values of a new parameter: smaller ones if there are several."""
    return [32, 64, 128, 256] if default == 64 else [4, 8, 16, 32]


def made_up(of: Proposal, entry: str, reading: Reading, dimensions: int) -> Group:
    """Return a work-group of new parameters, except along axes whose extent the kernel's indices tell."""
    names = ["WG"] if dimensions == 1 else [f"W{axis}" for axis in "XYZ"[:dimensions]]
    if axes := _wide_axes(of, entry, reading):
        names = [name if axis in axes else "1" for axis, name in enumerate(names)]
    told = _in_own_numbers(of, entry) | {axis: str(extent) for axis, extent in _by_places(reading).items()}
    before = alike({other: of.read_by_own_names(other) for other in (*of.locals, entry)}, entry)
    if before and dimensions == len(of.locals[before]) == 1:
        return Group([*of.locals[before]], f"as wide as groups of {before}, as it takes a part of each")
    told = {axis: extent for axis, extent in told.items() if axis < dimensions and names[axis] != "1"}
    doubt, wide = BY_PLACES if told else "", sum(name != "1" for name in names)
    for axis in [axis for axis, name in enumerate(names) if name in MADE and axis not in told and wide > 1]:
        if _counts_alone(of, entry, reading, axis):
            told[axis], doubt = str(FIRST[wide]), BY_TASK
    return Group([told.get(axis, name) for axis, name in enumerate(names)], doubt)


def _counts_alone(of: Proposal, entry: str, reading: Reading, axis: int) -> bool:
    """Whether only the local ids of a single group, without a bound, count the written places along an axis."""
    item, shared = f"lid#{axis}", _in_local(of, entry)
    written = [each for each in reading.stores if each.name not in shared]
    counted = any(item in place.names for each in written for place in each.places)
    bounded = any(item in reading.started(guard.varying).names for guard in reading.guards)
    return axis not in reading.ids.spread and counted and not bounded


def _by_places(reading: Reading) -> dict[int, Sum]:
    """Return a work-group's extents by axis as indices `group * EXTENT + item` tell them, if they contain names."""
    return {axis: extent for axis, extent in in_tiles(reading).items() if extent.names}


def _in_local(of: Proposal, entry: str) -> set[str]:
    """The arguments of a kernel that are local memory."""
    return {one.name for one in of.sketch.signatures[entry] if one.address == "local"}


def _wide_axes(of: Proposal, entry: str, reading: Reading) -> set[int]:
    """Return the axes along which a group may be wider than one item.

    Along others all items do the same, or write the same places.
    """
    ids, shared = reading.ids, reading.arrays or _in_local(of, entry)
    return ids.within if ids.within and shared else ids.items


def by_default(extent: str, defaults: Mapping[str, int]) -> str:
    """Return an extent of a work-group with its names replaced by numbers, evaluated; "1" if that fails."""
    filled = re.sub(r"[A-Za-z_]\w*", lambda name: str(defaults.get(name[0], 1)), extent)
    if re.fullmatch(r"[\d\s()+*/%-]{1,200}", filled) is None:
        return "1"
    try:
        return str(int(Expression.parse(filled).evaluate({})))
    except UsageError:  # divided by 0, or beyond what is counted
        return "1"


def is_of_group(name: str) -> bool:
    """Whether a macro's name suggests the extent of a work-group, or the number of work-groups."""
    return any(pattern.search(name) for pattern in (EXTENT_NAME, _NEAR, _COUNTED))


def is_alone(of: Proposal, entry: str) -> bool:
    """Whether neither a kernel nor what it calls asks for ids or uses barriers: one work-item does all the work."""
    functions = of.code.functions(of.kept(tuned=True))
    seen, due = set[str](), [entry]
    while due:
        seen.add(name := due.pop())
        if name not in functions or any(_ASKS.match(token) for token in functions[name].body):
            return False
        due += [token for token in functions[name].body if token in functions and token not in seen]
    return True


def _counted(reading: Reading, own: Collection[str]) -> dict[int, Sum]:
    """Return the extents in indices `group * EXTENT + item`, in numbers or `own` names, if all of a group count."""
    guarded = [guard.varying.names for guard in reading.guards]
    left_out = {axis for axis in range(3) for names in guarded if f"lid#{axis}" in names and f"wid#{axis}" not in names}
    told = {axis: extent for axis, extent in in_tiles(reading).items() if axis not in left_out}
    return {axis: extent for axis, extent in told.items() if extent.names <= {*own}}


def _in_own_numbers(of: Proposal, entry: str) -> dict[int, str]:
    """Return the extents, by axis, that the kernel's own numbers tell.

    They are in indices `group * EXTENT + item`, or the length of rows that a group's items have in local memory.
    """
    own, local = of.read_by_own_names(entry), _in_local(of, entry)
    places = [place for each in own.mentions if each.name in local for place in each.places]
    found = _counted(own, of.own)
    for place in [*places, *(cell.place for cell in own.cells)]:
        for axis, other in ((0, 1), (1, 0)):
            row = place.factor_of(f"lid#{other}")
            if place.factor_of(f"lid#{axis}") == Sum.of(1) and _is_extent(row, {*of.own}):
                found.setdefault(axis, row)
    axes = sorted(found)
    return dict(zip(axes, _in_numbers(of, [str(found[axis]) for axis in axes]), strict=True))


def _in_numbers(of: Proposal, extents: list[str]) -> list[str]:
    """Return extents with the names of the kernel's own numbers replaced by their values."""

    def number(name: re.Match[str]) -> str:
        return str(number_of(of.own[name[0]]) if name[0] in of.own else name[0])

    told = [re.sub(r"[A-Za-z_]\w*", number, extent) for extent in extents]
    return [extent if re.search(r"[A-Za-z_]", extent) else by_default(extent, {}) for extent in told]


def _of_own_names(of: Proposal, entry: str, wide: set[int], dimensions: int) -> list[str]:
    """Return the extents from the kernel's own numbers that it uses and whose names suggest a work-group."""
    numbers = {name: number_of(of.own[name]) or 0 for name in of.own if EXTENT_NAME.fullmatch(name)}
    met = reached(of.code.tokens([*numbers]) or (), [entry]) if numbers else set()
    return _of_names(numbers, [name for name in numbers if name in met], wide, dimensions)


def _of_names(numbers: Mapping[str, int], names: list[str], wide: set[int], dimensions: int) -> list[str]:
    """Return the first names, one for each axis, or for each `wide` axis; empty if there are too few."""
    for axes in ([*range(dimensions)], sorted(wide)):
        usable = sorted(names, key=_axis) if len(axes) > 1 else [name for name in names if numbers[name] > 1]
        if len(usable) >= len(axes):
            along = dict(zip(axes, usable, strict=False))
            return [along.get(axis, "1") for axis in range(dimensions)]
    return []


def _held(reading: Reading, parameters: set[str]) -> dict[int, Sum]:
    """Return the extents that local arrays tell, by axis: `t[WG]` with `t[item]`, `k += ROWS` with `t[item + k]`.

    If none does, return those of loops that items share: `for (k = item; k < n; k += WG)`.
    """
    whole = {axis: {count} for axis, count in wrapped(reading).items()}
    steps: dict[int, set[Sum]] = {}
    shared = _shared(reading)
    left_out = {
        guard.varying for guard in reading.guards
    }  # a guard leaves out items: the group is wider than the array
    taken: dict[tuple[str, int, Sum], set[Sum]] = {}
    for name, level, index in reading.cells:
        taken.setdefault((name, level, index - index.fixed), set()).add(index.fixed)
    for name, level, index in reading.cells:
        extents = reading.arrays[name]
        axes = [axis for axis in (0, 1, 2) if index.factor_of(f"lid#{axis}") == Sum.of(1)]
        if len(axes) == 1:
            rest = index - Sum.of(f"lid#{axes[0]}")
            moved = rest - rest.fixed
            if moved:
                step = _stride(reading, moved)
                if step is not None:
                    steps.setdefault(axes[0], set()).add(step)
                places = extents[level] if level < len(extents) else None
                for axis, count in flat_rows(axes[0], moved, places).items():
                    whole.setdefault(axis, set()).add(count)
            elif level < len(extents) and (extent := extents[level]) is not None:
                if extent.number is not None and index in left_out:
                    continue
                if (items := apart(extent, taken[name, level, index - index.fixed])) != extent:
                    whole.setdefault(axes[0], set()).add(items)
                    continue
                rim = rest.part(lambda product: product != ())
                extent = extent - rim - rim
                whole.setdefault(axes[0], set()).add(extent - (extent.number is None) * extent.constant)
        for axis in (0, 1, 2):
            loop = reading.loops.get(str(index), Loop(Sum()))
            if loop.start == Sum.of(f"lid#{axis}") and loop.known_step and loop.known_step.names:
                steps.setdefault(axis, set()).add(loop.known_step)
    found = {}
    for axis in {*steps, *whole, *shared}:
        alike = {each for each in steps.get(axis) or whole.get(axis) or () if _is_extent(each, parameters)}
        alike = alike or {each for each in shared.get(axis, ()) if _is_extent(each, parameters)}
        if len(alike) == 1:
            found[axis] = alike.pop()
    return found


def _shared(reading: Reading) -> dict[int, set[Sum]]:
    """The steps of loops that begin at an item's local id, by axis: so many items share the loop."""
    found: dict[int, set[Sum]] = {}
    for loop in reading.loops.values():
        axes = [axis for axis in (0, 1, 2) if f"lid#{axis}" in loop.start.names]
        each = loop.start.factor_of(f"lid#{axes[0]}") if len(axes) == 1 else Sum()
        taking = loop.known_step.over(each) if loop.known_step is not None and each.known and each else None
        if taking is not None and taking == Sum.of(next(iter(taking.names), 1)):  # part of a product may be unrolling
            found.setdefault(axes[0], set()).add(taking)
    return found


def _is_extent(value: Sum, parameters: set[str]) -> bool:
    """Whether a sum is a product of parameters or their quotients, not `2 * WG`, or a power of two up to 1024."""
    if value.number is not None:
        return 1 < value.number <= 1024 and value.number.bit_count() == 1
    names = {word for name in value.names for word in words(name) if not word.isdigit()}
    return bool(names) and names <= parameters and [*value.terms.values()] == [1]


def _stride(reading: Reading, moved: Sum) -> Sum | None:
    """The distance between the places that an item uses one after another; None if it is not known."""
    variables = [name for name in moved.names if "#" in name]
    if len(variables) != 1 or variables[0] not in reading.loops:
        return None
    step, factor = reading.loops[variables[0]].known_step, moved.factor_of(variables[0])
    return factor * step if step is not None and factor.known and (factor * step).names else None


def _required(of: Proposal, entry: str) -> list[str]:
    """Return the required work-group of the last kernel of a name, in terms of parameters; empty if there is none."""
    found, tokens = [], of.code.tokens(of.kept(tuned=True)) or []
    if entry not in tokens:  # it is in a branch that only the compiler takes
        tokens = tokens_of(of.text)
    for at in [place for place, pair in enumerate(pairwise(tokens)) if pair == (entry, "(")]:
        begun = next((place for place in range(at - 1, -1, -1) if tokens[place] in (";", "}")), -1) + 1
        before = tokens[begun:at]
        if {"kernel", _REQUIRED} <= {*before}:
            asked = before.index(_REQUIRED) + 1
            extents = split(before[asked + 1 : closing(before, asked)])
            found.append([_spelt(of, " ".join(extent)) for extent in extents])
    usable = [each for each in found if len(each) == 3 and all(each)]
    return usable[-1] if usable else []


def _spelt(of: Proposal, text: str) -> str:
    """Return a C expression as an expression over parameters; an empty string if it is not one."""
    if len(text) > _MOST_TEXT:
        return ""
    text = re.sub(r"\b(\d+)\s*[uUlL]{1,3}\b", r"\1", text)
    text = re.sub(r"\(\s*(\w+)\s*<<\s*(\w+)\s*\)", r"(\1 * 2 ** \2)", text)
    names = names_in(text)
    usable = names <= set(of.parameters) and re.fullmatch(r"[\w\s()+*/%-]+", text) is not None
    spelt = re.sub(r"(?<=\() | (?=\))", "", " ".join(re.sub(r"(?<!/)/(?!/)", "//", text).split()))
    while spelt != plain(spelt):
        spelt = plain(spelt)
    return "" if not usable else spelt if names else by_default(spelt, {})


def _axis(name: str) -> int:
    """Return the axis that the last letter of an extent's name tells: x, y or z; n as columns, m as rows; else 3."""
    return {"X": 0, "0": 0, "N": 0, "Y": 1, "1": 1, "M": 1, "Z": 2, "2": 2}.get(name[-1].upper(), 3)
