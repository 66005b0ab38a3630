"""OpenCL: the devices of this machine, and one of them as a session that builds, launches and times.

The only file that imports pyopencl. Its own build cache is off: a killed worker would leave a stale lock
there that stalls the next one for a minute.
"""

from __future__ import annotations

import ctypes
import math
import os
import re
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

os.environ["PYOPENCL_NO_CACHE"] = "1"
import pyopencl as cl

from autotune.devices import drivers, linker
from autotune.devices.backend import ArgumentError, BackendError, BuildError, KernelLimits, Traits
from autotune.model import DeviceInfo

_MOST_FILLED = 2**28
"""Bytes filled by one command: on an H200 one of several GB never came back."""

_CACHE_ON_CPU, _CACHE_ON_GPU = 2**25, 2**27
"""Bytes of a last-level cache at least: drivers report one that is not always the last, NVIDIA's counts the L1s. These
are half of what is above the largest L2 of today's GPUs and the shared cache of a CPU's chiplet."""

_DEVICE_UUID = 0x106A  # CL_DEVICE_UUID_KHR of cl_khr_device_uuid, which pyopencl does not name


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
    try:
        yield
    except cl.Error as error:
        said = _said(error.routine or "OpenCL", error.code)
        raise BackendError(said, name=error_name(error.code)) from None


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


class OpenCLProgram:
    """A built program: its kernels, log and binary, which is PTX on NVIDIA."""

    def __init__(self, program: cl.Program, device: cl.Device, log: str, binary_suffix: str = "bin") -> None:
        self._program = program
        self._device = device
        self.log = log
        self.binary_suffix = binary_suffix
        self.resources = drivers.resources(log)

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


def _build_log(program: cl.Program, device: cl.Device) -> str:
    with suppress(cl.Error):
        ask: Any = program
        return str(ask.get_build_info(device, cl.program_build_info.LOG)).strip("\0 \n")
    return ""


class OpenCLSession:
    """A context and an in-order, profiling queue on one device; what its methods do stands in `backend.Session`."""

    def __init__(self, info: DeviceInfo) -> None:
        self.info = info
        self.traits = drivers.traits(info)
        self._nvidia = info.vendor_name == "nvidia"
        with _reported():
            self._device = _devices()[info.index]
            self._context = cl.Context([self._device])
            self._queue = cl.CommandQueue(self._context, properties=cl.command_queue_properties.PROFILING_ENABLE)
            self._launched: list[cl.Event] = []
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
        with _reported():
            for begin in range(0, nbytes, _MOST_FILLED):
                part = min(_MOST_FILLED, nbytes - begin)
                cl.enqueue_fill(self._queue, buffer, np.array([word], np.uint32), part, offset=offset + begin)

    def write(self, buffer: cl.Buffer, data: NDArray[Any], offset: int = 0) -> None:
        with _reported():
            cl.enqueue_copy(self._queue, buffer, np.ascontiguousarray(data), dst_offset=offset, is_blocking=True)

    def read(self, buffer: cl.Buffer, data: NDArray[Any], offset: int = 0) -> None:
        with _reported():
            cl.enqueue_copy(self._queue, data, buffer, src_offset=offset, is_blocking=True)

    def copy(self, source: cl.Buffer, target: cl.Buffer, nbytes: int, source_offset: int, target_offset: int) -> None:
        with _reported():
            cl.enqueue_copy(
                self._queue, target, source, byte_count=nbytes, src_offset=source_offset, dst_offset=target_offset
            )

    def build(self, source: str, options: Sequence[str] = ()) -> OpenCLProgram:
        verbose = ("-cl-nv-verbose",) if self._nvidia else ()  # tells registers and spills
        with _reported():
            program = cl.Program(self._context, source)
        try:
            with warnings.catch_warnings(action="ignore"):  # pyopencl warns of every log that is not empty
                program.build([*options, *verbose])
        except cl.Error as error:
            log = _build_log(program, self._device)
            raise BuildError(
                _said(error.routine or "clBuildProgram", error.code),
                name=error_name(error.code),
                detail=log,
                too_large="too much shared data" in log,  # NVIDIA's assembler: static local memory beyond the device
            ) from None
        return OpenCLProgram(program, self._device, _build_log(program, self._device), "ptx" if self._nvidia else "bin")

    def set_arguments(self, kernel: cl.Kernel, arguments: Sequence[cl.Buffer | np.generic | int]) -> None:
        for position, value in enumerate(arguments):
            argument: Any = cl.LocalMemory(value) if isinstance(value, int) else value
            try:
                kernel.set_arg(position, argument)
            except cl.Error as error:
                said = _said("clSetKernelArg", error.code)
                raise ArgumentError(said, position, name=error_name(error.code)) from None

    def launch(self, kernel: cl.Kernel, global_size: Sequence[int], local_size: Sequence[int] | None) -> cl.Event:
        with _reported():
            local = tuple(local_size) if local_size is not None else None
            event = cl.enqueue_nd_range_kernel(self._queue, kernel, tuple(global_size), local)
            self._launched.append(event)
            return event

    def wait_until_running(self, event: cl.Event) -> bool:
        # OpenCL has no blocking wait for this. Ever slower polling leaves the cores to the compiler.
        began = time.monotonic()
        with _reported():
            self._queue.flush()
            while event.command_execution_status > cl.command_execution_status.RUNNING:
                time.sleep(min(0.01, 0.0002 + 0.01 * (time.monotonic() - began)))
            return event.command_execution_status >= cl.command_execution_status.COMPLETE

    def busy_ns(self) -> int:
        launched, self._launched = self._launched, []
        return sum(self.span_ns(event, event) for event in launched)

    def span_ns(self, first: cl.Event, last: cl.Event) -> int:
        with _reported():
            start = first.get_profiling_info(cl.profiling_info.START)
            end = last.get_profiling_info(cl.profiling_info.END)
            return cast("int", end) - cast("int", start)

    def finish(self) -> None:
        with _reported():
            self._queue.finish()


class OpenCL:
    """The backend."""

    name = "opencl"

    def devices(self) -> list[DeviceInfo]:
        """Return every OpenCL device here, in the drivers' order; none where no driver is installed."""
        return [_info(index, device) for index, device in enumerate(_devices())]

    def traits(self, info: DeviceInfo) -> Traits:
        return drivers.traits(info)

    def open(self, info: DeviceInfo) -> OpenCLSession:
        return OpenCLSession(info)

    def environment(self, caches: Path, *, worker: bool) -> Mapping[str, str]:
        return drivers.environment(caches, worker=worker)

    def diagnose(self) -> list[str]:
        return drivers.diagnose(self.devices())

    def missing(self, info: DeviceInfo) -> list[str]:
        return linker.missing() if drivers.is_pocl(info) else []


BACKEND = OpenCL()
