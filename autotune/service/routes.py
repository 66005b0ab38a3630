"""The API below /v1: each route says what it takes and gives, and calls views/ or submit.py."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from fastapi.sse import EventSourceResponse, ServerSentEvent

from autotune import __version__
from autotune.lookup import DEFAULT_STUDY, FORMATS
from autotune.model import Outcome
from autotune.service import answered, views
from autotune.service import submit as submitting
from autotune.service.answered import Shows
from autotune.service.answers import NothingNew, documented
from autotune.service.depends import Admin, Before, Number, Opened, Reader, SearchId, Submitter, Writer, require_asked
from autotune.service.feeds import BEAT
from autotune.service.shapes import Check, NewToken, StudyName, Submit
from autotune.service.takein import take_in
from autotune.service.views import Json
from autotune.store import lifetime
from autotune.text import in_quotes, plain

router = APIRouter(prefix="/v1", dependencies=[Depends(require_asked)])

Limit = Annotated[int, Query(ge=1, le=1000)]
Word = Annotated[str | None, Query(max_length=200)]
Words = Annotated[list[Annotated[str, Query(max_length=400)]], Query(max_length=64)]
READ = documented()
FOUND = documented(404)
TEXT = {"type": "string"}
KEPT = {"headers": {name: {"schema": TEXT} for name in ("ETag", "Cache-Control", "Autotune-Match", "Autotune-Notes")}}
SENT = {"description": "Queued", "headers": {"Location": {"schema": TEXT, "description": "of the search"}}}


@router.get("/health", responses=READ, tags=["server"])
async def health() -> Annotated[dict[str, str], Shows(answered.Health)]:
    """Whether the server is there; open to everybody."""
    return {"status": "ok", "version": __version__}


@router.get("/me", responses=READ, tags=["server"])
async def me(caller: Reader) -> Annotated[dict[str, str | None], Shows(answered.Me)]:
    """Who this token says you are, and the role it gives."""
    return {"name": caller.name, "role": caller.role}


@router.get("/home", responses=READ, tags=["server"])
def home(service: Opened, caller: Reader) -> Annotated[Json, Shows(answered.Home)]:
    """Devices, running searches, queued searches in order, and the problems searched last with their bests."""
    return views.home(service)


@router.get(
    "/best",
    responses={
        **FOUND,
        200: {"content": {"text/plain": {"schema": TEXT}}, "description": "The best, in the format asked for", **KEPT},
        304: {"description": "Not changed since your ETag", **KEPT},
    },
    tags=["results"],
)
def best(
    study: StudyName = DEFAULT_STUDY,
    device: Word = None,
    size: Words = [],  # noqa: B006
    choice: Words = [],  # noqa: B006
    format: Literal[tuple(FORMATS)] = "json",  # type: ignore[valid-type]
    kernel_hash: Word = None,
    study_hash: Word = None,
) -> Annotated[Json, Shows(answered.Best)]:
    """The best stored configuration for a device and size, and how it matches the question.

    `size=M=1024,N=512` (a plain number sets every size), `choice=T=float`; both may be repeated. The hashes ask for a
    study with exactly that text. The headers `Autotune-Match` and `Autotune-Notes` (a list, as JSON) say how the answer
    falls short; it may be kept for the `max-age` of its `Cache-Control`.
    """
    raise AssertionError("app.py has lookups.py answer this")


@router.get("/devices", responses=READ, tags=["results"])
def devices(service: Opened, caller: Reader) -> Annotated[Json, Shows(answered.Devices)]:
    """The devices of the server, with the numbers that select them, and every model that has results."""
    return views.devices(service)


@router.get("/studies", responses=READ, tags=["results"])
def studies(service: Opened, caller: Reader) -> list[Annotated[Json, Shows(answered.OwnStudy)]]:
    """The server's own studies."""
    return views.studies(service)


@router.get("/studies/{name}", responses=FOUND, tags=["results"])
def study(service: Opened, caller: Reader, name: StudyName) -> Annotated[Json, Shows(answered.WholeStudy)]:
    """One study, whole: parameters, constraints, sizes, choices, the kernel's text."""
    return views.study(service, name)


@router.get("/searches", responses=READ, tags=["searches"])
def searches(
    service: Opened, caller: Reader, study: Word = None, device: Word = None, before: Before = None, limit: Limit = 50
) -> Annotated[Json, Shows(answered.Searches)]:
    """Queued, running and ended searches, newest first, each once; `next` is the `before` of the next page."""
    return views.searches(service, study=study, device=device, before=before, limit=limit)


@router.post(
    "/searches", status_code=202, responses={**documented(404, 409, 413, 415, 429), 202: SENT}, tags=["searches"]
)
async def submit(
    service: Opened,
    caller: Submitter,
    asked: Submit,
    response: Response,
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=200)] = None,
) -> Annotated[Json, Shows(answered.Search)]:
    """Queue a search of a study by name, or of one that is sent along with its files. Answers 202 and its `id`.

    With an `Idempotency-Key`, the same request sent again is the same search.
    """
    told = await submitting.submit(service, caller, asked, idempotency_key)
    response.headers["Location"] = f"/v1/searches/{told['id']}"
    return told


@router.get("/searches/{id}", responses=FOUND, tags=["searches"])
def search(service: Opened, caller: Reader, id: SearchId) -> Annotated[Json, Shows(answered.Search)]:
    """One search: its state, its place in the queue, its progress, its result.

    The state is `queued`, `running`, `stopping`, and in the end `done`, `failed` or `stopped`.
    """
    return views.search(service, id)


@router.delete("/searches/{id}", status_code=202, responses=documented(404, 409), tags=["searches"])
async def stop(service: Opened, caller: Submitter, id: SearchId) -> Annotated[Json, Shows(answered.Search)]:
    """Stop a search of yours in order: what it has found stays, and its finalists are not timed again.

    Stopping a search that somebody else asked for needs the role `admin`.
    """
    return await submitting.stop(service, caller, id)


@router.get("/searches/{id}/trials", responses=FOUND, tags=["searches"])
def points(
    service: Opened,
    caller: Reader,
    id: SearchId,
    after: Annotated[int, Query(ge=0, le=2**63 - 1)] = 0,
    limit: Annotated[int, Query(ge=1, le=20_000)] = 5000,
) -> Annotated[Json, Shows(answered.Points)]:
    """The trials of a search in the order they began, short: [number, outcome, time_ns, finished, configuration]."""
    return views.points(service, id, after=after, limit=limit)


LastEvent = Annotated[str | None, Header(max_length=100)]


def _watchable(service: Opened, caller: Reader, id: SearchId, last_event_id: LastEvent = None) -> None:
    """Raise Refused (404) for an unknown search, NothingNew if it has ended and the client has seen its end."""
    told = views.search(service, id)
    if views.has_ended(told) and service.feeds.has_seen(id, last_event_id):
        raise NothingNew


@router.get(
    "/searches/{id}/events",
    responses={**FOUND, 204: {"description": "It has ended, and you have received its end"}},
    response_class=EventSourceResponse,
    dependencies=[Depends(_watchable)],
    tags=["searches"],
)
async def events(
    service: Opened,
    caller: Reader,
    id: SearchId,
    last_event_id: LastEvent = None,
) -> AsyncIterator[ServerSentEvent]:
    """Events of a search: `snapshot`, `state` and `end` hold what /v1/searches/{id} gives; `progress` each trial.

    Continues after the `Last-Event-ID`. If that is from before a restart of the server, a `snapshot` comes first. The
    events end when the token expires or is revoked.
    """
    stream = service.feeds.follow(id, last_event_id, lambda: views.search(service, id), views.has_ended)
    async for event in stream:
        if not await service.callers.may_still_read(caller):
            return
        if event.kind == BEAT:
            yield ServerSentEvent(comment="")
        else:
            yield ServerSentEvent(raw_data=json.dumps(plain(event.data, nulls=True)), event=event.kind, id=event.name)


@router.get("/trials", responses=FOUND, tags=["results"])
def trials(
    service: Opened,
    caller: Reader,
    study: Word = None,
    device: Word = None,
    search: Word = None,
    outcome: Annotated[list[Outcome], Query(max_length=20)] = [],  # noqa: B006
    before: Before = None,
    limit: Limit = 50,
) -> Annotated[Json, Shows(answered.Trials)]:
    """Stored trials, newest first, by filters; `next` is the `before` of the next page."""
    return views.trials(
        service, study=study, device=device, outcomes=outcome, search=search, before=before, limit=limit
    )


@router.get("/trials/{number}", responses=FOUND, tags=["results"])
def trial(service: Opened, caller: Reader, number: Number) -> Annotated[Json, Shows(answered.WholeTrial)]:
    """One trial: samples, options, build log, environment."""
    return views.trial(service, number)


@router.get("/history", responses=READ, tags=["results"])
def history(
    service: Opened,
    caller: Reader,
    study: Word = None,
    failed: bool = False,
    limit: Limit = 30,
    device: Word = None,
) -> list[Annotated[Json, Shows(answered.HistoryRow)]]:
    """What `autotune history --json` prints: the newest trials, or the newest failures."""
    return [plain(one, nulls=True) for one in views.history(service, study, limit, failed, device)]


@router.get("/compare", responses=FOUND, tags=["results"])
def compare(
    service: Opened,
    caller: Reader,
    by: Annotated[str, Query(max_length=64)],
    study: StudyName = DEFAULT_STUDY,
    size: Words = [],  # noqa: B006
    choice: Words = [],  # noqa: B006
    device: Word = None,
) -> Annotated[Json, Shows(answered.Comparison)]:
    """The best per value of a parameter, per size or per device, of what is stored."""
    told = views.compare(service, study, by, size=size, choice=choice, device=device)
    return dict(plain(told, nulls=True))


class Lines(StreamingResponse):
    """Lines of JSON, as they come."""

    media_type = "application/x-ndjson"


@router.get("/export", responses=READ, response_class=Lines, tags=["results"])
def export(service: Opened, caller: Reader) -> Lines:
    """Every stored trial as one line of JSON each, as `autotune export` writes them."""
    first = service.store.export_page(0)  # so that an error is raised before the answer has begun

    def pages() -> Iterator[str]:
        lines, last = first
        while lines:
            yield "".join(in_quotes(line.rstrip("\n"), pairs=True) + "\n" for line in lines)
            lines, last = service.store.export_page(last)

    return Lines(pages())


@router.post("/checks", responses=documented(404, 413, 415), tags=["searches"])
async def check(service: Opened, caller: Submitter, asked: Check) -> Annotated[Json, Shows(answered.Checked)]:
    """What a study is at a size on a device, or what is wrong with it and where; nothing is built or run."""
    return await submitting.check(service, caller, asked)


@router.post("/import", responses=documented(413, 415), tags=["results"])
async def import_(
    service: Opened, caller: Writer, request: Request
) -> Annotated[dict[str, int], Shows(answered.Imported)]:
    """Add the trials of exported lines (the body), all or none; trials that are here already are not added again."""
    return await take_in(service, request)


@router.get("/tokens", responses=READ, tags=["tokens"])
def tokens(service: Opened, caller: Admin) -> list[Annotated[Json, Shows(answered.StoredToken)]]:
    """Every token: name, role, times; never the token itself."""
    return views.tokens(service)


@router.post("/tokens", status_code=201, responses=documented(415), tags=["tokens"])
def add_token(service: Opened, caller: Admin, asked: NewToken) -> Annotated[dict[str, str], Shows(answered.AddedToken)]:
    """Make a token. It is shown only this once."""
    lasts = None if asked.days is None else lifetime(asked.days * 86400, "days")
    return {"name": asked.name, "token": service.store.add_token(asked.name, asked.role, lasts)}


@router.delete("/tokens/{name}", responses=FOUND, tags=["tokens"])
def revoke_token(
    service: Opened, caller: Admin, name: Annotated[str, Path(max_length=64)]
) -> Annotated[dict[str, str], Shows(answered.Revoked)]:
    """End a token for good."""
    return submitting.revoke(service, name)
