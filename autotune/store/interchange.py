"""Trials as lines of JSON: each holds one trial and all that it belongs to, so that lines can be cut and mixed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import islice
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictInt, StrictStr, ValidationError
from sqlalchemy import Connection, select, update

from autotune.errors import StoreError
from autotune.key import canonical, clean, digest
from autotune.model import DeviceInfo, Measurement, Outcome
from autotune.records import Columns, device_of, instant, measurement_columns, ordered
from autotune.store import queries
from autotune.store.tables import devices, problems, retimings, search_devices, searches, trials

FORMAT = 1
"""Version of a line. A reader refuses a newer one."""

Value = StrictInt | float | StrictStr
Plain = dict[str, Value]
Nanoseconds = list[StrictInt]
Instant = Annotated[StrictStr, BeforeValidator(lambda text: instant(datetime.fromisoformat(text)))]
Word = Annotated[StrictStr, Field(min_length=1)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Retiming(_Table):
    """A final, interleaved timing."""

    uuid: Word
    driver: str
    samples_ns: Annotated[Nanoseconds, Field(min_length=1)]
    warmup_ns: Nanoseconds
    cache: str
    taken: Instant


class Search(_Table):
    """The search that a trial is of, with its devices as OpenCL described them."""

    uuid: Word
    generation: int
    sampler: str
    seed: int | None
    environment: Plain
    started: Instant
    ended: Instant | None
    reason: str
    devices: list[dict[str, Any]]


class Line(_Table):
    """One line: one trial."""

    format: Literal[1]
    uuid: Word
    study: Word
    kernel_hash: str
    study_hash: str
    device: Word
    size: dict[str, StrictInt]
    choices: Plain
    configuration: Plain
    outcome: Outcome
    reason: str
    samples_ns: Nanoseconds | None
    warmup_ns: Nanoseconds | None
    cache: str | None
    retimings: list[Retiming]
    max_error: float | None
    build_s: float
    verify_s: float
    time_s: float
    build_log: str
    binary_hash: str
    driver: str
    device_number: int | None  # position in the search's devices
    device_index: int | None
    started: Instant | None
    finished: Instant | None
    environment: Plain
    search: Search


_JSON = ("size", "choices", "configuration", "samples_ns", "warmup_ns", "environment")
_INTERNAL = ("id", "search_id", "device_id", "configuration_hash", "time_ns", "sampler", "generation")


def export_lines(connection: Connection) -> Iterator[str]:
    """Yield every trial as one line, in the order they were stored."""
    belongings: dict[int, tuple[dict[str, Any], list[int]]] = {}
    query = queries.everything().order_by(trials.c.id).execution_options(yield_per=queries.CHUNK)
    for page in connection.execute(query).mappings().partitions():
        retimed = queries.all_retimings(connection, [row["id"] for row in page])
        for row in page:
            search_id = row["search_id"]
            if search_id not in belongings:
                belongings[search_id] = _search(connection, search_id)
            search, numbers = belongings[search_id]
            line = {name: _loaded(name, value) for name, value in row.items() if name not in _INTERNAL}
            line["format"] = FORMAT
            # JSON has no infinity; float("inf") reads the text.
            line["max_error"] = str(row["max_error"]) if row["max_error"] == float("inf") else row["max_error"]
            line["device_number"] = numbers.index(row["device_id"]) if row["device_id"] in numbers else None
            line["retimings"] = [_retiming(entry) for entry in retimed.get(row["id"], [])]
            yield ordered({name: line[name] for name in Line.model_fields if name != "search"} | {"search": search})


def import_lines(connection: Connection, lines: Iterable[str], first: int) -> int:
    """Store the trials of lines that are not here yet and return their number; `first` numbers the first line."""
    known: dict[str, tuple[int, list[int]]] = {}
    added = 0
    for number, text in enumerate(lines, first):
        if text.strip():
            line = _parsed(text, number)
            if line.search.uuid not in known:
                known[line.search.uuid] = _store_search(connection, line, number)
            added += _store_trial(connection, line, number, *known[line.search.uuid])
    return added


def pages(lines: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield lines by the page, with the number of each page's first line."""
    rest, first = iter(lines), 1
    while page := list(islice(rest, queries.CHUNK)):
        yield first, page
        first += len(page)


def _loaded(name: str, value: Any) -> Any:
    return json.loads(value) if name in _JSON and value is not None else value


def _retiming(row: Columns) -> dict[str, Any]:
    return {name: _loaded(name, row[name]) for name in Retiming.model_fields}


def _search(connection: Connection, search_id: int) -> tuple[dict[str, Any], list[int]]:
    row = connection.execute(select(searches).where(searches.c.id == search_id)).mappings().one()
    query = (
        select(devices.c.id, devices.c.facts)
        .join(search_devices, search_devices.c.device_id == devices.c.id)
        .where(search_devices.c.search_id == search_id)
        .order_by(devices.c.facts_hash)
    )
    used = connection.execute(query).all()
    search = {name: _loaded(name, row[name]) for name in Search.model_fields if name != "devices"}
    return search | {"devices": [json.loads(entry.facts) for entry in used]}, [entry.id for entry in used]


def _parsed(text: str, number: int) -> Line:
    where = f"line {number}"
    try:
        table = json.loads(text)
    except ValueError as error:
        raise StoreError(f"is no JSON: {error}", where=where) from None
    if not isinstance(table, dict):
        raise StoreError("is no JSON object", where=where, hint="import reads what autotune export writes")
    if isinstance(table.get("format"), int) and table["format"] > FORMAT:
        raise StoreError(f"is of format {table['format']}, newer than {FORMAT}", where=where, hint="update autotune")
    try:
        return Line.model_validate(table)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise StoreError(
            f"{place}: {first['msg']}", where=where, hint="import reads what autotune export writes"
        ) from None


def _devices(line: Line, number: int) -> list[DeviceInfo]:
    try:
        return [device_of(facts) for facts in line.search.devices]
    except TypeError as error:
        raise StoreError(f"search.devices: {error}", where=f"line {number}") from None


def _store_search(connection: Connection, line: Line, number: int) -> tuple[int, list[int]]:
    """Return the number of the line's search and of its devices, stored where they are new."""
    search, used = line.search, _devices(line, number)
    known = connection.execute(select(searches).where(searches.c.uuid == search.uuid)).mappings().first()
    if known is not None:
        if known["ended"] is None and search.ended is not None:
            ended = {"ended": search.ended, "reason": clean(search.reason)}
            connection.execute(update(searches).where(searches.c.id == known["id"]).values(ended))
        return known["id"], queries.device_numbers(connection, used)
    problem = {"kernel_hash": line.kernel_hash, "study_hash": line.study_hash, "device": line.device}
    problem |= {"study": clean(line.study), "size": canonical(line.size), "choices": canonical(line.choices)}
    columns = search.model_dump(exclude={"devices"}) | {
        "problem_id": queries.existing(connection, problems, problem),
        "environment": ordered(search.environment),
        "reason": clean(search.reason),
    }
    search_id = queries.inserted(connection, searches, columns)
    return search_id, queries.use_devices(connection, search_id, used)


def _store_trial(connection: Connection, line: Line, number: int, search_id: int, device_ids: list[int]) -> int:
    """Store a trial and its re-timings where they are new; return 1 for a new trial, else 0."""
    known = connection.execute(select(trials.c.id, trials.c.outcome).where(trials.c.uuid == line.uuid)).first()
    columns = _columns(line, number, search_id, device_ids)
    if known is None:
        trial_id = queries.inserted(connection, trials, columns)
    else:
        trial_id = known.id
        if known.outcome == Outcome.PENDING.value:
            connection.execute(update(trials).where(trials.c.id == trial_id).values(columns))
    here = set(connection.execute(select(retimings.c.uuid).where(retimings.c.trial_id == trial_id)).scalars())
    for entry in line.retimings:
        if entry.uuid not in here:
            measured = Measurement(tuple(entry.samples_ns), tuple(entry.warmup_ns), entry.cache)
            queries.retime(connection, trial_id, entry.driver, measured, uuid=entry.uuid, taken=entry.taken)
    return int(known is None)


def _columns(line: Line, number: int, search_id: int, device_ids: list[int]) -> dict[str, Any]:
    position = line.device_number
    if position is not None and not 0 <= position < len(device_ids):
        raise StoreError(f"device_number: {position} is none of its {len(device_ids)} devices", where=f"line {number}")
    measured = None
    if line.samples_ns is not None:
        measured = Measurement(tuple(line.samples_ns), tuple(line.warmup_ns or ()), line.cache or "warm")
    timed = line.model_dump(
        include={"max_error", "build_s", "verify_s", "time_s", "device_index", "started", "finished"}
    )
    written = {name: clean(getattr(line, name)) for name in ("uuid", "reason", "build_log", "binary_hash", "driver")}
    return (
        timed
        | written
        | measurement_columns(measured)
        | {
            "search_id": search_id,
            "device_id": None if position is None else device_ids[position],
            "configuration": ordered(line.configuration),
            "configuration_hash": digest(line.configuration),
            "outcome": line.outcome.value,
            "environment": ordered(line.environment),
        }
    )
