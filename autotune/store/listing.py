"""Which searches and problems are on record, of which studies and devices, as reports and pages ask for them.

What is damaged is a StoreError, as everywhere in this room.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from autotune.identity import ProblemKey
from autotune.model import DeviceInfo
from autotune.ranking import ANSWERING, NEWEST
from autotune.store.location import IMPORTED, UNSOUND, damaged_database
from autotune.store.records import device_of, key_of, mapping, pages, text
from autotune.store.store import Store


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


def answering(store: Store, problem: int) -> list[Search]:
    """Return the searches that tell what is best of a problem, as `Store.answering` does, in the order they began."""
    asked = {"problem": problem, "driver": ""}
    first = store.rows(ANSWERING, asked) or store.rows(NEWEST, {"problem": problem})
    wanted = "WHERE s.problem_id = :problem AND s.generation >= :first AND s.sampler <> :imported ORDER BY s.id"
    return _searches(store, wanted, {"problem": problem, "first": first[0].generation, "imported": IMPORTED})


def _searches(store: Store, ending: str, values: Mapping[str, Any]) -> list[Search]:
    rows = store.rows(_SEARCHES + ending, values)
    with sound(store):
        used = {row[15] for row in rows if row[15] is not None}
        devices = {row[0]: row[1:] for row in rows_of(store, "SELECT id, name, driver FROM devices WHERE id IN", used)}
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
    asked = {"study": study or None, "device": device or None, "before": before}
    values = {name: value for name, value in asked.items() if value is not None}
    wanted = " AND ".join(["id > 0", *(_WANTED[name] for name in values)])
    return _problems(store, f"{wanted} ORDER BY id DESC" + ("" if limit is None else f" LIMIT {limit:d}"), values)


_WANTED = {"study": "study = :study", "device": "device = :device", "before": "id < :before"}


def problem(store: Store, wanted: int) -> Problem | None:
    """Return the problem of that number; None where there is none."""
    return next(iter(_problems(store, "id = :wanted", {"wanted": wanted})), None)


def _problems(store: Store, ending: str, values: Mapping[str, Any]) -> list[Problem]:
    rows = store.rows(f"SELECT id, {', '.join(_KEY)} FROM problems WHERE {ending}", values)
    with sound(store):
        return [Problem(int(row[0]), key_of(dict(zip(_KEY, row[1:], strict=True)))) for row in rows]


def last_searched(store: Store, wanted: Iterable[int]) -> list[int]:
    """Return these problems in the order in which they were searched last, latest first."""
    query = "SELECT MAX(id), problem_id FROM searches WHERE problem_id IN"
    return [
        int(row[1]) for row in sorted(map(tuple, rows_of(store, query, wanted, "GROUP BY problem_id")), reverse=True)
    ]


def device(store: Store, fingerprint: str) -> DeviceInfo | None:
    """Return the device of a model that was put on record last; None where there is none."""
    query = "SELECT facts FROM devices WHERE fingerprint = :fingerprint ORDER BY id DESC LIMIT 1"
    rows = store.rows(query, {"fingerprint": fingerprint})
    with sound(store):
        return device_of(json.loads(text(rows[0][0]))) if rows else None


def names(store: Store) -> tuple[list[str], list[str]]:
    """Return the studies and the device models that something is stored of, sorted."""
    with sound(store):
        studies = [text(row[0]) for row in store.rows("SELECT DISTINCT study FROM problems ORDER BY study", {})]
        models = [text(row[0]) for row in store.rows("SELECT DISTINCT device FROM problems ORDER BY device", {})]
    return studies, models


@contextmanager
def sound(store: Store) -> Iterator[None]:
    """Turn values that nobody can have stored into one StoreError."""
    try:
        yield
    except UNSOUND as error:
        raise damaged_database(store.where, error) from error


def rows_of(store: Store, query: str, numbers: Iterable[int], ending: str = "") -> list[Sequence[Any]]:
    """Return the rows of a query that ends with `IN` for these numbers, a few hundred at a time."""
    found: list[Sequence[Any]] = []
    for some in pages(sorted(set(numbers))):
        marks, values = placeholders(some)
        found += store.rows(f"{query} ({marks}) {ending}", values)
    return found


def placeholders(some: Sequence[int]) -> tuple[str, dict[str, int]]:
    """Return the placeholders of an IN (...) for these numbers, and their values."""
    values = {f"n{place}": value for place, value in enumerate(some)}
    return ", ".join(f":{name}" for name in values), values
