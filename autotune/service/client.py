"""The client: asks a server what the command line and the Python API ask here. Standard library only.

    server = autotune.connect("https://tune.example.org", token="at_...")
    server.best("sgemm", size={"M": 4096, "N": 4096, "K": 4096}).configuration
    server.search("./blur.toml", trials=100)

What a server says is checked before it is used. Answers for the best are kept in the user's cache. They are not asked
for again during their `max-age`, and while the server is away, the last good answer is used.
"""

from __future__ import annotations

import operator
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from autotune.errors import UsageError
from autotune.identity import Choices, Size
from autotune.lookup import DEFAULT_STUDY, Best
from autotune.service.kept import Kept, KeptAnswers
from autotune.service.sending import is_path, question_of, upload_of
from autotune.service.transport import Reply, Transport, question, segment
from autotune.service.transport import ServerAway as ServerAway
from autotune.service.transport import ServerRefuses as ServerRefuses
from autotune.service.trust import believed, best_from, failure_of, line_of, search_id

PATIENCE_S = 600.0
"""Seconds for which a watched search waits for a server that is away."""

MOST_TRIALS = 1000
"""The most trials of a history in one answer of a server."""

_PAUSE_S = 1.0

Tell = Callable[[str], None]
Progress = Mapping[str, Any]


def connect(url: str, token: str | None = None, *, cache: bool = True) -> Server:
    """Return the server at a URL. `token`: by default that of AUTOTUNE_TOKEN. Nothing is asked yet.

    Raises UsageError if it is not a URL of a server, or if the token would be sent in clear text.
    """
    for name, given in (("url", url), ("token", "" if token is None else token)):
        if not isinstance(given, str):
            hint = 'write autotune.connect("https://HOST")'
            raise UsageError(f"{type(given).__name__} is not text", where=name, hint=hint)
    try:
        return Server(url, token, cache=cache)
    except UsageError as error:
        error.where = "url" if error.where == "--server" else error.where
        raise


class Server:
    """A server of `autotune serve`. Its methods raise AutotuneError: ServerRefuses, ServerAway."""

    def __init__(self, url: str, token: str | None = None, *, cache: bool = True, tell: Tell | None = None) -> None:
        self._http = Transport(url, token)
        self.url = self._http.url
        self._tell = tell or _say
        self._kept = KeptAnswers(f"{self.url}\0{self._http.token or ''}") if cache else None

    def __repr__(self) -> str:
        """Return what a notebook shows, without the token."""
        return f"<server {self.url}>"

    # Results ----------------------------------------------------------------------------------------------

    def best(
        self,
        study: str | Path = DEFAULT_STUDY,
        *,
        device: str | None = None,
        size: Size | Sequence[str] | None = None,
        choices: Choices | Sequence[str] | None = None,
    ) -> Best:
        """Return the best that the server knows for a study, a device and a size, as `autotune.best` does here.

        A path asks for the study with exactly that text. While the server is away, its last good answer is returned.
        """
        return self.best_and_notes(study, device=device, size=size, choices=choices)[0]

    def best_and_notes(
        self,
        study: str | Path,
        *,
        device: str | None = None,
        size: Size | Sequence[str] | None = None,
        choices: Choices | Sequence[str] | None = None,
    ) -> tuple[Best, list[str]]:
        """Return the best and the lines to say beside it."""
        asked: list[tuple[str, str]] = [("device", device)] if device is not None else []
        for name, called, given in (("size", "size", size), ("choice", "choices", choices)):
            _require(called, given, Mapping | Sequence)
            texts = [f"{key}={value}" for key, value in given.items()] if isinstance(given, Mapping) else given
            asked += [(name, text) for text in texts or ()]
        path = f"/v1/best?{question([*question_of(study), *asked])}"
        reply = self._remembered(path)
        return best_from(reply.body, reply.headers, self.url)

    def history(
        self, study: str | None = None, *, limit: int = 30, failed: bool = False, device: str | None = None
    ) -> list[dict[str, Any]]:
        """Return the newest trials, 1,000 at most, as `autotune history --json`. A path asks by its study's name."""
        try:
            newest = min(operator.index(limit), MOST_TRIALS)
        except TypeError:
            what = f"{type(limit).__name__} is not a whole number"
            raise UsageError(what, where="limit", hint="write limit=30") from None
        asked = [("limit", str(newest)), ("failed", str(failed).lower())]
        asked += question_of(study)[:1] if study else []
        asked += [("device", device)] if device is not None else []
        return self._http.rows(f"/v1/history?{question(asked)}")

    def home(self) -> dict[str, Any]:
        """Return the server's devices, the searches `running` and `queued` (in order), and the `latest` bests."""
        return self._http.json("GET", "/v1/home")

    def devices(self) -> dict[str, Any]:
        """Return the server's devices (`here`) and every model with results (`stored`)."""
        return self._http.json("GET", "/v1/devices")

    def studies(self) -> list[dict[str, Any]]:
        """Return the server's own studies."""
        return self._http.rows("/v1/studies")

    def sizes(self, study: str) -> dict[str, int]:
        """Return the sizes of a study with their defaults: of a local file, or of a name on the server."""
        if is_path(study):
            from autotune.study import default_size, find_study

            return default_size(find_study(study))
        told = self._http.json("GET", f"/v1/studies/{segment(study)}")
        with believed(self.url):
            return {str(name): int(value) for name, value in told["sizes"].items()}

    # Searches ---------------------------------------------------------------------------------------------

    def submit(self, study: str | Path = DEFAULT_STUDY, *, once: str | None = None, **asked: Any) -> dict[str, Any]:
        """Have a search queued and return it, with its `id`; the server's document says what may be asked.

        A path sends the study with its files. With `once`, an idempotency key, sending it again is harmless.
        """
        body = {name: value for name, value in asked.items() if value is not None and not _is_empty(value)}
        body |= upload_of(Path(study)) if is_path(study) else {"study": str(study)}
        if once is not None and not (isinstance(once, str) and once.isascii() and once.isprintable()):
            raise UsageError("is not a key of plain characters", where="once", hint="leave it out for a new one")
        headers = {"Idempotency-Key": once or uuid.uuid4().hex}
        try:
            return self._http.json("POST", "/v1/searches", body, headers)
        except ServerAway:  # it may have arrived nevertheless
            time.sleep(_PAUSE_S)
            return self._http.json("POST", "/v1/searches", body, headers)

    def search(
        self,
        study: str | Path = DEFAULT_STUDY,
        *,
        device: str | None = None,
        size: Size | None = None,
        choices: Choices | None = None,
        trials: int | None = None,
        seconds: float | None = None,
        on_progress: Callable[[Progress], None] | None = None,
        **more: Any,
    ) -> dict[str, Any]:
        """Have a study searched and return the search when it has ended: `state`, `reason`, `result` and the rest.

        `on_progress` is called with each trial. If the search failed, raises AutotuneError of the kind that
        `autotune.search` would raise. Ctrl-C ends only the waiting here; the search goes on.
        """
        for name, given in (("size", size), ("choices", choices), ("budget", more.get("budget"))):
            _require(name, given, Mapping)
        if on_progress is not None and not callable(on_progress):
            raise UsageError(f"{type(on_progress).__name__} is not a function", where="on_progress", hint="write print")
        budget = {name: value for name, value in (("trials", trials), ("seconds", seconds)) if value is not None}
        budget |= more.pop("budget", None) or {}
        asked = {"device": device, "size": dict(size or {}), "choices": dict(choices or {}), "budget": budget, **more}
        ended = self.wait(search_id(self.submit(study, **asked), self.url), on_progress)
        with believed(self.url):
            state = ended["state"]
        if state == "failed":
            raise failure_of(ended, self.url)
        return ended

    def find(self, search: str) -> dict[str, Any]:
        """Return a search by its id."""
        return self._http.json("GET", f"/v1/searches/{segment(search)}")

    def stop(self, search: str) -> dict[str, Any]:
        """Have a search stopped, in order; it continues for a moment."""
        return self._http.json("DELETE", f"/v1/searches/{segment(search)}")

    def wait(self, search: str, on_progress: Callable[[Progress], None] | None = None) -> dict[str, Any]:
        """Return a search when it has ended; meanwhile call `on_progress` with each trial. Survives a restart there."""
        for kind, told in self.events(search):
            if kind == "progress" and on_progress is not None:
                on_progress(told)
            if kind == "end":
                return told
        raise ServerAway("its events ended without an end", where=self.url)

    def events(self, search: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the events of a search, each once: (`snapshot`, `state`, `progress` or `end`, its data).

        If the server goes away, waits for it up to ten minutes.
        """
        last, since, said = "", time.monotonic(), False
        while True:
            try:
                for name, kind, data in self._http.stream(f"/v1/searches/{segment(search)}/events", last):
                    last, since, said = name or last, time.monotonic(), False
                    if data is not None:
                        yield kind, data
                    if kind == "end":
                        return
                if time.monotonic() - since > PATIENCE_S:
                    raise ServerAway("its events end before they tell anything", where=self.url)
            except ServerAway as error:
                if time.monotonic() - since > PATIENCE_S:
                    raise
                if not said:
                    self._tell(f"{error}; asking again for {PATIENCE_S:g} s")
                said = True
            time.sleep(_PAUSE_S)

    def _remembered(self, path: str) -> Reply:
        """Answer a question from the cache while the kept answer is fresh, or while the server is away."""
        kept = self._kept.find(path) if self._kept is not None else None
        if kept is not None and kept.is_fresh:
            return Reply(200, kept.headers, kept.body)
        headers = {"If-None-Match": kept.headers["etag"]} if kept is not None and "etag" in kept.headers else {}
        try:
            reply = self._http.ask("GET", path, None, headers)
        except ServerAway as error:
            if kept is None:
                raise
            self._tell(f"warning: {error}; this is its answer of {kept.taken}")
            return Reply(200, kept.headers, kept.body)
        if reply.status == 304 and kept is not None:
            reply = Reply(200, {**kept.headers, **reply.headers}, kept.body)
        self._http.require(reply)
        best_from(reply.body, reply.headers, self.url)  # raises for an answer that must not be kept
        if self._kept is not None:
            self._kept.keep(path, Kept.of(reply.headers, reply.body))
        return reply


def _is_empty(value: object) -> bool:
    return isinstance(value, dict | list | tuple) and not value


def _require(name: str, given: object, kind: Any) -> None:
    """Raise UsageError for a value that gives no names and values."""
    if given is not None and (isinstance(given, str) or not isinstance(given, kind)):
        what = f"{type(given).__name__} is not a mapping of names to values"
        raise UsageError(what, where=name, hint=f'write {name}={{"NAME": VALUE}}')


def _say(said: str) -> None:
    print(line_of(said), file=sys.stderr, flush=True)
