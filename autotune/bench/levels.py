"""How sessions of a device differ: whether their middle is known well enough, and samples that represent it.

A session has one of a few levels of speed, and none lies beyond the quickest and the slowest. The middle between these
two is known from fewer sessions than the mean is, and no session is far from it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import mean, quantiles, stdev

from autotune.ranking import median

VISITS = 16
"""Sessions that are needed at least, to know how far they are apart."""

TOGETHER = 4
"""Sessions that are made ready at once. These resemble each other: eight on an H100 were all 2 % slow for a reduction.
"""

MOST_VISITS = 32
"""Sessions at most. Their differences, 1.5 % for a reduction on an H100, then change a mean by .3 %."""

SAMPLES = 6
"""Samples among which the sessions are distributed: the fewest whose range holds the median in 95 % of cases (it does
in 97). If there are fewer sessions, all their turns count."""

SPREAD = 1.5
"""Factor by which the samples are spread about their median. The median and the range are moved to a value that is
known better, the finalist's mean beside the others. Without the spread the range holds the true ratio of two finalists
in 85 to 94 % of cases, with it in 92 to 97 (simulated, with 8 to 32 sessions of one or four levels)."""

APART = 0.015
"""Sessions differ if one is slower than another by more than this share: milliseconds of timing on each tell its time
to about a third of that."""

Visits = Sequence[Sequence[int]]
"""A finalist's times on each session, in nanoseconds of a run."""


def is_settled(finalists: Sequence[Visits], target: float) -> bool:
    """Say whether more sessions are of no use: their middle is known to within the share `target`, or there are many.

    Only sessions that all finalists have met count.
    """
    count = _count(finalists)
    return not finalists or count >= MOST_VISITS or width(finalists) <= target


def are_apart(finalists: Sequence[Visits]) -> bool:
    """Say whether some sessions are slower than others, for the finalists in common."""
    slowness = _slowness(_times(finalists)) if _count(finalists) else [1.0]
    return max(slowness) > (1 + APART) * min(slowness)


def width(finalists: Sequence[Visits]) -> float:
    """Return the width of the 95 % interval of the mean over all sessions, as a share of it; infinite for a few.

    The interval of their middle is narrower.
    """
    count = _count(finalists)
    return 4 * stdev(_slowness(_times(finalists))) / math.sqrt(count) if count >= VISITS else math.inf


def share_out(finalists: Sequence[Visits]) -> list[Visits]:
    """Return visits in which each sample is a finalist's mean time on some of the sessions, the same for all finalists.

    How far the samples are apart tells how sure their middle is. They are moved: their median becomes the finalist's
    mean relative to the others on the same session, by which finalists are compared, times the middle slowness of the
    sessions. They are also spread, so that their range becomes a 95 % interval about that median.
    """
    if _count(finalists) < SAMPLES:
        return list(finalists)
    times = _times(finalists)
    sessions = _slowness(times)
    middle = _middle(sessions)
    return [_samples(taken, sessions, middle) for taken in times]


def _samples(taken: Sequence[float], sessions: Sequence[float], middle: float) -> Visits:
    beside = _winsorized([ns / slow for ns, slow in zip(taken, sessions, strict=True)])
    undisturbed = [ns * slow for ns, slow in zip(beside, sessions, strict=True)]
    means = [mean(undisturbed[place::SAMPLES]) for place in range(SAMPLES)]
    centre, among = mean(beside) * middle, median(means)
    return [(max(1, round(centre + SPREAD * (ns - among))),) for ns in means]


def _count(finalists: Sequence[Visits]) -> int:
    return min(map(len, finalists), default=0)


def _times(finalists: Sequence[Visits]) -> list[list[float]]:
    """Return each finalist's median on each session that all have met, 1 at least: a coarse timer may say 0."""
    count = _count(finalists)
    return [[max(1.0, median(visit)) for visit in visits[:count]] for visits in finalists]


def _slowness(times: Sequence[Sequence[float]]) -> list[float]:
    """Return how slow each session was for the finalists, 1 as usual: a session slows all of them down alike."""
    usual = list(map(median, times))
    return [
        median([ns / ours for ns, ours in zip(session, usual, strict=True)]) for session in zip(*times, strict=True)
    ]


def _middle(sessions: Sequence[float]) -> float:
    """Return the value half-way between the first and the last decile: one or two outliers do not move it."""
    deciles = quantiles(sessions, n=10, method="inclusive")
    return (deciles[0] + deciles[-1]) / 2


def _winsorized(times: Sequence[float]) -> list[float]:
    """Return the times; those beyond five standard deviations from their median are moved to that distance.

    Source: P. J. Huber, E. M. Ronchetti, Robust Statistics, 2nd ed., section 1.7. The standard deviation is estimated
    as 1.4826 times the median absolute deviation from the median, which is exact for a normal distribution.
    """
    middle = median(times)
    reach = 5 * 1.4826 * median([abs(ns - middle) for ns in times])
    return [min(max(ns, middle - reach), middle + reach) for ns in times]
