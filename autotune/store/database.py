"""Open the database through SQLAlchemy: set up SQLite, and turn every failure into one clear line."""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.pool import NullPool, QueuePool, StaticPool

from autotune.errors import SetupError, StoreError
from autotune.store.location import (
    BUSY_S,
    SCHEMA,
    UNSOUND,
    Location,
    as_it_is,
    damaged_database,
    database_error,
    is_ambiguous,
    is_our_file,
    kind_of,
    log_of,
    require_writable,
)
from autotune.store.mounts import open_alone, require_place, takes_locks
from autotune.text import installing

CONNECT_S = 5
"""How long a server may take to answer, for each of its addresses."""

_QUIET = "autotune"
# SQLAlchemy logs a traceback of errors while a connection is returned. They are raised anyway, or do not matter.
for _name in (f"{QueuePool.__module__}.{QueuePool.__name__}.{_QUIET}", "psycopg"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)

READING, HASTILY = "reading", "hastily"
"""Values of the option `autotune` of a connection: its transactions only read, and so wait for nobody; or they need not
survive a crash of the machine."""


_TURN_MS = 100
"""How long SQLite itself waits for other processes."""

SYNCHRONOUS, HASTY = "FULL", "NORMAL"
"""How SQLite commits. FULL does an fsync: a power cut loses no trial that a search has counted, if the disk is honest.
NORMAL does none: nothing is lost when a process is killed; if the machine crashes, recent commits are lost, but so is
the work on trials that had begun. So a trial begins with NORMAL and ends with FULL, which puts both on the disk.
Measured on two busy cores with a virtual disk, in milliseconds per trial (python benchmarks/commits.py): 18.7 with
NORMAL throughout, 24.0 like this, 30.0 with FULL throughout, while the device runs other trials.
"""


def open_engine(location: Location) -> Engine:
    """Return an engine on the database.

    Raises StoreError if it is known beforehand that it cannot be used, and SetupError if a package is missing.
    """
    if location.url:
        url = _server_url(location)
        asked = {"connect_timeout": CONNECT_S, **_KEEPALIVE}
        unasked = {name: asked[name] for name in asked.keys() - url.query.keys()}
        engine = create_engine(url, connect_args=unasked | _ENCODING, pool_pre_ping=True, pool_logging_name=_QUIET)
        event.listen(engine, "do_connect", lambda _dialect, _record, given, asked: _connect(location, *given, **asked))
        event.listen(engine, "connect", lambda connection, _record: _set_up_server(connection))
        return engine
    path = Path(location.path)
    require_place(location)
    require_writable(location.path)
    if not location.chosen:
        _make_folder(path.parent)
    place = URL.create("sqlite", database=str(path))
    engine = create_engine(place, connect_args={"timeout": BUSY_S}, pool_logging_name=_QUIET)
    event.listen(engine, "connect", lambda connection, _record: _set_up_sqlite(connection, str(path)))
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def open_as_it_is(location: Location, *, alone: bool) -> Engine:
    """Return an engine that reads a file which may not be written, and that writes nothing beside it.

    `alone`: use the one connection of `mounts.open_alone`; else a new one each time, since SQLite may treat the file as
    complete only until somebody writes to it.
    """
    path = location.path

    def connect() -> sqlite3.Connection:
        return open_alone(path) if alone else sqlite3.connect(as_it_is(path), uri=True, check_same_thread=False)

    pool = StaticPool if alone else NullPool
    engine = create_engine("sqlite://", creator=connect, poolclass=pool, pool_logging_name=_QUIET)
    event.listen(engine, "connect", lambda connection, _record: _require_ours(connection, path))
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def is_busy(error: object) -> bool:
    """Return whether SQLite's error says that another process writes; a file in WAL mode may be read meanwhile."""
    return kind_of(error) == sqlite3.SQLITE_BUSY


def holds_nothing(path: str) -> bool:
    """Return whether there is no file, or an empty one without a log, which nobody is about to fill."""
    return not os.path.exists(path) or not (Path(path).stat().st_size or os.path.exists(log_of(path)))


def open_in_memory() -> Engine:
    """Return an engine on a new database in memory that ends with the engine."""
    engine = create_engine("sqlite://", poolclass=StaticPool)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


class ConnectionLost(StoreError):
    """The server or the connection to it went away, so that a step may be done or not; or another holds a lock."""


class ReadsOnly(ConnectionLost):
    """The server takes no writes, such as a standby, which may stay one or take over from the main server."""


class Overtaken(StoreError):
    """Another process stored the same a moment before, and nothing was done: the next try finds those rows."""


@contextmanager
def clear_errors(location: Location) -> Iterator[None]:
    """Turn any error of the database into one StoreError; ConnectionLost if another try may help."""
    try:
        yield
    except DBAPIError as error:
        where = str(location)
        found = database_error(where, error.orig)
        if location.url:
            state = state_of(error)
            if state == LOCKED:
                what = f"is locked by another session, for {BUSY_S:g} s"
                raise ConnectionLost(what, where=where, hint="end that session, or ask again later") from error
            kind = _KINDS.get(state, StoreError) if not _is_lost(error) else ConnectionLost
            hint = next((hint for code, words, hint in _CURES if code == state and words in found.what), "")
            found = kind(location.scrubbed(found.what), where=where, hint=hint)
        elif is_busy(error.orig) and takes_locks(location.path):  # an import, say, of more than BUSY_S
            found = ConnectionLost(found.what, where=where, hint=found.hint)
        raise found from error
    except PoolTimeoutError as error:
        raise StoreError("is busy: too many connections at once", where=str(location), hint="ask again") from error
    except SQLAlchemyError as error:
        raise damaged_database(str(location), location.scrubbed(str(error))) from error
    except sqlite3.DatabaseError as error:
        raise database_error(str(location), error) from error


@contextmanager
def clear_values(location: Location) -> Iterator[None]:
    """Turn errors from decoding stored values into one StoreError: only a damaged database has such values."""
    try:
        yield
    except UNSOUND as error:
        raise damaged_database(str(location), error) from error


def state_of(error: DBAPIError) -> str | None:
    """Return PostgreSQL's code of an error (SQLSTATE); None for any other error."""
    return getattr(error.orig, "sqlstate", None)


def _is_lost(error: DBAPIError) -> bool:
    """Return whether a connection broke or cannot be made, or the server aborted the transaction."""
    state = state_of(error)
    if error.connection_invalidated or state in _TRY_AGAIN:
        return True
    return state is None and type(error.orig).__name__ in ("OperationalError", "ConnectionTimeout")


_KINDS: dict[str | None, type[StoreError]] = {"23505": Overtaken, "25006": ReadsOnly}
"""PostgreSQL's codes for a row that exists already, and for a read-only transaction."""

LACKS = "a standby that took over may lack the newest rows; type it again: it continues with what is stored"
UTF8 = "make one that holds every text: CREATE DATABASE name ENCODING 'UTF8' TEMPLATE template0"
_GRANT = "its owner may allow it: GRANT"
_CURES = (
    ("42501", "for schema", f"{_GRANT} CREATE ON SCHEMA public TO the role that is to make the tables"),
    ("42501", "", f"{_GRANT} SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO the role"),
    ("22P05", "", UTF8),
    ("23503", "", LACKS),
    ("3F000", "", "CREATE SCHEMA public, or name one that is there: ?options=-csearch_path%3DNAME"),
    ("57014", "statement timeout", "give the role a longer one: ALTER ROLE role SET statement_timeout = '60s'"),
    ("53100", "", "make room at the server, then type it again: what was stored is kept"),
)
"""Hints by PostgreSQL's code and words in its message: a missing right, a character, a row that is gone, a limit, a
full disk."""

LOCKED = "55P03"
_TRY_AGAIN = ("40001", "40P01", "57014", "57P01", "57P02", "57P03")
"""PostgreSQL's codes for an aborted transaction, as by `statement_timeout`, and while it starts or stops."""

_ENCODING = {"client_encoding": "utf8"}
"""By default the driver uses the database's encoding; with SQL_ASCII, which `initdb` chooses if LANG is C, it would
return no text."""

_KEEPALIVE = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 30_000}
"""With these, a server that vanished silently is noticed within half a minute."""


def _connect(location: Location, *given: Any, **asked: Any) -> Any:
    """Return a connection to a server that prints a message while the server is waited for."""
    from autotune.store.waits import Waiting

    connection = Waiting.connect(*given, **asked)
    connection.where = str(location)
    return connection


def _set_up_server(connection: Any) -> None:
    """Bound the time that a transaction waits for locks, as on a file; else a lock held forever would block it."""
    connection.execute(f"SET lock_timeout = {round(BUSY_S * 1000)}")
    connection.commit()


def _set_up_sqlite(connection: sqlite3.Connection, where: str) -> None:
    # Checked before anything is changed: the switch to WAL is stored in the file.
    _require_ours(connection, where)
    connection.execute("PRAGMA foreign_keys=ON")
    _use_wal(connection)


def _require_ours(connection: sqlite3.Connection, where: str) -> None:
    # Transactions are begun by _begin_sqlite, not by Python's sqlite3.
    connection.isolation_level = None
    # The schema of a file from others must not run code.
    connection.execute("PRAGMA trusted_schema=OFF")
    # Rows are sorted in memory, where they go anyway: a full TMPDIR is no error of the database.
    connection.execute("PRAGMA temp_store=MEMORY")
    try:
        is_our_file(connection.execute(SCHEMA), where)
    except UnicodeDecodeError:  # SQLite's error quotes the unreadable schema, and Python cannot decode it
        raise damaged_database(where, "its schema is not text") from None


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switch to write-ahead logging: readers and the one writer do not block each other.

    The switch itself needs exclusive access and ignores the busy timeout: two processes that open a new database at
    the same time conflict here.
    """
    deadline = time.monotonic() + BUSY_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _begin_sqlite(connection: Any) -> None:
    # IMMEDIATE takes the write lock first, with the busy timeout. A deferred transaction that reads and then
    # writes fails at once if another process wrote in between.
    mode = connection.get_execution_options().get("autotune")
    if mode == READING:
        connection.exec_driver_sql("BEGIN")
        return
    connection.exec_driver_sql(f"PRAGMA synchronous={HASTY if mode == HASTILY else SYNCHRONOUS}")
    # The loop waits here: SQLite itself would not return for a signal before its own timeout.
    deadline = time.monotonic() + connection.get_execution_options().get("busy_s", BUSY_S)
    connection.exec_driver_sql(f"PRAGMA busy_timeout={_TURN_MS}").close()
    try:
        while True:
            try:
                connection.exec_driver_sql("BEGIN IMMEDIATE")
                break
            except DBAPIError as error:
                if not is_busy(error.orig) or time.monotonic() > deadline:
                    raise
    finally:
        connection.exec_driver_sql(f"PRAGMA busy_timeout={1000 * BUSY_S:.0f}").close()


def _server_url(location: Location) -> URL:
    text, by = location.url, location.named_by
    if is_ambiguous(text):
        raise StoreError("holds an @ in its password", where=by, hint="write it as %40")
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise StoreError("is not a URL of a database", where=by, hint="write postgresql://user@host/name") from None
    if url.get_backend_name() != "postgresql":
        raise StoreError(
            f"no database of the kind {url.get_backend_name()!r} can be used",
            where=by,
            hint="give a path, or a URL such as postgresql://user@host/name",
        )
    try:
        import psycopg  # noqa: F401
    except ImportError:
        raise SetupError("needs a driver for PostgreSQL", where=by, hint=installing("postgres")) from None
    return url.set(drivername="postgresql+psycopg")


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"cannot be made: {error.strerror}", where=str(folder), hint="give --db the path of a file to write"
        ) from None
