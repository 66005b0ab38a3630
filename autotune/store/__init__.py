"""Keeps every search and every trial: one durable transaction per step, nothing ever deleted.

SQLite by default, PostgreSQL by URL. Only the search process opens the store; two searches may write to one
database at once.

    database.py     how the database is opened; its failures as one clear line
    tables.py       the tables as they are now (how they came to be: ../migrations.py)
    queries.py      the statements
    interchange.py  trials as lines of JSON
    importing.py    such lines stored, all or none
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from sqlalchemy import Connection, Engine, and_, delete, func, select, text, update

from autotune.key import clean, digest, key_columns
from autotune.location import locate
from autotune.migrations import migrate
from autotune.model import Configuration, DeviceInfo, Measurement, Outcome, ProblemKey, Trial
from autotune.records import key_of, now, ordered, trial_columns, trial_of
from autotune.store import importing, interchange, queries
from autotune.store.database import clear_errors, open_engine, reading
from autotune.store.tables import problems, searches, trials

_IN_MEMORY = 16 * 2**20
"""Bytes of an import that wait in memory; beyond, in a temporary file."""


@dataclass(frozen=True, slots=True)
class Row:
    """One stored trial with what it belongs to, for `history`."""

    key: ProblemKey
    trial: Trial
    device_name: str
    sampler: str
    generation: int


class Store:
    """An open database. Use as a context manager; every method is one transaction and may raise StoreError."""

    def __init__(self, engine: Engine, where: str) -> None:
        self.where = where
        self._engine = engine
        self._reader = reading(engine)

    @classmethod
    def open(cls, database: str | None = None) -> Store:
        """Open, and create or migrate where due, the database at a path or URL (None: AUTOTUNE_DB or the default).

        Raises StoreError for one that is read-only, damaged, locked, newer, on a network file system or no database.
        """
        location = locate(database)
        store = cls(open_engine(location), str(location))
        try:
            with store._writing() as connection:
                migrate(connection, store.where)
        except BaseException:
            store.close()
            raise
        return store

    def close(self) -> None:
        """Give the connections back."""
        self._engine.dispose()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

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
    ) -> int:
        """Record that a search begins and return its number. `device`: one, or several equal ones.

        `fresh` opens a new generation: `trials` then leaves out what earlier generations measured.
        """
        used = [device] if isinstance(device, DeviceInfo) else list(device)
        with self._writing() as connection:
            problem_id = queries.existing(connection, problems, key_columns(key))
            # On PostgreSQL the row lock keeps two fresh searches from opening the same generation.
            connection.execute(select(problems.c.id).where(problems.c.id == problem_id).with_for_update())
            columns = {
                "uuid": uuid.uuid4().hex,
                "problem_id": problem_id,
                "generation": queries.generation(connection, problem_id) + int(fresh),
                "sampler": sampler,
                "seed": seed,
                "environment": ordered(environment or {}),
                "started": now(),
                "reason": "",
            }
            search_id = queries.inserted(connection, searches, columns)
            queries.use_devices(connection, search_id, used)
        return search_id

    def end_search(self, search_id: int, reason: str) -> None:
        """Record when and why a search ended. One that was killed stays without an end."""
        with self._writing() as connection:
            connection.execute(
                update(searches).where(searches.c.id == search_id).values(ended=now(), reason=clean(reason))
            )

    def begin(self, search_id: int, configuration: Configuration) -> int:
        """Put an attempt on record before anything can go wrong; return the trial's number."""
        columns = trial_columns(Trial(configuration, Outcome.PENDING)) | {
            "uuid": uuid.uuid4().hex,
            "search_id": search_id,
            "configuration": ordered(configuration),
            "configuration_hash": digest(configuration),
            "started": now(),
        }
        with self._writing() as connection:
            return queries.inserted(connection, trials, columns)

    def withdraw(self, trial_id: int) -> None:
        """Take an attempt off the record that has not come to run. Leaves a finished trial alone."""
        with self._writing() as connection:
            connection.execute(delete(trials).where(trials.c.id == trial_id, trials.c.outcome == Outcome.PENDING.value))

    def finish(self, trial_id: int, trial: Trial) -> None:
        """Record how a trial ended. Driver and instants that the trial does not tell are filled in here.

        Raises ValueError where the trial was not begun or has been finished before.
        """
        columns = trial_columns(trial)
        if trial.started is None:
            del columns["started"]
        columns["finished"] = columns["finished"] or now()
        with self._writing() as connection:
            columns["device_id"], driver = queries.device_used(connection, trial_id, trial.device_index)
            columns["driver"] = columns["driver"] or driver
            begun = and_(trials.c.id == trial_id, trials.c.outcome == Outcome.PENDING.value)
            if connection.execute(update(trials).where(begun), columns).rowcount != 1:
                raise ValueError(f"trial {trial_id} was not begun or has been finished before")
            if trial.retimed is not None and trial.retimed.samples_ns:
                queries.retime(connection, trial_id, columns["driver"], trial.retimed)

    def retime(self, search_id: int, configuration: Configuration, measurement: Measurement) -> None:
        """Add the final, interleaved timing of a configuration to its latest verified trial of the same problem.

        Earlier re-timings stay; the latest counts. Raises ValueError where there is no such trial or no sample.
        """
        if not measurement.samples_ns:
            raise ValueError("a re-timing needs samples")
        with self._writing() as connection:
            trial_id = connection.execute(queries.verified(search_id, digest(configuration))).scalar()
            if trial_id is None:
                raise ValueError(f"no verified trial of {dict(configuration)}")
            driver = connection.execute(queries.drivers(search_id)).scalar() or ""
            queries.retime(connection, trial_id, driver, measurement)

    # Reading ---------------------------------------------------------------------------------------------

    def trials(self, key: ProblemKey) -> list[Trial]:
        """Return the finished trials of exactly this problem, oldest first, of its latest generation.

        A configuration appears once per attempt. What was pending when its search died is left out, so that
        it is tried again.
        """
        with self._reading() as connection:
            problem_id = connection.execute(
                select(problems.c.id).where(queries.same(problems, key_columns(key)))
            ).scalar()
            if problem_id is None:
                return []
            wanted = searches.c.generation == queries.generation(connection, problem_id)
            return queries.finished(connection, and_(searches.c.problem_id == problem_id, wanted))

    def related(self, key: ProblemKey) -> list[tuple[ProblemKey, list[Trial]]]:
        """Return the finished trials of the same kernel and choices on other devices or at other sizes."""
        columns = key_columns(key)
        alike = and_(
            problems.c.study == columns["study"],
            problems.c.kernel_hash == columns["kernel_hash"],
            problems.c.choices == columns["choices"],
            (problems.c.device != columns["device"]) | (problems.c.size != columns["size"]),
        )
        with self._reading() as connection:
            rows = connection.execute(select(problems).where(alike).order_by(problems.c.id)).mappings().all()
            found = [(key_of(row), queries.finished(connection, searches.c.problem_id == row["id"])) for row in rows]
        return [(other, measured) for other, measured in found if measured]

    def history(self, study: str | None = None, limit: int | None = None) -> list[Row]:
        """Return stored trials, pending ones included, newest first; of one study, and at most `limit`."""
        query = queries.everything().order_by(trials.c.started.desc(), trials.c.id.desc()).limit(limit)
        if study is not None:
            query = query.where(problems.c.study == study)
        with self._reading() as connection:
            rows = connection.execute(query).mappings().all()
            retimed = queries.latest_retimings(connection, [row["id"] for row in rows])
            names = queries.device_names(connection, [row["search_id"] for row in rows])
        return [
            Row(
                key_of(row),
                trial_of(row, retimed.get(row["id"])),
                names.get(row["search_id"], ""),
                row["sampler"],
                row["generation"],
            )
            for row in rows
        ]

    def counts(self) -> dict[str, int]:
        """Return the number of finished trials of each study."""
        query = (
            select(problems.c.study, func.count().label("trials"))
            .select_from(trials.join(searches).join(problems, problems.c.id == searches.c.problem_id))
            .where(trials.c.outcome != Outcome.PENDING.value)
            .group_by(problems.c.study)
            .order_by(problems.c.study)
        )
        with self._reading() as connection:
            return {row.study: row.trials for row in connection.execute(query)}

    def rows(self, query: str, values: Mapping[str, Any]) -> list[Sequence[Any]]:
        """Answer a query of lookup.py, written for SQLite and PostgreSQL alike with `:name` for values."""
        with self._reading() as connection:
            return [tuple(row) for row in connection.execute(text(query), dict(values))]

    # Moving ----------------------------------------------------------------------------------------------

    def export_lines(self) -> Iterator[str]:
        """Yield every trial as one line of JSON, oldest first."""
        with self._reading() as connection:
            yield from interchange.export_lines(connection)

    def import_lines(self, lines: Iterable[str], source: str = "") -> int:
        """Add the trials of exported lines; return how many were new. One already here is not added again.

        Raises StoreError with the number of the first line that does not fit, and `source`, the file it is in;
        then nothing is added.
        """
        with tempfile.SpooledTemporaryFile(_IN_MEMORY, "w+", encoding="utf-8") as waiting:
            found = importing.check(lines, waiting, source)
            with self._writing() as connection:
                return importing.store(connection, waiting, found)

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        with clear_errors(self.where), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        with clear_errors(self.where), self._reader.connect() as connection:
            yield connection
