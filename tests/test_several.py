"""Several sizes in one search: the budget is shared, each size learns from the others, nothing found is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from autotune import tuner
from autotune.errors import UsageError, WorkerError
from autotune.model import Outcome
from autotune.store import Store
from autotune.study import Problem
from autotune.tuner import Budget, ReplayEvaluator, Request, Result, Turn, run_sizes, several
from tests.studies import study
from tests.test_loop import recorded

SIZES = (100, 1000, 4000)


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    """Have searches answer from records; return the requests that they got."""
    asked: list[Request] = []

    def run(request: Request, stop: threading.Event | None = None, **options: Any) -> Result:
        asked.append(request)
        if request.budget.trials is None:  # seconds, which nobody waits for
            request = replace(request, budget=Budget(trials=1))
        return tuner.run(request, stop, evaluator=ReplayEvaluator(recorded(request.problem)), **options)

    monkeypatch.setattr(several, "run", run)
    monkeypatch.setattr(several, "TWICE_TRIALS", 4)
    return asked


def requests(store: Store, budget: Budget, fix: Any = None, **options: Any) -> list[Request]:
    problems = [Problem(study(), {"N": n}, fix=fix) for n in SIZES]
    return [Request(one, database=store.where, sampler="random", seed=1, budget=budget, **options) for one in problems]


def found(asked: list[Request], **options: Any) -> dict[int, Result]:
    return dict(run_sizes(asked, search=vars(several)["run"], **options))


def test_trials_are_shared_and_what_one_leaves_the_next_have(store: Store, turns: list[Request]) -> None:
    results = found(requests(store, Budget(trials=7)))
    assert [request.budget.trials for request in turns] == [3, 2, 2]
    assert [results[place].trials for place in range(3)] == [3, 2, 2]
    assert [request.problem.size["N"] for request in turns] == list(SIZES)
    turns.clear()
    found(requests(store, Budget(until_stale=1), fix={"WPT": [1]}))
    assert len(turns) == len(SIZES)


def test_what_failed_is_tried_again_in_the_first_turn_of_a_size_only(store: Store, turns: list[Request]) -> None:
    found(requests(store, Budget(trials=12), retry_failed=True))
    assert [request.retry_failed for request in turns] == [True] * 3 + [False] * 3


def test_every_size_has_a_second_turn_where_the_budget_allows_it(store: Store, turns: list[Request]) -> None:
    heard: list[Turn] = []
    results = found(requests(store, Budget(trials=12), fresh=True), on_turn=heard.append)
    assert [turn.place for turn in heard] == [0, 1, 2, 0, 1, 2]
    assert [turn.number for turn in heard] == list(range(6))
    assert {turn.left_s for turn in heard} == {None}
    assert [request.fresh for request in turns] == [True] * 3 + [False] * 3
    assert sum(result.trials for result in results.values()) == 12
    assert all(result.reused == 0 and result.best is not None for result in results.values())


def test_the_bests_of_other_sizes_are_tried_early(store: Store, turns: list[Request]) -> None:
    asked = requests(store, Budget(trials=12), start=[{"WPT": 8, "WG": 32, "FAST": 1}])
    results = found(asked)
    assert [len(request.start) for request in turns][:2] == [1, 2]
    assert all(result.best is not None for result in results.values())
    assert all(len(request.start) >= 2 for request in turns[1:])
    assert all(request.start[0] == {"WPT": 8, "WG": 32, "FAST": 1} for request in turns)


def test_seconds_are_shared(store: Store, turns: list[Request]) -> None:
    now = [0.0]

    def spend(turn: Turn) -> None:
        assert turn.left_s is not None
        now[0] += turn.left_s / 10

    found(requests(store, Budget(seconds=90)), on_turn=spend, clock=lambda: now[0])
    shares = [request.budget.seconds or 0 for request in turns]
    assert shares == pytest.approx([90 / 3, 81 / 2, 72.9])


def test_a_space_that_is_exhausted_leaves_its_turn_to_the_others(store: Store, turns: list[Request]) -> None:
    results = found(requests(store, Budget(trials=1000), fix={"WPT": [1], "WG": [64]}))
    assert [results[place].trials for place in range(3)] == [2] * 3
    assert len(turns) == 3


def test_what_was_found_before_the_end_is_there(store: Store, turns: list[Request]) -> None:
    stop = threading.Event()

    def watch(turn: Turn) -> Callable[..., None] | None:
        return (lambda _: stop.set()) if turn.place == 1 else None

    results = found(requests(store, Budget(trials=9)), stop=stop, on_turn=watch)
    assert results.keys() == {0, 1}
    assert results[1].reason == "interrupted"
    assert results[1].trials == 1


def test_an_error_comes_after_what_was_found_before(store: Store, turns: list[Request]) -> None:
    def fails(turn: Turn) -> None:
        if turn.place == 1:
            raise WorkerError("gone")

    results = run_sizes(requests(store, Budget(trials=9)), on_turn=fails, search=vars(several)["run"])
    assert next(results)[1].best is not None
    with pytest.raises(WorkerError, match="gone"):
        next(results)


def test_the_nearest_size_is_heard_of_first_if_valid_and_a_turn_that_lost_its_workers_is_the_last(
    store: Store, turns: list[Request]
) -> None:
    asked = requests(store, Budget(trials=12))
    known = vars(several)["run"](replace(asked[0], budget=Budget(trials=1)))
    bests = [replace(known.best, configuration={**asked[0].problem.default, "WPT": wpt}) for wpt in (16, 2, 4, 1, 8)]
    turns.clear()

    def search(request: Request, *_: Any, **__: Any) -> Result:
        turns.append(request)
        lost = WorkerError("gone") if len(turns) == 5 else None
        return replace(known, problem=request.problem, best=bests[len(turns) - 1], failure=lost)

    assert dict(run_sizes(asked, search=search)).keys() == {0, 1, 2}
    nearest = [[1], [1, 2], [2, 3]]  # the first has a value that the study lacks
    starts = [[bests[place].configuration for place in places] for places in nearest]
    assert [list(request.start) for request in turns][2:] == starts


def test_each_size_needs_a_trial(store: Store) -> None:
    with pytest.raises(UsageError, match="2 trials are fewer than 3 sizes"):
        found(requests(store, Budget(trials=2)))


def test_two_turns_are_one_result(store: Store, turns: list[Request], monkeypatch: pytest.MonkeyPatch) -> None:
    failing = (Outcome.COMPILE_ERROR, Outcome.CRASH, Outcome.CRASH)

    def run(request: Request, stop: threading.Event | None = None, **options: Any) -> Result:
        return tuner.run(request, stop, evaluator=ReplayEvaluator(recorded(request.problem, failing)), **options)

    monkeypatch.setattr(several, "run", run)
    results = found(requests(store, Budget(trials=12)))
    stored = store.trials(Problem(study(), {"N": 100}).key)
    assert sum(results[0].failures.values()) == sum(trial.outcome.failed for trial in stored)
    assert results[0].trials == len({tuple(trial.configuration.items()) for trial in stored})
