"""The FILE that a command writes: whole or as it was before, and never in the place of what was read for it."""

from __future__ import annotations

import os
import secrets
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from autotune.errors import UsageError
from autotune.store import locate
from autotune.text import typed

_DATABASE = b"SQLite format 3\0"
_BESIDE = ("", "-wal", "-shm", "-journal")
"""What SQLite appends to the name of a database for its files."""


@contextmanager
def writing(file: Path | None, database: str | None = None, read: Iterable[str] = ()) -> Iterator[IO[str]]:
    """Open the FILE of a command for text, as `replacing` does; without one, or for `-`, stdout. Raises UsageError."""
    if file is not None and str(file) != "-":
        with replacing(file, database, read) as place, place.open("w", encoding="utf-8") as out:
            yield out
        return
    try:
        yield sys.stdout
    except OSError as error:
        raise UsageError(f"cannot be written: {error.strerror}", where="stdout") from error


@contextmanager
def replacing(file: Path, database: str | None = None, read: Iterable[str] = ()) -> Iterator[Path]:
    """Yield the path at which to write what becomes a file's content when this context ends well; else it stays.

    Devices, pipes and the like are written themselves. Raises UsageError where a file cannot be written, and as
    `require_spare` does.
    """
    require_spare(file, database, read)
    try:
        if (os.path.exists(file) and not os.path.isfile(file)) or _is_stream(file):
            yield file
            return
        target = Path(os.path.realpath(file))  # of a link: it stays
        mode = _mode(target)
        part = target.with_name(f".autotune-{secrets.token_hex(8)}{target.suffix[:8]}")
        try:
            with part.open("xb"):  # with the rights that a new file gets here
                pass
            yield part
            if mode is not None:
                part.chmod(mode)
            with part.open("rb") as written:
                os.fsync(written.fileno())  # before it takes the place of another
            part.replace(target)
        except BaseException:
            with suppress(OSError):
                part.unlink(missing_ok=True)
            raise
    except OSError as error:
        missing = isinstance(error, FileNotFoundError) and file.parent.name
        hint = typed(["mkdir", "-p", str(file.parent)]) if missing else ""
        raise UsageError(f"cannot be written: {error.strerror or error}", where=str(file), hint=hint) from error


def require_spare(file: Path, database: str | None = None, read: Iterable[str] = ()) -> None:
    """Raise UsageError where a file may not be written over: any database, and what was `read` for this command.

    The database in use is told by its place: to open and close its file would give up this process's locks on it.
    """
    in_use = locate(database).path
    if in_use and any(_is_same(file, os.path.realpath(in_use) + ending) for ending in _BESIDE):
        raise UsageError("is the database in use, and is not overwritten", where=str(file), hint=_HINT)
    if any(_is_same(file, name) for name in read if os.path.exists(name)):
        raise UsageError("is an input of this command, and is not overwritten", where=str(file), hint=_HINT)
    if os.path.isfile(file) and _begins_as_database(file):
        raise UsageError("is a database, and is not overwritten", where=str(file), hint=_HINT)


_HINT = "name another file"


def _is_same(file: Path, name: str) -> bool:
    """Whether two names are of one file, there or not."""
    try:
        return file.samefile(name)
    except (OSError, ValueError):
        with suppress(OSError):  # one begins in a folder that was removed: who opens it says so
            return os.path.realpath(file) == os.path.realpath(name)
        return False


def _begins_as_database(file: Path) -> bool:
    try:
        with file.open("rb") as opened:
            return opened.read(len(_DATABASE)) == _DATABASE
    except OSError:
        return False  # that it cannot be written either is said by who tries


def _is_stream(file: Path) -> bool:
    """Whether a name stands for what this process has open already, such as /dev/stdout."""
    return os.path.realpath(file.parent).startswith("/proc/") or str(file) in ("/dev/stdout", "/dev/stderr")


def _mode(target: Path) -> int | None:
    """Return the rights of the file that is replaced; None where there is none. Raises OSError where it is guarded."""
    if not os.path.exists(target):
        return None
    with target.open("ab"):  # who may not write to it may not replace it
        return stat.S_IMODE(target.stat().st_mode)
