"""Whether what a search rests on is still there: its process, and the file of its open SQLite database.

What a search that was killed left pending is lost. One that was taken for dead and is not loses nothing: `Store.finish`
takes a lost trial as well as a pending one. A file may be removed or replaced meanwhile: SQLite goes on writing to one
that has no name any more, and what was stored is copied through the open connection to where it can be found again.
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
"""How long a search that cannot be looked at from here, as on another machine, is believed to be at work."""

PROC = Path("/proc")


LIVELY = timedelta(hours=1)
"""A search that is at work begins a trial in less."""


def this_process() -> str:
    """Return what names this process among all of all machines: host, boot, name space of numbers, number, start."""
    host = hashlib.sha256(platform.node().encode()).hexdigest()[:12]
    return ":".join((host, *_boot(), str(os.getpid()), _start(os.getpid())))


def is_dead(process: str, started: str) -> bool:
    """True where the process that `this_process` named, and that began at the instant `started`, is at work no more."""
    here, there = this_process().split(":"), process.split(":")
    if len(there) == len(here) and there[:3] == here[:3]:
        return not _is_running(there[3], there[4])
    if len(there) == len(here) and there[0] == here[0] and there[1] != here[1]:
        return True  # this machine has been started since
    try:
        age = datetime.now(UTC) - datetime.fromisoformat(started)
    except (ValueError, TypeError):
        return True
    return abs(age) > PATIENCE  # or ahead, by a clock that was wrong


def is_recent(instant: str) -> bool:
    """Say whether an instant is less than LIVELY ago, or ahead, by clocks that do not agree."""
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
    """Return what changes when the machine starts, and what differs between containers; "" where it cannot be told."""
    try:
        boot = (PROC / "sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        return boot, str((PROC / "self/ns/pid").stat().st_ino)
    except OSError:
        return "", ""


def _start(number: int) -> str:
    """Return when a process began, in ticks since the boot; "" where there is none or it has ended."""
    try:
        fields = (PROC / str(number) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


# The file --------------------------------------------------------------------------------------------------

Inode = tuple[int, int] | None


def inode(path: Path) -> Inode:
    """Return device and inode of a file; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def log_files(path: Path) -> dict[Path, Inode]:
    """Return the files in which SQLite keeps what has not come to `path` yet, and which they are."""
    log = Path(log_of(str(path)))
    files = [log, log.with_name(log.name.removesuffix("wal") + "shm")]
    return {file: inode(file) for file in files}


def remove_log(files: dict[Path, Inode]) -> None:
    """Remove the files that `log_files` found, but not those of another database that are in their place.

    Whoever opens the file that came to the place of the old one would have the old log replayed into it.
    """
    for file, known in files.items():
        if known is not None and inode(file) == known:
            with suppress(OSError):
                file.unlink()


def mode(path: Path) -> int:
    """Return who may read and write a file, as `chmod` takes it; its owner, where it is gone."""
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return 0o600


def restore(connection: sqlite3.Connection, path: Path, log: dict[Path, Inode], mode: int, over: Inode = None) -> bool:
    """Write the open database to `path` anew; False where that cannot be done, or another file than `over` is there.

    `mode`: who might read and write it, and may.
    """
    copy = _restored(path)
    try:
        # Made by one process alone: another that had the file open finds it made, and keeps a copy of its own.
        os.close(os.open(copy, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except OSError:
        return False
    try:
        _write(connection, copy)
        copy.chmod(mode)  # whatever the umask
        if inode(path) != over:
            return False
        remove_log(log)
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
"""How long another process is waited for that writes the database anew."""

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
"""What another file has to have of an open database to stand for it: what has ended, and all that is at work."""


def stands_for(connection: sqlite3.Connection, path: Path, *, back: bool = False) -> bool:
    """Say whether the file that is at `path` now has all that the open database has, under the same numbers.

    So it does where another process that had the database open has written it anew. `back`: the other way round, as it
    is where the open database was that file, which was moved away for a while.
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
            return back  # nothing is in it: what it was is in the log that it left here
        return not any(
            connection.execute(f"{rows.format(one)} EXCEPT {rows.format(other)} LIMIT 1").fetchone() for rows in _OURS
        )
    except (sqlite3.Error, StoreError):
        return False
    finally:
        connection.execute("DETACH there")


def keep_copy(connection: sqlite3.Connection, path: Path) -> Path:
    """Write the open database to a new file beside `path` or, where that cannot be, in a temporary folder.

    Raises StoreError where there is room nowhere.
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
