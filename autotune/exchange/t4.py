"""T4, the results format that Kernel Tuner, KTT and others share: a JSON list of results, each with its validity.

Its schema does not define units and accepts any key. In real files, units are misspelt and the objective is named.
Source: https://github.com/odgaard/TuningSchema (T4, results-schema.json, version 1.0.0).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import IO, Any

from autotune.errors import UsageError
from autotune.exchange.document import Document, Entry, listed, moment, nanoseconds, table, text, unknown, values
from autotune.exchange.recording import MS_NS, Recording, first_ns, instant, settled, verbatim
from autotune.model import Outcome, Trial
from autotune.ranking import median

FORMAT = "t4"

VALIDITY = {
    "correct": Outcome.OK,
    "compile": Outcome.COMPILE_ERROR,
    "runtime": Outcome.LAUNCH_ERROR,
    "timeout": Outcome.TIMEOUT,
    "correctness": Outcome.WRONG_RESULT,
}
NEVER_RAN = "constraints"

UNITS_NS = {
    **dict.fromkeys(("ms", "milliseconds", "miliseconds", "millisecond"), 1e6),
    **dict.fromkeys(("us", "µs", "microseconds", "microsecond"), 1e3),
    **dict.fromkeys(("ns", "nanoseconds", "nanosecond"), 1.0),
    **dict.fromkeys(("s", "seconds", "second"), 1e9),
}
"""Names of units in files, in nanoseconds. All files of a public collection have the misspelt one."""


class T4:
    """Reads results."""

    about = "results in the T4 format"

    def recognises(self, document: Mapping[str, Any]) -> bool:
        """Whether its results have a validity."""
        results = document.get("results")
        first = results[0] if isinstance(results, list) and results else None
        return isinstance(first, dict) and "configuration" in first and "invalidity" in first

    def read(self, document: Mapping[str, Any]) -> Document:
        """Return its trials."""
        found = Document(header=unknown(document, ["results"]))
        metadata = document.get("metadata") or {}
        unit = _unit(text(table(metadata, "metadata").get("timeunit"), "metadata.timeunit"), "metadata.timeunit")
        for place, told in enumerate(listed(document.get("results"), "results")):
            _take(found, table(told, f"results.{place}"), unit, f"results.{place}")
        return found


def _unit(name: str, where: str) -> float | None:
    """Return a unit of time in nanoseconds, or None if none is named. Raises UsageError for an unknown one."""
    if name and name.lower() not in UNITS_NS:
        raise UsageError(f"no unit of time {name!r:.40}", where=where, hint="known: ns, us, ms, s, and their names")
    return UNITS_NS[name.lower()] if name else None


def _take(found: Document, told: Mapping[str, Any], unit: float | None, where: str) -> None:
    """Add a result to the document, or count why it is left out."""
    validity = text(told.get("invalidity"), f"{where}.invalidity")
    if validity == NEVER_RAN:
        found.left_out["excluded by the tool's constraints, never run"] += 1
        return
    if validity not in VALIDITY:
        hint = f"known: {', '.join((*VALIDITY, NEVER_RAN))}"
        raise UsageError(f"no validity {validity!r:.40}", where=f"{where}.invalidity", hint=hint)
    configuration = values(told.get("configuration"), f"{where}.configuration")
    outcome = VALIDITY[validity]
    if outcome is Outcome.OK and _is_wrong(told.get("correctness", 1), f"{where}.correctness"):
        outcome = Outcome.WRONG_RESULT
    time_ns = None if outcome.failed else _time_ns(told, unit, where)
    if time_ns is None and outcome is Outcome.OK:
        found.left_out["without a possible time"] += 1
        return
    rest = unknown(told, ["configuration"])
    found.entries.append(Entry(configuration, outcome, time_ns, moment(told.get("timestamp")), rest))


def _is_wrong(correctness: object, where: str) -> bool:
    if not isinstance(correctness, int | float):
        raise UsageError(f"is not a number: {correctness!r:.40}", where=where)
    return correctness < 1


def _time_ns(told: Mapping[str, Any], unit: float | None, where: str) -> int | None:
    """Return the time that its objective names, else the median of the runtimes, else None."""
    objectives = listed(told.get("objectives", []), f"{where}.objectives")
    for place, entry in enumerate(listed(told.get("measurements", []), f"{where}.measurements")):
        at = f"{where}.measurements.{place}"
        measured = table(entry, at)
        if measured.get("name") in (objectives or ["time"]):
            own = _unit(text(measured.get("unit"), f"{at}.unit"), f"{at}.unit")
            return nanoseconds(measured.get("value"), own or unit or MS_NS, f"{at}.value")
    times = table(told.get("times"), f"{where}.times")
    runs = listed(times.get("runtimes", []), f"{where}.times.runtimes")
    taken = [nanoseconds(run, unit or MS_NS, f"{where}.times.runtimes") for run in runs]
    sound = [run for run in taken if run is not None]
    return round(median(sound)) if sound else None


# Out -------------------------------------------------------------------------------------------------------

_VALIDITY = {outcome: name for name, outcome in VALIDITY.items()}


def write(recordings: Sequence[Recording], out: IO[str]) -> Counter[str]:
    """Write the one problem as T4 results. T4 cannot express a trial that was stopped early."""
    (recording,) = recordings
    trials, left_out = settled(recording)
    header = recording.under({"schema_version": "1.0.0", "metadata": {"timeunit": "milliseconds"}}, FORMAT)
    out.write(json.dumps(header)[:-1] + ', "results": [')
    for place, trial in enumerate(trials):
        out.write(("," if place else "") + "\n" + json.dumps(_result(trial)))
    out.write("\n]}\n")
    return left_out


def _result(trial: Trial) -> dict[str, Any]:
    configuration = dict(trial.configuration)
    if (told := verbatim(trial, FORMAT)) is not None:
        return {"configuration": {**configuration, **told[1]}, **told[0]}
    passed, measured = trial.outcome is Outcome.OK, trial.measurement
    runs = measured.samples_ns if passed and measured is not None else ()
    times = {
        "compilation_time": trial.build_s * 1e3,
        "benchmark": trial.time_s * 1e3,
        "framework": 0,
        "search_algorithm": 0,
        "validation": trial.verify_s * 1e3,
        "runtimes": [run / MS_NS for run in runs],
    }
    return {
        "timestamp": instant(trial),
        "configuration": configuration,
        "objectives": ["time"],
        "times": times,
        "invalidity": _VALIDITY.get(trial.outcome, "runtime"),
        "correctness": 0 if trial.outcome is Outcome.WRONG_RESULT else 1,
        "measurements": [{"name": "time", "value": first_ns(trial) / MS_NS, "unit": "ms"}] if passed else [],
    }
