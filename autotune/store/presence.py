"""The file of an open SQLite database, which somebody may remove or replace meanwhile. Nothing is lost by it.

SQLite goes on writing to a file that has no name any more. What was stored is still in reach through the open
connection, and is copied to where it can be found again.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from contextlib import closing, suppress
from pathlib import Path

from autotune.errors import StoreError

Identity = tuple[int, int] | None


def identity(path: Path) -> Identity:
    """Return device and inode of a file; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def log_files(path: Path) -> dict[Path, Identity]:
    """Return the files in which SQLite keeps what has not come to `path` yet, and which they are."""
    files = [path.with_name(path.name + end) for end in ("-wal", "-shm")]
    return {file: identity(file) for file in files}


def remove_log(files: dict[Path, Identity]) -> None:
    """Remove the files that `log_files` found, but not those of another database that are in their place.

    Whoever opens the file that came to the place of the old one would have the old log replayed into it.
    """
    for file, known in files.items():
        if known is not None and identity(file) == known:
            with suppress(OSError):
                file.unlink()


def restore(connection: sqlite3.Connection, path: Path, log: dict[Path, Identity]) -> bool:
    """Write the open database to `path` anew, where nothing is there now; False where that cannot be done."""
    copy = path.with_name(f"{path.name}.restored")
    try:
        # Made by one process alone: another that had the file open finds it made, and keeps a copy of its own.
        os.close(os.open(copy, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666))
    except OSError:
        return False
    try:
        _write(connection, copy)
        if identity(path) is not None:
            return False
        remove_log(log)
        path.hardlink_to(copy)
    except (OSError, sqlite3.Error):
        return False
    finally:
        copy.unlink(missing_ok=True)
    return True


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
