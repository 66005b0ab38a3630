"""What every request passes first: whose it is, by which name it came, how large it is; and the headers of safety.

A page of another site can make a browser call 127.0.0.1 under a name of its own (DNS rebinding), so a server on
loopback answers to loopback's names only. A reverse proxy that was not announced would open loopback's free reading
to everybody: what one has touched is refused.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import replace
from typing import Any

from anyio import to_thread

from autotune.errors import AutotuneError
from autotune.service.answers import Refused, answer
from autotune.service.callers import Callers, token_of
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
_PROXY_MARKS = (b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip", b"via")
_LOCAL = frozenset({"localhost", "127.0.0.1", "[::1]"})


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
        headers = dict(scope["headers"])

        async def safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *self._headers]
            await send(message)

        try:
            self._require_name(headers)
            scope["autotune.caller"] = await self._caller(headers)
            receive = self._bounded(scope["path"], headers, receive)
        except AutotuneError as error:
            await answer(error)(scope, receive, safely)
            return
        await self._app(scope, receive, safely)

    def _require_name(self, headers: dict[bytes, bytes]) -> None:
        host = re.sub(r":\d*$", "", headers.get(b"host", b"").decode("latin-1")).lower()
        if self._names and host not in self._names:
            hint = "call it by 127.0.0.1, or start it with --host-name NAME"
            raise Refused(421, f"this server is not called {host!r:.100}", hint=hint)
        if self._config.is_local and any(mark in headers for mark in _PROXY_MARKS):
            raise Refused(421, "this came through a proxy", hint="start the server with --behind-proxy")

    async def _caller(self, headers: dict[bytes, bytes]) -> Any:
        token, by_cookie = token_of(headers)
        callers = self._callers()
        caller = callers.known(token)
        if caller is None and token is not None:
            caller = await to_thread.run_sync(callers.look_up, token)
        if caller is None:
            if not by_cookie:
                raise Refused(401, "the token is not known, has expired or was revoked")
            caller = callers.known(None)  # a cookie of yesterday: as without one
            assert caller is not None
            return caller
        return replace(caller, by_cookie=True) if by_cookie else caller

    def _bounded(self, path: str, headers: dict[bytes, bytes], receive: Receive) -> Receive:
        """Return what receives at most as much as a route takes."""
        limits = self._config.limits
        most = limits.import_bytes if path == "/v1/import" else 2 * limits.upload_bytes + 2**16
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > most:
            raise Refused(413, f"a request may have {most} bytes")
        taken = 0

        async def bounded() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > most:
                raise Refused(413, f"a request may have {most} bytes")
            return message

        return bounded
