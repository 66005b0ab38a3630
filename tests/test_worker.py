"""A cluster's worker: it waits for a scheduler that is away, but not for a process that does not start."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

comm = pytest.importorskip("distributed.comm", reason="pip install '.[cluster]'")

from autotune.cluster import worker  # noqa: E402
from autotune.cluster.address import Address, SchedulerAway  # noqa: E402
from autotune.errors import AutotuneError, SetupError, WorkerError  # noqa: E402
from tests.stored import DEVICE  # noqa: E402

ADDRESS = Address.parse("tcp://127.0.0.1:8786")
DENIED, CLOSED = PermissionError(13, "Permission denied"), comm.CommClosedError("in <TCP>")
CLOSED.__cause__ = OSError("Stream is closed")  # as tornado has it


class Client:
    async def close(self) -> None:
        pass


class Nanny:
    """A nanny that fails to start, with a cause, as Dask's does; without a cause it serves for ever."""

    def __init__(self, cause: Exception | None) -> None:
        self.cause = cause

    def __await__(self) -> Any:
        if self.cause is not None:
            raise RuntimeError("Nanny failed to start.") from self.cause
        return self
        yield

    async def finished(self) -> None:
        await asyncio.Event().wait()

    async def close(self) -> None:
        pass


def keep(monkeypatch: pytest.MonkeyPatch, causes: list[Exception | None]) -> list[str]:
    """Keep a device served while its process fails with these causes (SchedulerAway: before it); return the output."""
    said: list[str] = []
    turns = iter(causes)
    now: list[Exception | None] = []

    async def connect(address: Address) -> Client:
        now[:] = [next(turns)]
        if isinstance(now[0], SchedulerAway):
            raise now[0]
        return Client()

    def say(line: str) -> None:
        said.append(line)
        if "serves" in line:
            tasks[0].cancel()

    async def main() -> None:
        tasks.append(asyncio.create_task(worker._keep(ADDRESS, DEVICE, 1, say)))
        with suppress(asyncio.CancelledError):
            await tasks[0]

    tasks: list[asyncio.Task[None]] = []
    monkeypatch.setattr(worker, "RETRY_S", 0)
    monkeypatch.setattr(worker, "connect", connect)
    monkeypatch.setattr(worker, "_nanny", lambda *_: Nanny(now[0]))
    asyncio.run(main())
    return said


def test_a_process_that_does_not_start_says_why_and_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(WorkerError, match=r"NVIDIA H200 does not start: .*Permission denied") as raised:
        keep(monkeypatch, [DENIED] * worker.TRIES)
    assert raised.value.exit_code == 4


def test_a_process_that_starts_at_last_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    said = keep(monkeypatch, [DENIED, DENIED, None])
    assert [line.partition(";")[2] for line in said[:2]] == [" trying again"] * 2
    assert said[2].endswith(f"serves {ADDRESS}")


def test_a_scheduler_that_is_away_is_waited_for_and_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    away = SchedulerAway("no scheduler answers (silence)")
    said = keep(monkeypatch, [DENIED, DENIED, CLOSED, away, away, away, DENIED, DENIED, None])
    assert [line for line in said if "waiting" in line] == ["waiting for the scheduler: in <TCP>"]
    assert len(said) == 6


@pytest.mark.parametrize(
    ("errors", "left", "said"),
    [
        ([WorkerError("one is lost")], 1, ["one is lost; the other devices go on"]),
        ([WorkerError("one is lost"), WorkerError("two as well")], 2, []),
        ([SetupError("no scheduler of ours")], 2, []),
    ],
)
def test_a_device_that_is_lost_takes_no_other_along(errors: list[AutotuneError], left: int, said: list[str]) -> None:
    async def post(error: AutotuneError | None) -> None:
        if error is not None:
            raise error
        await asyncio.Event().wait()

    def say(line: str) -> None:
        told.append(line)
        stop.set()

    async def main() -> int:
        posts = [asyncio.create_task(post(error)) for error in (*errors, None)[:2]]
        await worker._any_serves(asyncio.create_task(stop.wait()), posts, say)
        for one in posts:
            one.cancel()
        return len(posts)

    told: list[str] = []
    stop = asyncio.Event()
    assert asyncio.run(main()) == left
    assert told == said
