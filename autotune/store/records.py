"""Convert keys and devices to columns and back; the stored form of instants and JSON. Standard library only."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import MISSING, asdict, fields
from datetime import UTC, datetime
from itertools import islice
from typing import Any, TypeVar

from autotune.errors import StoreError
from autotune.identity import ProblemKey, canonical, digest
from autotune.model import DeviceInfo, Outcome
from autotune.text import clean, plain

PAGE = 500
"""Rows per page and per IN (...): this bounds the memory, and stays below SQLite's limit of parameters."""

UNFINISHED = tuple(outcome.value for outcome in Outcome if not outcome.ended)
"""The stored outcomes of a trial that has begun and not ended."""

_Item = TypeVar("_Item")

Columns = Mapping[Any, Any]
"""A row by the names of its columns."""


def pages(items: Iterable[_Item]) -> Iterator[list[_Item]]:
    """Yield the items in lists of PAGE."""
    rest = iter(items)
    while page := list(islice(rest, PAGE)):
        yield page


def ordered(value: Any) -> str:
    """Return JSON text that keeps the order of keys: a configuration reads in its study's order."""
    return _ENCODER.encode(plain(value))


_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)


def now() -> str:
    """Return this instant as stored."""
    return instant(datetime.now(UTC))


def instant(moment: datetime) -> str:
    """Return an instant as stored: UTC, microseconds always written. One without a zone is taken as UTC."""
    return in_utc(moment).isoformat(timespec="microseconds")


def in_utc(moment: datetime) -> datetime:
    """Return an instant in UTC; one without a zone is taken as UTC. Raises OverflowError outside datetime's years."""
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


def key_of(row: Columns) -> ProblemKey:
    """Return the key in a row of `problems`. Raises ValueError for values that no key has."""
    size = mapping(row["size"])
    if not all(type(value) is int for value in size.values()):
        raise ValueError(f"size: {row['size']}")
    return ProblemKey(
        **{name: text(row[name]) for name in ("study", "kernel_hash", "study_hash", "device")},
        size=size,
        choices=mapping(row["choices"]),
    )


def device_columns(device: DeviceInfo, told: Container[str] | None = None) -> dict[str, str]:
    """Return the columns of `devices` for a device as OpenCL described it.

    `told`: the only facts to keep, for a device described by an older version that asked for fewer.
    """
    facts = {name: value for name, value in asdict(device).items() if told is None or name in told}
    if device.backend == "opencl":  # as before there were other backends
        facts.pop("backend", None)
    if device.images:  # as before this was asked
        facts.pop("images", None)
    return {
        "facts_hash": digest(facts),
        "fingerprint": device.fingerprint,
        "name": clean(device.name),
        "driver": clean(device.driver),
        "facts": canonical(facts),
    }


def device_of(facts: Mapping[str, Any]) -> DeviceInfo:
    """Return the device that a `facts` mapping describes; facts that this version does not know are left out.

    Raises StoreError if a fact is missing or not valid.
    """
    values: dict[str, Any] = {}
    for field in fields(DeviceInfo):
        if field.name in facts:
            value = facts[field.name]
            also = _MORE_OF.get(field.name)
            if not _FACTS[str(field.type)](value) or (also is not None and not also(value)):
                raise StoreError(f"{field.name} cannot be {value!r:.60}")
            values[field.name] = tuple(value) if isinstance(value, list) else value
        elif field.default is MISSING:
            raise StoreError(f"{field.name} is missing")
    return DeviceInfo(**values)


def _is_whole(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and clean(value) == value


def _are(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda values: isinstance(values, list | tuple) and all(map(check, values))


_FACTS: Mapping[str, Callable[[Any], bool]] = {
    "int": _is_whole,
    "str": _is_text,
    "bool": lambda value: isinstance(value, bool),
    "tuple[int, ...]": _are(_is_whole),
    "tuple[str, ...]": _are(_is_text),
}
"""The check of a device's fact, by the type of its field."""

_MORE_OF: Mapping[str, Callable[[Any], bool]] = {
    "kind": lambda value: value in ("gpu", "cpu", "accelerator"),
    "max_work_item_sizes": lambda value: len(value) >= 3,
    "compute_capability": lambda value: re.fullmatch(r"([0-9]{1,3}\.[0-9]{1,3})?", value) is not None,
}
"""Further checks of facts that other code relies on."""


def text(column: object) -> str:
    """Return the text in a column. Raises ValueError if it has none."""
    if not isinstance(column, str):
        raise ValueError(f"{column!r:.40}")
    return column


def number(column: object) -> int | float:
    """Return the number in a column. Raises ValueError if it has none."""
    if not isinstance(column, (int, float)):  # `int | float` would be built anew for each column
        raise ValueError(f"{column!r:.40}")
    return column


_PLAIN = frozenset({bool, int, float, str})
"""The types of JSON's values except tables, lists and null."""


def mapping(column: object) -> dict[str, Any]:
    """Return the names and values in a column of JSON. Raises ValueError if it has anything else."""
    found = json.loads(text(column))
    if not isinstance(found, dict) or not _PLAIN.issuperset(map(type, found.values())):
        raise ValueError(f"{column:.40}")
    return found
