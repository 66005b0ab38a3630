"""What a backend may offer beside sessions: to build and launch bests in a program's own queue."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from autotune.devices.backend import Event, Kernel, Memory, Program, Traits
from autotune.model import DeviceInfo

if TYPE_CHECKING:
    import numpy as np


class Given(NamedTuple):
    """What is known of an argument that a program gives: its memory, and how many bytes this has from its beginning.

    For an array, also its type and shape, and whether its elements lie in C's order without gaps. `only`: "read" or
    "written", if kernels may do nothing else with the memory. `again`, if set, returns the memory once more if called
    with the same object.
    """

    memory: Memory
    nbytes: int
    dtype: np.dtype[Any] | None = None
    shape: tuple[int, ...] | None = None
    in_order: bool = True
    only: str = ""
    again: Callable[[Any], Memory] | None = None


class GivenImage(NamedTuple):
    """What is known of an image that a program gives: extents in NumPy's order, and order and type of its channels.

    `kind`: `image2d`, or another name from the driver. An order or a channel type that no study can have is given as a
    number. `normalized`: kernels see whole numbers as 0 to 1. `only`: as in `Given`.
    """

    memory: Memory
    kind: str
    shape: tuple[int, ...]
    order: str
    channel: str
    normalized: bool
    only: str = ""


class Step(NamedTuple):
    """One launch of a sequence. `values`: the values of all its arguments, None for memory that is given to each run.

    `given`: the positions and names of arguments that are given to each run. `own`: the positions and values of
    arguments of this launch alone, if launches share a kernel. `offset` is that of the global ids.
    """

    kernel: Kernel
    global_size: tuple[int, ...]
    local_size: tuple[int, ...] | None
    values: tuple[Any, ...]
    given: tuple[tuple[int, str], ...] = ()
    offset: tuple[int, ...] | None = None
    own: tuple[tuple[int, bytes], ...] = ()


class Guest(Protocol):
    """A program's own queue: kernels are built in its context and launched among the program's other commands.

    Every method may raise BackendError.
    """

    info: DeviceInfo
    traits: Traits

    def shares(self, other: Guest) -> bool:
        """Say whether programs built for this queue may be used in the other."""

    def allocate(self, nbytes: int) -> Memory:
        """Return a new buffer that kernels read and write."""

    def build(self, source: str, options: Sequence[str] = ()) -> Program:
        """Build a program. Raises BuildError with the compiler's log."""

    def unbuildable(self) -> Sequence[str]:
        """Return why the driver may fail to build in this process, in lines like those of `Backend.diagnose`."""

    def restore(self, binary: bytes, options: Sequence[str] = ()) -> Program:
        """Build a program from the binary of a program that was built with these options. Raises BuildError."""

    def set_arguments(self, kernel: Any, arguments: Sequence[Memory | np.generic | bytes | int]) -> None:
        """Set all arguments of a kernel, as `Session.set_arguments` does."""

    def look_at(self, value: object) -> Given | None:
        """Return what is known of memory that a program gives; None if it is not this backend's, or an image."""

    def look_at_image(self, value: object) -> GivenImage | None:
        """Return what is known of an image that a program gives; None if it is not this backend's."""

    def sequence(self, steps: Sequence[Step], zeroed: Sequence[tuple[Memory, int]], *, chained: bool) -> Run:
        """Return a function that enqueues all steps, one after another.

        It first fills the memory in `zeroed` with zeros: the given number of bytes, or whole images. `chained`: a run
        uses the same memory as the run before, and follows it even if the queue keeps no order.
        """


Run = Callable[[Mapping[str, Any], Sequence[Event] | None], Event]
"""Takes memory by name, scalars by name as their bytes, and the events to wait for; returns the last launch."""
