"""Threads that each keep one worker process: what they do where it is killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue

import pytest

from autotune.device import list_devices
from autotune.engine.crew import Keeper
from autotune.engine.messages import Setup
from autotune.engine.report import Limits
from autotune.errors import AutotuneError, WorkerError
from autotune.timing import Rules

SETUP = Setup("", {}, {}, None, Rules(), Limits())


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[Keeper]:
    keeper = Keeper("builder", SimpleQueue(), lambda *_: None, lambda _: None, lambda _: None, tmp_path)
    yield keeper
    keeper.close()
    keeper._drop()


def start(keeper: Keeper, kills: int) -> int:
    """Start a worker that is killed so many times while it starts; return how often it was started."""
    starts = []

    def setup() -> Setup:
        assert keeper._worker is not None
        starts.append(keeper._worker.pid)
        if len(starts) <= kills:
            os.kill(keeper._worker.pid, signal.SIGKILL)
        return SETUP

    device = next(device for device in list_devices() if device.kind == "cpu")
    keeper.start_worker(device, setup, {})
    return len(starts)


def test_a_worker_killed_while_it_starts_is_started_again(keeper: Keeper) -> None:
    assert start(keeper, kills=1) == 2


def test_a_worker_killed_twice_while_it_starts_is_an_error(keeper: Keeper) -> None:
    with pytest.raises(WorkerError, match=r"the builder worker cannot start: .*SIGKILL"):
        start(keeper, kills=2)


def test_what_goes_wrong_in_the_thread_is_told(tmp_path: Path) -> None:
    def handle(keeper: Keeper, task: object) -> None:
        raise ValueError("odd")

    told: list[AutotuneError] = []
    keeper = Keeper("device", SimpleQueue(), handle, told.append, lambda _: None, tmp_path)
    keeper._tasks.put("task")
    keeper.run()
    assert [str(error) for error in told] == ["the thread of the device worker failed: ValueError: odd"]
    assert "in handle" in told[0].detail
