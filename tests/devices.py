"""The device that the tests run kernels on."""

from __future__ import annotations

import os
from functools import cache

from autotune.devices import find_device, list_devices
from autotune.model import DeviceInfo

CHOSEN = "AUTOTUNE_TEST_DEVICE"
"""The variable that names another device, as `--device` does."""


@cache
def device_here() -> DeviceInfo:
    """The chosen device, or the first CPU, which pip's PoCL drives unless OCL_ICD_VENDORS names another driver."""
    chosen = os.environ.get(CHOSEN)
    return find_device(chosen) if chosen else next(device for device in list_devices() if device.kind == "cpu")
