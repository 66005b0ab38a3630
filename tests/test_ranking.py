"""Medians and intervals; the one rule that names the best; a search and a look-up that use it name the same."""

from __future__ import annotations

import math
import sqlite3
import statistics
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from itertools import count

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from autotune import lookup, ranking, tuner
from autotune.lookup import Best, Match
from autotune.model import Configuration, Measurement, Outcome, Trial
from autotune.ranking import (
    FAILED,
    MEASURED,
    RETIMED,
    WRONG,
    Event,
    confidence,
    interval_rank,
    may_be_as_fast,
    median,
    median_interval,
    rank,
    speedup,
)
from autotune.store import Store
from autotune.store.attempts import NoSuchTrialError
from autotune.study import Problem
from autotune.tuner import Budget, ReplayEvaluator, Request, Result
from tests.stored import newer_driver, ok, put
from tests.studies import at, study


@given(st.lists(st.integers(1, 10**12), min_size=1))
def test_the_median_is_the_usual_one(samples: list[int]) -> None:
    assert median(samples) == statistics.median(samples)
    low, high = median_interval(samples)
    assert min(samples) <= low <= median(samples) <= high <= max(samples)


def test_no_samples_give_no_number() -> None:
    assert math.isnan(median(()))
    assert all(map(math.isnan, median_interval(())))


def at_most(heads: int, n: int) -> float:
    """Return the probability of at most this many heads in n throws of a coin."""
    return sum(math.comb(n, k) for k in range(heads + 1)) / 2**n


@pytest.mark.parametrize("n", [6, 7, 12, 20, 50, 101, 1000, 2500])
@pytest.mark.parametrize("share", [0.9, 0.95, 0.99])
def test_the_narrowest_pair_that_covers(n: int, share: float) -> None:
    rank = interval_rank(n, share)
    assert rank == 0 or 1 - 2 * at_most(rank, n) >= share
    assert 1 - 2 * at_most(rank + 1, n) < share


@pytest.mark.parametrize("share", [0.9, 0.95, 0.99])
def test_of_very_many_samples_the_interval_is_wider_by_one_at_most(
    share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [interval_rank(n, share) for n in (5001, 5002, 7777)]
    assert 0 < interval_rank(10**8, share) < 10**8 / 2  # hours, where all are counted
    monkeypatch.setattr(ranking, "_MOST_COUNTED", 10**4)
    exact = [interval_rank(n, share) for n in (5001, 5002, 7777)]
    assert {true - near for true, near in zip(exact, found, strict=True)} <= {0, 1}


def test_few_samples_give_their_range_and_more_what_is_within() -> None:
    assert median_interval([3, 1, 2]) == (1, 3)
    assert median_interval(range(20)) == (4, 15)
    assert [confidence(n) for n in (0, 1, 3, 5, 6, 100)] == [0, 0, 75, 93, 95, 95]


# The rule -------------------------------------------------------------------------------------------------


def event(kind: str, name: str, order: int, time: float = 100.0, *, driver: str = "1", generation: int = 0) -> Event:
    return Event(kind, name, driver, generation, (order, int(kind == RETIMED)), time)


def names(events: Sequence[Event], driver: str = "1") -> list[str]:
    return [found.configuration for found in rank(events, driver)]


def test_what_was_wrong_once_counts_no_more_until_a_search_starts_over() -> None:
    events = [event(MEASURED, "a", 1, 50), event(MEASURED, "b", 2, 80)]
    assert names([*events, event(WRONG, "a", 3), event(MEASURED, "a", 4, 50)]) == ["b"]
    assert names([*events, event(FAILED, "a", 3), event(MEASURED, "a", 4, 50)]) == ["a", "b"]
    assert names([*events, event(WRONG, "a", 3), event(FAILED, "a", 4), event(MEASURED, "a", 5, 50)]) == ["b"]
    assert names([*events, event(FAILED, "a", 3)]) == ["b"]
    assert names([*events, event(WRONG, "a", 3, driver="2")]) == ["a", "b"]
    assert names([*events, event(WRONG, "a", 3), event(MEASURED, "a", 4, 50, generation=1)]) == ["a"]


def test_the_latest_generation_of_the_driver_counts() -> None:
    old, new = event(MEASURED, "b", 1, 10), event(MEASURED, "a", 2, 80, generation=1)
    assert names([old, new, event(RETIMED, "a", 2, 85, generation=1)]) == ["a"]
    assert names([old, new, event(FAILED, "a", 3, generation=1)]) == ["b"]
    assert names([old, new._replace(driver="2")]) == ["b"]
    assert names([old, new._replace(driver="2")], "3") == ["a"], "the driver that arrived last"
    again = [event(RETIMED, "b", 1, 10), event(MEASURED, "b", 3, 10)]
    assert names([old, new._replace(driver="2"), *again], "3") == ["b"]


def test_what_was_timed_under_a_load_does_not_pass_what_was_timed_again_without() -> None:
    events = [event(MEASURED, "a", 1, 920), event(MEASURED, "b", 2, 870), event(RETIMED, "a", 1, 680)]
    assert names(events) == ["a", "b"]
    assert names([*events, event(MEASURED, "c", 3, 600)]) == ["c", "a", "b"]
    once = [event(MEASURED, "a", 1, 50), event(MEASURED, "b", 2, 55), event(MEASURED, "c", 3, 50)]
    again = [event(RETIMED, "a", 1, 60), event(RETIMED, "b", 2, 65)]
    assert names([*once, *again]) == ["a", "b", "c"], "below all first medians, or behind"


def test_equal_times_rank_alike_in_whatever_order_they_come() -> None:
    events = [event(MEASURED, name, order) for order, name in enumerate("cab")]
    assert names(events) == names(events[::-1]) == ["a", "b", "c"]
    assert [one.time_ns for one in rank([event(MEASURED, "a", 2, 70), event(MEASURED, "a", 1, 50)])] == [70]
    assert names([]) == names([event(MEASURED, "a", 1, math.nan), event(MEASURED, "b", 2, 0)]) == []


# A search and a look-up -----------------------------------------------------------------------------------

YEAR_9999 = datetime(9999, 1, 1, tzinfo=UTC)


def problem_of(driver: str) -> Problem:
    return Problem(study(), device=newer_driver(driver))


class Device(ReplayEvaluator):
    """Answers with these times, also for finalists; if it is `silent`, with nothing for finalists."""

    def __init__(self, problem: Problem, times: dict[int, int], *, silent: bool = False) -> None:
        rows = [problem.space.configuration(row) for row in range(len(problem.space))]
        super().__init__(ok(one, 1000 if one["WG"] != 64 or one["FAST"] else times.get(int(one["WPT"]), 1000))
                         for one in rows)  # fmt: skip
        self._silent = silent

    def retime(self, configurations: Sequence[Configuration], *_: object) -> list[Measurement | None]:
        return [None] * len(configurations) if self._silent else super().retime(configurations)


def search(problem: Problem, store: Store, device: ReplayEvaluator, **options: object) -> Result:
    given = {"database": store.where, "sampler": "random", "seed": 1, "budget": Budget()} | options
    return tuner.run(Request(problem, **given), evaluator=device)  # type: ignore[arg-type]


def asked(problem: Problem, store: Store) -> Best:
    return lookup.best(
        problem.study.text,
        problem.size,
        problem.choices,
        problem.device.fingerprint,
        database=store.where,
        device=problem.device,
    )


def require_agreement(problem: Problem, store: Store, result: Result, expected: Configuration) -> None:
    found = asked(problem, store)
    assert result.best.configuration == found.configuration == expected
    assert (result.best.time_ns, found.match) == (found.time_ns, Match.EXACT)


def test_a_retiming_dated_in_the_future_does_not_hide_later_ones(store: Store) -> None:
    problem = problem_of("1")
    number = put(store, [ok(at(1), 50), ok(at(2), 51)], key=problem.key, device=problem.device)
    store.retime(number, [(at(1), Measurement((40,)))])
    with closing(sqlite3.connect(store.where)) as connection, connection:
        connection.execute("UPDATE retimings SET taken = ?", (YEAR_9999.isoformat(timespec="microseconds"),))
    store.retime(number, [(at(1), Measurement((70,)))])
    store.retime(number, [(at(2), Measurement((60,)))])
    result = search(problem, store, Device(problem, {}, silent=True), budget=Budget(seconds=1e-9))
    require_agreement(problem, store, result, at(2))


@pytest.mark.parametrize("retry_failed", [False, True])
def test_what_was_wrong_and_passed_when_retried_is_named_by_neither(store: Store, retry_failed: bool) -> None:
    problem = problem_of("1")
    put(store, [Trial(at(1), Outcome.WRONG_RESULT), ok(at(1), 50)], key=problem.key, device=problem.device)
    result = search(problem, store, Device(problem, {1: 50, 2: 80}), retry_failed=retry_failed)
    require_agreement(problem, store, result, at(2))
    tries = [trial for trial in store.trials(problem.key) if trial.configuration == at(1)]
    assert len(tries) == 2, "nothing is learned by trying it again"


@pytest.mark.parametrize("forged", [{"WPT": 1.0}, {"WPT": 3}, {"WG": 8192}])
def test_what_is_none_of_the_study_is_named_by_neither(store: Store, forged: dict[str, int | float]) -> None:
    problem = problem_of("1")
    put(store, [ok(at(1) | forged, 1), ok(at(2), 80)], key=problem.key, device=problem.device)
    result = search(problem, store, Device(problem, {2: 80}))
    require_agreement(problem, store, result, at(2))


def test_another_driver_measures_anew_and_names_its_own_time(store: Store) -> None:
    search(problem_of("1"), store, Device(problem_of("1"), {1: 50, 2: 80}))
    problem = problem_of("2")
    result = search(problem, store, Device(problem, {1: 90, 2: 80}))
    assert (result.trials, result.reused) == (len(problem.space), 0)
    require_agreement(problem, store, result, at(2))
    again = search(problem, store, Device(problem, {}))
    assert (again.trials, again.reused) == (0, len(problem.space))
    require_agreement(problem, store, again, at(2))
    assert asked(problem_of("1"), store).configuration == at(1)


def test_what_was_there_before_a_fresh_search_does_not_beat_it(store: Store) -> None:
    problem = problem_of("1")
    put(store, [ok(at(1), 10)], key=problem.key, device=problem.device)
    result = search(problem, store, Device(problem, {1: 90, 2: 80}), fresh=True)
    require_agreement(problem, store, result, at(2))


WPT = st.sampled_from([1, 2])
TIME = st.integers(1, 4).map(lambda tens: 10 * tens)
AGE = st.sampled_from([-50, 0, 50])
STEP = st.one_of(
    st.tuples(st.just("ok"), WPT, TIME, AGE),
    st.tuples(st.just("retime"), WPT, TIME, AGE),
    st.tuples(st.sampled_from(["wrong_result", "crash", "stopped", "fresh", "driver"]), WPT, TIME, AGE),
)


def write_history(store: Store, problem: Problem, steps: Sequence[tuple[str, int, int, int]]) -> None:
    """Store these events in a database, with clocks that are wrong by up to 50 days."""
    driver, number = "1", put(store, [], key=problem.key, device=problem.device)
    for kind, wpt, time, days in steps:
        instant = datetime.now(UTC) + timedelta(days=days)
        if kind in ("fresh", "driver"):
            driver = driver if kind == "fresh" else str(3 - int(driver))
            number = put(store, [], key=problem.key, device=newer_driver(driver), fresh=kind == "fresh")
        elif kind == "retime":
            with suppress(NoSuchTrialError):  # nothing verified to time again
                store.retime(number, [(at(wpt), Measurement((time,)))])
            with closing(sqlite3.connect(store.where)) as connection, connection:
                last = "(SELECT MAX(id) FROM retimings)"
                connection.execute(f"UPDATE retimings SET taken = ? WHERE id = {last}", (instant.isoformat(),))
        else:
            trial = Trial(at(wpt), Outcome(kind), measurement=Measurement((time,)), started=instant, finished=instant)
            store.finish([(store.begin(number, [at(wpt)])[0], trial)])


@pytest.fixture(name="shared", scope="module")
def _shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """One database for all the histories, each with its own size: opening one takes longer than its history."""
    with Store.open(str(tmp_path_factory.mktemp("histories") / "a.db")) as store:
        yield store


_numbers = count(1)


@settings(max_examples=50, derandomize=True, phases=(Phase.explicit, Phase.generate))
@example([("ok", 1, 10, 0), ("driver", 1, 10, 0), ("ok", 1, 10, 0)], "1", False)
@example([("ok", 1, 20, 0), ("crash", 1, 10, -50), ("ok", 2, 30, 0)], "1", True)
@example([("ok", 1, 20, 50), ("ok", 2, 30, 0), ("ok", 1, 40, 0)], "1", True)
@given(st.lists(STEP, min_size=2, max_size=8), st.sampled_from("112"), st.sampled_from([True, True, False]))
def test_whatever_is_stored_a_search_and_a_look_up_name_the_same(
    shared: Store, steps: list[tuple[str, int, int, int]], driver: str, silent: bool
) -> None:
    problem = Problem(study(), {"N": next(_numbers)}, device=newer_driver(driver))
    write_history(shared, problem, steps)
    device = Device(problem, {1: 30, 2: 25}, silent=silent)
    budget = Budget(seconds=1e-9) if silent else Budget(trials=3)
    result = search(problem, shared, device, budget=budget, cold=True)
    if result.best is not None:
        require_agreement(problem, shared, result, result.best.configuration)
    else:  # nothing passed in this driver's latest generation
        assert asked(problem, shared).match is not Match.EXACT or any(kind == "fresh" for kind, *_ in steps)


def test_a_speedup_is_that_of_pairs_whatever_the_machine_did_meanwhile() -> None:
    slow_spell = [1, 1, 1, 2, 2, 2, 1, 1, 3]
    fast = [100 * factor for factor in slow_spell]
    slow = [150 * factor for factor in slow_spell]
    assert speedup(slow, fast) == (1.5, 1.5, 1.5)
    assert speedup([2, 6], [2, 4, 8]) == (1.0, 0.25, 3.0), "no pairs"


@pytest.mark.parametrize(
    ("rival", "in_turns", "expected"),
    [
        ([11, 21, 31], True, False),  # slower in each pair
        ([30, 41, 51], False, True),  # intervals meet
        ([31, 41, 51], False, False),
        ([11, 19, 31], True, True),
        ([11, 21], True, True),  # no pairs
    ],
)
def test_times_taken_in_turns_leave_open_which_is_faster_by_their_pairs(
    rival: list[int], in_turns: bool, expected: bool
) -> None:
    assert may_be_as_fast(rival, [10, 20, 30], in_turns=in_turns) == expected


def test_a_stored_time_of_0_spoils_no_comparison() -> None:
    assert speedup([0, 6, 9], [0, 2, 3]) == (3.0, 1.0, 3.0)
    assert speedup([0, 6], [0, 2, 3]) == (1.75, 1 / 3, 6.0)
    assert may_be_as_fast([0, 1, 2], [0, 1, 2], in_turns=True)
