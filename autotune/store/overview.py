"""What is stored, page by page, for those who look at it: searches with their counts, trials by filters.

Nothing here reads more than the page asked for, however many trials there are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, func, select

from autotune.identity import ProblemKey
from autotune.store import queries
from autotune.store.access import Access
from autotune.store.records import Columns, key_of
from autotune.store.schema import problems, searches, trials

MOST = 1000
"""Rows of a page at most."""


@dataclass(frozen=True, slots=True)
class StoredSearch:
    """A search as it is stored. `outcomes`: how many of its trials ended how; `asked_by` is "" for one of this machine.

    `ended` is None while it runs; `is_lost` where it was killed, and no search has come since to put that on record.
    """

    number: int
    uuid: str
    problem: int
    key: ProblemKey
    sampler: str
    generation: int
    started: str
    ended: str | None
    reason: str
    submission: str | None
    asked_by: str
    device_name: str
    outcomes: Mapping[str, int]
    is_lost: bool


@dataclass(frozen=True, slots=True)
class Point:
    """A trial as a chart has it: its number, outcome, median time in ns (None: none), and when it ended."""

    number: int
    outcome: str
    time_ns: float | None
    finished: str | None
    configuration: Mapping[str, Any]


class Overview(Access):
    """Pages of what is stored. Every method is one transaction and may raise StoreError."""

    def stored_searches(
        self,
        *,
        study: str | None = None,
        device: str | None = None,
        problem: int | None = None,
        names: Sequence[str] = (),
        latest: bool = False,
        before: int | None = None,
        limit: int = 50,
    ) -> list[StoredSearch]:
        """Return searches, newest first: of a study, a device model, a problem, of these uuids, before a number.

        With `latest`, of those that are one submission's work the last.
        """
        wanted: list[ColumnElement[bool]] = []
        if study is not None:
            wanted.append(problems.c.study == study)
        if device is not None:
            wanted.append(problems.c.device == device)
        if problem is not None:
            wanted.append(searches.c.problem_id == problem)
        if names:
            wanted.append(searches.c.uuid.in_(names) | searches.c.submission.in_(names))
        if latest:
            later = searches.alias()
            same = and_(later.c.submission == searches.c.submission, later.c.id > searches.c.id)
            wanted.append(~select(later.c.id).where(same).exists())
        if before is not None:
            wanted.append(searches.c.id < before)
        query = (
            select(searches, *(column for column in problems.c if column.name != "id"))
            .join(problems)
            .where(*wanted)
            .order_by(searches.c.id.desc())
            .limit(min(limit, MOST))
        )
        with self._reading() as connection:
            rows = connection.execute(query).mappings().all()
            numbers = [row["id"] for row in rows]
            device_names = queries.device_names(connection, numbers)
            return [_search(row, device_names, _outcomes(connection, row["id"])) for row in rows]

    def page(
        self,
        *,
        study: str | None = None,
        device: str | None = None,
        outcomes: Sequence[str] = (),
        searches_: Sequence[int] = (),
        before: int | None = None,
        limit: int = 50,
    ) -> list[queries.Row]:
        """Return trials, newest first: of a study, a device model, with these outcomes, of these searches."""
        query = queries.everything()
        if study is not None:
            query = query.where(problems.c.study == study)
        if device is not None:
            query = query.where(problems.c.device == device)
        if outcomes:
            query = query.where(trials.c.outcome.in_(outcomes))
        if searches_:
            query = query.where(trials.c.search_id.in_(searches_))
        if before is not None:
            query = query.where(trials.c.id < before)
        query = query.order_by(trials.c.id.desc()).limit(min(limit, MOST))
        with self._reading() as connection:
            return queries.rows(connection, query)

    def trial(self, number: int) -> queries.Row | None:
        """Return the trial of that number; None where there is none."""
        with self._reading() as connection:
            return next(iter(queries.rows(connection, queries.everything().where(trials.c.id == number))), None)

    def points(self, searches_: Sequence[int], *, after: int = 0, limit: int = 5000) -> list[Point]:
        """Return the trials of these searches in the order they began, from the one after that number."""
        columns = [trials.c[name] for name in ("id", "outcome", "time_ns", "finished", "configuration")]
        wanted = (trials.c.search_id.in_(searches_), trials.c.id > after)
        query = select(*columns).where(*wanted).order_by(trials.c.id).limit(limit)
        with self._reading() as connection:
            return [
                Point(row.id, row.outcome, row.time_ns, row.finished, json.loads(row.configuration))
                for row in connection.execute(query)
            ]

    def latest_problems(self, limit: int) -> list[tuple[int, ProblemKey, str]]:
        """Return number, key and last end of the problems that were searched last, latest first."""
        last = func.max(searches.c.id)
        query = (
            select(searches.c.problem_id, last.label("last"), func.max(searches.c.ended).label("ended"))
            .group_by(searches.c.problem_id)
            .order_by(last.desc())
            .limit(limit)
        )
        with self._reading() as connection:
            found = connection.execute(query).all()
            wanted = select(problems).where(problems.c.id.in_([row.problem_id for row in found]))
            keys = {row["id"]: key_of(row) for row in connection.execute(wanted).mappings()}
            return [(row.problem_id, keys[row.problem_id], row.ended or "") for row in found]

    def sweep(self) -> None:
        """Mark as lost what searches left pending whose process has died."""
        self._written(queries.mark_lost)


def _outcomes(connection: Connection, search: int) -> dict[str, int]:
    query = select(trials.c.outcome, func.count().label("trials")).where(trials.c.search_id == search)
    return {row.outcome: row.trials for row in connection.execute(query.group_by(trials.c.outcome))}


def _search(row: Columns, names: Mapping[int, str], outcomes: Mapping[str, int]) -> StoredSearch:
    own = {name: row[name] for name in ("uuid", "sampler", "generation", "started", "ended", "reason", "submission")}
    environment = json.loads(row["environment"])
    return StoredSearch(
        number=row["id"],
        problem=row["problem_id"],
        key=key_of(row),
        asked_by=str(environment.get("asked_by", "")),
        device_name=names.get(row["id"], ""),
        outcomes=outcomes,
        is_lost=row["ended"] is None and queries.has_died(row["started"], row["environment"]),
        **own,
    )
