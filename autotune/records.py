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
from autotune.key import ProblemKey, canonical, clean, digest, plain
from autotune.model import DeviceInfo, Measurement, Outcome, Trial

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
    """Return the key that a row of `problems` holds."""
    return ProblemKey(
        study=row["study"],
        kernel_hash=row["kernel_hash"],
        study_hash=row["study_hash"],
        device=row["device"],
        size=json.loads(row["size"]),
        choices=json.loads(row["choices"]),
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
    """Return the trial that a row of `trials` holds, with the latest row of its `retimings`."""
    return Trial(
        configuration=json.loads(row["configuration"]),
        outcome=Outcome(row["outcome"]),
        reason=row["reason"],
        measurement=None if row["samples_ns"] is None else measurement_of(row),
        retimed=None if retimed is None else measurement_of(retimed),
        max_error=row["max_error"],
        build_s=row["build_s"],
        verify_s=row["verify_s"],
        time_s=row["time_s"],
        build_log=row["build_log"],
        binary_hash=row["binary_hash"],
        driver=row["driver"],
        device_index=row["device_index"],
        started=_moment(row["started"]),
        finished=_moment(row["finished"]),
        environment=json.loads(row["environment"]),
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
    return Measurement(tuple(json.loads(row["samples_ns"])), tuple(json.loads(row["warmup_ns"])), row["cache"])


def samples(values: Iterable[int]) -> str:
    """Return nanoseconds as JSON text; NumPy's integers are welcome."""
    return ordered([int(value) for value in values])


def _error(error: float | None) -> float | None:
    """A NaN among the outputs is an error without bound; SQLite would turn a NaN into no error at all."""
    return math.inf if error is not None and math.isnan(error) else error


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
