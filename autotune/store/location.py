"""Where the database is (a path or a URL, the default place), and what is wrong with it, in one clear line.

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
"""What making sense of stored values raises where they are none that a version of this program has written."""

IMPORTED = "import"
"""The sampler of a search that another tool made: its trials tell where to look, and are no results of ours."""

CAME_IN, TIMED_ELSEWHERE = "came_in", "timed_elsewhere"
"""Keys in a trial's environment. An import brought it: who serves it checks its configuration by the study; or brought
these of its re-timings: a JSON list of their uuids."""


class Location(NamedTuple):
    """A database: `path` of an SQLite file, or `url` of a server. `chosen` is False for the default file.

    `named_by`: what a user has to mend where it is none.
    """

    path: str = ""
    url: str = ""
    chosen: bool = True
    named_by: str = "--db"

    def __str__(self) -> str:
        """For messages and answers: without the password of a URL."""
        return self.path or shown(self.url)

    def scrubbed(self, text: str) -> str:
        """Return what a driver said without the passwords of the URL, as they are written and as they are meant."""
        from urllib.parse import unquote, unquote_plus

        for secret in _secrets(self.url):
            for form in {secret, unquote(secret), unquote_plus(secret)} - {""}:
                # A short one is part of many words, which the mask would tell: it hides only where passwords stand.
                place = re.escape(form) if len(form) >= _TELLING else rf"(?<=[:=]){re.escape(form)}(?![\w-])"
                text = re.sub(place, MASK, text)
        return text


MASK = "***"
_TELLING = 5
"""Characters of a password that hardly is a part of a word."""
# Compiled when first used: a look-up in a file pays for none of them.
_USER = "[^:/@]*://[^:/@]*(:[^@]*)?@[^@]*"
_PASSWORD = "(?<=://)([^:/@]*):([^@]*)@"
_SECRET_SETTING = "pass|pwd|secret|token"


def shown(database: str) -> str:
    """Return what `--db` takes as it may be printed: a URL without its passwords, a path as it is."""
    if "://" not in database:
        return "postgresql:" + MASK if database.startswith("postgresql:") else database
    if is_ambiguous(database):
        return database.partition("://")[0] + f"://{MASK}"
    user, at, rest = re.sub(_PASSWORD, rf"\1:{MASK}@", database).rpartition("@")
    place, question, query = rest.partition("?")
    return user + at + place + question + "&".join(map(_shown_setting, query.split("&")))


def is_ambiguous(url: str) -> bool:
    """True where readers of URLs differ on where the password ends: half of it would be taken for the host."""
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
"""What looks after each database that this process has open (access.py), by the number of its object."""


def tend() -> None:
    """Look after what this process has open, before a file is opened once more.

    A file that came to the place of an open one would be read with the log of that, and the log written into it.
    """
    for look in list(TENDED.values()):
        look()


def locate(database: str | Location | None) -> Location:
    """Return the database that `--db`, else AUTOTUNE_DB, else the default names. Raises StoreError."""
    if isinstance(database, Location):
        return database
    if database == "":  # as a script with an unset variable gives: it does not mean the default
        raise StoreError("is empty", where="--db", hint="give it the path of a file, or leave it out")
    named = database or os.environ.get("AUTOTUNE_DB")
    if not named:
        return Location(default_path(), chosen=False)
    by = "--db" if database else "AUTOTUNE_DB"
    if "\0" in named:
        raise StoreError("holds a NUL character, as no path does", where=by, hint="give it the path of a file")
    try:
        os.fsencode(named)
    except UnicodeEncodeError:  # half of a pair of surrogates, which no name of a file is decoded to
        raise StoreError(f"{named!r:.60} is no path", where=by, hint="give it the path of a file") from None
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
    """Return the path that a word names. Raises StoreError where it begins in a folder that is there no more."""
    path = paths.expanduser(named)
    if not paths.isabs(path):
        try:
            os.getcwd()
        except OSError:
            what = "begins in the folder here, which was removed"
            raise StoreError(what, where=path, hint="give the whole path, or change to another folder") from None
    return path


def log_of(path: str) -> str:
    """Return where SQLite keeps what has not come to a file yet: beside the file itself, where `path` is a link."""
    return f"{paths.realpath(path)}-wal"


def _shared_of(path: str) -> str:
    return f"{log_of(path).removesuffix('wal')}shm"


def may_not_be_written(path: str, error: object) -> bool:
    """Say whether SQLite's error is that a file, or its directory, may only be read, and it can be as it is.

    Nobody can be writing there. On a disk that has failed every file may be said to be writable, and none is.
    """
    unwritable = getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
    return unwritable and os.path.isfile(path) and _is_complete(path)


def _is_anothers(path: str) -> bool:
    return os.path.isfile(path) and not os.access(path, os.W_OK)


def is_for_reading(path: str) -> bool:
    """Say whether a file is there that this user may not write, whole as it is or with all that SQLite keeps beside it.

    SQLite, asked to open it, would leave files of this user beside it, and its owner could not write it any more.
    """
    return _is_anothers(path) and _is_complete(path)


def _is_complete(path: str) -> bool:
    """Say whether a file has no log, or the memory for that as well: to be read, nothing has to be written."""
    return os.path.exists(_shared_of(path)) or not os.path.exists(log_of(path))


def require_writable(path: str) -> None:
    """Raise StoreError where a file, or what SQLite keeps beside it, is there and may not be written."""
    if _is_anothers(path):
        raise StoreError("is read-only", where=path, hint=_COPY)
    log, shared = log_of(path), _shared_of(path)
    if _is_anothers(log) or _is_anothers(shared):
        empty = not (os.path.exists(log) and os.stat(log).st_size)  # as a user has left it who may only read
        hint = f"when nobody uses it: {typed(['rm', '-f', log, shared])}" if empty else "its owner may change its mode"
        raise StoreError(f"{log if _is_anothers(log) else shared} is another user's", where=path, hint=hint)


def as_it_is(path: str) -> str:
    """Return the URI by which SQLite reads a file and its log, or takes it for whole, and writes nothing beside it."""
    plain = paths.realpath(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    return f"file:{plain}?{'mode=ro' if os.path.exists(log_of(path)) else 'immutable=1'}"


def default_path() -> str:
    """Return `autotune.db` in the user's data directory, as platformdirs names it.

    platformdirs itself costs as much to import as the rest of a look-up, so Linux is spelt out here. Raises StoreError
    where nothing names this user's home: a folder named `~` would be made here.
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
    """Raise StoreError where a file is there and cannot be an SQLite file that is read; what it holds SQLite says.

    It is not opened: to close a file gives up all locks that this process has on it, those of open databases too, and
    another process would take the log of one away (https://sqlite.org/howtocorrupt.html, section 2.2).
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
    if os.path.exists(path) and not os.path.isfile(path):  # a device, a pipe: to open it may wait for ever
        raise StoreError("is no file", where=path, hint="give --db the path of one")
    if os.path.exists(path) and not os.access(path, os.R_OK):
        raise StoreError("cannot be read: Permission denied", where=path)


SCHEMA = """
SELECT name, CASE WHEN sql GLOB 'CREATE TABLE *' THEN 'table' WHEN sql IS NULL OR sql GLOB 'CREATE INDEX *'
OR sql GLOB 'CREATE UNIQUE INDEX *' THEN 'index' ELSE 'program' END AS kind
FROM sqlite_master WHERE kind = 'program' OR (kind = 'table' AND name NOT LIKE 'sqlite_%')
"""
"""What an SQLite file holds, by what SQLite makes of it (`sql`) and not by what the file calls it (`type`)."""


def is_our_file(found: Iterable[Sequence[Any]], where: str) -> bool:
    """Answer `is_ours` from the rows of SCHEMA.

    Raises StoreError also for views and triggers: they run where a table is read or written, and none is of ours.
    """
    rows = list(found)
    ours = is_ours({name for name, kind in rows if kind == "table"}, where)
    for name, kind in rows:
        if kind == "program":
            what = f"holds a view or a trigger, {name!r:.80}, as no version of this program makes them"
            raise StoreError(what, where=where, hint="drop it with sqlite3, or give --db another path")
    return ours


def is_ours(tables: Collection[str], where: str) -> bool:
    """True where a database of these tables is this program's, False for an empty one.

    Raises StoreError for somebody else's.
    """
    if tables and not {"schema_version", *TABLES} <= set(tables):
        raise StoreError("holds tables of another program", where=where, hint=_ANOTHER)
    return bool(tables)


def damaged_database(where: str, what: object) -> StoreError:
    """Return the error for a database that holds what no version of this program has written."""
    said = " ".join(str(what).split())[:_SAID]
    if "://" in where:
        return StoreError(f"is damaged: {said}", where=where, hint="bring a backup of it back; or give --db another")
    hint = f"{_MEANWHILE}; {_RECOVER}" if _is_anothers(where) else _RECOVER
    return StoreError(f"is damaged: {said}", where=where, hint=hint)


def version_in(value: object, where: str) -> int:
    """Return the version that a database says it is of. Raises StoreError where it is newer, or says none."""
    if not isinstance(value, int) or value < 1:
        raise damaged_database(where, "it does not say its version")
    if value > SCHEMA_VERSION:
        what = f"is of version {value}, newer than this program's {SCHEMA_VERSION}"
        raise StoreError(what, where=where, hint="update autotune, or give --db another path")
    return value


def database_error(where: str, error: BaseException | None) -> StoreError:
    """Return what a database driver said as one clear line."""
    code = getattr(error, "sqlite_errorcode", None)
    if code in _UNLOCKED or (code is not None and code & 0xFF == sqlite3.SQLITE_BUSY):
        from autotune.store.mounts import LOCAL, takes_locks

        if code in _UNLOCKED or not takes_locks(where):
            return StoreError("lies where SQLite can lock or share no file", where=where, hint=LOCAL)
    if code is not None and code & 0xFF == sqlite3.SQLITE_CANTOPEN:
        from autotune.store.mounts import spent

        what, hint = spent(where)
        if what:
            return StoreError(what, where=where, hint=hint)
    for known, what, hint in _SQLITE_ERRORS:
        # The low byte is the kind; the rest says more of it.
        if code is not None and code & 0xFF == known:
            return StoreError(what, where=where, hint=hint)
    if isinstance(error, sqlite3.Error):
        # Every statement is tested on whole databases: what SQLite cannot make of one is not whole.
        return damaged_database(where, error)
    lines = str(error).strip().splitlines() or ["no reason given"]
    return StoreError(f"cannot be used: {lines[0]}", where=where)


_SAID = 200
"""Characters of what a driver or a decoder says: the rest is what it could not read."""

_RECOVER = "sqlite3's .recover may save its rows; or give --db another path"
_MEANWHILE = "type it again, as its owner may just have written to it"
_ANOTHER = "give --db another path"
_OTHER_FILE = "give --db the path of a file to write"
_COPY = "give --db a file to write, such as a copy of it"
_UNLOCKED = (
    sqlite3.SQLITE_IOERR_LOCK,
    sqlite3.SQLITE_IOERR_RDLOCK,
    sqlite3.SQLITE_IOERR_SHMLOCK,
    sqlite3.SQLITE_IOERR_SHMMAP,
)
_SQLITE_ERRORS = (
    (sqlite3.SQLITE_READONLY, "is read-only", _COPY),
    (sqlite3.SQLITE_CANTOPEN, "cannot be opened: it or its directory is read-only", _COPY),
    (sqlite3.SQLITE_PERM, "may not be opened", _OTHER_FILE),
    (sqlite3.SQLITE_BUSY, "is locked by another process", "wait for that process, or end it"),
    (sqlite3.SQLITE_LOCKED, "is locked by another process", "wait for that process, or end it"),
    (sqlite3.SQLITE_NOTADB, "is not an SQLite database", _ANOTHER),
    (sqlite3.SQLITE_FULL, "the disk is full", "make room, then type it again: what was stored is kept"),
    (sqlite3.SQLITE_IOERR, "cannot be read or written", "look at the disk and `ulimit -f`; what was stored is kept"),
)
