"""Ranks what is stored for one problem. Standard library only."""

from __future__ import annotations

import json
from operator import attrgetter
from typing import NamedTuple

from autotune.lookup.reader import Reader
from autotune.statistics import median_interval

_TRIALS = """
SELECT t.configuration_hash, t.outcome, t.driver, t.time_ns, t.finished, t.id
FROM trials t JOIN searches s ON s.id = t.search_id
WHERE s.problem_id = :problem AND t.outcome IN ('ok', 'wrong_result')
ORDER BY t.finished, t.id
"""
_RETIMINGS = """
SELECT t.configuration_hash, r.driver, r.time_ns, r.taken, t.id, r.id
FROM retimings r JOIN trials t ON t.id = r.trial_id JOIN searches s ON s.id = t.search_id
WHERE s.problem_id = :problem AND t.outcome = 'ok'
ORDER BY r.taken, r.id
"""
_SEARCH = "SELECT s.environment FROM searches s JOIN trials t ON t.search_id = s.id WHERE t.id = :trial"
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
    """Return the verified configurations of a problem, fastest first, as measured under one driver.

    That driver is the one asked for if anything is stored under it, else the one used last. For each
    configuration its latest re-timing counts, else its latest measurement: never a minimum over repeats.
    What gave a wrong result under that driver, even once, is left out.
    """
    entries: list[Ranked] = []
    wrong: set[tuple[str, str]] = set()
    for configuration, outcome, under, time_ns, when, trial in reader.rows(_TRIALS, {"problem": problem}):
        if outcome == "wrong_result":
            wrong.add((configuration, under))
        elif time_ns is not None:
            entries.append(Ranked(configuration, time_ns, under, when, trial))
    for configuration, under, time_ns, when, trial, number in reader.rows(_RETIMINGS, {"problem": problem}):
        entries.append(Ranked(configuration, time_ns, under, when, trial, number))
    entries = [entry for entry in entries if (entry.configuration_hash, entry.driver) not in wrong]
    if not entries:
        return []
    if not any(entry.driver == driver for entry in entries):
        driver = max(entries, key=attrgetter("when")).driver
    counting = {entry.configuration_hash: entry for entry in entries if entry.driver == driver}
    return sorted(counting.values(), key=attrgetter("time_ns"))


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
