"""OpenCL: the devices of this machine, and one of them as a session that builds, launches and times.

Only the files opencl_*.py import pyopencl.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from typing import Any, cast

import numpy as np

from autotune.devices import drivers, linker, processor
from autotune.devices.backend import (
    ArgumentError,
    BackendError,
    Batch,
    BuildError,
    KernelArgument,
)
from autotune.devices.opencl_objects import (
    OpenCLMemory,
    OpenCLProgram,
    error_name,
    failed,
    refused,
    reported,
    signature,
)
from autotune.devices.opencl_timer import HostSpan, tells_time, timed_by_host
from autotune.devices.sensors import Reading, Sensors, sensors_of
from autotune.errors import without
from autotune.model import DeviceInfo

import pyopencl as cl  # isort: skip  (after opencl_objects.py, which turns its cache off)

_TELL = "-cl-kernel-arg-info"
"""The build option that makes a program describe its kernels' arguments."""

_SEEN_NS = 10_000
"""Waiting for an event that was already over takes less than this."""

_CACHE_ON_CPU, _CACHE_ON_GPU = 2**25, 2**27
"""Least bytes assumed for a last-level cache. Drivers do not always report the last level; NVIDIA's counts the L1s.
Twice these sizes exceed the shared cache of a CPU's chiplet, and the largest L2 of today's GPUs."""


def _devices() -> list[cl.Device]:
    devices: list[cl.Device] = []
    drivers.give_pocl_a_cache()
    # An installed driver may find no device, or fail to start: the others are still used.
    with suppress(cl.Error):
        for platform in cl.get_platforms():
            with suppress(cl.Error):
                found = platform.get_devices()
                devices += found
                if drivers.names_pocl(platform.name):
                    for device in found:
                        processor.name(device.int_ptr)
    return devices


def devices() -> list[DeviceInfo]:
    """Return every OpenCL device here, in the drivers' order; none if no driver is installed."""
    return [_described(index, device) for index, device in enumerate(_devices())]


def _described(index: int, device: cl.Device) -> DeviceInfo:
    return drivers.describe(index, device, cl._cl.__file__)


def _which(info: DeviceInfo) -> tuple[str, str, str, str]:
    """Return what distinguishes a device of this machine from the others, as far as its driver tells."""
    return info.name, info.vendor, info.uuid, info.pci


def describe(device: cl.Device) -> DeviceInfo:
    """Return the description of a program's own device; its index is -1 if it is a part of a device."""
    with reported():
        return _described(next((at for at, one in enumerate(_devices()) if one == device), -1), device)


class OpenCLSession(OpenCLMemory):
    """A context and an in-order, profiling queue on one device; its methods are documented in `backend.Session`."""

    def __init__(self, info: DeviceInfo) -> None:
        self._is_on(info)
        with reported():
            found = _devices()
            # If a device has disappeared, such as a GPU that fell off its bus, others have its number.
            if info.index >= len(found) or _which(_described(info.index, found[info.index])) != _which(info):
                raise BackendError(f"device {info.index}, {info.name}, is no longer there")
            self._device = found[info.index]
            self._context = cl.Context([self._device])
            self._queue = cl.CommandQueue(self._context, properties=cl.command_queue_properties.PROFILING_ENABLE)
            self._plain: cl.CommandQueue | None = None  # without profiling, which puts gaps around launches
            self._launched: list[cl.Event | HostSpan] | None = []  # None: nothing is profiled
            self._batches_ns = 0
            self.alignment = max(128, self._device.mem_base_addr_align // 8)  # bytes, of a sub-buffer's origin
            floor = _CACHE_ON_CPU if self.traits.shares_cores else _CACHE_ON_GPU
            self.cache = max(floor, self._device.global_mem_cache_size)

    def _is_on(self, info: DeviceInfo) -> None:
        """Set what follows from the device alone; also needed for a program's own queue."""
        self.info = info
        self.traits = drivers.traits(info)
        self._nvidia = info.vendor_name == "nvidia"
        # NVIDIA's option reports registers and spills. Both drivers describe arguments at no cost if asked in a build.
        self._asks = ("-cl-nv-verbose", _TELL) if self._nvidia else (_TELL,) if drivers.is_pocl(info) else ()
        self._samplers: dict[tuple[str, str, bool], cl.Sampler] = {}
        self._told: tuple[tuple[str, tuple[str, ...]], OpenCLProgram] | None = None
        if drivers.is_pocl(info):
            linker.provide()

    def build(self, source: str, options: Sequence[str] = ()) -> OpenCLProgram:
        told, self._told = self._told, None
        if told is not None and told[0] == (source, tuple(options)):
            return told[1]
        with reported():
            program = cl.Program(self._context, source)
        return self._built(program, [*options, *self._asks])

    def _built(self, program: cl.Program, options: Sequence[str]) -> OpenCLProgram:
        try:
            with without(UserWarning):  # pyopencl warns of every log that is not empty
                # This creates it now, without pyopencl's cache, with which a failed build has no log. A program that
                # imported pyopencl may have turned the cache on.
                _ = program.int_ptr
                program.build(list(options))
        except cl.Error as error:
            log, name = OpenCLProgram(program, self._device).log, error_name(error.code)
            given = ""
            if name == "CL_INVALID_BUILD_OPTIONS" and not log:  # Mesa's driver does not say which option
                given = f": {' '.join(one for one in options if not one.startswith('-D'))}"
            raise BuildError(
                failed(error.routine or "clBuildProgram", error.code) + given,
                name=name,
                detail=log,
                too_large="too much shared data" in log,  # NVIDIA's assembler: static local memory beyond the device
            ) from None
        return OpenCLProgram(program, self._device, "ptx" if self._nvidia else "bin")

    def signatures(self, source: str, options: Sequence[str] = ()) -> Mapping[str, Sequence[KernelArgument]]:
        built = self.build(source, [*options, *(() if _TELL in self._asks else (_TELL,))])
        if _TELL in self._asks:  # keep it: it is usually built next, which takes a while even with a driver's cache
            self._told = (source, tuple(options)), built
        found: dict[str, Sequence[KernelArgument]] = {}
        with suppress(cl.Error, BackendError):
            for entry in built.entries:
                with suppress(cl.Error, BackendError):  # a driver need not describe a kernel, or any
                    found[entry] = signature(built.kernel(entry))
        return found

    def set_arguments(
        self, kernel: cl.Kernel, arguments: Sequence[cl.Buffer | np.generic | bytes | int], first: int = 0
    ) -> None:
        for position, value in enumerate(arguments, first):
            try:
                kernel.set_arg(position, passed(value))
            except cl.Error as error:
                said = failed("clSetKernelArg", error.code)
                raise ArgumentError(said, position, name=error_name(error.code)) from None

    def launch(
        self,
        kernel: cl.Kernel,
        global_size: tuple[int, ...],
        local_size: tuple[int, ...] | None,
        offset: tuple[int, ...] | None = None,
    ) -> cl.Event | HostSpan:
        # This must be fast: a trial of a short kernel enqueues a thousand launches while the device is held.
        try:
            if self._launched is None:
                return cl.enqueue_nd_range_kernel(self._queue, kernel, global_size, local_size, offset)
            enqueue = partial(cl.enqueue_nd_range_kernel, self._queue, kernel, global_size, local_size, offset)
            event = enqueue() if self.timer == "events" else timed_by_host(self._queue, enqueue)
        except cl.Error as error:
            raise refused(error) from None
        self._launched.append(event)
        return event

    @contextmanager
    def batch(self, hold: Callable[[], Any] | None = None) -> Iterator[Batch]:
        self.finish()
        with reported():
            plain = self._plain = self._plain or cl.CommandQueue(self._context)
        batch = Batch()
        profiling, launched, self._queue, self._launched = self._queue, self._launched, plain, None
        try:
            with reported():
                began = time.perf_counter_ns()
                held = hold() if hold else None
                plain.flush()
                yield batch
                plain.flush()
                enqueued = released = time.perf_counter_ns()
                if held is not None:
                    held.wait()
                    released = time.perf_counter_ns()
                plain.finish()
                ended = time.perf_counter_ns()
            batch.enqueued_ns = enqueued - began
            batch.held_ns = released - began if released - enqueued > _SEEN_NS else 0
            batch.ns = ended - began - batch.held_ns
            self._batches_ns += ended - began
        finally:
            self._queue, self._launched = profiling, launched
            with reported():
                plain.finish()

    def wait_until_running(self, event: cl.Event | HostSpan) -> bool:
        if isinstance(event, HostSpan):
            return True
        # OpenCL has no blocking wait for this. Polling slows down, to leave the cores to the compiler.
        began = time.monotonic()
        with reported():
            self._queue.flush()
            while event.command_execution_status > cl.command_execution_status.RUNNING:
                time.sleep(min(0.01, 0.0002 + 0.01 * (time.monotonic() - began)))
            return event.command_execution_status >= cl.command_execution_status.COMPLETE

    def busy_ns(self) -> int:
        launched, self._launched = self._launched or [], []
        batches, self._batches_ns = self._batches_ns, 0
        return sum(self.span_ns(event, event) for event in launched) + batches

    def span_ns(self, first: cl.Event | HostSpan, last: cl.Event | HostSpan) -> int:
        with reported():
            start = first.start if isinstance(first, HostSpan) else first.get_profiling_info(cl.profiling_info.START)
            end = last.end if isinstance(last, HostSpan) else last.get_profiling_info(cl.profiling_info.END)
            return cast("int", end) - cast("int", start)

    @cached_property
    def timer(self) -> str:
        return "events" if tells_time(self._context, self._queue) else "host"

    def finish(self) -> None:
        with reported():
            self._queue.finish()

    def sense(self) -> Reading | None:
        return self._sensors.read() if self._sensors is not None else None

    @cached_property
    def _sensors(self) -> Sensors | None:
        return sensors_of(self.info)


def passed(argument: Any) -> Any:
    """Return an argument for pyopencl: a number, vector or struct as its bytes, an integer as local memory."""
    if isinstance(argument, int):
        return cl.LocalMemory(argument)
    return argument.tobytes() if isinstance(argument, np.ndarray | np.generic) else argument
