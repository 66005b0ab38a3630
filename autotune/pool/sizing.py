"""What the machine has room for: the data, processes that build ahead.

What does not fit is refused before anything is drawn or uploaded: otherwise the operating system kills the search, or
the driver refuses each trial, and nobody says why.
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
"""Bytes of a component in the reference, which is computed in 64 bits."""

_MOST_BUILDERS = 16
"""Per device: with as many, compilers of a large kernel just keep one H200 busy."""


def require_room(plan: Plan, device: DeviceInfo, *, on_host: bool, hint: str = "give a smaller --size") -> None:
    """Raise DeviceError where a plan's data exceeds what is free on the host, or its buffers the device.

    Counts the least it takes. `on_host`: the expected outputs are computed there, not by a reference kernel.
    `hint`: the cure.
    """
    require_device_room(plan, device, hint=hint)
    needed, free = sum(_host_bytes(buffer, on_host) for buffer in plan.buffers), available()
    if needed > free:
        raise DeviceError(f"needs {_gib(needed)} of host memory, {_gib(free)} are available", hint=hint)


def require_device_room(plan: Plan, device: DeviceInfo, *, hint: str) -> None:
    """Raise DeviceError where a plan's buffers exceed the device, wherever that is. `hint`: the cure."""
    for buffer in plan.buffers:
        needed = buffer.nbytes + 2 * GUARD
        if 0 < device.max_allocation < needed:
            raise _refusal(f"buffer {buffer.name} takes", needed, device.max_allocation, "allows", device.name, hint)
    needed = sum(_device_bytes(buffer) for buffer in plan.buffers)
    if needed > device.memory:
        raise _refusal("the buffers take", needed, device.memory, "has", device.name, hint)


def _host_bytes(buffer: Buffer, on_host: bool) -> int:
    """Input data, its copy in 64 bits, and the expected output in 64 bits."""
    dtype, _ = numpy_type(buffer.type)
    kept = buffer.reads * dtype.itemsize + on_host * _WIDE * (buffer.reads + buffer.writes)
    return math.prod(buffer.data_shape) * kept


def _device_bytes(buffer: Buffer) -> int:
    """The buffer, and what an `inout` one is restored from."""
    return buffer.nbytes * (2 if buffer.access == "inout" else 1)


def _refusal(what: str, needed: int, limit: int, verb: str, device: str, hint: str) -> DeviceError:
    told, most = _gib(needed), _gib(limit)
    if told == most:  # what makes the difference is in the bytes
        told, most = f"{needed:,} bytes", f"{limit:,}"
    return DeviceError(f"{what} {told}, {device} {verb} {most}", hint=hint)


def _gib(nbytes: float) -> str:
    return f"{nbytes / 2**30:.1f} GiB"


def count_builders(devices: Sequence[DeviceInfo], asked: int | None) -> int:
    """Return how many processes build ahead; none where nothing is kept, or one core has to do all."""
    if asked is not None:
        return asked
    cores = count_cores()
    special = traits(devices[0])
    if not special.keeps_builds or (special.shares_cores and cores < 2):
        return 0
    # A driver that shares the host's memory tells the machine's, of which a container has a part.
    memory = min(devices[0].memory, available()) if special.shares_cores else devices[0].memory
    room = int(memory // special.builder_memory)
    return max(1, min(cores, len(devices) * min(_MOST_BUILDERS, room)))
