"""Store every search and every trial: one durable transaction per step; finished trials are never deleted.

SQLite by default, PostgreSQL by URL. Workers never open it: a search writes what they report. Two searches may write
to one database at the same time.

    access.py       transactions, also if a server goes away or a file is removed
    location.py     where the database is, for look-ups too;  mounts.py: whether it can be there
    database.py     open it; its failures as one line;  waits.py: print a message if a server does not answer
    openfile.py     the file of an open database, removed or replaced;  presence.py: whether a search is still running
    schema.py       the tables as they are now;  migrations.py: the migrations to them
    fields.py       the stored form of a trial, each field once
    records.py      keys and devices as columns
    attempts.py     trials that begin, end and are timed again
    queries.py      the statements
    standings.py    what counts for each configuration, for look-ups
    listing.py      the stored searches and problems;  survey.py: what reports and pages read of their trials
    moving.py       trials out and in;  interchange.py: as lines of JSON;  importing.py: store such lines, all or none
    server.py       the same database for a server:
    submissions.py  the searches that users submit to a server
    tokens.py       who may do what on a server
    hold.py         only one server with a name
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Self, TypeVar

from sqlalchemy import Connection, and_, delete, func, select, text, update

from autotune.errors import StoreError
from autotune.identity import key_columns
from autotune.model import DeviceInfo, Outcome, ProblemKey, Trial
from autotune.store import presence, queries
from autotune.store.attempts import Attempts
from autotune.store.database import holds_nothing, is_busy, open_as_it_is, open_engine, open_in_memory
from autotune.store.location import IMPORTED, Location, is_for_reading, locate, may_not_be_written, tend
from autotune.store.migrations import is_current, migrate
from autotune.store.mounts import lacks_room, require_place
from autotune.store.moving import Moving
from autotune.store.records import device_columns, device_of, key_of, now, ordered
from autotune.store.schema import devices, problems, searches, trials
from autotune.text import clean

_Found = TypeVar("_Found")

_SERVERS: dict[str, Store] = {}
"""Open databases of this process on servers, by URL."""

RELATED, OF_EACH = 32, 1000
"""The most problems, and trials of each, that a search learns from: a few times what a sampler uses."""


class Store(Attempts, Moving):
    """An open database. Use as a context manager; every method is one transaction and may raise StoreError."""

    @classmethod
    def open(cls, database: str | Location | None = None) -> Self:
        """Open the database at a path or URL (None: AUTOTUNE_DB or the default); create or migrate it if needed.

        Pending trials of searches that were killed are marked as lost. Raises StoreError if it is read-only, damaged,
        locked, newer, on a network file system or not a database.
        """
        location = locate(database)
        tend()
        store = cls(open_engine(location), location)
        try:
            with store._writing() as connection:
                migrate(connection, store.where)
                queries.mark_lost(connection)
            store._hold_file()
        except BaseException:
            store.close()
            raise
        if location.url:
            _SERVERS[location.url] = store
        return store

    @classmethod
    @contextmanager
    def at_hand(cls, location: Location) -> Iterator[Store]:
        """Yield the database at a URL: the one that this process has open, as a serving one has, else a new one.

        If each of many simultaneous requests opened another connection, the server's limit would be exceeded.
        """
        if (known := _SERVERS.get(location.url)) is not None:
            yield known
        else:
            with cls.open(location) as opened:
                yield opened

    def close(self) -> None:
        """Close all connections; before that, write a file that was removed anew."""
        if _SERVERS.get(self._location.url) is self:
            del _SERVERS[self._location.url]
        super().close()

    @classmethod
    def to_read(cls, database: str | None = None, *, make: bool = False) -> Self:
        """Open a database for reading, also a file that may not be written, or one on a full disk.

        A missing or empty file is an empty database and is not created, unless with `make`, as `open` does. If another
        process writes for longer than the timeout, as an import may, the database is read as it was before. Raises
        StoreError as `open` does, and for a file that may not be written and has another version.
        """
        location, alone, busy = locate(database), False, False
        tend()
        if not location.url:
            require_place(location, to_write=False)
            if holds_nothing(location.path):
                return cls.open(database) if make else cls._empty(location)
        if location.url or not is_for_reading(location.path):
            try:
                return cls.open(database)
            except StoreError as error:
                said = getattr(error.__cause__, "orig", error.__cause__)
                alone, busy = not location.url and lacks_room(said), is_busy(said)
                if location.url or not (alone or busy or may_not_be_written(location.path, said)):
                    raise
        store = cls(open_engine(location) if busy else open_as_it_is(location, alone=alone), location)
        try:
            with store._reading() as connection:
                if is_current(connection, store.where):
                    return store
        except BaseException:
            store.close()
            raise
        store.close()
        return cls._empty(location)

    @classmethod
    def _empty(cls, location: Location) -> Self:
        """Return an empty database in memory instead of a missing one; nothing of it is kept."""
        store = cls(open_in_memory(), location)
        with store._writing() as connection:
            migrate(connection, store.where)
        return store

    # A search --------------------------------------------------------------------------------------------

    def start_search(
        self,
        key: ProblemKey,
        device: DeviceInfo | Sequence[DeviceInfo],
        *,
        sampler: str,
        seed: int | None,
        environment: Mapping[str, str | int | float] | None = None,
        fresh: bool = False,
        submission: str | None = None,
    ) -> int:
        """Store that a search begins and return its number. `device`: one, or several equal ones.

        `fresh` opens a new generation: `trials` then leaves out what earlier generations measured. `submission`: the
        submission in a server's queue for which this search runs.
        """
        used = [device] if isinstance(device, DeviceInfo) else list(device)
        name, started = uuid.uuid4().hex, now()

        def step(connection: Connection) -> int:
            if (known := queries.number(connection, searches, name)) is not None:
                return known
            problem_id = queries.existing(connection, problems, key_columns(key))
            # On PostgreSQL the row lock keeps two fresh searches from opening the same generation.
            connection.execute(select(problems.c.id).where(problems.c.id == problem_id).with_for_update())
            columns = {
                "uuid": name,
                "problem_id": problem_id,
                "generation": queries.generation(connection, problem_id) + int(fresh),
                "sampler": sampler,
                "seed": seed,
                "environment": ordered({**(environment or {}), queries.PROCESS: presence.this_process()}),
                "started": started,
                "reason": "",
                "submission": submission,
            }
            search_id = queries.inserted(connection, searches, columns)
            queries.use_devices(connection, search_id, map(device_columns, used))
            return search_id

        return self._written(step)

    def end_search(self, search_id: int, reason: str) -> None:
        """Store when and why a search ended. One that was killed has no end until the next `open`.

        Deletes its unfinished trials: on a full disk they could not be withdrawn.
        """
        ended = {"ended": now(), "reason": clean(reason)}

        def step(connection: Connection) -> None:
            connection.execute(delete(trials).where(trials.c.search_id == search_id, queries.unfinished()))
            connection.execute(update(searches).where(searches.c.id == search_id), ended)

        self._written(step)

    # Reading ---------------------------------------------------------------------------------------------

    def trials(self, key: ProblemKey) -> list[Trial]:
        """Return the finished trials of exactly this problem, in the order they began, of its newest generation.

        A configuration appears once per attempt. Trials that were lost when their search died are left out, so that
        they are tried again; so are those of other tools.
        """
        return self._of_problem(key, queries.latest)

    def answering(self, key: ProblemKey, driver: str = "") -> list[Trial]:
        """Return the same from the generation of `ranking.answering` on: the trials that decide the best."""
        return self._of_problem(key, partial(queries.answering, driver=clean(driver)))

    def answering_driver(self, key: ProblemKey, driver: str = "") -> str:
        """Return the driver of `ranking.answering` for a problem; the given driver if nothing is verified."""
        driver = clean(driver)
        with self._reading() as connection:
            problem_id = queries.numbered(connection, problems, key_columns(key))
            found = None if problem_id is None else queries.group(connection, problem_id, driver)
        return driver if found is None else found[0]

    def imported(self, key: ProblemKey) -> list[Trial]:
        """Return the trials of exactly this problem that other tools made, in the order they were stored."""
        return self._of_problem(key, queries.imported)

    def imports(self, key: ProblemKey) -> list[tuple[dict[str, Any], list[Trial]]]:
        """Return the same by file: what `adopt` was told about it, and its trials."""
        return self._of_problem(key, queries.imports)

    def problems(self, study: str) -> list[tuple[ProblemKey, DeviceInfo | None]]:
        """Return the problems of a study, oldest first, each with its device as last described (None: never)."""
        with self._reading() as connection:
            rows = connection.execute(select(problems).where(problems.c.study == study).order_by(problems.c.id))
            keys = [key_of(row) for row in rows.mappings()]
            used = connection.execute(select(devices.c.fingerprint, devices.c.facts).order_by(devices.c.id)).all()
            facts = {row.fingerprint: row.facts for row in used}
            known = {name: device_of(json.loads(facts[name])) for name in {key.device for key in keys} & facts.keys()}
        return [(key, known.get(key.device)) for key in keys]

    def _of_problem(self, key: ProblemKey, query: Callable[[Connection, int], list[_Found]]) -> list[_Found]:
        with self._reading() as connection:
            problem_id = queries.numbered(connection, problems, key_columns(key))
            return [] if problem_id is None else query(connection, problem_id)

    def related(self, key: ProblemKey) -> list[tuple[ProblemKey, list[Trial]]]:
        """Return finished trials of the same kernel and choices on other devices or at other sizes.

        First those that decide the best, as `answering` does; then those of other tools, also for this very problem.
        At most RELATED problems, those with the most trials, and OF_EACH trials of each: a search reads all at its
        start.
        """
        columns = key_columns(key)
        alike = and_(
            problems.c.study == columns["study"],
            problems.c.kernel_hash == columns["kernel_hash"],
            problems.c.choices == columns["choices"],
        )
        other = (problems.c.device != columns["device"]) | (problems.c.size != columns["size"])
        with self._reading() as connection:
            rows = connection.execute(select(problems, other.label("other")).where(alike).order_by(problems.c.id))
            told = rows.mappings().all()
            others = sorted((row for row in told if row["other"]), key=lambda row: -row["trials"])[:RELATED]
            found = [
                (key_of(row), queries.answering(connection, row["id"], most=OF_EACH))
                for row in sorted(others, key=lambda row: row["id"])
            ]
            found += [(key_of(row), queries.imported(connection, row["id"], OF_EACH)) for row in told]
        return [(other, measured) for other, measured in found if measured]

    def history(
        self, study: str | None = None, limit: int | None = None, *, failed: bool = False, device: str | None = None
    ) -> list[queries.StoredTrial]:
        """Return stored trials, including pending and lost ones, newest first.

        Only of one study, one `device` (its fingerprint), or only `failed` ones, if given.
        """
        most = None if limit is None else min(limit, 2**63 - 1)  # the largest number of a database
        query = queries.everything(study, device).order_by(trials.c.started.desc(), trials.c.id.desc()).limit(most)
        if failed:
            query = query.where(trials.c.outcome.in_([outcome.value for outcome in Outcome if outcome.failed]))
        with self._reading() as connection:
            self._require_searches(connection)
            return queries.rows(connection, query)

    def trial(self, number: int) -> queries.StoredTrial | None:
        """Return the trial with a number; None if there is none."""
        with self._reading() as connection:
            return next(iter(queries.rows(connection, queries.everything().where(trials.c.id == number))), None)

    def counts(self) -> dict[str, int]:
        """Return the number of finished trials of each study."""
        own = select(problems.c.study, problems.c.trials.label("trials"))
        others = (
            select(problems.c.study, func.count().label("trials"))
            .select_from(trials.join(searches).join(problems, problems.c.id == searches.c.problem_id))
            .where(searches.c.sampler == IMPORTED, ~queries.unfinished())
            .group_by(problems.c.study)
        )
        found: Counter[str] = Counter()
        with self._reading() as connection:
            for row in connection.execute(own.union_all(others)):
                found[row.study] += row.trials
            return {study: found[study] for study in sorted(found) if found[study]}

    def rows(self, query: str, values: Mapping[str, Any]) -> list[Any]:
        """Return the rows of a query of lookup/records.py, listing.py or survey.py, with `:name` for values.

        The query must be valid for SQLite and PostgreSQL. Rows are tuples with their columns' names as `_fields`.
        """
        with self._reading() as connection:
            return list(connection.execute(text(query), dict(values)))
