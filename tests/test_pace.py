"""The pace: what an anchor says about the machine, and how a bench uses it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.bench.pace import SHARE, SHARE_UNUSUAL, SLOW, STEP, Pace
from autotune.devices import Session
from autotune.model import PACE, Measurement, Outcome, Trial
from tests.test_clock import bench_of, session, spin

__all__ = ["session"]  # a fixture


class Machine:
    """A clock of seconds, and an anchor of 1,000 ns that takes `factor` times as long."""

    def __init__(self) -> None:
        self.now_s, self.factor, self.asked = 0.0, 1.0, 0
        self.pace = Pace(lambda: self.now_s)

    def take(self, count: int) -> Sequence[float]:
        self.asked += count
        self.now_s += count * 0.001
        return [1000.0 * self.factor] * count

    def read(self) -> bool:
        return self.pace.read(self.take)


@pytest.fixture
def machine() -> Machine:
    machine = Machine()
    assert machine.pace.offer(1000.0)
    return machine


def test_there_is_nothing_to_read_before_an_anchor() -> None:
    assert not Pace().is_due


@pytest.mark.parametrize("factor", [1 + 0.9 * STEP, 50.0])
def test_noise_below_a_step_and_what_no_machine_does_change_nothing(machine: Machine, factor: float) -> None:
    machine.factor = factor
    assert not machine.read()
    assert machine.pace.now == 1


@given(factor=st.floats(0.2, 7.9).filter(lambda factor: abs(factor - 1) > 1.01 * STEP))
def test_a_step_is_a_change_that_more_samples_confirm(factor: float) -> None:
    machine = Machine()
    machine.pace.offer(1000.0)
    machine.factor = factor
    assert machine.read()
    few, machine.asked = machine.asked, 0
    assert machine.pace.now == pytest.approx(factor)
    assert not machine.read()
    assert machine.asked < few


def test_a_faster_anchor_takes_over_at_the_pace_of_now(machine: Machine) -> None:
    machine.factor = 2.0
    machine.read()
    assert not machine.pace.offer(1999.0)  # at twice its time, no faster than the anchor
    assert machine.pace.offer(1000.0)
    assert machine.pace.base_ns == pytest.approx(500)
    assert machine.pace.now == pytest.approx(2)


def test_no_anchor_takes_over_at_a_pace_that_may_be_over(machine: Machine) -> None:
    for _ in range(3):
        machine.read()
    machine.factor = 2.0
    machine.read()
    assert not machine.pace.offer(990.0 - 1)
    assert machine.pace.base_ns == 1000
    for _ in range(3):  # it is the usual one by now
        machine.read()
    assert machine.pace.offer(990.0 - 1)


def test_readings_keep_within_their_share_of_the_time(machine: Machine) -> None:
    machine.read()
    cost_s = machine.now_s
    assert not machine.pace.is_due
    machine.now_s += 1.01 * cost_s / SHARE
    assert machine.pace.is_due


def test_an_unusual_pace_is_read_again_sooner(machine: Machine) -> None:
    for _ in range(3):
        machine.read()
    machine.factor, began_s = 2.0, machine.now_s
    machine.read()
    cost_s = machine.now_s - began_s
    assert not machine.pace.is_due
    machine.now_s += 1.01 * cost_s / SHARE_UNUSUAL
    assert machine.pace.is_due
    assert SHARE_UNUSUAL > SHARE


def test_slow_is_slower_than_usual(machine: Machine) -> None:
    for _ in range(3):
        machine.read()
    assert not machine.pace.is_slow([1000.0])
    assert machine.pace.is_slow([1000.0 * SLOW * 1.01])
    machine.factor = 2.0
    for _ in range(4):
        machine.read()
    assert not machine.pace.is_slow([2000.0])  # it has been so for most of the time


def test_a_reading_that_was_too_quick_does_not_make_all_else_slow(machine: Machine) -> None:
    machine.factor = 0.3
    machine.read()
    assert not machine.pace.is_slow([1000.0])


def test_times_are_compared_at_the_usual_pace() -> None:
    slow = Trial({}, Outcome.OK, measurement=Measurement((200,) * 5), environment={PACE: 2.0})
    assert (slow.time_ns, slow.paced_ns, slow.standing_ns) == (200, 100, 100)
    assert replace(slow, retimed=Measurement((90,) * 5)).standing_ns == 90


@pytest.mark.parametrize("forged", ["2", True, 0.0, -1.0, float("inf"), float("nan"), 1e300, None])
def test_a_pace_that_nobody_measured_counts_for_nothing(forged: object) -> None:
    assert Trial({}, Outcome.OK, measurement=Measurement((200,)), environment={PACE: forged}).paced_ns == 200


def read_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pace, "is_due", property(lambda pace: pace.base_ns > 0))


@pytest.mark.device
@pytest.mark.processor
def test_a_trial_beside_which_the_pace_changed_is_timed_again(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    # By how much other work on the processor makes these longer.
    monkeypatch.setattr("autotune.bench.trial.stretch", lambda *_: 1.0)
    bench = bench_of(session, out=5)
    first = bench.run(spin(30_000), None)
    assert PACE not in first.environment
    read_always(monkeypatch)
    slow_ns = 4 * bench.anchor.pace.base_ns  # scripted: what a busy machine does to a real reading, nobody knows
    done: list[str] = []  # twice before, where other work has disturbed the first batches
    monkeypatch.setattr(bench.anchor, "_take", lambda count: done.append("read") or [slow_ns] * count)
    monkeypatch.setattr(
        bench, "_time", lambda built, *rest, take=bench._time: done.append("timed") or take(built, *rest)
    )
    again = bench.run(spin(60_000), None)
    assert again.outcome is Outcome.OK, again.reason
    assert done[-2:] == ["read", "timed"]
    assert again.environment[PACE] == pytest.approx(4)


@pytest.mark.device
def test_an_anchor_that_fails_costs_no_trial(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = bench_of(session, out=5)
    bench.run(spin(30_000), None)
    assert bench.anchor.plan is not None
    bench.anchor.plan = replace(bench.anchor.plan, source="kernel void spin(")
    read_always(monkeypatch)
    report = bench.run(spin(60_000), None)
    assert report.outcome is Outcome.OK
    assert bench.anchor.plan == spin(60_000)
