"""What a worker is told to build and run: frozen, plain data that pickles, no OpenCL in it."""

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
    """One kernel launch: `global_size` in work-items; `arguments` names those of the plan, in order.

    In a study the extents are expressions, and `when` says whether it takes place; in a plan it does. `counted` holds
    the arguments whose value differs from turn to turn of a loop, by position, as they are in this launch.
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
        """Return what a plan holds where the names have these values. Raises StudyError."""
        part, start = None, None
        whole = extents(self.global_size, names, f"{self.place}.global")
        if self.local_size is not None:
            part = extents(self.local_size, names, f"{self.place}.local")
        if self.offset is not None:
            start = extents(self.offset, names, f"{self.place}.offset", least=0)
        return Launch(self.entry, whole, part, self.arguments, offset=start)


@dataclass(frozen=True, slots=True)
class Loop:
    """Launches of a study, and loops, that are run `repeat` times in order; all of it expressions.

    `step` is the name that counts the turns from 0, if any. After each turn the buffers of each group of `swap` change
    places: each name stands for the buffer of the next one in its group, the last for that of the first. `alone`: it
    repeats a launch that is written in the same table.
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
    """An expression of the array language over outputs, which is compared in their place; and the numbers it names."""

    text: str
    tolerance: Tolerance
    numbers: tuple[tuple[str, int | float], ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """A configuration made concrete: source, build options (`-D...` included), launches in order.

    `order` names the launches of a run one by one, by their places in `launches`, where loops repeat some; empty: each
    once. `local_memory` is a limit in bytes that the study states instead of the device's own report (NVIDIA takes more
    than the 48 KiB it tells); None: the device's.
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
        """The launches of one run, by their places."""
        return self.order or tuple(range(len(self.launches)))
