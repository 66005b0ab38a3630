"""What reports and pages read of the trials of a database: few columns of many trials, all columns of a few.

A problem may have a million trials, and a page must be fast: everything here answers from an index, from a page of
rows or from every n-th trial, and says which. Damaged data is a StoreError, as everywhere in this room.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from autotune.model import Measurement, Outcome
from autotune.store.listing import answering, placeholders, rows_of, sound
from autotune.store.records import mapping, number, pages, text
from autotune.store.store import Store

_begun = attrgetter("number")


class Row(NamedTuple):
    """A trial in a list, with what a line of a table and a dot of a chart show."""

    number: int
    search: int
    configuration: Mapping[str, Any]
    name: str
    """The hash of the configuration: equal configurations have equal hashes."""
    outcome: Outcome
    reason: str
    time_ns: float | None
    build_s: float
    verify_s: float
    time_s: float
    driver: str
    started: str
    finished: str


class Sampled(NamedTuple):
    """Every `stride`-th of `total` trials, in the order they began."""

    rows: list[Row]
    total: int
    stride: int


_COLUMNS = (
    "id", "search_id", "configuration", "configuration_hash", "outcome", "reason", "time_ns", "build_s", "verify_s",
    "time_s", "driver", "started", "finished",
)  # fmt: skip
_ROW = f"SELECT {', '.join(f't.{name}' for name in _COLUMNS)} FROM trials t"


def tally(store: Store, wanted: Iterable[int]) -> dict[int, dict[tuple[Outcome, str], int]]:
    """Return the number of trials of each of these searches, by outcome and driver."""
    found: dict[int, dict[tuple[Outcome, str], int]] = {}
    query = "SELECT search_id, outcome, driver, COUNT(*) FROM trials WHERE search_id IN"
    with sound(store):
        for search_id, outcome, driver, count in rows_of(store, query, wanted, "GROUP BY search_id, outcome, driver"):
            found.setdefault(int(search_id), {})[Outcome(outcome), text(driver)] = int(count)
    return found


def by_outcome(counted: Mapping[int, Mapping[tuple[Outcome, str], int]]) -> Counter[Outcome]:
    """Return the number of trials in a tally by outcome."""
    found = Counter[Outcome]()
    for counts in counted.values():
        for (outcome, _), count in counts.items():
            found[outcome] += count
    return found


def outcomes(store: Store, problem: int) -> Counter[Outcome]:
    """Return the number of trials by outcome, of those that decide a problem's best."""
    return by_outcome(tally(store, [one.number for one in answering(store, problem)]))


_FASTEST = """
SELECT id, time_ns FROM trials
WHERE search_id = :search AND outcome = 'ok' AND driver = :driver AND time_ns > 0 AND id < :before
ORDER BY time_ns, id LIMIT 1
"""


def following(store: Store, wanted: Sequence[int], *, after: int = 0, limit: int = 5000) -> list[Row]:
    """Return the trials of some searches in the order they began, those after a number."""
    marks, values = placeholders(wanted)
    ending = f"WHERE t.search_id IN ({marks}) AND t.id > :after ORDER BY t.id LIMIT {limit:d}"
    return _rows(store, store.rows(f"{_ROW} {ending}", {**values, "after": after}))


def sampled(store: Store, wanted: Sequence[int], most: int, total: int) -> Sampled:
    """Return the `total` trials of some searches in the order they began: all or, if more than `most`, every n-th."""
    stride = max(1, -(-total // most))
    every = f"AND t.id % {stride} = 0 " if stride > 1 else ""
    rows = _rows(store, rows_of(store, f"{_ROW} WHERE t.search_id IN", wanted, f"{every}ORDER BY +t.id"))
    return Sampled(sorted(rows, key=_begun), total, stride)


def records(store: Store, wanted: Sequence[int], drivers: Mapping[int, Iterable[str]]) -> list[int]:
    """Return the numbers of the trials that were the fastest up to then, over searches in their order.

    Goes back from the fastest trial to the best one before it, and so on. Each step reads the index from its fast
    end to the first trial that is early enough, so that a million trials cost little more than one reading.
    """
    found: list[int] = []
    best = float("inf")
    for search_id in wanted:
        stairs: list[tuple[int, float]] = []
        before = 2**63 - 1
        while True:
            steps = [
                (float(row[1]), int(row[0]))
                for driver in drivers.get(search_id, ())
                for row in store.rows(_FASTEST, {"search": search_id, "driver": driver, "before": before})
            ]
            if not steps or min(steps)[0] >= best:
                break
            time, before = min(steps)
            stairs.append((before, time))
        if stairs:
            best = stairs[0][1]
        found += [trial for trial, _ in reversed(stairs)]
    return found


def failures(store: Store, wanted: Iterable[int], most: int) -> list[Row]:
    """Return the latest failures of some searches, at most `most` of each outcome, latest first."""
    ids = sorted(wanted)
    latest_of: list[Row] = []
    for outcome in Outcome:
        if not outcome.failed:
            continue
        found: list[Row] = []
        for some in pages(ids):
            marks, values = placeholders(some)
            # Numbers first, from the index: the + keeps SQLite from reading backwards through all searches' trials.
            latest = f"SELECT x.id FROM trials x WHERE x.search_id IN ({marks}) AND x.outcome = :outcome"
            query = f"{_ROW} WHERE t.id IN ({latest} ORDER BY +x.id DESC LIMIT {most:d})"
            found += _rows(store, store.rows(query, {**values, "outcome": outcome.value}))
        latest_of += sorted(found, key=_begun, reverse=True)[:most]
    return sorted(latest_of, key=_begun, reverse=True)


def trials_of(store: Store, wanted: Iterable[int]) -> dict[int, Row]:
    """Return the trials with these numbers, by number."""
    return {row.number: row for row in _rows(store, rows_of(store, f"{_ROW} WHERE t.id IN", wanted))}


def retimings(store: Store, wanted: Iterable[int]) -> dict[int, Measurement]:
    """Return the latest re-timing of each of these trials that has one: its samples and its instant.

    As in the ranking, re-timings under another driver than the trial's are left out.
    """
    found: dict[int, Measurement] = {}
    query = """
    SELECT r.trial_id, r.samples_ns, r.taken FROM retimings r JOIN trials t ON t.id = r.trial_id AND t.driver = r.driver
    WHERE r.trial_id IN"""
    with sound(store):
        for trial, told, taken in rows_of(store, query, wanted, "ORDER BY r.id"):
            samples = json.loads(text(told))
            if not all(type(sample) is int and sample >= 0 for sample in samples):
                raise ValueError("a sample is not a time")
            found[int(trial)] = Measurement(tuple(samples), taken=text(taken))
    return found


def retimed(store: Store, problem: int, limit: int) -> list[int]:
    """Return the numbers of a problem's trials with the latest re-timings, latest first."""
    # Begins at the few re-timings, not at the many trials of a problem.
    query = """
    SELECT r.trial_id, MAX(r.id) AS latest FROM retimings r CROSS JOIN trials t
    WHERE t.id = r.trial_id AND t.search_id IN (SELECT id FROM searches WHERE problem_id = :problem)
    GROUP BY r.trial_id ORDER BY latest DESC LIMIT :most
    """
    return [int(row[0]) for row in store.rows(query, {"problem": problem, "most": limit})]


def _rows(store: Store, rows: Iterable[Sequence[Any]]) -> list[Row]:
    with sound(store):
        return [_row(row) for row in rows]


def _row(columns: Sequence[Any]) -> Row:
    trial, search, configuration, name, outcome, reason, time_ns, build_s, verify_s, time_s, *texts = columns
    return Row(
        int(trial),
        int(search),
        mapping(configuration),
        text(name),
        Outcome(outcome),
        text(reason),
        None if time_ns is None else float(number(time_ns)),
        float(number(build_s)),
        float(number(verify_s)),
        float(number(time_s)),
        *("" if value is None else text(value) for value in texts),
    )
