"""Signing in with a token; tokens and workers, for admins."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Form, Path, Query, Request, Response

from autotune.errors import UsageError
from autotune.service import submit as submitting
from autotune.service import views
from autotune.service.callers import forget, remember, signed_in
from autotune.service.depends import Admin, Opened
from autotune.service.pages.common import go, show, wants_json
from autotune.service.state import Service
from autotune.store import ROLES, lasting

router = APIRouter()

Token = Annotated[str, Query(max_length=200)]


@router.get("/login")
def login(request: Request, token: Token = "", to: Annotated[str, Query(max_length=300)] = "/") -> Response:
    """Ask for a token, or take it from the address that `autotune serve` prints."""
    if token:
        return _sign_in(request, token, "/")
    return show(request, "login.html", {"to": _local(to), "error": ""})


@router.post("/login")
def sign_in(
    request: Request,
    token: Annotated[str, Form(max_length=200)] = "",
    to: Annotated[str, Form(max_length=300)] = "/",
) -> Response:
    """Sign in with a token, which the browser keeps in a cookie."""
    return _sign_in(request, token.strip(), _local(to))


@router.post("/logout")
def logout() -> Response:
    """Forget the token."""
    answer = go("/login")
    forget(answer)
    return answer


def _sign_in(request: Request, token: str, to: str) -> Response:
    caller = signed_in(request, token) if token else None
    if caller is None:
        told = {"to": to, "error": "That token is not known, has expired or was revoked."}
        return show(request, "login.html", told, 401)
    answer = go(to)
    remember(request, answer, token)
    return answer


def _local(address: str) -> str:
    """Return an address if it is on this server, else /; `//elsewhere` is not on this server."""
    return address if address.startswith("/") and not address.startswith(("//", "/\\")) else "/"


@router.get("/admin")
def admin(request: Request, service: Opened, caller: Admin) -> Response:
    """Tokens, and what the server has at work."""
    return show(request, "admin.html", _told(service), made=None, error="", roles=ROLES)


@router.post("/admin/tokens")
def add_token(
    request: Request,
    service: Opened,
    caller: Admin,
    name: Annotated[str, Form(max_length=200)] = "",
    role: Annotated[str, Form(max_length=20)] = "read",
    expires: Annotated[str, Form(max_length=20)] = "",
) -> Response:
    """Make a token, and show it this once."""
    try:
        lasts = lasting(expires, "expires") if expires.strip() else None
        made = {"name": name.strip(), "token": service.store.add_token(name.strip(), role, lasts)}
    except UsageError as error:
        return show(request, "admin.html", _told(service), 422, made=None, error=str(error), roles=ROLES)
    data = _told(service) | {"made": made if wants_json(request) else None}
    return show(request, "admin.html", data, made=made, error="", roles=ROLES)


@router.post("/admin/tokens/{name}/revoke")
def revoke(service: Opened, caller: Admin, name: Annotated[str, Path(max_length=64)]) -> Response:
    """End a token for good."""
    submitting.revoke(service, name)
    return go("/admin")


def _told(service: Service) -> dict[str, Any]:
    home = views.home(service)
    queues = {queue: [] for queue in service.machine.queues()} | home["queued"]
    return {
        "tokens": views.tokens(service),
        "workers": [
            {
                "queue": queue,
                "devices": [one for one in home["devices"] if one["queue"] == queue],
                "running": [one for one in home["running"] if one["queue"] == queue],
                "queued": waiting,
            }
            for queue, waiting in queues.items()
        ],
        "amiss": list(service.machine.amiss),
        "limits": {
            name: getattr(service.config.limits, name) for name in ("seconds", "trials", "waiting", "upload_bytes")
        },
        "database": service.store.where,
    }
