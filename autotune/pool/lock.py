"""A device for one search at a time: a file lock, which the operating system releases however the process ends."""

from __future__ import annotations

import errno
import os
import re
import shlex
import stat
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from autotune.devices import traits, try_lock
from autotune.errors import SetupError
from autotune.model import DeviceInfo
from autotune.pool.folder import temporary_folder
from autotune.text import say

_POLL_S = 0.1
"""How often a search that waits for a device checks whether it is free."""


class Stopped(Exception):
    """The search was asked to end while it waited."""


class DeviceLock:
    """Lets one search at a time use a device, of whichever user: two at once would spoil each other's times.

    The constructor waits for the device, and raises Stopped once `stop` is set. `before_waiting` may raise an error
    that makes waiting useless.
    """

    def __init__(
        self,
        device: DeviceInfo,
        stop: threading.Event | None = None,
        before_waiting: Callable[[], object] | None = None,
    ) -> None:
        path = _path(device)
        while True:
            self._descriptor = _open_shared(path)
            _held.add(self._descriptor)
            try:
                if not _try(self._descriptor, path):
                    if before_waiting is not None:
                        before_waiting()
                    holder = _named(_holder(self._descriptor))
                    say(f"autotune: {device.name} is in use by another search ({holder}); waiting for it to end")
                    self._wait(stop)
            except BaseException:  # Ctrl-C while it waits
                self.release()
                raise
            if _is_at(self._descriptor, path):
                break
            self.release()  # removed while this waited: the next search would lock another file
        with suppress(OSError):  # on a full disk, for example: the lock holds anyway
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def _wait(self, stop: threading.Event | None) -> None:
        while not try_lock(self._descriptor):
            if stop is not None and stop.is_set():
                raise Stopped
            time.sleep(_POLL_S)  # not `stop.wait`: a signal handler of this thread may set it

    def release(self) -> None:
        """Let the next search have the device."""
        if self._descriptor in _held:  # else this process is a fork of the one that locked it
            _held.remove(self._descriptor)
            os.close(self._descriptor)


_held: set[int] = set()
"""The descriptors of this process's locks."""


def _let_go() -> None:
    """Close the locks in a fork of this process: otherwise devices would stay locked until the fork ends."""
    while _held:
        os.close(_held.pop())


os.register_at_fork(after_in_child=_let_go)


def lock_devices(
    devices: Iterable[DeviceInfo],
    stop: threading.Event | None = None,
    before_waiting: Callable[[], object] | None = None,
) -> list[DeviceLock]:
    """Lock each piece of hardware once, in the same order in all searches, so that two never wait for each other."""
    by_key = {lock_key(device): device for device in devices}
    locks: list[DeviceLock] = []
    try:
        for key in sorted(by_key):
            locks.append(DeviceLock(by_key[key], stop, before_waiting))
    except BaseException:  # Ctrl-C while it waits
        for lock in locks:
            lock.release()
        raise
    return locks


def find_holder(device: DeviceInfo) -> str | None:
    """Return the number of the process that uses a device, `unknown` if that is not known, or None if none does.

    Raises SetupError if the lock cannot be opened.
    """
    path = _path(device)
    descriptor = _open_shared(path)
    try:
        return None if _try(descriptor, path) else _holder(descriptor)
    finally:
        os.close(descriptor)


def lock_key(device: DeviceInfo) -> str:
    """Return a key of the hardware. All CPU devices are one, whichever driver provides them."""
    if traits(device).shares_cores:
        return "cpu"
    return device.uuid or device.pci or f"{device.fingerprint}-{device.index}"


LOCK_FOLDERS = (Path("/run/lock"), Path("/var/tmp"))
"""Folders that every user of a machine can write to; the first that exists is used.

Not /tmp, which `TMPDIR` and sandboxes replace; nor /dev/shm, where a user's files are removed at logout (RemoveIPC of
systemd). Containers and services with a private /var/tmp have locks of their own.
"""


def lock_folder() -> Path:
    """Return the folder of the locks: AUTOTUNE_LOCKS if set, else the machine's folder, else a temporary one.

    Raises SetupError if AUTOTUNE_LOCKS is not a folder.
    """
    named = os.environ.get("AUTOTUNE_LOCKS")
    if named:
        if not os.path.isdir(named):
            hint = "name a folder" if os.path.lexists(named) else f"mkdir -p {shlex.quote(named)}"
            raise SetupError("is not a folder", where=f"AUTOTUNE_LOCKS={named}", hint=hint)
        return Path(named)
    shared = next((folder for folder in LOCK_FOLDERS if _is_shared(folder)), None)
    if shared is not None:
        return shared
    say(
        f"autotune: none of {', '.join(map(str, LOCK_FOLDERS))} can be written by every user: "
        "another user's search on this device would not be seen"
    )
    return temporary_folder()


def _path(device: DeviceInfo) -> Path:
    return lock_folder() / f"autotune-device-{re.sub(r'[^A-Za-z0-9.-]', '-', lock_key(device))}.lock"


def _is_shared(folder: Path) -> bool:
    """Say whether everybody may create files there, and nobody may remove another user's."""
    try:
        mode = folder.lstat().st_mode
    except OSError:
        return False
    everybody = stat.S_IRWXO | stat.S_ISVTX
    return stat.S_ISDIR(mode) and mode & everybody == everybody and os.access(folder, os.W_OK)


def _open_shared(path: Path) -> int:
    """Open a file that all users lock; create it if it is missing. Raises SetupError if it is not such a file.

    In a folder that all can write to, the kernel refuses to open another user's file with O_CREAT, and anybody may have
    put a link there.
    """
    where, hint = str(path), f"remove it: sudo rm {shlex.quote(str(path))}"
    try:
        descriptor = _opened(path)
    except OSError as error:
        if error.errno == errno.EROFS or not os.path.lexists(path):
            hint = "set AUTOTUNE_LOCKS to a folder that you may write to"
        raise SetupError(f"cannot be opened: {error.strerror or error}", where=where, hint=hint) from None
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
        os.close(descriptor)
        raise SetupError("is not a lock file", where=where, hint=hint)
    return descriptor


def _opened(path: Path) -> int:
    """Open a file, which is made for all users if it is missing. Raises OSError."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    with suppress(FileNotFoundError):
        return os.open(path, flags)
    try:
        descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
    except FileExistsError:  # another process was faster
        return os.open(path, flags)
    os.fchmod(descriptor, 0o666)  # whatever the umask
    return descriptor


def _try(descriptor: int, path: Path) -> bool:
    """Call `try_lock`. Raises SetupError if the file system has no locks."""
    try:
        return try_lock(descriptor)
    except OSError as error:
        hint = "set AUTOTUNE_LOCKS to a folder on a local disk"
        raise SetupError(f"cannot be locked: {error.strerror}", where=str(path), hint=hint) from None


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except OSError:
        return False


def _holder(descriptor: int) -> str:
    """Return the process number in the file, or `unknown`: anybody may have written anything into it."""
    text = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
    return text if text.isdecimal() else "unknown"


def _named(holder: str) -> str:
    """Return the holder in words, and say if it is stopped (usually by Ctrl-Z): waiting for it would be useless."""
    from autotune.pool.process import state_of

    stopped = holder.isdecimal() and state_of(holder) == "T"
    return f"process {holder}" + (f", which is stopped: kill -CONT {holder} has it go on" if stopped else "")
