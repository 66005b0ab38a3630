"""The stored form of a trial, each field once: its column, its entry in a line of JSON, and the conversions.

Tables, rows, exported lines and the checks of imported ones all use FIELDS. A new field of a trial needs an attribute
of model.Trial, its line at the end here, with `added=True`, and a migration.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, Field, StrictInt, StrictStr
from sqlalchemy import Column, Double, Integer
from sqlalchemy import Text as TextColumn

from autotune.identity import digest
from autotune.model import Measurement, Outcome, StoredSamples, Trial
from autotune.ranking import median
from autotune.store.records import Columns, in_utc, instant, mapping, number, ordered, text
from autotune.study import Name, Value, refusing
from autotune.text import clean

# Entries of a line of JSON, as pydantic checks them --------------------------------------------------------


def _moment(told: str) -> datetime:
    try:
        return in_utc(datetime.fromisoformat(told))
    except OverflowError:
        raise ValueError("is beyond the years that can be stored") from None


def _samples(values: list[int]) -> list[int]:
    if median(values) == 0:
        raise ValueError("a time must be above 0")
    return values


MOST_SAMPLES = 2**17
"""The most run times of one trial or re-timing: far more than the finalists' time has room for."""

MOST_WORK = 1e300
"""The limit of a run's operations or bytes, also for whole numbers of any length: beyond it they are no float."""


def _made_fault(entry: object) -> str:
    """Return what is wrong with a trial's entry about its build; "" if it is valid."""
    known = {"options", "launches", "flops", "bytes", "work"}
    if not isinstance(entry, dict) or set(entry) - {"times", "offsets"} != known:
        return "is not options, launches, flops, bytes and work"
    amounts = (entry["flops"], entry["bytes"])
    sound = (
        _are(entry["options"], str)
        and isinstance(entry["launches"], list)
        and all(map(_is_launch, entry["launches"]))
        and _are(entry.get("times", []), int)
        and isinstance(entry.get("offsets", []), list)
        and all(_are(offset, int) for offset in entry.get("offsets", []))
        and all(amount is None or (type(amount) in (int, float) and abs(amount) < MOST_WORK) for amount in amounts)
        and isinstance(entry["work"], dict)
        and _are(list(entry["work"].values()), str)
    )
    return "" if sound else "holds values that a build cannot have"


def _is_launch(entry: object) -> bool:
    """Whether it is an entry point, its global size and its local size, or null if the driver chooses that."""
    if not isinstance(entry, list) or len(entry) != 3 or not isinstance(entry[0], str):
        return False
    return _are(entry[1], int) and (entry[2] is None or _are(entry[2], int))


def _are(entries: object, kind: type) -> bool:
    return isinstance(entries, list) and {kind}.issuperset(map(type, entries))


MOST_ENTRY = 2**20
"""The most characters that another tool may have written for one trial."""


def origin_fault(entry: object) -> str:
    """Return what is wrong with a trial's entry about the tool that made it; "" if it is valid."""
    if not isinstance(entry, dict) or set(entry) != {"format", "file", "entry"}:
        return "is not format, file and entry"
    if not _are(list(entry.values()), str) or not re.fullmatch(r"[a-z0-9-]{1,40}", entry["format"]):
        return "holds values that a file cannot give"
    return f"is longer than {MOST_ENTRY} characters" if len(entry["entry"]) > MOST_ENTRY else ""


Text = Annotated[StrictStr, AfterValidator(clean)]
Number = Annotated[StrictInt, Field(ge=-(2**63), lt=2**63)]
Count = Annotated[StrictInt, Field(ge=0, lt=2**31)]
Nanoseconds = Annotated[
    list[Annotated[StrictInt, Field(ge=0, lt=2**63)]], Field(max_length=MOST_SAMPLES, fail_fast=True)
]
Samples = Annotated[Nanoseconds, AfterValidator(_samples)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Facts = dict[Text, Number | Annotated[float, Field(allow_inf_nan=False)] | Text]
Moment = Annotated[StrictStr, AfterValidator(_moment)]
Instant = Annotated[Moment, AfterValidator(instant)]


# Kinds of values ------------------------------------------------------------------------------------------


class Kind(NamedTuple):
    """The stored form of a value: its column, its entry in a line, and the functions into the column and out of it.

    `take` raises ValueError for values that no trial has: anybody may have written to the file.
    """

    column: Any
    entry: Any
    put: Callable[[Any], Any]
    take: Callable[[Any], Any]
    is_json: bool = False


_WRITTEN = re.compile(r"\[[1-9][0-9]{0,17}(?:,[1-9][0-9]{0,17})*\]")
"""Times as `_integers` writes them: this match takes a fifth of the time of decoding the numbers."""


def _nanoseconds(column: object) -> Sequence[int]:
    told = text(column)
    if _WRITTEN.fullmatch(told):
        return StoredSamples(told)
    found = json.loads(told)
    if not isinstance(found, list) or not all(type(value) is int and 0 <= value < 2**63 for value in found):
        raise ValueError(f"{found!r:.40}")
    return tuple(found)


def _table(fault: Callable[[object], str]) -> Kind:
    """Return the kind of a table in which `fault` finds nothing wrong."""

    def take(column: object) -> dict[str, Any]:
        found = json.loads(text(column))
        if what := fault(found):
            raise ValueError(what)
        return dict(found)

    return Kind(TextColumn, Annotated[dict[str, Any], refusing(fault)], ordered, take, is_json=True)


def _integers(values: Iterable[int]) -> str:
    return f"[{','.join([str(int(value)) for value in values])}]"  # NumPy's integers are welcome


def _bounded(error: float) -> float:
    """Return infinity for a NaN, an error without bound; SQLite would store a NaN as NULL, which means no error."""
    return math.inf if math.isnan(error) else error


_CONFIGURATION = Kind(TextColumn, dict[Name, Value], ordered, mapping, is_json=True)
_FACTS = Kind(TextColumn, Facts, ordered, mapping, is_json=True)
_MADE, _ORIGIN = _table(_made_fault), _table(origin_fault)
_SAMPLES = Kind(TextColumn, Samples, _integers, _nanoseconds, is_json=True)
_WARMUP = Kind(TextColumn, Nanoseconds, _integers, _nanoseconds, is_json=True)
_OUTCOME = Kind(TextColumn, Outcome, str, Outcome)
_TEXT = Kind(TextColumn, Text, clean, text)
_CACHE = Kind(TextColumn, Literal["warm", "cold"], str, text)
_TIME = Kind(Double, None, float, number)
_SECONDS = Kind(Double, Seconds, float, number)
_ERROR = Kind(Double, Annotated[float, Field(ge=0)], _bounded, number)
_COUNT = Kind(Integer, Count, int, number)
_INSTANT = Kind(TextColumn, Moment, instant, lambda column: datetime.fromisoformat(text(column)))


# The fields -----------------------------------------------------------------------------------------------


class TrialField(NamedTuple):
    """A field of a trial or a measurement. A `derived` field is not in lines of JSON."""

    name: str
    kind: Kind
    optional: bool = False
    derived: Callable[[Any], Any] | None = None
    part: str = ""  # the attribute of the trial that holds it
    added: bool = False  # after the first version: older lines lack it

    def column(self) -> Column[Any]:
        """Return its column in a table."""
        return Column(self.name, self.kind.column, nullable=self.optional)

    def stored(self, record: Any) -> Any:
        """Return the value in its column for a trial or a measurement."""
        owner = attrgetter(self.part)(record) if self.part else record
        value = None if owner is None else (self.derived or attrgetter(self.name))(owner)
        return None if value is None else self.kind.put(value)

    def told(self, row: Columns) -> Any:
        """Return the value from a row. Raises ValueError for values that no trial has."""
        value = row[self.name]
        if value is None and self.optional:
            return None
        try:
            return self.kind.take(value)
        except ValueError as error:
            raise ValueError(f"{self.name}: {error}") from None

    def shown(self, row: Columns) -> Any:
        """Return the entry in a line of JSON for a row."""
        value = row[self.name]
        return json.loads(value) if self.kind.is_json and value is not None else value


MEASUREMENT = (
    TrialField("time_ns", _TIME, derived=lambda measured: measured.median_ns if measured.samples_ns else None),
    TrialField("samples_ns", _SAMPLES),
    TrialField("warmup_ns", _WARMUP),
    TrialField("cache", _CACHE),
)
FIELDS = (
    TrialField("configuration", _CONFIGURATION),
    TrialField("configuration_hash", _TEXT, derived=lambda trial: digest(trial.configuration)),
    TrialField("outcome", _OUTCOME),
    TrialField("reason", _TEXT),
    *(field._replace(part="measurement", optional=True) for field in MEASUREMENT),
    TrialField("max_error", _ERROR, optional=True),
    TrialField("build_s", _SECONDS),
    TrialField("verify_s", _SECONDS),
    TrialField("time_s", _SECONDS),
    TrialField("build_log", _TEXT),
    TrialField("binary_hash", _TEXT),
    TrialField("driver", _TEXT),
    TrialField("device_index", _COUNT, optional=True),
    TrialField("started", _INSTANT, optional=True),
    TrialField("finished", _INSTANT, optional=True),
    TrialField("environment", _FACTS),
    TrialField("made", _MADE, optional=True, added=True),
    TrialField("origin", _ORIGIN, optional=True, added=True),
)
"""The fields in the order of the columns; re-timings have a table of their own."""


def trial_columns(trial: Trial, fields: Iterable[TrialField] = FIELDS) -> dict[str, Any]:
    """Return the columns of `trials` for a trial, or those of some fields, without its re-timing."""
    return {field.name: field.stored(trial) for field in fields}


def measurement_columns(measurement: Measurement) -> dict[str, Any]:
    """Return the columns of `retimings` for a measurement; `time_ns` is None without samples."""
    return {field.name: field.stored(measurement) for field in MEASUREMENT}


def trial_of(row: Columns, retimed: Columns | None, generation: int = 0) -> Trial:
    """Return the trial that a row of `trials` holds, with the latest row of its `retimings`.

    Raises ValueError for values that no trial has.
    """
    again = None if retimed is None else _measurement(told(retimed, MEASUREMENT), text(retimed["taken"]))
    values = told(row, FIELDS)
    values["samples_ns"] = _with_median(values["samples_ns"], row["time_ns"])
    return trial_from(values, again, generation)


def trial_from(values: Mapping[str, Any], retimed: Measurement | None = None, generation: int = 0) -> Trial:
    """Return the trial with these values of FIELDS."""
    own = {field.name: values[field.name] for field in FIELDS if not field.part and field.derived is None}
    return Trial(**own, measurement=_measurement(values), retimed=retimed, generation=generation)


def told(row: Columns, fields: Iterable[TrialField]) -> dict[str, Any]:
    """Return the values of the fields that are in lines of JSON."""
    return {field.name: field.told(row) for field in fields if field.derived is None}


def shown(row: Columns, fields: Iterable[TrialField] = FIELDS) -> dict[str, Any]:
    """Return the entries of these fields in a line of JSON."""
    return {field.name: field.shown(row) for field in fields if field.derived is None}


def _measurement(values: Mapping[str, Any], taken: str = "") -> Measurement | None:
    if values["samples_ns"] is None:
        return None
    samples, warmup = (_kept(values[name] or ()) for name in ("samples_ns", "warmup_ns"))
    return Measurement(samples, warmup, values["cache"] or "warm", taken=taken)


def _kept(samples: Sequence[int]) -> Sequence[int]:
    """Return stored samples as they are, all others as a tuple: an imported line has a list."""
    return samples if isinstance(samples, StoredSamples) else tuple(samples)


def _with_median(samples: Sequence[int], time_ns: object) -> Sequence[int]:
    """Return samples that know their median, which has its own column."""
    return (
        StoredSamples(samples.text, time_ns)
        if isinstance(samples, StoredSamples) and isinstance(time_ns, float)
        else samples
    )


def entries(fields: Iterable[TrialField]) -> dict[str, Any]:
    """Return the entries of a line for these fields, as pydantic's `create_model` takes them."""
    return {
        field.name: (
            field.kind.entry | None if field.optional else field.kind.entry,
            None if field.added else ...,
        )
        for field in fields
        if field.derived is None
    }
