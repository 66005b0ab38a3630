"""Opens the database through SQLAlchemy: how SQLite is set up, and every failure as one clear line."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, IntegrityError, ProgrammingError

from autotune.errors import StoreError
from autotune.location import Location, database_error, require_database_file, require_local

BUSY_S = 30.0
"""How long a transaction waits for those of other processes. Ours last milliseconds."""

_READING = {"autotune_reading": True}


def open_engine(location: Location) -> Engine:
    """Return an engine on the database. Raises StoreError where it can be told beforehand that it will not do."""
    if location.url:
        return create_engine(_server_url(location.url), connect_args={"connect_timeout": int(BUSY_S)})
    path = Path(location.path)
    require_database_file(location.path)
    require_local(location.path)
    if not location.chosen:
        _make_folder(path.parent)
    elif not path.parent.is_dir():
        raise StoreError("its directory does not exist", where=str(path), hint=f"mkdir -p {path.parent}")
    engine = create_engine(URL.create("sqlite", database=str(path)), connect_args={"timeout": BUSY_S})
    event.listen(engine, "connect", _set_up_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def reading(engine: Engine) -> Engine:
    """Return the engine for transactions that only read: they wait for nobody."""
    return engine.execution_options(**_READING)


@contextmanager
def clear_errors(where: str) -> Iterator[None]:
    """Turn what the database says into one StoreError; a mistake of this program stays what it is."""
    try:
        yield
    except (IntegrityError, ProgrammingError):
        raise
    except DatabaseError as error:
        raise database_error(where, error.orig) from error
    except sqlite3.DatabaseError as error:
        raise database_error(where, error) from error


def _set_up_sqlite(connection: sqlite3.Connection, _record: Any) -> None:
    # Transactions are begun by _begin_sqlite, not by Python's sqlite3.
    connection.isolation_level = None
    connection.execute("PRAGMA foreign_keys=ON")
    _use_wal(connection)
    # With WAL, NORMAL leaves out the fsync per commit. A commit is then in the kernel's page cache: SIGKILL of
    # any process loses nothing, and a power cut may lose the last trials but never damages the file.
    connection.execute("PRAGMA synchronous=NORMAL")


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switch to write-ahead logging: readers and the one writer do not block each other.

    The switch itself needs the file alone and does not honour the busy timeout: two processes that open a new
    database at once meet here.
    """
    deadline = time.monotonic() + BUSY_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _begin_sqlite(connection: Any) -> None:
    # IMMEDIATE takes the write lock first, under the busy timeout. A deferred transaction that reads and then
    # writes fails at once when another process wrote in between.
    is_reading = connection.get_execution_options().get("autotune_reading", False)
    connection.exec_driver_sql("BEGIN" if is_reading else "BEGIN IMMEDIATE")


def _server_url(text: str) -> URL:
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise StoreError("is no URL of a database", where="--db", hint="write postgresql://user@host/name") from None
    if url.get_backend_name() != "postgresql":
        raise StoreError(
            f"no database of the kind {url.get_backend_name()!r} can be used",
            where="--db",
            hint="give a path, or a URL such as postgresql://user@host/name",
        )
    try:
        import psycopg  # noqa: F401
    except ImportError:
        raise StoreError("needs a driver for PostgreSQL", where="--db", hint="pip install 'psycopg[binary]'") from None
    return url.set(drivername="postgresql+psycopg")


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"cannot be made: {error.strerror}", where=str(folder), hint="give --db the path of a file to write"
        ) from None
