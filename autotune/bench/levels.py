"""What sessions of a device differ by: whether their middle is known, and samples that tell it.

There are a few levels, of which each session meets one, and none beyond the quickest and the slowest. The middle
between these is known from fewer sessions than the mean, and no session is far from it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import mean, quantiles, stdev

from autotune.ranking import median

VISITS = 16
"""Sessions at least, before it is known how far they are apart."""

TOGETHER = 4
"""Sessions that are made ready at once. They are alike to a degree: eight of an H100 were all 2 % slow for a reduction.
"""

MOST_VISITS = 32
"""Sessions at most. What they differ by, 1.5 % for a reduction on an H100, makes .3 % of a mean then."""

SAMPLES = 6
"""Samples into which the sessions are shared out: the fewest whose range holds the median in 95 % of cases (it does in
97). Of fewer sessions all turns count."""

SPREAD = 1.5
"""By so much the samples are spread about their median. That is moved to what is known better, the finalist's mean
beside the others, and their range with it: unspread, it holds how many times as fast one is in 85 to 94 % of cases,
so in 92 to 97 (simulated, with 8 to 32 sessions of one or four levels)."""

APART = 0.015
"""Sessions differ where one takes longer than another by more than this share: what was timed for milliseconds on each
is known to about a third of it."""

Visits = Sequence[Sequence[int]]
"""A finalist's times on each session, in nanoseconds of a run."""


def is_settled(finalists: Sequence[Visits], target: float) -> bool:
    """Say whether more sessions are of no use: the middle of those that all have met is known to such a share of it."""
    count = _count(finalists)
    return not finalists or count >= MOST_VISITS or width(finalists) <= target


def are_apart(finalists: Sequence[Visits]) -> bool:
    """Say whether what some sessions take differs from what others do, as far as it is common to the finalists."""
    slowness = _slowness(_times(finalists)) if _count(finalists) else [1.0]
    return max(slowness) > (1 + APART) * min(slowness)


def width(finalists: Sequence[Visits]) -> float:
    """Return the width of the 95 % interval of the mean over all sessions, as a share of it; infinite for a few.

    That of their middle is narrower.
    """
    count = _count(finalists)
    return 4 * stdev(_slowness(_times(finalists))) / math.sqrt(count) if count >= VISITS else math.inf


def share_out(finalists: Sequence[Visits]) -> list[Visits]:
    """Return visits whose every sample is the mean of a finalist's times on a share of the sessions, the same of all.

    How far these are apart tells how sure their middle is. They are moved, so that their median is the finalist's mean
    beside the others on the same session, by which finalists are compared, times the middle of how slow sessions are;
    and spread, so that their range is that of a 95 % interval where they stand then.
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
    """Return each finalist's median on each session that all have met. A coarse timer of a driver may say 0."""
    count = _count(finalists)
    return [[max(1.0, median(visit)) for visit in visits[:count]] for visits in finalists]


def _slowness(times: Sequence[Sequence[float]]) -> list[float]:
    """Return how slow each session was for the finalists, 1 as usual: what sessions differ by is common to them."""
    usual = list(map(median, times))
    return [
        median([ns / ours for ns, ours in zip(session, usual, strict=True)]) for session in zip(*times, strict=True)
    ]


def _middle(sessions: Sequence[float]) -> float:
    """Return what is half-way between the first and the last decile: a range's middle that one or two do not move."""
    deciles = quantiles(sessions, n=10, method="inclusive")
    return (deciles[0] + deciles[-1]) / 2


def _winsorized(times: Sequence[float]) -> list[float]:
    """Return times of which none is farther from their median than five standard deviations.

    Source: P. J. Huber, E. M. Ronchetti, Robust Statistics, 2nd ed., section 1.7 (the deviation by the median of those
    from the median; 1.4826 times that of a normal distribution is the standard deviation).
    """
    middle = median(times)
    reach = 5 * 1.4826 * median([abs(ns - middle) for ns in times])
    return [min(max(ns, middle - reach), middle + reach) for ns in times]
