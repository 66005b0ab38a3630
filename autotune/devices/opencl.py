"""OpenCL: the devices of this machine, and one of them as a session that builds, launches and times.

The only file that imports pyopencl. Its own build cache is off: a killed worker would leave a stale lock
there that stalls the next one for a minute.
"""

from __future__ import annotations

import ctypes
import math
import os
import re
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

os.environ["PYOPENCL_NO_CACHE"] = "1"
import pyopencl as cl

from autotune.devices import linker
from autotune.errors import AutotuneError
from autotune.model import DeviceInfo

_MOST_FILLED = 2**28
"""Bytes filled by one command: on an H200 one of several GB never came back."""

Memory = cl.Buffer
Event = cl.Event
Kernel = cl.Kernel

_DEVICE_UUID = 0x106A  # CL_DEVICE_UUID_KHR of cl_khr_device_uuid, which pyopencl does not name


class OpenCLError(AutotuneError):
    """A call that failed: `call` and the constant's `name` as in the OpenCL headers; `detail` is a build log."""

    def __init__(self, call: str, code: int, *, detail: str = "") -> None:
        self.call = call
        self.code = code
        self.name = error_name(code)
        super().__init__(f"{call} failed: {self.name} ({code})", detail=detail)


class BuildError(OpenCLError):
    """A program that does not build; `detail` is the compiler's log."""


def error_name(code: int) -> str:
    """Return the name of an OpenCL error: -36 is CL_INVALID_COMMAND_QUEUE."""
    if code == -9999:  # undocumented, and what NVIDIA's driver says of an illegal read or write
        return "NVIDIA's illegal memory access"
    names = {value: name for name, value in vars(cl.status_code).items() if isinstance(value, int)}
    return f"CL_{names[code]}" if code in names else "unknown error"


class ArgumentError(OpenCLError):
    """An argument that the kernel does not take; `position` counts from 0."""

    def __init__(self, position: int, code: int) -> None:
        self.position = position
        super().__init__("clSetKernelArg", code)


@contextmanager
def _reported() -> Iterator[None]:
    try:
        yield
    except cl.Error as error:
        raise OpenCLError(error.routine or "OpenCL", error.code) from None


def understates_limits(device: DeviceInfo) -> bool:
    """Say whether the driver runs more than it reports, and refuses by itself what is too much.

    NVIDIA's reports 256 work-items for every kernel and 48 KiB of local memory; on an H200 it runs 1024 and 227 KiB.
    """
    return device.vendor_name == "nvidia"


def list_devices() -> list[DeviceInfo]:
    """Return every OpenCL device here, in the drivers' order; none where no driver is installed."""
    return [_info(index, device) for index, device in enumerate(_devices())]


def _devices() -> list[cl.Device]:
    devices: list[cl.Device] = []
    # A driver may be installed and find no device, or fail to start: the others still count.
    with suppress(cl.Error):
        for platform in cl.get_platforms():
            with suppress(cl.Error):
                devices += platform.get_devices()
    return devices


def _info(index: int, device: cl.Device) -> DeviceInfo:
    capability = ""
    if "cl_nv_device_attribute_query" in device.extensions:
        capability = f"{device.compute_capability_major_nv}.{device.compute_capability_minor_nv}"
    return DeviceInfo(
        index=index,
        name=device.name.strip(),
        vendor=device.vendor.strip(),
        platform=f"{device.platform.name.strip()}, {device.platform.version.strip()}",
        driver=device.driver_version.strip(),
        kind=_kind(device),
        opencl_version=device.version.strip(),
        compute_units=device.max_compute_units,
        memory=device.global_mem_size,
        local_memory=device.local_mem_size,
        max_work_group_size=device.max_work_group_size,
        max_work_item_sizes=tuple(device.max_work_item_sizes),
        clock=device.max_clock_frequency,
        extensions=tuple(device.extensions.split()),
        uuid=_uuid(device),
        pci=_pci(device),
        max_allocation=device.max_mem_alloc_size,
        compute_capability=capability,
    )


def _kind(device: cl.Device) -> str:
    if device.type & cl.device_type.GPU:
        return "gpu"
    return "cpu" if device.type & cl.device_type.CPU else "accelerator"


def _uuid(device: cl.Device) -> str:
    if "cl_khr_device_uuid" not in device.extensions:
        return ""
    found = (ctypes.c_ubyte * 16)()
    query = ctypes.CDLL(cl._cl.__file__).clGetDeviceInfo
    query.argtypes = [ctypes.c_void_p, ctypes.c_uint, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p]
    failed = query(device.int_ptr, _DEVICE_UUID, ctypes.sizeof(found), found, None)
    digits = bytes(found).hex()
    return "" if failed else "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _pci(device: cl.Device) -> str:
    if "cl_nv_device_attribute_query" not in device.extensions:
        return ""
    domain = 0
    with suppress(cl.Error):
        domain = device.pci_domain_id_nv
    return f"{domain:04x}:{device.pci_bus_id_nv:02x}:{device.pci_slot_id_nv:02x}.0"


@dataclass(frozen=True, slots=True)
class KernelLimits:
    """What the driver says of one built kernel: memory in bytes; zero where it says nothing.

    `required_work_group_size` is what the kernel's source requires, `work_group_size` the largest that it is said to
    run with.
    """

    required_work_group_size: int
    work_group_size: int
    local_memory: int
    private_memory: int


class Program:
    """A built program: its kernels, log and binary."""

    def __init__(self, program: cl.Program, device: cl.Device) -> None:
        self._program = program
        self._device = device

    @property
    def log(self) -> str:
        """What the compiler said; empty where a cache answered."""
        with suppress(cl.Error):
            ask: Any = self._program
            return str(ask.get_build_info(self._device, cl.program_build_info.LOG)).strip("\0 \n")
        return ""

    @property
    def binary(self) -> bytes:
        """The device's binary: PTX on NVIDIA. PoCL compiles once more to answer this."""
        with _reported():
            binaries = cast("list[bytes]", self._program.get_info(cl.program_info.BINARIES))
            return binaries[0]

    def kernel(self, entry: str) -> Kernel:
        """Return a new kernel object. Raises OpenCLError where the program has no such entry."""
        with _reported():
            return cl.Kernel(self._program, entry)

    def limits(self, kernel: Kernel) -> KernelLimits:
        """Return the limits of one of its kernels."""
        ask = cl.kernel_work_group_info
        with _reported():
            return KernelLimits(
                math.prod(kernel.get_work_group_info(ask.COMPILE_WORK_GROUP_SIZE, self._device)),
                kernel.get_work_group_info(ask.WORK_GROUP_SIZE, self._device),
                kernel.get_work_group_info(ask.LOCAL_MEM_SIZE, self._device),
                kernel.get_work_group_info(ask.PRIVATE_MEM_SIZE, self._device),
            )


@dataclass(slots=True)
class Batch:
    """What was enqueued at once: `ns` on the host's clock from its release until all of it had ended."""

    ns: int = 0


class Session:
    """A context and an in-order, profiling queue on one device. Raises OpenCLError from every method."""

    def __init__(self, info: DeviceInfo) -> None:
        self.info = info
        with _reported():
            self._device = _devices()[info.index]
            self._context = cl.Context([self._device])
            self._queue = cl.CommandQueue(self._context, properties=cl.command_queue_properties.PROFILING_ENABLE)
            self._plain: cl.CommandQueue | None = None  # without profiling, which puts gaps around launches
            self._launched: list[Event] | None = []  # None: nothing is profiled
            self._batches_ns = 0
            self.alignment = max(128, self._device.mem_base_addr_align // 8)  # bytes, of a sub-buffer's origin
            self.cache = self._device.global_mem_cache_size  # bytes, as far as the driver tells
            self.builds_at_launch = re.search("pocl|portable computing", info.platform, re.IGNORECASE) is not None
            self.understates_limits = understates_limits(info)
            self.shares_cores = info.kind == "cpu"  # with the host
        if self.builds_at_launch:
            linker.provide()

    def allocate(self, nbytes: int) -> Memory:
        """Return a new read-write buffer."""
        with _reported():
            return cl.Buffer(self._context, cl.mem_flags.READ_WRITE, nbytes)

    def region(self, buffer: Memory, offset: int, nbytes: int) -> Memory:
        """Return the part of a buffer that starts at `offset`, a multiple of `alignment`."""
        with _reported():
            return buffer.get_sub_region(offset, nbytes, 0)

    def fill(self, buffer: Memory, word: int, offset: int, nbytes: int) -> None:
        """Fill part of a buffer that starts at a multiple of four bytes with a 32-bit pattern; wait for nothing."""
        pattern, words = np.array([word], np.uint32), nbytes - nbytes % 4
        with _reported():
            for begin in range(0, words, _MOST_FILLED):
                part = min(_MOST_FILLED, words - begin)
                cl.enqueue_fill(self._queue, buffer, pattern, part, offset=offset + begin)
            for place in range(words, nbytes):
                byte = pattern.view(np.uint8)[place % 4 : place % 4 + 1]
                cl.enqueue_fill(self._queue, buffer, byte, 1, offset=offset + place)

    def write(self, buffer: Memory, data: NDArray[Any], offset: int = 0) -> None:
        """Copy a host array to the device, and wait."""
        with _reported():
            cl.enqueue_copy(self._queue, buffer, np.ascontiguousarray(data), dst_offset=offset, is_blocking=True)

    def read(self, buffer: Memory, data: NDArray[Any], offset: int = 0) -> None:
        """Copy from the device into a contiguous host array, and wait."""
        with _reported():
            cl.enqueue_copy(self._queue, data, buffer, src_offset=offset, is_blocking=True)

    def copy(self, source: Memory, target: Memory, nbytes: int, source_offset: int, target_offset: int) -> None:
        """Copy from buffer to buffer on the device."""
        with _reported():
            cl.enqueue_copy(
                self._queue, target, source, byte_count=nbytes, src_offset=source_offset, dst_offset=target_offset
            )

    def build(self, source: str, options: Sequence[str] = ()) -> Program:
        """Build a program. Raises BuildError with the compiler's log."""
        with _reported():
            program = cl.Program(self._context, source)
        try:
            with warnings.catch_warnings(action="ignore"):  # pyopencl warns of every log that is not empty
                program.build(list(options))
        except cl.Error as error:
            log = Program(program, self._device).log
            raise BuildError(error.routine or "clBuildProgram", error.code, detail=log) from None
        return Program(program, self._device)

    def set_arguments(self, kernel: Kernel, arguments: Sequence[Memory | np.generic | int]) -> None:
        """Set all arguments of a kernel: buffers, NumPy scalars, or bytes of local memory as a plain integer.

        Raises ArgumentError for one that the kernel does not take.
        """
        for position, value in enumerate(arguments):
            argument: Any = cl.LocalMemory(value) if isinstance(value, int) else value
            try:
                kernel.set_arg(position, argument)
            except cl.Error as error:
                raise ArgumentError(position, error.code) from None

    def launch(self, kernel: Kernel, global_size: Sequence[int], local_size: Sequence[int] | None) -> Event:
        """Enqueue one kernel with the arguments it has."""
        with _reported():
            local = tuple(local_size) if local_size is not None else None
            event = cl.enqueue_nd_range_kernel(self._queue, kernel, tuple(global_size), local)
            if self._launched is not None:
                self._launched.append(event)
            return event

    @contextmanager
    def batch(self) -> Iterator[Batch]:
        """Hold back what is enqueued inside, on a queue without profiling, until all of it is there; then time it.

        Reading and writing would wait for ever inside: what is held back comes before them.
        """
        batch = Batch()
        with self._gate() as release:
            yield batch
            self._queue.flush()
            began = time.perf_counter_ns()
            release()
            self._queue.finish()
            batch.ns = time.perf_counter_ns() - began
            self._batches_ns += batch.ns

    def holds_back(self, commands: int, patience_s: float = 0.5) -> bool:
        """Say whether a batch holds back so many commands while the host goes on: found out by trying."""
        scratch, found, profiling = self.allocate(4), np.zeros(1, np.uint32), self._queue
        self.fill(scratch, 0, 0, 4)
        with self._gate() as release:
            watchdog = threading.Timer(patience_s, release)
            watchdog.start()
            for _ in range(commands):
                self.fill(scratch, 1, 0, 4)
            self._queue.flush()
            cl.enqueue_copy(profiling, found, scratch, is_blocking=True)
            waited = not watchdog.is_alive()
            watchdog.cancel()
            watchdog.join()
        return not waited and int(found[0]) == 0

    @contextmanager
    def _gate(self) -> Iterator[Callable[[], None]]:
        """Enqueue on the queue without profiling inside, held back until the function given is called or the end."""
        self.finish()
        with _reported():
            plain = self._plain = self._plain or cl.CommandQueue(self._context)
            gate = cl.UserEvent(self._context)
            cl.enqueue_marker(plain, [gate])
        profiling, launched, self._queue, self._launched = self._queue, self._launched, plain, None
        held = [gate]

        def release() -> None:
            while held:
                held.pop().set_status(cl.command_execution_status.COMPLETE)

        try:
            with _reported():
                yield release
        finally:
            with _reported():
                release()  # a queue that is held back could not even be closed
                plain.finish()
            self._queue, self._launched = profiling, launched

    def wait_until_running(self, event: Event) -> bool:
        """Wait until a launch executes, which on PoCL it does once compiled; False where it failed instead.

        OpenCL has no blocking wait for this. Ever slower polling leaves the cores to the compiler.
        """
        began = time.monotonic()
        with _reported():
            self._queue.flush()
            while event.command_execution_status > cl.command_execution_status.RUNNING:
                time.sleep(min(0.01, 0.0002 + 0.01 * (time.monotonic() - began)))
            return event.command_execution_status >= cl.command_execution_status.COMPLETE

    def busy_ns(self) -> int:
        """Return the device time of all launches and batches since the last call, all finished, in nanoseconds."""
        launched, self._launched = self._launched or [], []
        batches, self._batches_ns = self._batches_ns, 0
        return sum(span_ns(event, event) for event in launched) + batches

    def finish(self) -> None:
        """Wait for everything enqueued."""
        with _reported():
            self._queue.finish()


def span_ns(first: Event, last: Event) -> int:
    """Return the device time from the start of one finished launch to the end of another, in nanoseconds."""
    with _reported():
        start = first.get_profiling_info(cl.profiling_info.START)
        end = last.get_profiling_info(cl.profiling_info.END)
        return cast("int", end) - cast("int", start)
