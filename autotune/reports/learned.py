"""What a problem's trials teach: which parameters matter, the best per value, the finalists, default against best.

Plain data for JSON; times in nanoseconds. One rule says which times count (`ranking.rank`). Beyond `MOST` trials, only
the fastest and every n-th of the rest are used, and `sampled` says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple, TypeGuard

from autotune import samplers
from autotune.identity import Configuration, Value, canonical
from autotune.lookup import records
from autotune.model import Outcome
from autotune.ranking import MEASURED, Event, Standing, median, median_interval, ordered, speedup
from autotune.store import Store, listing, survey
from autotune.text import giga_rate

MOST = 1200
"""How many trials are used."""

_JUDGED = 300
"""How many configurations are used to estimate the importance of parameters."""

_FINALISTS = 8


class Measured(NamedTuple):
    """A configuration with the time that counts for it."""

    configuration: Configuration
    standing: Standing

    @property
    def trial(self) -> int:
        """The number of the trial."""
        return self.standing.event.order[0]

    @property
    def time_ns(self) -> float:
        """The time in nanoseconds."""
        return self.standing.event.time_ns


class Sample(NamedTuple):
    """What is known of a problem: verified configurations, fastest first, and those without a time.

    `ranked` are the first trials of the ranking, or all; `others` are configurations without a time, with their
    outcome. `trials` counts the finished trials from the answering generation on; with `stride` above 1 not all were
    used.
    """

    measured: list[Measured]
    others: list[survey.Row]
    ranked: list[int]
    trials: int
    stride: int
    driver: str

    @property
    def best(self) -> int | None:
        """The number of the best trial by the ranking, or None if nothing passed."""
        return self.ranked[0] if self.ranked else None

    @property
    def best_ns(self) -> float:
        """The time of the best, or NaN if there is none."""
        return ordered([one.standing for one in self.measured])[0].time_ns if self.measured else math.nan


def sample(store: Store, problem: int, *, most: int = MOST) -> Sample:
    """Return what there is to learn from a problem, under the driver of its latest trial.

    Raises StoreError for a database that holds impossible values.
    """
    with listing.sound(store):
        return _sample(store, problem, most)


def _sample(store: Store, problem: int, most: int) -> Sample:
    searches = [one.number for one in listing.answering(store, problem)]
    total = survey.by_outcome(survey.tally(store, searches)).total()
    found = survey.sampled(store, searches, most, total)
    database = records.of_store(store)
    ranking = database.ranking(problem, "", whole=found.stride == 1)
    driver = ranking.entries[0].driver if ranking.entries else ""
    rows = {row.number: row for row in found.rows}
    times = {entry.order[0]: entry for entry in ranking.entries}
    rows |= survey.trials_of(store, [number for number in times if number not in rows])
    if not times.keys() <= rows.keys() or not all(_is_time(entry.time_ns) for entry in times.values()):
        raise ValueError("a time belongs to no trial, or is invalid")
    passed = [row for row in found.rows if row.outcome is Outcome.OK and row.driver == driver]
    if found.stride > 1:  # the ranking has only the fastest: of each other one, the latest measurement counts
        known = {rows[number].name for number in times}
        latest = {row.name: row for row in passed if row.name not in known and _is_time(row.time_ns)}
        times |= {row.number: _event(row, ranking.generation) for row in latest.values()}
    firsts = {row.name: row.time_ns for row in passed if _is_time(row.time_ns)}  # the latest of each
    measured = [_measured(entry, rows[number], firsts) for number, entry in times.items()]
    named = {rows[number].name for number in times}
    untimed = {row.name: row for row in found.rows if row.outcome.failed or row.outcome is Outcome.STOPPED}
    others = [row for name, row in untimed.items() if name not in named]
    shown = [entry.order[0] for entry in ranking.entries]
    trials = database.trials(problem, ranking.generation)
    return Sample(sorted(measured, key=lambda one: one.time_ns), others, shown, trials, found.stride, driver)


def _event(row: survey.Row, generation: int) -> Event:
    return Event(MEASURED, row.name, row.driver, generation, (row.number, 0), row.time_ns or math.nan)


def _measured(entry: Event, row: survey.Row, firsts: Mapping[str, float]) -> Measured:
    """Return a trial with its ranked time; `firsts` has the times of configurations before they were timed again.
    Without one, the trial's own time is used.
    """
    first = firsts.get(row.name, row.time_ns if _is_time(row.time_ns) else entry.time_ns)
    return Measured(row.configuration, Standing(entry, first, row.number))


def _is_time(ns: float | None) -> TypeGuard[float]:
    return ns is not None and 0 < ns < math.inf


def learned(store: Store, problem: int, known: Sample, default: Configuration | str) -> dict[str, Any]:
    """Return what a problem's sample teaches; `default` is the study's default configuration, or why it is not known.

    Raises StoreError as `sample` does.
    """
    with listing.sound(store):
        parameters = parameters_of(known)
        return {
            "trials": known.trials,
            "configurations": len(known.measured) + len(known.others),
            "verified": len(known.measured),
            "sampled": known.stride > 1,
            "stride": known.stride,
            "driver": known.driver,
            "parameters": parameters,
            "importance": importance(known),
            "judged": min(_JUDGED, len(known.measured)),
            "values": per_value(known, parameters),
            "finalists": finalists(store, problem, known),
            "gain": gain(store, known, default),
        }


def parameters_of(known: Sample) -> dict[str, list[Value]]:
    """Return each parameter with the values that were tried: numbers in their order, texts in alphabetical order."""
    found: dict[str, dict[Value, None]] = {}
    for configuration in (*(one.configuration for one in known.measured), *(row.configuration for row in known.others)):
        for name, value in configuration.items():
            found.setdefault(name, {}).setdefault(value)
    texts = {name for name, values in found.items() if any(isinstance(value, str) for value in values)}
    return {name: sorted(values, key=str if name in texts else float) for name, values in found.items()}


def importance(known: Sample) -> list[dict[str, Any]]:
    """Return `parameter` and its `share` in what makes a configuration one of the fastest tenth, most important first.

    Estimated by PED-ANOVA from at most 300 configurations, every n-th by rank; empty if too few are known.
    """
    whole = [one for one in known.measured if one.configuration.keys() == known.measured[0].configuration.keys()]
    step = max(1, math.ceil(len(whole) / _JUDGED))
    some = whole[::step]
    found = samplers.importances([one.configuration for one in some], [one.time_ns for one in some])
    return [{"parameter": name, "share": share} for name, share in found.items()]


def per_value(known: Sample, parameters: Mapping[str, Sequence[Value]]) -> dict[str, list[dict[str, Any]]]:
    """Return, for each parameter, its values: the best time with it, its share, its trial; how many were tried."""
    best_ns = known.best_ns
    found: dict[str, list[dict[str, Any]]] = {}
    for name, values in parameters.items():
        groups = {value: _Group([], []) for value in values}
        for one in known.measured:
            if name in one.configuration:
                groups[one.configuration[name]].passed.append(one.standing)
        for row in known.others:
            if name in row.configuration:
                groups[row.configuration[name]].missed.append(row.outcome)
        found[name] = [{"value": value, **group.told(best_ns)} for value, group in groups.items()]
    return found


def heat_maps(known: Sample, importance: Sequence[Mapping[str, Any]], most: int) -> list[dict[str, Any]]:
    """Return a heat map of every pair of the `most` important parameters that vary; the two most important first."""
    varying = varying_of(known, importance)[:most]
    return [heat_map(known, across, down) for down, across in combinations(varying, 2)]


def varying_of(known: Sample, importance: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the parameters of which more than one value was tried, most important first."""
    return by_importance((name for name, values in parameters_of(known).items() if len(values) > 1), importance)


def by_importance(names: Iterable[str], importance: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return parameters, most important first; those of unknown importance at the end."""
    places = {one["parameter"]: place for place, one in enumerate(importance)}
    return sorted(names, key=lambda name: places.get(name, len(places)))


class _Group(NamedTuple):
    """Configurations that share a value, or two: those with a time, and the outcomes of the others."""

    passed: list[Standing]
    missed: list[Outcome]

    def told(self, best_ns: float) -> dict[str, Any]:
        """Return its best by the one rule, and counts: a trial that neither passed nor failed was stopped early."""
        best = ordered(self.passed)[0] if self.passed else None
        counts = {"tried": len(self.passed) + len(self.missed), "verified": len(self.passed)}
        counts["failed"] = sum(outcome.failed for outcome in self.missed)
        if best is None:
            return {"time_ns": None, "trial": None, "share": None, **counts}
        # A configuration that was timed once may have less than the best of those that were timed again.
        return {"time_ns": best.time_ns, "trial": best.order[0], "share": min(1.0, best_ns / best.time_ns), **counts}


def heat_map(known: Sample, across: str, down: str) -> dict[str, Any]:
    """Return the best time of each pair of values of two parameters.

    `cells` has a row per value of `down` and a column per value of `across`: `time_ns`, `trial` and `share` of the
    best, None if nothing passed; `tried` counts all, `verified` and `failed` some: the others were stopped early.
    """
    parameters = parameters_of(known)
    columns, rows = parameters.get(across, []), parameters.get(down, [])
    row_of, column_of = ({value: place for place, value in enumerate(values)} for values in (rows, columns))
    groups = [[_Group([], []) for _ in columns] for _ in rows]

    def group(configuration: Configuration) -> _Group:
        row, column = row_of.get(configuration.get(down, "")), column_of.get(configuration.get(across, ""))
        return _Group([], []) if row is None or column is None else groups[row][column]

    for one in known.measured:
        group(one.configuration).passed.append(one.standing)
    for row in known.others:
        group(row.configuration).missed.append(row.outcome)
    best_ns = known.best_ns
    cells = [[one.told(best_ns) for one in line] for line in groups]
    return {"across": across, "down": down, "columns": columns, "rows": rows, "cells": cells}


def summary(store: Store, number: int | None) -> dict[str, Any] | None:
    """Return what is stored of a verified trial: configuration, time, 95 % interval, rates, build options.

    None if there is no such trial. Rates are None and options are empty if they are not stored.
    """
    stored = None if number is None else store.trial(number)
    if stored is None or (measured := stored.trial.measurement) is None or not measured.samples_ns:
        return None
    trial, latest, made = stored.trial, stored.trial.latest, stored.trial.made or {}
    finished = trial.finished.isoformat(timespec="microseconds") if trial.finished is not None else ""
    samples = list(latest.samples_ns)
    time = median(samples)
    return {
        "trial": number,
        "configuration": trial.configuration,
        "time_ns": time,
        "interval_ns": median_interval(samples),
        "runs": len(samples),
        "cache": measured.cache,
        "verified_runs": trial.verified_runs,
        "gflops": giga_rate(made.get("flops"), time),
        "gbytes_per_s": giga_rate(made.get("bytes"), time),
        "options": made.get("options") or [],
        "driver": trial.driver,
        "taken": latest.taken or finished,
    }


def finalists(store: Store, problem: int, known: Sample) -> list[dict[str, Any]]:
    """Return the configurations of the last finale, timed in turns, best first, each with `spread`."""
    recent = set(survey.retimed(store, problem, 4 * _FINALISTS))
    chosen = [number for number in known.ranked if number in recent][:_FINALISTS]
    again, rows = survey.retimings(store, chosen), survey.trials_of(store, chosen)
    latest = max((one.taken for one in again.values()), default="")
    return [
        {"trial": number, "configuration": dict(rows[number].configuration), **spread(again[number].samples_ns)}
        for number in chosen
        if number in again and again[number].taken == latest
    ]


def spread(samples: Sequence[int]) -> dict[str, Any]:
    """Return samples with their median, its 95 % interval, quartiles and the ends of an axis for them."""
    ordered = sorted(samples)
    half = len(ordered) // 2
    low, high = ordered[0], ordered[-1]
    return {
        "samples_ns": list(samples),
        "median_ns": median(ordered),
        "interval_ns": median_interval(ordered),
        "quartiles_ns": (median(ordered[:half] or ordered), median(ordered[-half:] or ordered)),
        "low": low,
        "high": high if high > low else low + 1,
    }


def gain(store: Store, known: Sample, default: Configuration | str) -> dict[str, Any]:
    """Return how the best compares with the study's default configuration; `why` says what is missing, if anything.

    `default` may be a text that says why it is not known. `speedup` and its `interval` need times taken in turns;
    without them they are None.
    """
    if not known.measured:
        return {"why": "no configuration has passed"}
    if isinstance(default, str):
        return {"why": default}
    # By the ranking, whose first may not have the lowest time if finalists were timed again.
    best = next((one for one in known.measured if one.trial == known.best), known.measured[0])
    named = canonical(default)
    own = next((one for one in known.measured if canonical(one.configuration) == named), None)
    if own is None:
        row = next((row for row in known.others if canonical(row.configuration) == named), None)
        return {"why": f"the default ended as {row.outcome.value}" if row else "the default has no time that counts"}
    told = {
        "best": {"trial": best.trial, "time_ns": best.time_ns, "configuration": dict(best.configuration)},
        "default": {"trial": own.trial, "time_ns": own.time_ns, "configuration": dict(own.configuration)},
        "speedup": None,
        "interval": None,
        "runs": 0,
    }
    if own.trial == best.trial:
        return told | {"why": "the best is the default configuration"}
    again = survey.retimings(store, (own.trial, best.trial))
    if len({one.taken for one in again.values()}) != 1 or len(again) < 2:
        return told | {"why": "they were not timed in turns"}
    ratio, low, high = speedup(again[own.trial].samples_ns, again[best.trial].samples_ns)
    runs = min(len(again[one.trial].samples_ns) for one in (own, best))
    return told | {"speedup": ratio, "interval": (low, high), "runs": runs, "why": ""}
