"""What a worker builds and runs: frozen, plain data that can be pickled, without OpenCL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from autotune.study.arguments import Argument, Buffer, Extent, extents


@dataclass(frozen=True, slots=True)
class Tolerance:
    """A value `x` is right where `|x - ref| <= absolute + relative * |ref|`; both 0 means exact."""

    relative: float = 0.0
    absolute: float = 0.0


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel launch: `global_size` in work-items; `arguments` are names of the plan's arguments, in order.

    In a study the extents are expressions, and `when` decides whether the launch takes place; a plan has only launches
    that do. `counted` holds the arguments whose value changes from turn to turn of a loop, by position, with their
    values in this launch.
    """

    entry: str
    global_size: tuple[Extent, ...]
    local_size: tuple[Extent, ...] | None
    arguments: tuple[str, ...]
    when: Extent = None
    offset: tuple[Extent, ...] | None = None
    counted: tuple[tuple[int, Argument], ...] = ()
    place: str = field(default="", compare=False)
    """Its key in the study, such as `launch.2.turn.1`: for messages."""

    def concrete(self, names: Mapping[str, Any]) -> Launch:
        """Return the launch for a plan, with these values of the names. Raises StudyError."""
        part, start = None, None
        whole = extents(self.global_size, names, f"{self.place}.global")
        if self.local_size is not None:
            part = extents(self.local_size, names, f"{self.place}.local")
        if self.offset is not None:
            start = extents(self.offset, names, f"{self.place}.offset", least=0)
        return Launch(self.entry, whole, part, self.arguments, offset=start)


@dataclass(frozen=True, slots=True)
class Loop:
    """Launches and loops of a study that run in order, `repeat` times; its numbers are expressions.

    `step` is the name that counts the turns from 0, if any. After each turn the buffers of each group of `swap` change
    places: each name then means the buffer of the next name, the last name the buffer of the first. `alone`: the loop
    repeats one launch, which is written in the same table.
    """

    body: tuple[Launch | Loop, ...]
    repeat: Extent
    when: Extent
    step: str | None = None
    swap: tuple[tuple[str, ...], ...] = ()
    alone: bool = False
    place: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Check:
    """An expression of the array language over outputs, compared instead of them, and the numbers that it uses."""

    text: str
    tolerance: Tolerance
    numbers: tuple[tuple[str, int | float], ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """A configuration made concrete: source, build options (`-D...` included), launches in order.

    `order` lists the launches of a run one by one, as indices into `launches`; if it is empty, each runs once.
    `local_memory` is a limit in bytes that the study gives instead of the one that the device reports (NVIDIA accepts
    more than the 48 KiB it reports); None: the device's.
    """

    source: str
    options: tuple[str, ...]
    launches: tuple[Launch, ...]
    arguments: dict[str, Argument]
    outputs: dict[str, Tolerance] = field(default_factory=dict)
    cache: str = "warm"
    local_memory: int | None = None
    order: tuple[int, ...] = ()
    checks: dict[str, Check] = field(default_factory=dict)

    @property
    def buffers(self) -> list[Buffer]:
        """The arguments in global memory."""
        return [argument for argument in self.arguments.values() if isinstance(argument, Buffer)]

    @property
    def sequence(self) -> tuple[int, ...]:
        """The launches of one run, as indices into `launches`."""
        return self.order or tuple(range(len(self.launches)))
