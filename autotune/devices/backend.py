"""The interface of a backend: one way of driving devices, which lists them and opens one as a session.

A backend is one file. A row of the registry, or an entry point of an installed package, names it, and it passes
tests/contracts/backend.py. Its classes inherit from the classes here what most devices need. No other room checks the
kind of a backend: `Traits` say what differs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from autotune.errors import AutotuneError
from autotune.model import DeviceInfo

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from autotune.devices.guest import Guest
    from autotune.devices.sensors import Reading

Memory = Any
"""A buffer on a device, or a part of one."""

Event = Any
"""One launch: it can be waited for, and has a time once it is over."""


class BackendError(AutotuneError):
    """A call of a backend that failed: `name` is the driver's name of the error; `detail` is a build log."""

    def __init__(self, what: str, *, name: str = "", detail: str = "") -> None:
        self.name = name
        super().__init__(what, detail=detail)


class BuildError(BackendError):
    """A program that does not build; `detail` is the compiler's log.

    `too_large`: the program is right, but needs more of some resource than this device has.
    """

    def __init__(self, what: str, *, name: str = "", detail: str = "", too_large: bool = False) -> None:
        self.too_large = too_large
        super().__init__(what, name=name, detail=detail)


class ArgumentError(BackendError):
    """An argument that the kernel does not take; `position` counts from 0."""

    def __init__(self, what: str, position: int, *, name: str = "") -> None:
        self.position = position
        super().__init__(what, name=name)


@dataclass(frozen=True, slots=True)
class Traits:
    """What differs between devices in how kernels are built, measured and limited."""

    builds_at_launch: bool = False
    """The first launch compiles, and may take as long as a build. So processes that build ahead also launch."""

    keeps_builds: bool = True
    """A build of one process is found in a cache by others, so building ahead is useful."""

    shares_cores: bool = False
    """Kernels run on the host's cores. Compilers run there too, so they are halted during a trial. There are few cores,
    and each works on its own contiguous part of memory. All such devices of a machine are the same hardware."""

    understates_limits: bool = False
    """The driver runs more than it reports, and refuses what is too large. Other drivers may then corrupt memory."""

    local_memory: int = 0
    """Bytes of local memory that a kernel may use, if the driver understates its limits."""

    tells_binaries: bool = True
    """Asking for a program's binary costs nothing; otherwise the driver compiles again."""

    hashes_binaries: bool = True
    """Asking for the binary costs nothing, and equal code has equal binaries."""

    checks_on_device: bool = True
    """The device runs OpenCL C, so outputs are checked there; otherwise they are read back and checked on the host."""

    ends_slowly: bool = False
    """A process that has opened the device takes a while to end, and several such processes end one after the other."""

    builder_memory: int = 2**29
    """Bytes of device memory that each process that builds ahead should have, mostly for its context."""


@dataclass(frozen=True, slots=True)
class KernelLimits:
    """What the driver reports of one built kernel: memory in bytes; 0 for what it does not report.

    `required_work_group_size` is the size that the kernel's source requires, `work_group_size` the largest size that
    the driver says it runs.
    """

    required_work_group_size: int = 0
    work_group_size: int = 0
    local_memory: int = 0
    private_memory: int = 0


@dataclass(frozen=True, slots=True)
class KernelArgument:
    """What a compiler tells about one argument of a kernel.

    `type_name`: as in the source, without qualifiers (`float*`, `image2d_t`, `Particle`); `address`: `global`,
    `constant`, `local` or `private`; `access` of an image: `read_only`, `write_only`, `read_write`; `const`: whether
    it, or what it points to, is const.
    """

    name: str
    type_name: str
    address: str = "private"
    access: str = ""
    const: bool = False


class Kernel(Protocol):
    """One entry of a program, with arguments of its own."""

    @property
    def num_args(self) -> int:
        """How many arguments it takes."""


class Program(Protocol):
    """A built program."""

    @property
    def log(self) -> str:
        """The compiler's log; empty if the build came from a cache."""

    @property
    def resources(self) -> Mapping[str, int]:
        """The largest `registers`, `spill_stores` and `spill_loads` (bytes) of its kernels, if the log tells them."""

    @property
    def binary(self) -> bytes:
        """The compiled program."""

    @property
    def binary_suffix(self) -> str:
        """The suffix for a file with the binary: `ptx`, or `bin` if it is not readable text."""

    def kernel(self, entry: str) -> Kernel:
        """Return a new kernel. Raises BackendError if the program has no such entry."""

    def limits(self, kernel: Any) -> KernelLimits:
        """Return the limits of one of its kernels."""


@dataclass(slots=True)
class Batch:
    """A batch timed by the host's clock: `ns` until all of it had ended, `enqueued_ns` until it was enqueued.

    If the host noticed when the device was no longer held, after `held_ns`, `ns` counts from there. Otherwise `held_ns`
    is 0 and `ns` counts from the beginning.
    """

    ns: int = 0
    enqueued_ns: int = 0
    held_ns: int = 0


class Session(Protocol):
    """One device, opened. Commands run in the order they are enqueued. Every method may raise BackendError.

    `alignment`: regions start at multiples of so many bytes; `cache`: bytes that its last-level cache may have.
    """

    info: DeviceInfo
    traits: Traits
    alignment: int
    cache: int

    def allocate(self, nbytes: int) -> Memory:
        """Return a new buffer that kernels read and write."""

    def region(self, buffer: Memory, offset: int, nbytes: int) -> Memory:
        """Return the part of a buffer that starts at `offset`, a multiple of `alignment`."""

    def image(self, shape: Sequence[int], order: str, channel: str, normalized: bool, form: str = "") -> Memory:
        """Return a new image that kernels read and write, of one to three dimensions.

        `shape` is in NumPy's order, so the last extent is OpenCL's width; `order` is OpenCL's name (`RGBA`), `channel`
        the scalar type (`uchar`); `form` is empty, `array` (of two-dimensional images, the first extent is the number
        of layers) or `buffer` (one dimension). `write`, `read` and `copy` handle the whole image, with its pixels
        dense. Raises BackendError if the device has no images, or none of this kind.
        """
        raise BackendError("this backend has no images")

    def sampler(self, addressing: str, filtering: str, normalized: bool) -> Any:
        """Return a sampler, which tells a kernel how to read images.

        Takes OpenCL's names in lower case (`clamp_to_edge`, `linear`). Raises BackendError if the device has none.
        """
        raise BackendError("this backend has no samplers")

    def fill(self, buffer: Memory, word: int, offset: int, nbytes: int) -> None:
        """Fill part of a buffer, from a multiple of four bytes on, with a 32-bit pattern; do not wait."""

    def write(self, buffer: Memory, data: NDArray[Any], offset: int = 0) -> None:
        """Copy a host array to the device, and wait."""

    def read(self, buffer: Memory, data: NDArray[Any], offset: int = 0) -> None:
        """Copy from the device into a contiguous host array, and wait."""

    def copy(self, source: Memory, target: Memory, nbytes: int, source_offset: int, target_offset: int) -> None:
        """Copy from buffer to buffer on the device."""

    def build(self, source: str, options: Sequence[str] = ()) -> Program:
        """Build a program. Raises BuildError with the compiler's log."""

    def signatures(self, source: str, options: Sequence[str] = ()) -> Mapping[str, Sequence[KernelArgument]]:
        """Return the arguments of each kernel of a program by its entry.

        Kernels that the driver does not describe are left out. Raises BuildError with the compiler's log.
        """
        return {}

    def set_arguments(
        self, kernel: Any, arguments: Sequence[Memory | np.generic | NDArray[Any] | int], first: int = 0
    ) -> None:
        """Set arguments of a kernel, from position `first` on.

        They are buffers, images, samplers, NumPy scalars, arrays without dimensions but with fields (structs), arrays
        of a vector's components, or bytes of local memory as an integer. Other arguments keep their values; launches
        that are already enqueued keep theirs. Raises ArgumentError for one that the kernel does not take.
        """

    def launch(
        self,
        kernel: Any,
        global_size: tuple[int, ...],
        local_size: tuple[int, ...] | None,
        offset: tuple[int, ...] | None = None,
    ) -> Event:
        """Enqueue one kernel with its current arguments; `offset` is that of its global ids."""

    def batch(self, hold: Callable[[], Event] | None = None) -> AbstractContextManager[Batch]:
        """Enqueue the block's launches without profiling and time them.

        `hold` is called first, and launches a kernel that keeps the device busy meanwhile. `batch` is only called on a
        device that shares no cores with the host.
        """
        raise RuntimeError("this backend knows no batches")

    def wait_until_running(self, event: Event) -> bool:
        """Wait until a launch executes, so that its compilation, if any, is over. Return False if it failed."""
        return True

    def busy_ns(self) -> int:
        """Return the device time of all launches and batches since the last call, in ns; all must have finished."""

    def span_ns(self, first: Event, last: Event) -> int:
        """Return the device time from the start of one finished launch to the end of another, in nanoseconds."""

    @property
    def timer(self) -> str:
        """What measures spans: the `events` of launches, or the `host`, which waits for each single launch."""
        return "events"

    def finish(self) -> None:
        """Wait for everything enqueued."""

    def sense(self) -> Reading | None:
        """Return what the device's sensors say now, or None if it has none. Never fails or waits."""
        return None


class Backend(Protocol):
    """One way of driving devices."""

    name: str

    def prepare(self) -> None:
        """Import what the other methods need, but call no driver: processes will be forked from the caller's."""
        return

    def devices(self) -> list[DeviceInfo]:
        """Return every device that it finds, with `backend` set to its name; none if no driver is installed."""

    def traits(self, info: DeviceInfo) -> Traits:
        """Return the traits of a device, which need not be one of this machine."""

    def open(self, info: DeviceInfo) -> Session:
        """Open a device. Raises BackendError."""

    def attach(self, queue: object) -> Guest | None:
        """Return a Guest for a program's own queue, or None if it is not a queue of this backend."""
        return None

    def environment(self, caches: Path, *, worker: bool) -> Mapping[str, str]:
        """Return environment variables that let a process keep builds in `caches`; `worker`: it is one of many."""
        return {}

    def diagnose(self, devices: Sequence[DeviceInfo]) -> list[str]:
        """Return what is wrong on this machine with these devices, a line each with the command that mends it."""
        return []

    def missing(self, info: DeviceInfo) -> list[str]:
        """Return what this machine lacks to build for a device, in lines like those of `diagnose`."""
        return []
