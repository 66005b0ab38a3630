"""What is named best has been timed again, and what fails then is no result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from autotune.model import Configuration, Identity, Measurement, Outcome, Trial, identity
from autotune.ranking import FINALISTS
from autotune.store import Store
from autotune.study import Problem
from autotune.tuner import loop
from autotune.tuner.replay import ReplayEvaluator
from autotune.tuner.result import Budget, Result


def ranked(problem: Problem) -> list[Trial]:
    """Every configuration, the first the fastest, each 1 % slower than the one before."""
    configurations = [problem.space.configuration(row) for row in range(len(problem.space))]
    return [
        Trial(configuration, Outcome.OK, measurement=Measurement((1000 + 10 * place,) * 5))
        for place, configuration in enumerate(configurations)
    ]


class Finals(ReplayEvaluator):
    """Fails some configurations when they are timed again; notes which ones were."""

    def __init__(self, trials: Sequence[Trial], failing: Sequence[Trial] = ()) -> None:
        super().__init__(trials)
        self.failing = {identity(trial.configuration) for trial in failing}
        self.rounds: list[list[Identity]] = []

    def retime(
        self, configurations: Sequence[Configuration], budget_s: float = 0.0
    ) -> Sequence[Measurement | Trial | None]:
        self.rounds.append([identity(one) for one in configurations])
        return [
            Trial(one, Outcome.CRASH, reason="gone") if identity(one) in self.failing else measured
            for one, measured in zip(configurations, super().retime(configurations), strict=True)
        ]


def search(problem: Problem, store: Store, evaluator: ReplayEvaluator) -> Result:
    return loop.run(problem, evaluator, store, sampler="random", seed=1, budget=Budget())


def test_a_finalist_that_fails_is_a_failed_trial_and_not_the_best(problem: Problem, store: Store) -> None:
    trials = ranked(problem)
    result = search(problem, store, Finals(trials, failing=trials[:1]))
    assert result.best is not None
    assert result.best.configuration == trials[1].configuration
    assert dict(result.failures) == {Outcome.CRASH: 1}
    first, last = [one for one in store.trials(problem.key) if one.configuration == trials[0].configuration]
    assert (first.outcome, last.outcome, last.reason) == (Outcome.OK, Outcome.CRASH, "gone")


def test_nothing_is_named_that_was_not_timed_again(problem: Problem, store: Store) -> None:
    trials = ranked(problem)
    evaluator = Finals(trials, failing=trials[: FINALISTS + 2])
    result = search(problem, store, evaluator)
    assert result.best is not None
    assert result.best.configuration == trials[FINALISTS + 2].configuration
    assert result.best.retimed is not None
    assert len(evaluator.rounds) == 2


def test_where_all_fail_there_is_no_best(problem: Problem, store: Store) -> None:
    trials = ranked(problem)
    result = search(problem, store, Finals(trials, failing=trials))
    assert result.best is None
    assert result.failures == {Outcome.CRASH: len(trials)}


def test_one_alone_is_timed_again_too(problem: Problem, store: Store) -> None:
    only, *others = ranked(problem)
    evaluator = Finals([only, *(replace(other, outcome=Outcome.CRASH, measurement=None) for other in others)])
    result = search(problem, store, evaluator)
    assert evaluator.rounds == [[identity(only.configuration)]]
    assert result.best is not None
    assert result.best.retimed is not None


class Interrupted(Finals):
    def retime(
        self, configurations: Sequence[Configuration], budget_s: float = 0.0
    ) -> Sequence[Measurement | Trial | None]:
        raise KeyboardInterrupt


def test_finalists_that_an_interrupted_search_left_are_timed_by_the_next_and_only_once(
    problem: Problem, store: Store
) -> None:
    assert search(problem, store, Interrupted(ranked(problem))).reason == "interrupted"
    evaluator = Finals(ranked(problem))
    for _ in range(2):
        result = search(problem, store, evaluator)
        assert result.trials == 0
        assert len(evaluator.rounds) == 1
        assert result.best is not None
        assert result.best.retimed is not None


class InterruptedLater(Finals):
    def retime(
        self, configurations: Sequence[Configuration], budget_s: float = 0.0
    ) -> Sequence[Measurement | Trial | None]:
        if self.rounds:
            raise KeyboardInterrupt
        return super().retime(configurations, budget_s)


def test_what_failed_before_an_interruption_is_not_named(problem: Problem, store: Store) -> None:
    trials = ranked(problem)
    result = search(problem, store, InterruptedLater(trials, failing=trials[: FINALISTS + 1]))
    assert result.reason == "interrupted"
    assert result.best is not None
    assert result.best.configuration == trials[FINALISTS].configuration


class Bounded(Finals):
    """Stops what is slower than the best so far, as a device does."""

    best_ns: float | None = None

    def __init__(self, trials: Sequence[Trial], failing: Sequence[Trial]) -> None:
        super().__init__(trials, failing)
        self.tried: Counter[Identity] = Counter()

    def collect(self, timeout_s: float | None = None) -> Trial:
        trial = super().collect()
        self.tried[identity(trial.configuration)] += 1
        slower = self.best_ns is not None and trial.time_ns > self.best_ns
        if slower:
            return replace(trial, outcome=Outcome.STOPPED)
        self.best_ns = trial.time_ns
        return trial


@pytest.mark.parametrize(("step", "failing", "tries"), [(1, 1, 2), (1, 2, 3), (-1, 1, 1)])
def test_what_was_stopped_for_one_that_failed_is_measured_again(
    problem: Problem, store: Store, step: int, failing: int, tries: int
) -> None:
    trials = ranked(problem)
    evaluator = Bounded(trials, failing=trials[:failing])
    starts = [trial.configuration for trial in trials[::step]]
    result = loop.run(problem, evaluator, store, sampler="random", seed=1, budget=Budget(), start=starts)
    assert result.best is not None
    assert result.best.configuration == trials[failing].configuration
    assert result.best.retimed is not None
    assert max(evaluator.tried.values()) == tries
    assert not [row for row in store.history() if row.trial.outcome is Outcome.PENDING]
