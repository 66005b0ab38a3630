"""The best has been timed again, and a configuration that fails then is not a result."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import pytest

from autotune import text, tuner
from autotune.cli.result import enqueuing_text
from autotune.model import PACE, Configuration, Identity, Measurement, Outcome, Trial, identity
from autotune.pool import Stopped
from autotune.ranking import FINALISTS
from autotune.reports import result_json, trial_json
from autotune.store import Store
from autotune.study import Problem
from autotune.tuner import Budget, ReplayEvaluator, Request, Result, fastest
from autotune.tuner.finale import MOST_FINALISTS, earlier_finalists, finalists, ties
from autotune.tuner.finale import ranked as ranked_trials

Stop = threading.Event | None
Answers = Sequence[Measurement | Trial | None]


def ranked(problem: Problem) -> list[Trial]:
    """Return every configuration, the first the fastest, each 1 % slower than the one before."""
    configurations = [problem.space.configuration(row) for row in range(len(problem.space))]
    return [
        Trial(configuration, Outcome.OK, measurement=Measurement((1000 + 10 * place,) * 5))
        for place, configuration in enumerate(configurations)
    ]


class Finals(ReplayEvaluator):
    """Fails some configurations when they are timed again, and records which ones were.

    `before` is called with it and `stop` before a round; `anew` gives measurements that replace the recorded ones.
    """

    def __init__(
        self,
        trials: Sequence[Trial],
        failing: Sequence[Trial] = (),
        before: Callable[[Finals, Stop], object] = lambda finals, stop: None,
        anew: Callable[[Measurement], Measurement] = lambda measured: measured,
    ) -> None:
        super().__init__(trials)
        self.before, self.anew = before, anew
        self.failing = {identity(trial.configuration) for trial in failing}
        self.rounds: list[list[Identity]] = []
        self.bounds: list[float | None] = []

    def retime(self, configurations: Sequence[Configuration], budget_s: float = 0.0, stop: Stop = None) -> Answers:
        self.before(self, stop)
        self.rounds.append([identity(one) for one in configurations])
        self.bounds.append(self.best_ns)
        return [
            Trial(one, Outcome.CRASH, reason="gone") if identity(one) in self.failing
            else self.anew(measured) if isinstance(measured, Measurement) else measured
            for one, measured in zip(configurations, super().retime(configurations), strict=True)
        ]  # fmt: skip


def search(
    problem: Problem, store: Store, evaluator: ReplayEvaluator, start: Sequence[Configuration] = (), stop: Stop = None
) -> Result:
    request = Request(problem, database=store.where, sampler="random", seed=1, budget=Budget(), start=start)
    return tuner.run(request, stop, evaluator=evaluator)


def test_finalists_are_timed_as_the_fastest_of_them_calls_for(problem: Problem, store: Store) -> None:
    slow = Measurement((90_000,) * 5)
    default = problem.default
    trials = [replace(one, measurement=slow) if one.configuration == default else one for one in ranked(problem)]
    evaluator = Finals(trials)
    search(problem, store, evaluator)
    assert identity(default) in evaluator.rounds[0]
    assert evaluator.bounds == [min(one.time_ns for one in trials)]


def test_a_finalist_that_fails_is_a_failed_trial_and_not_the_best(problem: Problem, store: Store) -> None:
    trials = ranked(problem)
    result = search(problem, store, Finals(trials, failing=trials[:1]))
    assert result.best.configuration == trials[1].configuration
    assert dict(result.failures) == {Outcome.CRASH: 1}
    first, last = [one for one in store.trials(problem.key) if one.configuration == trials[0].configuration]
    assert (first.outcome, last.outcome, last.reason) == (Outcome.OK, Outcome.CRASH, "gone")


def test_nothing_is_named_that_was_not_timed_again(problem: Problem, store: Store) -> None:
    trials = ranked(problem)
    evaluator = Finals(trials, failing=trials[: FINALISTS + 2])
    result = search(problem, store, evaluator)
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
    assert result.best.retimed is not None


def interrupted(finals: Finals, _: Stop) -> None:
    raise KeyboardInterrupt


def test_finalists_that_an_interrupted_search_left_are_timed_by_the_next_and_only_once(
    problem: Problem, store: Store
) -> None:
    assert search(problem, store, Finals(ranked(problem), before=interrupted)).reason == "interrupted"
    evaluator = Finals(ranked(problem))
    for _ in range(2):
        result = search(problem, store, evaluator)
        assert result.trials == 0
        assert len(evaluator.rounds) == 1
        assert result.best.retimed is not None


def stopped(_: Finals, stop: Stop) -> None:
    assert stop is not None
    stop.set()
    raise Stopped


def test_who_sets_stop_ends_a_search_among_its_finalists(problem: Problem, store: Store) -> None:
    stop = threading.Event()
    result = search(problem, store, Finals(ranked(problem), before=stopped), stop=stop)
    assert result.reason == "interrupted"
    assert result.best is not None
    assert result.trials == len(problem.space)


def interrupted_later(finals: Finals, _: Stop) -> None:
    if finals.rounds:
        raise KeyboardInterrupt


def test_what_failed_before_an_interruption_is_not_named(problem: Problem, store: Store) -> None:
    trials = ranked(problem)
    result = search(problem, store, Finals(trials, trials[: FINALISTS + 1], before=interrupted_later))
    assert result.reason == "interrupted"
    assert result.best.configuration == trials[FINALISTS].configuration


class Bounded(Finals):
    """Stops configurations that are slower than the best so far, as a device does."""

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
    result = search(problem, store, evaluator, starts)
    assert result.best.configuration == trials[failing].configuration
    assert result.best.retimed is not None
    assert max(evaluator.tried.values()) == tries
    assert not [row for row in store.history() if row.trial.outcome is Outcome.PENDING]


def test_a_guess_of_the_pace_keeps_nothing_from_being_measured_again(problem: Problem, store: Store) -> None:
    failing, guessed, stopped, *others = ranked(problem)
    guessed = replace(guessed, measurement=Measurement((3000,) * 5), environment={PACE: 2.0})
    stopped = replace(stopped, measurement=Measurement((2000,) * 5))
    others = [replace(one, measurement=Measurement((5000,) * 5)) for one in others]
    evaluator = Bounded([failing, guessed, stopped, *others], failing=[failing])
    result = search(problem, store, evaluator, [one.configuration for one in (guessed, failing, stopped)])
    assert result.best is not None
    assert result.best.configuration == stopped.configuration


# Who is fastest, who is timed again, who ties -----------------------------------------------------------------


def trial(first: int, again: int | None = None, outcome: Outcome = Outcome.OK, taken: str = "1") -> Trial:
    retimed = None if again is None else Measurement((again - 1, again, again + 1), taken=taken)
    return Trial({"X": first}, outcome, measurement=Measurement((first,)), retimed=retimed)


def test_retimed_trials_are_ranked_among_themselves() -> None:
    slower_when_warm = [trial(100, 120), trial(105, 110)]
    assert fastest([*slower_when_warm, trial(104)]) == slower_when_warm[1]
    assert fastest([*slower_when_warm, trial(99)]) == trial(99)
    assert fastest([trial(7), trial(6)]) == trial(6)
    assert fastest([trial(7), trial(6, outcome=Outcome.STOPPED)]) == trial(7)
    assert fastest([]) is None


def test_times_of_two_drivers_are_not_compared() -> None:
    old, new, untold = replace(trial(5), driver="1.0"), replace(trial(9), driver="2.0"), trial(8)
    assert ranked_trials([old, new, untold], "2.0") == [untold, new]
    assert ranked_trials([old, new, untold], "1.0") == [old, untold]
    assert ranked_trials([new, old], "3.0") == [old]  # that of the driver that was last


def test_finalists_are_few_and_close_to_the_fastest() -> None:
    close = [trial(1000 + number) for number in range(FINALISTS + 2)]
    assert finalists([trial(1060), *reversed(close)]) == close[:FINALISTS]
    assert finalists([trial(1060), trial(1000)]) == [trial(1000)]
    settling = [replace(one, environment={"settle_s": 0.2}) for one in close]  # .9 s each
    assert finalists(settling, 3.0) == settling[:3]


def test_of_what_was_timed_again_the_few_near_the_best_are_so_once_more() -> None:
    passed = [trial(99), trial(100, 1000), trial(90, 1050), trial(80, 1051)]
    assert earlier_finalists(passed) == passed[1:3]
    assert len(earlier_finalists(passed[1:2] * (FINALISTS + 1))) == FINALISTS


def test_finalists_fit_the_time_there_is_but_are_two() -> None:
    second = 10**9
    close = [trial(second + number) for number in range(4)]
    assert finalists(close, 9.1) == close[:3]
    assert finalists(close, 0.0) == close[:2]
    assert finalists(close[:1], 0.0) == close[:1]


def test_ties_may_be_as_fast_as_the_best_when_timed_again_in_turns() -> None:
    best, once, elsewhere = trial(1, 100), trial(4), trial(5, 101, taken="2")
    close = replace(trial(2, 100), retimed=Measurement((102, 99, 103), taken="1"))
    slower = trial(3, 101)  # in each of their pairs, though their intervals meet
    assert ties(best, [best, close, slower, once, elsewhere]) == (close,)
    assert ties(once, [best, once]) == ()
    assert ties(None, [best]) == ()


def test_what_its_interval_leaves_in_doubt_is_a_finalist_too(problem: Problem) -> None:
    leader, *rest = ranked(problem)
    wide = replace(rest[-1], measurement=Measurement((900, 950, 1400, 1500, 1600)))
    assert wide in finalists([leader, wide])
    assert rest[-1] not in finalists([leader, rest[-1]])


def test_what_may_be_slower_than_its_pace_says_leaves_others_in_doubt(problem: Problem) -> None:
    trials = ranked(problem)
    slow = replace(trials[-1], measurement=Measurement((1800,) * 5), environment={PACE: 2.0})
    chosen = finalists([*trials, slow])
    assert chosen == [slow, *trials[: MOST_FINALISTS - 1]]


def test_what_took_least_is_a_finalist_at_any_pace() -> None:
    slowed = [
        replace(trial(number), measurement=Measurement((1500 + number,) * 5), environment={PACE: 2.0})
        for number in range(MOST_FINALISTS)
    ]
    assert finalists([trial(1000), *slowed]) == [*slowed, trial(1000)]


def test_a_result_says_where_the_machine_was_too_noisy_to_rank(problem: Problem, store: Store) -> None:
    quiet = search(problem, store, Finals(ranked(problem)))
    assert quiet.is_ranked
    assert quiet.best is not None
    noisy = replace(quiet.best, retimed=Measurement(tuple(range(1000, 1500, 20)), taken="1"))
    assert not replace(quiet, best=noisy, ties=(replace(noisy, configuration={}),)).is_ranked
    assert replace(quiet, best=noisy, ties=()).is_ranked


def noisy(_: Measurement) -> Measurement:
    """As fast as all others, with times that vary by a fifth."""
    return Measurement(tuple(range(1000, 1240, 12)))


def test_what_noise_kept_from_being_ranked_is_timed_anew_by_the_next_search(problem: Problem, store: Store) -> None:
    assert not search(problem, store, Finals(ranked(problem), anew=noisy)).is_ranked
    evaluator = Finals(ranked(problem))
    result = search(problem, store, evaluator)
    assert (result.trials, len(evaluator.rounds), result.is_ranked) == (0, 1, True)


def test_what_a_throttled_device_timed_is_timed_anew_by_the_next_search(problem: Problem, store: Store) -> None:
    throttled = partial(replace, verified_runs=3, throttled="hw_slowdown")
    hot = search(problem, store, Finals(ranked(problem), anew=throttled))
    assert hot.best.throttled == "hw_slowdown"
    for rounds in (1, 0):
        evaluator = Finals(ranked(problem), anew=partial(replace, verified_runs=3))
        found = search(problem, store, evaluator)
        assert (found.trials, len(evaluator.rounds), found.best.throttled) == (0, rounds, "")


def slower(trials: Sequence[Trial], pace: float) -> list[Trial]:
    """The same configuration on another day."""
    return [replace(one, measurement=Measurement((round(one.time_ns * pace),) * 5)) for one in trials]


@pytest.mark.parametrize("pace", [1.06, 0.8])
def test_what_an_earlier_search_timed_again_is_not_named_by_that_day_s_pace(
    problem: Problem, store: Store, pace: float
) -> None:
    trials = ranked(problem)
    quick, rival, newcomer = (one.configuration for one in (trials[1], trials[2], trials[0]))
    budget = Budget(trials=3)  # the default first
    first = Request(problem, database=store.where, sampler="random", seed=1, budget=budget, start=[quick, rival])
    tuner.run(first, evaluator=Finals(trials))
    today = Finals(slower(trials, pace))
    result = tuner.run(replace(first, budget=Budget(trials=1), start=[newcomer]), evaluator=today)
    assert result.best.configuration == newcomer
    assert {identity(quick), identity(rival)} <= set(today.rounds[0])


def test_what_is_faster_than_an_earlier_search_s_best_is_found_on_a_slower_day(problem: Problem, store: Store) -> None:
    newcomer, quick, *_ = trials = ranked(problem)
    budget = Budget(trials=2)  # the default first
    first = Request(problem, database=store.where, sampler="random", seed=1, budget=budget, start=[quick.configuration])
    tuner.run(first, evaluator=Bounded(trials, failing=()))
    today = Bounded(slower(trials, 1.2), failing=())
    result = tuner.run(replace(first, budget=Budget(trials=1), start=[newcomer.configuration]), evaluator=today)
    assert [row["outcome"] for row in result.trials()] == ["ok"]
    assert result.best.configuration == newcomer.configuration
    after = Bounded(trials, failing=())
    tuner.run(replace(first, budget=Budget(seconds=1e-9)), evaluator=after)
    assert after.rounds == []  # they were timed together


def test_a_gain_is_told_of_times_taken_in_the_same_turns_only(problem: Problem, store: Store) -> None:
    default, best = problem.default, ranked(problem)[0].configuration
    assert default != best
    budget = Budget(trials=2)
    request = Request(problem, database=store.where, sampler="random", seed=1, budget=budget, start=[default, best])
    result = tuner.run(request, evaluator=Finals(ranked(problem)))
    assert result.gain[0] > 1
    told = result_json(result)
    assert (told["speedup"], *told["speedup_interval"]) == result.gain
    assert told["speedup_confidence"] == result.confidence
    again = tuner.run(replace(request, budget=Budget(trials=1)), evaluator=Finals(ranked(problem)))
    assert again.gain is not None  # nothing has changed: what was stored of it says it
    store.retime(1, [(default, Measurement((1500, 1500, 1500)))])
    (slow,) = [one for one in store.trials(problem.key) if one.configuration == default]
    assert replace(again, default=slow).gain is None
    assert result_json(replace(again, default=slow))["speedup"] is None


def test_a_host_that_takes_longer_to_enqueue_a_run_than_the_device_has_it_is_named(problem: Problem) -> None:
    def said(ns: int, **environment: str | float) -> str:
        trial = Trial(problem.default, Outcome.OK, measurement=Measurement((ns,)), environment=environment)
        return enqueuing_text(trial_json(problem, trial) or {})

    launches = len(problem.plan(problem.default).sequence)
    assert said(7999 * launches, enqueue_ns=8000).startswith(
        f"Python took {text.time(8000 * launches)} to enqueue a run"
    )
    assert said(8000 * launches, enqueue_ns=8000) == said(5) == said(5, enqueue_ns="9e9") == ""
    assert said(5, enqueue_ns=math.inf) == ""  # as somebody may have stored it
