"""A server on its socket: uvicorn, with streams of events that end when the server is asked to end."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI

from autotune.errors import AutotuneError, UsageError
from autotune.service.app import create_app
from autotune.service.config import Config, require_safe
from autotune.service.connections import BACKLOG, Connection, Listener
from autotune.service.state import Service, opened
from autotune.store import ServerStore
from autotune.text import say

_PATIENCE_S = 5

_AGAIN_S = 1.0
"""A signal that comes this many seconds later is a new one: a terminal and its program may both send the same."""


class _Server(Listener):
    """Ends the streams of events first: their clients would keep the server from ending."""

    def __init__(self, config: uvicorn.Config, app: FastAPI, begun: Callable[[Service], None]) -> None:
        super().__init__(config)
        self._app = app
        self._begun = begun
        self._asked_s = 0.0
        self.failure: AutotuneError | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to take requests, and call `begun`."""
        await super().startup(sockets)
        if self.failure is not None:  # no request is taken before the next turn of the loop
            self.should_exit = True
        elif self.started:
            self._begun(self._app.state.service)

    def fail(self, error: AutotuneError) -> None:
        """Store the error that keeps the application from starting."""
        self.failure = error

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handle a signal: end in order, or at once if that was asked for before. A database may not answer."""
        now = time.monotonic()
        if self._asked_s and now > self._asked_s + _AGAIN_S:
            say("autotune: ends at once; what ran is queued again")
            os._exit(128 + sig)
        self._asked_s = self._asked_s or now
        service: Service | None = getattr(self._app.state, "service", None)
        if service is not None:
            service.end()
        super().handle_exit(sig, frame)


def serve(config: Config, begun: Callable[[str, Service], None]) -> None:
    """Serve until a signal says stop; `begun` gets the URL when requests are taken.

    Raises AutotuneError, one line, if it cannot begin.
    """
    _require_address(config)
    with opened(config) as store:
        require_safe(config, any(token.valid for token in store.tokens()))
        if not config.read_only:
            _require_alone(store, config.name)
    app = create_app(config, lambda error: server.fail(error))
    listening = _bound(config)
    host, port = listening.getsockname()[:2]
    scheme = "https" if config.certificate else "http"
    url = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
    server = _Server(settings(config, app), app, lambda service: begun(url, service))
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # a closed terminal; under `nohup` it is ignored
        signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGTERM))
    server.run(sockets=[listening])
    if server.failure is not None:
        raise server.failure
    if not server.started:
        sys.exit(3)


def settings(config: Config, app: Any) -> uvicorn.Config:
    """Return the settings with which uvicorn serves an application."""
    return uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        ssl_certfile=config.certificate,
        ssl_keyfile=config.key,
        proxy_headers=config.behind_proxy,
        timeout_graceful_shutdown=_PATIENCE_S,
        h11_max_incomplete_event_size=2**16,
        http=Connection,
        backlog=BACKLOG,
    )


def _require_alone(store: ServerStore, name: str) -> None:
    """Raise UsageError early if a server of that name is at work; `Service.start` checks it for certain."""
    hold = store.hold(name)
    try:
        hold.keep()
    finally:
        hold.close()


def _require_address(config: Config) -> None:
    """Raise UsageError if this is not an address: then a token is no remedy."""
    try:
        socket.getaddrinfo(config.host.strip("[]"), config.port, type=socket.SOCK_STREAM)
    except (OSError, OverflowError, UnicodeError) as error:
        said = getattr(error, "strerror", None) or error
        hint = "give an address of this machine, such as 127.0.0.1"
        raise UsageError(f"is not an address: {said}", where=f"--host {config.host}", hint=hint) from None


def _bound(config: Config) -> socket.socket:
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((config.host.strip("[]"), config.port))
        listening.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        listening.close()
        where = f"--host {config.host} --port {config.port}"
        raise UsageError(f"cannot be listened at: {error}", where=where, hint="choose another --port") from None
    return listening
