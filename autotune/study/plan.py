"""What a worker is told to build and run: frozen, plain data that pickles, no OpenCL in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from autotune.study.arguments import Argument, Buffer, Extent, buffers_of, extents


@dataclass(frozen=True, slots=True)
class Tolerance:
    """A value `x` is right where `|x - ref| <= absolute + relative * |ref|`; both 0 means exact."""

    relative: float = 0.0
    absolute: float = 0.0


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel launch: `global_size` in work-items; `arguments` names those of the plan, in order.

    In a study the extents are expressions, and `when` says whether it takes place; in a plan it does.
    """

    entry: str
    global_size: tuple[Extent, ...]
    local_size: tuple[Extent, ...] | None
    arguments: tuple[str, ...]
    when: Extent = None

    def concrete(self, names: Mapping[str, Any]) -> Launch:
        """Return what a plan holds where the names have these values. Raises StudyError."""
        whole, part = extents(self.global_size, names, f"launch {self.entry}: global"), None
        if self.local_size is not None:
            part = extents(self.local_size, names, f"launch {self.entry}: local")
        return Launch(self.entry, whole, part, self.arguments)


@dataclass(frozen=True, slots=True)
class Plan:
    """A configuration made concrete: source, build options (`-D...` included), launches in order.

    `local_memory` is a limit in bytes that the study states instead of the device's own report (NVIDIA takes
    more than the 48 KiB it tells); None: the device's.
    """

    source: str
    options: tuple[str, ...]
    launches: tuple[Launch, ...]
    arguments: dict[str, Argument]
    outputs: dict[str, Tolerance] = field(default_factory=dict)
    cache: str = "warm"
    local_memory: int | None = None

    @property
    def buffers(self) -> list[Buffer]:
        """The arguments in global memory."""
        return buffers_of(self.arguments.values())
