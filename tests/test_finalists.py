"""Who is fastest, who is timed again, and who ties."""

from __future__ import annotations

from autotune.model import Measurement, Outcome, Trial
from autotune.ranking import FINALISTS
from autotune.tuner.finalists import fastest, finalists, ties


def trial(first: int, again: int | None = None, outcome: Outcome = Outcome.OK) -> Trial:
    retimed = None if again is None else Measurement((again - 1, again, again + 1))
    return Trial({"X": first}, outcome, measurement=Measurement((first,)), retimed=retimed)


def test_retimed_trials_are_ranked_among_themselves() -> None:
    slower_when_warm = [trial(100, 120), trial(105, 110)]
    assert fastest([*slower_when_warm, trial(104)]) == slower_when_warm[1]
    assert fastest([*slower_when_warm, trial(99)]) == trial(99)
    assert fastest([trial(7), trial(6)]) == trial(6)
    assert fastest([trial(7), trial(6, outcome=Outcome.STOPPED)]) == trial(7)
    assert fastest([]) is None


def test_finalists_are_few_and_close_to_the_fastest() -> None:
    close = [trial(1000 + number) for number in range(FINALISTS + 2)]
    assert finalists([trial(1060), *reversed(close)]) == close[:FINALISTS]
    assert finalists([trial(1060), trial(1000)]) == [trial(1000)]


def test_finalists_fit_the_time_there_is_but_are_two() -> None:
    second = 10**9
    close = [trial(second + number) for number in range(4)]
    assert finalists(close, 9.1) == close[:3]
    assert finalists(close, 0.0) == close[:2]
    assert finalists(close[:1], 0.0) == close[:1]


def test_ties_overlap_the_best_when_timed_again() -> None:
    best, close, far, once = trial(1, 100), trial(2, 102), trial(3, 103), trial(4)
    assert ties(best, [best, close, far, once]) == (close,)
    assert ties(once, [best, once]) == ()
    assert ties(None, [best]) == ()
