"""Builders and trials take turns where they share the hardware."""

from __future__ import annotations

import threading

import pytest

from autotune.engine.turns import Closed, Turns


def test_trials_run_once_everything_submitted_is_built_and_builders_wait_for_the_last_of_them() -> None:
    turns = Turns(exclusive=True)
    order: list[str] = []
    built, ran = threading.Barrier(3), threading.Barrier(2)

    def build(name: str) -> None:
        with turns.building():
            order.append(f"build {name}")
            turns.hand_over()
        built.wait()

    def run() -> None:
        for _ in range(2):
            with turns.running():
                order.append("run")
        ran.wait()

    turns.submit()
    turns.submit()
    for name in "ab":
        threading.Thread(target=build, args=(name,)).start()
    runner = threading.Thread(target=run)
    runner.start()
    built.wait()
    turns.submit()
    with turns.building():
        order.append("build c")
    ran.wait()
    assert sorted(order[:2]) == ["build a", "build b"]
    assert order[2:] == ["run", "run", "build c"]


def test_a_batch_without_a_trial_keeps_building() -> None:
    turns = Turns(exclusive=True)
    for _ in range(3):  # nothing builds: nothing is handed over
        turns.submit()
        with turns.building():
            pass


def test_nobody_waits_where_the_hardware_is_not_shared() -> None:
    turns = Turns(exclusive=False)
    turns.submit()
    with turns.building():
        turns.hand_over()
        with turns.running():
            turns.submit()


def test_closing_wakes_who_waits() -> None:
    turns = Turns(exclusive=True)
    turns.close()
    with pytest.raises(Closed), turns.running():
        raise AssertionError
