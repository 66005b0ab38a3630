"""What a backend may offer beside sessions: a program's own queue, in which bests are built and launched."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from autotune.devices.backend import Event, Kernel, Memory, Program, Traits
from autotune.model import DeviceInfo

if TYPE_CHECKING:
    import numpy as np


class Given(NamedTuple):
    """What a program gives as an argument, looked at: memory, and how many bytes there are from where it begins.

    An array also tells its type and shape, and whether its elements lie in C's order without gaps; plain memory
    tells neither. `only`: "read" or "written", where kernels may do nothing else with the memory. `again` gives the
    memory of the very same object another time, where it may be asked so.
    """

    memory: Memory
    nbytes: int
    dtype: np.dtype[Any] | None = None
    shape: tuple[int, ...] | None = None
    in_order: bool = True
    only: str = ""
    again: Callable[[Any], Memory] | None = None


class GivenImage(NamedTuple):
    """An image that a program gives, looked at: its extents as NumPy has them, order and OpenCL's type of its channels.

    `kind`: `image2d`, or what else a driver calls it; an order or a channel that no study has is told by its number.
    `normalized`: kernels see whole numbers as 0 to 1. `only` as above.
    """

    memory: Memory
    kind: str
    shape: tuple[int, ...]
    order: str
    channel: str
    normalized: bool
    only: str = ""


class Step(NamedTuple):
    """One launch of a sequence. `values`: what all its arguments were set to, None for memory that runs are given.

    `given`: the positions of arguments that each run is given, and their names. `own`: the positions of those that only
    this launch has, and their values, where launches share a kernel. `offset` is that of the global ids.
    """

    kernel: Kernel
    global_size: tuple[int, ...]
    local_size: tuple[int, ...] | None
    values: tuple[Any, ...]
    given: tuple[tuple[int, str], ...] = ()
    offset: tuple[int, ...] | None = None
    own: tuple[tuple[int, bytes], ...] = ()


class Guest(Protocol):
    """A program's own queue: kernels are built in its context and launched among what else it enqueues.

    Raises BackendError from every method.
    """

    info: DeviceInfo
    traits: Traits

    def shares(self, other: Guest) -> bool:
        """Say whether programs built for one may be used by the other."""

    def allocate(self, nbytes: int) -> Memory:
        """Return a new buffer that kernels read and write."""

    def build(self, source: str, options: Sequence[str] = ()) -> Program:
        """Build a program. Raises BuildError with the compiler's log."""

    def unbuildable(self) -> Sequence[str]:
        """Return why the driver may build nothing in this process, lines as of `Backend.diagnose`."""

    def restore(self, binary: bytes, options: Sequence[str] = ()) -> Program:
        """Build a program from the binary of one that was built with these options. Raises BuildError."""

    def set_arguments(self, kernel: Any, arguments: Sequence[Memory | np.generic | bytes | int]) -> None:
        """Set all arguments of a kernel, as `Session.set_arguments` does."""

    def look_at(self, value: object) -> Given | None:
        """Return what a program gives as memory; None for what is none of this backend's, or an image."""

    def look_at_image(self, value: object) -> GivenImage | None:
        """Return what a program gives as an image; None for what is none of this backend's."""

    def sequence(self, steps: Sequence[Step], zeroed: Sequence[tuple[Memory, int]], *, chained: bool) -> Run:
        """Return a function that enqueues all steps, one after another.

        It first fills the memory in `zeroed`, so many bytes of each, with zeros; images whole. `chained`: a run uses
        what the one before it has used, and comes after it, whatever order the queue has.
        """


Run = Callable[[Mapping[str, Any], Sequence[Event] | None], Event]
"""Takes memory, and scalars as their bytes, by name and the events to wait for; returns the last launch."""
