"""The backends, and how to find a device among all of them: selectors, the best device, the newer of two PoCLs."""

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
"""The backends that come with this package: each is the `BACKEND` of its module."""

GROUP = "autotune.backends"
"""The group of entry points by which an installed package registers a backend of its own."""


def load_backend(name: str) -> Backend:
    """Return a backend by its name. Raises SetupError if it is not installed or cannot be loaded."""
    if name in BACKENDS:
        return cast("Backend", import_module(BACKENDS[name]).BACKEND)
    for entry in (one for one in _installed(tuple(sys.path)) if one.name == name):
        hint = f"repair or remove the package that has {entry.value}"
        try:
            found = entry.load()
        except Exception as error:  # another package's code
            said = f"the backend {name} cannot be loaded: {type(error).__name__}: {error}"
            raise SetupError(line(said), hint=hint) from None
        if isinstance(found, type) or getattr(found, "name", None) != name:  # by which its devices are opened
            raise SetupError(f"{entry.value} is not a Backend whose `name` is {name!r}", hint=hint)
        return cast("Backend", found)
    raise SetupError(f"no backend {name!r} is installed", hint=f"there are: {', '.join(_names())}")


def _names() -> list[str]:
    return list(dict.fromkeys([*BACKENDS, *sorted(entry.name for entry in _installed(tuple(sys.path)))]))


@cache
def _installed(path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Return the backends of packages on Python's path.

    Cached: reading a hundred packages takes 10 ms, and each look-up and each kernel that a program calls needs this.
    """
    return tuple(entry_points(group=GROUP))


def _loaded() -> tuple[list[Backend], list[str]]:
    """Return the backends that can be loaded, and an error message for each of the others."""
    loaded, failures = [], []
    for name in _names():
        try:
            loaded.append(load_backend(name))
        except SetupError as error:
            failures.append(str(error))
    return loaded, failures


def prepare() -> None:
    """Import what backends of this package need to open a device, but call no driver. Others import it later."""
    for name in BACKENDS:
        load_backend(name).prepare()


def traits(info: DeviceInfo) -> Traits:
    """Return the traits of a device. Raises SetupError if its backend is not installed."""
    return load_backend(info.backend).traits(info)


def open_session(info: DeviceInfo) -> Session:
    """Open a device of this machine. Raises BackendError, SetupError if its backend is not installed."""
    return load_backend(info.backend).open(info)


def attach(queue: object) -> Guest:
    """Return a Guest for a program's own queue. Raises UsageError if it is not a queue.

    Raises DeviceError, a kind of UsageError, for a queue that cannot be used.
    """
    for one in _loaded()[0]:
        if (found := one.attach(queue)) is not None:
            _loaded_by[:] = _loaded_by or [os.getpid()]
            return found
    raise UsageError(f"{type(queue).__name__} is not a command queue", hint="give a pyopencl.CommandQueue")


def environment(info: DeviceInfo, caches: Path, *, worker: bool) -> Mapping[str, str]:
    """Return environment variables for a process that builds for a device and keeps the builds in a folder.

    `worker`: the process is one of many on this machine.
    """
    return load_backend(info.backend).environment(caches, worker=worker)


_listing: list[Callable[[], list[DeviceInfo] | None]] = []
"""A function that lists the devices of this package's backends for this process. Forks do not use it, since it may need
a thread of this process."""

os.register_at_fork(after_in_child=_listing.clear)


def list_by(listing: Callable[[], list[DeviceInfo] | None]) -> None:
    """Let `list_devices` call this instead of `list_bundled`, which loads drivers, unless it returns None."""
    _listing[:] = [listing]


_loaded_by: list[int] = []
"""The number of the process that first loaded drivers: this process, or one from which it was forked."""


def list_bundled() -> list[DeviceInfo]:
    """Return the devices of the backends that come with this package, by asking the drivers in this process."""
    _loaded_by[:] = _loaded_by or [os.getpid()]
    return [device for name in BACKENDS for device in load_backend(name).devices()]


def require_own_drivers() -> None:
    """Raise DeviceError in a child that was forked after drivers were loaded: they need threads that it lacks."""
    if _loaded_by and _loaded_by[0] != os.getpid():
        hint = 'start such processes with multiprocessing.get_context("spawn")'
        raise DeviceError("this process was forked after OpenCL's drivers were loaded, and cannot use them", hint=hint)


_here: list[DeviceInfo] = []
"""The devices that were listed last."""


def list_devices() -> list[DeviceInfo]:
    """Return every device here. A device's number is only valid on this machine as it is now; it is not an identity."""
    others = [one for one in _loaded()[0] if one.name not in BACKENDS]  # read while another process lists
    told = next((found for listing in _listing if (found := listing()) is not None), None)
    bundled = list_bundled() if told is None else told
    _here[:] = [*bundled, *(device for one in others for device in _devices_of(one))]
    return list(_here)


def driver_of(info: DeviceInfo) -> str:
    """Return a driver's name and version in words."""
    return f"{info.platform.partition(',')[0].replace('Portable Computing Language', 'PoCL')} {info.driver}"


def selector_of(info: DeviceInfo) -> str:
    """Return a selector of a device: its model, or its number if the model selects the device of another driver.

    Several drivers may have the same device, such as Intel's and PoCL for a CPU. For a device that was not listed here
    it is the model.
    """
    like = [device for device in _here if device.fingerprint == info.fingerprint]
    here = any(device.number == info.number and device.platform == info.platform for device in like)
    return info.number if here and min(like, key=_rank).platform != info.platform else info.fingerprint


def _devices_of(backend: Backend) -> Sequence[DeviceInfo]:
    """Return the devices of another package's backend. If it fails, print so: other devices can still be used."""
    try:
        found = backend.devices()
        for one in found:
            if not isinstance(backend.traits(one), Traits):  # which rank it among those of other backends
                raise TypeError(f"the traits of {one.name} are not Traits")
            if one.backend != backend.name:
                raise ValueError(f"{one.name} says that its backend is {one.backend}")
        return found
    except Exception as error:
        say(f"autotune: the backend {backend.name} cannot list its devices: {type(error).__name__}: {error}")
        return []


def find_device(selector: str | None) -> DeviceInfo:
    """Return one device by number, part of its name, fingerprint or UUID; for None the best one here.

    Best: what runs OpenCL C first, as other kernels are rarely meant; then GPUs before CPUs, then more compute units,
    then the newer PoCL if two are installed (said on stderr).
    Raises DeviceError if none or several match, SetupError if the machine has no device at all.
    """
    return choose(_all(), selector)


def choose(devices: Sequence[DeviceInfo], selector: str | None) -> DeviceInfo:
    """Return the device that a selector matches among these, as `find_device` does. Raises DeviceError."""
    if selector is None:
        return _best(devices)
    found = _matching(devices, selector.strip())
    models = {device.fingerprint for device in found}
    if len(found) > 1 and len(models) > 1 and not all(is_pocl(device) for device in found):
        raise DeviceError(f"{len(found)} devices match {selector!r}", hint=_choose(found))
    return _best(found)


def find_devices(selector: str) -> list[DeviceInfo]:
    """Return several devices of one model: `"0,1"`, `"all"` (those like the best one) or one selector.

    Raises DeviceError if they differ: times of different devices cannot be compared.
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
    return not traits(one).checks_on_device, one.order, [-n for n in version(one)], one.index


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
    """Raise SetupError if this machine lacks what building for the device needs: a linker, for PoCL."""
    if lines := load_backend(device.backend).missing(device):
        raise SetupError(lines[0])


def diagnose() -> list[str]:
    """Return what is wrong on this machine, one line for each problem, with the command that mends it."""
    loaded, failures = _loaded()
    here = list_devices()
    said = list[str]()
    for one in loaded:
        try:
            said += one.diagnose([device for device in here if device.backend == one.name])
        except Exception as error:  # another package's code
            failures.append(f"the backend {one.name} cannot tell what is wrong: {type(error).__name__}: {error}")
    return said + failures
