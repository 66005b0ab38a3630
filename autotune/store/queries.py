"""The statements of store.py: each takes an open connection, within the caller's transaction."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, Select, Table, and_, func, insert, select
from sqlalchemy.dialects import postgresql, sqlite

from autotune.model import DeviceInfo, Measurement, Outcome, Trial
from autotune.records import Columns, device_columns, measurement_columns, now, trial_of
from autotune.store.tables import devices, problems, retimings, search_devices, searches, trials

_Item = TypeVar("_Item", int, str)

CHUNK = 500
"""Rows per page and per IN (...): bounds the memory, and stays below SQLite's limit of parameters."""


def inserted(connection: Connection, table: Table, columns: Mapping[str, Any]) -> int:
    """Insert a row and return its number."""
    # Values as parameters, not through .values(): half the time of a trial's bookkeeping.
    key = connection.execute(insert(table), dict(columns)).inserted_primary_key
    assert key is not None
    return int(key[0])


def existing(connection: Connection, table: Table, columns: Mapping[str, Any], unique: Sequence[str] = ()) -> int:
    """Return the number of the row with these `unique` columns (all of them where none is named), made if missing."""
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    connection.execute(dialect.insert(table).values(columns).on_conflict_do_nothing())
    wanted = same(table, {name: columns[name] for name in unique or columns})
    return int(connection.execute(select(table.c.id).where(wanted)).scalar_one())


def same(table: Table, columns: Mapping[str, Any]) -> ColumnElement[bool]:
    """Return the condition that a row has exactly these columns."""
    return and_(*(table.c[name] == value for name, value in columns.items()))


def use_devices(connection: Connection, search_id: int, used: Iterable[DeviceInfo]) -> list[int]:
    """Put devices on record as those of a search; return their numbers."""
    numbers = device_numbers(connection, used)
    for device_id in dict.fromkeys(numbers):
        connection.execute(insert(search_devices).values(search_id=search_id, device_id=device_id))
    return numbers


def device_numbers(connection: Connection, used: Iterable[DeviceInfo]) -> list[int]:
    """Return the numbers of devices, put on record where they are new."""
    return [existing(connection, devices, device_columns(info), ("facts_hash",)) for info in used]


def device_used(connection: Connection, trial_id: int, index: int | None) -> tuple[int | None, str]:
    """Return number and driver of the device that a trial ran on, among those of its search."""
    query = (
        select(devices.c.id, devices.c.driver, devices.c.facts)
        .join(search_devices, search_devices.c.device_id == devices.c.id)
        .join(trials, trials.c.search_id == search_devices.c.search_id)
        .where(trials.c.id == trial_id)
        .order_by(devices.c.id)
    )
    found = connection.execute(query).all()
    if index is not None and len(found) > 1:
        found = [row for row in found if f'"index":{index},' in row.facts] or found
    return (int(found[0].id), str(found[0].driver)) if found else (None, "")


def generation(connection: Connection, problem_id: int) -> int:
    """Return the latest generation of a problem; 0 where it has none."""
    query = select(func.max(searches.c.generation)).where(searches.c.problem_id == problem_id)
    return int(connection.execute(query).scalar() or 0)


def retime(connection: Connection, trial_id: int, driver: str, measurement: Measurement, **known: str) -> None:
    """Add a re-timing to a trial; `known` gives `uuid` and `taken` where it was taken elsewhere."""
    columns = {"uuid": uuid.uuid4().hex, "taken": now()} | known | measurement_columns(measurement)
    connection.execute(insert(retimings).values(trial_id=trial_id, driver=driver, **columns))


def verified(search_id: int, configuration_hash: str) -> Select[Any]:
    """Return the query for the latest verified trial of a configuration in the problem of a search."""
    problem_id = select(searches.c.problem_id).where(searches.c.id == search_id).scalar_subquery()
    return (
        select(trials.c.id)
        .join(searches, searches.c.id == trials.c.search_id)
        .where(
            searches.c.problem_id == problem_id,
            trials.c.configuration_hash == configuration_hash,
            trials.c.outcome == Outcome.OK.value,
        )
        .order_by(trials.c.finished.desc(), trials.c.id.desc())
        .limit(1)
    )


def drivers(search_id: int) -> Select[Any]:
    """Return the query for the drivers of a search's devices."""
    query = select(devices.c.driver).join(search_devices, search_devices.c.device_id == devices.c.id)
    return query.where(search_devices.c.search_id == search_id).order_by(devices.c.id)


def finished(connection: Connection, wanted: ColumnElement[bool]) -> list[Trial]:
    """Return the finished trials of the searches wanted, oldest first, each with its latest re-timing."""
    done = trials.c.outcome != Outcome.PENDING.value
    query = select(trials).join(searches).where(wanted, done).order_by(trials.c.finished, trials.c.id)
    rows = connection.execute(query).mappings().all()
    retimed = latest_retimings(connection, [row["id"] for row in rows])
    return [trial_of(row, retimed.get(row["id"])) for row in rows]


def everything() -> Select[Any]:
    """Return the query for trials with the search and the problem they belong to, unsorted."""
    return (
        select(
            trials,
            searches.c.sampler,
            searches.c.generation,
            *(column for column in problems.c if column.name != "id"),
        )
        .select_from(trials.join(searches, searches.c.id == trials.c.search_id))
        .join(problems, problems.c.id == searches.c.problem_id)
    )


def device_names(connection: Connection, search_ids: Iterable[int]) -> dict[int, str]:
    """Return the name of the first device of each search."""
    names: dict[int, str] = {}
    for some in _batched(dict.fromkeys(search_ids)):
        query = (
            select(search_devices.c.search_id, devices.c.name)
            .join(devices, devices.c.id == search_devices.c.device_id)
            .where(search_devices.c.search_id.in_(some))
            .order_by(devices.c.id.desc())
        )
        names.update((row.search_id, row.name) for row in connection.execute(query))
    return names


def _batched(items: Iterable[_Item]) -> Iterator[list[_Item]]:
    rest = iter(items)
    while some := list(islice(rest, CHUNK)):
        yield some


def of_uuids(connection: Connection, table: Table, uuids: Iterable[str]) -> Iterator[Columns]:
    """Yield the rows of a table that have these uuids."""
    for some in _batched(uuids):
        yield from connection.execute(select(table).where(table.c.uuid.in_(some))).mappings()


def all_retimings(connection: Connection, trial_ids: Iterable[int]) -> dict[int, list[Columns]]:
    """Return the re-timings of each trial that has some, oldest first."""
    found: dict[int, list[Columns]] = {}
    for some in _batched(trial_ids):
        query = select(retimings).where(retimings.c.trial_id.in_(some)).order_by(retimings.c.taken, retimings.c.id)
        for row in connection.execute(query).mappings():
            found.setdefault(row["trial_id"], []).append(row)
    return found


def latest_retimings(connection: Connection, trial_ids: Iterable[int]) -> dict[int, Columns]:
    """Return the latest re-timing of each trial that has one."""
    return {trial_id: rows[-1] for trial_id, rows in all_retimings(connection, trial_ids).items()}
