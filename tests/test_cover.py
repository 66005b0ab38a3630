"""Few configurations for many sizes: the set that loses least, which size takes which, and the rule."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Sequence
from itertools import combinations, groupby

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from autotune.errors import AutotuneError
from autotune.model import Configuration, DeviceInfo, Measurement, Outcome, Trial, identity
from autotune.pool import Settings, Stopped
from autotune.reports import cover as covering
from autotune.reports.cover import Rule, choose, cover, rule
from autotune.store import Store
from autotune.study import GENERIC_DEVICE, Problem
from autotune.tuner import ReplayEvaluator, Request, measure
from tests.stored import ok, put
from tests.studies import study

losses = arrays(np.float64, st.tuples(st.integers(1, 7), st.integers(1, 5)), elements=st.floats(0, 9))


@given(losses, st.integers(1, 7))
@settings(max_examples=60)
def test_no_other_set_loses_less(table: np.ndarray, count: int) -> None:
    count = min(count, len(table))
    chosen = choose(table, count)
    least = min(table[list(some)].min(axis=0).mean() for some in combinations(range(len(table)), count))
    assert chosen.mean == pytest.approx(least)
    assert all(
        table[place, at] == loss for at, (place, loss) in enumerate(zip(chosen.takes, chosen.losses, strict=True))
    )
    assert set(chosen.places) == set(chosen.takes)


@given(losses, st.integers(1, 7))
@settings(max_examples=30)
def test_many_sets_are_improved_by_exchanges(table: np.ndarray, count: int) -> None:
    count = min(count, len(table))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(covering, "MOST_SETS", 1)
        chosen = choose(table, count)
    assert len(chosen.places) <= count
    assert chosen.mean <= table.mean(axis=1).min() + 1e-9
    assert list(chosen.losses) == pytest.approx(table[list(chosen.places)].min(axis=0))


def test_of_many_sets_one_that_serves_every_size_is_found() -> None:
    table = np.full((24, 12), math.inf)
    for size in range(12):
        table[2 * size : 2 * size + 2, size] = 0.0, 0.01
    assert math.comb(24, 12) > covering.MOST_SETS
    assert choose(table, 12).places == tuple(range(0, 24, 2))
    assert sum(map(math.isfinite, choose(table, 5).losses)) == 5


def test_a_rule_is_bounds_of_one_number_where_that_says_the_same() -> None:
    sizes = [{"M": 64, "N": 64}, {"M": 64, "N": 256}, {"M": 1024, "N": 1024}, {"M": 4096, "N": 16}]
    assert rule(sizes, (3, 3, 3, 3)) == Rule("M*N", (), (3,))
    assert rule(sizes, (0, 0, 5, 0)) == Rule("M*N", (math.sqrt(4096 * 16 * 1024 * 1024),), (0, 5))
    odd = [{"M": 64, "N": 4096}, {"M": 64, "N": 64}, {"M": 1024, "N": 16}]
    assert rule(odd, (1, 1, 2)) == Rule("M", (math.sqrt(64 * 1024),), (1, 2))
    assert rule(sizes, (1, 2, 1, 2)) == Rule()
    assert rule([{"M": 2, "N": 8}, {"M": 4, "N": 4}], (0, 1)) == Rule("M", (math.sqrt(8),), (0, 1))
    assert rule([{"N": 1}, {"N": 4}], (0, 1)) == Rule("N", (2.0,), (0, 1))


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=6, unique=True), st.data())
@settings(max_examples=60)
def test_a_rule_gives_each_listed_size_what_it_takes(values: list[int], data: st.DataObject) -> None:
    takes = data.draw(st.lists(st.integers(0, 2), min_size=len(values), max_size=len(values)))
    found = rule([{"N": value} for value in values], takes)
    runs = [taken for taken, _ in groupby(taken for _, taken in sorted(zip(values, takes, strict=True)))]
    assert found.order == (tuple(runs) if len(runs) == len(set(runs)) else ())
    assert found.by == ("N" if found.order else "")
    for value, taken in zip(values, takes, strict=True):
        assert not found.by or found.order[sum(value > bound for bound in found.bounds)] == taken


FIRST, SECOND, SLOW = ({"WPT": wpt, "WG": 64, "FAST": 0} for wpt in (1, 2, 4))


def stored_at(store: Store, n: int, *times: tuple[Configuration, int]) -> Request:
    problem = Problem(study(), {"N": n}, device=GENERIC_DEVICE)
    trials = [ok(configuration, *[ns] * 6) for configuration, ns in times]
    put(store, trials, key=problem.key, device=GENERIC_DEVICE)
    return Request(problem, database=store.where)


def again(problem: Problem) -> str:
    return f"search {problem.study.name} at {problem.size['N']}"


def test_what_is_stored_is_enough_without_a_search(store: Store) -> None:
    requests = [
        stored_at(store, 100, (FIRST, 100), (SECOND, 150), (SLOW, 900)),
        stored_at(store, 200, (FIRST, 101), (SECOND, 100)),
        stored_at(store, 4000, (FIRST, 200), (SECOND, 100)),
    ]
    found = cover(requests, searching=again, search=False)
    assert [len(one.places) for one in found.choices] == [1, 2]
    assert found.chosen.losses == (0, 0, 0)
    assert [found.candidates[place] for place in found.chosen.takes] == [FIRST, SECOND, SECOND]
    assert found.rule == Rule("N", (math.sqrt(100 * 200),), found.chosen.places)
    assert found.missing == 0
    one = cover(requests, 1, searching=again, search=False)
    assert one.chosen.losses == pytest.approx((0.5, 0, 0))
    assert one.chosen.worst == pytest.approx(0.5)
    assert one.chosen.mean == pytest.approx(0.5 / 3)


def test_a_best_loses_nothing_to_what_was_never_timed_in_turns_with_it(store: Store) -> None:
    problem = Problem(study(), {"N": 100}, device=GENERIC_DEVICE)
    timed = [ok(FIRST, *[100] * 6), ok(SECOND, *[105] * 6)]
    search = put(store, timed, key=problem.key, device=GENERIC_DEVICE)
    store.retime(search, [(FIRST, Measurement((110,) * 6))])
    request = Request(problem, database=store.where)
    found = cover([request], searching=again, search=False)
    assert [found.candidates[place] for place in found.chosen.takes] == [FIRST]
    assert found.chosen.losses == (0,)
    assert found.missing == 1


def test_what_is_not_known_serves_nobody(store: Store) -> None:
    requests = [stored_at(store, 100, (FIRST, 100)), stored_at(store, 200, (SECOND, 100))]
    found = cover(requests, searching=again, search=False)
    assert found.missing == 2
    assert [found.candidates[place] for place in found.chosen.takes] == [FIRST, SECOND]
    with pytest.raises(AutotuneError, match=r"none of the chosen is known to serve N=\d+; give a larger -k"):
        cover(requests, 1, searching=again, search=False)


def test_a_size_without_a_best_is_one_line(store: Store) -> None:
    requests = [stored_at(store, 100, (FIRST, 100)), stored_at(store, 200)]
    with pytest.raises(AutotuneError, match=r"no best is stored at N=200; search saxpy at 200 finds one"):
        cover(requests, searching=again)


class Replay(ReplayEvaluator):
    """Answers timings in turns with the recorded times, and one more sample."""

    def retime(self, configurations, budget_s=5.0, stop=None):  # type: ignore[no-untyped-def]
        found = [self._trials[tuple(sorted(one.items()))] for one in configurations]
        return [
            t if t.outcome.failed else Measurement(tuple(ns + 1 for ns in t.measurement.samples_ns), (), "warm", 3)
            for t in found
        ]


def test_given_configurations_are_tried_and_timed_in_turns_and_stored(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = stored_at(store, 100, (FIRST, 100))
    evaluator = Replay(
        [ok(FIRST, *[90] * 6), ok(SECOND, *[50] * 6), Trial(SLOW, Outcome.WRONG_RESULT, reason="off")], 2
    )
    found = measure(request, [FIRST, SECOND, SLOW], evaluator=evaluator)
    times = [found[identity(one)].time_ns for one in (FIRST, SECOND)]
    assert times == [91, 51]
    assert found[identity(SLOW)].outcome is Outcome.WRONG_RESULT
    stored = store.trials(request.problem.key)
    assert [trial.configuration for trial in stored] == [FIRST, SECOND, SLOW]
    assert stored[1].retimed == Measurement((51,) * 6)
    assert stored[1].verified_runs == 3
    # The best is timed with it: the ranking compares times that were taken together.
    stops_slow: list[bool] = []

    def opened(problem: Problem, devices: Sequence[DeviceInfo], settings: Settings, stop: threading.Event) -> Replay:
        stops_slow.append(settings.stops_slow)
        return Replay([ok(FIRST, *[70] * 6), ok(SECOND, *[60] * 6)])

    monkeypatch.setattr(sys.modules[measure.__module__], "DeviceEvaluator", opened)
    again = measure(request, [FIRST], anew=True)
    assert again[identity(FIRST)].time_ns == 71
    assert stops_slow == [False]  # however slow it is
    stored = store.trials(request.problem.key)
    assert [trial.configuration for trial in stored] == [FIRST, SECOND, SLOW, FIRST]
    assert stored[1].time_ns == 61
    assert [row.sampler for row in store.history(limit=1)] == ["measure"]


def test_a_measurement_that_is_stopped_leaves_nothing_pending(store: Store) -> None:
    request, stop = stored_at(store, 100, (FIRST, 100)), threading.Event()
    stop.set()
    with pytest.raises(Stopped):
        measure(request, [SECOND], stop, evaluator=Replay([ok(SECOND, *[50] * 6)]))
    assert [row.trial.outcome for row in store.history()] == [Outcome.OK]
