"""Finalists on several sessions of the device here: what each worker does, and which results are kept."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from multiprocessing import Pipe
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

from autotune.bench import clock, finals, levels, serving, tour
from autotune.bench.finalist import Finalist
from autotune.bench.finals import Finals
from autotune.bench.messages import Batches, Onward, Phase, Ready, Setup, Turn, Visit, Visited
from autotune.bench.report import Fault, Report
from autotune.bench.timing import Limits, Rules
from autotune.bench.tour import NOTICED_NS, Unsettled, Visitor, notices_sessions, retime
from autotune.bench.trial import Bench
from autotune.devices import BackendError, Session
from autotune.model import DeviceInfo, Measurement, Outcome
from autotune.study import Plan
from tests.sessions import alike
from tests.test_clock import bench_of, first, spin
from tests.test_holder import opened

pytestmark = pytest.mark.device

SHORT, LONG = spin(30_000), spin(60_000)
PLANS = (SHORT, LONG)
SETUP = Setup("", {}, {}, None, Rules(trial_s=0.05), Limits())
WRONG = Report(Outcome.WRONG_RESULT, "wrong")


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "QUEUED_NS", 10**10)  # any run is short
    monkeypatch.setattr(clock, "_MOST_LOST", 2)  # beside other tests the next batches are lost too
    monkeypatch.setattr(finals, "_VERIFIED_RUNS", 20)


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> list[weakref.ref[Session]]:
    """The sessions that are opened from here on."""
    there: list[weakref.ref[Session]] = []

    def open_another(info: DeviceInfo) -> Session:
        session = opened()
        there.append(weakref.ref(session))
        return session

    monkeypatch.setattr(tour, "open_session", open_another)
    return there


def home() -> Session:
    """The session of the visiting worker; the sessions that it opens have a context each."""
    return alike(first())


def begun(plans: Sequence[Plan] = PLANS, best_ns: float = NOTICED_NS) -> tuple[Visited, ...]:
    with pytest.raises(Unsettled) as unsettled:
        retime(bench_of(home(), out=5), plans, best_ns, 60.0)
    assert not unsettled.value.doubted
    return unsettled.value.visited


def visitor(session: Session | None = None, *, fresh: bool = False) -> Visitor:
    return Visitor(session or home(), lambda session, _: bench_of(session, out=5), lambda *_: None, fresh=fresh)


def asked(plans: Sequence[Plan] = PLANS, known: Sequence[Visited] = ()) -> Visit:
    return Visit(SETUP, tuple(plans), NOTICED_NS, tuple(known) or (Visited(),) * len(plans))


def long() -> float:
    return 60.0


def test_short_launches_are_to_be_visited_by_others_who_know_how_long_batches_are() -> None:
    known = begun()
    assert all(len(one.visits) == 1 and len(one.visits[0]) >= 3 for one in known)
    assert all(one.verified >= 1 + 3 for one in known)
    assert all(one.batches is not None and one.batches.runs >= 1 for one in known)


def test_one_alone_is_left_to_its_visitor() -> None:
    assert begun((SHORT,)) == (Visited(),)


def test_what_fails_where_it_was_tried_is_known_to_who_visits() -> None:
    wrong = replace(SHORT, options=("-DTURNS=2",), source=SHORT.source.replace("6 : 5", "6 : 7"))
    known = begun((SHORT, wrong))
    assert known[0].failure is None
    assert known[1].failure is not None
    assert known[1].failure.outcome is Outcome.WRONG_RESULT
    seen: list[str] = []
    made = visitor()
    made._bench_on = lambda session, _: _noting(bench_of(session, out=5), seen)
    found = made.visit(asked((SHORT, wrong), known), long)
    assert found[1].failure == known[1].failure
    assert seen
    assert {*seen} == {"-DTURNS=30000"}


def _noting(bench: Bench, seen: list[str]) -> Bench:
    build = bench.build

    def noting(plan: Plan) -> Any:
        seen.extend(plan.options)
        return build(plan)

    bench.build = noting  # type: ignore[method-assign]
    return bench


@pytest.mark.parametrize(("best_ns", "shares_cores"), [(None, False), (1000.0, True)])
def test_what_does_not_notice_is_timed_where_it_is(best_ns: float | None, shares_cores: bool) -> None:
    session = home()
    session.traits = replace(session.traits, shares_cores=shares_cores)
    found = retime(bench_of(session, out=5), PLANS, best_ns, 0.1)
    assert all(isinstance(one, Measurement) for one in found)


def test_whether_longer_launches_notice_a_few_others_show() -> None:
    with pytest.raises(Unsettled) as unsettled:
        retime(bench_of(home(), out=5), PLANS, NOTICED_NS + 1, 60.0)
    assert unsettled.value.doubted
    assert [len(one.visits) for one in unsettled.value.visited] == [1, 1]


@pytest.mark.parametrize(
    ("plans", "best_ns", "scattered"),
    [
        (PLANS[:1], NOTICED_NS + 1, tour.SCATTERED),
        (PLANS, 0.1e9 / (levels.VISITS * len(PLANS)), tour.SCATTERED),  # there is no time for so many visits
        (PLANS, NOTICED_NS + 1, 0),
    ],
)
def test_what_is_alone_or_takes_long_or_lies_everywhere_is_timed_where_it_is(
    plans: Sequence[Plan], best_ns: float, scattered: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tour, "SCATTERED", scattered)
    found = retime(bench_of(home(), out=5), plans, best_ns, 0.1)
    assert all(isinstance(one, Measurement) for one in found)


def test_a_launch_of_a_loop_counts_as_often_as_it_is_launched() -> None:
    once, looped = spin(1), replace(spin(1), order=(0,) * 10)
    bench = bench_of(home(), out=5)
    assert not notices_sessions(bench.session, (once, once), 2 * NOTICED_NS)
    assert notices_sessions(bench.session, (looped, looped), 2 * NOTICED_NS)


def test_a_finalist_may_take_what_a_first_run_may_however_fast_the_best_is() -> None:
    bench = bench_of(home(), out=5)
    assert bench.limit_s(1000.0) == bench._limits.first_s
    assert bench.limit_s(60e9) == bench._limits.run_s(60e9) > bench._limits.first_s


def test_who_has_only_built_times_on_its_own_session_and_then_on_others(others: list[weakref.ref[Session]]) -> None:
    own, turns = opened(), list[int]()
    made = visitor(own, fresh=True)

    def take_turn() -> float:
        turns.append(len(others))
        return 60.0

    for _ in range(3):
        found = made.visit(asked(), take_turn)
        assert all(len(one.visits) == 1 and len(one.visits[0]) == 1 and one.verified == 2 for one in found)
        assert made.bench is not None
    assert turns == [0, 1, 2]
    assert sum(other() is not None for other in others) == 1  # the last keeps its memory from who comes next


def test_who_has_run_a_reference_times_on_others_alone(others: list[weakref.ref[Session]]) -> None:
    assert all(one.visits for one in visitor().visit(asked(), long))
    assert len(others) == 1


def test_batches_are_as_long_as_on_other_sessions(others: list[weakref.ref[Session]]) -> None:
    known = [Visited(batches=Batches(runs, 50_000.0, 5000.0)) for runs in (3, 5)]
    made, seen = visitor(), list[int]()
    made._bench_on = lambda session, _: bench_of(session, out=5)
    end = Finalist.end

    def noting(self: Finalist, count: int) -> None:
        seen.append(self.clock.runs if self.clock else 0)
        end(self, count)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Finalist, "end", noting)
        patch.setattr(clock.QueueClock, "_learn", lambda *_: None)
        made.visit(asked(known=known), long)
    assert seen == [3, 5]


def test_a_single_plan_is_timed_thoroughly(others: list[weakref.ref[Session]]) -> None:
    (alone,) = visitor().visit(asked((SHORT,)), lambda: 0.1)  # beside other tests no interval gets narrow
    assert len(alone.visits) == 1
    assert len(alone.visits[0]) >= 3


class Kept:
    """Memory of a device that is not used."""


@pytest.mark.parametrize("room", [True, False])
def test_each_session_of_a_process_gets_other_memory_where_there_is_room(
    others: list[weakref.ref[Session]], monkeypatch: pytest.MonkeyPatch, room: bool
) -> None:
    own, kept = home(), list[weakref.ref[Kept]]()
    allocate, fill = own.allocate, own.fill

    def allocate_if_room(nbytes: int) -> Any:
        if nbytes != tour.HELD_BACK:
            return allocate(nbytes)
        assert all(one() for one in kept)  # what was kept from one session is kept from the next
        if not room:
            raise BackendError("clCreateBuffer failed")
        kept.append(weakref.ref(new := Kept()))
        return new

    monkeypatch.setattr(own, "allocate", allocate_if_room)
    monkeypatch.setattr(own, "fill", lambda what, *how: isinstance(what, Kept) or fill(what, *how))
    made = visitor(own)
    for _ in range(3):
        assert made.visit(asked(), long)
    assert len(others) == 3
    assert len(kept) == 3 * room


def breaks(kind: Outcome, *, fatal: bool = False, place: int = 1) -> Callable[[Finals, Finalist], None]:
    """A replacement of a turn that fails."""
    turn = Finals._turn

    def instead(self: Finals, finalist: Finalist) -> None:
        if finalist.place == place:
            raise Fault(kind, "no memory", fatal=fatal)
        turn(self, finalist)

    return instead


@pytest.mark.parametrize(("kind", "fatal"), [(Outcome.LAUNCH_ERROR, False), (Outcome.CRASH, True)])
def test_what_fails_for_want_of_room_is_no_finalists_doing(
    others: list[weakref.ref[Session]], monkeypatch: pytest.MonkeyPatch, kind: Outcome, fatal: bool
) -> None:
    monkeypatch.setattr(Finals, "_turn", breaks(kind, fatal=fatal))
    assert visitor().visit(asked(), long) == ()


def test_what_had_failed_before_says_nothing_of_room(others: list[weakref.ref[Session]]) -> None:
    known = (Visited(), Visited(failure=Report(Outcome.CRASH, "it crashed")))
    found = visitor().visit(asked(known=known), long)
    assert found[0].visits
    assert found[1] == known[1]


def test_a_session_that_cannot_be_opened_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(info: DeviceInfo) -> Session:
        raise BackendError("no room")

    monkeypatch.setattr(tour, "open_session", refuse)
    assert visitor().visit(asked(), long) == ()


def test_what_is_wrong_on_one_session_is_wrong(
    others: list[weakref.ref[Session]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Finals, "_turn", breaks(Outcome.WRONG_RESULT))
    short, other = visitor().visit(asked(), long)
    assert short.visits
    assert other.failure is not None
    assert other.failure.outcome is Outcome.WRONG_RESULT


def test_who_comes_too_late_times_nothing(others: list[weakref.ref[Session]]) -> None:
    assert not any(one.visits for one in visitor().visit(asked(), lambda: 0.0))


def test_an_anchor_that_finds_everything_slow_keeps_nobody(
    others: list[weakref.ref[Session]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tour, "_VISIT_S", 0.01)
    monkeypatch.setattr(Finals, "_is_spoilt", lambda self, finalists: True)
    assert all(one.visits for one in visitor().visit(asked(), long))


def test_by_what_others_know_the_fastest_is_verified_and_nothing_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Finals, "go_round", lambda *_: pytest.fail("it was timed"))
    met = [(100,)] * levels.MOST_VISITS
    known = (Visited(((200,),) * levels.MOST_VISITS, 33), Visited(tuple(met), 32), Visited(failure=WRONG))
    monkeypatch.setattr(finals, "_VERIFIED_RUNS", 52)
    monkeypatch.setattr("autotune.bench.tour.VERIFIED_S", 60.0)  # however late it is
    slow, short, failed = retime(bench_of(home(), out=5), (LONG, SHORT, SHORT), NOTICED_NS, -1.0, known)
    assert isinstance(short, Measurement)
    assert isinstance(slow, Measurement)
    assert failed == WRONG
    assert short.samples_ns == (100,) * levels.SAMPLES
    assert slow.samples_ns == (200,) * levels.SAMPLES
    assert (short.verified_runs, slow.verified_runs) == (52, 33)


def test_whom_nobody_could_visit_is_timed_where_it_was_tried() -> None:
    (alone,) = retime(bench_of(home(), out=5), (SHORT,), NOTICED_NS, 1.0, (Visited(),))
    assert isinstance(alone, Measurement)
    assert len(alone.samples_ns) >= 3


@pytest.mark.parametrize("role", ["builder", "device"])
def test_workers_of_both_roles_visit_when_it_is_their_turn(
    role: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: list[weakref.ref[Session]]
) -> None:
    monkeypatch.setattr(serving, "open_session", lambda info: opened())
    np.save(tmp_path / "a.npy", np.zeros(1, np.int32))
    np.save(tmp_path / "out.npy", np.array([5]))
    setup = replace(SETUP, inputs={"a": str(tmp_path / "a.npy")}, expected={"out": str(tmp_path / "out.npy")})
    ours, theirs = Pipe()
    worker = Thread(target=serving.serve, args=(role, theirs), daemon=True)
    worker.start()

    def said() -> list[Any]:
        heard = [ours.recv()]
        while isinstance(heard[-1], Phase):
            heard.append(ours.recv())
        return heard

    ours.send(opened().info)
    assert role == "builder" or said() == [None]  # others may open the device then
    ours.send(setup if role == "device" else replace(SETUP, inputs={}, expected={}))
    assert isinstance(said()[-1], Ready)
    ours.send(replace(asked(), setup=setup))
    phases = said()
    assert phases.pop() == Turn()
    assert any(isinstance(one, Phase) and one.place == 1 for one in phases)  # who is to blame
    assert len(others) == (role == "device")
    ours.send(60.0)
    answer = said()[-1]
    assert isinstance(answer, Onward)
    assert all(one.visits and one.verified == 2 for one in answer.visited)
    ours.close()
    worker.join(60.0)
