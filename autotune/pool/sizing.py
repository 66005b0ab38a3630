"""How many builders a search starts, and how many configurations it keeps in flight."""

from __future__ import annotations

import os
from collections.abc import Sequence

from autotune.devices.select import is_pocl
from autotune.model import DeviceInfo

_MOST_BUILDERS = 16
"""Per device: with as many, compilers of a large kernel just keep one H200 busy."""

_BUILDER_MEMORY = 2 * 2**30
"""Device memory per builder at least: each holds a context, about half a GiB with NVIDIA's driver."""


def count_builders(devices: Sequence[DeviceInfo], asked: int | None) -> int:
    """Return how many processes build ahead; on a CPU only PoCL keeps what they compile, and one gains nothing."""
    device = devices[0]
    if asked is not None:
        return asked
    cores = os.cpu_count() or 1
    if device.kind == "cpu" and (cores < 2 or not is_pocl(device)):
        return 0
    memory = _BUILDER_MEMORY if device.kind == "gpu" else _BUILDER_MEMORY // 4
    return max(1, min(cores, len(devices) * min(_MOST_BUILDERS, device.memory // memory)))


def capacity(builders: int, devices: int) -> int:
    """Return how many configurations keep builders and devices at work, and no more: each is proposed blindly."""
    return builders + 2 * devices if builders else devices
