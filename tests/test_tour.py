"""Finalists on several sessions of the device that is here, and what is kept of them."""

from __future__ import annotations

import math
import random
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.bench import clock, finals, tour, trial
from autotune.bench.finals import Finalist, Finals
from autotune.bench.report import Fault, Report
from autotune.bench.tour import Unsettled
from autotune.bench.trial import NOTICED_NS, Bench
from autotune.devices import BackendError, Session
from autotune.model import DeviceInfo, Measurement, Outcome
from autotune.ranking import median, speedup
from autotune.study import Plan
from tests.test_clock import bench_of, spin
from tests.test_holder import opened

pytestmark = pytest.mark.device

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
    monkeypatch.setattr(clock, "_MOST_LOST", 2)  # beside other tests the next batches are lost too
    monkeypatch.setattr(finals, "_VERIFIED_RUNS", 20)
    monkeypatch.setattr(tour, "SAMPLES", 4)
    monkeypatch.setattr(tour, "MOST_VISITS", 4)
    return there


def measured(
    bench: Bench, plans: Sequence[Plan] = (SHORT, LONG), best_ns: float | None = NOTICED_NS, budget_s: float = 60.0
) -> list[Measurement]:
    found = bench.retime(plans, best_ns, budget_s)
    assert all(isinstance(one, Measurement) for one in found), found
    return [one for one in found if isinstance(one, Measurement)]


def test_short_launches_are_compared_on_several_sessions_whose_means_are_the_samples(
    others: list[weakref.ref[Session]],
) -> None:
    bench = bench_of(opened(), out=5)
    short, long = measured(bench)
    assert len(others) == tour.SAMPLES
    assert len(short.samples_ns) == len(long.samples_ns) == tour.SAMPLES
    assert short.verified_runs >= tour.SAMPLES * (1 + 1)  # everywhere, at first and in each round
    assert not any(other() for other in others)  # their memory is free
    assert bench.run(LONG, None).outcome is Outcome.OK  # the bench is as it was


class Kept:
    """Memory of a device that nobody uses."""


@pytest.mark.parametrize("room", [True, False])
def test_each_session_gets_other_memory_where_there_is_room(
    others: list[weakref.ref[Session]], monkeypatch: pytest.MonkeyPatch, room: bool
) -> None:
    home, kept = opened(), list[weakref.ref[Kept]]()
    bench, allocate, fill = bench_of(home, out=5), home.allocate, home.fill

    def allocate_if_room(nbytes: int) -> Any:
        if nbytes != trial.HELD_BACK:
            return allocate(nbytes)
        assert all(one() for one in kept)  # what was kept from one session is kept from the next
        if not room:
            raise BackendError("clCreateBuffer failed")
        kept.append(weakref.ref(new := Kept()))
        return new

    monkeypatch.setattr(home, "allocate", allocate_if_room)
    monkeypatch.setattr(home, "fill", lambda what, *how: isinstance(what, Kept) or fill(what, *how))
    measured(bench)
    assert len(others) == tour.SAMPLES
    assert len(kept) == tour.SAMPLES * room
    assert not any(one() for one in kept)


def test_an_anchor_that_finds_everything_slow_keeps_nobody_at_home(
    others: list[weakref.ref[Session]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tour, "_VISIT_S", 0.01)
    monkeypatch.setattr(Finals, "_is_spoilt", lambda self, finalists: True)
    short, long = measured(bench_of(opened(), out=5))
    assert len(short.samples_ns) == len(long.samples_ns) == tour.SAMPLES


def test_no_more_are_visited_than_it_takes_to_know_their_middle(
    others: list[weakref.ref[Session]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tour, "_width", lambda finalists: 0.02 if tour._visits(finalists) < 3 else 0.005)
    short, long = measured(bench_of(opened(), out=5))
    assert len(others) == 3
    assert len(short.samples_ns) == len(long.samples_ns) >= 3  # all turns, of so few


@pytest.mark.parametrize(
    ("plans", "best_ns", "shares_cores"),
    [
        ((SHORT, LONG), NOTICED_NS + 1, False),
        ((SHORT, LONG), None, False),
        ((SHORT, LONG), 1000.0, True),
    ],
)
def test_what_does_not_notice_stays_where_it_is(
    others: list[weakref.ref[Session]], plans: Sequence[Plan], best_ns: float | None, shares_cores: bool
) -> None:
    session = opened()
    session.traits = replace(session.traits, shares_cores=shares_cores)
    measured(bench_of(session, out=5), plans, best_ns, 1.0)
    assert not others


def test_a_launch_of_a_loop_counts_as_often_as_it_is_launched() -> None:
    once, looped = spin(1), replace(spin(1), order=(0,) * 10)
    bench = bench_of(opened(), out=5)
    assert not bench._notices_sessions((once, once), 2 * NOTICED_NS)
    assert bench._notices_sessions((looped, looped), 2 * NOTICED_NS)


def test_a_finalist_may_take_what_a_first_run_may_however_fast_the_best_is(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[float] = []
    monkeypatch.setattr("autotune.bench.trial.compare", lambda *words: given.append(words[4]) or [])
    bench = bench_of(opened(), out=5)
    bench.retime((SHORT, LONG), 1000.0, 1.0)
    bench.retime((SHORT, LONG), 60e9, 1.0)
    assert given == [bench._limits.first_s, bench._limits.run_s(60e9)]


def breaks(kind: Outcome | None, fatal: bool = False, place: int = 1) -> Callable[[Finals, Finalist], None]:
    """What stands in for a turn, and fails anywhere but at home; without a kind, the session cannot be opened."""
    turn = Finals._turn

    def instead(self: Finals, finalist: Finalist) -> None:
        if self.bench is not self.home and finalist.place == place and kind is not None:
            raise Fault(kind, "no memory", fatal=fatal)
        turn(self, finalist)

    return instead


def test_the_time_at_home_does_not_count_where_others_do(
    others: list[weakref.ref[Session]], monkeypatch: pytest.MonkeyPatch
) -> None:
    visit = Finals.visit

    def visit_slowly(self: Finals, finalists: Sequence[Finalist], limit_s: float, deadline: float) -> float:
        waited_s = visit(self, finalists, limit_s, deadline)
        for finalist in finalists if self.bench is self.home else ():
            finalist.visits[-1] = (10**12,) * 3
        return waited_s

    monkeypatch.setattr(Finals, "visit", visit_slowly)
    monkeypatch.setattr(tour, "SAMPLES", 2)
    monkeypatch.setattr(tour, "MOST_VISITS", 2)
    assert all(max(one.samples_ns) < 10**12 for one in measured(bench_of(opened(), out=5)))
    monkeypatch.setattr(tour, "MOST_VISITS", 0)
    assert all(max(one.samples_ns) == 10**12 for one in measured(bench_of(opened(), out=5)))


def test_a_single_short_plan_is_timed_on_one_other_session(others: list[weakref.ref[Session]]) -> None:
    (alone,) = measured(bench_of(opened(), out=5), (SHORT,), budget_s=1.0)
    assert len(others) == 1
    assert len(alone.samples_ns) >= 3


@pytest.mark.parametrize("kind", [Outcome.CRASH, Outcome.LAUNCH_ERROR, None])
def test_a_single_short_plan_stays_where_there_is_no_room_for_another_session(
    others: list[weakref.ref[Session]], monkeypatch: pytest.MonkeyPatch, kind: Outcome | None
) -> None:
    def refuse(info: DeviceInfo) -> Session:
        raise BackendError("no room")

    monkeypatch.setattr(Finals, "_turn", breaks(kind, fatal=kind is Outcome.CRASH, place=0))
    if kind is None:
        monkeypatch.setattr(trial, "open_session", refuse)
    (alone,) = measured(bench_of(opened(), out=5), (SHORT,), budget_s=1.0)
    assert len(others) == (kind is not None)
    assert len(alone.samples_ns) >= 3


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
    assert len(others) == 3
    assert isinstance(short, Measurement)
    assert isinstance(long, Report)
    assert long.outcome is Outcome.WRONG_RESULT


def test_another_process_goes_on_where_sessions_differ(
    others: list[weakref.ref[Session]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tour, "SAMPLES", 3)
    monkeypatch.setattr(tour, "VISITS", 3)
    monkeypatch.setattr(tour, "MOST_VISITS", 5)
    monkeypatch.setattr(tour, "_width", lambda finalists: 0.01)
    plans, wrong = (SHORT, LONG, spin(90_000)), Report(Outcome.WRONG_RESULT, "wrong")
    with pytest.raises(Unsettled) as unsettled:
        bench_of(opened(), out=5).retime(plans, NOTICED_NS, 600.0)
    known = unsettled.value.visited
    assert [len(one.visits) for one in known] == [3, 3, 3]
    assert len(others) == 3
    known = (known[0], known[1], replace(known[2], failure=wrong))
    with monkeypatch.context() as patch:
        patch.setattr(tour, "_VERIFIED_S", 60.0)  # a process that started late
        patch.setattr(finals, "_VERIFIED_RUNS", known[0].verified + 20)
        late, *_ = bench_of(opened(), out=5).retime(plans, NOTICED_NS, -1.0, known)
    assert isinstance(late, Measurement)
    assert late.verified_runs > known[0].verified + 2 + 1
    others.clear()
    short, long, failed = bench_of(opened(), out=5).retime(plans, NOTICED_NS, 600.0, known)
    assert failed == wrong
    assert isinstance(short, Measurement)
    assert isinstance(long, Measurement)
    assert len(others) == 2
    assert len(short.samples_ns) == len(long.samples_ns) == tour.SAMPLES
    assert short.verified_runs > known[0].verified


def test_no_other_process_goes_on_where_there_is_no_time(
    others: list[weakref.ref[Session]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tour, "VISITS", 2)
    monkeypatch.setattr(tour, "_width", lambda finalists: 0.01)
    late, visit_all = [0.0], tour._visit_all

    def visit_slowly(*given: Any) -> int:
        visits = visit_all(*given)
        late.append(35.0)  # of 60
        return visits

    monkeypatch.setattr(tour, "_visit_all", visit_slowly)
    monkeypatch.setattr(tour, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + late[-1]))
    measured(bench_of(opened(), out=5))
    assert len(others) == 2


VISITS = st.lists(st.lists(st.integers(1, 10**9), min_size=1, max_size=4).map(tuple), min_size=1, max_size=20)


@given(visits=VISITS, factor=st.integers(2, 10))
def test_samples_are_means_over_benches_alike_for_all_finalists(visits: list[tuple[int, ...]], factor: int) -> None:
    slower = [tuple(factor * ns for ns in visit) for visit in visits]
    finalists = [Finalist(0, SHORT, list(visits)), Finalist(1, SHORT, list(slower))]
    tour._share_out(finalists)
    if len(visits) < tour.SAMPLES:
        assert [finalist.visits for finalist in finalists] == [visits, slower]
        return
    one, other = (finalist.samples for finalist in finalists)
    assert len(one) == len(other) == tour.SAMPLES
    times = list(map(median, visits))
    assert 1 <= median(one) <= max(times) + 1
    if min(one) > 1 < min(other):
        assert other == pytest.approx([factor * ns for ns in one], abs=factor)  # pairs


def test_the_median_of_the_samples_is_half_way_between_quick_and_slow_benches() -> None:
    times = [10_000, 10_000, 12_010, 10_000, 10_020, 10_000, 10_000, 12_000, 10_000, 10_010, 10_000, 10_000, 12_000]
    finalist = Finalist(0, SHORT, [(ns, ns, 500) for ns in times])
    tour._share_out([finalist])
    assert median(finalist.samples) == pytest.approx(11_000, abs=10)
    assert len(set(finalist.samples)) > 1  # and tell how sure that is


def test_finalists_are_compared_by_their_means_over_the_same_benches() -> None:
    """One differs where the others are slow, which the middle of them all does not notice."""
    common = [10_000, 10_100, 10_200, 10_300] * 3
    others = [Finalist(place, SHORT, [(ns,) for ns in common]) for place in range(5)]
    one = Finalist(5, SHORT, [(ns + 12 * (ns > 10_150),) for ns in common])
    tour._share_out([*others, one])
    assert median(one.samples) - median(others[0].samples) == pytest.approx(6, abs=1)


@pytest.mark.parametrize("disturbed", [(0,), (0, 1, 2)])
def test_a_bench_that_was_disturbed_hardly_counts(disturbed: Sequence[int]) -> None:
    """For one finalist alone or for all of them."""
    times = [10_000, 10_030, 10_010, 10_050, 10_040, 10_020, 10_030] * 2
    quiet = [Finalist(place, SHORT, [(ns + place + ns * place % 7,) for ns in times]) for place in range(3)]
    spoilt = [replace(one, visits=list(one.visits)) for one in quiet]
    for place in disturbed:
        spoilt[place].visits[-1] = (20_000,)
    tour._share_out(quiet)
    tour._share_out(spoilt)
    for one, other in zip(quiet, spoilt, strict=True):
        assert median(other.samples) == pytest.approx(median(one.samples), abs=15)


def test_benches_alike_make_samples_alike() -> None:
    finalist = Finalist(0, SHORT, [(100, 102, 110)] * (2 * tour.SAMPLES + 1))
    tour._share_out([finalist])
    assert finalist.samples == (102,) * tour.SAMPLES


@given(visits=VISITS, factor=st.integers(2, 10))
def test_how_well_the_mean_is_known_goes_by_what_is_common_to_all_finalists(
    visits: list[tuple[int, ...]], factor: int
) -> None:
    slower = [tuple(factor * ns for ns in visit) for visit in visits]
    alone, together = (
        tour._width([Finalist(place, SHORT, times) for place, times in enumerate(some)])
        for some in ([visits], [visits, slower])
    )
    assert alone == (pytest.approx(together, abs=1e-9) if len(visits) >= tour.VISITS else math.inf)
    assert tour._width([Finalist(0, SHORT, visits[:1] * tour.VISITS)]) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("levels", [(1.0,), (1.0, 1.02, 1.05, 1.08)])
@pytest.mark.parametrize("benches", [8, 24])
def test_the_interval_of_a_gain_holds_it_in_about_95_of_100_searches(benches: int, levels: tuple[float, ...]) -> None:
    drawn, held, searches = random.Random(1), 0, 500
    for _ in range(searches):
        met = [drawn.choice(levels) for _ in range(benches)]
        finalists = [
            Finalist(place, SHORT, [(round(1e6 * times * level * drawn.gauss(1, 0.003)),) for level in met])
            for place, times in enumerate((1.0, 1.01, 1.3))
        ]
        tour._share_out(finalists)
        _, low, high = speedup(finalists[2].samples, finalists[0].samples)
        held += low <= 1.3 <= high
    assert 0.9 <= held / searches <= 0.99
