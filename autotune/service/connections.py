"""Connections that cost a server no more than they ask for: a time for each request to come, and a number of them.

Answers take as long as they take: events are followed for hours. The body of a request has its time in guard.py.
"""

from __future__ import annotations

import asyncio
import resource
import socket

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S = 20.0
"""Seconds for a request's line and headers to come, from the opening of its connection or the answer before."""

BACKLOG = 100
"""Connections that are taken in one go, before any of them is looked at."""

_MOST = 4096
_FULL = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


def most_connections() -> int:
    """Return how many may be open: a third of the files that this process may open."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _MOST if files == resource.RLIM_INFINITY else min(_MOST, files // 3)


class Connection(H11Protocol):
    """A connection that ends where its next request does not come, or where others need its place meanwhile."""

    waits_since = 0.0
    _due: asyncio.TimerHandle | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether there is no request yet, or none after the one that was answered."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin."""
        super().connection_made(transport)
        # head and body are written apart: the kernel would hold the body back until the client, 40 ms later, says
        # that it has the head. asyncio sees to it for sockets that were made with IPPROTO_TCP only.
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._wait()
        if len(self.connections) > most_connections():
            self._make_room()

    def on_response_complete(self) -> None:
        """Go on to the next request."""
        self._wait()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._cancel()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._cancel()
        self.waits_since = self.loop.time()
        self._due = self.loop.call_later(HEAD_S, self._give_up)

    def _cancel(self) -> None:
        if self._due is not None:
            self._due.cancel()

    def _give_up(self) -> None:
        if self.is_waiting:
            self.transport.close()
            self._due = self.loop.call_later(HEAD_S, self.transport.abort)  # what it does not read is never sent

    def _make_room(self) -> None:
        """End the connection that has waited longest; where all are at work, refuse this one."""
        others = [one for one in self.connections if isinstance(one, Connection) and one is not self]
        waiting = [one for one in others if one.is_waiting and not one.transport.is_closing()]
        if waiting:
            min(waiting, key=lambda one: one.waits_since).transport.abort()
        else:
            self.transport.write(_FULL)
            self.transport.close()
