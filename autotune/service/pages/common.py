"""What all pages share: templates, static files, HTML or JSON, errors as pages."""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse
from jinja2 import Environment
from starlette.exceptions import HTTPException

from autotune import __version__
from autotune.errors import AutotuneError
from autotune.reports import page
from autotune.service.answers import Refused, Visible, headers_of, problem_of, status_of, unknown_of
from autotune.service.callers import caller_of, csrf_token
from autotune.service.pages.lessons import Lessons
from autotune.service.state import service_of
from autotune.text import plain
from autotune.tuner import DEFAULT_SECONDS

FOLDER = Path(__file__).parent.parent
STATIC = (FOLDER / "static", page.STATIC)

KINDS = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}

_ADDRESS = re.compile(r"""\b(href|src|action|hx-get|hx-post|sse-connect|data-trials)="(?=/)""")
"""Attributes of the templates that hold an address of this server."""

Word = Annotated[str, Query(max_length=200)]

SIGN_IN = "sign in in another tab of this browser, then send this again"

NAVIGATION = (
    ("/", "Home"),
    ("/best", "Best"),
    ("/searches", "Searches"),
    ("/compare", "Compare"),
    ("/trials", "Trials"),
    ("/submit", "Submit"),
)


@lru_cache(maxsize=1)
def templates() -> Environment:
    """Return the templates of the pages, with those of reports behind them."""
    made = page.environment(FOLDER / "templates")
    made.globals |= {"static": static_url, "version": __version__, "navigation": NAVIGATION}
    made.globals["default_seconds"] = DEFAULT_SECONDS
    return made


@lru_cache(maxsize=1)
def static_files() -> dict[str, Path]:
    """Return every static file by its name."""
    return {
        str(path.relative_to(folder)): path
        for folder in STATIC
        for path in sorted(folder.rglob("*"))
        if path.suffix in KINDS
    }


@lru_cache(maxsize=1)
def static_version() -> str:
    """Return a digest of all static files: when they change, so do their addresses, so each can be cached for good."""
    whole = hashlib.sha256()
    for name, path in static_files().items():
        whole.update(name.encode() + path.read_bytes())
    return whole.hexdigest()[:12]


def static_url(name: str) -> str:
    """Return the address of a static file."""
    assert name in static_files(), name
    return f"/static/{static_version()}/{name}"


def static(version: str, name: str) -> Response:
    """Return a static file, which a browser may keep for good under this address."""
    path = static_files().get(name)
    if path is None:
        raise Refused(404, f"no file {name!r:.100}")
    kept = "public, max-age=31536000, immutable" if version == static_version() else "no-cache"
    return FileResponse(path, media_type=KINDS[path.suffix], headers={"Cache-Control": kept})


def wants_json(request: Request) -> bool:
    """Whether a program asks, by its `Accept`: browsers name HTML first."""
    accepted = request.headers.get("accept", "")
    return "application/json" in accepted and "text/html" not in accepted


def show(request: Request, template: str, data: dict[str, Any], status: int = 200, **more: Any) -> Response:
    """Return a page, or only its `data` to a client that wants JSON; `more` is for the template only."""
    if wants_json(request):
        return Visible(plain(data, nulls=True), status, {"Cache-Control": "no-store", "Vary": "Accept"})
    caller, config = caller_of(request), service_of(request).config
    html = (
        templates()
        .get_template(template)
        .render(
            {**data, **more},
            path=request.url.path,
            caller=caller,
            may_run=caller.may("run"),
            may_admin=caller.may("admin"),
            csrf=csrf_token(request),
            read_only=config.read_only,
        )
    )
    if root := config.root:  # values in a template have escaped quotation marks, so they do not match
        html = _ADDRESS.sub(rf"\g<0>{root}", html)
    return HTMLResponse(html, status, {"Cache-Control": "no-store", "Vary": "Accept"})


def go(address: str) -> Response:
    """Return the answer to a form: a redirect to an address."""
    return RedirectResponse(address, 303)


def install(app: FastAPI) -> None:
    """Have errors of pages answered by pages (not those of the API and of programs), and have lessons kept."""
    app.state.lessons = Lessons()
    handlers = dict(app.exception_handlers)

    def paged(kind: Any) -> None:
        before: Any = handlers[kind]

        async def handler(request: Request, error: Exception) -> Response:
            if request.url.path.startswith("/v1/") or wants_json(request) or "autotune.caller" not in request.scope:
                answer: Response = await before(request, error)
                return answer
            return _error(request, error)

        app.add_exception_handler(kind, handler)

    for kind in (AutotuneError, RequestValidationError, HTTPException):
        paged(kind)


def _error(request: Request, error: Exception) -> Response:
    if isinstance(error, AutotuneError):
        status, told = status_of(error), problem_of(error)
    elif isinstance(error, HTTPException):
        status, told = error.status_code, problem_of(Refused(error.status_code, str(error.detail)))
    else:
        assert isinstance(error, RequestValidationError)
        unfit = unknown_of(error) or Refused(422, "the address holds a value that this page does not take")
        unfit.hint = ""  # the hint is for programs
        status, told = unfit.status, problem_of(unfit)
    is_part = request.headers.get("hx-request") is not None
    if status == 401:
        if request.method in ("GET", "HEAD") and not is_part:
            return go(f"/login?to={request.url.path}")
        # To replace the form by a page to sign in would lose what was typed.
        told["hint"] = SIGN_IN if is_part else f"{SIGN_IN}: reload this page"
    if is_part:
        answer = show(request, "checked.html", {"error": told | {"line": None, "around": []}}, status)
    else:
        answer = show(request, "error.html", {"status": status, **told}, status)
    if isinstance(error, HTTPException):
        answer.headers.update(headers_of(request, error))
    return answer
