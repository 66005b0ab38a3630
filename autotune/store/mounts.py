"""Whether a database may be at a place: SQLite needs working locks, and memory that processes share.

Standard library only; used when a search begins or something has failed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import sqlite3
import tempfile
from contextlib import ExitStack
from pathlib import Path

from autotune.errors import StoreError
from autotune.store.location import BUSY_S, Location, require_database_file
from autotune.text import typed

NETWORK_FILE_SYSTEMS = frozenset({
    "9p", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "fuse.ceph", "fuse.gcsfuse", "fuse.glusterfs",
    "fuse.rclone", "fuse.s3fs", "fuse.sshfs", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "smb3", "smbfs",
})  # fmt: skip
"""File systems on which SQLite's locks or its shared memory do not work between machines."""

MOUNTS = "/proc/self/mounts"

NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
"""Errors of file systems that have no locks."""

LOCAL = "give --db a path on a local disk, or a postgresql:// URL"


def nearest(folder: str) -> str:
    """Return the folder itself or the nearest one above that exists; it may be a file."""
    while not os.path.lexists(folder):
        folder = os.path.dirname(folder) or "."
    return folder


def no_directory(path: str) -> StoreError:
    """Return the error for a path in which a file is in the place of a folder."""
    what = f"{nearest(os.path.dirname(path) or '.')} is not a directory"
    return StoreError(what, where=path, hint="give --db another path")


def require_place(location: Location, *, to_write: bool = True) -> None:
    """Raise StoreError if a search cannot write to a file, as far as can be told without opening it.

    A server cannot be checked. With `to_write` False, for a file that is only read, the file may have other names.
    """
    if location.url:
        return
    require_database_file(location)
    require_local(location.path)
    file = os.path.realpath(location.path) if os.path.islink(location.path) else location.path
    folder = os.path.dirname(file) or "."
    if location.chosen and not os.path.isdir(folder):
        if not os.path.isdir(nearest(folder)):
            raise no_directory(location.path)
        raise StoreError("its directory does not exist", where=location.path, hint=typed(["mkdir", "-p", folder]))
    if to_write:
        _require_one_name(location.path, file)


def _require_one_name(where: str, file: str) -> None:
    """Raise StoreError if a file has another path, at which others would look for its log.

    Two logs of one file damage it, or the trials in one are lost (https://sqlite.org/howtocorrupt.html, section 2.5).
    """
    if os.path.realpath(file) in [folder for folder, _ in _mounted()]:
        what = "is mounted by itself, so others would not find what SQLite writes beside it"
        raise StoreError(what, where=where, hint="mount the folder that it lies in")
    if os.path.isfile(file) and os.stat(file).st_nlink > 1:
        what = "has a second name (a hard link), beside which what SQLite writes here would not be found"
        raise StoreError(what, where=where, hint=f"remove one: {typed(['find', '/', '-xdev', '-samefile', file])}")


def require_local(path: str) -> None:
    """Raise StoreError if `path` is on a network file system: two writers could damage the file there."""
    kind = file_system(path)
    if kind in NETWORK_FILE_SYSTEMS:
        raise StoreError(
            f"lies on a network file system ({kind}), where SQLite's locks do not hold",
            where=path,
            hint=LOCAL,
        )


def file_system(path: str) -> str:
    """Return the type of the file system that contains `path`, as in /proc/self/mounts; "" if unknown."""
    place = os.path.realpath(path)
    found, longest = "", -1
    for folder, kind in _mounted():
        # A later mount on the same folder hides the earlier one.
        if len(folder) >= longest and (place == folder or place.startswith(folder + "/")):
            found, longest = kind, len(folder)
    return found


def _mounted() -> list[tuple[str, str]]:
    """Return each mount point ("" for the root) and its type; empty if they are unknown."""
    try:
        mounts = [line.split() for line in Path(MOUNTS).read_text(encoding="utf-8", errors="replace").splitlines()]
    except OSError:
        return []
    decoded = [
        (re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), folder), kind) for _, folder, kind, *_ in mounts
    ]
    return [(folder.rstrip("/"), kind) for folder, kind in decoded]


def takes_locks(path: str) -> bool:
    """Return whether locks work beside `path`, as far as is known; if not, SQLite may report the file as busy."""
    try:
        with tempfile.TemporaryFile(dir=Path(os.path.realpath(path)).parent) as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in NO_LOCKS
    return True


def spent(path: str) -> tuple[str, str]:
    """Return why the three files of a database cannot be opened, which SQLite does not say, and the cure.

    Two empty strings if no resource has run out.
    """
    with ExitStack() as opened:
        try:
            for _ in range(3):
                opened.enter_context(tempfile.TemporaryFile(dir=Path(os.path.realpath(path)).parent))
        except OSError as error:
            if error.errno in _CURES:
                return f"cannot be opened: {error.strerror}", _CURES[error.errno]
    return "", ""


_ROOM = "make room, then type it again: what was stored is kept"
_CURES = {
    errno.EMFILE: "allow more with ulimit -n",
    errno.ENFILE: "close some, or raise fs.file-max",
    errno.ENOSPC: _ROOM,
    errno.EDQUOT: _ROOM,
}


def lacks_room(error: object) -> bool:
    """Return whether SQLite's error says that the disk has no room for the shared memory of WAL.

    Then nobody else uses the file: else the shared memory would exist already.
    """
    return getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_IOERR_SHMSIZE


def open_alone(path: str) -> sqlite3.Connection:
    """Return a connection that needs no shared memory, since it locks out all others: they wait meanwhile."""
    connection = sqlite3.connect(path, timeout=BUSY_S, check_same_thread=False)
    connection.execute("PRAGMA locking_mode=EXCLUSIVE")
    return connection
