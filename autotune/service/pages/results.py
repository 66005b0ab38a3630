"""Home, best configurations, one problem and what was learned of it, comparisons."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse

from autotune.errors import AutotuneError
from autotune.identity import ProblemKey, canonical, size_order
from autotune.lookup import open_records
from autotune.reports import learned, single
from autotune.service import views
from autotune.service.answers import Refused, for_others
from autotune.service.depends import Before, Number, Opened, Reader
from autotune.service.pages import snippets
from autotune.service.pages.common import Word, show
from autotune.service.pages.lessons import Lesson, Lessons
from autotune.service.state import Service
from autotune.store import listing, locate
from autotune.study import StudyText, default_size, parameter_values
from autotune.text import line
from autotune.text import size as shown_size

router = APIRouter()

PAGE = 20

_MOST_NAME = 120
"""The most characters in the name of a file to download."""


@router.get("/")
def home(request: Request, service: Opened, caller: Reader) -> Response:
    """Devices, what runs, what is queued, the latest bests."""
    return show(request, "home.html", views.home(service))


@router.get("/now")
def now(request: Request, service: Opened, caller: Reader) -> Response:
    """What runs and what is queued: the part of the first page that changes."""
    return show(request, "now.html", views.home(service, bests=False))


@router.get("/best")
def best(
    request: Request, service: Opened, caller: Reader, study: Word = "", device: Word = "", before: Before = None
) -> Response:
    """The best configuration of every stored problem, the newest of them, by size: match, time, ties, age, driver."""
    problems = listing.problems(service.store, study=study, device=device, before=before, limit=4 * PAGE)
    shown = listing.latest_texts(problems)[:PAGE]
    text_of = views.asked_once(service.studies.of)
    with open_records(locate(service.config.database)) as records:
        rows = _by_size([views.row_of_problem(service, one, nullcontext(records), text_of) for one in shown])
    studies, devices = listing.names(service.store)
    more = None
    if len(shown) == PAGE:
        more = shown[-1].number
    elif len(problems) == 4 * PAGE:
        more = problems[-1].number
    data = {"rows": rows, "study": study, "device": device, "studies": studies, "devices": devices, "next": more}
    data["paged"] = more is not None or before is not None
    return show(request, "best.html", data)


def _by_size(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows grouped by study, choices and device, each group in the order of the sizes."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(canonical([row["study"], row["choices"], row["device"]]), []).append(row)
    return [row for group in groups.values() for row in sorted(group, key=lambda row: size_order(row["size"]))]


def _lesson(request: Request, service: Service, number: int) -> tuple[listing.Problem, Lesson]:
    """Return a problem and what it teaches, from the kept lessons if it is there."""
    found = _problem(service, number)
    try:
        text: StudyText | str = service.studies.of(found.key.study, found.key.kernel_hash, found.key.study_hash)
    except Refused:
        text = single.NO_STUDY
    except AutotuneError as error:
        text = single.not_known(for_others(error))
    kept: Lessons = request.app.state.lessons
    return found, kept.of(service, found, text)


@router.get("/problems/{number}")
def problem(request: Request, service: Opened, caller: Reader, number: Number) -> Response:
    """One problem: its best in every form to take along, and the searches it comes of."""
    found = _problem(service, number)
    data: dict[str, Any] = {
        "problem": number,
        "key": _key(found.key),
        "best": None,
        "error": "",
        "forms": [],
        "searches": views.listed(service, listing.searches(service.store, problem=number, latest=True, limit=20)),
    }
    try:
        with open_records(locate(service.config.database)) as records:
            data["best"], answer = views.best_of_problem(service, records, found, service.studies.of, whole=True)
        data["key"]["size"] = data["best"]["size"]
        data["forms"] = (
            [] if answer is None else snippets.forms(answer, str(request.base_url).rstrip("/") + service.config.root)
        )
    except AutotuneError as error:
        data["error"] = line(for_others(error).what)
    return show(request, "problem.html", data, title=_title(found.key))


@router.get("/problems/{number}/learned")
def lessons(
    request: Request, service: Opened, caller: Reader, number: Number, down: Word = "", across: Word = ""
) -> Response:
    """What was learned: importance, best per value, a heat map of any two, finalists, the default against the best."""
    found, lesson = _lesson(request, service, number)
    told, varying = _map(lesson, down, across)
    data = {"problem": number, "key": _key(found.key), "learned": lesson.told, "map": told}
    return show(request, "lessons.html", data, picker=varying, trials_base="/trials/", maps=[], title=_title(found.key))


@router.get("/problems/{number}/heat")
def heat(
    request: Request, service: Opened, caller: Reader, number: Number, down: Word = "", across: Word = ""
) -> Response:
    """The heat map of two parameters, for the page above."""
    told, varying = _map(_lesson(request, service, number)[1], down, across)
    return show(request, "heat.html", {"problem": number, "map": told}, picker=varying, trials_base="/trials/")


@router.get("/problems/{number}/report.html")
def report(request: Request, service: Opened, caller: Reader, number: Number) -> Response:
    """The same as one file to keep or to send."""
    found, lesson = _lesson(request, service, number)
    name = re.sub(r"[^A-Za-z0-9._-]", "_", f"{found.key.study}-{shown_size(found.key.size)}")[:_MOST_NAME]
    return HTMLResponse(
        single.report(service.store, found, lesson.default),
        headers={"Content-Disposition": f'attachment; filename="{name}.html"', "Cache-Control": "no-store"},
    )


@router.get("/compare")
def compare(
    request: Request,
    service: Opened,
    caller: Reader,
    study: Word = "",
    by: Word = "",
    device: Word = "",
    sizes: Annotated[str, Query(max_length=2000)] = "",
) -> Response:
    """The best per value of a parameter, per size or per device, of what is stored: table and chart."""
    names, devices = listing.names(service.store)
    study = study or next((name for name in names if _is_here(service, name)), next(iter(names), ""))
    data: dict[str, Any] = {
        "study": study, "by": by or "size", "device": device, "sizes": sizes, "studies": names, "devices": devices,
        "parameters": [], "cells": [], "left_out": 0, "error": "", "chart": None,
    }  # fmt: skip
    if study:
        try:
            data |= _compared(service, data)
        except AutotuneError as error:
            data["error"] = line(str(for_others(error)))
    return show(request, "compare.html", data)


def _compared(service: Service, asked: dict[str, Any]) -> dict[str, Any]:
    text = service.studies.text(asked["study"])
    given = [part.strip() for part in asked["sizes"].split(";") if part.strip()]
    told = views.compare(service, text.name, asked["by"], size=given, device=asked["device"] or None)
    cells = [{**cell, "size_text": shown_size(cell["size"])} for cell in told["cells"]]
    device = next((cell["device"] for cell in cells), asked["device"])
    drawn = snippets.chart(cells, asked["by"], list(default_size(text)))
    return {
        "parameters": list(parameter_values(text)), "cells": cells, "left_out": told["left_out"], "device": device,
        "chart": drawn,
    }  # fmt: skip


def _is_here(service: Service, study: str) -> bool:
    try:
        service.studies.text(study)
    except AutotuneError:
        return False
    return True


def _problem(service: Service, number: int) -> listing.Problem:
    found = listing.problem(service.store, number)
    if found is None:
        raise Refused(404, f"no problem {number}", hint="/best lists them")
    return found._replace(key=found.key._replace(size=service.studies.in_order(found.key.study, found.key.size)))


def _key(key: ProblemKey) -> dict[str, Any]:
    return {**key._asdict(), "size": dict(key.size), "choices": dict(key.choices)}


def _title(key: ProblemKey) -> str:
    return " ".join(part for part in (key.study, shown_size(key.size)) if part)


def _map(lesson: Lesson, down: str, across: str) -> tuple[dict[str, Any] | None, list[str]]:
    """Return the heat map of two parameters (None if fewer vary), and the names of those that vary."""
    varying = learned.varying_of(lesson.known, lesson.told["importance"])
    if len(varying) < 2:
        return None, varying
    down = down if down in varying else varying[0]
    across = across if across in varying else next(name for name in varying if name != down)
    return learned.heat_map(lesson.known, across, down), varying
