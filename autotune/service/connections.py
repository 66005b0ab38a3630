"""Connections that cost a server no more than they ask for: a time for each request to come, and a number of them.

They count from the moment that they are taken: TLS is agreed on within their time and number. Answers take as long as
they take: events are followed for hours. The body of a request has its time in guard.py.
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
"""Seconds for a request's line and headers to come, from the opening of its connection or the answer before."""

BACKLOG = 100
"""Connections that are taken in one go, before any of them is looked at."""

_MOST = 4096

_PAUSE_S = 0.1
"""Seconds until another is taken where the process may open no more files."""


def _raw(status: str, error: str, hint: str, headers: str = "") -> bytes:
    """Return an answer as bytes, of the one shape that errors have, where no application is asked."""
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
"""Seconds without a byte after which a body that comes, or an answer that is read, stands still."""


class Connection(H11Protocol):
    """A connection that ends where its next request does not come, or where others need its place meanwhile."""

    since = 0.0
    """When it began to wait for a request; while it has one, when its client last sent or stopped reading."""

    _due: asyncio.TimerHandle | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether there is no request yet, or none after the one that was answered."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def is_halfway(self) -> bool:
        """Whether the rest of a body is still to come, or of an answer to be read."""
        return not self.is_waiting and (self.cycle.more_body or self.flow.write_paused)

    @property
    def follows(self) -> bool:
        """Whether it follows events: who comes back goes on where they left, and misses none."""
        return not self.is_waiting and self.scope["path"].endswith("/events")

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin."""
        super().connection_made(transport)
        # head and body are written apart: the kernel would hold the body back until the client, 40 ms later, says
        # that it has the head. asyncio sees to it for sockets that were made with IPPROTO_TCP only.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._wait()
        if len(self.connections) > most_connections():
            self._make_room()

    def data_received(self, data: bytes) -> None:
        """Take what has come."""
        super().data_received(data)
        if not self.is_waiting:
            self.since = self.loop.time()

    def pause_writing(self) -> None:
        """Hold back an answer that is not read as fast as it is written."""
        self.since = self.loop.time()
        super().pause_writing()

    def on_response_complete(self) -> None:
        """Go on to the next request."""
        self._wait()
        super().on_response_complete()

    def _should_upgrade(self) -> bool:
        """No: who asks for another protocol, as curl does for HTTP/2, is answered in this one.

        uvicorn would say of each that a library is to be installed; where one is, it would take the connection over.
        """
        return False

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP; who is at work on its request is told that nobody waits for an answer."""
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):  # no answer has begun
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
            self._due = self.loop.call_later(HEAD_S, self.transport.abort)  # what it does not read is never sent

    def _make_room(self) -> None:
        """End the connection that has waited or stood still longest, else the oldest that follows events.

        One that is brisk comes last: its client is at work. Where all wait for this server, refuse this one.
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
    """A server that takes connections by itself: asyncio's accepts without end, and gives TLS a minute for each."""

    _agreeing: dict[asyncio.Task[None], socket.socket | None]
    """Those whose TLS is being agreed on, the oldest first; with its socket where that has not begun."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to take connections from the sockets."""
        await super().startup(sockets=[])
        self._agreeing = {}
        self._taking = [asyncio.create_task(self._take(listening)) for listening in sockets or ()]

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more, and end as uvicorn does."""
        for task in (*self._taking, *self._agreeing):
            task.cancel()
        await super().shutdown(sockets)

    async def _take(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        listening.setblocking(False)
        while True:
            try:
                taken, _ = await loop.sock_accept(listening)
            except OSError:  # no file may be opened, or the client has gone
                await asyncio.sleep(_PAUSE_S)
                continue
            if self.config.ssl is None:
                await self._connect(taken)
            else:
                self._begin(taken)
                await asyncio.sleep(0)  # let others go on: it does not wait where many stand in line

    def _begin(self, taken: socket.socket) -> None:
        """Agree on TLS beside others; where there are too many, the oldest of these is ended."""
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
                taken.shutdown(socket.SHUT_RDWR)  # a transport that has only just been made would go on
            raise

    async def _connect(self, taken: socket.socket) -> None:
        """Make a connection of what was taken, after TLS where it is spoken."""
        loop, timeout = asyncio.get_running_loop(), None if self.config.ssl is None else HEAD_S
        try:
            await loop.connect_accepted_socket(
                self._protocol, taken, ssl=self.config.ssl, ssl_handshake_timeout=timeout
            )
        except OSError:  # the client speaks no TLS, too slowly, or has gone
            pass
        except Exception as error:  # whatever it is, the next are taken
            taken.close()
            loop.call_exception_handler({"message": "a connection failed", "exception": error})

    def _protocol(self) -> asyncio.Protocol:
        make = self.config.http_protocol_class
        return make(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)  # type: ignore[call-arg]
