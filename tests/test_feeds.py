"""Events reach every watcher, each once, in their order, whenever watchers come and go."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="pip install '.[serve]'")

from autotune.errors import StoreError
from autotune.service.feeds import BEAT, END, KEPT, PROGRESS, SNAPSHOT, STATE, Feeds

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def follow(feeds: Feeds, last: str | None = None, state: str = "running") -> Any:
    return feeds.follow("s", last, lambda: {"state": state}, lambda told: told["state"] == "done")


async def take(stream: Any, count: int) -> list[Any]:
    return [await anext(stream) for _ in range(count)]


async def test_who_comes_first_gets_a_snapshot_and_then_what_happens() -> None:
    feeds = Feeds()
    stream = follow(feeds)
    (first,) = await take(stream, 1)
    for number in range(3):
        feeds.of("s").tell(PROGRESS, {"done": number})
    feeds.of("s").tell(END, {"state": "done"})
    assert [first.kind] + [event.kind async for event in stream] == [SNAPSHOT, PROGRESS, PROGRESS, PROGRESS, END]


async def test_who_comes_back_misses_nothing_and_gets_nothing_twice() -> None:
    feeds = Feeds()
    one = follow(feeds)
    await take(one, 1)
    feeds.of("s").tell(PROGRESS, {"done": 1})
    (seen,) = await take(one, 1)
    for number in (2, 3):
        feeds.of("s").tell(PROGRESS, {"done": number})
    assert [event.data["done"] for event in await take(follow(feeds, seen.name), 2)] == [2, 3]


async def test_who_comes_back_and_has_missed_nothing_is_told_at_once_that_the_server_is_there() -> None:
    """Otherwise a client behind a proxy with a short idle limit would think that the server is away."""

    feeds = Feeds()
    feeds.of("s").tell(PROGRESS, {"done": 1})
    (seen,) = await take(follow(feeds), 1)
    assert [event.kind for event in await asyncio.wait_for(take(follow(feeds, seen.name), 1), 10)] == [BEAT]


@pytest.mark.parametrize("last", [None, "", "x", "other:1", "{}:99", "{}:-1", "{}:x", "{}:" + "9" * 5000])
async def test_who_names_what_is_not_known_gets_a_snapshot(last: str | None) -> None:
    feeds = Feeds()
    feeds.of("s").tell(PROGRESS, {"done": 1})
    named = None if last is None else last.replace("{}", feeds.of("s").epoch)
    assert [event.kind for event in await take(follow(feeds, named), 1)] == [SNAPSHOT]


async def test_who_is_too_slow_gets_a_snapshot_instead_of_a_gap() -> None:
    feeds = Feeds()
    stream = follow(feeds)
    await take(stream, 1)
    for number in range(KEPT + 1):
        feeds.of("s").tell(PROGRESS, {"done": number})
    feeds.of("s").tell(STATE, {})
    assert (await take(stream, 1))[0].kind == SNAPSHOT


async def test_who_is_too_slow_for_the_end_hears_of_it_at_once() -> None:
    feeds, states = Feeds(), ["running"]
    stream = feeds.follow("s", None, lambda: {"state": states[0]}, lambda told: told["state"] == "done")
    await take(stream, 1)
    for number in range(KEPT):
        feeds.of("s").tell(PROGRESS, {"done": number})
    states[0] = "done"
    feeds.of("s").tell(END, {"state": "done"})
    assert [event.kind async for event in stream] == [SNAPSHOT, END]


async def test_what_has_ended_says_so_at_once_and_is_known_to_have_been_seen() -> None:
    feeds = Feeds()
    events = [event async for event in follow(feeds, state="done")]
    assert [event.kind for event in events] == [SNAPSHOT, END]
    assert feeds.has_seen("s", events[-1].name)
    assert not feeds.has_seen("s", None)
    assert not feeds.has_seen("other", events[-1].name)


async def test_streams_end_with_the_server() -> None:
    feeds = Feeds()
    stream = follow(feeds)
    await take(stream, 1)
    feeds.close()
    assert [event.kind async for event in stream] in ([], [BEAT])


async def test_what_is_followed_is_kept_however_many_others_are_looked_at() -> None:
    feeds = Feeds()
    stream = follow(feeds)
    await take(stream, 1)
    for number in range(1000):
        feeds.of(f"other{number}")
    feeds.of("s").tell(END, {"state": "done"})
    assert [event.kind async for event in stream] == [END]
    assert len(feeds._feeds) < 500


async def test_events_of_a_feed_that_is_gone_are_not_taken_for_those_of_the_next() -> None:
    feeds = Feeds()
    feeds.of("s").tell(PROGRESS, {"done": 1})
    seen = feeds.of("s").after(f"{feeds.of('s').epoch}:0")[0].name
    for number in range(1000):
        feeds.of(f"other{number}")
    feeds.of("s").tell(PROGRESS, {"done": 2})
    assert not feeds.has_seen("s", seen)
    assert [event.kind for event in await take(follow(feeds, seen), 1)] == [SNAPSHOT]


async def test_a_search_of_another_process_is_looked_at_from_time_to_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.service.feeds._BEAT_S", 0.001)
    feeds, states = Feeds(), ["running", "running", "", "done"]

    def snapshot() -> dict[str, str]:
        if not (state := states.pop(0)):
            raise StoreError("away for a while")
        return {"state": state}

    stream = feeds.follow("s", None, snapshot, lambda told: told["state"] == "done")
    assert [event.kind async for event in stream] == [SNAPSHOT, BEAT, BEAT, BEAT, END]


async def test_a_stream_ends_where_its_snapshot_cannot_be_told() -> None:
    def snapshot() -> dict[str, str]:
        raise StoreError("away for a while")

    feeds = Feeds()
    assert [event async for event in feeds.follow("s", None, snapshot, lambda _: False)] == []
    assert feeds.of("s").followers == 0
