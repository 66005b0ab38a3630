"""What a problem's trials teach, as data: by the same rule as the ranking, whole and sampled."""

from __future__ import annotations

import json
import sqlite3
import warnings
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.identity import Configuration
from autotune.model import Measurement, Outcome, Trial
from autotune.ranking import median
from autotune.reports import learned, single
from autotune.samplers import importance, importances
from autotune.store import Store, survey
from autotune.study import Problem
from autotune.tuner import ReplayEvaluator, fastest
from tests.stored import TURNS, newer_driver, ok, put
from tests.test_loop import recorded, run, time_of


def lessons(
    store: Store, default: Configuration | str = single.NO_STUDY, **options: int
) -> tuple[learned.Sample, dict[str, Any]]:
    known = learned.sample(store, 1, **options)
    told = learned.learned(store, 1, known, default)
    json.dumps(told, allow_nan=False)
    return known, told


@pytest.fixture
def searched(problem: Problem, store: Store) -> Store:
    run(problem, store, ReplayEvaluator(recorded(problem, [Outcome.COMPILE_ERROR])))
    return store


def test_the_best_per_value_is_the_fastest_with_it(problem: Problem, searched: Store) -> None:
    _, told = lessons(searched)
    valid = [problem.space.configuration(row) for row in range(1, len(problem.space))]
    assert [one["value"] for one in told["values"]["WPT"]] == [1, 2, 4, 8]
    for name, rows in told["values"].items():
        for row in rows:
            own = [time_of(one) for one in valid if one[name] == row["value"]]
            assert (row["time_ns"], row["verified"]) == (min(own), len(own))
        assert max(row["share"] for row in rows) == 1
    assert sum(row["failed"] for row in told["values"]["WG"]) == 1


AGAIN = replace(ok({"A": 1, "B": 1}, 100), retimed=Measurement((120,), taken=TURNS))


@pytest.mark.parametrize(
    "trials",
    [
        [AGAIN, ok({"A": 1, "B": 2}, 110), ok({"A": 2, "B": 2}, 130)],
        # Measured anew since, in less: what takes longer than that has not passed it.
        [replace(AGAIN, measurement=Measurement((150,))), ok(AGAIN.configuration, 90), ok({"A": 1, "B": 2}, 110)],
    ],
)
def test_the_best_per_value_is_the_one_that_compare_names(store: Store, trials: list[Trial]) -> None:
    """A configuration that was timed again ranks before one that was as fast in only one measurement."""
    put(store, trials)
    known, told = lessons(store)
    for name, values in told["values"].items():
        for one in values:
            best = fastest([trial for trial in trials if trial.configuration[name] == one["value"]], "")
            assert best is not None
            assert one["time_ns"] == best.time_ns
            assert one["share"] == min(1, 120 / best.time_ns)
    assert learned.heat_map(known, "A", "B")["cells"][0][0]["time_ns"] == 120


def test_a_heat_map_has_the_best_of_each_pair(problem: Problem, searched: Store) -> None:
    known, _ = lessons(searched)
    found = learned.heat_map(known, "WG", "WPT")
    assert (found["columns"], found["rows"]) == ([32, 64, 128, 256], [1, 2, 4, 8])
    assert found["cells"][3][3]["share"] is None  # 8 * 256 is not valid
    assert found["cells"][2][0]["share"] == 1
    assert found["cells"][2][1]["time_ns"] == time_of({"WPT": 4, "WG": 64, "FAST": 0})


def test_every_pair_of_the_parameters_that_vary_has_a_map(searched: Store) -> None:
    known, told = lessons(searched)
    pairs = [{one["across"], one["down"]} for one in learned.heat_maps(known, told["importance"], 12)]
    assert sorted(map(sorted, pairs)) == [["FAST", "WG"], ["FAST", "WPT"], ["WG", "WPT"]]
    assert pairs[0] == {one["parameter"] for one in told["importance"][:2]}


def test_the_parameter_that_decides_is_the_most_important(searched: Store) -> None:
    _, told = lessons(searched)
    shares = {one["parameter"]: one["share"] for one in told["importance"]}
    assert sum(shares.values()) == pytest.approx(1)
    assert next(iter(shares)) == "WG"
    assert shares["FAST"] < 0.1


def test_importance_says_nothing_of_few_and_zero_of_what_never_varied() -> None:
    assert importances([{"A": 1}] * 5, [1.0] * 5) == {}
    some: list[Mapping[str, int]] = [{"A": n % 5, "B": 1} for n in range(50)]
    assert importances(some, [float(one["A"]) for one in some]) == {"A": 1.0, "B": 0.0}
    assert importances([{"B": 1}] * 50, [1.0] * 50) == importances(some, [1.0] * 50) == {}


def test_while_importances_are_computed_another_thread_may_warn(monkeypatch: pytest.MonkeyPatch) -> None:
    trials, told = importance._Given.get_all_trials, list[Future[None]]()

    def asked(*given: Any, **named: Any) -> Any:
        with ThreadPoolExecutor() as threads:
            told.append(threads.submit(warnings.warn, "of the program's own"))
        return trials(*given, **named)

    monkeypatch.setattr(importance._Given, "get_all_trials", asked)
    importances([{"A": n % 5} for n in range(50)], [float(n % 5) for n in range(50)])
    assert {one.exception() for one in told} == {None}


def test_finalists_come_in_the_order_of_the_ranking(problem: Problem, searched: Store) -> None:
    known, told = lessons(searched)
    found = told["finalists"]
    assert [one["trial"] for one in found] == known.ranked[: len(found)]
    for one in found:
        low, high = one["interval_ns"]
        assert low <= one["median_ns"] == median(one["samples_ns"]) <= high
        assert one["quartiles_ns"][0] <= one["median_ns"] <= one["quartiles_ns"][1]


def test_the_summary_is_that_of_the_best(problem: Problem, searched: Store) -> None:
    known, _ = lessons(searched)
    found = learned.summary(searched, known.best)
    assert found["configuration"] == {"WPT": 4, "WG": 32, "FAST": 0}
    assert found["time_ns"] == 1320
    assert found["gflops"] is None  # a replayed trial tells nothing of its work


def test_the_default_is_compared_where_both_were_timed_in_turns(problem: Problem, store: Store) -> None:
    run(problem, store)
    _, told = lessons(store, problem.default)
    gain = told["gain"]
    assert gain["default"]["time_ns"] == time_of(problem.default)
    assert gain["speedup"] == pytest.approx(time_of(problem.default) / 1320, rel=0.01)
    assert gain["interval"][0] <= gain["speedup"] <= gain["interval"][1]


def test_what_is_not_known_of_the_default_is_said(problem: Problem, store: Store) -> None:
    put(store, [Trial({"A": 1}, Outcome.CRASH), ok({"A": 2}, 9)])
    assert "is not here" in lessons(store)[1]["gain"]["why"]
    assert lessons(store, {"A": 1})[1]["gain"]["why"] == "the default ended as crash"
    assert "no time" in lessons(store, {"A": 3})[1]["gain"]["why"]
    assert lessons(store, {"A": 2})[1]["gain"]["why"] == "the best is the default configuration"
    search = put(store, [ok({"A": 3}, 8)])
    for again in ((), (2, 3)):  # nor were they where each was timed again by itself
        for value in again:
            store.retime(search, [({"A": value}, Measurement((12 - value,) * 3))])
        told = lessons(store, {"A": 2})[1]
        assert told["gain"]["why"] == "they were not timed in turns"
        assert told["gain"]["speedup"] is None
    assert [one["median_ns"] for one in told["finalists"]] == [9]  # those of the last turns


def test_what_was_wrong_once_and_other_drivers_teach_nothing(store: Store) -> None:
    put(store, [ok({"A": 1}, 1), Trial({"A": 1}, Outcome.WRONG_RESULT), ok({"A": 2}, 5)])
    put(store, [ok({"A": 3}, 7)], device=newer_driver("600"))
    assert [one.configuration for one in lessons(store)[0].measured] == [{"A": 3}]


def test_what_was_stopped_was_tried_and_did_not_fail(store: Store) -> None:
    put(
        store,
        [ok({"A": 1, "B": 1}, 5), Trial({"A": 1, "B": 2}, Outcome.STOPPED), Trial({"A": 2, "B": 2}, Outcome.STOPPED)],
    )
    known, told = lessons(store, {"A": 2, "B": 2})
    assert learned.varying_of(known, told["importance"]) == ["A", "B"]
    counts = [[row[name] for name in ("value", "tried", "verified", "failed")] for row in told["values"]["B"]]
    assert counts == [[1, 1, 1, 0], [2, 2, 0, 0]]
    assert [[cell["tried"] for cell in row] for row in learned.heat_map(known, "A", "B")["cells"]] == [[1, 0], [1, 1]]
    assert told["gain"]["why"] == "the default ended as stopped"


def test_a_sample_has_the_fastest_all_the_same(store: Store) -> None:
    put(store, [ok({"A": n, "B": n % 7}, 10_000 - n) for n in range(150)])
    known, told = lessons(store, most=20)
    assert told["sampled"]
    assert told["trials"] == 150
    assert known.measured[0].configuration == {"A": 149, "B": 149 % 7}
    assert 20 <= len(known.measured) < 120
    assert told["values"]["A"][-1]["share"] == 1


def test_nothing_measured_teaches_nothing(store: Store) -> None:
    put(store, [])
    known, told = lessons(store)
    assert told["importance"] == []
    assert told["gain"] == {"why": "no configuration has passed"}
    assert learned.summary(store, known.best) is None
    assert learned.heat_maps(known, [], 12) == []


def test_values_of_both_kinds_stand_in_one_order(store: Store) -> None:
    put(store, [ok({"A": value}, 5) for value in ("b", 2, "a", 1)])
    assert [one["value"] for one in lessons(store)[1]["values"]["A"]] == [1, 2, "a", "b"]


def test_retimings_stand_before_first_medians_but_for_those_of_another_driver(store: Store, tmp_path: Path) -> None:
    again = Measurement((4, 4, 4))
    put(store, [Trial({"A": 1}, Outcome.OK, measurement=Measurement((9,)), retimed=again), ok({"A": 2}, 8)])
    assert survey.retimings(store, [1, 2]) == {1: again}
    assert survey.retimed(store, 1, 5) == [1]
    assert lessons(store)[0].measured[0].time_ns == 4
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection, connection:
        connection.execute("UPDATE retimings SET driver = 'another'")
    assert survey.retimings(store, [1, 2]) == {}
