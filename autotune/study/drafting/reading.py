"""The findings in one kernel: where each argument is read and written, and what bounds the variables."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from autotune.study.drafting.syntax import Tree
from autotune.study.drafting.terms import Sum, apart, in_elements, places_of_group, quotient, undivided

_MOST_GUARDS = 200
"""The most guards to read: each place is compared with all of them."""
_TO_THE_END = 1 << 62
_MOST_ITEMS = 1024
"""The most items in a work-group that devices usually allow."""

EXTENT = "image extent "
"""The temporary name of an image's extent, followed by the axis."""


class Pointer(NamedTuple):
    """A place in an argument, seen as elements of another size.

    Each is `width` of the argument's elements, or `parts` of them are one of the argument's.
    """

    name: str
    offset: Sum
    type_name: str = ""
    width: Sum = Sum.of(1)
    parts: int = 1
    seen: str = ""
    """The type that the pointer is cast to, if any."""
    rows: tuple[Sum, ...] = ()
    """The extents of the array that it points to, if it does: N in `float (*a)[N]`."""

    def moved(self, by: Sum) -> Pointer:
        """Return the pointer moved by so many of its elements, or of its arrays."""
        for extent in self.rows:
            by = by * extent
        by = undivided(by * self.width) if self.parts == 1 else in_elements(by, self.parts)
        return self._replace(offset=self.offset + by)


class Mention(NamedTuple):
    """An argument at a place, or an image at its coordinates: `read`, `write` or `both`."""

    name: str
    places: tuple[Sum, ...]
    kind: str


@dataclass
class Reading:
    """All findings in one kernel.

    `guards`: pairs of a sum with a variable in it and the known sum below which it stays. `compared`: the guards from
    comparisons, each with whether it is read as turning away what is not less; `held`: the range of mentions for which
    each of `compared` holds. `starts`: sums that, by a condition, are where the variables that pass begin.
    `loops`: the start of a variable and its step. `contents`: the argument and place that a name was read from.
    `between`: variables that run from one content of an argument to the next, with the argument's name.
    `spans`: bounds of loop variables, counted from their start; `together`: the loop of variables that one loop
    steps; `falling`: variables that a loop decreases, with the step.
    `quotients`: dividend and divisor of names that are whole quotients.
    `either`: the two values of a name that a condition decides between.
    `moved`: variables that something steps.
    `arrays`: the extents of local arrays; `cells`: each index into one: its array, dimension and place;
    `private`, `inner`: the same for private arrays; `inner` also has members of structs, without extents here.
    `axes`: the axes whose ids a kernel asks for; `items`: those along which items differ; `within`: those whose local
    ids it asks for; `spread`: those along which groups differ; `lone`: those along which it compares the id of an item
    or group with a certain number; `through`: those counted through together with the first; `apart`: those whose ids
    are used for more than that. `lost`: whether ids are used in a way that was not understood. `begun`: whether a
    kernel asks for the offset of global ids.
    `shifts`: numbers of bytes by which a place is shifted. `exponents`: numbers of bits by which others are
    shifted. `seen`: the types as which each argument is read and written.
    `rimmed`: arguments whose same places are written both within a rim and outside it.
    `barriers`: how many were met; `turning`: sums whose comparisons make items return; `parted`: sums whose comparisons
    keep some items from a barrier. `unread`: arguments that are also used in a way that was not understood.
    """

    mentions: list[Mention] = field(default_factory=list)
    guards: list[tuple[Sum, Sum]] = field(default_factory=list)
    compared: list[tuple[Sum, Sum, bool]] = field(default_factory=list)
    held: list[tuple[int, int]] = field(default_factory=list)
    starts: list[Sum] = field(default_factory=list)
    loops: dict[str, tuple[Sum, Sum | None]] = field(default_factory=dict)
    contents: dict[str, tuple[str, Sum]] = field(default_factory=dict)
    between: dict[str, str] = field(default_factory=dict)
    spans: dict[str, Sum] = field(default_factory=dict)
    together: dict[str, str] = field(default_factory=dict)
    falling: dict[str, Sum | None] = field(default_factory=dict)
    quotients: dict[str, tuple[Sum, Sum]] = field(default_factory=dict)
    either: dict[str, tuple[Sum, Sum]] = field(default_factory=dict)
    moved: set[str] = field(default_factory=set)
    arrays: dict[str, list[Sum | None]] = field(default_factory=dict)
    cells: list[tuple[str, int, Sum]] = field(default_factory=list)
    private: dict[str, list[Sum | None]] = field(default_factory=dict)
    inner: list[tuple[str, int, Sum]] = field(default_factory=list)
    axes: set[int] = field(default_factory=set)
    items: set[int] = field(default_factory=set)
    within: set[int] = field(default_factory=set)
    spread: set[int] = field(default_factory=set)
    lone: set[int] = field(default_factory=set)
    through: set[int] = field(default_factory=set)
    apart: set[int] = field(default_factory=set)
    lost: bool = False
    begun: bool = False
    rimmed: set[str] = field(default_factory=set)
    barriers: int = 0
    turning: list[Sum] = field(default_factory=list)
    parted: set[Sum] = field(default_factory=set)
    unread: set[str] = field(default_factory=set)
    shifts: set[str] = field(default_factory=set)
    exponents: set[str] = field(default_factory=set)
    seen: dict[str, set[str]] = field(default_factory=dict)

    def note_id(self, function: str, axis: int) -> None:
        """Note that a kernel asks for an id or a number of ids along an axis: `get_local_id(0)`."""
        self.axes.add(axis)
        if function in ("get_global_id", "get_local_id"):
            self.items.add(axis)
        if function in ("get_global_id", "get_group_id"):
            self.spread.add(axis)
        if function == "get_local_id":
            self.within.add(axis)

    def lose_ids(self) -> None:
        """Note that it is unknown how ids are used: groups may differ along each axis."""
        self.lost = True
        self.spread |= {0, 1, 2}

    def leave_out_through(self) -> bool:
        """Forget differences along the axes `through`, where one item is enough; return whether other uses remain."""
        sums = [*self.places, *(start for start, _ in self.loops.values()), *(varying for varying, _ in self.guards)]
        asked = " ".join(name for each in sums for name in each.names)
        for axes in (self.items, self.within, self.spread):
            axes -= self.through
        apart = "|".join(f"[gwl]id#{axis}" for axis in self.through)
        return self.lost or bool(self.apart & self.through) or re.search(rf"{apart}|gsz#|ngr#", asked) is not None

    def note_guard(self, varying: Sum, limit: Sum, turned_away: bool) -> None:
        """Note the guard that a comparison with a limit gives, where variables pass it or where it turns them away."""
        if len(self.guards) >= _MOST_GUARDS:
            return
        self.guards.append((varying, limit))
        self.compared.append((varying, limit, turned_away))
        self.held.append((len(self.mentions), _TO_THE_END))

    def hold(self, told: slice, otherwise: int | None = None) -> None:
        """Note that the comparisons `told` hold only up to here; `otherwise`: the number of mentions before `else`."""
        for number in range(*told.indices(len(self.held))):
            end = len(self.mentions) if otherwise is None or self.compared[number][2] else otherwise
            self.held[number] = (self.held[number][0], end)

    def settle(self, before: int, *, both: bool) -> None:
        """Turn guards that a condition shows to be starts into `starts`: a is no bound of x in `a <= x && x < b`.

        Nor in `x < a || x >= b`. `before`: the number of comparisons before the condition; `both`: it is an `and`.
        """
        found = self.compared[before:]
        for varying, limit, turned_away in found:
            others = any(varying == other and turned_away != turns for other, _, turns in found)
            if others and turned_away == both and (varying, limit) in self.guards:
                self.guards.remove((varying, limit))
                self.starts.append(limit)

    def note_rim(self, branches: Sequence[int]) -> None:
        """Note the arguments that a condition's branches write at the same places: say, 0 on a rim and results inside.

        `branches`: the number of mentions at the beginning of each branch.
        """
        ends = [*branches[1:], len(self.mentions)]
        written = [
            {(mention.name, mention.places) for mention in self.mentions[first:end] if mention.kind == "write"}
            for first, end in zip(branches, ends, strict=True)
        ]
        self.rimmed |= {name for name, _ in written[0] & set[Any]().union(*written[1:])}

    def note_span(self, form: Sum) -> None:
        """Note how far variables get from their starts, from a sum that is less than 0."""
        for name in form.names & self.loops.keys():
            left = form - Sum.of(name) + self.loops[name][0]
            if left.known:
                self.spans.setdefault(name, -left)

    def turns(self, name: str) -> Sum | None:
        """Return the number of turns of a variable's loop, from any variable that the loop steps; None if unknown."""
        loop = self.together.get(name)
        for other in [each for each in self.loops if each == name or (loop and self.together.get(each) == loop)]:
            span, step = self.spans.get(other), self.loops[other][1]
            if span is not None and step is not None and step.known and step:
                return span if step == Sum.of(1) else Sum.of(f"ceil_div({span}, {step})")
        return None

    def note_lone(self, difference: Sum, *, equal: bool) -> None:
        """Note that a kernel tests whether an id is (`equal`) or is not a certain number."""
        counted = difference - difference.constant
        for axis in range(3):
            if {counted, -counted} & {Sum.of(f"gid#{axis}"), Sum.of(f"wid#{axis}")}:
                self.lone.add(axis)
                self.compared.append((counted, counted, not equal))
                self.held.append((len(self.mentions), _TO_THE_END))

    def note_cell(self, of: Tree, index: object) -> None:
        """Note an index into a local array, a private array or a member; `of` is the array, or a row of it."""
        level = 0
        while of[0] == "index":
            of, level = of[1], level + 1
        if isinstance(index, Sum) and of[0] in ("name", "member"):
            cells = self.cells if of[0] == "name" and of[1] in self.arrays else self.inner
            cells.append((of[-1], level, index))

    def filled(self, name: str) -> list[Mention]:
        """Return the mentions of local memory; if its writes are understood, without reads that loops double or halve.

        Such reads stay within the writes: `tid + d` of a sum in halves, though no guard tells so.
        """
        found = self.of(name)
        written = [mention for mention in found if mention.kind != "read"]
        if name in self.unread or not written or any(each.places[0].names & self.contents.keys() for each in written):
            return found
        scaled = {each for each, (_, step) in self.loops.items() if step is None}
        return [mention for mention in found if mention in written or not mention.places[0].names & scaled]

    @property
    def stores(self) -> list[Mention]:
        """All mentions that write, or both read and write."""
        return [mention for mention in self.mentions if mention.kind != "read"]

    @property
    def places(self) -> list[Sum]:
        """All indices and coordinates at which anything is read or written."""
        return [place for mention in self.mentions for place in mention.places]

    def started(self, value: Sum, *, shared: bool = True) -> Sum:
        """Replace loop variables by their starts; if not `shared`, leave those of loops that start at an item's id."""
        for _ in range(4):
            for name in value.names & self.loops.keys():
                start = self.loops[name][0]
                if shared or not start.names & {f"{kind}#{axis}" for kind in ("lid", "gid") for axis in range(3)}:
                    value = value.with_value(name, start)
        return value

    def groups(self) -> dict[int, Sum]:
        """Return a work-group's extents by axis, from sums such as `group * TILE + item`."""
        found: dict[int, Sum] = {}
        sums = [start for start, step in self.loops.values() if not (step and "lsz#" in str(step))]  # it fits any width
        sums += [varying for varying, _ in self.guards]
        for each in (self.started(value, shared=False) for value in (*sums, *self.places)):
            for axis in (0, 1, 2):
                extent = places_of_group(each, axis)
                several = extent is not None and (extent.names or 1 < (extent.number or 0) <= _MOST_ITEMS)
                if extent is not None and several and (axis not in found or found[axis].over(extent) is not None):
                    found[axis] = extent
        return {axis: self._items_of(axis, extent) for axis, extent in found.items()}

    def _items_of(self, axis: int, extent: Sum) -> Sum:
        """The items of a group that uses `extent` places along an axis: fewer if each item uses several places."""
        counted = Sum.of(f"wid#{axis}") * extent + Sum.of(f"lid#{axis}")
        for name in dict.fromkeys(mention.name for mention in self.mentions):
            rests = {place - counted for mention in self.of(name) for place in mention.places}
            taken = {rest for rest in rests if rest == rest.fixed}.union(*map(self._by_turns, rests))
            if (items := apart(extent, taken)) != extent:
                return items
        return extent

    def _by_turns(self, value: Sum) -> set[Sum]:
        """The values of a loop variable's multiple in each turn, 0, 64, 128 for `k * 64`; empty for any other sum."""
        names = value.names & self.loops.keys() if len(value.terms) == 1 else set[str]()
        each, turns = (value.factor_of(*names), self.turns(*names)) if len(names) == 1 else (Sum(), None)
        begun, step = self.loops[min(names)] if names else (Sum(), None)
        if turns is None or turns.number is None or begun or step != Sum.of(1) or not each.known:
            return set()
        return {each * Sum.of(turn) for turn in range(min(turns.number, _MOST_ITEMS))}

    def ends(self) -> list[Sum]:
        """Return the bounds of global ids and of variables that begin at one, and the starts that conditions tell."""
        found = [*self.starts]
        ids = [{f"gid#{axis}"} for axis in range(3)] + [{f"wid#{axis}", f"lid#{axis}"} for axis in self.groups()]
        for varying, limit in self.guards:
            begun = (self.loops[name][0].names for name in varying.names & self.loops.keys())
            names = varying.names.union(*begun)
            if any(each <= names for each in ids):
                found.append(limit)
        return found

    def of(self, name: str) -> list[Mention]:
        """Return the mentions of a buffer."""
        return [mention for mention in self.mentions if mention.name == name and len(mention.places) == 1]

    @property
    def offsets(self) -> set[str]:
        """The arrays whose contents say where the rows of others begin."""
        return set(self.between.values())

    def places_in(self, name: str, elements: Mapping[str, Sum], upper: Callable[[Sum], Sum | None]) -> Sum | None:
        """Return the number of places that an array's contents index; None if they are no indices.

        `elements`: the number of elements of each argument; `upper`: returns the bound of a sum, or None.
        """
        least: Sum | None = None
        for mention in self.mentions:
            for index in mention.places:
                for variable in sorted(index.names & self.contents.keys()):
                    factor = index.factor_of(variable)
                    if self.contents[variable][0] == name and mention.name in elements and factor.known:
                        row, rest = self._row(index, variable), index - Sum.of(variable) * factor
                        ahead = index.fixed if min(index.fixed.terms.values(), default=0) > 0 else Sum()
                        if rest.varying and (most := upper(rest)) is not None and most.known:
                            ahead = most - 1
                        places = quotient(elements[mention.name] - ahead if row is None else row, factor)
                        fewer = least is None or min((least - places).terms.values(), default=0) > 0
                        least = places if fewer else least
        return least

    def _row(self, index: Sum, variable: str) -> Sum | None:
        """The length of the row along which a variable counts: 256 in `256 * item + variable`; None if none is told."""
        each = index.factor_of(variable).number
        others = (index.factor_of(name).number for name in index.names if "#" in name and name != variable)
        longer = [number for number in others if number is not None and each is not None and number > each > 0]
        return Sum.of(min(longer)) if longer else None

    def scatters(self, name: str) -> bool:
        """Whether an array's contents are themselves places to write to, so that none may occur twice."""
        written = {index for mention in self.mentions if mention.kind == "write" for index in mention.places}
        return any(array == name and Sum.of(variable) in written for variable, (array, _) in self.contents.items())

    def leads(self, name: str) -> bool:
        """Whether an argument's contents decide which places are used: in an index, or as the start of a loop."""
        sums = [*(start for start, _ in self.loops.values()), *self.places]
        return any(self.contents[each][0] == name for value in sums for each in value.names & self.contents.keys())

    def indexed(self, name: str) -> set[Sum]:
        """Return the lengths of an argument's rows that contents of another choose; empty if there are none."""
        places = [index for mention in self.of(name) for index in mention.places]
        found = (index.factor_of(each) for index in places for each in index.names & self.contents.keys())
        return {length for length in found if length.known}

    def added(self) -> set[str]:
        """Return the names that are added to places, as such or divided, and neither bound nor step anything."""
        terms = {(product, factor) for place in self.places for product, factor in place.fixed.terms.items()}
        alone = {product[0] for product, factor in terms if len(product) == factor == 1}
        bounds = " ".join(str(each) for _, each in (*self.guards, *self.loops.values(), *self.falling.items()))
        within = {word for place in self.places for name in place.names - alone for word in re.findall(r"\w+", name)}
        found = {match[1] for name in alone if (match := re.match(r"\(?(\w+)(?: // \d+\))?$", name))}
        return found - within - {*re.findall(r"\w+", bounds)}

    def stencils_of(self, written: str) -> list[str]:
        """Return the buffers that are read as stencils when `written` is written: a program may swap the two."""
        names = dict.fromkeys(mention.name for mention in self.mentions) if "write" in self.kinds(written) else ()
        numbers = {name: {index.constant for mention in self.of(name) for index in mention.places} for name in names}
        around = [name for name, told in numbers.items() if min(told, default=0) < 0 < max(told, default=0)]
        return [name for name in around if name != written]

    def kinds(self, name: str) -> set[str]:
        """Return how an argument is used: `read`, `write`, `both`."""
        return {mention.kind for mention in self.mentions if mention.name == name}
