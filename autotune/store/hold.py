"""One server of a name at work on a database: a lock that goes with its process, however that ends.

SQLite: a file beside the database, which containers that share it see too. PostgreSQL: an advisory lock of a session
of its own, which says within half a minute that a machine has vanished.
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
from autotune.store.database import LOCKED, clear_errors
from autotune.store.location import Location
from autotune.store.mounts import LOCAL, NO_LOCKS
from autotune.store.openfile import inode
from autotune.text import line, typed


class Hold:
    """The queue of a name, for one server; `keep` takes it, `close` lets it go."""

    def __init__(self, engine: Engine, location: Location, name: str) -> None:
        self._engine = engine
        self._location = location
        self._name = name
        self._key = _key(name)
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
        path = _file(self._location, self._name)
        if self._descriptor is not None:
            held = os.fstat(self._descriptor)
            if inode(path) == (held.st_dev, held.st_ino):
                return
            os.close(self._descriptor)  # removed or replaced meanwhile: others look at the one that is there
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
                if isinstance(error, DBAPIError) and getattr(error.orig, "sqlstate", None) == LOCKED:
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


def is_held(connection: Connection, location: Location, name: str) -> bool:
    """Whether a server of that name is at work, without a hold of one's own. What cannot be looked at is believed."""
    if not location.path:
        return connection.execute(_HELD, _key(name)).first() is not None
    try:
        descriptor = os.open(_file(location, name), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # for this moment: `_locked` waits for it
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
    """What helps: where something else lies in the place of the file, where there are no locks; "" for the rest."""
    if error.errno in _IN_THE_WAY and os.path.lexists(path):
        return f"remove it: {typed(['rm', '-r', str(path)])}"
    return LOCAL if error.errno in NO_LOCKS else ""


def _locked(path: Path) -> int:
    """Return the file, opened and locked. Raises OSError, BlockingIOError where another has it for longer than a look.

    Who looks whether it is held has it for a moment.
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
"""A link, a folder, a socket, a file of another user's."""

_WAIT_S = 1.0
"""How long a lock is waited for: a session whose process was killed may take a moment to end."""

_HELD = text(
    "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    " AND (classid::bigint << 32 | objid::bigint) = :key"
)

_KEEPALIVES = ("tcp_keepalives_idle = 10", "tcp_keepalives_interval = 5", "tcp_keepalives_count = 3")
_SETTINGS = (*_KEEPALIVES, f"lock_timeout = {1000 * _WAIT_S:g}")
"""A machine that vanished is noticed in half a minute."""
