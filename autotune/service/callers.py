"""Who asks, and what they may do: tokens as `Authorization: Bearer`, or in the cookie of the pages.

    read < write (import) < run (have kernels run) < admin (see to tokens, stop the searches of others)

On loopback, a caller without a token may read. A cookie alone allows only reading. Everything else also needs the
header `X-CSRF-Token` (or the form's field `csrf`), which only a holder of the token, or a page made for one, knows.

For routes: `caller: Caller = Depends(allowed("run"))`. For pages: `csrf_token(request)` gives what a form must carry.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Any

from fastapi import Request, Response

from autotune.errors import StoreError
from autotune.service.answers import Refused
from autotune.service.config import Config
from autotune.service.newest import Newest
from autotune.store import CONSOLE, ROLES, ServerStore, new_token

COOKIE = "autotune"
CSRF_HEADER = "x-csrf-token"
CSRF_FIELD = "csrf"

_KNOWN_S = 1.0
"""Seconds for which a token is known without asking the database, so a revoked token still works for a second."""

_KNOWN = 1024


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks. `role` is None if nothing is open to them; `by_cookie` if the browser sends the token by itself."""

    name: str
    role: str | None
    by_cookie: bool = False
    token: str = ""

    def may(self, role: str) -> bool:
        """Whether this caller may do what takes that role."""
        return self.role is not None and ROLES.index(self.role) >= ROLES.index(role)

    def may_stop(self, asked_by: str | None) -> bool:
        """Whether this caller may stop a search that somebody asked for: their own, or any as an admin."""
        return self.may("admin") or (self.may("run") and asked_by == self.name)


class Callers:
    """Finds out who a request is from: `anonymous`, if it has no token.

    `console` is a token of this process alone, for the person who started it.
    """

    def __init__(self, store: ServerStore, config: Config) -> None:
        self.console = new_token()
        self._store = store
        self.anonymous = Caller("", "read" if config.is_local else None)
        self._read_only = config.read_only
        self._known: Newest[str, tuple[float, Caller | None]] = Newest(_KNOWN)

    def known(self, token: str | None) -> Caller | None:
        """Return the caller with this token if known without asking the database; otherwise use `look_up`."""
        if token is None:
            return self.anonymous
        if hmac.compare_digest(token.encode("utf-8", "replace"), self.console.encode()):
            return Caller(CONSOLE, "read" if self._read_only else "admin", token=token)
        until, caller = self._known.get(token, (0.0, None))
        return caller if time.monotonic() < until else None

    def look_up(self, token: str) -> Caller | None:
        """Return the caller with this token from the database, or None if the token is not valid. Takes a moment."""
        found = self._store.token_of(token)
        if found is None:
            return None
        role = "read" if self._read_only else found.role
        caller = Caller(found.name, role, token=token)
        self._known[token] = (time.monotonic() + _KNOWN_S, caller)
        return caller

    async def may_still_read(self, caller: Caller) -> bool:
        """Whether a caller of a while ago may still read; unchanged while the database is away."""
        if not caller.token:
            return caller.may("read")
        try:
            now = self.known(caller.token) or await asyncio.to_thread(self.look_up, caller.token)
        except StoreError:  # while it is away, nothing can be revoked either
            return True
        return now is not None and now.may("read")

    def forget(self) -> None:
        """Ask the database again for everybody: a token was revoked."""
        self._known.clear()

    def csrf_token(self, token: str) -> str:
        """Return what proves that a form was made for the holder of a token. It stays the same after a restart."""
        return hmac.new(token.encode("utf-8", "replace"), b"csrf", hashlib.sha256).hexdigest()


def token_of(headers: dict[bytes, bytes]) -> tuple[str | None, bool]:
    """Return the token that a request carries, if any, and whether in a cookie."""
    scheme, _, given = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    if scheme.lower() == "bearer" and given:
        return given.strip(), False
    try:
        cookie = SimpleCookie(headers.get(b"cookie", b"").decode("latin-1")).get(COOKIE)
    except CookieError:
        return None, False
    return (cookie.value, True) if cookie is not None and cookie.value else (None, False)


def caller_of(request: Request) -> Caller:
    """Return who a request is from, as guard.py found out."""
    caller: Caller = request.scope["autotune.caller"]
    return caller


def _callers(request: Request) -> Callers:
    callers: Callers = request.app.state.service.callers
    return callers


def require_role(caller: Caller, role: str) -> None:
    """Raise Refused, 401 or 403, if a caller may not do what takes a role."""
    if not caller.may(role):
        if caller.role is None or not caller.token:
            raise Refused(401, f"this needs a token with the role {role}", hint="send Authorization: Bearer TOKEN")
        raise Refused(403, f"this needs the role {role}; {caller.name} has {caller.role}")


def allowed(role: str) -> Callable[[Request], Any]:
    """Return the dependency of a route that takes a role: it gives the Caller, or answers 401 or 403."""

    async def check(request: Request) -> Caller:
        caller = caller_of(request)
        require_role(caller, role)
        if caller.by_cookie and request.method not in ("GET", "HEAD"):
            await _require_csrf(request, caller)
        return caller

    return check


async def _require_csrf(request: Request, caller: Caller) -> None:
    given = request.headers.get(CSRF_HEADER)
    if given is None and request.headers.get("content-type", "").startswith(
        ("application/x-www-form-urlencoded", "multipart/form-data")
    ):
        given = str((await request.form()).get(CSRF_FIELD, ""))
    known = _callers(request).csrf_token(caller.token)
    if not hmac.compare_digest((given or "").encode("utf-8", "replace"), known.encode()):
        raise Refused(
            403, "the form is from another server, or of another token", hint="reload the page and send it again"
        )


def csrf_token(request: Request) -> str:
    """Return what a form of a page must carry in its field `csrf`, or "" if nobody is logged in."""
    caller = caller_of(request)
    return _callers(request).csrf_token(caller.token) if caller.token else ""


def signed_in(request: Request, token: str) -> Caller | None:
    """Return the holder of a token, for a page that asks for one, or None if it is not valid. Takes a moment."""
    callers = _callers(request)
    return callers.known(token) or callers.look_up(token)


def remember(request: Request, response: Response, token: str) -> None:
    """Have the browser send a token from now on; scripts and other sites cannot read it."""
    config: Config = request.app.state.service.config
    response.set_cookie(
        COOKIE, token, max_age=30 * 86400, httponly=True, samesite="strict", secure=config.is_secure, path="/"
    )


def forget(response: Response) -> None:
    """Have the browser send no token any more."""
    response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
