"""What another tool's file says, whatever its format, and how its values are read: each is checked as it enters."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, Protocol

from autotune.errors import UsageError
from autotune.model import Outcome
from autotune.store import in_utc

LONGEST_NS = 2**62
"""No run takes this long: 146 years."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One trial as its tool wrote it: `configuration` with the tool's names, `time_ns` that the tool ranks by (None:
    failed).

    `rest` is everything else in the entry; an export to the same format writes it again.
    """

    configuration: Mapping[str, Any]
    outcome: Outcome
    time_ns: int | None = None
    taken: datetime | None = None
    rest: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Document:
    """A file: its trials, their device and kernel ("" if it does not say), and everything else in `header`.

    `size` holds the sizes that have names, `extents` those without; `element` is the OpenCL type of its numbers ("" if
    it does not say). `left_out` counts by reason what is not a trial.
    """

    entries: list[Entry] = field(default_factory=list)
    device: str = ""
    kernel: str = ""
    size: Mapping[str, int] = field(default_factory=dict)
    extents: Sequence[int] = ()
    element: str = ""
    header: Mapping[str, Any] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)

    @cached_property
    def throughout(self) -> Mapping[str, Any]:
        """The parameters that have one value in all trials, 2.0 as 2. A tool without sizes has its sizes there.

        Computed once, so read the whole file first.
        """
        first = self.entries[0].configuration if self.entries else {}
        return {
            name: int(value) if isinstance(value, float) and value.is_integer() else value
            for name, value in first.items()
            if all(entry.configuration.get(name) == value for entry in self.entries)
        }

    def add(self, entry: Entry) -> None:
        """Add a trial; a trial that passed in an impossible time is counted as left out."""
        if entry.time_ns is None and not entry.outcome.failed:
            self.left_out["with an impossible time"] += 1
        else:
            self.entries.append(entry)


class Reader(Protocol):
    """A format that is read: `recognises` looks at the top of a file, `read` parses it.

    `read` raises UsageError, with the place within the file, for what is not of the format.
    """

    about: str

    def recognises(self, document: Mapping[str, Any]) -> bool:
        """Whether a JSON document is of this format, by the keys at its top."""

    def read(self, document: Mapping[str, Any]) -> Document:
        """Return what a document of this format says."""


# Values of a file -----------------------------------------------------------------------------------------


def table(value: object, where: str) -> dict[str, Any]:
    """Return a JSON object. Raises UsageError at `where`."""
    if not isinstance(value, dict):
        raise UsageError(f"is not a JSON object: {value!r:.40}", where=where)
    return value


def listed(value: object, where: str) -> list[Any]:
    """Return a JSON array. Raises UsageError at `where`."""
    if not isinstance(value, list):
        raise UsageError(f"is not a JSON array: {value!r:.40}", where=where)
    return value


def text(value: object, where: str) -> str:
    """Return a JSON string, or "" for null. Raises UsageError at `where`."""
    if value is not None and not isinstance(value, str):
        raise UsageError(f"is not text: {value!r:.40}", where=where)
    return value or ""


def values(configuration: object, where: str) -> dict[str, Any]:
    """Return the names and values of a configuration. Raises UsageError for a value that is neither number nor text."""
    for name, value in table(configuration, where).items():
        if not isinstance(value, bool | int | float | str):
            raise UsageError(f"is neither a number nor text: {value!r:.40}", where=f"{where}.{name:.64}")
    return table(configuration, where)


def nanoseconds(value: object, unit_ns: float, where: str) -> int | None:
    """Return a time in whole nanoseconds; None for one that no kernel takes. Raises UsageError if it is no number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(f"is not a time: {value!r:.40}", where=where)
    try:
        time_ns = float(value) * unit_ns
    except OverflowError:
        return None
    return round(time_ns) if math.isfinite(time_ns) and 0.5 < time_ns < LONGEST_NS else None


def moment(value: object) -> datetime | None:
    """Return an instant, or None for what cannot be read as one."""
    if not isinstance(value, str):
        return None
    try:
        return in_utc(datetime.fromisoformat(value.removesuffix(" UTC")))
    except (ValueError, OverflowError):
        return None


def unknown(rest: Mapping[str, Any], known: Sequence[str]) -> dict[str, Any]:
    """Return the fields of a table except the known ones."""
    return {name: value for name, value in rest.items() if name not in known}


def one_kernel(known: set[str], name: str) -> None:
    """Add the kernel that a result is of. Raises UsageError for a second kernel: each needs a study of its own."""
    known |= {name} - {""}
    if len(known) > 1:
        names = ", ".join(f"{one:.40}" for one in sorted(known))
        raise UsageError(f"holds results of several kernels: {names}", hint="import a file for each, with its study")
