"""The proposed work-group of a kernel: from its attribute, the extents of local arrays, and the names of macros."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from autotune.errors import UsageError
from autotune.expression import Expression
from autotune.study.drafting.functions import called, reached
from autotune.study.drafting.nouns import GROUPS_NAME, SIDE_NAME, is_extent_name, is_of_group
from autotune.study.drafting.parts import alike
from autotune.study.drafting.reading import Reading
from autotune.study.drafting.scanning import number_of
from autotune.study.drafting.syntax import NAME, closing, names_in, split, tokens_of, with_values
from autotune.study.drafting.terms import Sum, plain
from autotune.study.drafting.tiles import in_local_arrays, in_tiles, is_extent

if TYPE_CHECKING:
    from autotune.study.drafting.proposal import Proposal

_ASKS = re.compile(
    r"get_(global|local|group|num_groups|enqueued|sub_group|max_sub)|(sub|work)_group_|async_work|barrier"
)

_ATTRIBUTE = "reqd_work_group_size"
_MOST_TEXT = 1000
"""The longest text of an extent that is read, in characters."""

BY_ARRAYS = "from the kernel's own numbers: the size of its local arrays, or the steps of its loops"
BY_NAME = "by its name; nothing else in the kernel gives the work-group"
BY_TASK = "the number of items decides what is computed"
BY_PLACES = "from the places per group; nothing says that an item takes only one"


FIRST = {1: 64, 2: 16, 3: 4}
"""The default of a work-group's extents that nothing tells, by their number."""
MADE = frozenset({"WG", "WX", "WY", "WZ"})
"""Names of new parameters, for extents that are no macro of the kernel."""
OF_GROUPS = "work-items of a work-group"


def widths(default: int) -> list[int]:
    """Return the proposed values of a new parameter: smaller ones if there are several."""
    return [32, 64, 128, 256] if default == 64 else [4, 8, 16, 32]


def is_alone(of: Proposal, entry: str) -> bool:
    """Whether neither a kernel nor what it calls asks for ids or uses barriers: one work-item does all the work."""
    functions = of.code.functions(of.kept(tuned=True))
    bodies = (functions[name].body for name in called(functions, [entry]))
    return entry in functions and not any(_ASKS.match(token) for body in bodies for token in body)


def by_default(extent: str, defaults: Mapping[str, int]) -> str:
    """Return an extent of a work-group with its names replaced by numbers, evaluated; "1" if that fails."""
    filled = NAME.sub(lambda name: str(defaults.get(name[0], 1)), extent)
    if re.fullmatch(r"[\d\s()+*/%-]{1,200}", filled) is None:
        return "1"
    try:
        return str(int(Expression.parse(filled).evaluate({})))
    except UsageError:  # divided by 0, or beyond what is counted
        return "1"


class Group(NamedTuple):
    """The extents of a work-group; `doubt`: why it is a guess, or an empty string if the kernel says it."""

    extents: list[str]
    doubt: str = ""


class WorkGroup:
    """The work-group of a kernel with as many `dimensions`, by its reading with parameters as names."""

    def __init__(self, of: Proposal, entry: str, reading: Reading, dimensions: int) -> None:
        self._of, self._entry, self._reading, self._dimensions = of, entry, reading, dimensions
        self._in_local = {one.name for one in of.sketch.signatures[entry] if one.address == "local"}

    def told(self) -> Group | None:
        """Return the work-group in terms of the kernel's macros; None if nothing tells it."""
        ways: Sequence[Callable[[], Group | None]] = (
            self._required,
            self._by_parameters_in_indices,
            self._by_own_numbers_in_indices,
            self._by_plain_names,
            self._by_tiles,
            self._by_near_names,
            self._by_own_names,
            self._by_own_tiles,
            self._by_idle_names,
            self._flat,
        )
        return next((group for way in ways if (group := way()) is not None), None)

    def made_up(self) -> Group:
        """Return a work-group of new parameters, except along axes whose extent the kernel's indices tell."""
        of, dimensions = self._of, self._dimensions
        names = ["WG"] if dimensions == 1 else [f"W{axis}" for axis in "XYZ"[:dimensions]]
        names = [name if not self._wide or axis in self._wide else "1" for axis, name in enumerate(names)]
        told = self._own_tiles | {axis: str(extent) for axis, extent in self._tiles.items()}
        before = alike({other: of.read_by_own_names(other) for other in (*of.locals, self._entry)}, self._entry)
        if before and dimensions == len(of.locals[before]) == 1:
            return Group([*of.locals[before]], f"as wide as groups of {before}, as it takes a part of each")
        told = {axis: extent for axis, extent in told.items() if axis < dimensions and names[axis] != "1"}
        doubt, wide = BY_PLACES if told else "", sum(name != "1" for name in names)
        for axis in [axis for axis, name in enumerate(names) if name in MADE and axis not in told and wide > 1]:
            if self._counts_alone(axis):
                told[axis], doubt = str(FIRST[wide]), BY_TASK
        return Group([told.get(axis, name) for axis, name in enumerate(names)], doubt)

    # -- what tells a work-group, the surest first ------------------------------------------------

    def _required(self) -> Group | None:
        if not (extents := _of_attribute(self._of, self._entry)):
            return None
        asked = max([self._dimensions, *(axis + 1 for axis, extent in enumerate(extents) if extent != "1")])
        return Group(extents[:asked])

    def _by_parameters_in_indices(self) -> Group | None:
        held = self._held
        told = self._asked <= held.keys() and any(held[axis].names for axis in self._asked)
        return Group(self._along_asked({axis: str(extent) for axis, extent in held.items()})) if told else None

    def _by_own_numbers_in_indices(self) -> Group | None:
        of, asked = self._of, self._asked
        arrays = in_local_arrays(of.read_by_own_names(self._entry), {*of.parameters, *of.own})
        if not asked <= arrays.keys():
            return None
        said = all(arrays[axis].names and all(map(is_extent_name, arrays[axis].names)) for axis in asked)
        extents = self._in_numbers(self._along_asked({axis: str(extent) for axis, extent in arrays.items()}))
        for axis in asked & self._held.keys():  # the smaller of two numbers, as with `t[WIDE]` and `t[item + 256]`
            most, least = extents[axis], self._held[axis].number
            extents[axis] = str(least) if least is not None and most.isdigit() and least < int(most) else most
        return Group(extents, "" if said else BY_ARRAYS)

    def _by_plain_names(self) -> Group | None:
        return self._by_names(self._of.parameters, [*filter(is_extent_name, self._used)])

    def _by_tiles(self) -> Group | None:
        places = self._tiles | self._held
        if len(places) != self._dimensions:
            return None
        return Group([str(places[axis]) for axis in range(self._dimensions)], BY_PLACES)

    def _by_near_names(self) -> Group | None:
        return self._by_names(self._of.parameters, self._near, BY_NAME)

    def _by_own_names(self) -> Group | None:
        """Take the kernel's own numbers that it uses and whose names suggest a work-group."""
        numbers = {name: number_of(text) or 0 for name, text in self._of.own.items() if is_extent_name(name)}
        met = reached(self._of.code.tokens([*numbers]) or (), [self._entry]) if numbers else set()
        found = self._by_names(numbers, [name for name in numbers if name in met])
        return Group(self._in_numbers(found.extents), BY_NAME) if found else None

    def _by_own_tiles(self) -> Group | None:
        told = self._asked <= self._own_tiles.keys()
        return Group(self._along_asked(self._own_tiles), BY_PLACES) if told else None

    def _by_idle_names(self) -> Group | None:
        if len(self._idle) != self._dimensions:
            return None
        return Group(sorted(self._idle, key=_axis), "" if all(map(is_extent_name, self._idle)) else BY_NAME)

    def _flat(self) -> Group | None:
        """Take one name fewer than there are axes: the group is flat along the last."""
        names = next((each for each in (self._near, self._idle) if 0 < len(each) == self._dimensions - 1), None)
        return Group([*sorted(names, key=_axis), "1"], BY_NAME) if names else None

    # -- axes -------------------------------------------------------------------------------------

    @cached_property
    def _wide(self) -> set[int]:
        """The axes along which a group may be wider than one item.

        Along others all items do the same, or write the same places.
        """
        ids, shared = self._reading.ids, self._reading.arrays or self._in_local
        return ids.within if ids.within and shared else ids.items

    @property
    def _asked(self) -> set[int]:
        """The axes whose extent has to be told: all if none is known to be wide."""
        return self._wide or {*range(self._dimensions)}

    def _along_asked(self, extents: Mapping[int, str]) -> list[str]:
        return [extents[axis] if axis in self._asked else "1" for axis in range(self._dimensions)]

    def _counts_alone(self, axis: int) -> bool:
        """Whether only the local ids of a single group, without a bound, count the written places along an axis."""
        item, reading = f"lid#{axis}", self._reading
        written = [each for each in reading.stores if each.name not in self._in_local]
        counted = any(item in place.names for each in written for place in each.places)
        bounded = any(item in reading.started(guard.varying).names for guard in reading.guards)
        return axis not in reading.ids.spread and counted and not bounded

    # -- extents by indices -----------------------------------------------------------------------

    @cached_property
    def _held(self) -> dict[int, Sum]:
        """The extents that local arrays tell in terms of parameters."""
        return in_local_arrays(self._reading, self._of.parameters)

    @cached_property
    def _tiles(self) -> dict[int, Sum]:
        """The extents that indices `group * EXTENT + item` tell, if they contain names."""
        return {axis: extent for axis, extent in in_tiles(self._reading).items() if extent.names}

    @cached_property
    def _own_tiles(self) -> dict[int, str]:
        """The extents that the kernel's own numbers tell.

        They are in indices `group * EXTENT + item`, or the length of rows that a group's items have in local memory.
        """
        reading, own = self._of.read_by_own_names(self._entry), self._of.own
        found = _filled(reading)
        found = {axis: extent for axis, extent in found.items() if extent.names <= own.keys()}
        places = [place for each in reading.mentions if each.name in self._in_local for place in each.places]
        for place in [*places, *(cell.place for cell in reading.cells)]:
            for axis, other in ((0, 1), (1, 0)):
                row = place.factor_of(f"lid#{other}")
                if place.factor_of(f"lid#{axis}") == Sum.of(1) and is_extent(row, own):
                    found.setdefault(axis, row)
        axes = sorted(found)
        return dict(zip(axes, self._in_numbers([str(found[axis]) for axis in axes]), strict=True))

    def _in_numbers(self, extents: Sequence[str]) -> list[str]:
        """Return extents with the names of the kernel's own numbers replaced by their values."""
        numbers = {name: str(number_of(text)) for name, text in self._of.own.items()}
        told = [with_values(extent, numbers) for extent in extents]
        return [extent if re.search(r"[A-Za-z_]", extent) else by_default(extent, {}) for extent in told]

    # -- extents by names -------------------------------------------------------------------------

    def _by_names(self, numbers: Mapping[str, int], names: Sequence[str], doubt: str = "") -> Group | None:
        """Take the first names, one for each axis, or for each wide axis; None if there are too few."""
        for axes in ([*range(self._dimensions)], sorted(self._asked)):
            usable = sorted(names, key=_axis) if len(axes) > 1 else [name for name in names if numbers[name] > 1]
            if len(usable) >= len(axes):
                along = dict(zip(axes, usable, strict=False))
                return Group([along.get(axis, "1") for axis in range(self._dimensions)], doubt)
        return None

    @cached_property
    def _named(self) -> list[str]:
        """The parameters that may be extents: neither how many groups there are nor how many places an item has."""
        places = self._reading.places
        products = [product for place in places for product in self._reading.started(place).terms]
        shares = {name for product in products if any(each[:4] == "gid#" for each in product) for name in product}
        return [name for name in self._of.parameters if not GROUPS_NAME.search(name) and name not in shares]

    @property
    def _used(self) -> list[str]:
        return [name for name in self._named if not self._of.is_idle(name)]

    @property
    def _near(self) -> list[str]:
        return [*filter(is_of_group, self._used)]

    @cached_property
    def _idle(self) -> list[str]:
        """Those that nothing in the kernel uses: only the host program does."""
        idle = [name for name in self._named if self._of.is_idle(name)]
        return [name for name in idle if is_of_group(name) or SIDE_NAME.search(name)]


def _filled(reading: Reading) -> dict[int, Sum]:
    """Return the extents in indices `group * EXTENT + item`, of axes along which all items of a group count."""
    guarded = [guard.varying.names for guard in reading.guards]
    left_out = {axis for axis in range(3) for names in guarded if f"lid#{axis}" in names and f"wid#{axis}" not in names}
    return {axis: extent for axis, extent in in_tiles(reading).items() if axis not in left_out}


def _axis(name: str) -> int:
    """Return the axis that the last letter of an extent's name tells: x, y or z; n as columns, m as rows; else 3."""
    return {"X": 0, "0": 0, "N": 0, "Y": 1, "1": 1, "M": 1, "Z": 2, "2": 2}.get(name[-1].upper(), 3)


def _of_attribute(of: Proposal, entry: str) -> list[str]:
    """Return the required work-group of the last kernel of a name, in terms of parameters; empty if there is none."""
    found, tokens = [], of.code.tokens(of.kept(tuned=True)) or []
    if entry not in tokens:  # it is in a branch that only the compiler takes
        tokens = tokens_of(of.text)
    for at in [place for place, pair in enumerate(pairwise(tokens)) if pair == (entry, "(")]:
        begun = next((place for place in range(at - 1, -1, -1) if tokens[place] in (";", "}")), -1) + 1
        before = tokens[begun:at]
        if {"kernel", _ATTRIBUTE} <= {*before}:
            asked = before.index(_ATTRIBUTE) + 1
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
