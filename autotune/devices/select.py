"""The backends there are, and finding devices among all of them: selectors, which is best, which of two PoCLs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, cast

from autotune.devices.backend import Backend, Session, Traits
from autotune.devices.drivers import is_pocl, version
from autotune.devices.guest import Guest
from autotune.errors import DeviceError, SetupError, UsageError
from autotune.model import DeviceInfo
from autotune.text import line, say

BACKENDS = {"opencl": "autotune.devices.opencl"}
"""The backends that come with this package: their module, whose `BACKEND` they are."""

GROUP = "autotune.backends"
"""The group of entry points by which an installed package names a backend of its own."""


def load_backend(name: str) -> Backend:
    """Return a backend by its name. Raises SetupError where none is installed, or it cannot be loaded."""
    if name in BACKENDS:
        return cast("Backend", import_module(BACKENDS[name]).BACKEND)
    for entry in (one for one in _installed(tuple(sys.path)) if one.name == name):
        mend = f"mend or remove the package that has {entry.value}"
        try:
            found = entry.load()
        except Exception as error:  # a stranger's code
            said = f"the backend {name} cannot be loaded: {type(error).__name__}: {error}"
            raise SetupError(line(said), hint=mend) from None
        if isinstance(found, type) or getattr(found, "name", None) != name:  # by which its devices are opened
            raise SetupError(f"{entry.value} is no Backend whose `name` is {name!r}", hint=mend)
        return cast("Backend", found)
    raise SetupError(f"no backend {name!r} is installed", hint=f"there are: {', '.join(_names())}")


def _names() -> list[str]:
    return list(dict.fromkeys([*BACKENDS, *sorted(entry.name for entry in _installed(tuple(sys.path)))]))


@cache
def _installed(path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Return the backends of packages on Python's path. To read all packages takes 10 ms where a hundred are installed,
    and a program asks with every look-up and every kernel that it calls.
    """
    return tuple(entry_points(group=GROUP))


def _loaded() -> tuple[list[Backend], list[str]]:
    """Return the backends that load, and what is to be said of the others."""
    loaded, failures = [], []
    for name in _names():
        try:
            loaded.append(load_backend(name))
        except SetupError as error:
            failures.append(str(error))
    return loaded, failures


def prepare() -> None:
    """Import what backends of this package take to open a device, and call no driver; others import it as they open."""
    for name in BACKENDS:
        load_backend(name).prepare()


def traits(info: DeviceInfo) -> Traits:
    """Return what is special about a device. Raises SetupError where its backend is not installed."""
    return load_backend(info.backend).traits(info)


def open_session(info: DeviceInfo) -> Session:
    """Open a device of this machine. Raises BackendError, SetupError where its backend is not installed."""
    return load_backend(info.backend).open(info)


def attach(queue: object) -> Guest:
    """Return a program's own queue as one to build and launch for. Raises UsageError for what is none.

    DeviceError, which is one, for one that cannot be used.
    """
    for one in _loaded()[0]:
        if (found := one.attach(queue)) is not None:
            _loaded_by[:] = _loaded_by or [os.getpid()]
            return found
    raise UsageError(f"{type(queue).__name__} is no command queue", hint="give a pyopencl.CommandQueue")


def environment(info: DeviceInfo, caches: Path, *, worker: bool) -> Mapping[str, str]:
    """Return variables of a process that builds for a device and keeps the builds in a folder.

    `worker`: it is one of many on this machine.
    """
    return load_backend(info.backend).environment(caches, worker=worker)


_listing: list[Callable[[], list[DeviceInfo] | None]] = []
"""Who else lists the devices of this package's backends for this process, and for no fork of it: it may be a thread."""

os.register_at_fork(after_in_child=_listing.clear)


def list_by(listing: Callable[[], list[DeviceInfo] | None]) -> None:
    """Have `list_devices` take what this gives for `list_bundled`, which loads drivers; None: no answer."""
    _listing[:] = [listing]


_loaded_by: list[int] = []
"""The process that first loaded drivers here: this one, or the one that it was forked from."""


def list_bundled() -> list[DeviceInfo]:
    """Return the devices of the backends that come with this package, asked here."""
    _loaded_by[:] = _loaded_by or [os.getpid()]
    return [device for name in BACKENDS for device in load_backend(name).devices()]


def require_own_drivers() -> None:
    """Raise DeviceError in a child that was forked after drivers were loaded: they wait for threads that it lacks."""
    if _loaded_by and _loaded_by[0] != os.getpid():
        hint = 'start such processes with multiprocessing.get_context("spawn")'
        raise DeviceError("this process was forked after OpenCL's drivers were loaded, and cannot use them", hint=hint)


_here: list[DeviceInfo] = []
"""The devices that were listed last."""


def list_devices() -> list[DeviceInfo]:
    """Return every device here; its number is good for this machine as it is now, and no identity."""
    others = [one for one in _loaded()[0] if one.name not in BACKENDS]  # read while another process lists
    told = next((found for listing in _listing if (found := listing()) is not None), None)
    bundled = list_bundled() if told is None else told
    _here[:] = [*bundled, *(device for one in others for device in _devices_of(one))]
    return list(_here)


def driver_of(info: DeviceInfo) -> str:
    """Return a driver's name and version, for people."""
    return f"{info.platform.partition(',')[0].replace('Portable Computing Language', 'PoCL')} {info.driver}"


def selector_of(info: DeviceInfo) -> str:
    """Return what means a device here: its model, or its number where another driver's device is meant by that.

    Several drivers may have a device: a CPU Intel's and PoCL. For a device that was not listed here it is the model.
    """
    like = [device for device in _here if device.fingerprint == info.fingerprint]
    here = any(device.number == info.number and device.platform == info.platform for device in like)
    return info.number if here and min(like, key=_rank).platform != info.platform else info.fingerprint


def _devices_of(backend: Backend) -> Sequence[DeviceInfo]:
    """What another package's backend finds; where it fails, it is said, and the other devices can be used."""
    try:
        return backend.devices()
    except Exception as error:
        say(f"autotune: the backend {backend.name} cannot tell its devices: {type(error).__name__}: {error}")
        return []


def find_device(selector: str | None) -> DeviceInfo:
    """Return one device: by number, part of its name, fingerprint or UUID; None: the best one here.

    Best: GPUs before CPUs, then compute units, then the newer PoCL where two are installed (said on stderr).
    Raises DeviceError where none or several answer, SetupError where the machine has no device at all.
    """
    return choose(_all(), selector)


def choose(devices: Sequence[DeviceInfo], selector: str | None) -> DeviceInfo:
    """Return the one of these devices that a selector means, as `find_device` does. Raises DeviceError."""
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
    if selector.strip().lower() == "all":
        best = find_device(None)
        return [d for d in _all() if d.fingerprint == best.fingerprint and d.platform == best.platform]
    found = list({device.number: device for device in map(find_device, selector.split(","))}.values())
    if len({(device.backend, device.fingerprint) for device in found}) > 1:
        raise DeviceError(
            f"different devices: {', '.join(device.fingerprint for device in found)}",
            hint="search on one model at a time, for instance -d all",
        )
    if len({device.platform for device in found}) > 1:
        several = ", ".join(f"{device.number} ({driver_of(device)})" for device in found)
        raise DeviceError(
            f"different drivers: {several}", hint=f"search with one at a time, for instance -d {found[0].number}"
        )
    return found


def _all() -> list[DeviceInfo]:
    devices = list_devices()
    if not devices:
        raise SetupError("no OpenCL device on this machine", hint="; ".join(diagnose()))
    return devices


def _matching(devices: Sequence[DeviceInfo], selector: str) -> list[DeviceInfo]:
    text = selector.lower()
    exact = [device for device in devices if text and text in (device.number, device.fingerprint, device.uuid)]
    found = exact or [device for device in devices if text and text in device.name.lower()]
    if not found:
        raise DeviceError(f"no device {selector!r}", hint=_choose(devices))
    return found


def _choose(devices: Sequence[DeviceInfo]) -> str:
    return "choose with -d: " + ", ".join(f"{device.number} ({device.name})" for device in devices)


def _rank(one: DeviceInfo) -> tuple[Any, ...]:
    return one.order, [-n for n in version(one)], one.index


def _best(devices: Sequence[DeviceInfo]) -> DeviceInfo:
    best = min(devices, key=_rank)
    others = [device for device in devices if device.platform != best.platform and is_pocl(device)]
    if is_pocl(best) and others:
        say(
            f"autotune: two PoCL drivers here, using {best.driver} (-d {best.number}), "
            f"not {others[0].driver} (-d {others[0].number})"
        )
    return best


def require_usable(device: DeviceInfo) -> None:
    """Raise SetupError where this machine lacks what building for the device takes: a linker, for PoCL."""
    if lines := load_backend(device.backend).missing(device):
        raise SetupError(lines[0])


def diagnose() -> list[str]:
    """Return what is amiss on this machine, one line each, with the command that mends it; empty: nothing."""
    loaded, failures = _loaded()
    here = list_devices()
    said = list[str]()
    for one in loaded:
        try:
            said += one.diagnose([device for device in here if device.backend == one.name])
        except Exception as error:  # a stranger's code
            failures.append(f"the backend {one.name} cannot tell what is amiss: {type(error).__name__}: {error}")
    return said + failures
