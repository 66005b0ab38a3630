"""List the stored searches and problems, by study and device, for reports and pages.

Damaged data is a StoreError, as everywhere in this room.
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
from autotune.store.queries import has_died
from autotune.store.records import device_of, key_of, mapping, pages, text
from autotune.store.store import Store


class Search(NamedTuple):
    """One stored search. Instants are ISO 8601 in UTC; `asked_by` is "" for a search of this machine.

    `ended` is None while it runs. `is_lost`: it was killed, and no later search has stored that yet. `submission` is
    the uuid of the submission that it runs for, None if it was not sent to a server.
    """

    number: int
    uuid: str
    problem: int
    key: ProblemKey
    started: str
    ended: str | None
    reason: str
    submission: str | None
    asked_by: str
    is_lost: bool
    device_name: str


class Problem(NamedTuple):
    """A stored problem: its number and what it is."""

    number: int
    key: ProblemKey


_SEARCHES = f"""
SELECT s.id, s.uuid, s.problem_id, s.started, s.ended, s.reason, s.submission, s.environment,
    (SELECT MIN(device_id) FROM search_devices u WHERE u.search_id = s.id),
    {", ".join(f"p.{name}" for name in ProblemKey._fields)}
FROM searches s JOIN problems p ON p.id = s.problem_id
"""
_OF_SEARCHES = {
    "study": "p.study = :study",
    "device": "p.device = :device",
    "problem": "s.problem_id = :problem",
    "before": "s.id < :before",
}
_LATEST = "NOT EXISTS (SELECT 1 FROM searches later WHERE later.submission = s.submission AND later.id > s.id)"
_OF_PROBLEMS = {"study": "study = :study", "device": "device = :device", "before": "id < :before"}


def search(store: Store, wanted: int) -> Search | None:
    """Return the search with a number; None if there is none."""
    return next(iter(_searches(store, "WHERE s.id = :wanted", {"wanted": wanted})), None)


def searches(
    store: Store,
    *,
    study: str | None = None,
    device: str | None = None,
    problem: int | None = None,
    names: Sequence[str] = (),
    latest: bool = False,
    before: int | None = None,
    limit: int = 50,
) -> list[Search]:
    """Return searches, newest first: of a study, a device model, a problem, with these uuids, before a number.

    `names` may be uuids of submissions. With `latest`, only the last search of each submission.
    """
    asked = {"study": study, "device": device, "problem": problem, "before": before}
    wanted, values = _conditions("s.id > 0", _OF_SEARCHES, asked)
    if names:
        marks, named = placeholders(names)
        wanted, values = f"{wanted} AND (s.uuid IN ({marks}) OR s.submission IN ({marks}))", {**values, **named}
    if latest:
        wanted += f" AND {_LATEST}"
    return _searches(store, f"WHERE {wanted} ORDER BY s.id DESC LIMIT {limit:d}", values)


def _conditions(first: str, known: Mapping[str, str], asked: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return a first condition joined with those of all that is asked and not None, and the values in them."""
    values = {name: value for name, value in asked.items() if value is not None}
    return " AND ".join([first, *(known[name] for name in values)]), values


def answering(store: Store, problem: int) -> list[Search]:
    """Return the searches that decide a problem's best, as in `Store.answering`, in the order they began."""
    asked = {"problem": problem, "driver": ""}
    first = store.rows(ANSWERING, asked) or store.rows(NEWEST, {"problem": problem})
    wanted = "WHERE s.problem_id = :problem AND s.generation >= :first AND s.sampler <> :imported ORDER BY s.id"
    return _searches(store, wanted, {"problem": problem, "first": first[0].generation, "imported": IMPORTED})


def _searches(store: Store, ending: str, values: Mapping[str, Any]) -> list[Search]:
    rows = store.rows(_SEARCHES + ending, values)
    with sound(store):
        used = {row[8] for row in rows if row[8] is not None}
        names = {row[0]: text(row[1]) for row in rows_of(store, "SELECT id, name FROM devices WHERE id IN", used)}
        return [_search(row, names.get(row[8], "")) for row in rows]


def _search(row: Sequence[Any], device_name: str) -> Search:
    number, uuid, problem, started, ended, reason, submission, environment, _, *key = row
    return Search(
        int(number),
        text(uuid),
        int(problem),
        _key(key),
        text(started),
        None if ended is None else text(ended),
        text(reason),
        None if submission is None else text(submission),
        str(mapping(environment).get("asked_by", "")),
        ended is None and has_died(started, environment),
        device_name,
    )


def _key(columns: Sequence[Any]) -> ProblemKey:
    return key_of(dict(zip(ProblemKey._fields, columns, strict=True)))


def problems(
    store: Store, *, study: str = "", device: str = "", before: int | None = None, limit: int | None = None
) -> list[Problem]:
    """Return stored problems, newest first: of a study, on a device model, before a number."""
    asked = {"study": study or None, "device": device or None, "before": before}
    wanted, values = _conditions("id > 0", _OF_PROBLEMS, asked)
    return _problems(store, f"{wanted} ORDER BY id DESC" + ("" if limit is None else f" LIMIT {limit:d}"), values)


def latest_texts(found: Iterable[Problem]) -> list[Problem]:
    """Return the first of the problems that differ only in the texts of kernel and study: of `problems`, the newest."""
    firsts: dict[str, Problem] = {}
    for one in found:
        firsts.setdefault(f"{one.key._replace(kernel_hash='', study_hash='')}", one)
    return list(firsts.values())


def problem(store: Store, wanted: int) -> Problem | None:
    """Return the problem with a number; None if there is none."""
    return next(iter(_problems(store, "id = :wanted", {"wanted": wanted})), None)


def _problems(store: Store, ending: str, values: Mapping[str, Any]) -> list[Problem]:
    rows = store.rows(f"SELECT id, {', '.join(ProblemKey._fields)} FROM problems WHERE {ending}", values)
    with sound(store):
        return [Problem(int(row[0]), _key(row[1:])) for row in rows]


def last_searched(store: Store, wanted: Iterable[int]) -> list[int]:
    """Return these problems, the one with the latest search first."""
    query = "SELECT MAX(id), problem_id FROM searches WHERE problem_id IN"
    rows = sorted(map(tuple, rows_of(store, query, wanted, "GROUP BY problem_id")), reverse=True)
    return [int(problem) for _, problem in rows]


def latest_problems(store: Store, limit: int) -> list[tuple[Problem, str]]:
    """Return the problems with the latest searches, latest first, each with the last end of its searches."""
    query = f"SELECT problem_id, MAX(ended) FROM searches GROUP BY problem_id ORDER BY MAX(id) DESC LIMIT {limit:d}"
    found = [(problem(store, int(number)), ended) for number, ended in store.rows(query, {})]
    return [(one, ended or "") for one, ended in found if one is not None]


def device(store: Store, fingerprint: str) -> DeviceInfo | None:
    """Return the device of a model that was stored last; None if there is none."""
    query = "SELECT facts FROM devices WHERE fingerprint = :fingerprint ORDER BY id DESC LIMIT 1"
    rows = store.rows(query, {"fingerprint": fingerprint})
    with sound(store):
        return device_of(json.loads(text(rows[0][0]))) if rows else None


def names(store: Store) -> tuple[list[str], list[str]]:
    """Return the studies and the device models with stored problems, sorted."""
    with sound(store):
        studies = [text(row[0]) for row in store.rows("SELECT DISTINCT study FROM problems ORDER BY study", {})]
        models = [text(row[0]) for row in store.rows("SELECT DISTINCT device FROM problems ORDER BY device", {})]
    return studies, models


@contextmanager
def sound(store: Store) -> Iterator[None]:
    """Turn errors from values that this program never stores into one StoreError."""
    try:
        yield
    except UNSOUND as error:
        raise damaged_database(store.where, error) from error


def rows_of(store: Store, query: str, numbers: Iterable[int], ending: str = "") -> list[Sequence[Any]]:
    """Return the rows of a query that ends with `IN`, for these numbers, read a few hundred at a time."""
    found: list[Sequence[Any]] = []
    for some in pages(sorted(set(numbers))):
        marks, values = placeholders(some)
        found += store.rows(f"{query} ({marks}) {ending}", values)
    return found


def placeholders(some: Sequence[int | str]) -> tuple[str, dict[str, int | str]]:
    """Return the placeholders of an IN (...) for these numbers or texts, and their values."""
    values = {f"n{place}": value for place, value in enumerate(some)}
    return ", ".join(f":{name}" for name in values), values
