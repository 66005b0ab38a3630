"""What NVIDIA's management library (NVML) says of a GPU at work, if `nvidia-ml-py` is installed.

The library is loaded when a device is first asked: only by the worker that measures.
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
"""Queries by name: the function and its constant. A second row of a name is for older drivers or packages."""

_THROTTLING = {
    0x08: "hw_slowdown",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
}
"""Bits of the reasons for which a device runs slower than a healthy one, with nvidia-smi's names."""

_POWER_CAP = "sw_power_cap"

_LIMITING = {
    0x02: "applications_clocks_setting",
    0x04: _POWER_CAP,
    0x10: "sync_boost",
    0x100: "display_clock_setting",
}
"""Bits of the reasons that limit the clocks of a healthy device, where large kernels always run at the power cap. The
bit for idle is left out."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What the sensors of a device report at one moment; None or empty for what they do not report.

    `clock_mhz` is the clock of the compute units. `throttled`: what slows the device down, so that its times cannot be
    trusted; `clock_limits`: what else limits its clocks. Both are nvidia-smi's names, separated by commas.
    """

    clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    throttled: str = ""
    clock_limits: str = ""

    @property
    def at_power_limit(self) -> bool:
        """Whether its clock is lowered because it would take more power than it may."""
        return _POWER_CAP in self.clock_limits

    def facts(self) -> dict[str, str | int | float]:
        """Return the values that are known, for a trial's environment."""
        told = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in told.items() if value not in (None, "")}


class Sensors:
    """The sensors of one GPU. A query that fails once is not tried again."""

    def __init__(self, nvml: ModuleType, handle: Any) -> None:
        self._error: Any = nvml.NVMLError
        self._ways: dict[str, list[Callable[[], int]]] = {name: [] for name, *_ in _WAYS}
        for name, function, constant in _WAYS:
            if hasattr(nvml, function):
                taken = (getattr(nvml, constant),) if constant else ()
                self._ways[name].append(partial(getattr(nvml, function), handle, *taken))

    def read(self) -> Reading:
        """Return what they say now, in five calls of 2 to 10 us. Raises nothing: a lost GPU gives no values."""
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
    """Import the package that sensors need, if it is installed; NVML itself is not loaded."""
    with suppress(ImportError):
        import pynvml  # noqa: F401


def sensors_of(info: DeviceInfo) -> Sensors | None:
    """Return the sensors of a device, or None if it is not NVIDIA's, or the package or NVML is missing."""
    if info.vendor_name != "nvidia" or not info.pci:
        return None
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        # NVML's domains have eight digits. Old packages accept only bytes.
        return Sensors(pynvml, pynvml.nvmlDeviceGetHandleByPciBusId(info.pci.zfill(16).encode()))
    except pynvml.NVMLError:
        return None
