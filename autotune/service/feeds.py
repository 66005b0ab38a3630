"""What happens to each search, sent to everyone who watches; a client that reconnects continues where it left off.

An event has a number and belongs to a feed, `EPOCH:NUMBER`. A client that names an event that is still kept gets the
events after it, each once. Any other client, for example after a restart of the server, first gets a `snapshot`, which
replaces all events before. The last event of a search is `end`. Followed feeds are kept, and those with recent events.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from autotune.errors import StoreError

KEPT = 4096
"""How many events of a search are kept for clients that reconnect."""

_SEARCHES = 256
_BEAT_S = 15.0

SNAPSHOT, STATE, PROGRESS, END, BEAT = "snapshot", "state", "progress", "end", "beat"


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened. A `beat` says that nothing has happened, and has no name."""

    name: str
    kind: str
    data: Mapping[str, Any]


class Feed:
    """The events of one search; `followers` watch it now."""

    def __init__(self) -> None:
        self.epoch = secrets.token_hex(4)
        self.followers = 0
        self._kept: deque[Event] = deque(maxlen=KEPT)
        self.count = 0
        self.latest: Mapping[str, Any] | None = None
        self._news = asyncio.Event()

    def tell(self, kind: str, data: Mapping[str, Any]) -> None:
        """Send an event to everybody who watches."""
        self.count += 1
        if kind == PROGRESS:
            self.latest = data
        self._kept.append(Event(f"{self.epoch}:{self.count}", kind, data))
        self._news.set()
        self._news = asyncio.Event()

    def after(self, name: str | None) -> list[Event] | None:
        """Return the events after the named one, or None if they are not known."""
        epoch, _, number = (name or "").partition(":")
        if epoch != self.epoch or not number.isdecimal() or len(number) > 15:
            return None
        missed = self.count - int(number)
        if not 0 <= missed <= len(self._kept):
            return None
        return list(self._kept)[len(self._kept) - missed :]

    async def wait(self, seconds: float) -> None:
        """Return when something has happened, or after that many seconds."""
        try:
            await asyncio.wait_for(self._news.wait(), seconds)
        except TimeoutError:
            return


class Feeds:
    """The feeds of all searches of a server; `close` ends every stream."""

    def __init__(self) -> None:
        self._feeds: OrderedDict[str, Feed] = OrderedDict()
        self._closed = False

    def of(self, search: str) -> Feed:
        """Return the feed of a search."""
        feed = self._feeds.get(search)
        if feed is None:
            idle = [name for name, one in self._feeds.items() if not one.followers]
            for name in idle[: max(0, len(idle) + 1 - _SEARCHES)]:
                del self._feeds[name]
            feed = self._feeds[search] = Feed()
        self._feeds.move_to_end(search)
        return feed

    def has_seen(self, search: str, last: str | None) -> bool:
        """Whether an event is the latest event of a search."""
        return search in self._feeds and self._feeds[search].after(last) == []

    def close(self) -> None:
        """End every stream."""
        self._closed = True
        for feed in self._feeds.values():
            feed.tell(BEAT, {})

    async def follow(
        self, search: str, last: str | None, snapshot: Callable[[], Any], has_ended: Callable[[Any], bool]
    ) -> AsyncIterator[Event]:
        """Yield the events of a search after the one named `last`, until it or the server ends or a snapshot fails.

        `snapshot` returns what the search is now, `has_ended` whether that is final.
        """
        feed = self.of(search)
        feed.followers += 1
        try:
            async for event in self._followed(feed, last, snapshot, has_ended):
                yield event
        except StoreError:  # there is no snapshot: a client that reconnects is told why
            return
        finally:
            feed.followers -= 1

    async def _followed(
        self, feed: Feed, last: str | None, snapshot: Callable[[], Any], has_ended: Callable[[Any], bool]
    ) -> AsyncIterator[Event]:
        if feed.after(last) == []:  # tells a client that was cut off, as by an impatient proxy, that it is connected
            yield Event("", BEAT, {})
        while not self._closed:
            news = feed.after(last)
            if news is None:  # a new client, or one so slow that it missed more than is kept
                at = feed.count
                now = await asyncio.to_thread(snapshot)
                last = f"{feed.epoch}:{at}"
                yield Event(last, SNAPSHOT, now)
                if has_ended(now):
                    yield Event(last, END, now)
                    return
                continue
            for event in news:
                last = event.name
                yield event
                if event.kind == END:
                    return
            if news:
                continue
            await feed.wait(_BEAT_S)
            if feed.after(last) == [] and not self._closed:
                yield Event("", BEAT, {})
                try:
                    now = await asyncio.to_thread(snapshot)
                except StoreError:  # away for a while: it is tried again at the next beat
                    continue
                if has_ended(now):  # a search of another process, which sends no events here
                    yield Event(last or "", END, now)
                    return
