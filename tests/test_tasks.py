"""How many configurations are wanted in flight; which runs wait for others (`MakingWay`)."""

from __future__ import annotations

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.bench import Report
from autotune.bench.timing import Limits
from autotune.model import Outcome
from autotune.pool.tasks import RECENT, Ahead, Task, Waiting
from autotune.pool.way import MakingWay

seconds = st.floats(1e-3, 1e3)


def after(ahead: Ahead, built_s: float, ran_s: float, count: int = RECENT) -> Ahead:
    for _ in range(count):
        ahead.built(built_s)
        ahead.ran(ran_s)
    return ahead


def test_nothing_is_ahead_where_nothing_builds_ahead() -> None:
    assert after(Ahead(0, 2), 1.0, 1e-3).wanted(0) == Ahead(0, 2).most == 2


def test_before_anything_is_known_few_are_chosen_blindly() -> None:
    ahead = Ahead(16, 1)
    ahead.built(1.0)
    assert (ahead.wanted(2), ahead.wanted(16), ahead.most) == (4, 5, 18)


def test_builders_that_halt_while_a_trial_runs_all_have_work() -> None:
    assert after(Ahead(4, 1, in_turns=True), 0.1, 0.1).wanted(4) == 6


@pytest.mark.parametrize(
    ("built_s", "ran_s", "devices", "wanted"),
    [(0.1, 0.1, 1, 4), (0.7, 0.02, 1, 18), (0.01, 1.0, 1, 3), (0.2, 0.1, 2, 9)],
)
def test_builds_are_as_many_as_keep_the_devices_at_work(
    built_s: float, ran_s: float, devices: int, wanted: int
) -> None:
    assert after(Ahead(16, devices), built_s, ran_s).wanted(16) == wanted


def test_it_follows_what_builds_and_trials_take_now() -> None:
    ahead = after(after(Ahead(16, 1), 1.0, 0.01), 0.1, 0.1)
    assert ahead.wanted(16) == 4
    ahead.ran(60.0)  # one that hung says nothing of the next
    assert ahead.wanted(16) == 4


def test_before_the_first_trial_has_ended_nothing_is_known_of_waiting() -> None:
    ahead = Ahead(16, 1)
    ahead.built(1.0)
    assert not ahead.has_run
    ahead.ran(1.0)
    assert ahead.has_run


def test_a_wait_that_began_before_a_task_was_submitted_was_not_all_for_it() -> None:
    late = Task({}, submitted=time.monotonic() - 2.0)
    assert 2.0 <= late.waited_for(1e6) < 1e6
    assert late.waited_for(1.0) == 1.0


def test_what_waits_for_a_builder_is_counted() -> None:
    waiting, (first, second) = Waiting(), (Task({"A": 1}), Task({"A": 2}))
    waiting.add(first, ready=False)
    waiting.add(second, ready=False)
    waiting.make_ready(first)
    assert waiting.unbuilt() == 1


@given(built_s=seconds, ran_s=seconds, builders=st.integers(1, 32), devices=st.integers(1, 4), begun=st.integers(1, 32))
def test_it_never_starves_a_device_nor_asks_for_more_than_can_be_built(
    built_s: float, ran_s: float, builders: int, devices: int, begun: int
) -> None:
    ahead = after(Ahead(builders, devices), built_s, ran_s, 3)
    wanted = ahead.wanted(min(begun, builders))
    assert 2 * devices < wanted <= ahead.most
    builds = wanted - 2 * devices
    assert (
        builds == min(begun, builders)
        or builds / built_s >= min(builders, devices / ran_s)
        or math.isclose(builds * ran_s, devices * built_s)
    )


def test_what_makes_way_does_so_after_twice_as_long_the_next_time() -> None:
    waiting, (task, other) = Waiting(), (Task({"A": 1}), Task({"A": 2}))
    way = MakingWay(waiting, Limits(floor_s=2.0, first_s=60.0, multiple=20.0))
    gives_up = way.of(task)
    assert not gives_up("run", 60.0)  # nothing is ready
    waiting.add(other, ready=True)
    assert not gives_up("build", 60.0)
    assert not gives_up("run", 1.9)
    assert not way.made(task, Report(Outcome.TIMEOUT, verify_s=1.0))
    assert gives_up("run", 2.5)
    assert way.made(task, Report(Outcome.TIMEOUT, verify_s=3.0))
    assert (way.lost_s, task.lost_s, other.lost_s) == (3.0, 3.0, 0.0)
    assert [way.of(other)("run", ran_s) for ran_s in (4.9, 5.0)] == [False, True]


def test_what_made_way_ends_once_the_best_allows_no_more_than_it_ran() -> None:
    waiting, task = Waiting(), Task({"A": 1})
    waiting.add(Task({"A": 2}), ready=True)
    way = MakingWay(waiting, Limits(floor_s=2.0, first_s=60.0, multiple=20.0))
    way.of(task)("run", 4.0)
    way.made(task, Report(Outcome.TIMEOUT, "slow", verify_s=3.0))
    found = [way.verdict(one, best_ns) for one, best_ns in ((task, None), (task, 3e8), (Task({}), 1.0), (task, 2e8))]
    assert found == [None, None, None, Report(Outcome.TIMEOUT, "slow")]  # its seconds are counted already
