"""OpenCL's drivers on this machine: the traits of a device's driver, and what is wrong. Works without any driver."""

from __future__ import annotations

import atexit
import ctypes
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from autotune.devices import linker
from autotune.devices.backend import Traits
from autotune.devices.leftover import locked_folder
from autotune.devices.vendors import VENDORS
from autotune.model import DeviceInfo

_CPU, _GPU = 2, 4  # CL_DEVICE_TYPE_*
_DEVICE_UUID = 0x106A  # CL_DEVICE_UUID_KHR of cl_khr_device_uuid, which pyopencl does not name

_NVIDIA = "libnvidia-opencl.so.1"

_MOST_ON_NVIDIA = 228 * 1024
"""Bytes of local memory of a compute unit on the largest of NVIDIA's devices (capability 9.0 and 10.0).

NVIDIA's driver reports 256 work-items for every kernel and 48 KiB of local memory; an H200 runs 1024 and 227 KiB.
"""


def describe(index: int, device: Any, library: str) -> DeviceInfo:
    """Return what OpenCL says of a device (pyopencl's object); `library` is the file with OpenCL's functions."""
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
        uuid=_uuid(device, library),
        pci=_pci(device),
        max_allocation=device.max_mem_alloc_size,
        compute_capability=capability,
        constant_memory=device.max_constant_buffer_size,
        sub_group_size=_sub_group_size(device),
        images=bool(device.image_support),
    )


def _kind(device: Any) -> str:
    if device.type & _GPU:
        return "gpu"
    return "cpu" if device.type & _CPU else "accelerator"


def _sub_group_size(device: Any) -> int:
    """Return the largest sub-group size of the device by one of the vendors' queries, or 0 if none works."""
    import numpy as np  # which pyopencl has imported

    for query in ("sub_group_sizes_intel", "warp_size_nv", "wavefront_width_amd"):
        with suppress(Exception):  # pyopencl's own, or the driver's refusal
            return int(np.max(getattr(device, query)))
    return 0


def _uuid(device: Any, library: str) -> str:
    if "cl_khr_device_uuid" not in device.extensions:
        return ""
    found = (ctypes.c_ubyte * 16)()
    query = ctypes.CDLL(library).clGetDeviceInfo
    query.argtypes = [ctypes.c_void_p, ctypes.c_uint, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p]
    failed = query(device.int_ptr, _DEVICE_UUID, ctypes.sizeof(found), found, None)
    digits = bytes(found).hex()
    return "" if failed else "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _pci(device: Any) -> str:
    if "cl_nv_device_attribute_query" not in device.extensions:
        return ""
    domain = 0
    with suppress(Exception):
        domain = device.pci_domain_id_nv
    return f"{domain:04x}:{device.pci_bus_id_nv:02x}:{device.pci_slot_id_nv:02x}.0"


def traits(info: DeviceInfo) -> Traits:
    """Return the traits of an OpenCL device and its driver."""
    nvidia, pocl, cpu = info.vendor_name == "nvidia", is_pocl(info), info.kind == "cpu"
    return Traits(
        builds_at_launch=pocl,
        keeps_builds=pocl or not cpu,
        shares_cores=cpu,
        understates_limits=nvidia,
        local_memory=_MOST_ON_NVIDIA if nvidia else 0,
        tells_binaries=not pocl,
        hashes_binaries=not (pocl or cpu),  # Intel's differ from build to build
        ends_slowly=nvidia,
        builder_memory=2**31 if info.kind == "gpu" else 2**29,
    )


def is_pocl(device: DeviceInfo) -> bool:
    """Say whether PoCL drives the device."""
    return names_pocl(device.platform)


def names_pocl(platform: str) -> bool:
    """Say whether a platform of this name is PoCL's."""
    return re.search("pocl|portable computing", platform, re.IGNORECASE) is not None


def version(device: DeviceInfo) -> list[int]:
    """Return the driver's version for ranking: a release ranks above its release candidates."""
    numbers = [int(number) for number in re.findall(r"\d+", device.driver.partition("-")[0])]
    return [*numbers, 0 if "rc" in device.driver else 1]


def environment(caches: Path, *, worker: bool) -> dict[str, str]:
    """Return environment variables by which the drivers keep their builds in a folder."""
    variables = {
        "POCL_CACHE_DIR": str(caches / "pocl"),
        "CUDA_CACHE_PATH": str(caches / "cuda"),
        "CUDA_CACHE_MAXSIZE": str(2**32 - 1),
        "CUDA_CACHE_DISABLE": "0",
    }
    # With one channel instead of eight, enough for one queue, contexts are created and destroyed in a third of the
    # time: 16 at once on an H200 machine took 0.7 s instead of 1.9, and 0.3 s instead of 0.9.
    return {**variables, "CUDA_DEVICE_MAX_CONNECTIONS": "1"} if worker else variables


def give_pocl_a_cache() -> None:
    """Give PoCL a temporary cache folder if it cannot write to its own: without a folder it finds no device.

    Call this before any call of a driver. Temporary folders that killed processes left are removed.
    """
    if os.environ.get("POCL_CACHE_DIR") or not (said := _cannot_hold(_pocl_cache())):
        return
    _before[:] = [said]
    with suppress(OSError):
        folder, lock = locked_folder(Path(tempfile.gettempdir()), "autotune-pocl-")
        os.environ["POCL_CACHE_DIR"] = str(folder)
        atexit.register(_remove, folder, lock, os.getpid())


_before: list[str] = []
"""What is wrong with PoCL's own folder, if it was given another. PoCL still uses its own if it was loaded before."""


def unbuildable() -> list[str]:
    """Return why PoCL may fail to build in this process, in a line with the cure; empty if no reason is known."""
    return _before or _uncached()


def _uncached() -> list[str]:
    said = _cannot_hold(_pocl_cache())
    return [said] if said else []


def _pocl_cache() -> Path:
    """Return the folder where PoCL keeps its builds, found as PoCL finds it (pocl_cache_init_topdir)."""
    if named := os.environ.get("POCL_CACHE_DIR"):
        return Path(named)
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "pocl" / "kcache"
    if (home := os.environ.get("HOME")) is not None:  # an empty one too
        return Path(f"{home}/.cache/pocl/kcache")
    return Path("/tmp/pocl/kcache")


_ROOM = 2**16
"""Bytes that must fit into PoCL's folder: a small kernel."""


def _cannot_hold(folder: Path) -> str:
    """Say what to do if a folder cannot be written to or created. Empty if it can."""
    there = next((each for each in (folder, *folder.parents) if os.path.lexists(each)), Path("/"))
    try:
        with tempfile.TemporaryFile(dir=there) as file:  # try it: os.access tells root that it may write even to /proc
            file.write(bytes(_ROOM))
    except OSError as error:
        cure = "set POCL_CACHE_DIR to a folder that can be written to"
        return f"PoCL cannot write to {folder}: {cure} ({error.strerror or 'PermissionError'})"
    return ""


def _remove(folder: Path, lock: IO[str], process: int) -> None:
    if os.getpid() == process:  # not when a forked child ends
        shutil.rmtree(folder, ignore_errors=True)
        lock.close()


FACTS = {
    "registers": re.compile(r"Used (\d+) registers"),
    "spill_stores": re.compile(r"(\d+) bytes spill stores"),
    "spill_loads": re.compile(r"(\d+) bytes spill loads"),
}
"""Facts about kernels in a build log: registers and spilled bytes (NVIDIA's, with `-cl-nv-verbose`)."""


_LISTED = Path("/etc/ld.so.cache")
_OWN = getattr(sys.implementation, "_multiarch", "")
_UNLISTED = tuple(f"{top}/{folder}" for top in ("", "/usr") for folder in ("lib", "lib64", f"lib/{_OWN}"))
"""The list of libraries of the system's loader, and the folders where it also looks."""

_HIDE = ("POCL_DEVICES", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK", "OCL_ICD_VENDORS")
"""Variables by which users choose devices or drivers."""


def diagnose(devices: Sequence[DeviceInfo]) -> list[str]:
    """Return what is wrong if OpenCL finds only these devices, one line each, with the command that mends it."""
    lines = _nvidia(devices)
    if not devices:
        lines += _uncached()
        lines += [f"{name}={os.environ[name]!r} may hide every device: `unset {name}`" for name in _hiding()]
    if not devices and not lines:
        lines.append(
            "no OpenCL driver is installed: install the GPU vendor's, or PoCL for the CPU with "
            "`pip install pocl-binary-distribution` (or `apt-get install pocl-opencl-icd`)"
        )
    if any(is_pocl(device) for device in devices):
        lines += linker.missing()
    return lines


def _nvidia(devices: Sequence[DeviceInfo]) -> list[str]:
    """Say what is wrong with NVIDIA's driver, which containers often have as a library without its ICD entry."""
    if any(device.vendor_name == "nvidia" for device in devices) or not _loadable(_NVIDIA):
        return []
    if any(map(_names_nvidia, VENDORS.glob("*.icd"))):
        return [f"{_NVIDIA} is registered and finds no GPU: compare with `nvidia-smi`"]
    return [
        f"{_NVIDIA} is installed and not registered: "
        f"`mkdir -p {VENDORS} && echo {_NVIDIA} > {VENDORS}/nvidia.icd` (as root)"
    ]


def _names_nvidia(entry: Path) -> bool:
    with suppress(OSError):  # a dangling link, or another user's file
        return _NVIDIA in entry.read_text(encoding="utf-8", errors="replace")
    return False


def _hiding() -> list[str]:
    return [name for name in _HIDE if name in os.environ]


def _loadable(library: str) -> bool:
    """Say whether a library can be loaded. A process of its own tries, as it may crash, unless there is no library."""
    if not _found(library):
        return False
    code = f"import ctypes; ctypes.CDLL({library!r})"
    return subprocess.run([sys.executable, "-P", "-c", code], capture_output=True).returncode == 0


def _found(library: str) -> bool:
    """Say whether the loader may find a library: in the user's folders, in its list, or in the system's folders."""
    folders = filter(None, re.split("[:;]", os.environ.get("LD_LIBRARY_PATH", "")))
    try:
        listed = os.fsencode(library) in _LISTED.read_bytes()
    except OSError:  # no list: let the loader try
        return True
    return listed or any(os.path.exists(f"{folder}/{library}") for folder in (*folders, *_UNLISTED))
