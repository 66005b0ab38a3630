"""Requests to a server over HTTP: one at a time, each failure one clear line. Standard library only."""

from __future__ import annotations

import http.client
import io
import ipaddress
import json
import operator
import os
import re
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from autotune.errors import SetupError, UsageError
from autotune.service.trust import line_of
from autotune.store import UNSOUND

TIMEOUT_S = 30.0

STORES_S = 75.0
"""A request that stores something may take longer: a server waits up to a minute for its database before it refuses."""

ANSWER_S = 120.0
"""Seconds for a whole answer. `TIMEOUT_S` bounds only each silence, and a server that sends slowly is never silent."""

_MOST = 64 * 2**20

_FIELDS = ("id", "event", "data")
"""The fields of an event that are kept."""

_PATH = re.compile(r"[!-~]*")
_HOST = re.compile(r"[^\x00-\x20\x7f]+")

_OF_NOBODY = "if it is your own, name it or its issuer's: export SSL_CERT_FILE=FILE"
_OF_ANOTHER = "call it by a name that is in the certificate"
_OUT_OF_DATE = "check this machine's clock; if it is right, the server needs a new certificate"
_CERTIFICATES = {
    **dict.fromkeys((9, 10), _OUT_OF_DATE),
    **dict.fromkeys((18, 19, 20, 21), _OF_NOBODY),
    **dict.fromkeys((62, 64), _OF_ANOTHER),
}
"""What to do about a certificate, by OpenSSL's X509_V_ERR: not valid yet, or expired; an unknown issuer; another host
name or address."""

_Kind = TypeVar("_Kind", dict[str, Any], list[Any])


class ServerAway(SetupError):
    """The server does not answer, or cannot at the moment."""


class ServerRefuses(UsageError):
    """The server refuses. `status` is the HTTP status: from 500 on, the server's machine is at fault."""

    def __init__(self, status: int, what: str, *, where: str = "", hint: str = "", detail: str = "") -> None:
        super().__init__(what, where=where, hint=hint, detail=detail)
        self.status = status
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            self.exit_code = SetupError.exit_code


class Reply(NamedTuple):
    """An answer of a server."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class _Response(http.client.HTTPResponse):
    """Refuses a chunk of negative length, for which Python would read without end."""

    def _read_next_chunk_size(self) -> int:
        size: int = super()._read_next_chunk_size()  # type: ignore[misc]
        if size < 0:
            raise http.client.HTTPException("its answer has no length")
        return size


class _Whole(_Response):
    """Its answer must be complete within ANSWER_S, with status and headers; events last as long as a search."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.fp = io.BufferedReader(_Bounded(self.fp.detach()))


class _Bounded(io.RawIOBase):
    """What a socket receives, until a deadline."""

    def __init__(self, raw: io.RawIOBase) -> None:
        self._raw = raw
        self._until = time.monotonic() + ANSWER_S

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        if time.monotonic() > self._until:
            raise TimeoutError(f"its answer took longer than {ANSWER_S:g} s")
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class Transport:
    """The connection to a server. Its methods raise AutotuneError: ServerRefuses, ServerAway.

    Raises UsageError if it is not a URL of a server, or if the token would be sent in clear text.
    """

    def __init__(self, url: str, token: str | None) -> None:
        self.url = url.strip().rstrip("/")
        try:
            parts = urlsplit(self.url)
            self._host, self._port, self._path = parts.hostname or "", parts.port, parts.path
            self._host.encode("idna")
        except ValueError:  # errors of Unicode are among them
            parts, self._host, self._path = urlsplit(""), "", ""
        beside = parts.query or parts.fragment or parts.username
        if (
            parts.scheme not in ("http", "https")
            or not _HOST.fullmatch(self._host)
            or beside
            or not _PATH.fullmatch(self._path)
            or not self.url.isprintable()  # urlsplit removes line ends
        ):
            raise UsageError(
                f"{url!r:.100} is not a server", where="--server", hint="write https://HOST or http://127.0.0.1:8080"
            )
        self._secure = parts.scheme == "https"
        self._given = "AUTOTUNE_TOKEN" if token is None else "token"
        self.token = token if token is not None else os.environ.get("AUTOTUNE_TOKEN") or None
        if self.token is not None and not (self.token.isascii() and self.token.isprintable()):
            raise UsageError(
                "holds characters that a token cannot have", where=self._given, hint="autotune token add makes one"
            )
        if self.token is not None and not self._secure and not is_loopback(self._host):
            raise UsageError("the token would be sent unencrypted", where=self.url, hint="call it by https://")

    def json(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Ask, and return the JSON object of the answer."""
        reply = self.ask(method, path, body, headers or {})
        self.require(reply)
        return parsed(reply.body, self.url, dict)

    def rows(self, path: str) -> list[dict[str, Any]]:
        """Ask, and return the list of JSON objects of the answer."""
        reply = self.ask("GET", path, None, {})
        self.require(reply)
        found = parsed(reply.body, self.url, list)
        if not all(isinstance(row, dict) for row in found):
            raise _strange(self.url)
        return found

    def ask(self, method: str, path: str, body: Any, headers: Mapping[str, str]) -> Reply:
        """Ask, and return the answer, even if it is an error. Raises ServerAway."""
        connection = self._connection(TIMEOUT_S if method == "GET" else STORES_S)
        connection.response_class = _Whole
        try:
            found = self._sent(connection, method, path, body, headers)
            reply = Reply(found.status, {name.lower(): value for name, value in found.getheaders()}, found.read(_MOST))
        except (OSError, http.client.HTTPException) as error:
            raise self._away(error) from None
        finally:
            connection.close()
        self._require_there(reply)
        return reply

    def stream(self, path: str, last: str) -> Iterator[tuple[str, str, dict[str, Any] | None]]:
        """Yield the events of a stream after the `last`: id, kind, data (None if the server only says it is there)."""
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last} if last else {})
        connection = self._connection(TIMEOUT_S)
        try:
            found = self._sent(connection, "GET", path, None, headers)
            if found.status != 200:
                reply = Reply(found.status, {}, found.read(_MOST))
                self._require_there(reply)
                self.require(reply)
                raise ServerAway("its events have ended", where=self.url)
            fields: dict[str, str] = {}
            while line := found.readline(_MOST):
                name, _, value = line.decode("utf-8", "replace").rstrip("\r\n").partition(":")
                if name:
                    if name in _FIELDS:
                        fields[name] = value.removeprefix(" ")
                    continue
                if "data" in fields:
                    yield fields.get("id", ""), fields.get("event", ""), parsed(fields["data"], self.url, dict)
                    fields = {}
                if value:  # a comment: the server is there
                    yield "", "", None
                else:
                    fields = {}
        except (OSError, http.client.HTTPException) as error:
            raise self._away(error) from None
        finally:
            connection.close()

    def require(self, reply: Reply) -> None:
        """Raise the error that the server reports."""
        if reply.status < 400:
            if not 200 <= reply.status < 300:
                raise ServerRefuses(
                    reply.status, f"answers {reply.status}, which an autotune server never does", where=self.url
                )
            return
        told = _problem(reply.body)
        if told is None:
            told = {"what": f"answers {reply.status}", "hint": "is it an autotune server?"}
            if reply.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:  # which has one for itself, in JSON
                told["hint"] = "a proxy in front of it allows no more: client_max_body_size of nginx"
        if reply.status == 401:
            told["hint"] = f"set {self._given} to one that autotune token add has made"
        raise ServerRefuses(reply.status, **told).at(self.url)

    def _sent(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: Any, headers: Mapping[str, str]
    ) -> http.client.HTTPResponse:
        sent = {"Accept": "application/json", **headers}
        if self.token is not None:
            sent["Authorization"] = f"Bearer {self.token}"
        data = None
        if body is not None:
            data, sent["Content-Type"] = _written(body), "application/json"
        connection.request(method, self._path + path, data, sent)
        return connection.getresponse()

    def _connection(self, timeout: float) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=timeout)
        if self._secure:
            context = ssl.create_default_context()
            connection = http.client.HTTPSConnection(self._host, self._port, timeout=timeout, context=context)
        connection.response_class = _Response
        return connection

    def _away(self, error: Exception) -> ServerAway:
        if isinstance(error, ssl.SSLCertVerificationError):
            what = f"its certificate cannot be trusted: {error.verify_message.rstrip('.')}"
            return ServerAway(what, where=self.url, hint=_CERTIFICATES.get(error.verify_code, ""))
        said = error.strerror if isinstance(error, OSError) and error.strerror else str(error) or type(error).__name__
        return ServerAway(
            f"does not answer: {line_of(said)[:200]}", where=self.url, hint="is it running? autotune serve starts one"
        )

    def _require_there(self, reply: Reply) -> None:
        """Raise ServerAway if a proxy answers for a server that does not, or if a server cannot answer now."""
        if reply.status in (502, 503, 504):
            told = _problem(reply.body) if reply.status == HTTPStatus.SERVICE_UNAVAILABLE else None
            told = told or {"what": f"answers {reply.status}", "hint": "is it running behind its proxy?"}
            raise ServerAway(**told).at(self.url)


def _problem(body: bytes) -> dict[str, str] | None:
    """Return the error that a server reports, as an AutotuneError takes it; None if it is not a server of ours."""
    try:
        told = json.loads(body)
        named = {"what": told["error"], "where": told["where"], "hint": told["hint"]}
        return {name: line_of(text) for name, text in named.items()} | {"detail": str(told.get("detail", ""))}
    except UNSOUND:
        return None


def parsed(data: str | bytes, where: str, kind: type[_Kind]) -> _Kind:
    """Return JSON of a kind from an answer. Raises ServerAway for an answer that no server of ours gives."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise ServerAway("its answer is not JSON", where=where, hint="is it an autotune server?") from None
    if not isinstance(found, kind):
        raise _strange(where)
    return found


def _strange(where: str) -> ServerAway:
    hint = "is it an autotune server of this version?"
    return ServerAway("its answer is invalid", where=where, hint=hint)


def is_loopback(host: str) -> bool:
    """Whether an address is this machine's own."""
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def question(asked: Mapping[str, Any] | Sequence[tuple[str, str]]) -> str:
    """Return the part of an address after the ?. The server must refuse a lone surrogate."""
    return urlencode(asked, errors="surrogatepass")


def segment(name: str) -> str:
    """Return a name as a part of an address."""
    return quote(name, safe="", errors="surrogatepass")


def _written(body: Any) -> bytes:
    """Return JSON in UTF-8; escaped, an é would take 6 bytes. The server must refuse a lone surrogate."""
    try:
        return json.dumps(body, ensure_ascii=False, default=_plain).encode("utf-8", "surrogatepass")
    except (TypeError, ValueError, RecursionError) as error:  # keys that are not text, containers that hold themselves
        raise UsageError(f"cannot be sent to a server: {error}") from None


def _plain(value: object) -> int | float:
    """Return NumPy's numbers and the like as plain numbers. Raises UsageError for what JSON cannot express."""
    for plain in (operator.index, float):
        with suppress(TypeError, ValueError):
            return plain(value)  # type: ignore[arg-type]
    raise UsageError(f"{type(value).__name__} cannot be sent to a server")
