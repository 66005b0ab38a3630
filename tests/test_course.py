"""How a search went, as data: every trial, best so far, failures by reason, time; whole and sampled."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from autotune.model import Measurement, Outcome, Trial
from autotune.reports import course
from autotune.store import Store, listing, records, survey
from autotune.study import Problem
from autotune.tuner import Budget, ReplayEvaluator
from tests.stored import KEY, ok, put
from tests.test_loop import recorded, run

BROKEN = (Outcome.COMPILE_ERROR, Outcome.LAUNCH_ERROR, Outcome.WRONG_RESULT)


def told(store: Store, **options: int) -> dict:
    searches = listing.answering(store, 1)
    found = course.course(store, searches, **options)
    assert json.loads(json.dumps(found)) == found  # plain data
    return found


def test_a_replayed_search_is_told_whole(problem: Problem, store: Store) -> None:
    result = run(problem, store, ReplayEvaluator(recorded(problem, BROKEN)))
    found = told(store)
    assert found["trials"] == len(problem.space) == result.trials
    assert found["outcomes"] == {"ok": len(problem.space) - 3} | {outcome.value: 1 for outcome in BROKEN}
    assert found["stride"] == 1
    assert found["dots"]["number"] == list(range(1, found["trials"] + 1))
    assert found["dots"]["seconds"] == sorted(found["dots"]["seconds"])
    assert found["ended"]
    assert found["reasons"] == ["space exhausted"]
    failed = [ns for ns, how in zip(found["dots"]["time_ns"], found["dots"]["outcome"], strict=True) if how != "ok"]
    assert failed == [None] * 3


def test_the_best_so_far_falls_to_the_fastest_trial(problem: Problem, store: Store) -> None:
    run(problem, store)
    best = told(store)["best"]
    assert best["time_ns"] == sorted(set(best["time_ns"]), reverse=True)
    assert best["time_ns"][-1] == min(trial.time_ns for trial in store.trials(problem.key))
    assert dict(zip(best["parameters"], best["configuration"][0], strict=True)) == problem.default


def test_a_sample_knows_the_same_best_so_far_and_the_same_counts(problem: Problem, store: Store) -> None:
    run(problem, store, ReplayEvaluator(recorded(problem, BROKEN)))
    whole, some = told(store), told(store, most=5)
    assert some["stride"] == -(-whole["trials"] // 5)
    assert len(some["dots"]["trial"]) <= 5
    assert some["outcomes"] == whole["outcomes"]
    assert some["best"]["trial"] == whole["best"]["trial"]
    assert some["best"]["time_ns"] == whole["best"]["time_ns"]


def test_searches_of_one_problem_are_one_course_without_the_pauses(problem: Problem, store: Store) -> None:
    run(problem, store, budget=Budget(trials=5))
    run(problem, store, budget=Budget(trials=5))
    first, second = listing.answering(store, 1)
    week = (datetime.now(UTC) + timedelta(days=7)).isoformat()
    later = second._replace(started=week, ended=week)
    found = course.course(store, [first, later])
    assert found["trials"] == 10
    assert found["elapsed_s"] < 3600


def test_the_best_so_far_of_several_searches_does_not_start_anew(store: Store) -> None:
    put(store, [ok({"A": 1}, 50), ok({"A": 2}, 30)])
    put(store, [ok({"A": 3}, 40), ok({"A": 4}, 20)])
    for most in (100, 1):
        assert told(store, most=most)["best"]["time_ns"] == [50.0, 30.0, 20.0]


def test_failures_are_grouped_by_what_they_say_but_for_numbers(store: Store) -> None:
    said = ("needs 66560 bytes\nand more", "needs 131072 bytes", "no such thing 0x1f", "")
    put(store, [Trial({"A": n}, Outcome.LAUNCH_ERROR, reason=reason) for n, reason in enumerate(said)])
    found = told(store)["failures"]
    assert [(one["count"], one["of"], one["all"]) for one in found] == [(2, 4, 4), (1, 4, 4), (1, 4, 4)]
    assert found[0]["reason"] == "needs 131072 bytes"
    assert found[0]["configuration"] == {"A": 1}


def test_what_was_spent_is_summed(store: Store) -> None:
    one = Trial({"A": 1}, Outcome.OK, measurement=Measurement((5,)), build_s=2.0, verify_s=0.5, time_s=0.25)
    put(store, [one, one])
    assert told(store)["spent"] == {"build": 4.0, "verify": 1.0, "time": 0.5}


def test_a_search_at_work_tells_what_is_in_flight(store: Store) -> None:
    from tests.stored import DEVICE

    search = store.start_search(KEY, DEVICE, sampler="random", seed=1)
    store.finish([(store.begin(search, [{"A": 1}])[0], ok({"A": 1}, 7))])
    store.begin(search, [{"A": 2}])
    found = told(store)
    assert (found["trials"], found["running"], found["ended"]) == (1, 1, False)
    assert found["dots"]["trial"] == [1]


def test_no_search_is_a_course_of_nothing(store: Store) -> None:
    found = course.course(store, [])
    assert found["trials"] == 0
    assert found["rate"] is None
    assert Counter(found["outcomes"]) == Counter()


def test_of_many_searches_the_latest_failures_are_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "PAGE", 1)
    for n in range(3):
        put(store, [Trial({"A": n}, Outcome.CRASH, reason="fell")])
    found = survey.failures(store, [1, 2, 3], 2)
    assert [row.configuration for row in found] == [{"A": 2}, {"A": 1}]
