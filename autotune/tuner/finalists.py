"""The trials of a search as the ranking sees them: the fastest, those to be timed again, the ties."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autotune.identity import digest
from autotune.model import Measurement, Outcome, Trial
from autotune.ranking import (
    FAILED,
    FINALIST_MARGIN,
    FINALISTS,
    MEASURED,
    RETIMED,
    WRONG,
    Event,
    median_interval,
    rank,
)
from autotune.text import clean


def ranked(trials: Sequence[Trial], driver: str = "") -> list[Trial]:
    """Return the verified trials by the rule of `ranking.rank`, best first, one per configuration.

    `trials` are all that is known of one generation of a problem, every attempt in the order of arrival; a trial that
    does not tell its driver has run under `driver`.
    """
    driver = clean(driver)
    events = [event for place, trial in enumerate(trials) for event in _events(place, trial, driver)]
    return [trials[event.order[0]] for event in rank(events, driver)]


def fastest(trials: Sequence[Trial], driver: str = "") -> Trial | None:
    """Return the best verified trial; None where none passed. Arguments as for `ranked`."""
    return next(iter(ranked(trials, driver)), None)


def _events(place: int, trial: Trial, driver: str) -> list[Event]:
    name, driver = digest(trial.configuration), clean(trial.driver) or driver
    if trial.outcome.failed:
        kind = WRONG if trial.outcome is Outcome.WRONG_RESULT else FAILED
        return [Event(kind, name, driver, 0, (place, 0))]
    if trial.outcome is not Outcome.OK:
        return []
    taken = [(MEASURED, trial.measurement), (RETIMED, trial.retimed)]
    return [
        Event(kind, name, driver, 0, (place, number), measurement.median_ns)
        for number, (kind, measurement) in enumerate(taken)
        if measurement is not None
    ]


def finalists(passed: Sequence[Trial], budget_s: float = math.inf) -> list[Trial]:
    """Return the few verified trials, fastest first, among which the best is to be found by timing them again.

    No more than can be timed within the budget, but two.
    """
    ordered = sorted(passed, key=first_median)
    bound = FINALIST_MARGIN * min(map(first_median, passed), default=math.inf)
    found = [trial for trial in ordered[:FINALISTS] if first_median(trial) <= bound]
    while len(found) > 2 and retiming_s(found) > budget_s:
        found.pop()
    return found


def retiming_s(trials: Sequence[Trial]) -> float:
    """Return the seconds that trials run for when they are timed again at least: three times each."""
    return 3 * sum(first_median(trial) for trial in trials) * 1e-9


def ties(best: Trial | None, trials: Sequence[Trial]) -> tuple[Trial, ...]:
    """Return the re-timed trials whose interval of the median overlaps that of the best."""
    if best is None or best.retimed is None:
        return ()
    _, high = _interval(best.retimed)
    rivals = [trial for trial in trials if trial is not best and trial.retimed is not None]
    return tuple(trial for trial in rivals if trial.retimed is not None and _interval(trial.retimed)[0] <= high)


def first_median(trial: Trial) -> float:
    """Return the median of a trial's first measurement in nanoseconds; infinite where it has none."""
    return trial.measurement.median_ns if trial.measurement is not None else math.inf


def _interval(measurement: Measurement) -> tuple[float, float]:
    return median_interval(measurement.samples_ns)
