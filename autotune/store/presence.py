"""Whether a search's process is still running, and the file of its open SQLite database is still there.

The pending trials of a killed search are lost. A search that was wrongly taken for dead loses nothing: `Store.finish`
accepts lost trials as well as pending ones. A file may be removed or replaced while it is open: SQLite then still
writes to the nameless file, and its content is copied through the open connection to a place where it can be found.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sqlite3
import stat
import tempfile
import time
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from autotune.errors import StoreError
from autotune.store.location import SCHEMA, is_our_file, log_of

PATIENCE = timedelta(days=1)
"""How long a search is believed to run if its process cannot be checked, as on another machine."""

PROC = Path("/proc")


LIVELY = timedelta(hours=1)
"""A running search begins a trial more often than this."""


def this_process() -> str:
    """Return an identifier of this process among all machines: host, boot, name space of numbers, number, start."""
    host = hashlib.sha256(platform.node().encode()).hexdigest()[:12]
    return ":".join((host, *_boot(), str(os.getpid()), _start(os.getpid())))


def is_dead(process: str, started: str) -> bool:
    """Return whether a process has ended, by its `this_process` and the instant `started` of its search."""
    here, there = this_process().split(":"), process.split(":")
    if len(there) == len(here) and there[:3] == here[:3]:
        return not _is_running(there[3], there[4])
    if len(there) == len(here) and there[0] == here[0] and there[1] != here[1]:
        return True  # this machine was restarted since
    try:
        age = datetime.now(UTC) - datetime.fromisoformat(started)
    except (ValueError, TypeError):
        return True
    return abs(age) > PATIENCE  # also if far in the future, by a wrong clock


def is_recent(instant: str) -> bool:
    """Return whether an instant is less than LIVELY ago, or ahead, if clocks differ."""
    try:
        return abs(datetime.now(UTC) - datetime.fromisoformat(instant)) < LIVELY
    except (ValueError, TypeError):
        return False


def _is_running(number: str, start: str) -> bool:
    if not number.isdecimal():
        return False
    if start:
        return _start(int(number)) == start
    try:
        os.kill(int(number), 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # another user's
        pass
    return True


def _boot() -> tuple[str, str]:
    """Return a value that changes when the machine starts, and one for each container; "" if they are unknown."""
    try:
        boot = (PROC / "sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        return boot, str((PROC / "self/ns/pid").stat().st_ino)
    except OSError:
        return "", ""


def _start(number: int) -> str:
    """Return when a process began, in ticks since the boot; "" if there is none or it has ended."""
    try:
        fields = (PROC / str(number) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


# The file --------------------------------------------------------------------------------------------------

Inode = tuple[int, int] | None


def inode(path: Path) -> Inode:
    """Return device and inode of a file; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def log_files(path: Path) -> dict[Path, Inode]:
    """Return the paths of SQLite's log and shared memory of `path`, with their inodes."""
    log = Path(log_of(str(path)))
    files = [log, log.with_name(log.name.removesuffix("wal") + "shm")]
    return {file: inode(file) for file in files}


def remove_log(files: dict[Path, Inode]) -> None:
    """Remove the files that `log_files` found, but not another database's files in their place.

    Otherwise SQLite would replay the old log into the file that replaced the old one.
    """
    for file, known in files.items():
        if known is not None and inode(file) == known:
            with suppress(OSError):
                file.unlink()


def mode(path: Path) -> int:
    """Return the mode of a file, as `chmod` takes it; 0600 if it is gone."""
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return 0o600


def restore(connection: sqlite3.Connection, path: Path, log: dict[Path, Inode], mode: int) -> bool:
    """Write the open database to `path` anew if nothing is there now; return False if that is not possible.

    `mode`: the mode of the old file, for the new one.
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
        if inode(path) is not None:
            return False
        remove_log(log)
        path.hardlink_to(copy)
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


def stands_for(connection: sqlite3.Connection, path: Path) -> bool:
    """Return whether the file that is at `path` now has all rows of the open database, under the same numbers.

    It has if another process that had the database open has written it anew.
    """
    deadline = time.monotonic() + RESTORE_S
    while inode(path) is None:
        if inode(_restored(path)) is None or time.monotonic() > deadline:
            return False
        time.sleep(RESTORE_S / 100)
    try:
        connection.execute("ATTACH ? AS there", (str(path),))
    except sqlite3.Error:
        return False
    try:
        schema = connection.execute(SCHEMA.replace("sqlite_master", "there.sqlite_master"))
        return is_our_file(schema, str(path)) and not any(
            connection.execute(f"{rows.format('main')} EXCEPT {rows.format('there')} LIMIT 1").fetchone()
            for rows in _OURS
        )
    except (sqlite3.Error, StoreError):
        return False
    finally:
        connection.execute("DETACH there")


def keep_copy(connection: sqlite3.Connection, path: Path) -> Path:
    """Write the open database to a new file beside `path` or, if that fails, in a temporary folder; return its path.

    Raises StoreError if both fail.
    """
    reason: Exception | None = None
    for folder in (path.parent, Path(tempfile.gettempdir())):
        try:
            handle, name = tempfile.mkstemp(prefix=f"{path.stem}-kept-", suffix=".db", dir=folder)
        except OSError as error:
            reason = error
            continue
        os.close(handle)
        try:
            _write(connection, Path(name))
        except (OSError, sqlite3.Error) as error:
            reason = error
            with suppress(OSError):
                Path(name).unlink()
            continue
        return Path(name)
    raise StoreError(f"was removed or replaced meanwhile, and no copy can be written: {reason}", where=str(path))


def _write(connection: sqlite3.Connection, to: Path) -> None:
    with closing(sqlite3.connect(to)) as copy:
        connection.backup(copy)
    with to.open("rb") as file:
        os.fsync(file.fileno())
