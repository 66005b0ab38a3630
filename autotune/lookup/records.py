"""What a look-up asks of stored records, and the database that answers: an SQLite file, or a server.

A problem may have a hundred thousand trials, and a look-up starts anew each time: it reads the few that can be best.
Standard library only for a file.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any, NamedTuple, Protocol

from autotune.identity import ProblemKey, key_columns
from autotune.ranking import FAILED, MEASURED, NAN, RETIMED, WRONG, Event, median, rank
from autotune.store.location import (
    IMPORTED,
    SCHEMA_VERSION,
    Location,
    damaged_database,
    database_error,
    is_ours,
    require_database_file,
    version_in,
)

BUSY_S = 30.0
FEW = 64
"""How many of the fastest trials are looked at first."""


class Alike(NamedTuple):
    """A stored problem of the same study and choices; `size` is JSON text."""

    number: int
    kernel_hash: str
    study_hash: str
    device: str
    size: str


class Ranking(NamedTuple):
    """What is stored for one problem: its fastest configurations, best first, and the number of finished trials.

    Not `whole`: more configurations follow.
    """

    entries: list[Event]
    trials: int
    whole: bool


class Told(NamedTuple):
    """What is stored of one ranked time, taken at an instant; the rest is JSON text."""

    samples_ns: list[int]
    taken: str
    configuration: str
    made: str
    environment: str  # of its search


class Records(Protocol):
    """The five questions of a look-up. Whatever keeps results can answer them."""

    def devices(self) -> Sequence[tuple[str, str, str]]:
        """Return fingerprint, name and facts (JSON text) of every device, oldest first."""

    def problem(self, key: ProblemKey) -> int | None:
        """Return the number of the problem of exactly this key."""

    def alike(self, key: ProblemKey) -> Sequence[Alike]:
        """Return the problems of a key's study and choices, newest first."""

    def ranking(self, problem: int, driver: str, *, whole: bool = False) -> Ranking:
        """Return the verified configurations of a problem by the rule of `ranking.rank`: the first few, or all."""

    def told(self, entry: Event) -> Told:
        """Return what is stored of a ranked time."""


# What another tool made (of the sampler IMPORTED) is nobody's best.
# Outcomes: 'ok' was verified and timed; 'pending' and 'lost' have not ended; 'stopped' says nothing of a rank.
PROBLEM = """
SELECT id FROM problems WHERE study = :study AND kernel_hash = :kernel_hash AND study_hash = :study_hash
AND device = :device AND size = :size AND choices = :choices
"""
ALIKE = """
SELECT id, kernel_hash, study_hash, device, size FROM problems
WHERE study = :study AND choices = :choices ORDER BY id DESC
"""
DEVICES = "SELECT fingerprint, name, facts FROM devices ORDER BY id"
SEARCHES = f"SELECT id, generation FROM searches WHERE problem_id = :problem AND sampler <> '{IMPORTED}'"
GROUPS = """
SELECT outcome, driver, COUNT(*) AS trials, MAX(id) AS latest FROM trials WHERE search_id = :search
GROUP BY outcome, driver
"""
EVENTS = f"""
SELECT t.outcome, t.configuration_hash, t.driver, s.generation, t.id, t.time_ns
FROM searches s JOIN trials t ON t.search_id = s.id
WHERE s.problem_id = :problem AND s.sampler <> '{IMPORTED}' AND t.outcome NOT IN ('pending', 'lost', 'stopped')
"""
RETIMINGS = f"""
SELECT t.configuration_hash, t.driver, s.generation, t.id AS trial_id, r.id, r.time_ns
FROM searches s JOIN trials t ON t.search_id = s.id JOIN retimings r ON r.trial_id = t.id AND r.driver = t.driver
WHERE s.problem_id = :problem AND s.sampler <> '{IMPORTED}' AND t.outcome = 'ok'
"""
ALL_RETIMINGS = f"""
SELECT t.configuration_hash, t.driver, s.generation, t.id AS trial_id, r.id, r.time_ns
FROM retimings r CROSS JOIN trials t JOIN searches s ON s.id = t.search_id
WHERE t.id = r.trial_id AND r.driver = t.driver AND s.problem_id = :problem AND s.sampler <> '{IMPORTED}'
AND t.outcome = 'ok'
"""
COUNT_RETIMINGS = "SELECT MAX(id) AS latest FROM retimings"
FASTEST = """
SELECT configuration_hash, time_ns FROM trials
WHERE search_id = :search AND outcome = 'ok' AND driver = :driver AND time_ns > 0 ORDER BY time_ns LIMIT :few
"""
LATEST = "SELECT configuration_hash FROM trials WHERE id = :trial"
TOLD = """
SELECT t.configuration, t.samples_ns, t.finished, t.made, s.environment
FROM trials t JOIN searches s ON s.id = t.search_id WHERE t.id = :trial
"""
TOLD_AGAIN = "SELECT samples_ns, taken FROM retimings WHERE id = :retiming"

_KINDS = {"ok": MEASURED, "wrong_result": WRONG}  # all other outcomes are failures
_UNFINISHED = ("pending", "lost")


class Database:
    """The five questions put in SQL that SQLite and PostgreSQL understand alike, with `:name` for values."""

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
        """Return the verified configurations of a problem, best first: the first few where that is exact, or all."""
        searches = self._rows(SEARCHES, {"problem": problem})
        groups = [
            (search, generation, *group)
            for search, generation in searches
            for group in self._rows(GROUPS, {"search": search})
        ]
        trials = sum(count for _, _, outcome, _, count, _ in groups if outcome not in _UNFINISHED)
        again = self._retimed(problem, trials)
        if not whole and trials > FEW and (few := self._few(problem, driver, groups, again)):
            return Ranking(few, trials, whole=False)
        return Ranking(rank([*self._events(EVENTS, problem), *again], driver), trials, whole=True)

    def told(self, entry: Event) -> Told:
        """Return what is stored of a ranked time."""
        trial, retiming = entry.order
        configuration, samples, taken, made, environment = self._rows(TOLD, {"trial": trial})[0]
        if entry.kind == RETIMED:
            samples, taken = self._rows(TOLD_AGAIN, {"retiming": retiming})[0]
        taken_ns = list(map(int, json.loads(samples)))
        if median(taken_ns) != entry.time_ns:
            raise ValueError("a time is not the median of its samples")
        return Told(taken_ns, taken or "", configuration, made or "", environment)

    def _retimed(self, problem: int, trials: int) -> list[Event]:
        """Return the re-timings of a problem: by its trials or, where those are more, by all re-timings there are."""
        ((latest,),) = self._rows(COUNT_RETIMINGS, {}) or ((0,),)
        query = RETIMINGS if trials < (latest or 0) else ALL_RETIMINGS
        return [
            Event(RETIMED, name, under, generation, (trial, retiming), time)
            for name, under, generation, trial, retiming, time in self._rows(query, {"problem": problem})
        ]

    def _events(self, query: str, problem: int, **names: str) -> list[Event]:
        """Return what became of the trials that a query finds."""
        return [
            Event(_KINDS.get(outcome, FAILED), name, under, generation, (trial, 0), NAN if time is None else time)
            for outcome, name, under, generation, trial, time in self._rows(query, {"problem": problem, **names})
        ]

    def _few(self, problem: int, driver: str, groups: Sequence[Any], again: Sequence[Event]) -> list[Event]:
        """Return the beginning of the ranking where a few trials tell it for sure; [] where they do not.

        The driver and the generation that count are those of the latest verified trial, if that has not failed since.
        What is not among the fastest of these comes behind them, whatever else became of it.
        """
        passed = [group for group in groups if group[2] == "ok"]
        own = [group for group in passed if group[3] == driver]
        if not passed:
            return []
        driver = driver if own else max(passed, key=lambda group: group[5])[3]
        own = own or [group for group in passed if group[3] == driver]
        generation = max(group[1] for group in own)
        own = [group for group in own if group[1] == generation]
        latest = max(group[5] for group in own)
        if latest != max(group[5] for group in passed if group[3] == driver):
            return []
        fastest = sorted(
            (time, name)
            for search, *_ in own
            for name, time in self._rows(FASTEST, {"search": search, "driver": driver, "few": FEW})
        )[:FEW]
        bound = fastest[-1][0] if fastest else 0.0
        names = {name for _, name in fastest} | {event.configuration for event in again}
        names |= {self._rows(LATEST, {"trial": latest})[0][0]}
        named = {f"name{place}": name for place, name in enumerate(sorted(names))}
        if len(named) > 4 * FEW:
            return []
        # The + keeps SQLite from walking through all trials of a search to find the few of these names.
        events = EVENTS.replace("t.search_id", "+t.search_id")
        query = f"{events} AND t.configuration_hash IN ({', '.join(f':{name}' for name in named)})"
        ranked = rank([*self._events(query, problem, **named), *again], driver)
        sure = [event for event in ranked if event.kind == MEASURED and event.time_ns < bound]
        last = ranked.index(sure[-1]) if sure else -1
        return ranked[: last + 1] if any(event.order[0] == latest for event in ranked) else []


@contextmanager
def open_records(location: Location) -> Iterator[Records]:
    """Open the database for reading; one that is not there, or empty, knows nothing.

    Raises StoreError for a file that is damaged, of a newer version, or no database of this program.
    """
    if location.url:
        from autotune.store import Store

        with Store.open(location.url) as store:
            yield Database(store.rows)
        return
    if not os.path.exists(location.path):  # noqa: PTH110  pathlib costs a look-up more than all its questions
        yield Database(lambda query, values: ())
        return
    require_database_file(location.path)
    try:
        with closing(_connected(location.path)) as connection:
            yield Database(_reader(connection) if _is_filled(connection, location.path) else lambda query, values: ())
    except sqlite3.DatabaseError as error:
        raise database_error(location.path, error) from error
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        # Values that a look-up cannot make sense of: only what is damaged holds such.
        raise damaged_database(location.path, error) from error


_TEXT: tuple[type, ...] = (str, type(None))
_NUMBERS = ("id", "trial_id", "generation", "trials", "latest")
_COLUMNS: dict[str, tuple[type, ...]] = dict.fromkeys(_NUMBERS, (int, type(None)))
_COLUMNS["time_ns"] = (float, int, type(None))
"""What the columns of queries hold that hold no text. SQLite itself lets any column hold anything."""


def _reader(connection: sqlite3.Connection) -> Callable[[str, Mapping[str, Any]], Sequence[Sequence[Any]]]:
    def rows(query: str, values: Mapping[str, Any]) -> Sequence[Sequence[Any]]:
        cursor = connection.execute(query, values)
        found = cursor.fetchall()
        for place, column in enumerate(cursor.description):
            kinds = _COLUMNS.get(column[0], _TEXT)
            if not all(type(row[place]) in kinds for row in found):
                raise ValueError(f"{column[0]} holds what it cannot")
        return found

    return rows


def _connected(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=BUSY_S)
    try:
        # What a file says that others wrote is no program to run.
        connection.execute("PRAGMA trusted_schema=OFF")
        connection.execute("SELECT 1 FROM sqlite_master")
    except sqlite3.OperationalError as error:
        connection.close()
        unwritable = error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
        if not unwritable or os.path.exists(f"{path}-wal"):  # noqa: PTH110
            raise
        # A directory that cannot be written has no room for the shared memory of WAL. Nobody can be writing
        # there either, and without a -wal file the database file is whole.
        from pathlib import Path

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
