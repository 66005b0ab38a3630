"""The checks that every request passes first: its caller, its host name, its size and speed; and headers of safety.

A page of another site can make a browser call 127.0.0.1 under a name of its own (DNS rebinding), so a server on
loopback answers only to loopback's names. A reverse proxy that was not announced would give everybody the free reading
of loopback, so a request that came through a proxy is refused.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

from anyio import to_thread
from fastapi import HTTPException

from autotune.errors import AutotuneError
from autotune.service.answers import Refused, answer
from autotune.service.callers import Caller, Callers, require_role, token_of
from autotune.service.config import Config

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = (
    (b"content-security-policy", CONTENT_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_TRANSPORT = (b"strict-transport-security", b"max-age=31536000")
_PROXY_MARK = re.compile(
    rb"(x-)?forwarded|x-forwarded-.*|x-original-.*|x-envoy-.*|x-amzn-.*|cf-.*|fly-.*|fastly-.*|cdn-loop|via|"
    rb"x-real-ip|x-client-ip|x-cluster-client-ip|true-client-ip|proxy-connection|x-proxy.*"
)
"""Headers that proxies add and clients on this machine do not send. By default nginx uses HTTP/1.0."""

_WHOLE = re.compile(rb"https?://([^/]*)", re.IGNORECASE)

BODY_S = 20.0
LEAST_RATE = 4096
"""Seconds that a request's body may take, and the number of bytes that add one more second."""

_ESCAPED = 6
"""The most bytes of JSON for one byte of text: \\u00e9 stands for two bytes of text, \\u0041 for one."""

_MOST_OF_READERS = 2**16
"""The most bytes of a request from a caller for whom nothing is stored or run, such as a form to sign in. Without this
limit, more would be read and parsed as JSON before a route refuses.
"""

_LOCAL = frozenset({"localhost", "127.0.0.1", "[::1]"})

log = logging.getLogger(__name__)


class Guard:
    """The outermost part of the application."""

    def __init__(self, app: App, config: Config, callers: Callable[[], Callers]) -> None:
        self._app = app
        self._config = config
        self._callers = callers
        self._names = {name.lower() for name in config.names} | (
            set(_LOCAL) if config.is_local or config.names else set()
        )
        self._headers = _HEADERS + ((_TRANSPORT,) if config.is_secure else ())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope = _by_path(scope)
        headers, begun = dict(scope["headers"]), False
        # The answer to HEAD would never end for a stream of events.
        bare = scope["method"] == "HEAD" and not scope["path"].endswith("/events")
        if bare:
            scope = {**scope, "method": "GET"}

        async def safely(message: Message) -> None:
            nonlocal begun
            begun = True
            if message["type"] == "http.response.start":
                message["headers"] = [*map(self._placed, message["headers"]), *self._headers]
            elif bare:
                message["body"] = b""
            await send(message)

        try:
            self._require_name(headers, scope["http_version"])
            _require_text(scope)
            scope["autotune.caller"] = await self._caller(headers)
            receive = self._bounded(scope, headers, receive)
        except AutotuneError as error:
            await answer(error)(scope, receive, safely)
            return
        try:
            await self._app(scope, receive, safely)
        except asyncio.CancelledError:  # the server stops: clients that still read get a part
            if not begun:
                await answer(_cut_off(scope["method"]))(scope, receive, safely)
        except RuntimeError as error:  # the answer has begun, and breaks off: no client takes it for complete
            if not isinstance(error.__cause__, AutotuneError):
                raise
            log.warning("an answer to %s breaks off: %s", scope["path"], error.__cause__)

    def _placed(self, header: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
        """Add the path that a proxy has taken off to a redirect, and to the path of a cookie."""
        name, value = header
        root = self._config.root.encode()
        if name == b"location":  # a redirect that removes a slash too many names the host that the proxy calls
            return name, root + b"/" + re.sub(rb"^https?://[^/]*", b"", value).lstrip(b"/")
        return name, value.replace(b"Path=/", b"Path=" + root) if root and name == b"set-cookie" else value

    def _require_name(self, headers: dict[bytes, bytes], version: str) -> None:
        host = re.sub(r":\d*$", "", headers.get(b"host", b"").decode("latin-1")).lower()
        if self._names and host not in self._names:
            hint = "use the name 127.0.0.1, or start it with --host-name NAME"
            raise Refused(421, f"this server is not called {host!r:.100}", hint=hint)
        if self._config.is_local and (version == "1.0" or any(map(_PROXY_MARK.fullmatch, headers))):
            hint = "start the server with --behind-proxy; without one speak HTTP/1.1 and send no headers of proxies"
            raise Refused(421, "this came through a proxy", hint=hint)

    async def _caller(self, headers: dict[bytes, bytes]) -> Caller:
        token, by_cookie = token_of(headers)
        callers = self._callers()
        caller = callers.known(token)
        if caller is None and token is not None:
            caller = await to_thread.run_sync(callers.look_up, token)
        if caller is not None:
            return replace(caller, by_cookie=True) if by_cookie else caller
        if by_cookie:  # an old one: as without one
            return callers.anonymous
        hint = "its operator can make another: autotune token add NAME"
        raise Refused(401, "the token is not known, has expired or was revoked", hint=hint)

    def _bounded(self, scope: Scope, headers: dict[bytes, bytes], receive: Receive) -> Receive:
        """Return a `receive` that takes at most as much as a route allows, and waits no longer than BODY_S allows."""
        limits, caller = self._config.limits, scope["autotune.caller"]
        brings = scope["path"] == "/v1/import"
        most = limits.import_bytes if brings else _ESCAPED * (limits.upload_bytes + 2**16)
        most = most if caller.may("write") else min(most, _MOST_OF_READERS)
        packed = headers.get(b"content-encoding", b"").decode("latin-1").strip().lower()
        if packed not in ("", "identity"):  # otherwise it would be read as it is, and reported as bad JSON
            hint = "send it uncompressed and without that header"
            raise Refused(415, f"a compressed body ({packed:.40}) is not accepted", where="Content-Encoding", hint=hint)
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > most:
            require_role(caller, "write" if brings else "run")
        if not length.isdigit() or int(length) > most:
            raise Refused(413, f"a request may have at most {most} bytes")
        taken, waited, has_come = 0, 0.0, False

        async def bounded() -> Message:
            nonlocal taken, waited, has_come
            if has_come:  # from now on this waits for the connection to end
                return await receive()
            begun = time.monotonic()
            try:
                async with asyncio.timeout(BODY_S + taken / LEAST_RATE - waited):
                    message = await receive()
            except TimeoutError:
                raise _unfinished(408, f"the request did not come within {BODY_S:g} s") from None
            waited += time.monotonic() - begun
            taken += len(message.get("body", b""))
            has_come = not message.get("more_body", False)
            if taken > most:
                raise _unfinished(413, f"a request may have at most {most} bytes")
            return message

        return bounded


def _by_path(scope: Scope) -> Scope:
    """Return a request as by its path, where its target is a whole address, whose host counts (RFC 9112, 3.2.2)."""
    asked: bytes = scope.get("raw_path") or b""
    whole = _WHOLE.match(asked)
    if whole is None:
        return scope
    path = asked[whole.end() :] or b"/"
    headers = [(name, value) for name, value in scope["headers"] if name != b"host"] + [(b"host", whole[1])]
    return {**scope, "raw_path": path, "path": unquote(path.decode("ascii")), "headers": headers}


def _require_text(scope: Scope) -> None:
    """Raise Refused for an address with a NUL: nothing has this name, and PostgreSQL fails at asking for it."""
    if "\0" in scope["path"] or b"%00" in scope["query_string"]:
        raise Refused(400, "the address holds a NUL character", hint="leave %00 out")


def _cut_off(method: str) -> Refused:
    """Return the answer to a request that was still being worked on when the server stopped waiting."""
    undone = "" if method == "GET" else ", and may or may not have done this"
    return Refused(503, f"the server is ending{undone}", hint="ask again once it is back")


def _unfinished(status: int, what: str) -> HTTPException:
    """Return the refusal of a body that is still arriving: while FastAPI reads a body, it passes on only this class."""
    return HTTPException(status, what, {"Connection": "close"})
