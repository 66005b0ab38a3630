"""The other end: asks a server what the command line and the Python API ask here. Standard library only.

    server = autotune.connect("https://tune.example.org", token="at_...")
    server.best("sgemm", size={"M": 4096, "N": 4096, "K": 4096}).configuration
    server.search("./blur.toml", trials=100)

What a server says is checked before it is believed. Answers for the best are kept in the user's cache: as long as their
`max-age` says they are not asked for again, and where the server is away the last good one stands in.
"""

from __future__ import annotations

import http.client
import ipaddress
import json
import os
import ssl
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from autotune.errors import AutotuneError, SetupError, UsageError
from autotune.identity import Choices, Size
from autotune.lookup import Best
from autotune.service.kept import Kept, KeptAnswers
from autotune.service.trust import best_from, line_of

TIMEOUT_S = 30.0
PATIENCE_S = 600.0
"""Seconds for which a watched search waits for a server that went away."""

_PAUSE_S = 1.0
_MOST = 64 * 2**20

Tell = Callable[[str], None]
Progress = Mapping[str, Any]


class ServerAway(SetupError):
    """The server does not answer, or cannot now."""


class ServerRefuses(UsageError):
    """The server answers that it will not. `status` is that of HTTP."""

    def __init__(self, status: int, what: str, *, where: str = "", hint: str = "", detail: str = "") -> None:
        super().__init__(what, where=where, hint=hint, detail=detail)
        self.status = status


class Reply(NamedTuple):
    """An answer of a server."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def connect(url: str, token: str | None = None, *, cache: bool = True) -> Server:
    """Return the server at a URL. `token`: by default that of AUTOTUNE_TOKEN. Nothing is asked yet.

    Raises UsageError for what is no URL of a server, or where the token would travel in clear text.
    """
    return Server(url, token, cache=cache)


class Server:
    """A server of `autotune serve`. Its methods raise AutotuneError: ServerRefuses, ServerAway."""

    def __init__(self, url: str, token: str | None = None, *, cache: bool = True, tell: Tell | None = None) -> None:
        self.url = url.rstrip("/")
        try:
            parts = urlsplit(self.url)
            self._host, self._port, self._path = parts.hostname or "", parts.port, parts.path
        except ValueError:
            parts, self._host = urlsplit(""), ""
        if parts.scheme not in ("http", "https") or not self._host or parts.query or parts.username:
            raise UsageError(
                f"{url!r:.100} is no server", where="--server", hint="write https://HOST or http://127.0.0.1:8080"
            )
        self._secure = parts.scheme == "https"
        self._token = token if token is not None else os.environ.get("AUTOTUNE_TOKEN") or None
        if self._token is not None and not (self._token.isascii() and self._token.isprintable()):
            raise UsageError("holds what no token does", where="AUTOTUNE_TOKEN", hint="autotune token add makes one")
        if self._token is not None and not self._secure and not _is_here(self._host):
            raise UsageError("the token would travel in clear text", where=self.url, hint="call it by https://")
        self._tell = tell or _say
        self._kept = KeptAnswers(f"{self.url}\0{self._token or ''}") if cache else None

    # Results ----------------------------------------------------------------------------------------------

    def best(
        self,
        study: str | Path = "sgemm",
        *,
        device: str | None = None,
        size: Size | Sequence[str] | None = None,
        choices: Choices | Sequence[str] | None = None,
    ) -> Best:
        """Return the best that the server knows for a study, a device and a size, as `autotune.best` does here.

        A path asks for the study of exactly that text. A server that is away is answered for by its last good answer.
        """
        return self.best_and_notes(study, device=device, size=size, choices=choices)[0]

    def best_and_notes(
        self,
        study: str | Path = "sgemm",
        *,
        device: str | None = None,
        size: Size | Sequence[str] | None = None,
        choices: Choices | Sequence[str] | None = None,
    ) -> tuple[Best, list[str]]:
        """Return the best and the lines to say beside it."""
        asked: list[tuple[str, str]] = [("device", device)] if device is not None else []
        for name, given in (("size", size), ("choice", choices)):
            texts = [f"{key}={value}" for key, value in given.items()] if isinstance(given, Mapping) else given
            asked += [(name, text) for text in texts or ()]
        path = f"/v1/best?{urlencode([*_study(study), *asked])}"
        reply = self._remembered(path)
        return best_from(reply.body, reply.headers, self.url)

    def history(self, study: str | None = None, *, limit: int = 30, failed: bool = False) -> list[dict[str, Any]]:
        """Return the newest trials, as `autotune history --json` prints them."""
        asked = {"limit": min(limit, 1000), "failed": str(failed).lower()} | ({"study": study} if study else {})
        return list(self._json("GET", f"/v1/history?{urlencode(asked)}"))

    def devices(self) -> dict[str, Any]:
        """Return the server's devices (`here`) and every model with results (`stored`)."""
        return dict(self._json("GET", "/v1/devices"))

    def studies(self) -> list[dict[str, Any]]:
        """Return the server's own studies."""
        return list(self._json("GET", "/v1/studies"))

    def sizes(self, study: str) -> dict[str, int]:
        """Return the sizes of a study with their defaults: of a file here, or of a name there."""
        if _is_path(study):
            from autotune.study import default_size, find_study

            return default_size(find_study(study))
        told = self._json("GET", f"/v1/studies/{quote(study, safe='')}")
        return {str(name): int(value) for name, value in told["sizes"].items()}

    # Searches ---------------------------------------------------------------------------------------------

    def submit(self, study: str | Path = "sgemm", *, once: str | None = None, **asked: Any) -> dict[str, Any]:
        """Have a search queued and return it, with its `id`; what may be asked stands in the server's document.

        A path takes the study along with its files. `once`, an idempotency key, makes sending it again harmless.
        """
        body = {name: value for name, value in asked.items() if value not in (None, {}, [], ())}
        body |= _upload(Path(study)) if _is_path(study) else {"study": str(study)}
        headers = {"Idempotency-Key": once or uuid.uuid4().hex}
        try:
            return dict(self._json("POST", "/v1/searches", body, headers))
        except ServerAway:  # it may have come all the same
            time.sleep(_PAUSE_S)
            return dict(self._json("POST", "/v1/searches", body, headers))

    def search(
        self,
        study: str | Path = "sgemm",
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

        `on_progress` is told of each trial. Raises AutotuneError where it failed. Ctrl-C here leaves it running there.
        """
        budget = {name: value for name, value in (("trials", trials), ("seconds", seconds)) if value is not None}
        budget |= more.pop("budget", {})
        asked = {"device": device, "size": dict(size or {}), "choices": dict(choices or {}), "budget": budget, **more}
        ended = self.wait(self.submit(study, **asked)["id"], on_progress)
        if ended["state"] == "failed":
            raise AutotuneError(line_of(ended["reason"]), where=self.url)
        return ended

    def find(self, search: str) -> dict[str, Any]:
        """Return a search by its id."""
        return dict(self._json("GET", f"/v1/searches/{quote(search, safe='')}"))

    def stop(self, search: str) -> dict[str, Any]:
        """Have a search stopped, in order; it goes on for a moment."""
        return dict(self._json("DELETE", f"/v1/searches/{quote(search, safe='')}"))

    def wait(self, search: str, on_progress: Callable[[Progress], None] | None = None) -> dict[str, Any]:
        """Return a search when it has ended; meanwhile tell of each trial. Outlasts a restart of the server."""
        for kind, told in self.events(search):
            if kind == "progress" and on_progress is not None:
                on_progress(told)
            if kind == "end":
                return dict(told)
        raise ServerAway("its events ended without an end", where=self.url)

    def events(self, search: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the events of a search, each once: (`snapshot`, `state`, `progress` or `end`, what it tells).

        Where the server goes away, waits for it as long as ten minutes.
        """
        last, since, said = "", time.monotonic(), False
        while True:
            try:
                for name, kind, data in self._stream(search, last):
                    last, since, said = name or last, time.monotonic(), False
                    if data is not None:
                        yield kind, data
                    if kind == "end":
                        return
            except ServerAway as error:
                if time.monotonic() - since > PATIENCE_S:
                    raise
                if not said:
                    self._tell(f"{error}; asking again for {PATIENCE_S:g} s")
                said = True
            time.sleep(_PAUSE_S)

    def _stream(self, search: str, last: str) -> Iterator[tuple[str, str, dict[str, Any] | None]]:
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last} if last else {})
        connection = self._connection()
        try:
            found = self._sent(connection, "GET", f"/v1/searches/{quote(search, safe='')}/events", None, headers)
            if found.status != 200:
                reply = Reply(found.status, {}, found.read(_MOST))
                self._require_there(reply)
                self._require(reply)
                raise ServerAway("its events have ended", where=self.url)
            fields: dict[str, str] = {}
            while line := found.readline(_MOST):
                name, _, value = line.decode("utf-8", "replace").rstrip("\r\n").partition(":")
                if name:
                    fields[name] = value.removeprefix(" ")
                elif "data" in fields:
                    yield fields.get("id", ""), fields.get("event", ""), _parsed(fields["data"], self.url)
                    fields = {}
                elif not value:
                    fields = {}
                if not name and value:  # a comment: the server is there
                    yield "", "", None
        except (OSError, http.client.HTTPException) as error:
            raise self._away(error) from None
        finally:
            connection.close()

    # HTTP -------------------------------------------------------------------------------------------------

    def _remembered(self, path: str) -> Reply:
        """Answer a question from what is kept while that is fresh, and where the server is away."""
        kept = self._kept.find(path) if self._kept is not None else None
        if kept is not None and kept.is_fresh:
            return Reply(200, kept.headers, kept.body)
        headers = {"If-None-Match": kept.headers["etag"]} if kept is not None and "etag" in kept.headers else {}
        try:
            reply = self._ask("GET", path, None, headers)
        except ServerAway as error:
            if kept is None:
                raise
            self._tell(f"warning: {error}; this is its answer of {kept.taken}")
            return Reply(200, kept.headers, kept.body)
        if reply.status == 304 and kept is not None:
            reply = Reply(200, {**kept.headers, **reply.headers}, kept.body)
        self._require(reply)
        best_from(reply.body, reply.headers, self.url)  # nothing is kept that cannot be believed
        if self._kept is not None:
            self._kept.keep(path, Kept.of(reply.headers, reply.body))
        return reply

    def _json(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Any:
        reply = self._ask(method, path, body, headers or {})
        self._require(reply)
        return _parsed(reply.body, self.url)

    def _ask(self, method: str, path: str, body: Any, headers: Mapping[str, str]) -> Reply:
        connection = self._connection()
        try:
            found = self._sent(connection, method, path, body, headers)
            reply = Reply(found.status, {name.lower(): value for name, value in found.getheaders()}, found.read(_MOST))
        except (OSError, http.client.HTTPException) as error:
            raise self._away(error) from None
        finally:
            connection.close()
        self._require_there(reply)
        return reply

    def _sent(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: Any, headers: Mapping[str, str]
    ) -> http.client.HTTPResponse:
        sent = {"Accept": "application/json", **headers}
        if self._token is not None:
            sent["Authorization"] = f"Bearer {self._token}"
        data = None
        if body is not None:
            data, sent["Content-Type"] = json.dumps(body).encode(), "application/json"
        connection.request(method, self._path + path, data, sent)
        return connection.getresponse()

    def _connection(self) -> http.client.HTTPConnection:
        if self._secure:
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(self._host, self._port, timeout=TIMEOUT_S, context=context)
        return http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)

    def _away(self, error: Exception) -> ServerAway:
        if isinstance(error, ssl.SSLCertVerificationError):
            return ServerAway(f"its certificate cannot be trusted: {error.verify_message}", where=self.url)
        said = error.strerror if isinstance(error, OSError) and error.strerror else str(error) or type(error).__name__
        return ServerAway(f"does not answer: {said}", where=self.url, hint="is it running? autotune serve starts one")

    def _require_there(self, reply: Reply) -> None:
        """Raise ServerAway where it is a proxy that answers, for a server that does not."""
        if reply.status in (502, 504) or (reply.status == 503 and not _has_problem(reply)):
            raise ServerAway(f"answers {reply.status}", where=self.url, hint="is it up behind its proxy?")

    def _require(self, reply: Reply) -> None:
        """Raise what the server says is wrong."""
        if reply.status < 400:
            if not 200 <= reply.status < 300:
                raise ServerRefuses(
                    reply.status, f"answers {reply.status}, which no server of autotune does", where=self.url
                )
            return
        try:
            told = json.loads(reply.body)
            what, where, hint = (line_of(told[name]) for name in ("error", "where", "hint"))
            detail = str(told.get("detail", ""))
        except (ValueError, KeyError, TypeError):
            what, where, hint, detail = f"answers {reply.status}", "", "is this a server of autotune?", ""
        if reply.status == 401:
            hint = "set AUTOTUNE_TOKEN to one that autotune token add has made"
        error = ServerRefuses(reply.status, what, where=where, hint=hint, detail=detail)
        raise error.at(self.url)


def _study(study: str | Path) -> list[tuple[str, str]]:
    """Return how a study is asked for: by its name or, where it is a path, by the hashes of its text too."""
    if not _is_path(study):
        return [("study", str(study))]
    from autotune.study import find_study

    text = find_study(str(study))
    return [("study", text.name), ("kernel_hash", text.kernel_hash), ("study_hash", text.study_hash)]


def _is_path(study: str | Path) -> bool:
    return isinstance(study, Path) or "/" in study or study.endswith(".toml")


def _upload(path: Path) -> dict[str, Any]:
    """Return a study as it is uploaded: its text, and each file that it reads by the name it has there."""
    from autotune.study import find_study, watched

    with watched() as looked_for:
        text = find_study(str(path) if "/" in str(path) or path.suffix == ".toml" else f"./{path}")
        _ = text.study_hash
    roots = [text.path.parent, text.kernel_path.parent, text.path.parent.parent / "kernels"]
    files: dict[str, Path] = {}
    for file in map(Path, sorted(looked_for)):
        if not file.is_file() or file.resolve() == text.path.resolve():
            continue
        name = _name_in(file, roots)
        if files.setdefault(name, file).resolve() != file.resolve():
            raise UsageError(f"{file} and {files[name]} would have one name", where=str(path), hint="rename one")
    return {"upload": {"study": _text(text.path), "files": {name: _text(file) for name, file in files.items()}}}


def _name_in(file: Path, roots: Sequence[Path]) -> str:
    real = Path(os.path.abspath(file))  # noqa: PTH100  without following links
    for root in roots:
        folder = Path(os.path.abspath(root))  # noqa: PTH100
        if real.is_relative_to(folder):
            return real.relative_to(folder).as_posix()
    raise UsageError(f"{file} lies outside of the study's folder", hint="a server takes what lies beside the study")


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError("is no text", where=str(path), hint="a server takes text files only") from None


def _parsed(data: str | bytes, where: str) -> Any:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise ServerAway("answers what is no JSON", where=where, hint="is this a server of autotune?") from None
    if not isinstance(found, dict | list):
        raise ServerAway("answers what no server of autotune does", where=where)
    return found


def _has_problem(reply: Reply) -> bool:
    return b'"error"' in reply.body[:100]


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _say(said: str) -> None:
    print(line_of(said), file=sys.stderr, flush=True)
