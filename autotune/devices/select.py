"""Finding devices: selectors, which of two PoCLs, and what is amiss on a machine without one."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from autotune.devices import linker, opencl
from autotune.errors import DeviceError, SetupError
from autotune.model import DeviceInfo
from autotune.text import line

_ORDER = {"gpu": 0, "accelerator": 1, "cpu": 2}
_VENDORS = Path("/etc/OpenCL/vendors")
_NVIDIA = "libnvidia-opencl.so.1"


def list_devices() -> list[DeviceInfo]:
    """Return every OpenCL device here; an index is good for this machine as it is now, and no identity."""
    return opencl.list_devices()


def find_device(selector: str | None) -> DeviceInfo:
    """Return one device: by index, part of its name, fingerprint or UUID; None: the best one here.

    Best: GPUs before CPUs, then compute units, then the newer PoCL where two are installed (said on stderr).
    Raises DeviceError where none or several answer, SetupError where the machine has no device at all.
    """
    devices = _all()
    if selector is None:
        return _best(devices)
    found = _matching(devices, selector.strip())
    models = {device.fingerprint for device in found}
    if len(found) > 1 and len(models) > 1 and not all(is_pocl(device) for device in found):
        raise DeviceError(f"{len(found)} devices answer {selector!r}", hint=_choose(found))
    return _best(found)


def find_devices(selector: str) -> list[DeviceInfo]:
    """Return several devices of one model: `"0,1"`, `"all"` (those like the best one) or one selector.

    Raises DeviceError where they differ: times of different devices do not compare.
    """
    if selector.strip() == "all":
        best = find_device(None)
        return [d for d in _all() if d.fingerprint == best.fingerprint and d.platform == best.platform]
    found = list({device.index: device for device in map(find_device, selector.split(","))}.values())
    if len({device.fingerprint for device in found}) > 1:
        raise DeviceError(
            f"different devices: {', '.join(device.fingerprint for device in found)}",
            hint="search on one model at a time, for instance -d all",
        )
    return found


def _all() -> list[DeviceInfo]:
    devices = list_devices()
    if not devices:
        raise SetupError("no OpenCL device on this machine", hint="; ".join(diagnose()))
    return devices


def _matching(devices: Sequence[DeviceInfo], selector: str) -> list[DeviceInfo]:
    text = selector.lower()
    exact = [device for device in devices if text and text in (str(device.index), device.fingerprint, device.uuid)]
    found = exact or [device for device in devices if text and text in device.name.lower()]
    if not found:
        raise DeviceError(f"no device {selector!r}", hint=_choose(devices))
    return found


def _choose(devices: Sequence[DeviceInfo]) -> str:
    return "choose with -d: " + ", ".join(f"{device.index} ({device.name})" for device in devices)


def _best(devices: Sequence[DeviceInfo]) -> DeviceInfo:
    ranked = sorted(devices, key=lambda d: (_ORDER[d.kind], -d.compute_units, [-n for n in _version(d)], d.index))
    best = ranked[0]
    others = [device for device in devices if device.platform != best.platform and is_pocl(device)]
    if is_pocl(best) and others:
        said = (
            f"autotune: two PoCL drivers here, using {best.driver} (-d {best.index}), "
            f"not {others[0].driver} (-d {others[0].index})"
        )
        print(line(said), file=sys.stderr)
    return best


def is_pocl(device: DeviceInfo) -> bool:
    """Say whether PoCL drives the device."""
    return "pocl" in device.platform.lower()


def _version(device: DeviceInfo) -> list[int]:
    """The driver's version for ranking: a release comes after its candidates."""
    numbers = [int(number) for number in re.findall(r"\d+", device.driver.partition("-")[0])]
    return [*numbers, 0 if "rc" in device.driver else 1]


def require_usable(device: DeviceInfo) -> None:
    """Raise SetupError where this machine lacks what building for the device takes: a linker, for PoCL."""
    lines = linker.missing() if is_pocl(device) else []
    if lines:
        raise SetupError(lines[0])


def diagnose() -> list[str]:
    """Return what is amiss on this machine, one line each, with the command that mends it; empty: nothing."""
    devices = list_devices()
    lines = _nvidia(devices)
    if not devices and not lines:
        lines.append(
            "no OpenCL driver is installed: install the GPU vendor's, or PoCL for the CPU with "
            "`pip install pocl-binary-distribution` (or `apt-get install pocl-opencl-icd`)"
        )
    if any(is_pocl(device) for device in devices):
        lines += linker.missing()
    return lines


def _nvidia(devices: Sequence[DeviceInfo]) -> list[str]:
    """NVIDIA's driver is often mounted into a container as a library without its ICD entry."""
    if any(device.vendor_name == "nvidia" for device in devices) or not _loadable(_NVIDIA):
        return []
    if any(_NVIDIA in entry.read_text(errors="replace") for entry in _VENDORS.glob("*.icd")):
        return [f"{_NVIDIA} is registered and finds no GPU: compare with `nvidia-smi`"]
    return [
        f"{_NVIDIA} is installed and not registered: "
        f"`mkdir -p {_VENDORS} && echo {_NVIDIA} > {_VENDORS}/nvidia.icd` (as root)"
    ]


def _loadable(library: str) -> bool:
    code = f"import ctypes; ctypes.CDLL({library!r})"
    return subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0
