"""SQL statements for the other files of this room: each takes an open connection in the caller's transaction."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Connection, Insert, Select, Table, and_, bindparam, insert, select, text, update
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import DBAPIError

from autotune.model import Outcome, ProblemKey, Trial
from autotune.ranking import ANSWERING, NEWEST
from autotune.store.database import state_of
from autotune.store.fields import trial_of
from autotune.store.location import IMPORTED
from autotune.store.presence import is_dead
from autotune.store.records import UNFINISHED, Columns, key_of, now, pages
from autotune.store.schema import devices, problem_key, problems, retimings, search_devices, searches, trials

PROCESS = "process"
"""The key in a search's environment whose value identifies its process (presence.py)."""

_LOST = "its search died"

_READS_ONLY = ("42501", "25006")
"""PostgreSQL's codes for a role without the right to write, and for a read-only transaction or server."""


def inserted(connection: Connection, table: Table, columns: Mapping[str, Any]) -> int:
    """Insert a row and return its number."""
    # Values as parameters, not through .values(): this halves the time to store a trial.
    key = connection.execute(_insert(table), dict(columns)).inserted_primary_key
    assert key is not None
    return int(key[0])


def number(connection: Connection, table: Table, name: str) -> int | None:
    """Return the number of the row with this uuid; None if there is none."""
    return numbered(connection, table, {"uuid": name})


def numbered(connection: Connection, table: Table, columns: Mapping[str, Any]) -> int | None:
    """Return the number of the row with exactly these columns; None if there is none."""
    found = connection.execute(_number(table, tuple(columns)), dict(columns)).scalar()
    return None if found is None else int(found)


def existing(connection: Connection, table: Table, columns: Mapping[str, Any], unique: Sequence[str] = ()) -> int:
    """Return the number of the row with these `unique` columns (all columns if none is named); insert it if missing."""
    connection.execute(_insert_new(table, connection.dialect.name), dict(columns))
    wanted = {name: columns[name] for name in unique or columns}
    return int(connection.execute(_number(table, tuple(wanted)), wanted).scalar_one())


# Built once: SQLAlchemy takes longer to build a statement than to execute it.


@cache
def _insert(table: Table) -> Insert:
    return insert(table)


@cache
def _insert_new(table: Table, dialect: str) -> Insert:
    if dialect == "postgresql":
        from sqlalchemy.dialects import postgresql

        return postgresql.insert(table).on_conflict_do_nothing()
    return sqlite.insert(table).on_conflict_do_nothing()


@cache
def _number(table: Table, names: tuple[str, ...]) -> Select[Any]:
    return select(table.c.id).where(*(table.c[name] == bindparam(name) for name in names))


def same(table: Table, columns: Mapping[str, Any]) -> ColumnElement[bool]:
    """Return the condition that a row has exactly these columns."""
    return and_(*(table.c[name] == value for name, value in columns.items()))


def use_devices(connection: Connection, search_id: int, used: Iterable[Mapping[str, str]]) -> list[int]:
    """Store devices, given as columns, as those of a search; return their numbers."""
    numbers = device_numbers(connection, used)
    for device_id in dict.fromkeys(numbers):
        connection.execute(_insert(search_devices), {"search_id": search_id, "device_id": device_id})
    return numbers


def device_numbers(connection: Connection, used: Iterable[Mapping[str, str]]) -> list[int]:
    """Return the numbers of devices, given as columns; store them if they are new."""
    return [existing(connection, devices, columns, ("facts_hash",)) for columns in used]


def generation(connection: Connection, problem_id: int) -> int:
    """Return the newest generation of a problem; 0 if it has none."""
    return int(connection.execute(text(NEWEST), {"problem": problem_id}).scalar_one())


def unfinished() -> ColumnElement[bool]:
    """Return the condition that a trial has begun and not ended."""
    return trials.c.outcome.in_(UNFINISHED)


def mark_lost(connection: Connection) -> None:
    """Store the end of searches that were killed, and mark their pending trials as lost.

    A role of PostgreSQL that may only read leaves both to roles that may write.
    """
    query = select(searches.c.id, searches.c.started, searches.c.environment).where(searches.c.ended.is_(None))
    died = [number for number, started, facts in connection.execute(query).all() if has_died(started, facts)]
    if not died:
        return
    try:
        with connection.begin_nested():
            _mark_lost(connection, died)
    except DBAPIError as error:
        if state_of(error) not in _READS_ONLY:
            raise


def _mark_lost(connection: Connection, died: Sequence[int]) -> None:
    for number in died:
        ended = {"ended": now(), "reason": Outcome.LOST.value}
        connection.execute(update(searches).where(searches.c.id == number), ended)
        left = and_(trials.c.search_id == number, trials.c.outcome == Outcome.PENDING.value)
        connection.execute(update(trials).where(left), {"outcome": Outcome.LOST.value, "reason": _LOST})


def has_died(started: str, environment: str) -> bool:
    """Return whether a search without a stored end was killed."""
    return is_dead(str(json.loads(environment).get(PROCESS, "")), started)


def _finished(*wanted: ColumnElement[bool]) -> Select[Any]:
    query = select(trials, searches.c.generation).join(searches).where(*wanted, ~unfinished())
    return query.order_by(trials.c.id)


_OF_PROBLEM = searches.c.problem_id == bindparam("problem")
_SINCE = _finished(_OF_PROBLEM, searches.c.generation >= bindparam("first"), searches.c.sampler != IMPORTED)
_IMPORTED = _finished(_OF_PROBLEM, searches.c.sampler == IMPORTED)
_OF_SEARCH = _finished(searches.c.id == bindparam("search"))


def finished(
    connection: Connection, query: Select[Any], first: int = 0, most: int | None = None, **asked: int
) -> list[Trial]:
    """Return the finished trials of a query in the order they began, each with its latest re-timing.

    Their generations are counted from the `first`. If there are more than `most`: half of that are the fastest by their
    first medians, and half are a sample of the others.
    """
    if most is not None and len(timed := _timed(connection, query, {"first": first, **asked})) > most:
        others = timed[most // 2 :]
        chosen = timed[: most // 2] + [others[at * len(others) // (most - most // 2)] for at in range(most - most // 2)]
        query = query.where(trials.c.id.in_(chosen))
    rows = connection.execute(query, {"first": first, **asked}).mappings().all()
    retimed = latest_retimings(connection, rows)
    return [trial_of(row, retimed.get(row["id"]), row["generation"] - first) for row in rows]


def _timed(connection: Connection, query: Select[Any], asked: Mapping[str, int]) -> list[int]:
    """Return the numbers of a query's trials, the fastest first; stopped and then failed ones come last."""
    columns = trials.c.id, trials.c.outcome, trials.c.time_ns
    rows = connection.execute(query.with_only_columns(*columns), asked).all()
    rank = {Outcome.OK.value: 0, Outcome.STOPPED.value: 1}
    return [row.id for row in sorted(rows, key=lambda row: (rank.get(row.outcome, 2), row.time_ns or 0))]


def latest(connection: Connection, problem_id: int) -> list[Trial]:
    """Return the finished trials of a problem's newest generation in the order they began, without other tools'."""
    return _since(connection, problem_id, generation(connection, problem_id))


def answering(connection: Connection, problem_id: int, driver: str = "", most: int | None = None) -> list[Trial]:
    """Return the same, at most `most`, from the generation on that decides the best under a driver ("": the last)."""
    found = group(connection, problem_id, driver)
    return _since(connection, problem_id, generation(connection, problem_id) if found is None else found[1], most)


def group(connection: Connection, problem_id: int, driver: str) -> tuple[str, int] | None:
    """Return the driver and generation of `ranking.answering` for a problem, or None."""
    found = connection.execute(text(ANSWERING), {"problem": problem_id, "driver": driver}).first()
    return None if found is None else (str(found.driver), int(found.generation))


def _since(connection: Connection, problem_id: int, first: int, most: int | None = None) -> list[Trial]:
    return finished(connection, _SINCE, first, most, problem=problem_id)


def imported(connection: Connection, problem_id: int, most: int | None = None) -> list[Trial]:
    """Return the trials of a problem that other tools made, at most `most`, in the order they were stored."""
    return finished(connection, _IMPORTED, most=most, problem=problem_id)


def imports(connection: Connection, problem_id: int) -> list[tuple[dict[str, Any], list[Trial]]]:
    """Return the stored facts of each import of a problem, with its trials."""
    query = select(searches.c.id, searches.c.environment).order_by(searches.c.id)
    query = query.where(searches.c.problem_id == problem_id, searches.c.sampler == IMPORTED)
    return [
        (json.loads(environment), finished(connection, _OF_SEARCH, search=search_id))
        for search_id, environment in connection.execute(query).all()
    ]


@dataclass(frozen=True, slots=True)
class StoredTrial:
    """One stored trial with its problem and search; `search` is the uuid of its submission, or else of its search."""

    key: ProblemKey
    trial: Trial
    device_name: str
    sampler: str
    generation: int = 0
    number: int = 0
    search: str = ""


def rows(connection: Connection, query: Select[Any]) -> list[StoredTrial]:
    """Return the trials of a query of `everything`."""
    found = connection.execute(query).mappings().all()
    retimed = latest_retimings(connection, found)
    names = device_names(connection, [row["search_id"] for row in found])
    return [
        StoredTrial(
            key_of(row),
            trial_of(row, retimed.get(row["id"])),
            names.get(row["search_id"], ""),
            row["sampler"],
            row["generation"],
            row["id"],
            row["submission"] or row["search_uuid"],
        )
        for row in found
    ]


def everything(study: str | None = None, device: str | None = None) -> Select[Any]:
    """Return the query for trials, of a study or a device model, with problem and search, unsorted."""
    query = (
        select(
            trials,
            searches.c.uuid.label("search_uuid"),
            searches.c.submission,
            searches.c.sampler,
            searches.c.generation,
            *problem_key,
        )
        .select_from(trials.join(searches, searches.c.id == trials.c.search_id))
        .join(problems, problems.c.id == searches.c.problem_id)
    )
    given = {name: value for name, value in (("study", study), ("device", device)) if value is not None}
    return query.where(same(problems, given)) if given else query


def device_names(connection: Connection, search_ids: Iterable[int]) -> dict[int, str]:
    """Return the name of the first device of each search."""
    names: dict[int, str] = {}
    for some in pages(dict.fromkeys(search_ids)):
        query = (
            select(search_devices.c.search_id, devices.c.name)
            .join(devices, devices.c.id == search_devices.c.device_id)
            .where(search_devices.c.search_id.in_(some))
            .order_by(devices.c.id.desc())
        )
        names.update((row.search_id, row.name) for row in connection.execute(query))
    return names


def of_uuids(connection: Connection, table: Table, uuids: Iterable[str]) -> Iterator[Columns]:
    """Yield the rows of a table that have these uuids."""
    for some in pages(uuids):
        yield from connection.execute(select(table).where(table.c.uuid.in_(some))).mappings()


_RETIMINGS = (
    select(retimings).where(retimings.c.trial_id.in_(bindparam("trials", expanding=True))).order_by(retimings.c.id)
)


def all_retimings(connection: Connection, trial_ids: Iterable[int]) -> dict[int, list[Columns]]:
    """Return the re-timings of each trial that has some, in the order they arrived."""
    found: dict[int, list[Columns]] = {}
    for some in pages(trial_ids):
        for row in connection.execute(_RETIMINGS, {"trials": some}).mappings():
            found.setdefault(row["trial_id"], []).append(row)
    return found


def latest_retimings(connection: Connection, rows: Sequence[Columns]) -> dict[int, Columns]:
    """Return the latest re-timing of each of these trials that has one, taken under the driver of the trial."""
    drivers = {row["id"]: row["driver"] for row in rows}
    return {
        trial_id: entry
        for trial_id, entries in all_retimings(connection, drivers).items()
        for entry in entries
        if entry["driver"] == drivers[trial_id]
    }
