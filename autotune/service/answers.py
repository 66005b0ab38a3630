"""Errors as answers: one shape for all, `{"error": ..., "where": ..., "hint": ..., "detail": ...}`."""

from __future__ import annotations

import errno
import json
import logging
import re
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match

from autotune.errors import AutotuneError, SetupError, StoreError
from autotune.service.refused import Refused as Refused
from autotune.text import in_quotes, line, lines

LABEL = "the server's database"
"""What answers call the database: clients must not learn its path."""


class Visible(JSONResponse):
    """JSON in which invisible characters are escaped: a person who asks by hand sees exactly what is stored."""

    def render(self, content: Any) -> bytes:
        """Return the document."""
        document = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return in_quotes(document, pairs=True).encode()


class Problem(BaseModel):
    """Why there is no answer, in one line: what is wrong, where, what to do next; `detail` is a log of several."""

    error: str
    where: str = ""
    hint: str = ""
    detail: str = ""


class NothingNew(Exception):
    """The answer is 204: the client has seen everything, and need not ask again."""


_FULL = {errno.ENOSPC: "the disk is full", errno.EDQUOT: "the disk quota is spent", errno.EFBIG: "a file may not grow"}

_LOGGED = "the server's stderr says more"

_HINT = "GET /v1/openapi.json lists what is allowed there"

_AS_JSON = "send it with Content-Type: application/json"

_HINTS = {400: _HINT, 404: _HINT, 405: _HINT, 408: "send it again, without pauses; an import may go in parts"}
"""What to do if FastAPI, or what reads a body for it, refuses a request."""

_MEANINGS = {
    400: "The request cannot be read",
    401: "A token is needed",
    403: "The token does not allow it, or a form is not from this server",
    404: "It does not exist",
    408: "The request did not come in time",
    409: "It contradicts an earlier request, or the state has changed",
    413: "Too large",
    415: "A compressed body",
    421: "The host name is not one of this server",
    422: "The input is wrong",
    429: "Too much is waiting already",
    500: "The server failed at this; its stderr says why",
    503: "The machine or its database cannot do it now",
}

log = logging.getLogger(__name__)


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the entry of a route's `responses` for these statuses and those that every route may give."""
    return {
        status: {"model": Problem, "description": _MEANINGS[status]}
        for status in sorted({400, 401, 403, 408, 421, 422, 500, 503, *statuses})
    }


def status_of(error: AutotuneError) -> int:
    """Return the HTTP status of an error."""
    if isinstance(error, Refused):
        return error.status
    return 503 if isinstance(error, StoreError | SetupError) else 422


def problem_of(error: AutotuneError) -> dict[str, str]:
    """Return an error as JSON for clients, with visible characters only."""
    error = for_others(error)
    where, what, hint = map(line, error.parts())
    return {"error": what, "where": where, "hint": hint, "detail": lines(error.detail)}


def in_words(text: str) -> str:
    """Return a text about command-line options in the words of a request; a whole command stays as it is."""
    if "autotune " in text:
        return text
    text = re.sub(r"(?<!\S)--(size|choice|device|fix)\b", r"\1", text)
    text = re.sub(r"(?<!\S)--run-limit( 10m)?\b", "run_limit", text)
    return re.sub(r"(?<!\S)-d(?=:)", "device", re.sub(r"(?<!\S)-d (?=\w)", "device=", text))


def for_others(error: AutotuneError) -> AutotuneError:
    """Return an error as clients may see it; an error of the database is logged in full for whoever runs the server.

    Clients must not learn where the database is, nor what its driver says about the connection.
    """
    if not isinstance(error, StoreError) or error.where == LABEL:
        return AutotuneError(error.what, where=in_words(error.where), hint=in_words(error.hint), detail=error.detail)
    log.warning("%s", error)
    what, hint = re.split("[:;] ", error.what)[0], error.hint.replace(error.where or LABEL, LABEL)
    return StoreError(what, where=LABEL, hint=hint if hint and "/" not in hint else _LOGGED)


def unknown_of(error: RequestValidationError) -> Refused | None:
    """Return the answer to an address with an unknown name or number in its path; None if something else is wrong."""
    first = error.errors()[0]
    if first["loc"][0] != "path":
        return None
    return Refused(404, f"nothing here is called {first['input']!r:.60}", hint=_HINT)


def answer(error: AutotuneError) -> JSONResponse:
    """Return the answer for an error."""
    status = status_of(error)
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {"Retry-After": "5"} if status in (429, 503) else {}
    return JSONResponse(problem_of(error), status, headers | {"Cache-Control": "no-store"})


def headers_of(request: Request, error: HTTPException) -> dict[str, str]:
    """Return the headers of a refusal by FastAPI, whose own `Allow` covers only one route."""
    headers = dict(error.headers or {})
    if error.status_code == 405:
        takes = [method for method in ("GET", "POST", "DELETE") if _takes(request, method)]
        headers["Allow"] = ", ".join(takes)
    return headers


def _takes(request: Request, method: str) -> bool:
    scope = {**request.scope, "method": method}
    return any(route.matches(scope)[0] is Match.FULL for route in request.app.router.routes)


async def _ours(_request: Request, error: Exception) -> Response:
    assert isinstance(error, AutotuneError)
    return answer(error)


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    if (unknown := unknown_of(error)) is not None:
        return answer(unknown)
    if first["loc"] == ("body",) and "json" not in request.headers.get("content-type", ""):
        return answer(Refused(422, "is not sent as JSON", where="body", hint=_AS_JSON))
    place = ".".join(str(part) for part in first["loc"] if part != "body")
    where = "body" if first["type"] == "json_invalid" else place
    return answer(Refused(422, str(first["msg"]), where=where, hint=_HINT))


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    where = "body" if error.status_code == 400 else ""
    told = Refused(error.status_code, str(error.detail), where=where, hint=_HINTS.get(error.status_code, ""))
    found = JSONResponse(problem_of(told), error.status_code, headers_of(request, error))
    found.headers.setdefault("Cache-Control", "no-store")
    return found


async def _full(request: Request, error: Exception) -> Response:
    what = _FULL.get(error.errno or 0) if isinstance(error, OSError) else None
    if what is None:
        raise error
    hint = "make room there, or start it with TMPDIR set to a folder that has more"
    told = SetupError(what, where="the server's folder for temporary files", hint=hint)
    handler: Any = request.app.exception_handlers[AutotuneError]
    found: Response = await handler(request, told)  # a page, if one is asked for
    return found


async def _broken(_request: Request, _error: Exception) -> Response:
    return answer(Refused(500, "the server failed at this", hint="the server's stderr says why"))


async def _nothing(_request: Request, _error: Exception) -> Response:
    return Response(status_code=204)


async def _gone(_request: Request, _error: Exception) -> Response:
    return answer(Refused(400, "the request was cut off"))  # nobody reads it


def install(app: FastAPI) -> None:
    """Have every error answered in this shape."""
    app.add_exception_handler(NothingNew, _nothing)
    app.add_exception_handler(ClientDisconnect, _gone)
    app.add_exception_handler(OSError, _full)
    app.add_exception_handler(Exception, _broken)
    app.add_exception_handler(AutotuneError, _ours)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
