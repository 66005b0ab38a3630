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
"""How often a search that waits for its turn looks whether it has come."""


class Stopped(Exception):
    """Somebody wants the search to end; what was waited for has not come."""


class DeviceLock:
    """Lets one search at a time use a device, whoever's it is: two at once would spoil each other's times.

    Waits for it, unless `stop` is set: Stopped. `before_waiting` may raise what would make that vain.
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
            self.release()  # removed while this waited: the next would lock another file
        with suppress(OSError):  # on a full disk, say: the lock holds without it
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def _wait(self, stop: threading.Event | None) -> None:
        while not try_lock(self._descriptor):
            if stop is not None and stop.is_set():
                raise Stopped
            time.sleep(_POLL_S)  # and no wait for the event: a signal handler of this thread may set it

    def release(self) -> None:
        """Let the next search have the device."""
        if self._descriptor in _held:  # else this is a fork of who locked it
            _held.remove(self._descriptor)
            os.close(self._descriptor)


_held: set[int] = set()
"""The descriptors of this process's locks."""


def _let_go() -> None:
    """Close what a fork of this process has of its locks: as long as it lived, nobody could use the device."""
    while _held:
        os.close(_held.pop())


os.register_at_fork(after_in_child=_let_go)


def lock_devices(
    devices: Iterable[DeviceInfo],
    stop: threading.Event | None = None,
    before_waiting: Callable[[], object] | None = None,
) -> list[DeviceLock]:
    """Lock each piece of hardware once, in the one order of all searches: so two never wait for each other."""
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
    """Return the number of the process that uses a device, `unknown` where it does not tell; None where none does.

    Raises SetupError where the lock cannot be opened.
    """
    path = _path(device)
    descriptor = _open_shared(path)
    try:
        return None if _try(descriptor, path) else _holder(descriptor)
    finally:
        os.close(descriptor)


def lock_key(device: DeviceInfo) -> str:
    """Return what names the hardware: all CPU devices are one, whatever driver shows them."""
    if traits(device).shares_cores:
        return "cpu"
    return device.uuid or device.pci or f"{device.fingerprint}-{device.index}"


LOCK_FOLDERS = (Path("/run/lock"), Path("/var/tmp"))
"""Folders that every user of a machine can write to, the first that is there counts.

Not /tmp, which `TMPDIR` and sandboxes move; nor /dev/shm, where logging out removes a user's files (RemoveIPC of
systemd). Containers and services with a private /var/tmp have locks of their own.
"""


def lock_folder() -> Path:
    """Return where devices are locked: AUTOTUNE_LOCKS where it is set, else the machine's folder, else a temporary one.

    Raises SetupError where AUTOTUNE_LOCKS is no folder.
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
    """True where everybody may make files, and nobody may remove another's."""
    try:
        mode = folder.lstat().st_mode
    except OSError:
        return False
    everybody = stat.S_IRWXO | stat.S_ISVTX
    return stat.S_ISDIR(mode) and mode & everybody == everybody and os.access(folder, os.W_OK)


def _open_shared(path: Path) -> int:
    """Open a file that all users lock, made where it is not there. Raises SetupError where it is no such file.

    In a folder that all can write to, the kernel lets nobody open another's file with O_CREAT, and a link there may
    have been laid by anybody.
    """
    where, hint = str(path), f"remove it: sudo rm {shlex.quote(str(path))}"
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        try:
            descriptor = os.open(path, flags)
        except FileNotFoundError:
            try:
                descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
                os.fchmod(descriptor, 0o666)  # whatever the umask
            except FileExistsError:
                descriptor = os.open(path, flags)
    except OSError as error:
        if error.errno == errno.EROFS or not os.path.lexists(path):
            hint = "set AUTOTUNE_LOCKS to a folder that you may write to"
        raise SetupError(f"cannot be opened: {error.strerror or error}", where=where, hint=hint) from None
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
        os.close(descriptor)
        raise SetupError("is not a lock file", where=where, hint=hint)
    return descriptor


def _try(descriptor: int, path: Path) -> bool:
    """Do as `try_lock`. Raises SetupError where the file system has no locks."""
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
    """Return the number of the process that the file names; anybody may have written anything into it."""
    text = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
    return text if text.isdecimal() else "unknown"


def _named(holder: str) -> str:
    """Return a holder for people: one that somebody has stopped, by Ctrl-Z as a rule, would be waited for in vain."""
    from autotune.pool.process import state_of

    stopped = holder.isdecimal() and state_of(holder) == "T"
    return f"process {holder}" + (f", which is stopped: kill -CONT {holder} has it go on" if stopped else "")
