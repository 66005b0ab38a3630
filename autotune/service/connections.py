"""Limits for connections: a time for each request to arrive, and a number of connections.

They count from the moment that a connection is accepted, so the TLS handshake is within them. Answers have no limit:
events are followed for hours. guard.py limits the time for the body of a request.
"""

from __future__ import annotations

import asyncio
import json
import resource
import socket
from contextlib import suppress

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S = 20.0
"""Seconds for a request's line and headers to arrive, from the opening of its connection or the previous answer."""

BACKLOG = 100
"""How many connections are accepted at once, before any of them is looked at."""

_MOST = 4096

_PAUSE_S = 0.1
"""Seconds to wait before accepting another connection if the process may open no more files."""


def _raw(status: str, error: str, hint: str, headers: str = "") -> bytes:
    """Return an answer as bytes, in the shape that all errors have, without asking the application."""
    body = json.dumps({"error": error, "where": "", "hint": hint, "detail": ""})
    kind = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n"
    return f"HTTP/1.1 {status}\r\n{headers}{kind}\r\n{body}".encode("ascii")


_FULL = _raw("503 Service Unavailable", "all connections are at work", "ask again in a while", "Retry-After: 5\r\n")

_NO_HTTP = _raw("400 Bad Request", "this is not HTTP/1.1, or its headers are too long", "send less, or another way")


def most_connections() -> int:
    """Return how many may be open: a third of the files that this process may open."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _MOST if files == resource.RLIM_INFINITY else min(_MOST, files // 3)


_BRISK_S = 1.0
"""Seconds without a byte after which a body on its way, or the reading of an answer, counts as stalled."""


class Connection(H11Protocol):
    """A connection that ends if its next request does not arrive, or if another needs its place meanwhile."""

    since = 0.0
    """When it began to wait for a request; during a request, when its client last sent something or stopped reading."""

    _due: asyncio.TimerHandle | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for its first request, or for the one after the last answer."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def is_halfway(self) -> bool:
        """Whether the rest of a body has not arrived, or the rest of an answer has not been read."""
        return not self.is_waiting and (self.cycle.more_body or self.flow.write_paused)

    @property
    def follows(self) -> bool:
        """Whether it follows events: a client that reconnects continues where it left off, and misses none."""
        return not self.is_waiting and self.scope["path"].endswith("/events")

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin."""
        super().connection_made(transport)
        # Head and body are written separately. Otherwise the kernel holds the body back until the client, 40 ms later,
        # acknowledges the head. asyncio sets this only for sockets that were made with IPPROTO_TCP.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._wait()
        if len(self.connections) > most_connections():
            self._make_room()

    def data_received(self, data: bytes) -> None:
        """Take the data that arrived."""
        super().data_received(data)
        if not self.is_waiting:
            self.since = self.loop.time()

    def pause_writing(self) -> None:
        """Pause an answer that the client reads too slowly."""
        self.since = self.loop.time()
        super().pause_writing()

    def on_response_complete(self) -> None:
        """Go on to the next request."""
        self._wait()
        super().on_response_complete()

    def _should_upgrade(self) -> bool:
        """Return False: a client that asks for another protocol, as curl does for HTTP/2, is answered in this one.

        For each, uvicorn would log that a library must be installed; with that library, it would take the connection
        over.
        """
        return False

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP; a request that is being answered learns that its client no longer waits."""
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):  # the answer has not begun
            self.transport.write(_NO_HTTP)
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._cancel()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._cancel()
        self.since = self.loop.time()
        self._due = self.loop.call_later(HEAD_S, self._give_up)

    def _cancel(self) -> None:
        if self._due is not None:
            self._due.cancel()

    def _give_up(self) -> None:
        if self.is_waiting:
            self.transport.close()
            self._due = self.loop.call_later(HEAD_S, self.transport.abort)  # the client may never read the rest

    def _make_room(self) -> None:
        """End the connection that has waited or stalled longest, else the oldest that follows events.

        A connection without a stall comes last: its client is active. If all wait for this server, refuse the new one.
        """
        others = [one for one in self.connections if isinstance(one, Connection) and one is not self]
        there = sorted((one for one in others if not one.transport.is_closing()), key=lambda one: one.since)
        halfway, still = [one for one in there if one.is_halfway], self.since - _BRISK_S
        idle = [one for one in there if one.is_waiting or (one.is_halfway and one.since < still)]
        if spare := idle or [one for one in there if one.follows] or halfway:
            spare[0].transport.abort()
        else:
            self.transport.write(_FULL)
            self.transport.close()


class Listener(uvicorn.Server):
    """A server that accepts connections itself: asyncio has no limit, and allows a minute for each TLS handshake."""

    _agreeing: dict[asyncio.Task[None], socket.socket | None]
    """The TLS handshakes in progress, the oldest first; with the socket until the handshake begins."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to take connections from the sockets."""
        await super().startup(sockets=[])
        self._agreeing = {}
        self._taking = [asyncio.create_task(self._take(listening)) for listening in sockets or ()]

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more, and end as uvicorn does."""
        for task in (*self._taking, *self._agreeing):
            task.cancel()
        await super().shutdown(sockets)

    async def _take(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        listening.setblocking(False)
        while True:
            try:
                taken, _ = await loop.sock_accept(listening)
            except OSError:  # no file can be opened, or the client has gone
                await asyncio.sleep(_PAUSE_S)
                continue
            if self.config.ssl is None:
                await self._connect(taken)
            else:
                self._begin(taken)
                await asyncio.sleep(0)  # let other tasks run: sock_accept does not wait if a connection is ready

    def _begin(self, taken: socket.socket) -> None:
        """Start a TLS handshake beside others; if there are too many, end the oldest."""
        if self._agreeing and len(self._agreeing) + len(self.server_state.connections) >= most_connections():
            next(iter(self._agreeing)).cancel()
        task = asyncio.get_running_loop().create_task(self._agree(taken))
        self._agreeing[task] = taken
        task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        left = self._agreeing.pop(task)
        if left is not None:
            left.close()

    async def _agree(self, taken: socket.socket) -> None:
        if (task := asyncio.current_task()) is not None:
            self._agreeing[task] = None  # its transport will close it
        try:
            await self._connect(taken)
        except asyncio.CancelledError:
            with suppress(OSError):
                taken.shutdown(socket.SHUT_RDWR)  # a transport that was just made would continue
            raise

    async def _connect(self, taken: socket.socket) -> None:
        """Make a connection of an accepted socket, after the TLS handshake if TLS is used."""
        loop, timeout = asyncio.get_running_loop(), None if self.config.ssl is None else HEAD_S
        try:
            await loop.connect_accepted_socket(
                self._protocol, taken, ssl=self.config.ssl, ssl_handshake_timeout=timeout
            )
        except OSError:  # the client does not speak TLS, is too slow, or has gone
            pass
        except Exception as error:  # whatever it is, the next connections are accepted
            taken.close()
            loop.call_exception_handler({"message": "a connection failed", "exception": error})

    def _protocol(self) -> asyncio.Protocol:
        make = self.config.http_protocol_class
        return make(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)  # type: ignore[call-arg]
