"""Trials as lines of JSON: each has one trial and all that it belongs to, so lines can be removed and mixed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr, ValidationError, create_model
from sqlalchemy import Connection, select

from autotune.errors import StoreError
from autotune.identity import STUDY_NAME
from autotune.model import Trial
from autotune.store import queries
from autotune.store.fields import (
    FIELDS,
    MEASUREMENT,
    Count,
    Facts,
    Instant,
    Nanoseconds,
    Number,
    Samples,
    Text,
    entries,
    shown,
    trial_columns,
    trial_from,
)
from autotune.store.location import CAME_IN, IMPORTED, TIMED_ELSEWHERE, UNSOUND
from autotune.store.records import PAGE, Columns, ordered
from autotune.store.schema import devices, search_devices, searches, trials
from autotune.study import Name, Value

FORMAT = 1
"""The version of a line. A reader refuses newer ones."""

HINT = "import reads the JSON lines of autotune export, not its CSV; nothing was imported"


Word = Annotated[Text, Field(min_length=1, max_length=200)]

_MOST_NAMES, _OF_EACH = 200_000, 10
"""The most names in a line, and how many names each table counts as in addition, even an empty one. Each wrong name is
an error of its own, so that a line with too many would take minutes, and gigabytes, to refuse. There are thousands of
re-timings at most."""


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid")


Generation = Annotated[Count, Field(le=1_000_000)]
"""How often a problem was started over: far below the limit of the column, since `--fresh` adds one."""


class Search(_Table):
    """The search of a trial, with its devices as OpenCL described them."""

    uuid: Word
    generation: Generation
    sampler: Text
    seed: Number | None
    environment: Facts
    started: Instant
    ended: Instant | None
    reason: Text
    devices: Annotated[list[dict[str, Any]], Field(fail_fast=True)]


class Retiming(_Table):
    """A final, interleaved timing."""

    uuid: Word
    driver: Text
    samples_ns: Annotated[Samples, Field(min_length=1)]
    warmup_ns: Nanoseconds
    cache: Literal["warm", "cold"]
    taken: Instant


class Line(_Table):
    """One line: one trial, with the fields in FIELDS, and all that it belongs to."""

    format: Literal[1]
    uuid: Word
    study: Annotated[StrictStr, Field(pattern=f"^{STUDY_NAME}$")]
    kernel_hash: Word
    study_hash: Word
    device: Annotated[StrictStr, Field(pattern="^[a-z0-9-]{1,200}$")]
    size: dict[Name, Annotated[StrictInt, Field(ge=1, lt=2**31)]]
    choices: dict[Name, Value]
    device_number: Count | None  # position in the search's devices
    retimings: Annotated[list[Retiming], Field(fail_fast=True)]
    search: Search


_Whole = create_model("_Whole", __base__=Line, **entries(FIELDS))
_Own = create_model("_Own", __base__=_Table, **entries(FIELDS))
_JSON = ("size", "choices", "environment")
_Belongings = dict[int, tuple[dict[str, Any], list[int]]]
"""Searches by number, each with the numbers of its devices."""


def export_lines(connection: Connection) -> Iterator[str]:
    """Yield every trial as one line, in the order in which they were stored."""
    belongings: _Belongings = {}
    query = queries.everything().order_by(trials.c.id).execution_options(yield_per=PAGE)
    for page in connection.execute(query).mappings().partitions():
        yield from _lines(connection, page, belongings)


def export_page(connection: Connection, after: int) -> tuple[list[str], int]:
    """Return a page of lines of the trials after a number, and the number of the last one."""
    query = queries.everything().where(trials.c.id > after).order_by(trials.c.id).limit(PAGE)
    page = connection.execute(query).mappings().all()
    return list(_lines(connection, page, {})), page[-1]["id"] if page else after


def _lines(connection: Connection, page: Sequence[Columns], belongings: _Belongings) -> Iterator[str]:
    """Yield the lines of some trials; `belongings` caches their searches."""
    retimed = queries.all_retimings(connection, [row["id"] for row in page])
    for row in page:
        search_id = row["search_id"]
        if search_id not in belongings:
            belongings[search_id] = _search(connection, search_id)
        search, numbers = belongings[search_id]
        line = {name: _loaded(name, row[name]) for name in Line.model_fields if name in row}
        line |= shown(row)
        for mark in (CAME_IN, TIMED_ELSEWHERE):
            line["environment"].pop(mark, None)
        line["format"] = FORMAT
        line["device_number"] = numbers.index(row["device_id"]) if row["device_id"] in numbers else None
        line["retimings"] = [_retiming(entry) for entry in retimed.get(row["id"], [])]
        yield ordered({name: line[name] for name in _Whole.model_fields if name != "search"} | {"search": search})


def _loaded(name: str, value: Any) -> Any:
    return json.loads(value) if name in _JSON else value


def _retiming(row: Columns) -> dict[str, Any]:
    measured = shown(row, MEASUREMENT)
    return {name: measured.get(name, row[name]) for name in Retiming.model_fields}


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


class _TooManyNames(Exception):
    pass


class _Counting:
    """Builds the tables of a line while it is parsed. Raises _TooManyNames."""

    def __init__(self) -> None:
        self._left = _MOST_NAMES

    def __call__(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        self._left -= len(pairs) + _OF_EACH
        if self._left < 0:
            raise _TooManyNames
        return dict(pairs)


def parsed(text: str, where: str) -> tuple[Line, Trial]:
    """Return an exported line from its text, and its trial.

    Raises StoreError at `where` for any text that is not such a line.
    """
    try:
        table = json.loads(text, object_pairs_hook=_Counting())
    except _TooManyNames:
        raise StoreError(f"holds more than {_MOST_NAMES:,} names, unlike any trial", where=where, hint=HINT) from None
    except (ValueError, RecursionError) as error:  # a ValueError also of a number of thousands of digits
        raise StoreError(f"is not JSON: {error}", where=where, hint=HINT) from None
    if not isinstance(table, dict):
        raise StoreError("is not a JSON object", where=where, hint=HINT)
    if type(table.get("format")) is int and table["format"] > FORMAT:
        raise StoreError(
            f"is of format {table['format']}, newer than {FORMAT}",
            where=where,
            hint="update autotune; nothing was imported",
        )
    try:
        line = _Whole.model_validate(table)
    except ValidationError as error:
        raise StoreError(_fault(error), where=where, hint=HINT) from None
    trial = _trial(line)
    if trial.outcome.ended and trial.finished is None:
        raise StoreError("finished: an instant is missing", where=where, hint=HINT)
    if (trial.origin is None) != (line.search.sampler != IMPORTED) or (trial.origin is not None and line.retimings):
        raise StoreError("origin: not that of its search", where=where, hint=HINT)
    return line, trial


def entered(trial: Trial) -> Trial:
    """Return a trial from another machine as it would be if stored and read again, without its re-timing.

    Raises StoreError for any trial that an import would not take.
    """
    try:
        return _trial(_Own.model_validate(shown(trial_columns(trial))))
    except ValidationError as error:
        raise StoreError(_fault(error)) from None
    except UNSOUND as error:
        raise StoreError(f"{type(error).__name__}: {error}") from None


def _trial(line: BaseModel) -> Trial:
    return trial_from({field.name: getattr(line, field.name) for field in FIELDS if field.derived is None})


def _fault(error: ValidationError) -> str:
    """Return the first error as text: errors in the trial itself come before those in its search."""
    first = min(error.errors(include_url=False), key=lambda found: found["loc"][:1] == ("search",))
    place = f"{'.'.join(str(part) for part in first['loc']):.200}: ".removeprefix(": ")
    return place + first["msg"].removeprefix("Value error, ")
