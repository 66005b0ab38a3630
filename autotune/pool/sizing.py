"""What the machine has room for: the data, and processes that build ahead.

Data that does not fit is refused before anything is generated or uploaded. Otherwise the operating system would kill
the search, or the driver would refuse each trial, without an explanation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from autotune.bench import GUARD
from autotune.devices import traits
from autotune.errors import DeviceError
from autotune.model import DeviceInfo
from autotune.pool.allowance import available, count_cores
from autotune.study import Buffer, Plan, numpy_type

_WIDE = 8
"""Bytes of a number in the reference, which is computed in 64 bits."""

_MOST_BUILDERS = 16
"""Builders per device at most: with so many, compilers of a large kernel just keep one H200 busy."""


def require_room(plan: Plan, device: DeviceInfo, *, on_host: bool, hint: str = "give a smaller --size") -> None:
    """Raise DeviceError if a plan's data exceeds the free memory of the host, or its buffers that of the device.

    The estimate is a lower bound. `on_host`: the expected outputs are computed there, not by a reference kernel.
    `hint`: the cure.
    """
    require_device_room(plan, device, hint=hint)
    needed, free = sum(_host_bytes(buffer, on_host) for buffer in plan.buffers), available()
    if needed > free:
        raise DeviceError(f"needs {_gib(needed)} of host memory, {_gib(free)} are available", hint=hint)


def require_device_room(plan: Plan, device: DeviceInfo, *, hint: str) -> None:
    """Raise DeviceError if a plan's buffers exceed the memory of the device, on any machine. `hint`: the cure."""
    for buffer in plan.buffers:
        needed = buffer.nbytes + 2 * GUARD
        if 0 < device.max_allocation < needed:
            raise _refusal(f"buffer {buffer.name} takes", needed, f"{device.name} allows", device.max_allocation, hint)
    needed = sum(_device_bytes(buffer) for buffer in plan.buffers)
    if needed > device.memory:
        raise _refusal("the buffers take", needed, f"{device.name} has", device.memory, hint)


def _host_bytes(buffer: Buffer, on_host: bool) -> int:
    """Return the bytes of the input data, its copy in 64 bits, and the expected output in 64 bits."""
    dtype, _ = numpy_type(buffer.type)
    kept = buffer.reads * dtype.itemsize + on_host * _WIDE * (buffer.reads + buffer.writes)
    return math.prod(buffer.data_shape) * kept


def _device_bytes(buffer: Buffer) -> int:
    """Return the bytes of the buffer, and of the copy from which an `inout` buffer is restored."""
    return buffer.nbytes * (2 if buffer.access == "inout" else 1)


def _refusal(what: str, needed: int, there: str, limit: int, hint: str) -> DeviceError:
    told, most = _gib(needed), _gib(limit)
    if told == most:  # only the bytes show the difference
        told, most = f"{needed:,} bytes", f"{limit:,}"
    return DeviceError(f"{what} {told}, {there} {most}", hint=hint)


def _gib(nbytes: float) -> str:
    return f"{nbytes / 2**30:.1f} GiB"


def count_builders(devices: Sequence[DeviceInfo], asked: int | None) -> int:
    """Return how many processes build ahead: none if the driver keeps no builds, or one core has to do everything."""
    if asked is not None:
        return asked
    cores = count_cores()
    special = traits(devices[0])
    if not special.keeps_builds or (special.shares_cores and cores < 2):
        return 0
    # A driver that shares the host's memory reports that of the machine; a container has only a part of it.
    memory = min(devices[0].memory, available()) if special.shares_cores else devices[0].memory
    room = int(memory // special.builder_memory)
    return max(1, min(cores, len(devices) * min(_MOST_BUILDERS, room)))
