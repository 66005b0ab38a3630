"""Imports exported lines. The client learns whether they are stored, even if the server ends meanwhile."""

from __future__ import annotations

import asyncio
import io
import tempfile
from typing import IO, TYPE_CHECKING

from fastapi import Request

from autotune.errors import StoreError
from autotune.service.answers import Refused

if TYPE_CHECKING:
    from autotune.service.state import Service


async def take_in(service: Service, request: Request) -> dict[str, int]:
    """Import the lines of a request's body, which is first written to a file. Raises StoreError as `autotune import`.

    A server that is told to end gives up an import that is not completely stored: it could take too long.
    """
    with tempfile.TemporaryFile("w+b") as waiting:
        try:
            async for part in request.stream():
                _require_going_on(service)
                await asyncio.to_thread(waiting.write, part)
        except asyncio.CancelledError:  # uvicorn waits no longer
            raise _given_up() from None
        waiting.seek(0)
        storing = asyncio.ensure_future(asyncio.to_thread(_stored, service, waiting))
        service.storing.add(storing)
        storing.add_done_callback(service.storing.discard)
        while True:
            try:
                return {"imported": await asyncio.shield(storing)}
            except asyncio.CancelledError:  # only the thread knows whether the lines are stored
                if storing.cancelled():
                    raise


def _stored(service: Service, waiting: IO[bytes]) -> int:
    with io.TextIOWrapper(waiting, encoding="utf-8-sig", errors="replace") as lines:
        try:
            return service.store.import_lines(lines, "body", lambda: _require_going_on(service))
        except StoreError as error:
            if error.where != service.store.where:  # a line of the body
                raise Refused(422, error.what, where=error.where, hint=error.hint) from None
            raise


def _require_going_on(service: Service) -> None:
    """Raise Refused if the server was told to end."""
    if service.ending.is_set():
        raise _given_up()


def _given_up() -> Refused:
    return Refused(503, "the server is ending; nothing was imported", hint="send it again once the server is back")
