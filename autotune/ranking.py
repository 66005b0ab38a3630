"""Who is fastest: the best of verified trials, the finalists, the ties."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autotune.model import Measurement, Outcome, Trial
from autotune.statistics import median_interval

FINALISTS = 5
"""How many of the fastest are timed again, interleaved, before a winner is named."""

FINALIST_MARGIN = 1.05
"""A finalist's first median is within this factor of the lowest."""


def fastest(trials: Sequence[Trial]) -> Trial | None:
    """Return the best verified trial; None where none passed.

    Re-timed finalists are compared with each other: they ran interleaved, on a device as warm as it gets. One
    that was never re-timed comes before them only where its first median is below all of theirs, so that it
    would have been a finalist had it been known. lookup/ranking.py ranks what is stored by the same rule.
    """
    passed = [trial for trial in trials if trial.outcome is Outcome.OK]
    retimed = [trial for trial in passed if trial.retimed is not None]
    bar = min((first_median(trial) for trial in retimed), default=math.inf)
    unseen = [trial for trial in passed if trial.retimed is None and first_median(trial) < bar]
    if unseen:
        return min(unseen, key=first_median)
    return min(retimed, key=lambda trial: trial.time_ns, default=None)


def finalists(passed: Sequence[Trial], budget_s: float = math.inf) -> list[Trial]:
    """Return the few verified trials, fastest first, among which the best is to be found by timing them again.

    No more than can be timed within the budget, but two.
    """
    ranked = sorted(passed, key=first_median)
    found = [trial for trial in ranked[:FINALISTS] if first_median(trial) <= FINALIST_MARGIN * first_median(ranked[0])]
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
