"""What a backend is: the devices that one way of driving them finds, and one of them as a session.

A backend is one file. It is named by a row of the registry, or by an entry point of an installed package, and passes
tests/contracts/backend.py. What its classes inherit from these is what most devices need. Nothing outside this room
asks which backend it is: `Traits` say what differs.
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
"""One launch: waited for, and asked for its time once it is over."""


class BackendError(AutotuneError):
    """A call of a backend that failed: `name` is the driver's word for why; `detail` is a build log."""

    def __init__(self, what: str, *, name: str = "", detail: str = "") -> None:
        self.name = name
        super().__init__(what, detail=detail)


class BuildError(BackendError):
    """A program that does not build; `detail` is the compiler's log.

    `too_large`: it is right, and needs more of something than this device has.
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
    """The first launch compiles: it may take as long as a build, and who builds ahead launches."""

    keeps_builds: bool = True
    """What one process builds another finds in a cache: building ahead pays."""

    shares_cores: bool = False
    """Kernels run on the host's cores, as compilers do, which halt meanwhile. Such cores are few, and each
    walks a stretch of memory of its own. All such devices are one piece of hardware."""

    understates_limits: bool = False
    """The driver runs more than it reports, and refuses by itself what is too much. Others corrupt memory."""

    local_memory: int = 0
    """Bytes of local memory that a kernel may have where the driver understates its limits."""

    tells_binaries: bool = True
    """A program's binary is there for the asking; else to be asked takes another compilation."""

    hashes_binaries: bool = True
    """The binary is there for the asking, and equal for equal code."""

    checks_on_device: bool = True
    """It runs OpenCL C, in which outputs are checked where they lie; else they are read back and checked here."""

    ends_slowly: bool = False
    """A process that has opened it takes a while to end, and several end one after the other."""

    builder_memory: int = 2**29
    """Bytes of device memory that a process which builds ahead should have, for its context above all."""


@dataclass(frozen=True, slots=True)
class KernelLimits:
    """What the driver says of one built kernel: memory in bytes; zero where it says nothing.

    `required_work_group_size` is what the kernel's source requires, `work_group_size` the largest that it is said to
    run with.
    """

    required_work_group_size: int = 0
    work_group_size: int = 0
    local_memory: int = 0
    private_memory: int = 0


@dataclass(frozen=True, slots=True)
class KernelArgument:
    """What a compiler says of one argument of a kernel.

    `type_name`: as the source has it, without qualifiers (`float*`, `image2d_t`, `Particle`); `address`: `global`,
    `constant`, `local` or `private`; `access`, of an image: `read_only`, `write_only`, `read_write`; `const`: it, or
    what it points to.
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
        """What the compiler said; empty where a cache answered."""

    @property
    def resources(self) -> Mapping[str, int]:
        """`registers`, `spill_stores` and `spill_loads` (bytes) of its kernels at most, as far as the log tells."""

    @property
    def binary(self) -> bytes:
        """What the compiler made of it."""

    @property
    def binary_suffix(self) -> str:
        """How the name of a file that holds the binary ends: `ptx`, or `bin` where nobody reads it."""

    def kernel(self, entry: str) -> Kernel:
        """Return a new kernel. Raises BackendError where the program has no such entry."""

    def limits(self, kernel: Any) -> KernelLimits:
        """Return the limits of one of its kernels."""


@dataclass(slots=True)
class Batch:
    """A batch on the host's clock: `ns` until all of it had ended, `enqueued_ns` until it was enqueued.

    Where the host saw the device let go, after `held_ns`, `ns` counts from there; else that is 0 and `ns` counts from
    the beginning.
    """

    ns: int = 0
    enqueued_ns: int = 0
    held_ns: int = 0


class Session(Protocol):
    """One device, opened: what is enqueued runs in order. Raises BackendError from every method.

    `alignment`: bytes, of the start of a region; `cache`: bytes that the last level of its caches may have.
    """

    info: DeviceInfo
    traits: Traits
    alignment: int
    cache: int

    def allocate(self, nbytes: int) -> Memory:
        """Return a new buffer that kernels read and write."""

    def region(self, buffer: Memory, offset: int, nbytes: int) -> Memory:
        """Return the part of a buffer that starts at `offset`, a multiple of `alignment`."""

    def image(self, shape: Sequence[int], order: str, channel: str, normalized: bool) -> Memory:
        """Return a new image that kernels read and write, of one to three dimensions.

        `shape` is as NumPy has it, the last extent OpenCL's width; `order` OpenCL's name (`RGBA`); `channel` the scalar
        type (`uchar`). `write`, `read` and `copy` take it as a whole, its pixels dense. Raises BackendError where the
        device has no images, or none of this kind.
        """
        raise BackendError("this backend has no images")

    def sampler(self, addressing: str, filtering: str, normalized: bool) -> Any:
        """Return what tells a kernel how to read images: OpenCL's names in small letters (`clamp_to_edge`, `linear`).

        Raises BackendError where the device has none.
        """
        raise BackendError("this backend has no samplers")

    def fill(self, buffer: Memory, word: int, offset: int, nbytes: int) -> None:
        """Fill part of a buffer that starts at a multiple of four bytes with a 32-bit pattern; wait for nothing."""

    def write(self, buffer: Memory, data: NDArray[Any], offset: int = 0) -> None:
        """Copy a host array to the device, and wait."""

    def read(self, buffer: Memory, data: NDArray[Any], offset: int = 0) -> None:
        """Copy from the device into a contiguous host array, and wait."""

    def copy(self, source: Memory, target: Memory, nbytes: int, source_offset: int, target_offset: int) -> None:
        """Copy from buffer to buffer on the device."""

    def build(self, source: str, options: Sequence[str] = ()) -> Program:
        """Build a program. Raises BuildError with the compiler's log."""

    def signatures(self, source: str, options: Sequence[str] = ()) -> Mapping[str, Sequence[KernelArgument]]:
        """Return the arguments of each kernel of a program by its entry; those of which the driver does not tell lack.

        Raises BuildError with the compiler's log.
        """
        return {}

    def set_arguments(
        self, kernel: Any, arguments: Sequence[Memory | np.generic | NDArray[Any] | int], first: int = 0
    ) -> None:
        """Set arguments of a kernel from the first on: buffers, images, samplers, NumPy scalars and arrays of no
        dimension with fields (structs), arrays of the components of a vector, or bytes of local memory as an integer.

        Those set before stay; launches that are enqueued keep what they were enqueued with. Raises ArgumentError for
        one that the kernel does not take.
        """

    def launch(
        self,
        kernel: Any,
        global_size: tuple[int, ...],
        local_size: tuple[int, ...] | None,
        offset: tuple[int, ...] | None = None,
    ) -> Event:
        """Enqueue one kernel with the arguments it has; `offset` is that of its global ids."""

    def batch(self, hold: Callable[[], Event] | None = None) -> AbstractContextManager[Batch]:
        """Enqueue without profiling inside, behind what `hold` launches, which keeps the device busy; then time it.

        Only called on a device that shares no cores with the host.
        """
        raise RuntimeError("this backend knows no batches")

    def wait_until_running(self, event: Event) -> bool:
        """Wait until a launch executes: where the first launch compiles, it does then. False where it failed."""
        return True

    def busy_ns(self) -> int:
        """Return the device time of all launches and batches since the last call, all finished, in nanoseconds."""

    def span_ns(self, first: Event, last: Event) -> int:
        """Return the device time from the start of one finished launch to the end of another, in nanoseconds."""

    @property
    def timer(self) -> str:
        """What tells spans: the `events` of launches, or the `host`, which waits for each launch by itself."""
        return "events"

    def finish(self) -> None:
        """Wait for everything enqueued."""

    def sense(self) -> Reading | None:
        """Return what the device's sensors say now, None where it has none; never fails, and waits for nothing."""
        return None


class Backend(Protocol):
    """One way of driving devices."""

    name: str

    def prepare(self) -> None:
        """Import what the other methods take, and call no driver: a process that is to be forked asks."""
        return

    def devices(self) -> list[DeviceInfo]:
        """Return every device that it finds, `backend` set to its name; none where no driver is installed."""

    def traits(self, info: DeviceInfo) -> Traits:
        """Return what is special about a device, which need not be one of this machine."""

    def open(self, info: DeviceInfo) -> Session:
        """Open a device. Raises BackendError."""

    def attach(self, queue: object) -> Guest | None:
        """Return a program's own queue as one to build and launch for; None for what is no queue of this backend."""
        return None

    def environment(self, caches: Path, *, worker: bool) -> Mapping[str, str]:
        """Return variables of a process whose builds are kept in a folder; `worker`: it is one of many here."""
        return {}

    def diagnose(self, devices: Sequence[DeviceInfo]) -> list[str]:
        """Return what is amiss on this machine, where these are its devices, one line each, with the command that mends
        it; empty: nothing.
        """
        return []

    def missing(self, info: DeviceInfo) -> list[str]:
        """Return what this machine lacks to build for a device, lines as of `diagnose`."""
        return []
