"""The searches that users submit to a server: stored before it confirms them, in their order, through every restart.

    queued -> running -> done | failed | stopped         and back to queued if the server ended meanwhile

`stopping` is running, after somebody has asked for its end. Each device of a server has one queue. In a queue, searches
that had begun before come first; then the user who has waited longest since their last search began; and among one
user's searches the one submitted first.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, and_, case, func, select, update

from autotune.errors import WorkerError
from autotune.store import queries
from autotune.store.access import Access
from autotune.store.records import Columns, now, ordered
from autotune.store.schema import searches, submissions, trials
from autotune.text import clean

QUEUED, RUNNING, STOPPING, DONE, FAILED, STOPPED = "queued", "running", "stopping", "done", "failed", "stopped"
STATES = (QUEUED, RUNNING, STOPPING, DONE, FAILED, STOPPED)
OPEN = (QUEUED, RUNNING, STOPPING)
"""The states of submissions that have not ended."""


@dataclass(frozen=True, slots=True)
class Submission:
    """A submitted search. `request` is what was asked, `uploaded` whether a study came with it.

    `upload` is that study; None in lists of submissions, since it may be as large as an upload may be.
    `attempts` counts how often it began; `result` is what it found, decoded from JSON. `exit_code` is that of the error
    with which it failed (errors.py); None if it did not fail, or an older version ran it, which stored none.
    """

    number: int
    uuid: str
    server: str
    queue: str
    study: str
    request: Mapping[str, Any]
    uploaded: bool
    upload: Mapping[str, Any] | None
    asked_by: str
    state: str
    attempts: int
    created: str
    started: str | None
    ended: str | None
    reason: str
    result: Mapping[str, Any] | None
    exit_code: int | None


@dataclass(frozen=True, slots=True)
class Uploaded:
    """A study that came with searches, and the search that first brought this text, its user and its time."""

    upload: Mapping[str, Any]
    search: str
    asked_by: str
    created: str


class Submissions(Access):
    """The queue of a server. Every method is one transaction and may raise StoreError."""

    def submit(
        self,
        server: str,
        queue: str,
        study: str,
        request: Mapping[str, Any],
        asked_by: str,
        *,
        upload: Mapping[str, Any] | None = None,
        once: str | None = None,
        most: int | None = None,
    ) -> tuple[Submission | None, bool]:
        """Store a search as queued; return it and whether it is new.

        `once` is the user's idempotency key: what was submitted with it before is returned unchanged. Return None and
        False if the user has `most` open submissions already.
        """
        name, created = uuid.uuid4().hex, now()

        def step(connection: Connection) -> tuple[Submission | None, bool]:
            known = submissions.c.uuid == name
            if once is not None:
                known = known | and_(submissions.c.asked_by == asked_by, submissions.c.once == once)
            if (found := _first(connection, known)) is not None:
                return found, found.uuid == name
            waiting = select(func.count()).where(
                submissions.c.server == server, submissions.c.state.in_(OPEN), submissions.c.asked_by == asked_by
            )
            if most is not None and (connection.execute(waiting).scalar() or 0) >= most:
                return None, False
            columns = {
                "uuid": name,
                "server": server,
                "queue": queue,
                "study": clean(study),
                "request": ordered(request),
                "upload": None if upload is None else ordered(upload),
                "asked_by": asked_by,
                "once": once,
                "state": QUEUED,
                "attempts": 0,
                "created": created,
                "reason": "",
            }
            queries.inserted(connection, submissions, columns)
            return _first(connection, submissions.c.uuid == name), True

        return self._written(step)

    def submission(self, name: str) -> Submission | None:
        """Return the submission with a uuid; None if there is none."""
        with self._reading() as connection:
            return _first(connection, submissions.c.uuid == name)

    def named(self, names: Sequence[str]) -> dict[str, Submission]:
        """Return the submissions with these uuids that exist, by uuid."""
        with self._reading() as connection:
            return {one.uuid: one for one in _all(connection, _listed().where(submissions.c.uuid.in_(names)))}

    def sent_once(self, asked_by: str, once: str) -> Submission | None:
        """Return what a user submitted with an idempotency key before, or None."""
        with self._reading() as connection:
            return _first(connection, submissions.c.asked_by == asked_by, submissions.c.once == once)

    def submitted(self, *, states: Sequence[str] = STATES, server: str | None = None) -> list[Submission]:
        """Return submissions in these states, newest first; `server`: only those of this server."""
        query = _listed().where(submissions.c.state.in_(states)).order_by(submissions.c.id.desc())
        if server is not None:
            query = query.where(submissions.c.server == server)
        with self._reading() as connection:
            return _all(connection, query)

    def unstored(
        self, *, study: str | None = None, after: int | None = None, before: int | None = None
    ) -> list[Submission]:
        """Return the newest 50 ended submissions without a stored search: they ended too early.

        `after`, `before`: numbers of stored searches; only submissions sent between their beginnings.
        """
        of_it = select(searches.c.id).where(searches.c.submission == submissions.c.uuid)
        wanted: list[ColumnElement[bool]] = [submissions.c.state.in_((DONE, FAILED, STOPPED)), ~of_it.exists()]
        if study is not None:
            wanted.append(submissions.c.study == study)
        for number, has_place in ((after, submissions.c.created.__gt__), (before, submissions.c.created.__le__)):
            if number is not None:
                wanted.append(has_place(select(searches.c.started).where(searches.c.id == number).scalar_subquery()))
        query = _listed().where(*wanted).order_by(submissions.c.id.desc()).limit(50)
        with self._reading() as connection:
            return _all(connection, query)

    def waiting(self, server: str) -> dict[str, list[str]]:
        """Return the uuids of queued submissions, by queue, in the order in which they will run."""
        with self._reading() as connection:
            return _orders(connection, server)

    def claim(self, server: str, queue: str) -> Submission | None:
        """Mark the next submission of a queue as running and return it; None if none waits."""

        def step(connection: Connection) -> Submission | None:
            names = _orders(connection, server).get(queue)
            if not names:
                return None
            chosen = submissions.c.uuid == names[0]
            taken = {"state": RUNNING, "started": now(), "attempts": submissions.c.attempts + 1, "reason": ""}
            connection.execute(update(submissions).where(chosen).values(taken))
            return _first(connection, chosen)

        return self._written(step)

    def end(
        self,
        name: str,
        state: str,
        reason: str,
        result: Mapping[str, Any] | None = None,
        exit_code: int | None = None,
    ) -> None:
        """Store how a submission ended, or that it is queued again; `exit_code`: if it failed."""
        ended: dict[str, Any] = {"state": state, "reason": clean(reason), "exit_code": exit_code}
        if state not in OPEN:
            ended["ended"] = now()
        if result is not None:
            ended["result"] = ordered(result)
        chosen = and_(submissions.c.uuid == name, submissions.c.state.in_(OPEN))
        self._written(lambda connection: connection.execute(update(submissions).where(chosen).values(ended)))

    def ask_to_stop(self, name: str, *, is_at_work: bool = True) -> Submission | None:
        """Stop a submission at once if it is queued or its server is not running, else mark it as `stopping`.

        Return it as it is then; None if there is none, or it had ended.
        """

        def step(connection: Connection) -> Submission | None:
            chosen = submissions.c.uuid == name
            if _first(connection, chosen, submissions.c.state.in_(OPEN)) is None:
                return None
            queued = and_(chosen, submissions.c.state == QUEUED)
            gone = {"state": STOPPED, "reason": "stopped before it began", "ended": now()}
            connection.execute(update(submissions).where(queued).values(gone))
            running = and_(chosen, submissions.c.state.in_((RUNNING, STOPPING)))
            stopping = {"state": STOPPING} if is_at_work else gone | {"reason": "stopped; its server is not running"}
            connection.execute(update(submissions).where(running).values(stopping))
            return _first(connection, chosen)

        return self._written(step)

    def recover(self, server: str, attempts: int, queue: str | None = None) -> list[Submission]:
        """Queue submissions again that were running when a server was killed; return those that began too often.

        These began `attempts` times without finishing a trial, and are marked as failed. Those that were `stopping` are
        stopped. Call this when a server starts, or for a `queue` on which nothing runs: no such search is running then.
        """

        def step(connection: Connection) -> list[Submission]:
            own, died = submissions.c.server == server, "its process died with the server"
            if queue is not None:
                own, died = own & (submissions.c.queue == queue), "it had no process any more"
            stopping = {"state": STOPPED, "reason": "stopped; " + died, "ended": now()}
            connection.execute(update(submissions).where(own, submissions.c.state == STOPPING).values(stopping))
            running = and_(own, submissions.c.state == RUNNING)
            connection.execute(update(submissions).where(running, _has_come_on()).values({"attempts": 1}))
            spent = and_(running, submissions.c.attempts >= attempts)
            lost = _all(connection, select(submissions).where(spent))
            reason = f"{died}, {attempts} times without a trial"
            failed = {"state": FAILED, "reason": reason, "ended": now(), "exit_code": WorkerError.exit_code}
            connection.execute(update(submissions).where(spent).values(failed))
            again = {"state": QUEUED, "reason": f"{died}; it goes on from what is stored"}
            connection.execute(update(submissions).where(running).values(again))
            return lost

        return self._written(step)

    def uploads(self, study: str, asked_by: str | None = None) -> list[Uploaded]:
        """Return the uploaded studies with a name, the latest first, each text once; `asked_by`: only this user's."""
        of_them = submissions.c.id if asked_by is None else case((submissions.c.asked_by == asked_by, submissions.c.id))
        texts = (
            select(func.min(submissions.c.id).label("first"), func.max(of_them).label("latest"))
            .where(submissions.c.study == study, submissions.c.upload.is_not(None))
            .group_by(submissions.c.upload)
            .having(func.max(of_them).is_not(None))
            .order_by(func.max(of_them).desc())
            .limit(_UPLOADS)
            .subquery()
        )
        columns = [submissions.c[name] for name in ("upload", "uuid", "asked_by", "created")]
        query = select(*columns).join(texts, texts.c.first == submissions.c.id).order_by(texts.c.latest.desc())
        with self._reading() as connection:
            rows = connection.execute(query).all()
        return [Uploaded(json.loads(row.upload), row.uuid, row.asked_by, row.created) for row in rows]


def _has_come_on() -> ColumnElement[bool]:
    """Return the condition that a trial has ended since the submission's last start."""
    ended = select(trials.c.id).join(searches, searches.c.id == trials.c.search_id)
    return ended.where(
        searches.c.submission == submissions.c.uuid, trials.c.finished >= submissions.c.started, ~queries.unfinished()
    ).exists()


_UPLOADS = 20
"""The most texts of one name to return."""


def _orders(connection: Connection, server: str) -> dict[str, list[str]]:
    """Return the uuids of queued submissions, by queue, in their order."""
    columns = (*(submissions.c[name] for name in ("id", "uuid", "queue", "asked_by", "attempts")),)
    mine = and_(submissions.c.server == server, submissions.c.state == QUEUED)
    rows = connection.execute(select(*columns).where(mine).order_by(submissions.c.id)).all()
    if not rows:
        return {}
    users = submissions.c.asked_by.in_({row.asked_by for row in rows})
    not_ahead = submissions.c.started <= now()  # a start in the future (a wrong clock) would make the user wait for it
    began = (
        select(submissions.c.queue, submissions.c.asked_by, func.max(submissions.c.started).label("last"))
        .where(submissions.c.server == server, users, not_ahead)
        .group_by(submissions.c.queue, submissions.c.asked_by)
    )
    last = {(row.queue, row.asked_by): row.last for row in connection.execute(began)}
    found: dict[str, list[str]] = {}
    for queue in dict.fromkeys(row.queue for row in rows):
        here = [row for row in rows if row.queue == queue]
        fresh: dict[str, list[str]] = {}
        for row in here:
            if not row.attempts:
                fresh.setdefault(row.asked_by, []).append(row.uuid)
        begun = [row.uuid for row in here if row.attempts]
        found[queue] = begun + _in_turns(fresh, {user: last.get((queue, user), "") for user in fresh})
    return found


def _in_turns(users: Mapping[str, list[str]], last: Mapping[str, str]) -> list[str]:
    """Return several users' submissions in turns; the user whose last search is longest ago comes first."""
    turn = sorted(users, key=lambda user: last[user])  # stable: of two without any search, the one who submitted first
    deepest = max(map(len, users.values()), default=0)
    return [users[user][place] for place in range(deepest) for user in turn if place < len(users[user])]


_PLAIN = (
    "uuid", "server", "queue", "study", "asked_by", "state", "attempts", "created", "started", "ended", "reason",
    "exit_code",
)  # fmt: skip


def _listed() -> Select[Any]:
    """Return the query of submissions without the studies that came with them."""
    columns = [column for column in submissions.c if column is not submissions.c.upload]
    return select(*columns, submissions.c.upload.is_not(None).label("uploaded"))


def _first(connection: Connection, *wanted: ColumnElement[bool]) -> Submission | None:
    return next(iter(_all(connection, select(submissions).where(*wanted))), None)


def _all(connection: Connection, query: Select[Any]) -> list[Submission]:
    return [_submission(row) for row in connection.execute(query).mappings()]


def _submission(row: Columns) -> Submission:
    upload = row.get("upload")
    return Submission(
        number=row["id"],
        request=json.loads(row["request"]),
        uploaded=bool(row.get("uploaded", upload is not None)),
        upload=None if upload is None else json.loads(upload),
        result=None if row["result"] is None else json.loads(row["result"]),
        **{name: row[name] for name in _PLAIN},
    )
