"""Other programs on the cores: the scheduler's accounts, and what happens to times measured meanwhile."""

from __future__ import annotations

import itertools
import math
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.bench import finals, tour
from autotune.bench.finalist import Finalist, Taken
from autotune.bench.finals import Finals
from autotune.bench.pace import CONTENDED, Contention, at_work, give_cores, stretch
from autotune.bench.prepare import Built
from autotune.bench.timing import Limits, Rules
from autotune.bench.tour import retime
from autotune.bench.trial import Bench
from autotune.bench.verify import Verdict
from autotune.devices import find_device, open_session
from autotune.model import BUSY_CORES, PACE, Measurement, Outcome, Trial
from autotune.study import Problem, Study, expected_data, input_data
from tests import numpy_backend
from tests.test_sensors import copying

MS = 1_000_000


class Accounts:
    """A made-up folder of threads: the nanoseconds that each ran and waited, and how often it began to run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def tell(self, turns: int = 0, **threads: tuple[int, int]) -> None:
        for name, (ran, waited) in threads.items():
            thread = str(threading.get_native_id()) if name == "own" else name.removeprefix("t")
            (self.folder / thread).mkdir(exist_ok=True)
            (self.folder / thread / "schedstat").write_text(f"{ran} {waited} {turns}\n")

    def contention(self, placed: list[tuple[Sequence[int], ...]] | None = None) -> Contention:
        """Read the accounts; record which threads should get cores, if they are two, and which have got them."""

        def place(*threads: Sequence[int]) -> bool:
            if placed is not None:
                placed.append(threads)
            return len(threads[0]) == 2

        return Contention(self.folder, place)


@pytest.fixture
def accounts(tmp_path: Path) -> Accounts:
    return Accounts(tmp_path)


# The accounts ---------------------------------------------------------------------------------------------


def test_contention_is_the_share_waited_since_the_last_reading(accounts: Accounts) -> None:
    accounts.tell(t1=(1000 * MS, 50 * MS), t2=(500 * MS, 50 * MS))
    contention = accounts.contention()
    accounts.tell(t1=(1200 * MS, 150 * MS), t2=(600 * MS, 250 * MS))
    assert contention.read() == pytest.approx(300 / 600)
    assert contention.read() == 0


def test_who_enqueues_is_no_other_program(accounts: Accounts) -> None:
    accounts.tell(own=(0, 0), t1=(0, 0))
    contention = accounts.contention()
    accounts.tell(own=(40 * MS, 999 * MS), t1=(160 * MS, 80 * MS))
    assert contention.read() == pytest.approx(40 / 200)
    accounts.tell(own=(400 * MS, 999 * MS), t1=(260 * MS, 100 * MS))
    assert contention.read() == 0


def test_a_thread_that_has_begun_counts_from_its_begin(accounts: Accounts) -> None:
    accounts.tell(t1=(100 * MS, 0))
    contention = accounts.contention()
    accounts.tell(t2=(30 * MS, 10 * MS))
    assert contention.read() == pytest.approx(0.25)


def test_who_wakes_up_meets_no_other_program(accounts: Accounts) -> None:
    accounts.tell(t1=(0, 0))
    contention = accounts.contention()
    accounts.tell(t1=(1_000_000, 400_000), turns=10)
    assert contention.read() == 0


def test_what_kept_a_short_turn_waiting_is_seen(accounts: Accounts) -> None:
    accounts.tell(t1=(0, 0), turns=5)
    contention = accounts.contention()
    accounts.tell(t1=(1_200_000, 900_000), turns=11)
    assert contention.read() == pytest.approx(0.6 / 1.8)


@pytest.mark.parametrize("text", ["", "1 2", "a b c"])
def test_where_nobody_keeps_accounts_nothing_is_said(accounts: Accounts, text: str) -> None:
    (accounts.folder / "1").mkdir()
    (accounts.folder / "1" / "schedstat").write_text(text)
    assert accounts.contention().read() == 0
    assert Accounts(accounts.folder / "none").contention().read() == 0


def test_this_system_keeps_accounts() -> None:
    if not Path("/proc/self/schedstat").exists():
        pytest.skip("the kernel keeps no accounts of its scheduler")
    contention = Contention()
    assert contention._before
    assert 0 <= contention.read() < 1


# Which thread has which core ------------------------------------------------------------------------------


def test_those_that_share_the_work_since_the_last_reading_are_to_have_cores(accounts: Accounts) -> None:
    accounts.tell(own=(0, 0), t1=(5000 * MS, 0), t2=(0, 0), t3=(0, 0))
    placed = list[tuple[Sequence[int], ...]]()
    contention = accounts.contention(placed)
    accounts.tell(own=(900 * MS, 0), t1=(5001 * MS, 0), t2=(40 * MS, 40 * MS), t3=(20 * MS, 60 * MS))
    contention.read()
    contention.read()
    (accounts.folder / "2" / "schedstat").unlink()  # it has ended, and its number may be another program's
    contention.read()
    assert placed == [([2, 3], []), ([], [2, 3]), ([], [3])]


def test_a_thread_of_python_shares_no_kernels_work() -> None:
    own = threading.get_native_id()
    assert at_work({own: 100, 1: 50, 2: 12, 3: 13, 4: 0}) == [1, 3]
    assert at_work({own: 100}) == at_work({}) == at_work({5: 0}) == []


@pytest.mark.parametrize(
    ("threads", "before", "expected"),
    [((7, 8), (), [(7, {2}), (8, {5})]), ((7, 8), (4, 7), [(4, {2, 5}), (7, {2}), (8, {5})]),
     ((7,), (4, 7), []), ((7, 8, 9), (), [])],
)  # fmt: skip
def test_as_many_threads_as_cores_have_one_each_and_no_others(
    threads: tuple[int, ...],
    before: tuple[int, ...],
    expected: list[tuple[int, set[int]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = list[tuple[int, set[int]]]()

    def bind(thread: int, cores: set[int]) -> None:
        given.append((thread, cores))
        raise ProcessLookupError

    monkeypatch.setattr("os.sched_getaffinity", lambda _: {5, 2})
    monkeypatch.setattr("os.sched_setaffinity", bind)
    assert give_cores(threads, before) == bool(expected)
    assert sorted(given) == expected
    monkeypatch.delattr("os.sched_getaffinity")
    assert not give_cores(threads, before)
    assert sorted(given) == expected


@pytest.mark.device
def test_each_thread_of_the_driver_has_a_core_once_a_kernel_has_run() -> None:
    """On a busy machine one thread may do all the work of a run."""
    problem = Problem(Study.load("product_sum"), {"X": 65536, "Y": 4096}, device=find_device(None))
    cores, found = sorted(os.sched_getaffinity(0)), list[Sequence[int]]()
    contention = Contention(place=lambda threads, _: found.append(threads) or False)
    if problem.device.compute_units != len(cores) or not contention._before:
        pytest.skip("the driver has another number of threads than there are cores, or nobody keeps accounts")
    inputs = input_data(problem)
    expected = expected_data(problem, inputs) or {}
    bench = Bench(open_session(problem.device), inputs, expected, Rules(), Limits(), lambda *_: None)
    plan = problem.plan(problem.default)
    while len(found) < 50 and not any(len(threads) == len(cores) for threads in found):
        bench.verify_first(bench.build(plan), 60.0)
        contention.read()
    give_cores(found[-1])
    assert [sorted(os.sched_getaffinity(thread)) for thread in found[-1]] == [[core] for core in cores]


# What it makes of times -----------------------------------------------------------------------------------

TIMES = st.lists(st.integers(100_000, 10**9), min_size=1, max_size=60)


@given(TIMES, st.floats(0, CONTENDED))
def test_without_contention_times_are_what_they_are(times: list[int], contention: float) -> None:
    assert stretch(times, contention) == 1


@given(TIMES, st.floats(CONTENDED, 0.99, exclude_min=True) | st.just(1.0))
def test_nothing_is_believed_to_have_taken_longer_alone(times: list[int], contention: float) -> None:
    assert stretch(times, contention) >= 1


@given(st.integers(100_000, 10**9), st.floats(1.1, 4), st.integers(1, 20))
def test_evenly_slowed_times_are_stretched_by_what_they_waited(ns: int, factor: float, count: int) -> None:
    assert stretch([round(ns * factor)] * count, 1 - 1 / factor) == pytest.approx(factor, rel=1e-4)


def test_short_times_are_left_alone() -> None:
    assert stretch([20_000] * 9, 0.5) == 1


def told(shares: Iterable[float]) -> Callable[[], float]:
    """Have a bench read these contentions, one at each reading, and then none."""
    left = iter(shares)
    return lambda: next(left, 0.0)


def bench_of(shares: Iterable[float], monkeypatch: pytest.MonkeyPatch) -> Bench:
    session = numpy_backend.Session(numpy_backend.INFO)
    session.traits = replace(session.traits, shares_cores=True)
    data = np.arange(1, 101, dtype=np.int32)
    rules = Rules(maximum=5, most=5, warmup=3, least_s=0.0)
    bench = Bench(session, {"source": data}, {"target": data}, rules, Limits(), lambda *_: None)
    # What each reading begins with is not told of.
    monkeypatch.setattr(bench, "contention", told(reading for share in shares for reading in (0.0, share)))
    return bench


def test_contended_times_are_taken_again(monkeypatch: pytest.MonkeyPatch) -> None:
    report = bench_of([0.4], monkeypatch).run(copying(), None)
    assert (report.outcome, report.reason) == (Outcome.OK, "")
    assert "contention" not in report.environment


def test_a_trial_on_a_busy_machine_says_so_and_is_compared_by_what_it_would_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = bench_of([0.4, 0.5], monkeypatch)
    monkeypatch.setattr("autotune.bench.pace._SHORT_NS", 0)
    report = bench.run(copying(), None)
    assert report.environment["contention"] == 0.5
    assert report.measurement is not None
    times = report.measurement.samples_ns
    assert report.environment.get(PACE, 1.0) == round(max(1.0, median(times) / (sum(times) / len(times) * 0.5)), 3)


def test_what_a_contended_trial_would_take_alone_bounds_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = bench_of([0.4, 0.5], monkeypatch)
    monkeypatch.setattr("autotune.bench.trial.stretch", lambda *_: 2.0)  # whatever the samples are
    report = bench.run(copying(), None)
    assert report.measurement is not None
    trial = Trial({}, report.outcome, measurement=report.measurement, environment={**report.environment, PACE: 2.0})
    assert trial.paced_ns == report.measurement.median_ns / 2
    assert trial.bounding_ns == report.measurement.median_ns
    assert bench.anchor.plan is None


def test_nothing_is_stopped_for_what_others_made_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    report = bench_of([0.4], monkeypatch).run(copying(), 0.01)
    assert (report.outcome, "contention" in report.environment) == (Outcome.STOPPED, False)


def test_long_times_are_not_taken_again_for_what_others_had(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = bench_of([0.4, 0.0], monkeypatch)
    monkeypatch.setattr("autotune.bench.trial._AGAIN_NS", 0)
    report = bench.run(copying(), None)
    assert (report.outcome, report.reason) == (Outcome.OK, "")
    assert report.environment["contention"] == 0.4


# Finalists ------------------------------------------------------------------------------------------------


def test_a_contended_turn_is_made_up_for_before_anybody_has_another(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = bench_of([], monkeypatch)
    first_turns = [0.0, 0.0]
    monkeypatch.setattr(bench, "contention", told([*first_turns, 0.0, 0.4, 0.0, 0.0]))
    rounds = list[int]()
    judge = Finals._judge

    def noted(finals: Finals, finalists: Sequence[Finalist], deadline: float) -> None:
        rounds.append(len(finalists))
        judge(finals, finalists, deadline)

    monkeypatch.setattr(Finals, "_judge", noted)
    found = retime(bench, [copying(), copying()], None, 60.0)
    assert rounds[:3] == [2, 1, 2]
    assert [one.throttled for one in found if isinstance(one, Measurement)] == ["", ""]


@pytest.mark.parametrize(("until", "waits"), [(25.0, True), (1000.0, False)])
def test_what_is_late_for_others_work_waits_as_long_again(
    until: float, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A third of 30 s is for verifying; the other programs come after the first turns, and stay until then."""
    now = itertools.count()
    clock = SimpleNamespace(monotonic=lambda: next(now) / 2)
    monkeypatch.setattr(finals, "time", clock)
    monkeypatch.setattr(tour, "time", clock)
    monkeypatch.setattr(finals, "_in_doubt", lambda finalists: False)
    bench = bench_of([], monkeypatch)
    readings = itertools.count()
    monkeypatch.setattr(bench, "contention", lambda: 0.5 if next(readings) > 5 and clock.monotonic() < until else 0.0)
    turns, turn = list[int](), finals.Finals._turn
    monkeypatch.setattr(finals.Finals, "_turn", lambda self, one: turns.append(one.place) or turn(self, one))
    found = [one for one in retime(bench, [copying(), copying()], None, 30.0) if isinstance(one, Measurement)]
    first, second = found
    assert len(first.samples_ns) == len(second.samples_ns) >= 3
    assert [one.throttled for one in found] == ["" if waits else BUSY_CORES] * 2
    # At first, in the turns, and in what is kept for it.
    assert max(one.verified_runs for one in found) > 1 + max(turns.count(place) for place in (0, 1))
    assert clock.monotonic() < 60


def test_who_is_given_little_time_has_little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    now = itertools.count()
    clock = SimpleNamespace(monotonic=lambda: next(now) / 2)
    monkeypatch.setattr(finals, "time", clock)
    monkeypatch.setattr(tour, "time", clock)
    monkeypatch.setattr(finals, "_in_doubt", lambda finalists: False)
    bench = bench_of([], monkeypatch)
    readings = itertools.count()
    monkeypatch.setattr(bench, "contention", lambda: 0.5 if next(readings) > 2 else 0.0)  # for good, after a turn
    (found,) = retime(bench, [copying()], None, 3.0)
    assert isinstance(found, Measurement)
    assert found.throttled == BUSY_CORES
    assert clock.monotonic() < 3 + 2 * 3 + 3


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_only_for_gaps_in_others_work_is_anything_waited_for(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rounds of 6 s are over before the deadline, the third of those that it takes is not."""
    bench = bench_of([], monkeypatch)
    monkeypatch.setattr(bench, "contention", told(itertools.repeat(share)))
    monkeypatch.setattr(finals, "time", SimpleNamespace(monotonic=itertools.count(0, 6).__next__))
    monkeypatch.setattr(finals, "_in_doubt", lambda finalists: False)
    both = [Finalist(place, copying()) for place in range(2)]
    waited_s = Finals(bench, Rules(minimum=3, maximum=50, least_s=1.0), bench).visit(both, 60.0, deadline=15.0)
    assert [(len(one.samples), one.throttled) for one in both] == [(3, BUSY_CORES if share else "")] * 2
    assert waited_s == 0


@pytest.mark.parametrize("share", [0.0, 0.5])
@pytest.mark.parametrize(("doubts", "patience_s", "turns"), [(0, 60.0, 5), (4, 60.0, 9), (99, 60.0, 13), (99, 0.0, 3)])
def test_while_it_is_in_doubt_who_is_the_fastest_turns_are_added_with_patience(
    doubts: int, patience_s: float, turns: int, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round takes 6 s, so the third ends late. If others always have the cores, all turns are equally disturbed."""
    bench = bench_of([], monkeypatch)
    monkeypatch.setattr(bench, "contention", told(itertools.repeat(share)))
    monkeypatch.setattr(finals, "time", SimpleNamespace(monotonic=itertools.count(0, 6).__next__))
    left = iter([True] * doubts)
    monkeypatch.setattr(finals, "_in_doubt", lambda finalists: next(left, False))
    both = [Finalist(place, copying()) for place in range(2)]
    rules = Rules(maximum=50, least_s=1.0, patience_s=patience_s)
    waited_s = Finals(bench, rules, bench).visit(both, 60.0, deadline=15.0)
    assert [len(one.samples) for one in both] == [turns] * 2
    assert (waited_s > 0) == (turns > 3)
    assert waited_s <= patience_s


@pytest.mark.parametrize(("finalists", "turns", "few"), [(2, 4, True), (2, 5, False), (1, 3, False)])
def test_how_much_faster_one_is_takes_five_pairs(
    finalists: int, turns: int, few: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = bench_of([], monkeypatch)
    left = [timed(*range(1, turns + 1)) for _ in range(finalists)]
    assert Finals(bench, Rules(), bench)._are_few_pairs(left) is few


def timed(*times_ns: int) -> Finalist:
    """Return a finalist with these times on the bench."""
    finalist = Finalist(0, copying())
    finalist.take([Taken(ns) for ns in times_ns])
    return finalist


@pytest.mark.parametrize(
    ("rival", "doubtful"),
    [
        ((120, 220, 130), False),  # slower in each round, whatever that met
        ((120, 195, 130), False),  # faster in one of them, by less than it would matter
        ((120, 190, 130), True),
        ((90, 300, 130, 50), True),  # one more turn than the other has: no pair
        ((120, 220, 130, 50), False),
    ],
)
def test_in_doubt_is_who_may_be_faster_by_more_than_a_share_as_far_as_pairs_tell(
    rival: tuple[int, ...], doubtful: bool
) -> None:
    assert finals._in_doubt([timed(*rival), timed(100, 200, 110)]) is doubtful
    assert not finals._in_doubt([timed(100, 200, 110)])


def test_what_met_others_work_fills_up_the_least_disturbed_first(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = bench_of([], monkeypatch)
    few, enough = timed(7), timed(1, 2, 3)
    few.aside = [Taken(6, waited=0.9), Taken(5, waited=0.5), Taken(4, waited=0.4)]
    enough.aside = [Taken(8, waited=0.1)]
    Finals(bench, Rules(), bench)._count_all([few, enough])
    assert (few.turns_ns, enough.turns_ns) == ([7, 4, 5], [1, 2, 3])
    assert (few.throttled, enough.throttled) == (BUSY_CORES, "")


def test_where_there_were_no_gaps_all_that_met_others_work_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = bench_of([], monkeypatch)
    both = [timed(), timed()]
    for finalist in both:
        finalist.aside = [Taken(ns, waited=0.5) for ns in (4, 5, 6, 7)]
    Finals(bench, Rules(), bench)._count_all(both)
    assert [finalist.turns_ns for finalist in both] == [[4, 5, 6, 7]] * 2


@pytest.mark.parametrize("contended", [False, True])
def test_an_anchor_that_met_others_work_says_nothing_of_turns_that_met_none(
    contended: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = bench_of([], monkeypatch)
    bench.run(copying(), None)
    slow = Taken(round(100 * bench.anchor.pace.base_ns), waited=0.5 if contended else 0.0)
    anchor, other = Finalist(0, copying(), turn=slow), Finalist(1, replace(copying(), source="another"), turn=Taken(5))
    Finals(bench, Rules(), bench)._judge([anchor, other], math.inf)
    assert anchor.turns_ns == []
    assert other.turns_ns == ([5] if contended else [])


def test_where_all_rounds_are_contended_they_count(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = bench_of([], monkeypatch)
    monkeypatch.setattr(bench, "contention", told(itertools.repeat(0.5)))
    first, second = retime(bench, [copying(), copying()], None, 0.2)
    assert isinstance(first, Measurement)
    assert isinstance(second, Measurement)
    assert len(first.samples_ns) == len(second.samples_ns) >= 3
    assert first.throttled == second.throttled == BUSY_CORES


def with_long_run(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """The bench, where the very first run takes a second."""
    verify_first, firsts = bench.verify_first, iter([10**9])

    def told(built: Built, limit_s: float) -> tuple[Built, int, Verdict]:
        built, ns, verdict = verify_first(built, limit_s)
        return built, next(firsts, ns), verdict

    monkeypatch.setattr(bench, "verify_first", told)
    return bench


def test_a_long_first_run_is_a_turn_beside_one_of_each_other_finalist(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = with_long_run(bench_of([], monkeypatch), monkeypatch)
    long, short = retime(bench, [copying(), copying()], None, 60.0)
    assert isinstance(long, Measurement)
    assert isinstance(short, Measurement)
    assert len(long.samples_ns) == len(short.samples_ns)  # pairs
    assert long.samples_ns[0] == 10**9


def test_a_long_first_run_that_met_others_work_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = with_long_run(bench_of([0.5], monkeypatch), monkeypatch)
    (found,) = retime(bench, [copying()], None, 60.0)
    assert isinstance(found, Measurement)
    assert 10**9 not in found.samples_ns


def test_a_round_counts_for_all_finalists_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = bench_of([], monkeypatch)
    finals = Finals(bench, Rules(), bench)
    first, second = (Finalist(place, copying(), turn=Taken(5)) for place in range(2))
    monkeypatch.setattr(finals, "_is_spoilt", lambda finalists: True)
    clock = SimpleNamespace(monotonic=itertools.count().__next__)
    monkeypatch.setattr("autotune.bench.finals.time", clock)
    finals._judge([first, second], deadline=1)  # which comes between the one and the other
    assert first.aside == second.aside == [Taken(5)]
    finals._judge([first, second], deadline=1)
    assert first.turns_ns == second.turns_ns == [5]
