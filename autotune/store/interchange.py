"""Trials as lines of JSON: each holds one trial and all that it belongs to, so that lines can be cut and mixed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StrictFloat,
    StrictInt,
    StrictStr,
    ValidationError,
    model_validator,
)
from sqlalchemy import Connection, select

from autotune.errors import StoreError
from autotune.identity import STUDY_NAME, name_fault, value_fault
from autotune.model import Outcome
from autotune.ranking import median
from autotune.store import queries
from autotune.store.records import Columns, instant, ordered
from autotune.store.tables import devices, search_devices, searches, trials
from autotune.text import clean

FORMAT = 1
"""Version of a line. A reader refuses a newer one."""

HINT = "import reads what autotune export writes; nothing was imported"


def _instant(text: str) -> str:
    try:
        return instant(datetime.fromisoformat(text))
    except OverflowError:
        raise ValueError("is beyond the years that can be told") from None


def _samples(values: list[int]) -> list[int]:
    if median(values) == 0:
        raise ValueError("no kernel runs in no time")
    return values


def _without(fault: Callable[[Any], str]) -> AfterValidator:
    """Return a validator that refuses what `fault` finds fault with."""

    def check(entry: Any) -> Any:
        if found := fault(entry):
            raise ValueError(found)
        return entry

    return AfterValidator(check)


Text = Annotated[StrictStr, AfterValidator(clean)]
Word = Annotated[Text, Field(min_length=1, max_length=200)]
Name = Annotated[StrictStr, _without(name_fault)]
Value = Annotated[StrictInt | StrictFloat | StrictStr, _without(value_fault)]
Number = Annotated[StrictInt, Field(ge=-(2**63), lt=2**63)]
Count = Annotated[StrictInt, Field(ge=0, lt=2**31)]
Nanoseconds = list[Annotated[StrictInt, Field(ge=0, lt=2**63)]]
Samples = Annotated[Nanoseconds, AfterValidator(_samples)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Facts = dict[Text, Number | Annotated[float, Field(allow_inf_nan=False)] | Text]
Instant = Annotated[StrictStr, AfterValidator(_instant)]
Cache = Literal["warm", "cold"]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Retiming(_Table):
    """A final, interleaved timing."""

    uuid: Word
    driver: Text
    samples_ns: Annotated[Samples, Field(min_length=1)]
    warmup_ns: Nanoseconds
    cache: Cache
    taken: Instant


class Search(_Table):
    """The search that a trial is of, with its devices as OpenCL described them."""

    uuid: Word
    generation: Count
    sampler: Text
    seed: Number | None
    environment: Facts
    started: Instant
    ended: Instant | None
    reason: Text
    devices: list[dict[str, Any]]


class Line(_Table):
    """One line: one trial."""

    format: Literal[1]
    uuid: Word
    study: Annotated[StrictStr, Field(pattern=f"^{STUDY_NAME}$")]
    kernel_hash: Word
    study_hash: Word
    device: Annotated[StrictStr, Field(pattern="^[a-z0-9-]{1,200}$")]
    size: dict[Name, Annotated[StrictInt, Field(ge=1, lt=2**31)]]
    choices: dict[Name, Value]
    configuration: dict[Name, Value]
    outcome: Outcome
    reason: Text
    samples_ns: Samples | None
    warmup_ns: Nanoseconds | None
    cache: Cache | None
    retimings: list[Retiming]
    max_error: Annotated[float, Field(ge=0)] | None
    build_s: Seconds
    verify_s: Seconds
    time_s: Seconds
    build_log: Text
    binary_hash: Text
    driver: Text
    device_number: Count | None  # position in the search's devices
    device_index: Count | None
    started: Instant | None
    finished: Instant | None
    environment: Facts
    search: Search

    @model_validator(mode="after")
    def _has_ended(self) -> Line:
        if self.outcome not in (Outcome.PENDING, Outcome.LOST) and self.finished is None:
            raise ValueError("finished: an instant is missing")
        return self


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


def parsed(text: str, where: str) -> Line:
    """Return a line that was exported. Raises StoreError at `where` for one that does not fit, whatever it holds."""
    try:
        table = json.loads(text)
    except (ValueError, RecursionError) as error:  # a ValueError also of a number of thousands of digits
        raise StoreError(f"is no JSON: {error}", where=where, hint=HINT) from None
    if not isinstance(table, dict):
        raise StoreError("is no JSON object", where=where, hint=HINT)
    if type(table.get("format")) is int and table["format"] > FORMAT:
        raise StoreError(
            f"is of format {table['format']}, newer than {FORMAT}",
            where=where,
            hint="update autotune; nothing was imported",
        )
    try:
        return Line.model_validate(table)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = f"{'.'.join(str(part) for part in first['loc']):.200}: ".removeprefix(": ")
        raise StoreError(place + first["msg"].removeprefix("Value error, "), where=where, hint=HINT) from None
