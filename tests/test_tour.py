"""Finalists on several sessions of the device that is here, and what is kept of them."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.bench import clock, tour, trial
from autotune.bench.finals import Finalist, Finals
from autotune.bench.report import Fault, Report
from autotune.bench.trial import NOTICED_NS, Bench
from autotune.devices import BackendError, Session
from autotune.model import DeviceInfo, Measurement, Outcome
from autotune.ranking import median
from autotune.study import Plan
from tests.test_clock import bench_of, spin
from tests.test_holder import opened

SHORT, LONG = spin(30_000), spin(60_000)


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> list[weakref.ref[Session]]:
    """The sessions that are opened from here on."""
    there: list[weakref.ref[Session]] = []

    def open_another(info: DeviceInfo) -> Session:
        session = opened()
        there.append(weakref.ref(session))
        return session

    monkeypatch.setattr(trial, "open_session", open_another)
    monkeypatch.setattr(clock, "QUEUED_NS", 10**10)
    return there


def measured(
    bench: Bench, plans: Sequence[Plan] = (SHORT, LONG), best_ns: float | None = NOTICED_NS
) -> list[Measurement]:
    found = bench.retime(plans, best_ns, 60.0)
    assert all(isinstance(one, Measurement) for one in found), found
    return [one for one in found if isinstance(one, Measurement)]


def test_short_launches_are_compared_on_several_sessions_of_which_half_count(
    others: list[weakref.ref[Session]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tour, "MOST_VISITS", 4)
    bench = bench_of(opened(), out=5)
    short, long = measured(bench)
    assert len(others) == 3
    assert len(short.samples_ns) == len(long.samples_ns) >= 2 * 2
    assert short.verified_runs >= 4 * (1 + 3)  # everywhere, at first and in each round
    assert not any(other() for other in others)  # their memory is free
    assert bench.run(LONG, None).outcome is Outcome.OK  # the bench is as it was


@pytest.mark.parametrize(
    ("plans", "best_ns", "shares_cores"),
    [
        ((SHORT, LONG), NOTICED_NS + 1, False),
        ((SHORT, LONG), None, False),
        ((SHORT,), 1000.0, False),  # nothing to compare
        ((SHORT, LONG), 1000.0, True),
    ],
)
def test_what_does_not_notice_stays_where_it_is(
    others: list[weakref.ref[Session]], plans: Sequence[Plan], best_ns: float | None, shares_cores: bool
) -> None:
    session = opened()
    session.traits = replace(session.traits, shares_cores=shares_cores)
    measured(bench_of(session, out=5), plans, best_ns)
    assert not others


def test_a_launch_of_a_loop_counts_as_often_as_it_is_launched() -> None:
    once, looped = spin(1), replace(spin(1), order=(0,) * 10)
    bench = bench_of(opened(), out=5)
    assert not bench._notices_sessions((once, once), 2 * NOTICED_NS)
    assert bench._notices_sessions((looped, looped), 2 * NOTICED_NS)


def breaks(kind: Outcome | None, fatal: bool = False) -> Callable[[Finals, Finalist], None]:
    """What stands in for a turn, and fails anywhere but at home; without a kind, the session cannot be opened."""
    turn = Finals._turn

    def instead(self: Finals, finalist: Finalist) -> None:
        if self.bench is not self.home and finalist.place == 1 and kind is not None:
            raise Fault(kind, "no memory", fatal=fatal)
        turn(self, finalist)

    return instead


@pytest.mark.parametrize("fatal", [False, True])
def test_a_device_without_room_for_another_session_is_visited_once(
    others: list[weakref.ref[Session]], monkeypatch: pytest.MonkeyPatch, fatal: bool
) -> None:
    monkeypatch.setattr(Finals, "_turn", breaks(Outcome.CRASH, fatal))
    short, long = measured(bench_of(opened(), out=5))
    assert len(others) == 1
    assert len(short.samples_ns) == len(long.samples_ns) >= 3


def test_a_session_that_cannot_be_opened_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(info: DeviceInfo) -> Session:
        raise BackendError("no room")

    monkeypatch.setattr(trial, "open_session", refuse)
    monkeypatch.setattr(clock, "QUEUED_NS", 10**10)
    short, long = measured(bench_of(opened(), out=5))
    assert len(short.samples_ns) == len(long.samples_ns) >= 3


def test_what_is_wrong_on_one_session_is_wrong(
    others: list[weakref.ref[Session]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tour, "MOST_VISITS", 3)
    monkeypatch.setattr(Finals, "_turn", breaks(Outcome.WRONG_RESULT))
    short, long = bench_of(opened(), out=5).retime([SHORT, LONG], NOTICED_NS, 60.0)
    assert len(others) == 2
    assert isinstance(short, Measurement)
    assert isinstance(long, Report)
    assert long.outcome is Outcome.WRONG_RESULT


@given(data=st.data(), count=st.integers(1, 9), finalists=st.integers(1, 4))
def test_the_quicker_half_of_the_visits_is_kept_in_their_order(data: st.DataObject, count: int, finalists: int) -> None:
    times = st.lists(st.tuples(st.integers(0, 10**9)), min_size=count, max_size=count)
    found = [Finalist(place, SHORT, list(data.draw(times))) for place in range(finalists)]
    before = [list(one.visits) for one in found]
    tour._keep_quicker_half(found)
    kept = [one.visits for one in found]
    assert {len(visits) for visits in kept} == {(count + 1) // 2}
    together = list(zip(*before, strict=True))
    of_kept = list(zip(*kept, strict=True))
    assert [one for one in together if one in of_kept] == of_kept or len(set(together)) < count
    slowest = max(sum(math.log(max(1.0, median(visit))) for visit in visits) for visits in of_kept)
    dropped = [visits for visits in together if visits not in of_kept]
    assert all(sum(math.log(max(1.0, median(visit))) for visit in visits) >= slowest for visits in dropped)
