"""Where the database is (a path, a URL, or the default place), and what is wrong with it, in one clear line.

Standard library only, and few modules of it (no pathlib): the cold path of `autotune best` imports this file.
"""

from __future__ import annotations

import errno
import os
import re
import sqlite3
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from os import path as paths
from typing import Any, NamedTuple

from autotune.errors import StoreError
from autotune.text import typed

SCHEMA_VERSION = 8
"""The version this program writes: the number of migrations in migrations.py."""

TABLES = ("devices", "problems", "searches", "search_devices", "trials", "retimings")
"""The tables of every version, beside `schema_version`."""

BUSY_S = 30.0
"""How long a transaction on a file waits for those of other processes. Ours last milliseconds."""

UNSOUND = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""The errors from decoding stored values that no version of this program has written."""

IMPORTED = "import"
"""The sampler of a search that another tool made: its trials show where to look, and are not results of ours."""

CAME_IN, TIMED_ELSEWHERE = "came_in", "timed_elsewhere"
"""Keys in a trial's environment. CAME_IN: an import brought the trial, so its configuration is checked with the study
when it is served. TIMED_ELSEWHERE: an import brought some re-timings, a JSON list of their uuids."""


class Location(NamedTuple):
    """A database: `path` of an SQLite file, or `url` of a server. `chosen` is False for the default file.

    `named_by`: the option or variable that a user has to correct if it is wrong.
    """

    path: str = ""
    url: str = ""
    chosen: bool = True
    named_by: str = "--db"

    def __str__(self) -> str:
        """Return the text for messages and answers, without the password of a URL."""
        return self.path or shown(self.url)

    def scrubbed(self, text: str) -> str:
        """Return a driver's message without the passwords of the URL, both as written there and decoded."""
        from urllib.parse import unquote, unquote_plus

        for secret in _secrets(self.url):
            for form in {secret, unquote(secret), unquote_plus(secret)} - {""}:
                # A short one is part of many words, and masking these would reveal it: mask it only after : and =.
                place = re.escape(form) if len(form) >= _TELLING else rf"(?<=[:=]){re.escape(form)}(?![\w-])"
                text = re.sub(place, MASK, text)
        return text


MASK = "***"
_TELLING = 5
"""The least characters of a password that is probably not part of a word."""
# Compiled when first used: a look-up in a file does not pay for them.
_USER = "[^:/@]*://[^:/@]*(:[^@]*)?@[^@]*"
_PASSWORD = "(?<=://)([^:/@]*):([^@]*)@"
_SECRET_SETTING = "pass|pwd|secret|token"


def shown(database: str) -> str:
    """Return the printable form of what `--db` takes: a URL without its passwords, a path unchanged."""
    if "://" not in database:
        return "postgresql:" + MASK if database.startswith("postgresql:") else database
    if is_ambiguous(database):
        return database.partition("://")[0] + f"://{MASK}"
    user, at, rest = re.sub(_PASSWORD, rf"\1:{MASK}@", database).rpartition("@")
    place, question, query = rest.partition("?")
    return user + at + place + question + "&".join(map(_shown_setting, query.split("&")))


def is_ambiguous(url: str) -> bool:
    """Return whether parsers may differ on where the password ends: a part of it would be taken for the host."""
    return "@" in url and re.fullmatch(_USER, url) is None


def _shown_setting(setting: str) -> str:
    name, equals, _ = setting.partition("=")
    return f"{name}={MASK}" if equals and _is_secret(name) else setting


def _is_secret(name: str) -> bool:
    from urllib.parse import unquote

    return re.search(_SECRET_SETTING, unquote(name), re.IGNORECASE) is not None


def _secrets(url: str) -> list[str]:
    """Return every text in a URL that is a password."""
    settings = [setting.partition("=") for setting in url.rpartition("@")[2].partition("?")[2].split("&")]
    found = [value for name, _, value in settings if _is_secret(name)]
    return [*found, *(match[2] for match in re.finditer(_PASSWORD, url))]


TENDED: dict[int, Callable[[], None]] = {}
"""For each open database of this process, by the id of its object: the function that checks its file (access.py)."""


def tend() -> None:
    """Check the files of all databases that this process has open. Call it before a file is opened once more.

    If another file has come to the place of an open one, SQLite would read the old log with it, and write the log into
    it.
    """
    for look in list(TENDED.values()):
        look()


def locate(database: str | Location | None) -> Location:
    """Return the database named by `--db`, else by AUTOTUNE_DB, else the default. Raises StoreError."""
    if isinstance(database, Location):
        return database
    if database == "":  # from a script with an unset variable, for example: not the default
        raise StoreError("is empty", where="--db", hint="give it the path of a file, or leave it out")
    named = database or os.environ.get("AUTOTUNE_DB")
    if not named:
        return Location(default_path(), chosen=False)
    by = "--db" if database else "AUTOTUNE_DB"
    if "\0" in named:
        raise StoreError("holds a NUL character", where=by, hint="give it the path of a file")
    try:
        os.fsencode(named)
    except UnicodeEncodeError:  # a lone surrogate that no file name is decoded to
        raise StoreError(f"{named!r:.60} is not a path", where=by, hint="give it the path of a file") from None
    if named == ":memory:" or named in ("sqlite://", "sqlite:///:memory:"):
        raise StoreError("a database in memory keeps nothing", where=named, hint="give --db the path of a file")
    if named == "sqlite:///":
        raise StoreError("names no file", where=named, hint="write sqlite:///PATH, or the path alone")
    if named.startswith("sqlite:///"):
        return Location(_placed(named.removeprefix("sqlite:///")))
    if "://" in named or named.startswith("postgresql:"):
        return Location(url=named, named_by=by)
    return Location(_placed(named))


def _placed(named: str) -> str:
    """Return the path that a word names. Raises StoreError if it is relative and the current folder was removed."""
    path = paths.expanduser(named)
    if not paths.isabs(path):
        try:
            os.getcwd()
        except OSError:
            what = "starts at the current folder, which was removed"
            raise StoreError(what, where=path, hint="give the whole path, or change to another folder") from None
    return path


def log_of(path: str) -> str:
    """Return the path of SQLite's log of a file, which is beside the file itself if `path` is a link."""
    return f"{paths.realpath(path)}-wal"


def _shared_of(path: str) -> str:
    return f"{log_of(path).removesuffix('wal')}shm"


def kind_of(error: object) -> int:
    """Return the kind of SQLite's error, the low byte of its code (the rest gives details); 0 for any other error."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def may_not_be_written(path: str, error: object) -> bool:
    """Return whether SQLite's error says that a file or its directory is read-only, and the file is complete.

    Then nobody can be writing there. The error decides, since on a failed disk files may only seem to be writable.
    """
    unwritable = kind_of(error) in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
    return unwritable and os.path.isfile(path) and _is_complete(path)


def _is_anothers(path: str) -> bool:
    return os.path.isfile(path) and not os.access(path, os.W_OK)


def is_for_reading(path: str) -> bool:
    """Return whether there is a file that this user may not write, and that is complete: alone or with SQLite's files.

    If SQLite opened it as usual, it would leave files of this user beside it, and the owner could no longer write.
    """
    return _is_anothers(path) and _is_complete(path)


def _is_complete(path: str) -> bool:
    """Return whether a file has no log, or a log and its shared memory: reading it then needs no writing."""
    return os.path.exists(_shared_of(path)) or not os.path.exists(log_of(path))


def require_writable(path: str) -> None:
    """Raise StoreError if a file, or one of SQLite's files beside it, exists and may not be written."""
    if _is_anothers(path):
        raise StoreError("is read-only", where=path, hint=_COPY)
    log, shared = log_of(path), _shared_of(path)
    if _is_anothers(log) or _is_anothers(shared):
        empty = not (os.path.exists(log) and os.stat(log).st_size)  # left by a user who may only read
        hint = f"when nobody uses it: {typed(['rm', '-f', log, shared])}" if empty else "its owner may change its mode"
        raise StoreError(f"{log if _is_anothers(log) else shared} is another user's", where=path, hint=hint)


def as_it_is(path: str) -> str:
    """Return the URI with which SQLite reads a file with its log, or as immutable, and writes nothing beside it."""
    plain = paths.realpath(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    return f"file:{plain}?{'mode=ro' if os.path.exists(log_of(path)) else 'immutable=1'}"


def default_path() -> str:
    """Return `autotune.db` in the user's data directory, as platformdirs names it.

    To import platformdirs takes as long as the rest of a look-up, so its rule for Linux is repeated here. Raises
    StoreError if this user's home is unknown: a folder named `~` would be made in the current one.
    """
    if not sys.platform.startswith("linux"):
        from platformdirs import user_data_dir

        return paths.join(user_data_dir("autotune"), "autotune.db")
    data = os.environ.get("XDG_DATA_HOME", "")
    if not paths.isabs(data):
        data = paths.expanduser("~/.local/share")
    if not paths.isabs(data):
        what = "no folder is known for the database: HOME is not set, and the system knows no home of this user's"
        raise StoreError(what, hint="give --db the path of a file, or set HOME")
    return paths.join(data, "autotune", "autotune.db")


def require_database_file(location: Location) -> None:
    """Raise StoreError if something at the path cannot be a readable SQLite file; SQLite itself checks its content.

    The file is not opened: closing a file releases all locks that this process has on it, also those of an open
    database, and another process would then remove its log (https://sqlite.org/howtocorrupt.html, section 2.2).
    """
    path = location.path
    try:
        os.stat(path)
    except OSError as error:
        if error.errno == errno.ENOTDIR and location.chosen:
            from autotune.store.mounts import no_directory

            raise no_directory(path) from None
        if error.errno in (errno.ELOOP, errno.ENAMETOOLONG):
            raise StoreError(f"cannot be opened: {error.strerror}", where=path, hint=_ANOTHER) from None
    if os.path.isdir(path):
        raise StoreError("is a directory", where=path, hint="give --db the path of a file in it")
    if os.path.exists(path) and not os.path.isfile(path):  # a device, a pipe: opening it may wait forever
        raise StoreError("is not a file", where=path, hint="give --db the path of one")
    if os.path.exists(path) and not os.access(path, os.R_OK):
        raise StoreError("cannot be read: Permission denied", where=path)


SCHEMA = """
SELECT name, CASE WHEN sql GLOB 'CREATE TABLE *' THEN 'table' WHEN sql IS NULL OR sql GLOB 'CREATE INDEX *'
OR sql GLOB 'CREATE UNIQUE INDEX *' THEN 'index' ELSE 'program' END AS kind
FROM sqlite_master WHERE kind = 'program' OR (kind = 'table' AND name NOT LIKE 'sqlite_%')
"""
"""The contents of an SQLite file, by what SQLite makes of them (`sql`), not by their declared kind (`type`)."""


def is_our_file(found: Iterable[Sequence[Any]], where: str) -> bool:
    """Return `is_ours` for the rows of SCHEMA.

    Raises StoreError also for views and triggers: they run when a table is read or written, and none is ours.
    """
    rows = list(found)
    ours = is_ours({name for name, kind in rows if kind == "table"}, where)
    for name, kind in rows:
        if kind == "program":
            what = f"holds a view or a trigger, {name!r:.80}, which no version of this program makes"
            raise StoreError(what, where=where, hint="drop it with sqlite3, or give --db another path")
    return ours


def is_ours(tables: Collection[str], where: str) -> bool:
    """Return True if a database with these tables is this program's, False if it is empty.

    Raises StoreError for another program's.
    """
    if tables and not {"schema_version", *TABLES} <= set(tables):
        raise StoreError("holds tables of another program", where=where, hint=_ANOTHER)
    return bool(tables)


def damaged_database(where: str, what: object) -> StoreError:
    """Return the error for a database with content that no version of this program has written."""
    said = " ".join(str(what).split())[:_SAID]
    if "://" in where:
        return StoreError(f"is damaged: {said}", where=where, hint="bring a backup of it back; or give --db another")
    hint = f"{_MEANWHILE}; {_RECOVER}" if _is_anothers(where) else _RECOVER
    return StoreError(f"is damaged: {said}", where=where, hint=hint)


def version_in(value: object, where: str) -> int:
    """Return the version stored in a database. Raises StoreError if it is newer than this program, or missing."""
    if not isinstance(value, int) or value < 1:
        raise damaged_database(where, "it does not say its version")
    if value > SCHEMA_VERSION:
        what = f"is of version {value}, newer than this program's {SCHEMA_VERSION}"
        raise StoreError(what, where=where, hint="update autotune, or give --db another path")
    return value


def database_error(where: str, error: BaseException | None) -> StoreError:
    """Return a database driver's error as one clear line."""
    code, kind = getattr(error, "sqlite_errorcode", 0), kind_of(error)
    if code in _UNLOCKED or kind == sqlite3.SQLITE_BUSY:
        from autotune.store.mounts import LOCAL, takes_locks

        if code in _UNLOCKED or not takes_locks(where):
            return StoreError("is in a place where SQLite cannot lock or share files", where=where, hint=LOCAL)
    if kind == sqlite3.SQLITE_CANTOPEN:
        from autotune.store.mounts import spent

        what, hint = spent(where)
        if what:
            return StoreError(what, where=where, hint=hint)
    if kind in _SQLITE_ERRORS:
        what, hint = _SQLITE_ERRORS[kind]
        return StoreError(what, where=where, hint=hint)
    if isinstance(error, sqlite3.Error):
        # Every statement is tested on sound databases: if SQLite cannot run one, the database is damaged.
        return damaged_database(where, error)
    lines = str(error).strip().splitlines() or ["no reason given"]
    return StoreError(f"cannot be used: {lines[0]}", where=where)


_SAID = 200
"""The most characters of a driver's or decoder's message: the rest is what it could not read."""

_RECOVER = "sqlite3's .recover may save its rows; or give --db another path"
_MEANWHILE = "type it again, as its owner may just have written to it"
_ANOTHER = "give --db another path"
_COPY = "give --db a file to write, such as a copy of it"
_UNLOCKED = (
    sqlite3.SQLITE_IOERR_LOCK,
    sqlite3.SQLITE_IOERR_RDLOCK,
    sqlite3.SQLITE_IOERR_SHMLOCK,
    sqlite3.SQLITE_IOERR_SHMMAP,
)
_LOCKED = ("is locked by another process", "wait for that process, or end it")
_SQLITE_ERRORS = {
    sqlite3.SQLITE_READONLY: ("is read-only", _COPY),
    sqlite3.SQLITE_CANTOPEN: ("cannot be opened: it or its directory is read-only", _COPY),
    sqlite3.SQLITE_PERM: ("may not be opened", "give --db the path of a file to write"),
    **dict.fromkeys((sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED), _LOCKED),
    sqlite3.SQLITE_NOTADB: ("is not an SQLite database", _ANOTHER),
    sqlite3.SQLITE_FULL: ("the disk is full", "make room, then type it again: what was stored is kept"),
    sqlite3.SQLITE_IOERR: ("cannot be read or written", "look at the disk and `ulimit -f`; what was stored is kept"),
}
