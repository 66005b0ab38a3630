"""Ranks what is stored for one problem. Standard library only."""

from __future__ import annotations

import json
from math import inf
from operator import attrgetter
from typing import NamedTuple

from autotune.lookup.reader import Reader
from autotune.statistics import median_interval

_MEASURED = """
SELECT t.configuration_hash, t.time_ns, t.driver, t.finished, t.id
FROM searches s JOIN trials t ON t.search_id = s.id
WHERE s.problem_id = :problem AND t.outcome = 'ok' AND t.time_ns IS NOT NULL
ORDER BY t.finished, t.id
"""
_RETIMED = """
SELECT t.configuration_hash, r.time_ns, r.driver, r.taken, t.id, r.id
FROM searches s JOIN trials t ON t.search_id = s.id JOIN retimings r ON r.trial_id = t.id
WHERE s.problem_id = :problem AND t.outcome = 'ok'
ORDER BY r.taken, r.id
"""
_FAILED = """
SELECT t.configuration_hash, t.driver, t.finished, t.outcome
FROM searches s JOIN trials t ON t.search_id = s.id
WHERE s.problem_id = :problem AND t.outcome IN ('compile_error', 'launch_error', 'wrong_result', 'timeout', 'crash')
"""
_SEARCH = "SELECT s.environment FROM searches s JOIN trials t ON t.search_id = s.id WHERE t.id = :trial"
_time = attrgetter("time_ns")
_FOREVER = "9999"  # after every instant, as text
_CLOSEST = 20
"""How many of the next in rank are looked at for ties."""


class Ranked(NamedTuple):
    """The time that counts for one configuration: nanoseconds, when and under which driver it was taken.

    `retiming` is the number of the re-timing it comes from; None where it is the first measurement.
    """

    configuration_hash: str
    time_ns: float
    driver: str
    when: str
    trial: int
    retiming: int | None = None


def rank(reader: Reader, problem: int, driver: str = "") -> list[Ranked]:
    """Return the verified configurations of a problem, best first, as measured under one driver.

    That driver is the one asked for if anything is stored under it, else the one used last. For each
    configuration its latest re-timing counts, else its latest measurement: never a minimum over repeats.
    What gave a wrong result under that driver, even once, is left out, and so is what failed last of all.

    Re-timed finalists are compared with each other: they ran interleaved, often on a warmer device than when
    they were first measured. A configuration that was never re-timed comes before them only where its first
    median is below all of theirs, so that it would have been a finalist had it been known.
    """
    asked = {"problem": problem}
    failed = _failures(reader, problem)
    entries, again = (
        [entry for entry in (Ranked(*row) for row in reader.rows(query, asked)) if not _has_failed(entry, failed)]
        for query in (_MEASURED, _RETIMED)
    )
    everything = entries + again
    if everything and not any(entry.driver == driver for entry in everything):
        driver = max(everything, key=attrgetter("when")).driver
    first = {entry.configuration_hash: entry for entry in entries if entry.driver == driver}
    retimed = {entry.configuration_hash: entry for entry in again if entry.driver == driver}
    bar = min((first.get(name, entry).time_ns for name, entry in retimed.items()), default=inf)
    rest = sorted((entry for name, entry in first.items() if name not in retimed), key=_time)
    finalists = sorted(retimed.values(), key=_time)
    return [*(e for e in rest if e.time_ns < bar), *finalists, *(e for e in rest if e.time_ns >= bar)]


def _failures(reader: Reader, problem: int) -> dict[tuple[str, str], str]:
    """Return when each configuration and driver failed last; for a wrong result, a time after all others."""
    found: dict[tuple[str, str], str] = {}
    for name, driver, finished, outcome in reader.rows(_FAILED, {"problem": problem}):
        when = _FOREVER if outcome == "wrong_result" else finished
        found[name, driver] = max(when, found.get((name, driver), ""))
    return found


def _has_failed(entry: Ranked, failed: dict[tuple[str, str], str]) -> bool:
    when = failed.get((entry.configuration_hash, entry.driver))
    return when is not None and entry.when <= when


def samples(reader: Reader, entry: Ranked) -> list[int]:
    """Return the samples behind a ranked time, in nanoseconds."""
    table, number = ("trials", entry.trial) if entry.retiming is None else ("retimings", entry.retiming)
    return [int(value) for value in json.loads(_field(reader, table, "samples_ns", number))]


def configuration(reader: Reader, entry: Ranked) -> dict[str, int | float | str]:
    """Return the configuration of a ranked time, in its study's order."""
    found: dict[str, int | float | str] = json.loads(_field(reader, "trials", "configuration", entry.trial))
    return found


def space(reader: Reader, entry: Ranked) -> str:
    """Return the hash of the space that the trial's search looked in; "" where it was not recorded."""
    ((environment,),) = reader.rows(_SEARCH, {"trial": entry.trial})
    return str(json.loads(environment).get("space", ""))


def ties(reader: Reader, ranked: list[Ranked]) -> int:
    """Return how many others cannot be told from the first: both re-timed, and their intervals overlap."""
    best = ranked[0]
    if best.retiming is None:
        return 0
    _, high = median_interval(samples(reader, best))
    rivals = [entry for entry in ranked[1:_CLOSEST] if entry.retiming is not None]
    return sum(median_interval(samples(reader, entry))[0] <= high for entry in rivals)


def _field(reader: Reader, table: str, column: str, number: int) -> str:
    return str(reader.rows(f"SELECT {column} FROM {table} WHERE id = :id", {"id": number})[0][0])
