"""The clocks: which one a plan gets, and what the queue's clock says, on the device here."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pyopencl as cl
import pytest

from autotune.bench import clock, launcher
from autotune.bench.clock import MOST_COMMANDS, EventClock, QueueClock
from autotune.bench.holder import Holder
from autotune.bench.prepare import Built
from autotune.bench.timing import Limits, Rules
from autotune.bench.tour import retime
from autotune.bench.trial import Bench
from autotune.devices import BackendError, Batch, Session, opencl_session, opencl_timer
from autotune.model import Measurement, Outcome
from autotune.study import Buffer, Launch, Plan, Tolerance
from tests.sessions import alike, building_once
from tests.test_holder import opened

pytestmark = pytest.mark.device

SPIN = """
kernel void spin(global const int *a, global int *out) {
    uint v = a[0];
    for (uint i = 0; i < TURNS; ++i) v = v * 1664525u + 1013904223u;
    out[0] = v == 1 ? 6 : 5;
}
kernel void count(global int *counts, global int *out) { out[0] = ++counts[0]; }
"""


@cache
def first() -> Session:
    """The session whose context all share: each test uses a single session at a time."""
    return building_once(opened())


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    """A session on a CPU that is treated as a device with its own cores."""
    monkeypatch.setattr(clock, "QUEUED_NS", 10**10)  # any run is short
    monkeypatch.setattr(clock, "_MOST_LOST", 2)  # beside other tests the next batches are lost too
    return alike(first())


def bench_of(session: Session, **expected: int) -> Bench:
    data = {name: np.array([value], np.int32) for name, value in expected.items()}
    rules = Rules(trial_s=0.05)  # beside other tests no interval gets narrow, however long it samples
    return Bench(session, {"a": np.zeros(1, np.int32)}, data, rules, Limits(), lambda *_: None)


def spin(turns: int, cache: str = "warm") -> Plan:
    a, out = Buffer("a", "int", (1,), (1,), "in"), Buffer("out", "int", (1,), (1,), "out")
    launch = Launch("spin", (1,), (1,), ("a", "out"))
    return Plan(SPIN, (f"-DTURNS={turns}",), (launch,), {"a": a, "out": out}, {"out": Tolerance()}, cache=cache)


def queue_of(session: Session, turns: int = 3000) -> tuple[Built, QueueClock]:
    """Return a plan ready to run, with its clock."""
    bench = bench_of(session, out=5)
    built = bench.build(spin(turns))
    found = bench.clocks.choose(built, 100_000)
    assert isinstance(found, QueueClock)
    return built, found


def counting() -> Plan:
    counts, out = Buffer("counts", "int", (1,), (1,), "zeroed"), Buffer("out", "int", (1,), (1,), "out")
    launch = Launch("count", (1,), (1,), ("counts", "out"))
    return Plan(SPIN, ("-DTURNS=1",), (launch,), {"counts": counts, "out": out}, {"out": Tolerance()})


def test_a_short_run_is_timed_in_batches_that_the_trial_tells_of(session: Session) -> None:
    report = bench_of(session, out=5).run(spin(30_000), None)
    assert (report.outcome, report.environment["clock"]) == (Outcome.OK, "queue")
    assert 1 <= int(report.environment["runs_per_sample"]) <= MOST_COMMANDS
    assert int(report.environment["enqueue_ns"]) > 0
    assert report.busy_s > 0


def test_events_are_the_clock_of_a_device_that_shares_the_hosts_cores(session: Session) -> None:
    session.traits = replace(session.traits, shares_cores=True)
    report = bench_of(session, out=5).run(spin(30_000), None)
    assert (report.outcome, report.environment["clock"]) == (Outcome.OK, "events")


def told_wrongly(session: Session, monkeypatch: pytest.MonkeyPatch, wrong: Callable[[int], int]) -> None:
    """Have the driver's events report wrong times, before the session has checked them."""
    told = opencl_timer._told
    monkeypatch.setattr(opencl_timer, "_told", lambda event, what: wrong(told(event, what)))
    session.traits = replace(session.traits, shares_cores=True)


@pytest.mark.parametrize("wrong", [lambda ns: 0, lambda ns: ns // 1000, lambda ns: ns * 1000, lambda ns: -ns])
def test_where_events_do_not_tell_the_time_the_host_does(
    session: Session, monkeypatch: pytest.MonkeyPatch, wrong: Callable[[int], int]
) -> None:
    told_wrongly(session, monkeypatch, wrong)
    began = time.perf_counter_ns()
    report = bench_of(session, out=5).run(spin(3_000_000), None)
    assert (report.outcome, report.environment["clock"]) == (Outcome.OK, "host")
    assert 100_000 < sum(report.measurement.samples_ns) < time.perf_counter_ns() - began


def test_a_driver_that_tells_no_times_is_timed_by_the_host(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(ns: int) -> int:
        raise cl.LogicError("no profiling")

    told_wrongly(session, monkeypatch, refuses)
    assert session.timer == "host"


def test_a_run_that_is_over_within_a_tick_of_the_events_takes_a_nanosecond(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "span_ns", lambda *_: 0)
    bench = bench_of(session, out=5)
    built, first_ns, _ = bench.verify_first(bench.build(spin(3000)), 1.0)
    assert [first_ns, *bench.launcher.repeat(built, 2, 1, poison=True)] == [1, 1, 1]


def test_a_cold_cache_is_timed_by_events(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "cache", 2**20)  # to flush a large one takes seconds
    bench = bench_of(session, out=5)
    assert isinstance(bench.clocks.choose(bench.build(spin(30_000, "cold")), 1000), EventClock)


def test_what_turns_out_to_be_long_is_timed_by_events(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = bench_of(session, out=5)
    built = bench.build(spin(300_000))
    monkeypatch.setattr(clock, "QUEUED_NS", 2)
    assert isinstance(bench.clocks.choose(built, 1), EventClock)


def test_buffers_are_restored_before_each_run_of_a_batch(session: Session) -> None:
    bench = bench_of(session, out=1)
    report = bench.run(counting(), None)
    assert (report.outcome, report.environment["clock"]) == (Outcome.OK, "queue"), report.reason
    built = bench.build(counting())
    bench.clocks.choose(built, 1000).sample(built, 2)
    found = np.zeros(1, np.int32)
    (out,) = [guarded for guarded in built.buffers if guarded.buffer.name == "out"]
    session.read(out.whole, found, out.start)
    assert found.tolist() == [1]


def test_a_clock_says_of_its_last_call_whether_outputs_were_poisoned() -> None:
    poisoned, said = list[bool](), list[bool]()

    class Noting:
        def repeat(self, built: object, count: int, longest_ns: float, *, poison: bool) -> list[int]:
            poisoned.append(poison)
            return [round(1.05 * clock.INSENSITIVE_NS)] * count

    launcher: Any = Noting()
    events = EventClock(None, launcher, round(0.95 * clock.INSENSITIVE_NS))
    for _ in range(2):  # that runs are long is known after the first
        events.sample(Any, 3)  # type: ignore[arg-type]
        said.append(events.poisons)
    assert said == poisoned == [False, True]


def test_finalists_are_timed_in_batches_too(session: Session) -> None:
    fast, slow = retime(bench_of(session, out=5), [spin(10_000), spin(1_000_000)], None, 0.1)
    assert isinstance(fast, Measurement)
    assert isinstance(slow, Measurement)
    assert len(fast.samples_ns) == len(slow.samples_ns)  # pairs


def test_who_comes_after_finalists_is_the_first_of_one_plan(session: Session) -> None:
    bench = bench_of(session, out=5)
    retime(bench, [spin(10_000), spin(20_000)], None, 0.1)
    bench.place = 1  # of the last turn, as chance has it
    assert bench.run(spin(10_000), None).outcome is Outcome.OK
    assert bench.place == 0


def test_a_finalist_is_sampled_for_as_long_as_the_device_is_held_meanwhile(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disturbance lasts equally long whatever runs; equal times are precise as soon as possible."""
    monkeypatch.setattr(clock.QueueClock, "sample", lambda self, built, count: [10_000 * self.runs] * count)
    monkeypatch.setattr(clock.QueueClock, "share", 1e-6)
    (found,) = retime(bench_of(session, out=5), [spin(10_000)], None, 60.0)
    assert isinstance(found, Measurement)
    assert len(found.samples_ns) == Rules().minimum


def test_what_another_session_learnt_of_a_plan_is_not_learnt_again(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = bench_of(session, out=5)
    built, ns, _ = first.verify_first(first.build(spin(30_000)), 60.0)
    usual = first.clocks.choose(built, ns)
    assert isinstance(usual, QueueClock)
    batches: list[int] = []
    monkeypatch.setattr(clock.QueueClock, "_batch", lambda self, built: batches.append(self.runs))
    known = first.clocks.choose(built, ns, usual=usual)
    assert (known.runs, batches) == (usual._fitting(usual.run_ns), [])


@pytest.mark.parametrize(("first_ns", "samples"), [(1000, 1), (1100, 1), (1500, 0), (700, 0)])
def test_the_batch_that_tells_how_long_one_must_be_is_a_sample_where_it_is_one(
    session: Session, monkeypatch: pytest.MonkeyPatch, first_ns: int, samples: int
) -> None:
    bench = bench_of(session, out=5)
    built = bench.build(spin(3000))
    monkeypatch.setattr(QueueClock, "_batch", lambda self, built: 1000 * self.runs)
    monkeypatch.setattr(clock, "MOST_COMMANDS", 100_000)
    bench.clocks.rest()  # it is awake
    found = bench.clocks.choose(built, first_ns)
    assert isinstance(found, QueueClock)
    assert found.known == [1000 * found.runs] * samples


def disturbed(monkeypatch: pytest.MonkeyPatch, batches: int) -> None:
    """Have this many batches take ten times as long as the runs of 1 us after them."""
    left = iter([10_000] * batches)
    monkeypatch.setattr(QueueClock, "_batch", lambda self, built: next(left, 1000) * self.runs)
    monkeypatch.setattr(clock, "MOST_COMMANDS", 100_000)


def test_batches_that_something_disturbed_do_not_tell_how_long_one_must_be(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = bench_of(session, out=5)
    built = bench.build(spin(3000))
    disturbed(monkeypatch, 3)
    monkeypatch.setattr(clock, "_DISTURBED_NS", 0)
    bench.clocks.rest()
    assert bench.clocks.choose(built, 1000).runs == clock.BATCH_NS // 1000


def test_a_plan_whose_batches_turn_out_to_be_short_is_timed_anew(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock, "WAKE_NS", 0)
    disturbed(monkeypatch, 3)
    report = bench_of(session, out=5).run(spin(3000), None)
    assert report.environment["runs_per_sample"] == clock.BATCH_NS // 1000
    assert set(report.measurement.samples_ns) == {1000}


def test_a_batch_is_over_at_its_end_and_nothing_is_left_of_one_that_failed(session: Session) -> None:
    memory, found = session.allocate(7), np.zeros(7, np.uint8)
    with session.batch() as batch:
        session.fill(memory, 0, 0, 7)
        session.fill(memory, 0x01020304, 0, 7)
        assert batch.ns == 0
    assert batch.ns >= batch.enqueued_ns > 0
    session.read(memory, found)
    assert found.tolist() == [4, 3, 2, 1, 4, 3, 2]
    kernel = session.build(SPIN, ["-DTURNS=9"]).kernel("count")
    words = [session.allocate(4), session.allocate(4)]
    session.set_arguments(kernel, words)

    def fail() -> None:
        with session.batch():
            session.fill(memory, 0, 0, 7)
            session.launch(kernel, (3,), (2,))

    with pytest.raises(BackendError, match="CL_INVALID_WORK_GROUP_SIZE"):
        fail()
    session.read(memory, found)
    assert found.tolist() == [0] * 7


def test_a_batch_that_the_host_was_too_slow_for_is_taken_again(session: Session) -> None:
    built, found = queue_of(session)
    found._holds, found._hold_ns = True, 1.0  # where this host is too busy for any
    (sample,) = found.sample(built, 1)
    assert sample > 0
    assert found._hold_ns > 1.0


def test_a_host_that_no_hold_outlasts_is_timed_as_it_is(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    built, found = queue_of(session)
    found._holds = True
    assert 0 < found.share < 1
    monkeypatch.setattr(clock, "_LONGEST_HOLD_NS", 1)
    found._holds, found._hold_ns = True, 1.0  # where this host is too busy for any
    assert found.sample(built, 1)[0] > 0
    assert found.share == 1


def taking(found: QueueClock, *first: Batch) -> Callable[..., Batch]:
    """Replace a launcher's `batch`: the first ones are as given, then 1 us a run behind a hold of 1 ms."""
    found._holds, found._lost, found._hold_ns = True, 0, 1e6
    given = iter(first)

    def batch(*_: Any, launches: bool = True) -> Batch:
        usual = Batch(1000 * found.runs if launches else 1, 2, 1_000_000)
        return next(given, usual) if launches else usual

    return batch


@pytest.mark.parametrize(
    ("bases", "first"),
    [
        ([Batch(10**12, 2, 1_000_000)] * 9, ()),  # no longer than an empty one
        ([], [Batch(1, 2, 10_000_000)]),  # its beginning seen too late
        ([], [Batch(10**9, 2, 0)]),  # its beginning not seen
    ],
)
def test_a_batch_that_took_too_little_is_timed_anew(
    session: Session, monkeypatch: pytest.MonkeyPatch, bases: Sequence[Batch], first: Sequence[Batch]
) -> None:
    built, found = queue_of(session, 30_000)
    found._bases.clear()
    found._bases.extend(bases)
    monkeypatch.setattr(found._launcher, "batch", taking(found, *first))
    assert found.sample(built, 1) == [1000 * found.runs - 1]


def test_a_batch_counts_from_where_the_device_lets_go(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    hold = Holder(session).holding(20_000_000)
    monkeypatch.setattr(opencl_session, "_SEEN_NS", -1)
    began = time.perf_counter_ns()
    with session.batch(hold) as batch:
        pass
    whole_ns = time.perf_counter_ns() - began
    assert batch.held_ns >= batch.enqueued_ns > 0
    assert batch.ns <= whole_ns - batch.held_ns


def test_what_a_turn_of_the_holder_takes_is_not_measured_within_a_batch(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder, launch, launched = Holder(session), session.launch, list[int]()
    monkeypatch.setattr(session, "launch", lambda *arguments: launched.append(1) or launch(*arguments))
    hold = holder.holding(1000)
    assert launched  # so it is known
    launched.clear()
    with session.batch(hold):
        pass
    assert launched == [1]


def test_a_batch_whose_hold_was_over_too_soon_counts_from_its_beginning(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opencl_session, "_SEEN_NS", 10**18)
    holder = Holder(session)
    with session.batch(holder.holding(1)) as batch:
        session.finish()
    assert batch.held_ns == 0
    assert batch.ns >= batch.enqueued_ns


@pytest.mark.parametrize(("local", "said"), [((8, 4), "a work-group of 32"), (None, "the driver's own choice")])
def test_a_refused_launch_tells_its_work_group(local: tuple[int, ...] | None, said: str) -> None:
    error = BackendError("failed", name="CL_INVALID_WORK_GROUP_SIZE")
    refusal = launcher._refusal(Launch("f", (64, 64), local, ()), error)
    assert f"does not run this kernel with {said}" in refusal
    assert refusal.endswith("write local in its [[launch]]") == (local is None)
