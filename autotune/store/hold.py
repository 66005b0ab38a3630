"""Allow only one server with a name on a database: a lock that ends with its process, however that ends.

SQLite: a lock on a file beside the database, which containers that share it see too. PostgreSQL: an advisory lock in
its own session; the lock of a machine that vanished is released within half a minute.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import threading
import time
from contextlib import suppress
from pathlib import Path

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from autotune.errors import StoreError, UsageError
from autotune.store.database import LOCKED, clear_errors, state_of
from autotune.store.location import Location
from autotune.store.mounts import LOCAL, NO_LOCKS
from autotune.store.openfile import inode
from autotune.text import line, typed


class Hold:
    """The lock on the queue of a server's name; `keep` takes it, `close` releases it."""

    def __init__(self, engine: Engine, location: Location, name: str) -> None:
        self._engine = engine
        self._location = location
        self._name = name
        self._key = _key(name)
        self._descriptor: int | None = None
        self._session: Connection | None = None
        self._one = threading.Lock()

    def keep(self) -> None:
        """Take the lock, also again after its connection was lost.

        Raises UsageError if another server has it, and StoreError.
        """
        with self._one:
            if self._location.path:
                self._keep_file()
            else:
                self._keep_session()

    def close(self) -> None:
        """Release the lock."""
        with self._one:
            if self._descriptor is not None:
                os.close(self._descriptor)
            self._descriptor = None
            self._drop_session()

    def _keep_file(self) -> None:
        path = _file(self._location, self._name)
        if self._descriptor is not None:
            held = os.fstat(self._descriptor)
            if inode(path) == (held.st_dev, held.st_ino):
                return
            os.close(self._descriptor)  # removed or replaced meanwhile: others use the file that is there now
            self._descriptor = None
        try:
            self._descriptor = _locked(path)
        except BlockingIOError:
            raise self._taken() from None
        except OSError as error:
            what = f"cannot be locked: {error.strerror}"
            raise StoreError(what, where=str(path), hint=_cure(error, path)) from None

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
                if isinstance(error, DBAPIError) and state_of(error) == LOCKED:
                    raise self._taken() from None
                raise
            self._session = session

    def _drop_session(self) -> None:
        """Unlock and end the session: the end takes a moment, and back in the pool it would keep its lock."""
        session, self._session = self._session, None
        if session is not None:
            with suppress(SQLAlchemyError):
                session.execute(text("SELECT pg_advisory_unlock(:key)"), self._key)
            with suppress(SQLAlchemyError):
                session.invalidate()
                session.close()

    def _taken(self) -> UsageError:
        what = f"a server called {line(self._name)} is running on this database"
        return UsageError(what, where=str(self._location), hint="give this one another name: --name")


def is_held(connection: Connection, location: Location, name: str) -> bool:
    """Return whether a server with that name is at work, without a Hold; True if that cannot be found out."""
    if not location.path:
        return connection.execute(_HELD, _key(name)).first() is not None
    try:
        descriptor = os.open(_file(location, name), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # only for a moment, which `_locked` waits for
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _digest(name: str) -> bytes:
    return hashlib.sha256(name.encode("utf-8", "surrogateescape")).digest()


def _key(name: str) -> dict[str, int]:
    return {"key": int.from_bytes(_digest(name)[:8], signed=True)}


def _file(location: Location, name: str) -> Path:
    return Path(f"{os.path.realpath(location.path)}-server-{_digest(name).hex()[:16]}.lock")


def _cure(error: OSError, path: Path) -> str:
    """Return a hint if something else is in the place of the file, or if there are no locks; "" for other errors."""
    if error.errno in _IN_THE_WAY and os.path.lexists(path):
        return f"remove it: {typed(['rm', '-r', str(path)])}"
    return LOCAL if error.errno in NO_LOCKS else ""


def _locked(path: Path) -> int:
    """Return the file, opened and locked. Raises OSError; BlockingIOError if another process keeps the lock.

    `is_held` takes the lock for a moment, so this waits a little.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    try:
        deadline = time.monotonic() + _WAIT_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return descriptor
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(_WAIT_S / 50)
    except BaseException:
        os.close(descriptor)
        raise


_IN_THE_WAY = (errno.ELOOP, errno.EISDIR, errno.ENXIO, errno.EACCES, errno.EPERM)
"""Errors for a link, a folder, a socket, or another user's file."""

_WAIT_S = 1.0
"""How long to wait for a lock: a session whose process was killed may take a moment to end."""

_HELD = text(
    "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    " AND (classid::bigint << 32 | objid::bigint) = :key"
)

_KEEPALIVES = ("tcp_keepalives_idle = 10", "tcp_keepalives_interval = 5", "tcp_keepalives_count = 3")
_SETTINGS = (*_KEEPALIVES, f"lock_timeout = {1000 * _WAIT_S:g}")
"""With these, a machine that vanished is noticed within half a minute."""
