"""Look-ups over HTTP: `GET /v1/best`, a plain route, since FastAPI would cost more than the answer.

An answer is used again for `best_age_s` (a second), and for half a minute while nobody writes to an SQLite database:
the same question then gets the same bytes. A client that already has them, by their ETag, gets a 304.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response

from autotune.errors import AutotuneError
from autotune.lookup import DEFAULT_STUDY, FORMATS, Asked, Best, Match, best_of, render
from autotune.service.answers import LABEL, Refused, answer
from autotune.service.callers import caller_of, require_role
from autotune.service.config import Config
from autotune.service.machine import Machine
from autotune.service.newest import Newest
from autotune.service.studies import Studies, stamp
from autotune.service.trust import FLOPS, MATCH, NOTES, sent_text
from autotune.store import locate, log_of
from autotune.study import StudyText
from autotune.text import require_known

_MAX_AGE_S = 60
"""How long a client may keep an exact answer."""

_KEPT = 4096
_UNCHANGED_S = 30.0
"""The longest time that an answer is used while database and study do not change: the drivers may have changed."""

_TICK_NS = 20_000_000
"""A file that was written less than this ago may be written again with the same time of writing."""
_KEYS = ("study", "device", "size", "choice", "format", "kernel_hash", "study_hash")
_MOST_QUERY = 4096


class Answer(NamedTuple):
    """An answer ready to be sent."""

    body: bytes
    headers: dict[str, str]
    asked: float
    stamps: tuple[tuple[int, int] | None, ...]
    """Those of the database's files when it was asked; empty if they are not reliable."""
    study: tuple[str, StudyText | None]
    """The study's name, and the server's own study of that name at that time."""


class Lookups:
    """Answers questions for the best, each at most once in `best_age_s`."""

    def __init__(self, config: Config, studies: Studies, machine: Machine) -> None:
        self._config = config
        self._studies = studies
        self._machine = machine
        self._kept: Newest[str, Answer] = Newest(_KEPT)
        self._asked: dict[str, asyncio.Future[Answer]] = {}
        path = locate(config.database).path
        self._files = (Path(path), Path(log_of(path))) if path else ()

    async def best(self, request: Request) -> Response:
        """Answer `GET /v1/best`; routes.py says what it takes and gives."""
        try:
            require_role(caller_of(request), "read")
            found = await self._answer(request.scope["query_string"].decode("latin-1"))
        except AutotuneError as error:
            return answer(error)
        if _has(request.headers.get("if-none-match"), found.headers["ETag"]):
            kept = {name: value for name, value in found.headers.items() if name != "Content-Type"}
            return Response(status_code=304, headers=kept)
        return Response(found.body, headers=found.headers)

    async def _answer(self, query: str) -> Answer:
        known = self._kept.get(query)
        if known is not None and self._stands(known):
            return known
        asked = self._asked.get(query)
        if asked is None:
            asked = self._asked[query] = asyncio.ensure_future(to_thread.run_sync(self._look_up, query))
            asked.add_done_callback(lambda _: self._asked.pop(query, None))
        found = await asyncio.shield(asked)
        self._kept[query] = found
        return found

    def _stands(self, known: Answer) -> bool:
        age_s = time.monotonic() - known.asked
        if age_s < self._config.best_age_s:
            return True
        name, text = known.study
        unchanged = age_s < _UNCHANGED_S and known.stamps and known.stamps == self._stamps()
        return bool(unchanged) and text is not None and self._studies.own(name) is text

    def _stamps(self) -> tuple[tuple[int, int] | None, ...]:
        found = tuple(map(stamp, self._files))
        newest = max((one[0] for one in found if one is not None), default=0)
        return found if 0 < newest < time.time_ns() - _TICK_NS else ()

    def _look_up(self, query: str) -> Answer:
        asked, stamps = time.monotonic(), self._stamps()
        given = _parsed(query)
        format = given["format"][-1] if given["format"] else "json"
        require_known("format", [format[:60]], FORMATS, where="format")
        study = [DEFAULT_STUDY, *given["study"]][-1]
        own = self._studies.own(study)
        best, said = self._best(study, given)
        body = render(best, format).encode("utf-8", "replace")
        kind = "application/json" if format == "json" else "text/plain; charset=utf-8"
        headers = {
            "Content-Type": kind,
            "ETag": f'"{hashlib.sha256(body).hexdigest()[:24]}"',
            "Cache-Control": f"private, max-age={_MAX_AGE_S if best.match is Match.EXACT else 5}",
            "Vary": "Authorization, Cookie",
            MATCH: best.match.value,
            NOTES: json.dumps(said),
        }
        if best.flops is not None:
            headers[FLOPS] = repr(best.flops)
        return Answer(body, headers, asked, stamps, (study, own))

    def _best(self, study: str, given: Mapping[str, list[str]]) -> tuple[Best, list[str]]:
        """Return the best and the lines to say beside it. Raises AutotuneError; takes a moment."""
        device, kernel_hash, study_hash = (
            next(iter(given[name]), None) for name in ("device", "kernel_hash", "study_hash")
        )
        text, uploaded = self._studies.found(study, kernel_hash, study_hash)
        asked = Asked(study, device, tuple(given["size"]), tuple(given["choice"]), self._config.database)
        best, said = best_of(asked, text, self._machine.find, LABEL)
        if uploaded is not None and kernel_hash is None and study_hash is None:
            whose = sent_text(uploaded.asked_by, uploaded.created, uploaded.search)
            said.insert(0, f"note: {study} is not a study of the server; this is for {whose}")
        return best, said


def _parsed(query: str) -> Mapping[str, list[str]]:
    if len(query) > _MOST_QUERY:
        raise Refused(422, f"the question has more than {_MOST_QUERY} characters")
    given: dict[str, list[str]] = {name: [] for name in _KEYS}
    try:
        pairs: Any = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query), errors="strict")
    except ValueError:
        raise Refused(400, "the question cannot be read", hint="write ?study=NAME&size=M=1024") from None
    for name, value in pairs:
        require_known("question", [name[:60]], _KEYS)
        if not value.strip(", ") or not value.isprintable():
            raise Refused(422, "has no value to ask for", where=name)
        given[name].append(value)
    return given


def _has(given: str | None, tag: str) -> bool:
    """Whether a client has the answer with that tag, by its If-None-Match."""
    if given is None:
        return False
    return given.strip() == "*" or tag in (one.strip().removeprefix("W/") for one in given.split(","))
