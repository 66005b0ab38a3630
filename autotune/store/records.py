"""The records of model.py as columns of the database, and back. Standard library only."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, asdict, fields
from datetime import UTC, datetime
from typing import Any

from autotune.errors import StoreError
from autotune.identity import ProblemKey, canonical, digest
from autotune.model import DeviceInfo, Measurement, Outcome, Trial
from autotune.text import clean, plain

Columns = Mapping[Any, Any]
"""A row by the names of its columns."""


def ordered(value: Any) -> str:
    """Return JSON text that keeps the order of keys: a configuration reads in its study's order."""
    return json.dumps(plain(value), separators=(",", ":"), ensure_ascii=False)


def now() -> str:
    """Return this instant as stored."""
    return instant(datetime.now(UTC))


def instant(moment: datetime) -> str:
    """Return an instant as stored: UTC, microseconds always written. One without a zone is taken as UTC."""
    moment = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    return moment.isoformat(timespec="microseconds")


def key_of(row: Columns) -> ProblemKey:
    """Return the key that a row of `problems` holds. Raises ValueError for values that no key has."""
    size = _mapping(row, "size")
    if not all(type(value) is int for value in size.values()):
        raise ValueError(f"size: {row['size']}")
    return ProblemKey(
        study=_text(row, "study"),
        kernel_hash=_text(row, "kernel_hash"),
        study_hash=_text(row, "study_hash"),
        device=_text(row, "device"),
        size=size,
        choices=_mapping(row, "choices"),
    )


def device_columns(device: DeviceInfo) -> dict[str, str]:
    """Return the columns of `devices` for a device as OpenCL described it."""
    facts = asdict(device)
    return {
        "facts_hash": digest(facts),
        "fingerprint": device.fingerprint,
        "name": clean(device.name),
        "driver": clean(device.driver),
        "facts": canonical(facts),
    }


def device_of(facts: Mapping[str, Any]) -> DeviceInfo:
    """Return the device that a `facts` mapping describes; facts this version does not know are left out.

    Raises StoreError where a fact is missing or not of its type.
    """
    values: dict[str, Any] = {}
    for field in fields(DeviceInfo):
        if field.name in facts:
            value = facts[field.name]
            if not _FACTS[str(field.type)](value) or not _MORE_OF.get(field.name, _anything)(value):
                raise StoreError(f"{field.name} cannot be {value!r:.60}")
            values[field.name] = tuple(value) if isinstance(value, list) else value
        elif field.default is MISSING:
            raise StoreError(f"{field.name} is missing")
    return DeviceInfo(**values)


def _anything(value: Any) -> bool:
    return True


def _is_whole(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and clean(value) == value


def _are(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda values: isinstance(values, list | tuple) and all(map(check, values))


_FACTS: Mapping[str, Callable[[Any], bool]] = {
    "int": _is_whole,
    "str": _is_text,
    "tuple[int, ...]": _are(_is_whole),
    "tuple[str, ...]": _are(_is_text),
}
"""What a device's fact may be, by the type of its field."""

_MORE_OF: Mapping[str, Callable[[Any], bool]] = {
    "kind": lambda value: value in ("gpu", "cpu", "accelerator"),
    "max_work_item_sizes": lambda value: len(value) >= 3,
    "compute_capability": lambda value: re.fullmatch(r"([0-9]{1,3}\.[0-9]{1,3})?", value) is not None,
}
"""What else of it is relied on."""


def trial_columns(trial: Trial) -> dict[str, Any]:
    """Return the columns of `trials` that a finished trial fills, its configuration and re-timing apart."""
    return {
        "outcome": trial.outcome.value,
        "reason": clean(trial.reason),
        **measurement_columns(trial.measurement),
        "max_error": _error(trial.max_error),
        "build_s": trial.build_s,
        "verify_s": trial.verify_s,
        "time_s": trial.time_s,
        "build_log": clean(trial.build_log),
        "binary_hash": trial.binary_hash,
        "driver": clean(trial.driver),
        "device_index": trial.device_index,
        "started": None if trial.started is None else instant(trial.started),
        "finished": None if trial.finished is None else instant(trial.finished),
        "environment": ordered(trial.environment),
    }


def trial_of(row: Columns, retimed: Columns | None) -> Trial:
    """Return the trial that a row of `trials` holds, with the latest row of its `retimings`.

    Raises ValueError for values that no trial has: whoever writes to the file writes what he likes.
    """
    return Trial(
        configuration=_mapping(row, "configuration"),
        outcome=Outcome(row["outcome"]),
        reason=_text(row, "reason"),
        measurement=None if row["samples_ns"] is None else measurement_of(row),
        retimed=None if retimed is None else measurement_of(retimed),
        max_error=None if row["max_error"] is None else _number(row, "max_error"),
        build_s=_number(row, "build_s"),
        verify_s=_number(row, "verify_s"),
        time_s=_number(row, "time_s"),
        build_log=_text(row, "build_log"),
        binary_hash=_text(row, "binary_hash"),
        driver=_text(row, "driver"),
        device_index=None if row["device_index"] is None else int(_number(row, "device_index")),
        started=_moment(row, "started"),
        finished=_moment(row, "finished"),
        environment=_mapping(row, "environment"),
    )


def measurement_columns(measurement: Measurement | None) -> dict[str, Any]:
    """Return the columns of `trials` or `retimings` that a measurement fills; `time_ns` is None without samples."""
    if measurement is None:
        return dict.fromkeys(("time_ns", "samples_ns", "warmup_ns", "cache"))
    return {
        "time_ns": measurement.median_ns if measurement.samples_ns else None,
        "samples_ns": samples(measurement.samples_ns),
        "warmup_ns": samples(measurement.warmup_ns),
        "cache": measurement.cache,
    }


def measurement_of(row: Columns) -> Measurement:
    """Return the measurement in the columns `samples_ns`, `warmup_ns` and `cache`."""
    return Measurement(_nanoseconds(row, "samples_ns"), _nanoseconds(row, "warmup_ns"), _text(row, "cache"))


def samples(values: Iterable[int]) -> str:
    """Return nanoseconds as JSON text; NumPy's integers are welcome."""
    return ordered([int(value) for value in values])


def _error(error: float | None) -> float | None:
    """A NaN among the outputs is an error without bound; SQLite would turn a NaN into no error at all."""
    return math.inf if error is not None and math.isnan(error) else error


def _text(row: Columns, name: str) -> str:
    if not isinstance(row[name], str):
        raise ValueError(f"{name}: {row[name]!r:.40}")
    return str(row[name])


def _number(row: Columns, name: str) -> float:
    if not isinstance(row[name], int | float):
        raise ValueError(f"{name}: {row[name]!r:.40}")
    return float(row[name]) if isinstance(row[name], float) else int(row[name])


def _mapping(row: Columns, name: str) -> dict[str, Any]:
    found = json.loads(_text(row, name))
    if not isinstance(found, dict) or not all(isinstance(value, int | float | str) for value in found.values()):
        raise ValueError(f"{name}: {row[name]:.40}")
    return found


def _nanoseconds(row: Columns, name: str) -> tuple[int, ...]:
    found = json.loads(_text(row, name))
    if not isinstance(found, list) or not all(type(value) is int and 0 <= value < 2**63 for value in found):
        raise ValueError(f"{name}: {row[name]:.40}")
    return tuple(found)


def _moment(row: Columns, name: str) -> datetime | None:
    return None if row[name] is None else datetime.fromisoformat(_text(row, name))
