"""The searches that a server is asked for: stored when it says so, in their order, through every restart.

    queued -> running -> done | failed | stopped         and back to queued, where the server ended meanwhile

`stopping` is running, with somebody having asked for its end. One queue per device of a server; within one, what had
begun before goes on first; then the user who has waited longest since a search of theirs began, and among a user's own
the first that was asked for.
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
"""States of what has not ended."""


@dataclass(frozen=True, slots=True)
class Submission:
    """A search that was asked for. `request` is what was asked, `uploaded` whether a study came with it.

    `upload` is that study; None in a list of submissions, since each may be as large as an upload may be.
    `attempts` counts how often it began; `result` is what it found, as JSON holds it. `exit_code` is that of the error
    by which it failed (errors.py); None: it did not, or an older version, which kept none, ran it.
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
    """A study that came with searches, and which search first brought this text, when, of whom."""

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
        """Put a search on record as queued; return it and whether it is new.

        `once` is the asker's idempotency key: what was asked with it before is returned as it is. None, False: the
        asker has `most` waiting already.
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
        """Return the submission of that uuid; None where there is none."""
        with self._reading() as connection:
            return _first(connection, submissions.c.uuid == name)

    def named(self, names: Sequence[str]) -> dict[str, Submission]:
        """Return the submissions of these uuids, as far as there are any."""
        with self._reading() as connection:
            return {one.uuid: one for one in _all(connection, _listed().where(submissions.c.uuid.in_(names)))}

    def sent_once(self, asked_by: str, once: str) -> Submission | None:
        """Return what somebody asked with an idempotency key before."""
        with self._reading() as connection:
            return _first(connection, submissions.c.asked_by == asked_by, submissions.c.once == once)

    def submitted(self, *, states: Sequence[str] = STATES, server: str | None = None) -> list[Submission]:
        """Return submissions in those states, newest first; `server`: of that one only."""
        query = _listed().where(submissions.c.state.in_(states)).order_by(submissions.c.id.desc())
        if server is not None:
            query = query.where(submissions.c.server == server)
        with self._reading() as connection:
            return _all(connection, query)

    def unstored(
        self, *, study: str | None = None, after: int | None = None, before: int | None = None
    ) -> list[Submission]:
        """Return ended submissions of which no search is stored, the newest 50: they ended too early.

        `after`, `before`: numbers of stored searches, between whose beginnings they were sent.
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
        """Return the uuids of what is queued, by queue, in the order in which they will run."""
        with self._reading() as connection:
            return _orders(connection, server)

    def claim(self, server: str, queue: str) -> Submission | None:
        """Take the next of a queue to run it; None where none waits."""

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
        """Record how a submission ended, or that it is queued again; `exit_code`: of what has failed."""
        ended: dict[str, Any] = {"state": state, "reason": clean(reason), "exit_code": exit_code}
        if state not in OPEN:
            ended["ended"] = now()
        if result is not None:
            ended["result"] = ordered(result)
        chosen = and_(submissions.c.uuid == name, submissions.c.state.in_(OPEN))
        self._written(lambda connection: connection.execute(update(submissions).where(chosen).values(ended)))

    def ask_to_stop(self, name: str, *, is_at_work: bool = True) -> Submission | None:
        """Have a submission stopped: at once where it is queued, else it is `stopping`. Return it as it is then.

        None where there is none, or it has ended. Where its server is not at work, it is stopped at once.
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
        """Queue again what was running when a server was killed; return what was not, having begun too often.

        That is `attempts` times without a trial to show for it. What somebody wanted stopped is stopped. For a server
        that starts, or a `queue` on which nothing runs: none of these searches is at work then.
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
        """Return the uploaded studies of that name, the latest first, each text once; of what one user searched."""
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
    """Return the condition that a trial has ended since a submission began last."""
    ended = select(trials.c.id).join(searches, searches.c.id == trials.c.search_id)
    return ended.where(
        searches.c.submission == submissions.c.uuid, trials.c.finished >= submissions.c.started, ~queries.unfinished()
    ).exists()


_UPLOADS = 20
"""How many texts of one name are looked through."""


def _orders(connection: Connection, server: str) -> dict[str, list[str]]:
    """Return the uuids of what is queued, by queue, in their order."""
    columns = (*(submissions.c[name] for name in ("id", "uuid", "queue", "asked_by", "attempts")),)
    mine = and_(submissions.c.server == server, submissions.c.state == QUEUED)
    rows = connection.execute(select(*columns).where(mine).order_by(submissions.c.id)).all()
    if not rows:
        return {}
    users = submissions.c.asked_by.in_({row.asked_by for row in rows})
    not_ahead = submissions.c.started <= now()  # the clock was wrong then: by it the user would wait until that comes
    began = (
        select(submissions.c.queue, submissions.c.asked_by, func.max(submissions.c.started).label("last"))
        .where(submissions.c.server == server, users, not_ahead)
        .group_by(submissions.c.queue, submissions.c.asked_by)
    )
    last = {(row.queue, row.asked_by): row.last for row in connection.execute(began)}
    begun: dict[str, list[str]] = {}
    by_queue: dict[str, dict[str, list[str]]] = {}
    for row in rows:
        if row.attempts:  # it had its turn
            begun.setdefault(row.queue, []).append(row.uuid)
        else:
            by_queue.setdefault(row.queue, {}).setdefault(row.asked_by, []).append(row.uuid)
    return {
        queue: begun.get(queue, [])
        + _in_turns(by_queue.get(queue, {}), {user: last.get((queue, user), "") for user in by_queue.get(queue, {})})
        for queue in dict.fromkeys(row.queue for row in rows)
    }


def _in_turns(users: Mapping[str, list[str]], last: Mapping[str, str]) -> list[str]:
    """Return what several users wait for, in turns: who had none for longest comes first."""
    turn = sorted(users, key=lambda user: last[user])  # stable: of two that never had one, who asked first
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
