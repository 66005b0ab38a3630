"""What a walk through a kernel finds, a record for each: places in memory, guards, loops, ids."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from autotune.study.drafting.terms import Sum, in_elements, undivided


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
    """An argument at a place, or an image at its coordinates: `read`, `write` or `both`.

    `number`: how many mentions were met before it.
    """

    name: str
    places: tuple[Sum, ...]
    kind: str
    number: int

    @property
    def writes(self) -> bool:
        """Whether it writes, or both reads and writes."""
        return self.kind != "read"


class Cell(NamedTuple):
    """A place in an array of the kernel's own, along one of its dimensions, of which the outermost is 0."""

    array: str
    dimension: int
    place: Sum


class Guard(NamedTuple):
    """A sum with a variable in it, and the known sum below which it stays."""

    varying: Sum
    limit: Sum


@dataclass
class Comparison:
    """A guard as a comparison tells it, and the range of mentions for which it holds.

    `turns_away`: whether it is read as turning away what is not less.
    """

    guard: Guard
    turns_away: bool
    first: int
    end: int = 1 << 62

    def holds(self, mention: Mention) -> bool:
        """Whether it holds where a mention is."""
        return self.first <= mention.number < self.end

    @property
    def chooses(self) -> bool:
        """Whether it holds for no mention, as it only chooses between two values."""
        return self.first == self.end


@dataclass
class Loop:
    """How a variable changes: its start, and what each turn of a loop adds to it, None if that is unknown.

    `fall`: what each turn takes off it, 0 if that is unknown, None if nothing does. `moved`: whether anything steps it,
    or its start is unknown. `span`: its bound, counted from its start. `head`: the first variable that the same loop
    steps. `through`: the argument of which it runs from one content to the next.
    """

    start: Sum
    step: Sum | None = None
    fall: Sum | None = None
    moved: bool = False
    span: Sum | None = None
    head: str = ""
    through: str = ""

    @property
    def known_step(self) -> Sum | None:
        """The step if it is made of known names only."""
        return self.step if self.step is not None and self.step.known else None


class Quotient(NamedTuple):
    """A whole quotient: the dividend and the divisor."""

    value: Sum
    by: Sum


@dataclass
class Ids:
    """How a kernel uses the ids of items and groups, by axis.

    `asked`: the axes for which it asks for any; `items`: those along which items differ; `within`: those whose local
    ids it asks for; `spread`: those along which groups differ; `lone`: those along which it compares the id of an item
    or group with a certain number; `through`: those counted through together with the first; `apart`: those whose ids
    are used for more than that. `lost`: whether ids are used in a way that was not understood. `begun`: whether a
    kernel asks for the offset of global ids.
    """

    asked: set[int] = field(default_factory=set)
    items: set[int] = field(default_factory=set)
    within: set[int] = field(default_factory=set)
    spread: set[int] = field(default_factory=set)
    lone: set[int] = field(default_factory=set)
    through: set[int] = field(default_factory=set)
    apart: set[int] = field(default_factory=set)
    lost: bool = False
    begun: bool = False

    def note(self, function: str, axis: int) -> None:
        """Note that a kernel asks for an id or a number of ids along an axis: `get_local_id(0)`."""
        self.asked.add(axis)
        if function in ("get_global_id", "get_local_id"):
            self.items.add(axis)
        if function in ("get_global_id", "get_group_id"):
            self.spread.add(axis)
        if function == "get_local_id":
            self.within.add(axis)

    def lose(self) -> None:
        """Note that it is unknown how ids are used: groups may differ along each axis."""
        self.lost = True
        self.spread |= {0, 1, 2}
