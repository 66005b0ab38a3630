"""Transactions on an open database, also if its server goes away, or its file is locked for a while or removed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.pool import Pool

from autotune.errors import StoreError
from autotune.store.database import HASTILY, READING, ConnectionLost, Overtaken, ReadsOnly, clear_errors, clear_values
from autotune.store.location import SCHEMA_VERSION, TENDED, Location, version_in
from autotune.store.migrations import VERSION
from autotune.store.openfile import OpenFile
from autotune.text import say, typed

PATIENCE_S = 60.0
"""How long a search waits for a server that went away, or for a locked file."""

OVERTAKEN = 10
"""How often a step is tried if others store the same rows meanwhile: each time there is less left to store."""

PAUSE_S = 0.5
"""The pause before the next try."""

_ANOTHER = "name the server that takes writes: of several, ?host=A&host=B&target_session_attrs=read-write finds it"
_KEPT = "finished trials are kept: when it is back, type it again and it goes on"

T = TypeVar("T")


class Access:
    """An open database, a context manager. Every failure is a StoreError."""

    def __init__(self, engine: Engine, location: Location) -> None:
        self.where = str(location)
        self._location = location
        self._engine = engine
        self._reader = engine.execution_options(autotune=READING)
        self._hasty = engine.execution_options(autotune=HASTILY)
        self._file: OpenFile | None = None
        self._left: list[Pool] = []
        self._looking = threading.Lock()  # one thread at a time writes the file anew
        self._gone: StoreError | None = None
        self._has_written = False
        self._waited = False
        """Whether the server stayed away for PATIENCE_S, or a wait for its answer was interrupted, and it has not been
        back since: then no step waits for it again."""

    def close(self) -> None:
        """Close all connections; before that, write a file that was removed anew."""
        self._tend_file()
        self._let_go()
        for pool in self._left:  # connections that other threads used at that time were returned to it since
            pool.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _hold_file(self) -> None:
        """Hold the file open, if it is one, to notice if it is removed or replaced."""
        if self._location.path:
            was = self._file.inodes if self._file is not None else ()
            self._file = OpenFile(Path(self._location.path), self._engine.raw_connection(), was)
            TENDED[id(self)] = self._tend_file

    def _written(
        self,
        step: Callable[[Connection], T],
        again: Callable[[Connection], T] | None = None,
        *,
        durable: bool = True,
    ) -> T:
        """Run a step as one transaction, which survives a crash of the machine if `durable`.

        If the server goes away, or the file stays locked, wait for it and run the step `again`. Raises
        ConnectionLost after PATIENCE_S, and from then on at once, until the database is back.
        The commit may have succeeded although its answer was lost. So a step must have the same effect if it is run
        twice: it finds by its uuid what it has already stored.
        """
        self._require_file()
        deadline = time.monotonic() + (0.0 if self._waited else PATIENCE_S)
        said, due, turns = False, step, OVERTAKEN
        while True:
            try:
                with self._writing(durable=durable) as connection:
                    if (version := connection.execute(VERSION).scalar()) != SCHEMA_VERSION:
                        version_in(version, self.where)  # a newer program stores more than this one knows
                    found = due(connection)
                self._waited, self._has_written = False, True
                return found
            except Overtaken:
                turns -= 1
                if not turns:
                    raise
            except KeyboardInterrupt:
                self._waited = True  # after an interrupt, the last steps do not wait either
                raise
            except ConnectionLost as error:
                if isinstance(error, ReadsOnly):
                    if not self._has_written:  # a standby, or a role or session that only reads
                        raise ReadsOnly(error.what, where=error.where, hint=_ANOTHER) from error
                    self._engine.dispose()  # another server may have taken over; new connections lead there
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
        if self._file is not None:
            self._file.close()
        self._left.append(self._engine.pool)
        self._engine.dispose()

    def _require_file(self) -> None:
        """Write the database anew if its file was removed, or use the file that another process has written anew.

        Raises StoreError if a file that took its place lacks stored data.
        """
        if self._gone is None and (self._file is None or self._file.is_there):
            return
        with self._looking:
            if self._gone is not None:
                raise self._gone
            if self._file is not None and not self._file.is_there:
                self._replace_file(self._file)

    def _tend_file(self) -> None:
        """Do as `_require_file` for readers: if the file lacks something, say so once instead of raising."""
        if self._gone is None:
            try:
                self._require_file()
            except StoreError as error:
                say(f"autotune: {error}")

    def _replace_file(self, file: OpenFile) -> None:
        with clear_errors(self._location):
            kept = file.replace()
        if kept is not None:
            copy, here = typed(["--db", str(kept)]), typed(["--db", self.where])
            self._gone = StoreError(
                f"was removed or replaced meanwhile; what was stored is in {kept}",
                where=self.where,
                hint=f"autotune export {copy} | autotune import {here}",
            )
            raise self._gone
        self._let_go()
        with self._writing():  # opens the file, which creates its log
            pass
        self._hold_file()

    @contextmanager
    def _writing(self, *, durable: bool = True) -> Iterator[Connection]:
        engine = self._engine if durable else self._hasty
        if self._waited:
            engine = engine.execution_options(busy_s=PAUSE_S)
        with clear_errors(self._location), clear_values(self._location), engine.begin() as connection:
            yield connection

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        self._tend_file()  # else a new connection would create an empty file
        with clear_errors(self._location), clear_values(self._location), self._reader.connect() as connection:
            yield connection
