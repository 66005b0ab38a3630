"""OpenCL: the devices of this machine, and one of them as a session that builds, launches and times.

Beside opencl_guest.py the only file that imports pyopencl. Its own build cache is off: a killed worker would leave
a stale lock there that stalls the next one for a minute.
"""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

os.environ["PYOPENCL_NO_CACHE"] = "1"
import pyopencl as cl

from autotune.devices import drivers, linker
from autotune.devices.backend import (
    ArgumentError,
    BackendError,
    Batch,
    BuildError,
    KernelArgument,
    KernelLimits,
    Traits,
)
from autotune.devices.guest import Guest
from autotune.model import DeviceInfo

_TELL = ("-cl-kernel-arg-info",)
"""The option of a build that is to tell of arguments."""

MOST_FILLED = 2**28
"""Bytes filled by one command: on an H200 one of several GB never came back."""

_CACHE_ON_CPU, _CACHE_ON_GPU = 2**25, 2**27
"""Bytes of a last-level cache at least: drivers report one that is not always the last, NVIDIA's counts the L1s. These
are half of what is above the largest L2 of today's GPUs and the shared cache of a CPU's chiplet."""


def error_name(code: int) -> str:
    """Return the name of an OpenCL error: -36 is CL_INVALID_COMMAND_QUEUE."""
    if code == -9999:  # undocumented, and what NVIDIA's driver says of an illegal read or write
        return "NVIDIA's illegal memory access"
    names = {value: name for name, value in vars(cl.status_code).items() if isinstance(value, int)}
    return f"CL_{names[code]}" if code in names else "unknown error"


def _said(call: str, code: int) -> str:
    return f"{call} failed: {error_name(code)} ({code})"


@contextmanager
def _reported() -> Iterator[None]:
    """Raise BackendError for what OpenCL refuses inside."""
    try:
        yield
    except cl.Error as error:
        raise refused(error) from None


def refused(error: cl.Error) -> BackendError:
    """Return what OpenCL says as an error of ours."""
    return BackendError(_said(error.routine or "OpenCL", error.code), name=error_name(error.code))


def _devices() -> list[cl.Device]:
    devices: list[cl.Device] = []
    # A driver may be installed and find no device, or fail to start: the others still count.
    with suppress(cl.Error):
        for platform in cl.get_platforms():
            with suppress(cl.Error):
                devices += platform.get_devices()
    return devices


def _described(index: int, device: cl.Device) -> DeviceInfo:
    return drivers.describe(index, device, cl._cl.__file__)


def describe(device: cl.Device) -> DeviceInfo:
    """Return what a program's own device is; -1 is the index of what is a part of one."""
    with _reported():
        return _described(next((at for at, one in enumerate(_devices()) if one == device), -1), device)


class OpenCLProgram:
    """A built program: its kernels, log and binary, which is PTX on NVIDIA."""

    def __init__(self, program: cl.Program, device: cl.Device, binary_suffix: str = "bin") -> None:
        self._program = program
        self._device = device
        self.binary_suffix = binary_suffix
        self.log = ""
        with suppress(cl.Error):
            ask: Any = program
            self.log = str(ask.get_build_info(device, cl.program_build_info.LOG)).strip("\0 \n")
        found = {name: [int(number) for number in pattern.findall(self.log)] for name, pattern in drivers.FACTS.items()}
        self.resources = {name: max(numbers) for name, numbers in found.items() if numbers}

    @property
    def entries(self) -> list[str]:
        """The names of its kernels."""
        with _reported():
            return str(self._program.get_info(cl.program_info.KERNEL_NAMES)).strip("\0").split(";")

    @property
    def binary(self) -> bytes:
        """The device's binary. PoCL compiles once more to answer this."""
        with _reported():
            return cast("list[bytes]", self._program.get_info(cl.program_info.BINARIES))[0]

    def kernel(self, entry: str) -> cl.Kernel:
        """Return a new kernel object. Raises BackendError where the program has no such entry."""
        with _reported():
            return cl.Kernel(self._program, entry)

    def limits(self, kernel: cl.Kernel) -> KernelLimits:
        """Return the limits of one of its kernels."""
        ask = cl.kernel_work_group_info
        with _reported():
            return KernelLimits(
                math.prod(kernel.get_work_group_info(ask.COMPILE_WORK_GROUP_SIZE, self._device)),
                kernel.get_work_group_info(ask.WORK_GROUP_SIZE, self._device),
                kernel.get_work_group_info(ask.LOCAL_MEM_SIZE, self._device),
                kernel.get_work_group_info(ask.PRIVATE_MEM_SIZE, self._device),
            )


def asks_of(info: DeviceInfo) -> Sequence[str]:
    """Return the options by which every build on a device says more than it must."""
    # NVIDIA's tells registers and spills. PoCL tells of arguments at no cost, and would build again to be asked.
    return ("-cl-nv-verbose",) if info.vendor_name == "nvidia" else _TELL if drivers.is_pocl(info) else ()


class OpenCLSession:
    """A context and an in-order, profiling queue on one device; what its methods do stands in `backend.Session`."""

    def __init__(self, info: DeviceInfo) -> None:
        self.info = info
        self.traits = drivers.traits(info)
        self._nvidia = info.vendor_name == "nvidia"
        self._asks = asks_of(info)
        with _reported():
            self._device = _devices()[info.index]
            self._context = cl.Context([self._device])
            self._queue = cl.CommandQueue(self._context, properties=cl.command_queue_properties.PROFILING_ENABLE)
            self._plain: cl.CommandQueue | None = None  # without profiling, which puts gaps around launches
            self._launched: list[cl.Event] | None = []  # None: nothing is profiled
            self._batches_ns = 0
            self._samplers: dict[tuple[str, str, bool], cl.Sampler] = {}
            self.alignment = max(128, self._device.mem_base_addr_align // 8)  # bytes, of a sub-buffer's origin
            floor = _CACHE_ON_CPU if self.traits.shares_cores else _CACHE_ON_GPU
            self.cache = max(floor, self._device.global_mem_cache_size)
        if drivers.is_pocl(info):
            linker.provide()

    def allocate(self, nbytes: int) -> cl.Buffer:
        with _reported():
            return cl.Buffer(self._context, cl.mem_flags.READ_WRITE, nbytes)

    def region(self, buffer: cl.Buffer, offset: int, nbytes: int) -> cl.Buffer:
        with _reported():
            return buffer.get_sub_region(offset, nbytes, 0)

    def fill(self, buffer: cl.Buffer, word: int, offset: int, nbytes: int) -> None:
        pattern, words = np.array([word], np.uint32), nbytes - nbytes % 4
        with _reported():
            for begin in range(0, words, MOST_FILLED):
                part = min(MOST_FILLED, words - begin)
                cl.enqueue_fill(self._queue, buffer, pattern, part, offset=offset + begin)
            for place in range(words, nbytes):
                byte = pattern.view(np.uint8)[place % 4 : place % 4 + 1]
                cl.enqueue_fill(self._queue, buffer, byte, 1, offset=offset + place)

    def image(self, shape: Sequence[int], order: str, channel: str, normalized: bool) -> cl.Image:
        if not self.info.images:
            raise BackendError(f"{self.info.name} has no images")
        extents = tuple(reversed(shape))
        made = cl.ImageFormat(getattr(cl.channel_order, order), _channel_type(channel, normalized))
        kind = getattr(cl.mem_object_type, f"IMAGE{len(extents)}D")
        dimensions = f"{len(extents)} dimension{'s' * (len(extents) > 1)}"
        said = f"images of {dimensions}, order {order} and type {channel}{' normalized' * normalized}"
        with _reported():
            offered = cl.get_supported_image_formats(self._context, cl.mem_flags.READ_WRITE, kind)
            if made not in offered:
                raise BackendError(f"{self.info.name} has no {said}", name="CL_IMAGE_FORMAT_NOT_SUPPORTED")
        try:
            return cl.create_image(self._context, cl.mem_flags.READ_WRITE, made, shape=extents)
        except cl.Error as error:
            what = (
                f"{self.info.name} has no {said} and {' x '.join(map(str, extents))} pixels: {error_name(error.code)}"
            )
            raise BackendError(what, name=error_name(error.code)) from None

    def sampler(self, addressing: str, filtering: str, normalized: bool) -> cl.Sampler:
        if not self.info.images:
            raise BackendError(f"{self.info.name} has no samplers")
        key = addressing, filtering, normalized
        if key not in self._samplers:  # kept: a kernel holds its sampler by no reference on some drivers
            mode, filter_ = getattr(cl.addressing_mode, addressing.upper()), getattr(cl.filter_mode, filtering.upper())
            with _reported():
                self._samplers[key] = cl.Sampler(self._context, normalized, mode, filter_)
        return self._samplers[key]

    def write(self, buffer: cl.Buffer, data: NDArray[Any], offset: int = 0) -> None:
        plain = _plain(np.ascontiguousarray(data))
        with _reported():
            if isinstance(buffer, cl.Image):
                cl._cl._enqueue_write_image(self._queue, buffer, *_whole(buffer), plain, is_blocking=True)
            else:
                cl.enqueue_copy(self._queue, buffer, plain, dst_offset=offset, is_blocking=True)

    def read(self, buffer: cl.Buffer, data: NDArray[Any], offset: int = 0) -> None:
        with _reported():
            if isinstance(buffer, cl.Image):
                cl._cl._enqueue_read_image(self._queue, buffer, *_whole(buffer), _plain(data), is_blocking=True)
            else:
                cl.enqueue_copy(self._queue, _plain(data), buffer, src_offset=offset, is_blocking=True)

    def copy(self, source: cl.Buffer, target: cl.Buffer, nbytes: int, source_offset: int, target_offset: int) -> None:
        queue = self._queue
        with _reported():
            if isinstance(source, cl.Image):
                cl._cl._enqueue_copy_image_to_buffer(queue, source, target, *_whole(source), target_offset)
            elif isinstance(target, cl.Image):
                cl._cl._enqueue_copy_buffer_to_image(queue, source, target, source_offset, *_whole(target))
            else:
                cl.enqueue_copy(
                    queue, target, source, byte_count=nbytes, src_offset=source_offset, dst_offset=target_offset
                )

    def build(self, source: str, options: Sequence[str] = ()) -> OpenCLProgram:
        with _reported():
            program = cl.Program(self._context, source)
        return self._built(program, [*options, *self._asks])

    def _built(self, program: cl.Program, options: Sequence[str]) -> OpenCLProgram:
        try:
            with warnings.catch_warnings(action="ignore"):  # pyopencl warns of every log that is not empty
                program.build(list(options))
        except cl.Error as error:
            log = OpenCLProgram(program, self._device).log
            raise BuildError(
                _said(error.routine or "clBuildProgram", error.code),
                name=error_name(error.code),
                detail=log,
                too_large="too much shared data" in log,  # NVIDIA's assembler: static local memory beyond the device
            ) from None
        return OpenCLProgram(program, self._device, "ptx" if self._nvidia else "bin")

    def signatures(self, source: str, options: Sequence[str] = ()) -> Mapping[str, Sequence[KernelArgument]]:
        built = self.build(source, [*options, *(() if self._asks == _TELL else _TELL)])
        found: dict[str, Sequence[KernelArgument]] = {}
        with suppress(cl.Error, BackendError):
            for entry in filter(None, built.entries):
                with suppress(cl.Error, BackendError):  # a driver need not tell, of one kernel or of any
                    found[entry] = _signature(built.kernel(entry))
        return found

    def set_arguments(
        self, kernel: cl.Kernel, arguments: Sequence[cl.Buffer | np.generic | int], first: int = 0
    ) -> None:
        for position, value in enumerate(arguments, first):
            argument: Any = cl.LocalMemory(value) if isinstance(value, int) else value
            if isinstance(value, np.ndarray):  # a vector or a struct: bytes
                argument = np.frombuffer(value.tobytes(), np.uint8)
            try:
                kernel.set_arg(position, argument)
            except cl.Error as error:
                said = _said("clSetKernelArg", error.code)
                raise ArgumentError(said, position, name=error_name(error.code)) from None

    def launch(
        self,
        kernel: cl.Kernel,
        global_size: Sequence[int],
        local_size: Sequence[int] | None,
        offset: Sequence[int] | None = None,
    ) -> cl.Event:
        with _reported():
            local = tuple(local_size) if local_size is not None else None
            start = tuple(offset) if offset is not None else None
            event = cl.enqueue_nd_range_kernel(self._queue, kernel, tuple(global_size), local, start)
            if self._launched is not None:
                self._launched.append(event)
            return event

    @contextmanager
    def batch(self, hold: Callable[[], None]) -> Iterator[Batch]:
        self.finish()
        with _reported():
            plain = self._plain = self._plain or cl.CommandQueue(self._context)
        batch = Batch()
        profiling, launched, self._queue, self._launched = self._queue, self._launched, plain, None
        try:
            with _reported():
                began = time.perf_counter_ns()
                hold()
                plain.flush()
                yield batch
                plain.flush()
                batch.enqueued_ns = time.perf_counter_ns() - began
                plain.finish()
                batch.ns = time.perf_counter_ns() - began
                self._batches_ns += batch.ns
        finally:
            self._queue, self._launched = profiling, launched
            with _reported():
                plain.finish()

    def wait_until_running(self, event: cl.Event) -> bool:
        # OpenCL has no blocking wait for this. Ever slower polling leaves the cores to the compiler.
        began = time.monotonic()
        with _reported():
            self._queue.flush()
            while event.command_execution_status > cl.command_execution_status.RUNNING:
                time.sleep(min(0.01, 0.0002 + 0.01 * (time.monotonic() - began)))
            return event.command_execution_status >= cl.command_execution_status.COMPLETE

    def busy_ns(self) -> int:
        launched, self._launched = self._launched or [], []
        batches, self._batches_ns = self._batches_ns, 0
        return sum(self.span_ns(event, event) for event in launched) + batches

    def span_ns(self, first: cl.Event, last: cl.Event) -> int:
        with _reported():
            start = first.get_profiling_info(cl.profiling_info.START)
            end = last.get_profiling_info(cl.profiling_info.END)
            return cast("int", end) - cast("int", start)

    def finish(self) -> None:
        with _reported():
            self._queue.finish()


def _signature(kernel: cl.Kernel) -> list[KernelArgument]:
    ask, found = cl.kernel_arg_info, []
    for position in range(kernel.num_args):
        address = kernel.get_arg_info(position, ask.ADDRESS_QUALIFIER)
        access = kernel.get_arg_info(position, ask.ACCESS_QUALIFIER)
        qualifiers: Any = kernel.get_arg_info(position, ask.TYPE_QUALIFIER)
        kind = str(kernel.get_arg_info(position, ask.TYPE_NAME)).strip("\0")
        name = str(kernel.get_arg_info(position, ask.NAME)).strip("\0")
        if not kind or not name:
            raise BackendError("the driver tells nothing of a kernel's arguments")
        found.append(
            KernelArgument(name, kind, _ADDRESSES[address], _ACCESSES.get(access, ""), bool(qualifiers & _CONST))
        )
    return found


_CONST = cl.kernel_arg_type_qualifier.CONST
_ADDRESSES = {
    getattr(cl.kernel_arg_address_qualifier, name.upper()): name for name in ("global", "local", "constant", "private")
}
_ACCESSES = {
    getattr(cl.kernel_arg_access_qualifier, name.upper()): name for name in ("read_only", "write_only", "read_write")
}


def _channel_type(channel: str, normalized: bool) -> int:
    """Return OpenCL's constant: `uchar` is UNSIGNED_INT8, or UNORM_INT8 where it is normalized."""
    if channel in ("half", "float"):
        return int(getattr(cl.channel_type, {"half": "HALF_FLOAT", "float": "FLOAT"}[channel]))
    bits = {"char": 8, "short": 16, "int": 32}[channel.removeprefix("u")]
    sign = ("UNORM" if channel[0] == "u" else "SNORM") if normalized else "UNSIGNED" if channel[0] == "u" else "SIGNED"
    return int(getattr(cl.channel_type, f"{sign}_INT{bits}"))


def _plain(data: NDArray[Any]) -> NDArray[Any]:
    """Return structs as their bytes, which OpenCL copies; other arrays as they are."""
    return data.reshape(-1).view(np.uint8) if data.dtype.names else data


def _whole(image: cl.Image) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return origin and region of all pixels, for the functions that cl.enqueue_copy calls.

    It does not call them for an image of one dimension (pyopencl 2026.1): `invalid dest mem object type`. What it
    offers in their place, enqueue_map_image, waits: a queue that is held until a batch is complete does so for ever.
    """
    return (0, 0, 0), (image.width, max(1, image.height), max(1, image.depth))


class OpenCL:
    """The backend."""

    name = "opencl"

    def devices(self) -> list[DeviceInfo]:
        """Return every OpenCL device here, in the drivers' order; none where no driver is installed."""
        return [_described(index, device) for index, device in enumerate(_devices())]

    def traits(self, info: DeviceInfo) -> Traits:
        return drivers.traits(info)

    def open(self, info: DeviceInfo) -> OpenCLSession:
        return OpenCLSession(info)

    def environment(self, caches: Path, *, worker: bool) -> Mapping[str, str]:
        return drivers.environment(caches, worker=worker)

    def diagnose(self) -> list[str]:
        return drivers.diagnose(self.devices())

    def attach(self, queue: object) -> Guest | None:
        from autotune.devices import opencl_guest  # which builds on this file

        return opencl_guest.attach(queue)

    def missing(self, info: DeviceInfo) -> list[str]:
        return linker.missing() if drivers.is_pocl(info) else []


BACKEND = OpenCL()
