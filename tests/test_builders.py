"""Which builders begin, and when the others do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, cast

import pytest

from autotune.bench import Ready, Setup
from autotune.model import DeviceInfo, Outcome
from autotune.pool import DeviceEvaluator, Settings, builders
from autotune.pool.builders import Builders
from autotune.pool.data import Setups
from autotune.pool.folder import RunFolder
from autotune.pool.keeper import Keeper
from autotune.study import GENERIC_DEVICE, Problem
from tests.devices import device_here
from tests.studies import study


class Noted:
    """Records what a keeper is told."""

    def __init__(self) -> None:
        self.started, self.begun, self.closed = threading.Event(), threading.Event(), False
        self.device, self.idle, self.held = "device", True, False

    @contextmanager
    def borrowed(self) -> Iterator[bool]:
        self.held = True
        yield self.idle
        self.held = False

    def start(self) -> None:
        self.begun.set()
        self.started.set()

    def close(self) -> None:
        self.closed = True


def made(count: int, first: int) -> tuple[Builders, list[Noted]]:
    keepers = [Noted() for _ in range(count)]
    crew = Builders(cast("list[Keeper]", keepers), first)
    crew.start()
    return crew, keepers


def begun(keepers: list[Noted]) -> int:
    return sum(keeper.begun.is_set() for keeper in keepers)


def test_a_build_that_takes_long_brings_in_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    crew, keepers = made(5, 2)
    with crew.building():
        pass
    assert begun(keepers) == 2
    monkeypatch.setattr(builders, "LONG_S", 0.0)
    with crew.building():
        assert keepers[-1].begun.wait(60.0)
    crew.wait_ready()
    assert len(crew.begun) == 5


def test_of_a_device_as_many_are_brought_in_as_are_lacking() -> None:
    crew, keepers = made(6, 2)
    keepers[0].device = keepers[3].device = "another"
    crew.have(cast("DeviceInfo", "device"), 3)
    assert [keeper.begun.is_set() for keeper in keepers] == [True, True, True, False, True, False]
    crew.have(cast("DeviceInfo", "device"), 2)
    assert begun(keepers) == 4
    crew.complete()
    assert begun(keepers) == 6


def test_idle_builders_of_a_device_are_kept_from_building() -> None:
    crew, keepers = made(6, 5)
    keepers[1].idle, keepers[2].device = False, "another"
    with crew.borrowed(cast("DeviceInfo", "device"), 2) as idle:
        assert cast("list[Noted]", idle) == [keepers[0], keepers[3]]
        assert keepers[0].held
    assert not any(keeper.held for keeper in keepers)


@pytest.mark.parametrize(
    ("trials", "devices", "first"),
    [(1, 1, 1), (30, 1, 6), (200, 1, 15), (1, 2, 2), (None, 2, 2 * builders.FIRST)],
)
def test_the_more_trials_the_more_builders_begin(trials: int | None, devices: int, first: int) -> None:
    assert builders.count_first(trials, devices) == first


def test_a_device_that_has_waited_for_as_long_as_the_others_cost_brings_them_in() -> None:
    crew, keepers = made(5, 2)
    crew.waited(builders.COST_S)
    assert begun(keepers) == 2
    crew.waited(0.01)
    assert begun(keepers) == 5


def test_others_do_what_one_that_is_lost_would_have_done_until_none_is_left() -> None:
    crew, keepers = made(3, 1)
    assert crew.lose() is False
    assert begun(keepers) == 3
    assert [crew.lose(), crew.lose()] == [False, True]


def test_none_begins_while_a_trial_runs_and_the_next_trial_waits_for_those_that_are_due() -> None:
    crew, keepers = made(4, 1)
    with crew.undisturbed():
        crew.complete()
        assert begun(keepers) == 1
    assert begun(keepers) == 4
    keepers[-1].started.clear()
    entered = threading.Event()

    def trial() -> None:
        with crew.undisturbed():
            entered.set()

    thread = threading.Thread(target=trial)
    thread.start()
    assert not entered.is_set()
    keepers[-1].started.set()
    thread.join()
    assert entered.is_set()


@pytest.mark.parametrize("closed", [False, True])
def test_a_trial_of_another_device_does_not_keep_those_that_are_due_from_beginning(closed: bool) -> None:
    crew, keepers = made(3, 1)
    entered = threading.Event()

    def trial() -> None:
        with crew.undisturbed():
            entered.set()

    with crew.undisturbed():
        crew.complete()
        thread = threading.Thread(target=trial)  # begins no trial before they have begun
        thread.start()
        assert not entered.is_set()
        if closed:
            crew.close()
            thread.join()
    thread.join()
    assert entered.is_set()
    assert begun(keepers) == (1 if closed else 3)


def test_none_begins_once_they_are_closed() -> None:
    crew, keepers = made(3, 1)
    crew.close()
    crew.complete()
    assert begun(keepers) == 1
    assert keepers[0].closed


def test_the_others_open_their_devices_while_the_first_runs_the_reference() -> None:
    problem, folder = Problem(study(reference={"configuration": {"WPT": 1, "WG": 32, "FAST": 0}})), RunFolder()
    setups, opened, computed = Setups(problem, folder, Settings()), threading.Barrier(2), list[bool]()

    class Starting:
        def start_worker(self, device: DeviceInfo, setup: Callable[[], Setup], _: object) -> Ready:
            opened.wait(60.0)
            computed.append(not setup().expected)
            return Ready({"y": "expected-y.npy"})

    with ThreadPoolExecutor() as pool:
        for _ in pool.map(lambda keeper: setups.start_runner(keeper, GENERIC_DEVICE), [cast("Keeper", Starting())] * 2):
            pass
    assert computed == [True, False]
    setups.close()
    folder.remove()


@pytest.mark.device
def test_on_a_device_the_others_join_in_and_all_end(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem(study(), device=device_here())
    monkeypatch.setattr(builders, "LONG_S", 0.0)
    with DeviceEvaluator(problem, [problem.device], Settings(builders=3, trials=1)) as runs:
        runs.submit(problem.default)
        assert runs.collect().outcome is Outcome.OK
        crew: Any = runs._builders
        assert len(crew.begun) == 3
    for keeper in crew.begun:
        keeper.join()  # which a device that ends slowly is not waited for
