"""One server of a name at work on a database: a lock that goes with its process, however that ends.

SQLite: a file beside the database, which containers that share it see too. PostgreSQL: an advisory lock of a session
of its own, which says within half a minute that a machine has vanished.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shlex
import threading
from contextlib import suppress
from pathlib import Path

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from autotune.errors import StoreError, UsageError
from autotune.store.database import clear_errors
from autotune.store.location import Location
from autotune.text import line


class Hold:
    """The queue of a name, for one server; `keep` takes it, `close` lets it go."""

    def __init__(self, engine: Engine, location: Location, name: str) -> None:
        self._engine = engine
        self._location = location
        self._name = name
        self._digest = hashlib.sha256(name.encode("utf-8", "surrogateescape")).digest()
        self._key = {"key": int.from_bytes(self._digest[:8], signed=True)}
        self._descriptor: int | None = None
        self._session: Connection | None = None
        self._one = threading.Lock()

    def keep(self) -> None:
        """Take it, also after its connection was lost. Raises UsageError where another has it, StoreError."""
        with self._one:
            if self._location.path:
                self._keep_file()
            else:
                self._keep_session()

    def close(self) -> None:
        """Let it go."""
        with self._one:
            if self._descriptor is not None:
                os.close(self._descriptor)
            self._descriptor = None
            self._drop_session()

    def _keep_file(self) -> None:
        if self._descriptor is not None:
            return
        path = Path(f"{os.path.realpath(self._location.path)}-server-{self._digest.hex()[:16]}.lock")
        try:
            self._descriptor = _locked(path)
        except BlockingIOError:
            raise self._taken() from None
        except OSError as error:
            hint = f"remove it: rm {shlex.quote(str(path))}"
            raise StoreError(f"cannot be locked: {error.strerror}", where=str(path), hint=hint) from None

    def _keep_session(self) -> None:
        with clear_errors(self._location):
            if self._session is not None:
                try:
                    self._session.execute(text("SELECT 1"))
                    return
                except SQLAlchemyError:
                    self._drop_session()
            session = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
            try:
                for setting in _SETTINGS:
                    session.execute(text(f"SET {setting}"))
                session.execute(text("SELECT pg_advisory_lock(:key)"), self._key)
            except BaseException as error:
                session.invalidate()
                session.close()
                if isinstance(error, DBAPIError) and getattr(error.orig, "sqlstate", None) == _NOT_AVAILABLE:
                    raise self._taken() from None
                raise
            self._session = session

    def _drop_session(self) -> None:
        """End the session, unlocked first since its end takes a moment; back in the pool it would keep its lock."""
        session, self._session = self._session, None
        if session is not None:
            with suppress(SQLAlchemyError):
                session.execute(text("SELECT pg_advisory_unlock(:key)"), self._key)
            with suppress(SQLAlchemyError):
                session.invalidate()
                session.close()

    def _taken(self) -> UsageError:
        what = f"a server called {line(self._name)} is at work on this database"
        return UsageError(what, where=str(self._location), hint="give this one another name: --name")


def _locked(path: Path) -> int:
    """Return the file, opened and locked. Raises OSError, BlockingIOError where another has it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


_KEEPALIVES = ("tcp_keepalives_idle = 10", "tcp_keepalives_interval = 5", "tcp_keepalives_count = 3")
_SETTINGS = (*_KEEPALIVES, "lock_timeout = 1000")
"""A machine that vanished is noticed in half a minute; a session whose process was killed may take a moment to end."""

_NOT_AVAILABLE = "55P03"
