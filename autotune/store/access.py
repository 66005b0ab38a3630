"""Transactions on an open database: on a server that goes away or a file that is locked for a while, or removed."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self, TypeVar, cast

from sqlalchemy import Connection, Engine
from sqlalchemy.pool import Pool, PoolProxiedConnection

from autotune.errors import StoreError
from autotune.store import presence
from autotune.store.database import HASTILY, READING, ConnectionLost, Overtaken, ReadsOnly, clear_errors, clear_values
from autotune.store.location import SCHEMA_VERSION, TENDED, Location, version_in
from autotune.store.migrations import VERSION
from autotune.text import say, typed

PATIENCE_S = 60.0
"""How long a search waits for a server that went away, or for who has the file locked."""

OVERTAKEN = 10
"""How often a step is taken where others store the same meanwhile: each time there is less left to store."""

PAUSE_S = 0.5
"""How long it waits before it asks again."""

_ANOTHER = "name the server that takes writes: of several, ?host=A&host=B&target_session_attrs=read-write finds it"
_KEPT = "finished trials are kept: when it is back, type it again and it goes on"

T = TypeVar("T")


class Access:
    """An open database, a context manager. Whatever it cannot do is a StoreError."""

    def __init__(self, engine: Engine, location: Location) -> None:
        self.where = str(location)
        self._location = location
        self._engine = engine
        self._reader = engine.execution_options(autotune=READING)
        self._hasty = engine.execution_options(autotune=HASTILY)
        self._file: presence.Inode = None
        self._files: set[presence.Inode] = set()
        """What it was, before it was removed or moved away, and is."""
        self._held: PoolProxiedConnection | None = None
        self._left: list[Pool] = []
        self._looking = threading.Lock()  # one thread at a time writes the file anew
        self._mode = 0
        self._log: dict[Path, presence.Inode] = {}
        self._gone: StoreError | None = None
        self._has_written = False
        self._waited = False
        """Whether the server stayed away for PATIENCE_S, or somebody waited no longer for its answer, and it has not
        been back since: nobody waits for it again."""

    def close(self) -> None:
        """Give the connections back; a file that was removed is written anew before."""
        self._tend_file()
        self._let_go()
        for pool in self._left:  # what other threads were at when it was left came back to it since
            pool.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _note_file(self) -> None:
        """Remember which file this is, and hold it open: another may come to its place, and be opened by the pool."""
        if self._location.path:
            self._held = self._engine.raw_connection()
            self._held.detach()
            self._file = presence.inode(Path(self._location.path))
            self._files.add(self._file)
            self._mode = presence.mode(Path(self._location.path))
            self._log = presence.log_files(Path(self._location.path))
            TENDED[id(self)] = self._tend_file

    def _written(
        self,
        step: Callable[[Connection], T],
        again: Callable[[Connection], T] | None = None,
        *,
        durable: bool = True,
    ) -> T:
        """Take a step as one transaction, which outlasts the machine where `durable`.

        Where the server goes away, or the file stays locked, wait for it and take the step `again`. Raises
        ConnectionLost after PATIENCE_S, and from then on at once, until it is back.
        The answer to a commit may be what was lost, so a step that is taken twice does once: it finds by its uuid
        what it has done.
        """
        self._require_file()
        deadline = time.monotonic() + (0.0 if self._waited else PATIENCE_S)
        said, due, turns = False, step, OVERTAKEN
        while True:
            try:
                with self._writing(durable=durable) as connection, clear_values(self._location):
                    if (version := connection.execute(VERSION).scalar()) != SCHEMA_VERSION:
                        version_in(version, self.where)  # a newer program keeps more than this one knows of
                    found = due(connection)
                self._waited, self._has_written = False, True
                return found
            except Overtaken:
                turns -= 1
                if not turns:
                    raise
            except KeyboardInterrupt:
                self._waited = True  # who waits no longer for an answer has none of what is stored last waited for
                raise
            except ConnectionLost as error:
                if isinstance(error, ReadsOnly):
                    if not self._has_written:  # a standby, or a role or session that only reads
                        raise ReadsOnly(error.what, where=error.where, hint=_ANOTHER) from error
                    self._engine.dispose()  # another server may have taken over, and new connections lead there
                left = deadline - time.monotonic()
                if left <= 0:
                    self._waited = True
                    raise ConnectionLost(error.what, where=error.where, hint=error.hint or _KEPT) from error
                if not said:
                    say(f"autotune: {error}; trying again for {left:.0f} s")
                said, due = True, again or step
                time.sleep(PAUSE_S)

    def _let_go(self) -> None:
        TENDED.pop(id(self), None)
        if self._held is not None:
            self._held.close()
            self._held = None
        self._left.append(self._engine.pool)
        self._engine.dispose()

    def _is_there(self) -> bool:
        return self._file is None or self._file == presence.inode(Path(self._location.path))

    def _require_file(self) -> None:
        """Write the database anew where its file was removed, or go on with what another process has written anew.

        Raises StoreError where the file in its place lacks something.
        """
        if self._gone is None and self._is_there():
            return
        with self._looking:
            if self._gone is not None:
                raise self._gone
            if not self._is_there():
                self._replace_file()

    def _tend_file(self) -> None:
        """Do as `_require_file` for who does not write: that the file is another is said, once."""
        if self._gone is None:
            try:
                self._require_file()
            except StoreError as error:
                say(f"autotune: {error}")

    def _replace_file(self) -> None:
        assert self._held is not None
        path, source = Path(self._location.path), cast(sqlite3.Connection, self._held.dbapi_connection)
        with clear_errors(self._location):
            anew = presence.inode(path) is None and presence.restore(source, path, self._log, self._mode)
            presence.remove_log(self._log)  # before what is there now is opened
            there = anew or presence.stands_for(source, path)
            came = presence.inode(path)
            if not there and came in self._files and presence.stands_for(source, path, back=True):
                anew = presence.restore(source, path, {}, self._mode, came)
                there = anew or presence.stands_for(source, path)
            kept = None if there else presence.keep_copy(source, path)
        if kept is not None:
            copy, here = typed(["--db", str(kept)]), typed(["--db", self.where])
            self._gone = StoreError(
                f"was removed or replaced meanwhile; what was stored is in {kept}",
                where=self.where,
                hint=f"autotune export {copy} | autotune import {here}",
            )
            raise self._gone
        self._let_go()
        with self._writing():  # opens it, which makes its log
            pass
        self._note_file()
        if anew:
            say(f"autotune: {self.where}: was removed meanwhile; it is written anew, with everything that was in it")

    @contextmanager
    def _writing(self, *, durable: bool = True) -> Iterator[Connection]:
        engine = self._engine if durable else self._hasty
        if self._waited:
            engine = engine.execution_options(busy_s=PAUSE_S)
        with clear_errors(self._location), engine.begin() as connection:
            yield connection

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        self._tend_file()  # a connection that is made now would make an empty one
        with clear_errors(self._location), clear_values(self._location), self._reader.connect() as connection:
            yield connection
