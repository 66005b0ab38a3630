"""The findings in one kernel: where each argument is read and written, and what bounds the variables."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from autotune.study.drafting.findings import Cell, Comparison, Guard, Ids, Loop, Mention, Quotient
from autotune.study.drafting.terms import Sum
from autotune.study.drafting.trees import Tree

_MOST_GUARDS = 200
"""The most guards to read: each place is compared with all of them."""

EXTENT = "image extent "
"""The temporary name of an image's extent, followed by the axis."""


@dataclass
class Reading:
    """All findings in one kernel.

    `comparisons`: those that gave `guards`, and those with an id alone. `starts`: sums that, by a condition, are where
    the variables that pass begin. `loops`: the variables that begin with a value and change. `contents`: the argument
    that a name was read from. `quotients`: the names that are whole quotients. `either`: the two values of a name that
    a condition decides between.
    `arrays`: the extents of local arrays; `cells`: the places in them that are used; `private`, `inner`: the same for
    private arrays; `inner` also has members of structs, without extents here.
    `shifts`: numbers of bytes by which a place is shifted. `exponents`: numbers of bits by which others are
    shifted. `seen`: the types as which each argument is read and written.
    `rimmed`: arguments whose same places are written both within a rim and outside it.
    `barriers`: how many were met; `turning`: sums whose comparisons make items return; `parted`: sums whose comparisons
    keep some items from a barrier. `unread`: arguments that are also used in a way that was not understood.
    """

    ids: Ids = field(default_factory=Ids)
    mentions: list[Mention] = field(default_factory=list)
    guards: list[Guard] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)
    starts: list[Sum] = field(default_factory=list)
    loops: dict[str, Loop] = field(default_factory=dict)
    contents: dict[str, str] = field(default_factory=dict)
    quotients: dict[str, Quotient] = field(default_factory=dict)
    either: dict[str, tuple[Sum, Sum]] = field(default_factory=dict)
    arrays: dict[str, list[Sum | None]] = field(default_factory=dict)
    cells: list[Cell] = field(default_factory=list)
    private: dict[str, list[Sum | None]] = field(default_factory=dict)
    inner: list[Cell] = field(default_factory=list)
    rimmed: set[str] = field(default_factory=set)
    barriers: int = 0
    turning: list[Sum] = field(default_factory=list)
    parted: set[Sum] = field(default_factory=set)
    unread: set[str] = field(default_factory=set)
    shifts: set[str] = field(default_factory=set)
    exponents: set[str] = field(default_factory=set)
    seen: dict[str, set[str]] = field(default_factory=dict)

    # -- while a kernel is walked through ---------------------------------------------------------

    def note_mention(self, name: str, places: tuple[Sum, ...], kind: str) -> None:
        """Note that an argument is read or written at a place."""
        self.mentions.append(Mention(name, places, kind, len(self.mentions)))

    def note_guard(self, guard: Guard, *, turns_away: bool) -> None:
        """Note the guard that a comparison gives, where variables pass it or where it turns them away."""
        if len(self.guards) < _MOST_GUARDS:
            self.guards.append(guard)
            self._note_comparison(guard, turns_away=turns_away)

    def note_lone(self, difference: Sum, *, equal: bool) -> None:
        """Note that a kernel tests whether an id is (`equal`) or is not a certain number."""
        counted = difference - difference.constant
        for axis in range(3):
            if {counted, -counted} & {Sum.of(f"gid#{axis}"), Sum.of(f"wid#{axis}")}:
                self.ids.lone.add(axis)
                self._note_comparison(Guard(counted, counted), turns_away=not equal)

    def _note_comparison(self, guard: Guard, *, turns_away: bool) -> None:
        self.comparisons.append(Comparison(guard, turns_away, len(self.mentions)))

    def close(self, comparisons: Sequence[Comparison], otherwise: int | None = None) -> None:
        """Note that comparisons hold only up to here; `otherwise`: the number of mentions before `else`."""
        for each in comparisons:
            each.end = len(self.mentions) if otherwise is None or each.turns_away else otherwise

    def settle(self, comparisons: Sequence[Comparison], *, both: bool) -> None:
        """Turn guards that a condition shows to be starts into `starts`: a is no bound of x in `a <= x && x < b`.

        Nor in `x < a || x >= b`. `comparisons`: those in the condition; `both`: it is an `and`.
        """
        for one in comparisons:
            varying, turns = one.guard.varying, one.turns_away
            others = any(varying == other.guard.varying and turns != other.turns_away for other in comparisons)
            if others and turns == both and one.guard in self.guards:
                self.guards.remove(one.guard)
                self.starts.append(one.guard.limit)

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
            loop = self.loops[name]
            left = form - Sum.of(name) + loop.start
            if left.known and loop.span is None:
                loop.span = -left

    def note_cell(self, of: Tree, index: object) -> None:
        """Note an index into a local array, a private array or a member; `of` is the array, or a row of it."""
        dimension = 0
        while of[0] == "index":
            of, dimension = of[1], dimension + 1
        if isinstance(index, Sum) and of[0] in ("name", "member"):
            cells = self.cells if of[0] == "name" and of[1] in self.arrays else self.inner
            cells.append(Cell(of[-1], dimension, index))

    def leave_out_through(self) -> bool:
        """Forget differences along the axes `through`, where one item is enough; return whether other uses remain."""
        sums = [*self.places, *(loop.start for loop in self.loops.values()), *(guard.varying for guard in self.guards)]
        asked = " ".join(name for each in sums for name in each.names)
        for axes in (self.ids.items, self.ids.within, self.ids.spread):
            axes -= self.ids.through
        apart = "|".join(f"[gwl]id#{axis}" for axis in self.ids.through)
        used = bool(self.ids.apart & self.ids.through)
        return self.ids.lost or used or re.search(rf"{apart}|gsz#|ngr#", asked) is not None

    # -- afterwards -------------------------------------------------------------------------------

    @property
    def stores(self) -> list[Mention]:
        """All mentions that write, or both read and write."""
        return [mention for mention in self.mentions if mention.writes]

    @property
    def places(self) -> list[Sum]:
        """All indices and coordinates at which anything is read or written."""
        return [place for mention in self.mentions for place in mention.places]

    def of(self, name: str) -> list[Mention]:
        """Return the mentions of a buffer."""
        return [mention for mention in self.mentions if mention.name == name and len(mention.places) == 1]

    def kinds(self, name: str) -> set[str]:
        """Return how an argument is used: `read`, `write`, `both`."""
        return {mention.kind for mention in self.mentions if mention.name == name}

    def guards_of(self, value: Sum) -> list[Guard]:
        """Return the guards of a sum, or of sums that differ from it by what is known."""
        return [guard for guard in self.guards if guard.varying.varying == value.varying]

    def limits_of(self, value: Sum) -> list[Sum]:
        """Return the limits of the guards of just this sum."""
        return [guard.limit for guard in self.guards if guard.varying == value]

    def filled(self, name: str) -> list[Mention]:
        """Return the mentions of local memory; if its writes are understood, without reads that loops double or halve.

        Such reads stay within the writes: `tid + d` of a sum in halves, though no guard tells so.
        """
        found = self.of(name)
        written = [mention.places[0] for mention in found if mention.writes]
        if name in self.unread or not written or any(place.names & self.contents.keys() for place in written):
            return found
        scaled = {each for each, loop in self.loops.items() if loop.step is None}
        return [mention for mention in found if mention.writes or not mention.places[0].names & scaled]

    def started(self, value: Sum, *, shared: bool = True) -> Sum:
        """Replace loop variables by their starts; if not `shared`, leave those of loops that start at an item's id."""
        for _ in range(4):
            for name in value.names & self.loops.keys():
                start = self.loops[name].start
                if shared or not start.names & {f"{kind}#{axis}" for kind in ("lid", "gid") for axis in range(3)}:
                    value = value.with_value(name, start)
        return value

    def turns(self, name: str) -> Sum | None:
        """Return the number of turns of a variable's loop, from any variable that the loop steps; None if unknown."""
        head = self.loops[name].head if name in self.loops else ""
        for other, loop in self.loops.items():
            if (other == name or (head and loop.head == head)) and loop.span is not None and loop.known_step:
                step = loop.known_step
                return loop.span if step == Sum.of(1) else Sum.of(f"ceil_div({loop.span}, {step})")
        return None

    def added(self) -> set[str]:
        """Return the names that are added to places, as such or divided, and neither bound nor step anything."""
        terms = {(product, factor) for place in self.places for product, factor in place.fixed.terms.items()}
        alone = {product[0] for product, factor in terms if len(product) == factor == 1}
        limits = [*(guard.limit for guard in self.guards)]
        limits += [each for loop in self.loops.values() for each in (loop.step, loop.fall) if each is not None]
        within = {word for place in self.places for name in place.names - alone for word in re.findall(r"\w+", name)}
        found = {match[1] for name in alone if (match := re.match(r"\(?(\w+)(?: // \d+\))?$", name))}
        return found - within - {*re.findall(r"\w+", " ".join(map(str, limits)))}

    def stencils_of(self, written: str) -> list[str]:
        """Return the buffers that are read as stencils when `written` is written: a program may swap the two."""
        names = dict.fromkeys(mention.name for mention in self.mentions) if "write" in self.kinds(written) else ()
        numbers = {name: {index.constant for mention in self.of(name) for index in mention.places} for name in names}
        around = [name for name, told in numbers.items() if min(told, default=0) < 0 < max(told, default=0)]
        return [name for name in around if name != written]
