"""What NVIDIA's management library (NVML) says of a GPU that is at work, where `nvidia-ml-py` is installed.

The library is loaded when a device is first asked: by the worker that measures, and by nobody else.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import partial
from types import ModuleType
from typing import Any

from autotune.model import DeviceInfo

_WAYS = (
    ("clock", "nvmlDeviceGetClockInfo", "NVML_CLOCK_SM"),
    ("memory_clock", "nvmlDeviceGetClockInfo", "NVML_CLOCK_MEM"),
    ("temperature", "nvmlDeviceGetTemperatureV", "NVML_TEMPERATURE_GPU"),
    ("temperature", "nvmlDeviceGetTemperature", "NVML_TEMPERATURE_GPU"),
    ("power", "nvmlDeviceGetPowerUsage", ""),
    ("reasons", "nvmlDeviceGetCurrentClocksEventReasons", ""),
    ("reasons", "nvmlDeviceGetCurrentClocksThrottleReasons", ""),
)
"""What is asked: the function and the constant that it takes. A second row of a name is for older drivers, packages."""

_THROTTLING = {
    0x08: "hw_slowdown",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
}
"""Bits of the reasons by which a device runs slower than it does in good health, named as nvidia-smi names them."""

_LIMITING = {
    0x02: "applications_clocks_setting",
    0x04: "sw_power_cap",
    0x10: "sync_boost",
    0x100: "display_clock_setting",
}
"""Bits that hold the clocks of a healthy device, where large kernels run at the power cap for good. Idle is no news."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What the sensors of a device say at one moment; None or empty: nothing, or it has none.

    `clock_mhz` is that of the compute units. `throttled`: what slows the device down, for which times are not believed;
    `clock_limits`: what else holds its clocks. Both are nvidia-smi's names with commas between.
    """

    clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    throttled: str = ""
    clock_limits: str = ""

    def facts(self) -> dict[str, str | int | float]:
        """Return what was said, for a trial's environment."""
        told = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in told.items() if value not in (None, "")}


class Sensors:
    """The sensors of one GPU. What it fails to answer once is not asked again."""

    def __init__(self, nvml: ModuleType, handle: Any) -> None:
        self._error: Any = nvml.NVMLError
        self._ways: dict[str, list[Callable[[], int]]] = {name: [] for name, *_ in _WAYS}
        for name, function, constant in _WAYS:
            if hasattr(nvml, function):
                taken = (getattr(nvml, constant),) if constant else ()
                self._ways[name].append(partial(getattr(nvml, function), handle, *taken))

    def read(self) -> Reading:
        """Return what they say now, in five calls of 2 to 10 us. Raises nothing: a GPU that is lost says no more."""
        power_mw, reasons = self._ask("power"), self._ask("reasons") or 0
        return Reading(
            self._ask("clock"),
            self._ask("memory_clock"),
            self._ask("temperature"),
            None if power_mw is None else round(power_mw / 1000, 1),
            _named(reasons, _THROTTLING),
            _named(reasons, _LIMITING),
        )

    def _ask(self, name: str) -> int | None:
        ways = self._ways[name]
        while ways:
            try:
                return ways[0]()
            except self._error:
                del ways[0]
        return None


def _named(reasons: int, names: dict[int, str]) -> str:
    return ", ".join(name for bit, name in names.items() if reasons & bit)


def prepare() -> None:
    """Import what sensors take, where that is installed; no library is loaded."""
    with suppress(ImportError):
        import pynvml  # noqa: F401


def sensors_of(info: DeviceInfo) -> Sensors | None:
    """Return the sensors of a device; None where it is not NVIDIA's, or package or library are missing."""
    if info.vendor_name != "nvidia" or not info.pci:
        return None
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        # Domains have eight digits there. Old packages take bytes alone.
        return Sensors(pynvml, pynvml.nvmlDeviceGetHandleByPciBusId(info.pci.zfill(16).encode()))
    except pynvml.NVMLError:
        return None
