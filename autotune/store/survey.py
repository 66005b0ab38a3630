"""What reports and pages read of a database: few columns of many trials, all columns of a few.

A problem may have a million trials, and a page is to come at once: everything here answers from an index, from a page
of rows or from every n-th trial, and says which. What is damaged is a StoreError, as everywhere in this room.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import Any, NamedTuple

from autotune.identity import ProblemKey
from autotune.model import DeviceInfo, Outcome
from autotune.store.fields import FIELDS
from autotune.store.location import damaged_database
from autotune.store.records import device_of, key_of, mapping, number, pages, text
from autotune.store.store import Store

UNFINISHED = (Outcome.PENDING.value, Outcome.LOST.value)
_begun = attrgetter("number")


class Search(NamedTuple):
    """One search as it is on record. `ended` is None while it runs; instants are ISO 8601 in UTC."""

    number: int
    problem: int
    key: ProblemKey
    generation: int
    sampler: str
    seed: int | None
    environment: Mapping[str, Any]
    started: str
    ended: str | None
    reason: str
    device_name: str
    driver: str


class Problem(NamedTuple):
    """A stored problem: its number and what it is."""

    number: int
    key: ProblemKey


class Row(NamedTuple):
    """A trial in a list: what a line of a table and a dot of a chart show."""

    number: int
    search: int
    configuration: Mapping[str, Any]
    name: str
    """The hash of the configuration: equal for equal ones."""
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


@contextmanager
def _sound(store: Store) -> Iterator[None]:
    """Turn values that nobody can have stored into one StoreError."""
    try:
        yield
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise damaged_database(store.where, error) from error


# Searches and problems ------------------------------------------------------------------------------------

_SEARCHES = """
SELECT s.id, s.problem_id, s.generation, s.sampler, s.seed, s.environment, s.started, s.ended, s.reason,
    p.study, p.kernel_hash, p.study_hash, p.device, p.size, p.choices,
    (SELECT MIN(device_id) FROM search_devices u WHERE u.search_id = s.id) AS device_id
FROM searches s JOIN problems p ON p.id = s.problem_id
"""
_KEY = ("study", "kernel_hash", "study_hash", "device", "size", "choices")


def search(store: Store, wanted: int) -> Search | None:
    """Return the search of that number; None where there is none."""
    return next(iter(_searches(store, "WHERE s.id = :wanted", {"wanted": wanted})), None)


def latest_generation(store: Store, problem: int) -> list[Search]:
    """Return the searches of a problem's latest generation, in the order they began."""
    newest = "SELECT MAX(generation) FROM searches WHERE problem_id = :problem"
    return _searches(
        store, f"WHERE s.problem_id = :problem AND s.generation = ({newest}) ORDER BY s.id", {"problem": problem}
    )


def _searches(store: Store, ending: str, values: Mapping[str, Any]) -> list[Search]:
    rows = store.rows(_SEARCHES + ending, values)
    with _sound(store):
        used = {row[15] for row in rows if row[15] is not None}
        devices = {row[0]: row[1:] for row in _of(store, "SELECT id, name, driver FROM devices WHERE id IN", used)}
        return [_search(row, devices.get(row[15], ("", ""))) for row in rows]


def _search(row: Sequence[Any], device: Sequence[Any]) -> Search:
    found, problem, generation, sampler, seed, environment, started, ended, reason, *key = row[:15]
    return Search(
        int(found),
        int(problem),
        key_of(dict(zip(_KEY, key, strict=True))),
        int(generation),
        text(sampler),
        None if seed is None else int(seed),
        mapping(environment),
        text(started),
        None if ended is None else text(ended),
        text(reason),
        text(device[0]),
        text(device[1]),
    )


def problems(
    store: Store, *, study: str = "", device: str = "", before: int | None = None, limit: int | None = None
) -> list[Problem]:
    """Return stored problems, newest first; those of a study, on a device model, or older than one."""
    wanted: list[str] = ["id > 0"]
    values: dict[str, Any] = {}
    for name, clause, value in (
        ("study", "study = :study", study or None),
        ("device", "device = :device", device or None),
        ("before", "id < :before", before),
    ):
        if value is not None:
            wanted.append(clause)
            values[name] = value
    ending = "" if limit is None else f" LIMIT {limit:d}"
    query = f"SELECT id, {', '.join(_KEY)} FROM problems WHERE {' AND '.join(wanted)} ORDER BY id DESC{ending}"
    rows = store.rows(query, values)
    with _sound(store):
        return [Problem(int(row[0]), key_of(dict(zip(_KEY, row[1:], strict=True)))) for row in rows]


def problem(store: Store, wanted: int) -> Problem | None:
    """Return the problem of that number; None where there is none."""
    rows = store.rows(f"SELECT id, {', '.join(_KEY)} FROM problems WHERE id = :wanted", {"wanted": wanted})
    with _sound(store):
        return next((Problem(int(row[0]), key_of(dict(zip(_KEY, row[1:], strict=True)))) for row in rows), None)


def last_searched(store: Store, wanted: Iterable[int]) -> list[int]:
    """Return these problems in the order in which they were searched last, latest first."""
    query = "SELECT MAX(id), problem_id FROM searches WHERE problem_id IN"
    return [int(row[1]) for row in sorted(map(tuple, _of(store, query, wanted, "GROUP BY problem_id")), reverse=True)]


def device(store: Store, fingerprint: str) -> DeviceInfo | None:
    """Return the device of a model that was put on record last; None where there is none."""
    query = "SELECT facts FROM devices WHERE fingerprint = :fingerprint ORDER BY id DESC LIMIT 1"
    rows = store.rows(query, {"fingerprint": fingerprint})
    with _sound(store):
        return device_of(json.loads(text(rows[0][0]))) if rows else None


def names(store: Store) -> tuple[list[str], list[str]]:
    """Return the studies and the device models that something is stored of, sorted."""
    with _sound(store):
        studies = [text(row[0]) for row in store.rows("SELECT DISTINCT study FROM problems ORDER BY study", {})]
        models = [text(row[0]) for row in store.rows("SELECT DISTINCT device FROM problems ORDER BY device", {})]
    return studies, models


# Trials ---------------------------------------------------------------------------------------------------

_COLUMNS = (
    "id", "search_id", "configuration", "configuration_hash", "outcome", "reason", "time_ns", "build_s", "verify_s",
    "time_s", "driver", "started", "finished",
)  # fmt: skip
_ROW = f"SELECT {', '.join(f't.{name}' for name in _COLUMNS)} FROM trials t"


def tally(store: Store, wanted: Iterable[int]) -> dict[int, dict[tuple[Outcome, str], int]]:
    """Return how many trials of each of these searches ended in which way under which driver."""
    found: dict[int, dict[tuple[Outcome, str], int]] = {}
    query = "SELECT search_id, outcome, driver, COUNT(*) FROM trials WHERE search_id IN"
    with _sound(store):
        for search_id, outcome, driver, count in _of(store, query, wanted, "GROUP BY search_id, outcome, driver"):
            found.setdefault(int(search_id), {})[Outcome(outcome), text(driver)] = int(count)
    return found


def total(counted: Mapping[int, Mapping[tuple[Outcome, str], int]]) -> int:
    """Return how many trials a tally counts."""
    return sum(sum(counts.values()) for counts in counted.values())


_FASTEST = """
SELECT id, time_ns FROM trials
WHERE search_id = :search AND outcome = 'ok' AND driver = :driver AND time_ns > 0{bound} ORDER BY time_ns, id LIMIT 1
"""


def sampled(store: Store, wanted: Sequence[int], most: int, total: int) -> Sampled:
    """Return the `total` trials of some searches in the order they began: every one or, beyond `most`, every n-th."""
    stride = max(1, -(-total // most))
    every = f"AND t.id % {stride} = 0 " if stride > 1 else ""
    rows = _rows(store, _of(store, f"{_ROW} WHERE t.search_id IN", wanted, f"{every}ORDER BY +t.id"))
    return Sampled(sorted(rows, key=_begun), total, stride)


def records(store: Store, wanted: Sequence[int], drivers: Mapping[int, Iterable[str]]) -> list[int]:
    """Return the numbers of the trials that were the fastest so far when they began, over searches in their order.

    Walks back from the fastest: the best before it, the best before that one. Each step reads the index from its fast
    end up to the first that is early enough, so that a million trials cost little more than one reading.
    """
    found: list[int] = []
    best = float("inf")
    for search_id in wanted:
        stairs: list[tuple[int, float]] = []
        bound: int | None = None
        while True:
            steps = [
                (float(row[1]), int(row[0]))
                for driver in drivers.get(search_id, ())
                for row in store.rows(
                    _FASTEST.format(bound="" if bound is None else " AND id < :before"),
                    {"search": search_id, "driver": driver} | ({} if bound is None else {"before": bound}),
                )
            ]
            if not steps or min(steps)[0] >= best:
                break
            time, bound = min(steps)
            stairs.append((bound, time))
        if stairs:
            best = stairs[0][1]
        found += [trial for trial, _ in reversed(stairs)]
    return found


def failures(store: Store, wanted: Iterable[int], most: int) -> list[Row]:
    """Return the latest failures of some searches, `most` of each outcome, latest first."""
    ids = sorted(wanted)
    found: list[Row] = []
    for outcome in Outcome:
        if not outcome.failed:
            continue
        for some in pages(ids):
            marks, values = _marks(some)
            # Numbers first, from the index: the + keeps SQLite from walking back through the trials of all searches.
            latest = f"SELECT x.id FROM trials x WHERE x.search_id IN ({marks}) AND x.outcome = :outcome"
            query = f"{_ROW} WHERE t.id IN ({latest} ORDER BY +x.id DESC LIMIT {most:d})"
            found += _rows(store, store.rows(query, {**values, "outcome": outcome.value}))
    return sorted(found, key=_begun, reverse=True)


def trials_of(store: Store, wanted: Iterable[int]) -> dict[int, Row]:
    """Return the trials of these numbers."""
    return {row.number: row for row in _rows(store, _of(store, f"{_ROW} WHERE t.id IN", wanted))}


def stored_trial(store: Store, wanted: int) -> dict[str, Any] | None:
    """Return everything that is stored of a trial, by the names of its fields, with `retimings` and its `search`.

    None where there is none. Instants are ISO 8601; `binary_hash`, `made` and `environment` as they were told.
    """
    columns = [field.name for field in FIELDS]
    rows = store.rows(f"SELECT search_id, {', '.join(columns)} FROM trials WHERE id = :wanted", {"wanted": wanted})
    if not rows:
        return None
    again = store.rows(
        "SELECT driver, time_ns, samples_ns, warmup_ns, cache, taken FROM retimings WHERE trial_id = :wanted "
        "ORDER BY id",
        {"wanted": wanted},
    )
    with _sound(store):
        row = dict(zip(columns, rows[0][1:], strict=True))
        for field in FIELDS:
            field.told(row)  # raises ValueError for what no trial has
        shown = {field.name: field.shown(row) for field in FIELDS}
        names = ("driver", "time_ns", "samples_ns", "warmup_ns", "cache", "taken")
        retimings = [dict(zip(names, entry, strict=True)) for entry in again]
        for entry in retimings:
            entry |= {name: json.loads(text(entry[name])) for name in ("samples_ns", "warmup_ns")}
        return {**shown, "search": int(rows[0][0]), "retimings": retimings}


def retimings(store: Store, wanted: Iterable[int]) -> dict[int, dict[str, Any]]:
    """Return the latest re-timing of each of these trials that has one: `samples_ns`, `driver` and when `taken`."""
    found: dict[int, dict[str, Any]] = {}
    query = "SELECT trial_id, driver, samples_ns, taken FROM retimings WHERE trial_id IN"
    with _sound(store):
        for trial, driver, samples, taken in _of(store, query, wanted, "ORDER BY id"):
            entry = {"samples_ns": json.loads(text(samples)), "driver": text(driver), "taken": text(taken)}
            if not all(type(sample) is int and sample >= 0 for sample in entry["samples_ns"]):
                raise ValueError("a sample is no time")
            found[int(trial)] = entry
    return found


def retimed(store: Store, problem: int, limit: int) -> list[int]:
    """Return the numbers of a problem's trials that were timed again last, latest first."""
    # From the few re-timings to their trials, not from the many trials of a problem.
    query = """
    SELECT r.trial_id, MAX(r.id) AS latest FROM retimings r CROSS JOIN trials t
    WHERE t.id = r.trial_id AND t.search_id IN (SELECT id FROM searches WHERE problem_id = :problem)
    GROUP BY r.trial_id ORDER BY latest DESC LIMIT :most
    """
    return [int(row[0]) for row in store.rows(query, {"problem": problem, "most": limit})]


def _rows(store: Store, rows: Iterable[Sequence[Any]]) -> list[Row]:
    with _sound(store):
        return [
            Row(
                int(row[0]),
                int(row[1]),
                mapping(row[2]),
                text(row[3]),
                Outcome(row[4]),
                text(row[5]),
                None if row[6] is None else float(number(row[6])),
                float(number(row[7])),
                float(number(row[8])),
                float(number(row[9])),
                *("" if value is None else text(value) for value in row[10:13]),
            )
            for row in rows
        ]


def _of(store: Store, query: str, numbers: Iterable[int], ending: str = "") -> list[Sequence[Any]]:
    """Return the rows of a query that ends with `IN` for these numbers, a few hundred at a time."""
    found: list[Sequence[Any]] = []
    for some in pages(sorted(set(numbers))):
        marks, values = _marks(some)
        found += store.rows(f"{query} ({marks}) {ending}", values)
    return found


def _marks(some: Sequence[int]) -> tuple[str, dict[str, int]]:
    values = {f"n{place}": value for place, value in enumerate(some)}
    return ", ".join(f":{name}" for name in values), values
