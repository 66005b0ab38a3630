"""What every Evaluator does: inherit `EvaluatorContract` and give the fixtures it asks for."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

from autotune.model import Configuration, Measurement, Outcome, Trial, identity
from autotune.pool import Evaluator


class EvaluatorContract:
    """Asks for the fixtures `evaluator`, `passing` (two configurations at least) and `failing` (one)."""

    def test_its_methods_are_those_of_the_protocol(self, evaluator: Evaluator) -> None:
        for name, method in vars(Evaluator).items():
            if inspect.isfunction(method) and not name.startswith("_"):
                own = inspect.signature(getattr(type(evaluator), name)).parameters
                assert own == inspect.signature(method).parameters
        assert {name for name in Evaluator.__annotations__ if not hasattr(evaluator, name)} == set()

    def test_what_is_submitted_is_collected_once_with_its_outcome_and_bounds_what_follows(
        self, evaluator: Evaluator, passing: Sequence[Configuration], failing: Configuration
    ) -> None:
        evaluator.best_ns = None
        for configuration in (*passing, failing):
            evaluator.submit(configuration)
        trials = {identity(trial.configuration): trial for trial in (evaluator.collect() for _ in (*passing, failing))}
        assert trials.pop(identity(failing)).outcome.failed
        assert set(trials) == {identity(configuration) for configuration in passing}
        assert {trial.outcome for trial in trials.values()} <= {Outcome.OK, Outcome.STOPPED}
        assert evaluator.best_ns == min(trial.bounding_ns for trial in trials.values() if trial.outcome is Outcome.OK)
        assert evaluator.ready == 0, "nothing is in flight"

    def test_what_is_withdrawn_is_not_collected(self, evaluator: Evaluator, passing: Sequence[Configuration]) -> None:
        evaluator.best_ns = 1.0
        for configuration in passing:
            evaluator.submit(configuration)
        assert list(evaluator.withdraw(leave=len(passing))) == []
        withdrawn = [identity(configuration) for configuration in evaluator.withdraw()]
        collected = [identity(evaluator.collect().configuration) for _ in passing[len(withdrawn) :]]
        assert sorted([*withdrawn, *collected]) == sorted(map(identity, passing))
        assert list(evaluator.withdraw()) == []
        assert evaluator.best_ns == 1.0, "no trial is faster"

    def test_finalists_are_answered_in_order(
        self, evaluator: Evaluator, passing: Sequence[Configuration], failing: Configuration
    ) -> None:
        first, broken, *others = evaluator.retime([passing[0], failing, *passing[1:]], 0.1)
        assert isinstance(broken, Trial)
        assert (broken.configuration, broken.outcome.failed) == (failing, True)
        assert all(isinstance(answer, Measurement) and answer.samples_ns for answer in (first, *others))

    def test_usage_says_where_the_time_went(self, evaluator: Evaluator) -> None:
        usage = evaluator.usage()
        assert set(usage) >= {"build", "verify", "time", "finalists", "idle"}
        assert min(usage.values()) >= 0
