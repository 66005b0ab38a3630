"""Ranks what is stored for one problem. Standard library only."""

from __future__ import annotations

import json

from autotune.lookup.reader import Reader
from autotune.ranking import FAILED, MEASURED, RETIMED, WRONG, Event, median_interval
from autotune.ranking import rank as rank_events
from autotune.text import clean

_TRIALS = """
SELECT t.outcome, t.configuration_hash, t.driver, s.generation, t.id, t.time_ns
FROM searches s JOIN trials t ON t.search_id = s.id
WHERE s.problem_id = :problem AND t.outcome NOT IN ('pending', 'stopped')
"""
_RETIMED = """
SELECT t.configuration_hash, t.driver, s.generation, t.id, r.id, r.time_ns
FROM searches s JOIN trials t ON t.search_id = s.id JOIN retimings r ON r.trial_id = t.id AND r.driver = t.driver
WHERE s.problem_id = :problem AND t.outcome = 'ok'
"""
_SEARCH = "SELECT s.environment FROM searches s JOIN trials t ON t.search_id = s.id WHERE t.id = :trial"
_KINDS = {"ok": MEASURED, "wrong_result": WRONG}  # all other outcomes are failures
_CLOSEST = 20
"""How many of the next in rank are looked at for ties."""


def rank(reader: Reader, problem: int, driver: str = "") -> list[Event]:
    """Return the verified configurations of a problem, best first, by the rule that a search names its best by."""
    asked = {"problem": problem}
    events = [
        Event(_KINDS.get(outcome, FAILED), name, under, generation, (trial, 0), float("nan") if time is None else time)
        for outcome, name, under, generation, trial, time in reader.rows(_TRIALS, asked)
    ]
    events += [
        Event(RETIMED, name, under, generation, (trial, retiming), time)
        for name, under, generation, trial, retiming, time in reader.rows(_RETIMED, asked)
    ]
    return rank_events(events, clean(driver))


def samples(reader: Reader, entry: Event) -> list[int]:
    """Return the samples behind a ranked time, in nanoseconds."""
    return [int(value) for value in json.loads(_told(reader, entry, "samples_ns", "samples_ns"))]


def taken(reader: Reader, entry: Event) -> str:
    """Return when a ranked time was taken, an ISO instant."""
    return _told(reader, entry, "finished", "taken")


def configuration(reader: Reader, entry: Event) -> dict[str, int | float | str]:
    """Return the configuration of a ranked time, in its study's order."""
    found: dict[str, int | float | str] = json.loads(_field(reader, "trials", "configuration", entry.order[0]))
    return found


def space(reader: Reader, entry: Event) -> str:
    """Return the hash of the space that the trial's search looked in; "" where it was not recorded."""
    ((environment,),) = reader.rows(_SEARCH, {"trial": entry.order[0]})
    return str(json.loads(environment).get("space", ""))


def ties(reader: Reader, ranked: list[Event]) -> int:
    """Return how many others cannot be told from the first: both re-timed, and their intervals overlap."""
    best = ranked[0]
    if best.kind != RETIMED:
        return 0
    _, high = median_interval(samples(reader, best))
    rivals = [entry for entry in ranked[1:_CLOSEST] if entry.kind == RETIMED]
    return sum(median_interval(samples(reader, entry))[0] <= high for entry in rivals)


def _told(reader: Reader, entry: Event, by_trial: str, by_retiming: str) -> str:
    trial, retiming = entry.order
    if entry.kind == RETIMED:
        return _field(reader, "retimings", by_retiming, retiming)
    return _field(reader, "trials", by_trial, trial)


def _field(reader: Reader, table: str, column: str, number: int) -> str:
    return str(reader.rows(f"SELECT {column} FROM {table} WHERE id = :id", {"id": number})[0][0] or "")
