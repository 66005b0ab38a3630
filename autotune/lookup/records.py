"""What a look-up asks of stored records: of an SQLite file, or of a server.

A problem may have a million trials, and each look-up is a new process. So it reads only the first rows of the summary
of the trials (store/standings.py), through its indexes. Standard library only for a file.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from math import inf
from typing import Any, NamedTuple

from autotune import store
from autotune.identity import ProblemKey, key_columns
from autotune.ranking import ANSWERING, MEASURED, NEWEST, RETIMED, Event, median, merged

FEW = 64
"""How many of the fastest configurations are read first."""


class Alike(NamedTuple):
    """A stored problem of the same study and choices; `size` is JSON text."""

    number: int
    kernel_hash: str
    study_hash: str
    device: str
    size: str


class Ranking(NamedTuple):
    """What is stored for one problem: its fastest configurations, best first.

    If not `whole`, more configurations follow. `newest` is the newest generation.
    """

    entries: list[Event]
    whole: bool
    newest: int = 0

    @property
    def generation(self) -> int:
        """The generation that answers (ranking.answering), or the newest if nothing is verified."""
        return self.entries[0].generation if self.entries else self.newest


class Told(NamedTuple):
    """What is stored of one ranked time.

    `taken` is an instant; `configuration`, `made` and `environment` are JSON text.
    """

    samples_ns: list[int]
    taken: str
    configuration: str
    made: str
    environment: str  # of its search; {} if the search or the time was imported


PROBLEM = """
SELECT id FROM problems WHERE study = :study AND kernel_hash = :kernel_hash AND study_hash = :study_hash
AND device = :device AND size = :size AND choices = :choices
"""
ALIKE = """
SELECT id, kernel_hash, study_hash, device, size FROM problems
WHERE study = :study AND choices = :choices ORDER BY id DESC
"""
DEVICES = "SELECT fingerprint, name, facts FROM devices ORDER BY id"
TRIALS = """
SELECT COALESCE(SUM(trials), 0) AS trials FROM searches WHERE problem_id = :problem AND generation >= :generation
"""
ONCE = """
SELECT configuration_hash, trial_id, retiming_id, time_ns FROM standings
WHERE problem_id = :problem AND driver = :driver AND generation = :generation AND retiming_id = 0
ORDER BY time_ns, configuration_hash LIMIT :most
"""
AGAIN = ONCE.replace("retiming_id = 0", "retiming_id > 0")
FIRST = """
SELECT first_ns FROM standings
WHERE problem_id = :problem AND driver = :driver AND generation = :generation AND retiming_id > 0
ORDER BY first_ns LIMIT 1
"""
TIME = """
SELECT time_ns FROM standings WHERE problem_id = :problem AND driver = :driver AND generation = :generation
AND configuration_hash = :configuration
"""
TOLD = """
SELECT t.configuration, t.samples_ns, t.finished, t.made, s.environment, t.environment
FROM trials t JOIN searches s ON s.id = t.search_id
WHERE t.id = :trial AND t.configuration_hash = :configuration AND t.outcome = 'ok' AND t.driver = :driver
AND s.problem_id = :problem AND s.generation = :generation
"""
TOLD_AGAIN = """
SELECT samples_ns, taken, uuid FROM retimings WHERE id = :retiming AND trial_id = :trial AND driver = :driver
"""

ALL = 2**62


class Records:
    """The seven questions of a look-up in SQL that SQLite and PostgreSQL understand alike, with `:name` for values."""

    def __init__(self, rows: Callable[[str, Mapping[str, Any]], Sequence[Sequence[Any]]]) -> None:
        self._rows = rows

    def devices(self) -> Sequence[tuple[str, str, str]]:
        """Return fingerprint, name and facts of every device, oldest first."""
        return [(fingerprint, name, facts) for fingerprint, name, facts in self._rows(DEVICES, {})]

    def problem(self, key: ProblemKey) -> int | None:
        """Return the number of the problem of exactly this key."""
        found = self._rows(PROBLEM, key_columns(key))
        return found[0][0] if found else None

    def alike(self, key: ProblemKey) -> Sequence[Alike]:
        """Return the problems of a key's study and choices, newest first."""
        columns = key_columns(key)
        asked = {name: columns[name] for name in ("study", "choices")}
        return [Alike(*row) for row in self._rows(ALIKE, asked)]

    def ranking(self, problem: int, driver: str, *, whole: bool = False) -> Ranking:
        """Return the verified configurations of a problem by the rule of `ranking.rank`: the first few, or all."""
        ((newest,),) = self._rows(NEWEST, {"problem": problem})
        found = self._rows(ANSWERING, {"problem": problem, "driver": driver})
        if not found:
            return Ranking([], whole=True, newest=newest)
        driver, generation = found[0]
        group = {"problem": problem, "driver": driver, "generation": generation, "most": ALL if whole else FEW + 1}
        once, again = (
            [
                Event(kind, name, driver, generation, (trial, retiming), time)
                for name, trial, retiming, time in self._rows(query, group)
            ]
            for kind, query in ((MEASURED, ONCE), (RETIMED, AGAIN))
        )
        bar = self._rows(FIRST, group)[0][0] if again else inf
        ranked = merged(once, again, bar)
        return Ranking(ranked if whole else ranked[:FEW], whole or len(ranked) <= FEW, newest)

    def trials(self, problem: int, generation: int) -> int:
        """Return how many trials of a problem have finished from a generation on, without those of other tools."""
        ((trials,),) = self._rows(TRIALS, {"problem": problem, "generation": generation})
        return int(trials)

    def time_ns(self, problem: int, configuration: str, beside: Event) -> float | None:
        """Return the time that counts for a configuration under the driver and in the generation of `beside`."""
        group = {"problem": problem, "driver": beside.driver, "generation": beside.generation}
        found = self._rows(TIME, group | {"configuration": configuration})
        return found[0][0] if found else None

    def told(self, problem: int, entry: Event) -> Told:
        """Return what is stored of a ranked time of a problem.

        Raises ValueError if the summary has another time than the trials, or a time of another problem.
        """
        trial, retiming = entry.order
        meant = {"trial": trial, "driver": entry.driver}
        of = {"problem": problem, "generation": entry.generation, "configuration": entry.configuration}
        found = self._rows(TOLD, meant | of)
        again = self._rows(TOLD_AGAIN, meant | {"retiming": retiming}) if entry.kind == RETIMED else ()
        if not found or (entry.kind == RETIMED and not again):
            raise ValueError("a time belongs to no trial of its problem")
        configuration, samples, taken, made, environment, facts = found[0]
        name = ""
        if again:
            samples, taken, name = again[0]
        taken_ns = list(map(int, json.loads(samples)))
        if median(taken_ns) != entry.time_ns:
            raise ValueError("a time is not the median of its samples")
        told = json.loads(facts)
        if store.CAME_IN in told or name in json.loads(told.get(store.TIMED_ELSEWHERE, "[]")):
            environment = "{}"  # anybody may have written what it says of the rules or of the time
        return Told(taken_ns, taken or "", configuration, made or "", environment)


@contextmanager
def open_records(location: store.Location) -> Iterator[Records]:
    """Open the database for reading. A database that is missing or empty has no records.

    Raises StoreError for a file that is damaged, of a newer version, or no database of this program.
    """
    if location.url:
        with store.Store.at_hand(location) as opened:
            yield of_store(opened)
        return
    store.tend()
    store.require_database_file(location)
    if not os.path.exists(location.path):
        yield Records(lambda query, values: ())
        return
    try:
        with closing(_connected(location.path)) as connection:
            filled = _is_filled(connection, location.path)
            yield Records(partial(_read, connection) if filled else lambda query, values: ())
    except sqlite3.DatabaseError as error:
        raise store.database_error(location.path, error) from error
    except store.UNSOUND as error:
        # A value that a look-up cannot interpret: only a damaged database holds such values.
        raise store.damaged_database(location.path, error) from error


_TEXT: tuple[type, ...] = (str, type(None))
_COLUMNS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("id", "trial_id", "retiming_id", "generation", "trials"), (int,)),
    **dict.fromkeys(("time_ns", "first_ns"), (float,)),
}
"""The types of those columns in queries that do not hold text. SQLite itself lets any column hold any value."""


def _read(connection: sqlite3.Connection, query: str, values: Mapping[str, Any]) -> Sequence[Sequence[Any]]:
    cursor = connection.execute(query, values)
    found = cursor.fetchall()
    _require_kinds([column[0] for column in cursor.description], found)
    return found


def of_store(opened: store.Store) -> Records:
    """Return the seven questions over an open store. They raise ValueError for a value that its column cannot hold."""

    def rows(query: str, values: Mapping[str, Any]) -> Sequence[Sequence[Any]]:
        found: Sequence[Any] = opened.rows(query, values)
        _require_kinds(found[0]._fields if found else (), found)
        return found

    return Records(rows)


def _require_kinds(columns: Sequence[str], found: Sequence[Sequence[Any]]) -> None:
    for place, column in enumerate(columns):
        kinds = _COLUMNS.get(column, _TEXT)
        if not all(type(row[place]) in kinds for row in found):
            raise ValueError(f"{column} holds an invalid value")


_NO_PROGRAM = "PRAGMA trusted_schema=OFF"
"""Keeps SQLite from running what the schema of a file says: others may have written the file."""


def _connected(path: str) -> sqlite3.Connection:
    if store.is_for_reading(path):
        return _as_it_is(path)
    connection = sqlite3.connect(path, timeout=store.BUSY_S)
    try:
        connection.execute(_NO_PROGRAM)
        connection.execute("SELECT 1 FROM sqlite_master")
    except sqlite3.DatabaseError as error:
        connection.close()  # which removes the files that it made beside the database
        if store.lacks_room(error):
            connection = store.open_alone(path)
            connection.execute(_NO_PROGRAM)
            return connection
        if not store.may_not_be_written(path, error):
            raise
        return _as_it_is(path)
    return connection


def _as_it_is(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(store.as_it_is(path), uri=True)
    connection.execute(_NO_PROGRAM)
    return connection


def _is_filled(connection: sqlite3.Connection, path: str) -> bool:
    """Return True if the database holds this program's tables, after bringing them up to date; False if it is empty."""
    if not store.is_our_file(connection.execute(store.SCHEMA), path):
        return False
    version = store.version_in(next(connection.execute("SELECT version FROM schema_version"), (None,))[0], path)
    if version < store.SCHEMA_VERSION:
        store.Store.to_read(path).close()
    return True
