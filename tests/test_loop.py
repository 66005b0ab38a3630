"""The search loop against a replayed device and a real database."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from autotune import samplers, tuner
from autotune.bench.report import too_large
from autotune.bench.timing import Rules
from autotune.cli.result import _wrong_with, print_result
from autotune.errors import AutotuneError, SetupError, SpaceError, StudyError, WorkerError
from autotune.identity import Value
from autotune.model import Configuration, Measurement, Outcome, Trial
from autotune.pool import Settings
from autotune.reports import result_json
from autotune.samplers import Proposer
from autotune.samplers.bayes import BayesSampler
from autotune.space import Space
from autotune.store import Store
from autotune.store.records import instant
from autotune.study import GENERIC_DEVICE, Problem
from autotune.text import time
from autotune.tuner import Budget, Progress, ProgressCallback, ReplayEvaluator, Request, Result, finale, loop, recall
from autotune.tuner.finale import ANOTHER_DAY
from autotune.tuner.loop import Ledger, Search
from autotune.tuner.recall import IMPORTED_FIRST, imported_best, ours, spent
from autotune.tuner.result import SEARCH
from autotune.tuner.start import within_budget
from tests.stored import DEVICE
from tests.studies import study


def time_of(configuration: Configuration) -> int:
    return 1000 + 10 * int(configuration["WG"]) + 100 * abs(int(configuration["WPT"]) - 4) + int(configuration["FAST"])


def recorded(problem: Problem, broken: Sequence[Outcome] = ()) -> list[Trial]:
    """Return a trial of every configuration; the first few fail in the given ways."""
    trials = []
    for row in range(len(problem.space)):
        configuration = problem.space.configuration(row)
        samples = tuple(time_of(configuration) + noise for noise in (-1, 0, 0, 0, 0, 1))
        trials.append(Trial(configuration, Outcome.OK, measurement=Measurement(samples)))
    for row, outcome in enumerate(broken):
        trials[row] = Trial(trials[row].configuration, outcome, reason=f"because {outcome}")
    return trials


def run(
    problem: Problem,
    store: Store,
    evaluator: ReplayEvaluator | None = None,
    stop: threading.Event | None = None,
    on_progress: ProgressCallback | None = None,
    **options: object,
) -> Result:
    given = {"database": store.where, "sampler": "random", "seed": 1, "budget": Budget()} | options
    request = Request(problem, **given)  # type: ignore[arg-type]
    return tuner.run(request, stop, on_progress=on_progress, evaluator=evaluator or ReplayEvaluator(recorded(problem)))


def test_values_with_which_alone_results_are_wrong_are_told(
    problem: Problem, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    def found(wrong: Callable[[Configuration], bool], **options: object) -> dict[str, list[Value]]:
        trials = [
            replace(one, outcome=Outcome.WRONG_RESULT, measurement=None) if wrong(one.configuration) else one
            for one in recorded(problem)
        ]
        result = run(problem, store, ReplayEvaluator(trials), fresh=True, **options)
        print_result(result, "saxpy", None, "")
        assert ("wrong with" in capsys.readouterr().out) == bool(result.wrong_with)
        assert result_json(result)["wrong_with"] == result.wrong_with
        return result.wrong_with

    assert found(lambda one: one["WPT"] in (2, 4)) == {"WPT": [2, 4]}
    assert found(lambda one: one["WPT"] == 4 and one["FAST"] == 1) == {}
    assert found(lambda one: True) == found(lambda one: False) == {}
    assert found(lambda one: one["WPT"] == 4, budget=Budget(trials=4)) == {}


def test_of_many_values_with_which_results_are_wrong_the_first_are_told() -> None:
    assert _wrong_with("A", range(16)).startswith("A=0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15: every")
    assert ", 15 and 4 more: every wrong result" in _wrong_with("A", range(20))


def test_what_an_earlier_search_timed_bounds_this_one_with_room_for_a_slower_day(
    problem: Problem, store: Store
) -> None:
    first = run(problem, store, budget=Budget(trials=3))
    assert first.best is not None
    bounds: list[float | None] = []

    class Today(ReplayEvaluator):
        def submit(self, configuration: Configuration) -> None:
            bounds.append(self.best_ns)
            super().submit(configuration)

    slow = [replace(one, measurement=Measurement((round(one.time_ns * 1.2),) * 5)) for one in recorded(problem)]
    run(problem, store, Today(slow), budget=Budget(trials=3))
    assert bounds[0] == ANOTHER_DAY * first.best.time_ns


def test_an_unbounded_search_exhausts_the_space_and_finds_the_best(problem: Problem, store: Store) -> None:
    result = run(problem, store)
    assert result.reason == "space exhausted"
    assert result.trials == len(problem.space) == len(store.trials(problem.key))
    assert result.best.configuration == {"WPT": 4, "WG": 32, "FAST": 0}
    assert result.best.retimed is not None


def test_the_default_comes_first_then_the_start(problem: Problem, store: Store) -> None:
    start = [{"WPT": 2, "WG": 32, "FAST": 1}]
    run(problem, store, budget=Budget(trials=3), start=start)
    first, second, _ = store.trials(problem.key)
    assert first.configuration == problem.default
    assert second.configuration == start[0]


def test_a_start_in_numbers_of_another_type_is_the_study_s(problem: Problem, store: Store) -> None:
    run(problem, store, budget=Budget(trials=2), start=[{"WPT": 2.0, "WG": 32, "FAST": True}])
    configuration = store.trials(problem.key)[1].configuration
    assert repr(dict(configuration)) == repr({"WPT": 2, "WG": 32, "FAST": 1})


def test_a_search_goes_on_from_what_is_stored(problem: Problem, store: Store) -> None:
    first = run(problem, store, budget=Budget(trials=5))
    second = run(problem, store, budget=Budget(trials=5))
    assert (first.trials, first.reused) == (5, 0)
    assert (second.trials, second.reused) == (5, 5)
    assert len({tuple(t.configuration.items()) for t in store.trials(problem.key)}) == 10
    last = run(problem, store)
    assert last.trials == len(problem.space) - 10
    assert run(problem, store).trials == 0


def test_fresh_starts_over_and_deletes_nothing(problem: Problem, store: Store) -> None:
    run(problem, store, budget=Budget(trials=5))
    again = run(problem, store, budget=Budget(trials=4), fresh=True)
    assert (again.trials, again.reused) == (4, 0)
    assert len(store.history()) == 9


def test_the_same_seed_proposes_the_same(problem: Problem, store: Store, tmp_path: Path) -> None:
    with Store.open(str(tmp_path / "b.db")) as other:
        run(problem, store, budget=Budget(trials=8))
        run(problem, other, budget=Budget(trials=8))
        assert [t.configuration for t in store.trials(problem.key)] == [
            t.configuration for t in other.trials(problem.key)
        ]


def test_failures_are_outcomes_and_the_search_goes_on(problem: Problem, store: Store) -> None:
    broken = [Outcome.COMPILE_ERROR, Outcome.CRASH, Outcome.TIMEOUT, Outcome.WRONG_RESULT]
    result = run(problem, store, ReplayEvaluator(recorded(problem, broken)))
    assert dict(result.failures) == dict.fromkeys(broken, 1)
    assert result.examples[Outcome.CRASH].reason == "because crash"
    assert result.trials == len(problem.space)


def test_everything_failing_gives_no_best(problem: Problem, store: Store) -> None:
    trials = [replace(trial, outcome=Outcome.CRASH, measurement=None) for trial in recorded(problem)]
    result = run(problem, store, ReplayEvaluator(trials))
    assert result.best is None
    assert result.trials == len(problem.space)


def test_what_may_be_the_machines_fault_is_tried_once_more(problem: Problem, store: Store) -> None:
    evaluator = ReplayEvaluator(recorded(problem, [Outcome.COMPILE_ERROR, Outcome.TIMEOUT]))
    run(problem, store, evaluator)
    assert run(problem, store, evaluator).trials == 1
    assert run(problem, store, evaluator).trials == 0
    assert run(problem, store, evaluator, retry_failed=True).trials == 2


def test_it_says_that_wrong_results_are_not_tried_again(
    problem: Problem, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    trials = recorded(problem, [Outcome.WRONG_RESULT, Outcome.WRONG_RESULT])
    trials[0] = replace(trials[0], reason="right at first, wrong when timed again: 3 of 4 values")
    evaluator = ReplayEvaluator(trials)
    first = run(problem, store, evaluator)
    assert first.reused_wrong == 0
    print_result(first, "./saxpy.toml", None, "")
    told = capsys.readouterr().out
    assert "2 x; e.g. WPT=1 WG=32 FAST=0: right at first, wrong when" in told
    assert (
        "has a race, reads memory that nothing wrote, or writes to its inputs. Other configurations may do so too"
        in told
    )
    again = run(problem, store, evaluator, retry_failed=True)
    assert (again.trials, again.reused_wrong) == (0, 2)
    print_result(again, "./saxpy.toml", None, "")
    told = capsys.readouterr().out
    assert "configurations are tried; only --fresh tries the stored wrong results (2) again\n" in told
    assert "has a race" not in told


@pytest.mark.parametrize(("trials", "reason"), [(7, "7 trials done"), (1, "1 trial done")])
def test_the_budget_in_trials_is_kept_with_several_in_flight(
    problem: Problem, store: Store, trials: int, reason: str
) -> None:
    result = run(problem, store, ReplayEvaluator(recorded(problem), capacity=4), budget=Budget(trials=trials))
    assert (result.trials, result.reason) == (trials, reason)


def test_what_a_model_takes_is_loaded_once_builds_have_work(
    problem: Problem, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[object] = []

    class Noting(ReplayEvaluator):
        def submit(self, configuration: Configuration) -> None:
            done.append("submitted")
            super().submit(configuration)

        def collect(self, timeout_s: float | None = None) -> Trial:
            done.append("collected")
            return super().collect(timeout_s)

    monkeypatch.setattr(BayesSampler, "prepare", lambda self, trials: done.append(trials))
    run(problem, store, Noting(recorded(problem)), sampler="bayes", budget=Budget(trials=2))
    assert done == ["submitted", 2, "collected", "submitted", "collected"]


def test_it_stops_when_stale(problem: Problem, store: Store) -> None:
    result = run(problem, store, budget=Budget(until_stale=3), start=[{"WPT": 4, "WG": 32, "FAST": 0}])
    assert result.reason == "no better configuration in 3 trials"
    assert result.trials == 5


def test_a_start_that_cannot_be_says_which_it_is(problem: Problem, store: Store) -> None:
    starts: list[Configuration] = [{"WPT": 4, "WG": 32, "FAST": 0}, {"WPT": 3, "WG": 32, "FAST": 0}]
    with pytest.raises(SpaceError) as told:
        run(problem, store, start=starts)
    assert str(told.value).startswith("start WPT=3,WG=32,FAST=0: saxpy: WPT cannot be 3; it can be ")


def test_no_time_left_means_no_trial(problem: Problem, store: Store) -> None:
    result = run(problem, store, budget=Budget(seconds=1e-9))
    assert result.trials == 0
    assert result.best is None


def test_an_interrupted_search_keeps_what_it_has(problem: Problem, store: Store) -> None:
    result = run(problem, store, Dying(recorded(problem), KeyboardInterrupt(), after=3))
    assert result.reason == "interrupted"
    assert result.best is not None
    assert len(store.trials(problem.key)) == len(store.history()) == 3
    assert run(problem, store).trials == len(problem.space) - 3


@pytest.mark.parametrize("budget", [Budget(trials=8, seconds=1e6), Budget(until_stale=3)])
def test_a_search_that_goes_on_ends_as_if_it_had_never_been_interrupted(
    problem: Problem, store: Store, budget: Budget
) -> None:
    start: list[Configuration] = [{"WPT": 4, "WG": 32, "FAST": 0}]
    run(problem, store, budget=Budget(trials=1), start=start)  # not of this search
    broken = [replace(one, outcome=Outcome.CRASH, measurement=None) for one in recorded(problem)[:-4]]
    asked = {"submission": "a" * 32, "budget": budget, "fresh": True, "start": start}
    alone = run(problem, store, ReplayEvaluator(broken + recorded(problem)[-4:]), **asked | {"submission": None})
    told: list[Progress] = []
    for after in (4, 2, 99, 99):  # the last one finds all trials done
        evaluator = Dying(broken + recorded(problem)[-4:], KeyboardInterrupt(), after)
        result = run(problem, store, evaluator, on_progress=told.append, **asked)
    found = [
        (one.trials, one.reused, one.reason, one.failures, one.best and one.best.configuration, one.examples.keys())
        for one in (alone, result)
    ]
    assert found[0] == found[1]
    counts = [one.done for one in told if one.phase == SEARCH]
    assert counts == [*range(1, alone.trials + 1)]
    assert told[4].rate == 0  # the first that the second process tells
    assert len(store.history()) == 1 + 2 * alone.trials
    assert result.usage == {}


def test_a_search_that_goes_on_has_the_time_in_which_there_was_no_server(
    problem: Problem, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three processes of a minute, of a quarter and of none yet, with a day between them."""
    day, submission = datetime(2026, 1, 1, tzinfo=UTC), "a" * 32
    for days, seconds in ((0, 60), (1, 15), (2, None)):
        with monkeypatch.context() as patch:
            patch.setattr("autotune.store.store.now", lambda days=days: instant(day + timedelta(days=days)))
            search = store.start_search(problem.key, DEVICE, sampler="random", seed=1, submission=submission)
        if seconds is not None:
            ended = replace(recorded(problem)[days], finished=day + timedelta(days=days, seconds=seconds))
            store.finish([(store.begin(search, [ended.configuration])[0], ended)])
    assert spent(store, submission)[1:] == (75.0, True)
    for given_s, left_s in ((1000.0, 925.0), (76.0, 5.0), (10.0, 5.0)):
        budget, ledger = Budget(seconds=given_s), Ledger(store, 9, problem, [], ours(problem, []))
        begun = Search(ReplayEvaluator(()), ledger, budget, threading.Event(), None, 75.0)
        assert begun.result("").elapsed_s == pytest.approx(given_s - left_s, abs=1)


class Endless(ReplayEvaluator):
    """Its fourth trial never ends, and meanwhile the search is stopped; it records how long it was asked to wait."""

    def __init__(self, trials: Sequence[Trial], stop: threading.Event) -> None:
        super().__init__(trials, capacity=3)
        self.stop, self.waits = stop, list[float]()

    def collect(self, timeout_s: float | None = None) -> Trial:
        if len(self.waits) < 3:
            self.waits.append(0.0)
            return super().collect()
        assert timeout_s is not None
        self.waits.append(timeout_s)
        if len(self.waits) == 6:
            self.stop.set()
        raise TimeoutError


def test_who_sets_stop_ends_a_search_while_a_trial_runs(problem: Problem, store: Store) -> None:
    stop = threading.Event()
    evaluator = Endless(recorded(problem), stop)
    result = run(problem, store, evaluator, stop)
    assert (result.reason, result.trials) == ("interrupted", 3)
    assert result.best is not None
    assert len(evaluator.waits) == 6
    assert max(evaluator.waits) <= loop.POLL_S
    assert len(store.history()) == 3
    assert run(problem, store).trials == len(problem.space) - 3


class Ended(ReplayEvaluator):
    """Some of its trials end when the search is stopped."""

    def __init__(self, trials: Sequence[Trial], stop: threading.Event) -> None:
        super().__init__(trials)
        self._stop = stop

    def collect(self, timeout_s: float | None = None) -> Trial:
        self._stop.set()
        raise StudyError("the function left no answer (killed by SIGTERM)")


def test_what_ends_with_a_search_that_is_stopped_is_no_error(problem: Problem, store: Store) -> None:
    stop = threading.Event()
    assert run(problem, store, Ended(recorded(problem), stop), stop).reason == "interrupted"


class EndedMeanwhile(ReplayEvaluator):
    """All its trials in flight have ended by the time the search is stopped, at its third."""

    def __init__(self, trials: Sequence[Trial], stop: threading.Event) -> None:
        super().__init__(trials, capacity=3)
        self.stop, self.left = stop, 3

    @property
    def ready(self) -> int:
        return len(self._submitted) if self.stop.is_set() else 0

    def collect(self, timeout_s: float | None = None) -> Trial:
        self.left -= 1
        if self.left == 0:
            self.stop.set()
            raise TimeoutError
        return super().collect()


def test_what_has_ended_when_somebody_stops_the_search_is_kept(problem: Problem, store: Store) -> None:
    stop = threading.Event()
    result = run(problem, store, EndedMeanwhile(recorded(problem), stop), stop)
    assert (result.reason, result.trials) == ("interrupted", 5)
    assert [trial.outcome for trial in store.trials(problem.key)] == [Outcome.OK] * 5 == [
        row.trial.outcome for row in store.history()
    ]  # fmt: skip


def test_a_search_that_is_stopped_before_it_began_says_what_is_stored(problem: Problem, store: Store) -> None:
    stop = threading.Event()
    run(problem, store, budget=Budget(trials=3))
    stop.set()
    result = run(problem, store, ReplayEvaluator(()), stop)
    assert (result.reason, result.trials, result.reused) == ("interrupted", 0, 3)
    assert result.best is not None


def test_what_no_device_has_begun_is_left_for_the_next_search(problem: Problem, store: Store) -> None:
    evaluator = ReplayEvaluator(recorded(problem), capacity=4)
    result = run(problem, store, evaluator, budget=Budget(until_stale=3), start=[{"WPT": 4, "WG": 32, "FAST": 0}])
    assert result.trials == 6  # one had begun when the fifth said stop
    assert len(store.history()) == 6
    assert run(problem, store).trials == len(problem.space) - 6


class Slow(ReplayEvaluator):
    """Finishes nothing in time, by its own clock, which advances only while it waits."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def collect(self, timeout_s: float | None = None) -> Trial:
        if timeout_s is not None and self.now < 9.0:  # what runs on a device then ends
            self.now += timeout_s
            raise TimeoutError
        return super().collect()


@pytest.mark.parametrize("capacity", [4, 100])
def test_the_time_is_kept_while_trials_run_and_the_first_is_waited_for(
    problem: Problem, store: Store, capacity: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluator = Slow(recorded(problem), capacity)
    monkeypatch.setattr(loop, "time", evaluator)
    result = run(problem, store, evaluator, budget=Budget(seconds=3.0119))
    assert result.reason == "3.0 s are over"
    assert result.trials == len(store.history()) == 1


class Builds(Slow):
    """Builds until it is told that nobody waits for it any more."""

    def withdraw(self, leave: int = 0, *, building: bool = False) -> list[Configuration]:
        if building:
            return [self._submitted.pop().configuration for _ in range(len(self._submitted))]
        return super().withdraw(leave)


def test_a_build_is_given_up_when_the_time_is_over(
    problem: Problem, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluator = Builds(recorded(problem), 4)
    monkeypatch.setattr(loop, "time", evaluator)
    result = run(problem, store, evaluator, budget=Budget(seconds=3.0))
    assert (result.trials, len(store.history())) == (0, 0)
    assert evaluator.now == pytest.approx(3.0 + loop.GRACE_S)


def test_what_has_ended_together_is_stored_before_it_is_told_and_before_what_failed(
    problem: Problem, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches, told = list[int](), list[tuple[int, int]]()
    finish = Store.finish

    def counting(self: Store, ended: Sequence[tuple[int, Trial]]) -> None:
        batches.append(len(ended))
        finish(self, ended)

    class Together(Dying):
        ready = property(lambda self: len(self._submitted))

    monkeypatch.setattr(Store, "finish", counting)
    evaluator = Together(recorded(problem), WorkerError("no worker"), 6)
    evaluator.capacity = 4
    result = run(
        problem, store, evaluator, on_progress=lambda progress: told.append((progress.done, len(store.history())))
    )
    assert (batches, result.trials) == ([4, 2], 6)
    assert [done for done, _ in told] == [1, 2, 3, 4, 5, 6]
    assert all(stored >= done for done, stored in told)


class Dying(ReplayEvaluator):
    """Raises an error after this many trials have ended."""

    def __init__(self, trials: Sequence[Trial], error: BaseException, after: int) -> None:
        super().__init__(trials)
        self.left, self.error = after, error

    def collect(self, timeout_s: float | None = None) -> Trial:
        self.left -= 1
        if self.left < 0:
            raise self.error
        return super().collect()


@pytest.mark.parametrize("error", [StudyError("the reference failed"), MemoryError()])
def test_whatever_ends_a_search_leaves_nothing_pending(
    problem: Problem, store: Store, error: AutotuneError | MemoryError
) -> None:
    evaluator = Dying(recorded(problem), error, after=3)
    evaluator.capacity = 4
    with pytest.raises(type(error)):
        run(problem, store, evaluator)
    assert store.rows("SELECT outcome, count(*) FROM trials GROUP BY outcome", {}) == [("ok", 3)]


@pytest.mark.parametrize("error", [WorkerError("no worker"), SetupError("no disk")])
def test_a_search_that_loses_its_workers_says_what_was_found(
    problem: Problem, store: Store, error: AutotuneError
) -> None:
    result = run(problem, store, Dying(recorded(problem), error, after=3))
    assert (result.trials, result.reason, result.failure) == (3, "stopped by an error", error)
    assert result.best is not None
    assert len(store.history()) == 3
    with pytest.raises(type(error)):
        run(problem, store, Dying(recorded(problem), error, after=0), fresh=True)


class Unbuilt(ReplayEvaluator):
    """Still builds the first configuration when all others are done."""

    def collect(self, timeout_s: float | None = None) -> Trial:
        self._submitted.rotate(-1)
        return super().collect()

    def withdraw(self, leave: int = 0, *, building: bool = False) -> list[Configuration]:
        return [self._submitted.popleft().configuration] if not leave else []


def test_a_default_that_has_not_come_to_run_is_told_with_the_reason(problem: Problem, store: Store) -> None:
    result = run(problem, store, Unbuilt(recorded(problem), capacity=2), budget=Budget(until_stale=3))
    assert (result.best is None, result.default) == (False, None)
    assert result.why_no_default == f"it had not run when the search ended ({result.reason})"
    assert run(problem, store).why_no_default == ""


def test_an_error_of_the_callers_own_is_not_taken_for_waiting(problem: Problem, store: Store) -> None:
    def report(progress: Progress) -> None:
        raise TimeoutError("mine")

    with pytest.raises(TimeoutError, match="mine"):
        run(problem, store, on_progress=report)


def test_what_is_done_to_what_is_told_is_nothing_to_the_search(problem: Problem, store: Store) -> None:
    def report(progress: Progress) -> None:
        for one in filter(None, (progress.best, progress.trial)):
            one.configuration["WG"] = 99  # type: ignore[index]

    result = run(problem, store, on_progress=report)
    assert result.best is not None
    assert result.best.configuration == {"WPT": 4, "WG": 32, "FAST": 0}


class Better(ReplayEvaluator):
    """Measures the finalists again: the second one is now faster, by a little."""

    def retime(
        self, configurations: Sequence[Configuration], budget_s: float = 0.0, stop: threading.Event | None = None
    ) -> Sequence[Measurement]:
        measured = [Measurement((1000, 1001, 1002, 1003, 1004, 1005))] * len(configurations)
        measured[1] = Measurement((1003, 1004, 999, 1000, 1001, 1002))
        return measured


def test_the_winner_is_named_after_retiming_and_ties_are_told(problem: Problem, store: Store) -> None:
    result = run(problem, store, Better(recorded(problem)))
    assert result.best.configuration == {"WPT": 4, "WG": 32, "FAST": 1}
    assert len(result.ties) == 2
    assert result.default.retimed is not None
    assert result.best.time_ns == 1001.5


class Timed(ReplayEvaluator):
    """Records the seconds that the finalists get."""

    given_s = 0.0

    def retime(
        self, configurations: Sequence[Configuration], budget_s: float = 0.0, stop: threading.Event | None = None
    ) -> Sequence[Measurement | Trial | None]:
        self.given_s = budget_s
        return super().retime(configurations, budget_s, stop)


@pytest.mark.parametrize("seconds", [None, 40.0])
def test_finalists_have_what_is_left_of_the_time(problem: Problem, store: Store, seconds: float | None) -> None:
    evaluator = Timed(recorded(problem))
    result = run(problem, store, evaluator, budget=Budget(seconds=seconds))
    assert result.reason == "space exhausted"
    assert evaluator.given_s == loop.RETIME_S


def test_a_time_limit_alone_is_no_estimate_of_what_trials_take(problem: Problem, store: Store) -> None:
    seen: list[Progress] = []
    run(problem, store, budget=Budget(trials=3, seconds=3600), on_progress=seen.append)
    first, second = [progress.left_s for progress in seen if progress.phase == SEARCH][:2]
    assert first is None
    assert second is not None
    assert second < 3600


def test_progress_is_told_after_each_trial(problem: Problem, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Progress] = []
    told, tell = list[Trial](), Proposer.tell
    monkeypatch.setattr(Proposer, "tell", lambda self, trial: told.append(trial) or tell(self, trial))
    evaluator = ReplayEvaluator(recorded(problem, [Outcome.TIMEOUT]))
    run(problem, store, evaluator, budget=Budget(trials=24), on_progress=seen.append)
    during = [one for one in seen if one.phase == "search"]
    assert [one.done for one in during] == list(range(1, 25))
    assert (during[0].rate, during[0].left_s) == (0.0, None), "the start says nothing of what is to come"
    assert during[1].left_s == pytest.approx(22 / during[1].rate)
    assert during[-1].total == 24
    assert during[-1].failures == {Outcome.TIMEOUT: 1}
    assert during[-1].best is not None
    assert told == [one.trial for one in during], "and so is what proposes"


def test_what_is_stored_is_looked_at_once(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often a search asks what is the best of it: tens of thousands of trials may be."""
    looked: list[int] = []
    events = finale._events
    monkeypatch.setattr(finale, "_events", lambda place, *rest: looked.append(place) or events(place, *rest))
    first, second, *rest = recorded(problem)
    history = ours(problem, rest)
    ledger = Ledger(None, 1, problem, recall(problem, history), history)
    assert ledger.best() is ledger.passed()[0]
    history.append(first)
    ledger.history.append(second)
    assert len(ledger.passed()) == len(rest) + 2
    assert looked == list(range(len(rest) + 2))


def test_recall_keeps_the_latest_of_each_configuration(problem: Problem) -> None:
    timeout = Trial(problem.default, Outcome.TIMEOUT)
    passed = Trial(problem.default, Outcome.OK, measurement=Measurement((5,)))
    assert recall(problem, ours(problem, [timeout]), retry_failed=False) == []
    assert recall(problem, ours(problem, [timeout, timeout]), retry_failed=False) == [timeout]
    assert recall(problem, ours(problem, [timeout, passed]), retry_failed=False) == [passed]
    assert recall(problem, ours(problem, [passed, timeout]), retry_failed=False) == []
    assert recall(problem, ours(problem, [Trial(problem.default, Outcome.COMPILE_ERROR)]), retry_failed=True) == []
    wrong = Trial(problem.default, Outcome.WRONG_RESULT)
    assert recall(problem, ours(problem, [wrong, timeout]), retry_failed=True) == [timeout]
    assert recall(problem, ours(problem, [replace(passed, retimed=Measurement((0,)))])) == []
    other = {**problem.default, "WPT": 8}
    slower, quicker = (Trial(other, Outcome.STOPPED, measurement=Measurement((ns,))) for ns in (6, 4))
    assert recall(problem, ours(problem, [passed, slower])) == [passed, slower]
    assert recall(problem, ours(problem, [passed, quicker])) == [passed]


def test_what_tells_no_driver_is_of_another_as_for_look_ups(problem: Problem, store: Store) -> None:
    search = store.start_search(problem.key, replace(GENERIC_DEVICE, index=0), sampler="random", seed=1)
    best = min(recorded(problem), key=lambda trial: trial.time_ns)
    store.finish([(store.begin(search, [best.configuration])[0], best)])
    here = Problem(problem.study, device=replace(GENERIC_DEVICE, index=0, driver="550.1"))
    result = run(here, store)
    assert (result.reused, result.trials) == (0, len(here.space))
    assert result.best.retimed is not None


@pytest.mark.parametrize("samples", [(0, 0, 9), ()])
def test_what_passed_in_no_time_is_tried_again(problem: Problem, store: Store, samples: tuple[int, ...]) -> None:
    search = store.start_search(problem.key, GENERIC_DEVICE, sampler="random", seed=1)
    for trial in recorded(problem)[:3]:
        told = replace(trial, measurement=Measurement(samples))
        store.finish([(store.begin(search, [trial.configuration])[0], told)])
    assert (result := run(problem, store)).reused == 0
    assert result.trials == len(problem.space)


def test_of_what_others_found_the_fastest_come_first_and_what_has_no_time_does_not(problem: Problem) -> None:
    by_time = sorted(recorded(problem), key=lambda trial: -trial.time_ns)
    told = [replace(trial, measurement=None) if place % 2 else trial for place, trial in enumerate(by_time)]
    timed = [trial.configuration for trial in reversed(told) if trial.measurement is not None]
    at_once = Measurement((1,))
    elsewhere = Trial({**problem.default, "WPT": 999}, Outcome.OK, measurement=at_once)
    stopped = Trial(timed[-1], Outcome.STOPPED, measurement=at_once)
    assert imported_best(problem, [elsewhere, stopped, *told]) == timed[:IMPORTED_FIRST]


@pytest.mark.parametrize("cold", [False, True])
def test_a_cold_search_hears_of_nothing_from_elsewhere(
    problem: Problem, store: Store, monkeypatch: pytest.MonkeyPatch, cold: bool
) -> None:
    run(Problem(problem.study, {"N": 100}), store, budget=Budget(trials=1))
    foreign = replace(recorded(problem)[-1], origin={"format": "ktt", "file": "a.json", "entry": "{}"})
    store.adopt(problem.key, None, [foreign], {"format": "ktt", "file": "a.json"})
    donors: list[int] = []

    def proposer(space: Space, sampler: str, seed: int, prior: Sequence[Sequence[Trial]]) -> Proposer:
        donors.append(len(prior))
        return Proposer(space, sampler, seed, prior)

    monkeypatch.setattr(samplers, "Proposer", proposer)
    result = run(problem, store, budget=Budget(trials=2), cold=cold)
    tried = [{name: row[name] for name in foreign.configuration} for row in result.trials()]
    assert (donors, foreign.configuration in tried) == (([0], False) if cold else ([2], True))


@pytest.mark.parametrize(("vendor", "again"), [("NVIDIA Corporation", True), ("Intel", False)])
def test_what_was_refused_by_an_understated_limit_is_tried_again(vendor: str, again: bool) -> None:
    problem = Problem(study(), device=replace(GENERIC_DEVICE, vendor=vendor))
    refused = Trial(problem.default, Outcome.LAUNCH_ERROR, reason=too_large(512, "saxpy", 256))
    real = Trial(problem.default, Outcome.LAUNCH_ERROR, reason="saxpy: clEnqueueNDRangeKernel failed")
    assert recall(problem, ours(problem, [refused] * 3)) == ([] if again else [refused])
    assert recall(problem, ours(problem, [refused, real])) == ([] if again else [real])
    assert recall(problem, ours(problem, [real, real])) == [real]


@pytest.mark.parametrize(
    ("budget", "builders", "trial_s", "patience_s", "expected"),
    [
        (Budget(trials=1), 1, math.inf, 16, 1),
        (Budget(seconds=40.0), None, 0.4, 4, 32),
        (Budget(seconds=600.0), None, 6, 16, 32),
        (Budget(trials=1, seconds=1.0), 1, 0.2, 0.1, 1),
        (Budget(), None, math.inf, 16, 32),  # the whole space
        (Budget(seconds=2.0), None, 0.2, 0.2, 20),
        (Budget(seconds=1e308), None, 1e306, 16, 32),
    ],
)
def test_a_short_search_starts_fewer_builders_and_samples_for_less(
    problem: Problem, budget: Budget, builders: int | None, trial_s: float, patience_s: float, expected: int
) -> None:
    found = within_budget(Request(problem, budget=budget))
    assert (found.builders, found.trials) == (builders, expected)
    assert (found.rules.trial_s, found.rules.patience_s) == pytest.approx((trial_s, patience_s))
    assert [within_budget(Request(problem, sampler=name)).learns for name in ("bayes", "random")] == [True, False]
    asked = Request(problem, budget=budget, settings=Settings(builders=3, rules=Rules(trial_s=0.1)))
    assert (within_budget(asked).builders, within_budget(asked).rules.trial_s) == (3, 0.1)


def test_printed_they_say_in_a_line_where_a_search_stands_and_what_it_found(problem: Problem, store: Store) -> None:
    said: list[str] = []
    result = run(problem, store, budget=Budget(trials=3), on_progress=lambda one: said.append(str(one)))
    assert result.best is not None
    best = " ".join(f"{name}={value}" for name, value in result.best.configuration.items())
    assert any(line.startswith(f"{SEARCH}: 3 of 3 trials, best 1.") and best in line for line in said)
    assert str(result) == f"saxpy: 3 new trials ({result.reason}), best {time(result.best.time_ns)}: {best}"
    crash = {"outcome": Outcome.CRASH, "reason": "a\nfault", "measurement": None}
    broken = ReplayEvaluator([replace(one, **crash) for one in recorded(problem)])
    nothing = run(problem, store, broken, budget=Budget(trials=1), fresh=True)
    assert str(nothing) == f"saxpy: 1 new trial ({nothing.reason}), nothing passed, crash: a fault"
