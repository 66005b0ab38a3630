"""Searches, one search as it goes on; trials, one trial."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from autotune.model import Outcome
from autotune.reports import learned
from autotune.service import submit as submitting
from autotune.service import views
from autotune.service.depends import Before, Number, Opened, Reader, SearchId, Submitter
from autotune.service.pages.common import Word, go, show
from autotune.service.pages.lessons import course_of
from autotune.service.state import Service
from autotune.store import listing

router = APIRouter()

PAGE = 50

_LOOK_NO_MORE = 286


@router.get("/searches")
def searches(
    request: Request, service: Opened, caller: Reader, study: Word = "", device: Word = "", before: Before = None
) -> Response:
    """What is queued or runs, and what is stored, newest first."""
    told = views.searches(service, study=study or None, device=device or None, before=before, limit=PAGE)
    studies, devices = listing.names(service.store)
    return show(
        request, "searches.html", told | {"study": study, "chosen": device, "studies": studies, "devices": devices}
    )


@router.get("/searches/{id}")
def search(request: Request, service: Opened, caller: Reader, id: SearchId) -> Response:
    """One search, live and finished: best so far, every trial, failures, where the time went."""
    return show(request, "search.html", _told(service, id))


@router.get("/searches/{id}/live")
def live(request: Request, service: Opened, caller: Reader, id: SearchId) -> Response:
    """The part of that page that changes while the search runs; after its end, the status makes htmx stop polling."""
    told = _told(service, id)
    return show(request, "live.html", told, _LOOK_NO_MORE if told["ended"] and "hx-request" in request.headers else 200)


@router.post("/searches/{id}/stop")
async def stop(service: Opened, caller: Submitter, id: SearchId) -> Response:
    """Stop a search in order, as the API does."""
    await submitting.stop(service, caller, id)
    return go(f"/searches/{id}")


def _told(service: Service, id: str) -> dict[str, Any]:
    told = views.search(service, id)
    ended = views.has_ended(told)
    problem = None
    if told["searches"]:
        found = listing.search(service.store, told["searches"][-1])
        problem = None if found is None else found.problem
    return {
        "search": told,
        "ended": ended,
        "problem": problem,
        "course": course_of(service, told["searches"], live=not ended),
    }


@router.get("/trials")
def trials(
    request: Request,
    service: Opened,
    caller: Reader,
    study: Word = "",
    device: Word = "",
    search: Annotated[str, Query(pattern="^([0-9a-f]{32})?$")] = "",
    outcome: Annotated[str, Query(pattern="^[a-z_]{0,20}$")] = "",
    before: Before = None,
) -> Response:
    """Stored trials, newest first, by filters."""
    told = views.trials(
        service, study=study or None, device=device or None, outcomes=[outcome] if outcome else [],
        search=search or None, before=before, limit=PAGE,
    )  # fmt: skip
    studies, devices = listing.names(service.store)
    asked = {"study": study, "chosen": device, "search": search, "outcome": outcome}
    outcomes = [one.value for one in Outcome]
    return show(request, "trials.html", told | asked, studies=studies, devices=devices, outcomes=outcomes)


@router.get("/trials/{number}")
def trial(request: Request, service: Opened, caller: Reader, number: Number) -> Response:
    """One trial with its samples, options and build log."""
    told = views.trial(service, number)
    measured = (
        ("as first measured", told["samples_ns"]),
        ("timed again, in turns with the other finalists", told["retimed_ns"]),
    )
    samples = [{"title": title, **learned.spread(taken)} for title, taken in measured if taken]
    return show(request, "trial.html", {"trial": told}, samples=samples)
