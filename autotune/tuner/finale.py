"""The end of a search: the fastest trials are timed again, until one of them is the best and has not failed."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from autotune.identity import digest
from autotune.model import SETTLE, Identity, Outcome, Trial, identity, in_turns
from autotune.ranking import (
    FAILED,
    FINALIST_MARGIN,
    FINALISTS,
    MEASURED,
    RETIMED,
    WRONG,
    Event,
    may_be_as_fast,
    median_interval,
    rank,
)
from autotune.text import clean

if TYPE_CHECKING:
    from autotune.pool import Evaluator
    from autotune.tuner.loop import Ledger


MOST_FINALISTS = 8
"""The most finalists, if their intervals leave it open which of them is the fastest."""

ANOTHER_DAY = 1.35
"""Factor on a time of an earlier search when it bounds this search. The machine may be slower today: a configuration
that is faster than the earlier best must not be stopped even then, and must become a finalist. Times of this search
bound it without this factor."""


@dataclass
class Finale:
    """Finds the best of a search's trials, and updates the trials in the ledger with their new times and failures.

    `collect` waits for a trial; `report` is called with the current phase. If `stop` is set, Stopped is raised, and
    trials in flight stay in flight.
    """

    evaluator: Evaluator
    ledger: Ledger
    collect: Callable[[], Trial]
    report: Callable[[str], None]
    stop: threading.Event
    budget_s: float
    _retimed: set[Identity] = field(default_factory=set)
    _measured: set[Identity] = field(default_factory=set)
    _failed: bool = False

    def settle(self) -> Trial | None:
        """Return the best, timed again if that was possible, or None if nothing passed."""
        while self._round() or self._measure_overlooked():
            pass
        return self.ledger.best()

    def _round(self) -> bool:
        """Time the fastest again, interleaved; return False if this is not needed any more.

        If a finalist fails, the best may be a trial that was not timed again yet: then there is one more round.
        """
        best, chosen = self.ledger.best(), self._chosen()
        if best is None or self._is_known(best, chosen):
            return False
        self.report("re-timing the finalists")
        self._retimed.update(identity(trial.configuration) for trial in chosen)
        self.evaluator.best_ns = min(trial.paced_ns for trial in chosen)
        answers = self.evaluator.retime([trial.configuration for trial in chosen], self.budget_s, self.stop)
        if any(isinstance(answer, Trial) for answer in answers):
            self._failed = True
            self._measured.clear()  # trials measured again may have been stopped again because of it
        self.ledger.retime(chosen, answers)
        return True

    def _is_known(self, best: Trial, chosen: Sequence[Trial]) -> bool:
        """Say whether the best has been timed in turns with its rivals, here or by an earlier search.

        Return False, once, if an earlier search could not rank it because of noise, or timed it on a throttled device.
        """
        if self._retimed:
            return identity(best.configuration) in self._retimed
        together = all(in_turns(trial, best) for trial in chosen)
        return together and is_ranked(best, self.ledger.passed()) and not best.throttled

    def _chosen(self) -> Sequence[Trial]:
        """Return the finalists and the current best; if there is time, also the default and earlier finalists.

        The gain over the default needs times that were taken together. A trial that was timed again on another day, at
        another pace, is ranked by that time. So it is compared here before it, or one that it beats, is named best.
        """
        passed, default = self.ledger.passed(), identity(self.ledger.problem.default)
        chosen = {identity(trial.configuration): trial for trial in (*finalists(passed, self.budget_s), *passed[:1])}
        known = [trial for trial in passed if identity(trial.configuration) == default]
        for trial in (*known, *self._newest(passed), *earlier_finalists(passed)):
            if retiming_s([*chosen.values(), trial]) <= self.budget_s:
                chosen.setdefault(identity(trial.configuration), trial)
        return list(chosen.values())

    def _newest(self, passed: Sequence[Trial]) -> Sequence[Trial]:
        """Return the fastest trial of this search, if it may beat an earlier best that a faster machine timed."""
        here = {identity(trial.configuration) for trial in self.ledger.new}
        new = [trial for trial in passed if identity(trial.configuration) in here]
        found = min(new, key=first_median, default=None)
        return [found] if found is not None and first_median(found) <= ANOTHER_DAY * passed[0].time_ns else []

    def _measure_overlooked(self) -> bool:
        """Measure trials again that were stopped for being slower than a configuration that failed as a finalist."""
        best = self.ledger.best()
        bound = best.bounding_ns if best is not None else math.inf
        stopped = [trial for trial in self.ledger.trials if trial.outcome is Outcome.STOPPED and trial.paced_ns < bound]
        due = [trial for trial in stopped if identity(trial.configuration) not in self._measured]
        due = sorted(due, key=lambda trial: trial.paced_ns)[:FINALISTS] if self._failed else []
        self.evaluator.best_ns = bound if best is not None else None
        for trial in due:
            self._measured.add(identity(trial.configuration))
            self.ledger.begin(trial.configuration)
            self.evaluator.submit(trial.configuration)
        for _ in due:
            self.ledger.end(self.collect())
        return bool(due)


class Ranked(list[Trial]):
    """All attempts at a problem since some generation, in the order of arrival, and their ranking.

    A trial without a driver has run under `driver`. If an earlier attempt may decide which driver was last, give that
    driver (Store.answering_driver).
    """

    def __init__(self, trials: Iterable[Trial], driver: str = "") -> None:
        super().__init__(trials)
        self._driver = clean(driver)
        self._events: list[Event] = []
        self._passed: list[Trial] = []
        self._looked_at = 0  # each attempt is looked at once

    @property
    def passed(self) -> Sequence[Trial]:
        """The verified trials by the rule of `ranking.rank`, best first, one per configuration."""
        if self._looked_at < len(self):
            for place in range(self._looked_at, len(self)):
                self._events += _events(place, self[place], self._driver)
            self._looked_at = len(self)
            self._passed = [self[event.order[0]] for event in rank(self._events, self._driver)]
        return self._passed

    @property
    def best(self) -> Trial | None:
        """The best verified trial, or None if none passed."""
        return next(iter(self.passed), None)


def ranked(trials: Iterable[Trial], driver: str = "") -> Sequence[Trial]:
    """Return the verified ones of these attempts, best first. Arguments as for `Ranked`."""
    return Ranked(trials, driver).passed


def fastest(trials: Iterable[Trial], driver: str = "") -> Trial | None:
    """Return the best verified trial, or None if none passed. Arguments as for `Ranked`."""
    return Ranked(trials, driver).best


def _events(place: int, trial: Trial, driver: str) -> list[Event]:
    name, driver = digest(trial.configuration), clean(trial.driver) or driver
    if trial.outcome.failed:
        kind = WRONG if trial.outcome is Outcome.WRONG_RESULT else FAILED
        return [Event(kind, name, driver, trial.generation, (place, 0))]
    if trial.outcome is not Outcome.OK:
        return []
    taken = [(MEASURED, trial.measurement), (RETIMED, trial.retimed)]
    return [
        Event(kind, name, driver, trial.generation, (place, number), measurement.median_ns)
        for number, (kind, measurement) in enumerate(taken)
        if measurement is not None
    ]


def finalists(passed: Sequence[Trial], budget_s: float = math.inf) -> list[Trial]:
    """Return the few verified trials, fastest first, that must be timed again to find the best.

    By their times at the machine's usual pace these are the fastest few within a margin, and trials that may be as fast
    by their intervals. If there are more than two, no more than can be timed within the budget. The trial with the
    least measured time, which a look-up would name, is always included.
    """
    ordered = sorted(passed, key=lambda trial: trial.paced_ns)
    found = [trial for trial in ordered[:FINALISTS] if trial.paced_ns <= FINALIST_MARGIN * ordered[0].paced_ns]
    for trial in ordered[len(found) : MOST_FINALISTS]:
        (low, _), (_, high) = _paced_interval(trial), _paced_interval(ordered[0])
        found += [trial] if low <= high else []
    while len(found) > 2 and retiming_s(found) > budget_s:
        found.pop()
    least = min(passed, key=first_median, default=None)
    return found if least is None or least in found else [*found, least]


def earlier_finalists(passed: Sequence[Trial]) -> list[Trial]:
    """Return the trials, best first, that were timed again and came near to the best of those timed again."""
    again = [trial for trial in passed if trial.retimed is not None]
    return [trial for trial in again if trial.time_ns <= FINALIST_MARGIN * again[0].time_ns][:FINALISTS]


def _paced_interval(trial: Trial) -> tuple[float, float]:
    """Return the interval of a first median, widened to cover the machine's usual pace and its pace at that time."""
    if trial.measurement is None:
        return math.nan, math.nan
    low, high = median_interval(trial.measurement.samples_ns)
    pace = first_median(trial) / trial.paced_ns
    return low / max(1.0, pace), high / min(1.0, pace)


def retiming_s(trials: Sequence[Trial]) -> float:
    """Return the seconds that re-timing these trials takes at least: three turns each, of one run or as it settles."""
    # After the time to settle, half as much again counts (bench/finals.py).
    return 3 * sum(max(first_median(trial) * 1e-9, 1.5 * settle_s(trial)) for trial in trials)


def settle_s(trial: Trial) -> float:
    """Return the seconds of its runs that did not count, because the device was at its power limit."""
    found = trial.environment.get(SETTLE)  # may have been imported
    return found if isinstance(found, float) and 0 <= found <= 1 else 0.0


def ties(best: Trial | None, trials: Sequence[Trial]) -> tuple[Trial, ...]:
    """Return the trials timed in turns with the best that, by these times, may be as fast."""
    if best is None or best.retimed is None:
        return ()
    rivals = [(trial, trial.retimed) for trial in trials if trial is not best and in_turns(trial, best)]
    fastest_ns = best.retimed.samples_ns
    return tuple(
        trial
        for trial, again in rivals
        if again is not None and may_be_as_fast(again.samples_ns, fastest_ns, in_turns=True)
    )


def noise(best: Trial | None) -> float:
    """Return the width of a re-timed winner's interval as a share of its median, or NaN if it was not re-timed."""
    if best is None or best.retimed is None:
        return math.nan
    low, high = median_interval(best.retimed.samples_ns)
    return (high - low) / best.retimed.median_ns


def is_ranked(best: Trial | None, trials: Sequence[Trial]) -> bool:
    """Return False if the best's times are too noisy to rank: trials that tie may be faster by more than the margin."""
    return not (noise(best) > FINALIST_MARGIN - 1 and ties(best, trials))


def first_median(trial: Trial) -> float:
    """Return the median of a trial's first measurement in nanoseconds; infinite if it has none."""
    return trial.measurement.median_ns if trial.measurement is not None else math.inf
