"""From what another tool's file says to trials of a study: matches names and values, counts what does not fit."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from autotune.errors import UsageError
from autotune.exchange.document import Document, Entry
from autotune.model import Configuration, Measurement, Trial, Value
from autotune.store import origin_fault
from autotune.text import did_you_mean

MOST_SHOWN = 8
"""The most values of a parameter in a message."""


@dataclass(frozen=True)
class Adopted:
    """The trials of a file that belong to a study; `left_out` counts the others by reason; `notes` are for people."""

    trials: Sequence[Trial]
    left_out: Counter[str]
    notes: Sequence[str]


def adopt(
    document: Document,
    parameters: Mapping[str, Sequence[Value]],
    *,
    format: str,
    file: str = "",
    rename: Mapping[str, str] | None = None,
    fix: Mapping[str, Sequence[str]] | None = None,
) -> Adopted:
    """Return the trials of a document that are configurations of these parameters.

    `rename` gives the study's name for a name of the file. `fix` keeps the trials with these values of a parameter, as
    they are written; a parameter that the file does not have gets that value in all trials. A parameter that only the
    file has is set aside if it has one value. Raises UsageError if a name is unknown, if the file lacks a parameter of
    the study, and if no trial fits.
    """
    renamed = _renamed(document, parameters, rename or {})
    entries, wanted = _kept(renamed, fix or {})
    aside = _aside(entries, parameters)
    filled = _filled(entries, parameters, wanted)
    left_out = Counter(document.left_out)
    if len(entries) < len(renamed):
        left_out["without the values that --fix names"] += len(renamed) - len(entries)
    trials = []
    now = datetime.now(UTC)
    for entry in entries:
        configuration, reason = _configuration({**entry.configuration, **filled}, parameters)
        if configuration is None:
            left_out[reason] += 1
            continue
        theirs = (
            name for name in configuration if type(entry.configuration.get(name)) is not type(configuration[name])
        )
        left = {name: entry.configuration[name] for name in (*aside, *theirs) if name in entry.configuration}
        trials.append(_trial(entry, configuration, left, format, file, now))
    if not trials:
        raise _none_fits(left_out)
    return Adopted(trials, left_out, _notes(aside))


def _none_fits(left_out: Counter[str]) -> UsageError:
    if not (most := (+left_out).most_common(1)):
        return UsageError("holds no trial")
    what = f"no trial in it is of the study: {most[0][1]} {most[0][0]}"
    return UsageError(what, hint="--rename THEIRS=OURS gives a parameter our name")


def _renamed(document: Document, parameters: Mapping[str, Sequence[Value]], rename: Mapping[str, str]) -> list[Entry]:
    """Return the entries under the study's names. Raises UsageError for a name that is not in the file or the study."""
    known = _names(document.entries)
    for theirs, ours in rename.items():
        if theirs not in known:
            hint = f"the file has {', '.join(known) or 'none'}"
            raise UsageError(f"no parameter {theirs!r}{did_you_mean(theirs, known)}", where="--rename", hint=hint)
        if ours not in parameters:
            hint = f"the study has {', '.join(parameters)}"
            raise UsageError(f"no parameter {ours!r}{did_you_mean(ours, parameters)}", where="--rename", hint=hint)
        if ours in known and ours not in rename:
            raise UsageError(f"the file has a parameter {ours!r} of its own", where="--rename")
    if len(set(rename.values())) < len(rename):
        raise UsageError("two parameters would have one name", where="--rename")
    return [
        replace(entry, configuration={rename.get(name, name): value for name, value in entry.configuration.items()})
        for entry in document.entries
    ]


def _names(entries: Sequence[Entry]) -> list[str]:
    return list(dict.fromkeys(name for entry in entries for name in entry.configuration))


def _kept(entries: Sequence[Entry], fix: Mapping[str, Sequence[str]]) -> tuple[list[Entry], dict[str, str]]:
    """Return the entries with the values to keep, and the one value of each parameter that the file does not have."""
    known = _names(entries)
    kept = list(entries)
    absent: dict[str, str] = {}
    for name, values in fix.items():
        if name in known:
            kept = [entry for entry in kept if str(entry.configuration.get(name)) in values]
        elif len(values) == 1:
            absent[name] = values[0]
        else:
            raise UsageError(f"{name} is given {len(values)} values, and the file tells none", where="--fix")
    return kept, absent


def _aside(entries: Sequence[Entry], parameters: Mapping[str, Sequence[Value]]) -> dict[str, Any]:
    """Return the parameters that the study does not have, each with its one value. Raises UsageError for several."""
    found = {}
    for name in _names(entries):
        if name in parameters:
            continue
        values = list(dict.fromkeys(str(entry.configuration.get(name)) for entry in entries))
        if len(values) > 1:
            shown = ", ".join(values[:MOST_SHOWN]) + (", ..." if len(values) > MOST_SHOWN else "")
            what = f"varies {name!r:.80} ({shown:.200}), which the study has not{did_you_mean(name, parameters)}"
            hint = f"--rename {name}=OURS gives it our name, --fix {name}={values[0]} keeps one value"
            raise UsageError(what, hint=f"{hint:.300}")
        found[name] = entries[0].configuration.get(name)
    return found


def _filled(
    entries: Sequence[Entry], parameters: Mapping[str, Sequence[Value]], wanted: Mapping[str, str]
) -> dict[str, Any]:
    """Return the values of parameters that are not in the file. Raises UsageError if a value is not determined."""
    for name in wanted:
        if name not in parameters:
            hint = f"the file has {', '.join(_names(entries))}; the study has {', '.join(parameters)}"
            raise UsageError(f"no parameter named {name!r}", where="--fix", hint=hint)
    told = set(_names(entries))
    missing = [name for name in parameters if name not in told]
    filled = {name: wanted.get(name, parameters[name][0]) for name in missing}
    open_ones = [name for name in missing if name not in wanted and len(parameters[name]) > 1]
    if open_ones and entries:
        values = " ".join(f"--fix {name}={parameters[name][0]}" for name in open_ones)
        what = f"does not tell {', '.join(open_ones)}, which the study tunes"
        raise UsageError(what, hint=f"--rename THEIRS=OURS if it has another name there, else say the value: {values}")
    return filled


def _configuration(
    told: Mapping[str, Any], parameters: Mapping[str, Sequence[Value]]
) -> tuple[Configuration | None, str]:
    """Return the study's configuration that a file means; None and the reason if it is not one of the study's."""
    found = {}
    for name, values in parameters.items():
        if name not in told:
            return None, f"without {name}"
        value = meant(told[name], values)
        if value is None:
            return None, f"with {name}={told[name]!s:.40}, no value of the study"
        found[name] = value
    return found, ""


def meant(told: Any, values: Sequence[Value]) -> Value | None:
    """Return the value of a list that a file means: an equal one (true is 1, 2.0 is 2), else one with the same text."""
    equal = [value for value in values if value == told] or [value for value in values if str(value) == str(told)]
    return equal[0] if equal else None


def _trial(
    entry: Entry, configuration: Configuration, aside: Mapping[str, Any], format: str, file: str, now: datetime
) -> Trial:
    """Return the trial of an entry. Raises UsageError for one that is too long or too deep to keep."""
    name = os.path.basename(file)  # noqa: PTH119  the names of folders are private
    told = json.dumps({"rest": entry.rest, "parameters": aside}, separators=(",", ":"))
    origin = {"format": format, "file": name, "entry": told}
    if fault := origin_fault(origin):
        raise UsageError(f"an entry {fault}", hint="nothing was imported")
    taken = entry.taken or now
    return Trial(
        configuration,
        entry.outcome,
        reason="" if not entry.outcome.failed else f"so says the file of {format}",
        measurement=None if entry.time_ns is None else Measurement((entry.time_ns,)),
        started=taken,
        finished=taken,
        origin=origin,
    )


def _notes(aside: Mapping[str, Any]) -> list[str]:
    if not aside:
        return []
    shown = " ".join(f"{name}={value}" for name, value in aside.items())
    return [f"set aside, with one value throughout and no parameter of the study: {shown:.300}"]
