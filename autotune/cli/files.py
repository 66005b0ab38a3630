"""The FILE that a command writes: replaced completely or not at all, and never a file that was read for it."""

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
_SOURCES = {".toml": "study", ".cl": "kernel", ".py": "program"}
"""What people write by hand, by the ending: `export ./own.toml` is meant to name a study, not the FILE to write."""
_BESIDE = ("", "-wal", "-shm", "-journal")
"""The endings that SQLite appends to the name of a database for its files."""


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
    """Yield the path to write to; it becomes the file's content if this context ends without an error.

    Otherwise the file stays. Devices, pipes and the like are written directly. Raises UsageError if a file cannot be
    written or is a source, and as `require_spare` does.
    """
    require_spare(file, database, read)
    if os.path.isfile(file) and (kind := _SOURCES.get(file.suffix.lower())):
        hint = f"{_HINT}; export takes a study by --study" if kind == "study" else _HINT
        raise UsageError(f"is a {kind}, and is not overwritten", where=str(file), hint=hint)
    try:
        if (os.path.exists(file) and not os.path.isfile(file)) or _is_stream(file):
            yield file
            return
        target = Path(os.path.realpath(file))  # the target of a link, so that the link stays
        mode = _mode(target)
        part = target.with_name(f".autotune-{secrets.token_hex(8)}{target.suffix[:8]}")
        try:
            with part.open("xb"):  # gets the permissions of a new file in this folder
                pass
            yield part
            if mode is not None:
                part.chmod(mode)
            with part.open("rb") as written:
                os.fsync(written.fileno())  # before it replaces the other file
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
    """Raise UsageError if a file must not be overwritten: any database, and what was `read` for this command.

    The database in use is known by its path: opening and closing its file would release this process's locks on it.
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
    """Whether two names are of one file, even if it does not exist."""
    try:
        return file.samefile(name)
    except (OSError, ValueError):
        with suppress(OSError):  # a relative path in a removed folder: opening it will fail with a clear error
            return os.path.realpath(file) == os.path.realpath(name)
        return False


def _begins_as_database(file: Path) -> bool:
    try:
        with file.open("rb") as opened:
            return opened.read(len(_DATABASE)) == _DATABASE
    except OSError:
        return False  # if it cannot be written either, the attempt will say so


def _is_stream(file: Path) -> bool:
    """Whether a name stands for something that this process has already open, such as /dev/stdout."""
    return os.path.realpath(file.parent).startswith("/proc/") or str(file) in ("/dev/stdout", "/dev/stderr")


def _mode(target: Path) -> int | None:
    """Return the permissions of the file to replace, or None if there is none. Raises OSError if it is protected."""
    if not os.path.exists(target):
        return None
    with target.open("ab"):  # a file that may not be written may not be replaced
        return stat.S_IMODE(target.stat().st_mode)
