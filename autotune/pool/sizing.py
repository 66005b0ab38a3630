"""How many builders a search starts, and how many configurations it keeps in flight."""

from __future__ import annotations

import os
from collections.abc import Sequence

from autotune.devices import traits
from autotune.model import DeviceInfo

_MOST_BUILDERS = 16
"""Per device: with as many, compilers of a large kernel just keep one H200 busy."""


def count_builders(devices: Sequence[DeviceInfo], asked: int | None) -> int:
    """Return how many processes build ahead; none where nothing is kept, or one core has to do all."""
    if asked is not None:
        return asked
    cores = os.cpu_count() or 1
    special = traits(devices[0])
    if not special.keeps_builds or (special.shares_cores and cores < 2):
        return 0
    room = devices[0].memory // special.builder_memory
    return max(1, min(cores, len(devices) * min(_MOST_BUILDERS, room)))


def capacity(builders: int, devices: int) -> int:
    """Return how many configurations keep builders and devices at work, and no more: each is proposed blindly."""
    return builders + 2 * devices if builders else devices
