"""Reads the database on the cold path: SQLite with the standard library, a server through store.py."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

from autotune.store.location import (
    SCHEMA_VERSION,
    Location,
    damaged_database,
    database_error,
    is_ours,
    require_database_file,
    version_in,
)

BUSY_S = 30.0


class Reader(Protocol):
    """Answers queries written for SQLite and PostgreSQL alike, with `:name` for values."""

    def rows(self, query: str, values: Mapping[str, Any], /) -> Sequence[Sequence[Any]]:
        """Return the rows of a query."""


class _Nothing:
    """Stands in for a database that is not there yet."""

    def rows(self, query: str, values: Mapping[str, Any], /) -> Sequence[Sequence[Any]]:
        return ()


class _Sqlite:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def rows(self, query: str, values: Mapping[str, Any], /) -> Sequence[Sequence[Any]]:
        cursor = self._connection.execute(query, dict(values))
        rows = cursor.fetchall()
        for place, column in enumerate(cursor.description):
            kinds = _KINDS.get(column[0], _TEXT)
            if not all(type(row[place]) in kinds for row in rows):
                raise ValueError(f"{column[0]} holds what it cannot")
        return rows


_TEXT: tuple[type, ...] = (str, type(None))
_NUMBERS = ("id", "trial_id", "generation", "COUNT(*)", "retiming")
_KINDS: dict[str, tuple[type, ...]] = {"time_ns": (float, int, type(None))} | dict.fromkeys(_NUMBERS, (int, type(None)))
"""What the columns of queries hold that hold no text. SQLite itself lets any column hold anything."""


@contextmanager
def open_reader(location: Location) -> Iterator[Reader]:
    """Open the database for reading; one that is not there, or empty, answers with no rows.

    Raises StoreError for a file that is damaged, of a newer version, or no database of this program.
    """
    if location.url:
        from autotune.store import Store

        with Store.open(location.url) as store:
            yield store
        return
    if not Path(location.path).exists():
        yield _Nothing()
        return
    require_database_file(location.path)
    try:
        with closing(_connected(location.path)) as connection:
            yield _Sqlite(connection) if _is_filled(connection, location.path) else _Nothing()
    except sqlite3.DatabaseError as error:
        raise database_error(location.path, error) from error
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        # Values that a look-up cannot make sense of: only what is damaged holds such.
        raise damaged_database(location.path, error) from error


def _connected(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=BUSY_S)
    try:
        # What a file says that others wrote is no program to run.
        connection.execute("PRAGMA trusted_schema=OFF")
        connection.execute("SELECT 1 FROM sqlite_master")
    except sqlite3.OperationalError as error:
        connection.close()
        unwritable = error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
        if not unwritable or Path(f"{path}-wal").exists():
            raise
        # A directory that cannot be written has no room for the shared memory of WAL. Nobody can be writing
        # there either, and without a -wal file the database file is whole.
        return sqlite3.connect(Path(path).resolve().as_uri() + "?immutable=1", uri=True)
    return connection


def _is_filled(connection: sqlite3.Connection, path: str) -> bool:
    """True where the database holds this program's tables, brought up to date; False where it is empty."""
    query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    if not is_ours({name for (name,) in connection.execute(query)}, path):
        return False
    version = version_in(next(connection.execute("SELECT version FROM schema_version"), (None,))[0], path)
    if version < SCHEMA_VERSION:
        from autotune.store import Store

        Store.open(path).close()
    return True
