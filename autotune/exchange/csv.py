"""A table for spreadsheets and data frames: a row for each trial, RFC 4180, times in nanoseconds."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import IO, Any

from autotune.exchange.recording import Recording, first_ns, instant
from autotune.model import Outcome, Trial
from autotune.text import line

_ACTS = ("=", "+", "-", "@")
"""A spreadsheet treats a text with this beginning as a formula."""


def write(recordings: Sequence[Recording], out: IO[str]) -> Counter[str]:
    """Write every finished trial, also those of other tools: `origin` names their format."""
    sizes = list(dict.fromkeys(name for each in recordings for name in each.key.size))
    choices = list(dict.fromkeys(name for each in recordings for name in each.key.choices))
    parameters = list(dict.fromkeys(name for each in recordings for name in each.parameters))
    table = csv.writer(out, lineterminator="\n")
    table.writerow(["study", "device", "driver", *sizes, *choices, *parameters, *_MEASURED])
    for recording in recordings:
        key = recording.key
        problem = [*(key.size.get(name, "") for name in sizes), *(key.choices.get(name, "") for name in choices)]
        for trial in (*recording.imported, *recording.own):
            values = [trial.configuration.get(name, "") for name in parameters]
            row = [key.study, key.device, trial.driver, *problem, *values, *_measured(trial)]
            table.writerow([_cell(value) for value in row])
    return Counter()


_MEASURED = ("outcome", "time_ns", "retimed_ns", "samples_ns", "build_s", "finished", "origin", "reason")


def _measured(trial: Trial) -> Iterator[Any]:
    """Yield the columns of _MEASURED; the time of a trial that was stopped early is a lower bound."""
    told, again = trial.measurement, trial.retimed
    has_time = trial.outcome in (Outcome.OK, Outcome.STOPPED) and told is not None and bool(told.samples_ns)
    yield trial.outcome.value
    yield first_ns(trial) if has_time else ""
    yield again.median_ns if again is not None and again.samples_ns else ""
    yield " ".join(map(str, told.samples_ns)) if told is not None else ""
    yield trial.build_s
    yield instant(trial)
    yield trial.origin["format"] if trial.origin is not None else ""
    yield trial.reason


def _cell(value: Any) -> Any:
    """Return a value as a cell: text of visible characters that no spreadsheet treats as a formula."""
    if not isinstance(value, str):
        return value
    shown = line(value)
    return f"'{shown}" if shown.startswith(_ACTS) else shown
