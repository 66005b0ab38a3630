"""The file of an open SQLite database, which may be removed or replaced while it is open.

SQLite then still writes to the nameless file. Its content is copied through the open connection to a place where it
can be found.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import tempfile
import time
from collections.abc import Collection
from contextlib import closing, suppress
from pathlib import Path
from typing import cast

from sqlalchemy.pool import PoolProxiedConnection

from autotune.errors import StoreError
from autotune.store.location import SCHEMA, is_our_file, log_of
from autotune.text import say

Inode = tuple[int, int] | None


class OpenFile:
    """The file at a path, held open by a connection that it takes out of its pool.

    The pool may open another file that comes to the path. `was` has the files that the database was before, each of
    which was removed or moved away.
    """

    def __init__(self, path: Path, held: PoolProxiedConnection, was: Collection[Inode] = ()) -> None:
        held.detach()
        self._was = {*was}
        self._held = held
        self._path = path
        self._inode = inode(path)
        self._mode = _mode(path)
        self._log = _log_files(path)

    @property
    def inodes(self) -> set[Inode]:
        """Every file that the database was, this one included."""
        return {*self._was, self._inode}

    @property
    def is_there(self) -> bool:
        """Whether the file at the path is still this one."""
        return self._inode == inode(self._path)

    def close(self) -> None:
        """Close the connection that holds it open."""
        self._held.close()

    def replace(self) -> Path | None:
        """Return None if the path has everything that was in this file: else write a copy, and return its path.

        If nothing is at the path, the database is written there anew, and a line on stderr says so. If one of the files
        that it `was` has come back, it is brought up to date. Raises StoreError if no copy can be written.
        """
        path, source = self._path, cast(sqlite3.Connection, self._held.dbapi_connection)
        anew = inode(path) is None and _restore(source, path, self._log, self._mode)
        _remove_log(self._log)  # before anybody opens the file that is there now
        there = anew or _stands_for(source, path)
        came = inode(path)
        if not there and came in self._was and _stands_for(source, path, back=True):
            anew = _restore(source, path, {}, self._mode, came)
            there = anew or _stands_for(source, path)
        if anew:
            say(f"autotune: {path}: was removed meanwhile; it is written anew, with everything that was in it")
        return None if there else _keep_copy(source, path)


def inode(path: Path) -> Inode:
    """Return device and inode of a file; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _log_files(path: Path) -> dict[Path, Inode]:
    """Return the paths of SQLite's log and shared memory of `path`, with their inodes."""
    log = Path(log_of(str(path)))
    files = [log, log.with_name(log.name.removesuffix("wal") + "shm")]
    return {file: inode(file) for file in files}


def _remove_log(files: dict[Path, Inode]) -> None:
    """Remove the files that `_log_files` found, but not another database's files in their place.

    Otherwise SQLite would replay the old log into the file that replaced the old one.
    """
    for file, known in files.items():
        if known is not None and inode(file) == known:
            with suppress(OSError):
                file.unlink()


def _mode(path: Path) -> int:
    """Return the mode of a file, as `chmod` takes it; 0600 if it is gone."""
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return 0o600


def _restore(connection: sqlite3.Connection, path: Path, log: dict[Path, Inode], mode: int, over: Inode = None) -> bool:
    """Write the open database to `path` anew; return False if that fails, or if another file than `over` is there.

    `mode`: the permissions that the file had, and gets again.
    """
    copy = _restored(path)
    try:
        # Only one process makes it: another process that had the file open fails here, and keeps its own copy.
        os.close(os.open(copy, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except OSError:
        return False
    try:
        _write(connection, copy)
        copy.chmod(mode)  # whatever the umask
        if inode(path) != over:
            return False
        _remove_log(log)
        if over is None:
            path.hardlink_to(copy)
        else:
            copy.replace(path)
    except (OSError, sqlite3.Error):
        return False
    finally:
        copy.unlink(missing_ok=True)
    return True


def _restored(path: Path) -> Path:
    return path.with_name(f"{path.name}.restored")


RESTORE_S = 5.0
"""How long to wait for another process that writes the database anew."""

_OURS = (
    "SELECT version FROM {}.schema_version",
    "SELECT * FROM {}.devices",
    "SELECT id, study, kernel_hash, study_hash, device, size, choices FROM {}.problems",
    "SELECT id, uuid, problem_id FROM {}.searches",
    "SELECT * FROM {}.search_devices",
    "SELECT id, uuid, search_id FROM {}.trials",
    "SELECT id, uuid, outcome FROM {}.trials WHERE outcome NOT IN ('pending', 'lost')",
    "SELECT id, uuid, trial_id FROM {}.retimings",
    "SELECT * FROM {}.submissions",
    "SELECT * FROM {}.tokens",
)
"""The rows of an open database that another file must have to replace it: all rows, and ended trials as ended."""


def _stands_for(connection: sqlite3.Connection, path: Path, *, back: bool = False) -> bool:
    """Return whether the file that is at `path` now has all that the open database has, under the same numbers.

    It has if another process that had the database open has written it anew. With `back`, return whether the open
    database has all that the file has, as it does if the file was moved away for a while.
    """
    one, other = ("there", "main") if back else ("main", "there")
    deadline = time.monotonic() + RESTORE_S
    while inode(_restored(path)) is not None and time.monotonic() < deadline:
        time.sleep(RESTORE_S / 100)
    if inode(path) is None:
        return False
    try:
        connection.execute("ATTACH ? AS there", (str(path),))
    except sqlite3.Error:
        return False
    try:
        schema = connection.execute(SCHEMA.replace("sqlite_master", "there.sqlite_master"))
        if not is_our_file(schema, str(path)):
            return back  # nothing is in it: its contents are in the log that it left here
        return not any(
            connection.execute(f"{rows.format(one)} EXCEPT {rows.format(other)} LIMIT 1").fetchone() for rows in _OURS
        )
    except (sqlite3.Error, StoreError):
        return False
    finally:
        connection.execute("DETACH there")


def _keep_copy(connection: sqlite3.Connection, path: Path) -> Path:
    """Write the open database to a new file beside `path` or, if that fails, in a temporary folder; return its path.

    Raises StoreError if both fail.
    """
    reason: Exception | None = None
    for folder in (path.parent, Path(tempfile.gettempdir())):
        try:
            return _copied(connection, path.stem, folder)
        except (OSError, sqlite3.Error) as error:
            reason = error
    raise StoreError(f"was removed or replaced meanwhile, and no copy can be written: {reason}", where=str(path))


def _copied(connection: sqlite3.Connection, stem: str, folder: Path) -> Path:
    """Write the open database to a new file in a folder and return its path. Raises OSError, sqlite3.Error."""
    handle, name = tempfile.mkstemp(prefix=f"{stem}-kept-", suffix=".db", dir=folder)
    os.close(handle)
    copy = Path(name)
    try:
        _write(connection, copy)
    except (OSError, sqlite3.Error):
        with suppress(OSError):
            copy.unlink()
        raise
    return copy


def _write(connection: sqlite3.Connection, to: Path) -> None:
    with closing(sqlite3.connect(to)) as copy:
        connection.backup(copy)
    with to.open("rb") as file:
        os.fsync(file.fileno())
