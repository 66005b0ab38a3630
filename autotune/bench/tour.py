"""Finalists compared on several sessions of a device, where what sessions differ by is more than what they do.

What short kernels take differs from OpenCL context to context of one driver, by where in memory it happens to put what
belongs to it, and all kernels alike, by so much a launch. Other queues and buffers of the same context change little.
Each search would meet another, and tell another time of the same kernel. What an empty launch takes does not tell which
are quick.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import mean, stdev
from typing import TYPE_CHECKING

from autotune.bench.clock import BATCH_NS
from autotune.bench.finals import LEAST_TAKEN, TURN, Finalist, Finals, sound
from autotune.bench.report import Fault, Report
from autotune.bench.timing import Rules
from autotune.devices import BackendError
from autotune.model import Measurement, Outcome
from autotune.ranking import median
from autotune.study import Plan

if TYPE_CHECKING:
    from autotune.bench.trial import Bench

MOST_VISITS = 24
"""Benches at most: to open another takes as long as to time all finalists on it."""

SAMPLES = 6
"""Samples into which the benches are shared out: the fewest whose range holds the median in 95 % of cases (it does in
97). Also the fewest benches, where there is time."""

LEAST_S = 0.05
"""Device time of a finalist at least, shared out over the rounds: the speed of a device wanders."""

_VERIFIED_SHARE = 1 / 3
"""Share of the finalists' time that is kept for runs that are verified."""

_VERIFIED_S = 1.0
"""The same of short runs at most, in seconds: so many as are verified take no longer."""


def compare(
    home: Bench, elsewhere: Iterator[Bench] | None, rules: Rules, plans: Sequence[Plan], limit_s: float, budget_s: float
) -> list[Measurement | Report]:
    """Time plans in turn on one bench, or share the rounds out over it and others; three samples at least.

    Of several benches the mean counts. A first run may take `limit_s`, all together take `budget_s`. Raises Fault where
    fatal.
    """
    until, verified_s = time.monotonic() + budget_s, budget_s * _VERIFIED_SHARE
    finalists = [Finalist(place, plan) for place, plan in enumerate(plans)]
    least_s = max(rules.least_s, LEAST_S) / TURN if rules.least_s else 0.0  # of samples that stand for as many
    at_home = Finals(home, replace(rules, least_s=least_s, maximum=rules.most), home)
    if elsewhere is None:
        at_home.visit(finalists, limit_s, until - verified_s)
    else:
        _visit_all(at_home, elsewhere, finalists, limit_s, until - min(verified_s, _VERIFIED_S))
        _share_out(sound(finalists))
    at_home.verify(finalists, until)
    return [finalist.answer() for finalist in finalists]


def _visit_all(
    at_home: Finals, elsewhere: Iterator[Bench], finalists: Sequence[Finalist], limit_s: float, deadline: float
) -> None:
    """Visit one after another until their mean is known, while there is time, and room for one more on the device."""
    least_s = at_home.rules.least_s / SAMPLES
    rules = replace(at_home.rules, target=math.inf, minimum=LEAST_TAKEN, least_s=least_s)
    replace(at_home, rules=rules, aim_ns=BATCH_NS).visit(finalists, limit_s, deadline)
    rules = replace(rules, minimum=1)
    visits = 1
    while visits < MOST_VISITS and time.monotonic() < deadline:
        before = sound(finalists)
        if _width(before) <= at_home.rules.target:
            return
        visits += 1
        try:
            there = replace(at_home, bench=next(elsewhere), rules=rules, aim_ns=BATCH_NS, least=1)
            there.visit(finalists, limit_s, deadline)
        except (BackendError, Fault):  # where the device is lost, so it is at home
            _leave(before, visits)
            return
        if any(one.failure is not None and one.failure.outcome is not Outcome.WRONG_RESULT for one in before):
            _leave(before, visits)
            return


def _leave(finalists: Sequence[Finalist], visits: int) -> None:
    """Forget a visit that broke off: there was no room for it, which is no finalist's doing."""
    for finalist in finalists:
        del finalist.visits[visits - 1 :]
        finalist.clock = None
        if finalist.failure is not None and finalist.failure.outcome is not Outcome.WRONG_RESULT:
            finalist.failure = None


def _width(finalists: Sequence[Finalist]) -> float:
    """Return the width of the 95 % interval of the mean over all benches, as a share of it; infinite for a few benches.

    By how slow each was for all finalists together: what benches differ by is common to them.
    """
    count = _visits(finalists)
    if count < SAMPLES:
        return math.inf
    # A coarse timer of a driver may say 0.
    slowness = [mean(math.log(max(1.0, median(one.visits[visit]))) for one in finalists) for visit in range(count)]
    return 4 * stdev(slowness) / math.sqrt(count)


def _share_out(finalists: Sequence[Finalist]) -> None:
    """Make each sample the mean of a finalist's medians on a share of the benches, the same of every finalist.

    How far these are apart tells how sure their mean is; all are moved alike, so that their median is the mean over all
    benches, which is surer than a median of means. A bench that was disturbed counts as one at the edge of the others.
    Of few benches all turns count.
    """
    count = _visits(finalists)
    if count < SAMPLES:
        return
    for finalist in finalists:
        times = _winsorized(list(map(median, finalist.visits[:count])))
        means = [mean(times[place::SAMPLES]) for place in range(SAMPLES)]
        away = mean(times) - median(means)
        finalist.visits = [(max(1, round(ns + away)),) for ns in means]


def _winsorized(times: Sequence[float]) -> list[float]:
    """Return times of which none is farther from their median than five standard deviations.

    Source: P. J. Huber, E. M. Ronchetti, Robust Statistics, 2nd ed., section 1.7 (the deviation by the median of those
    from the median; 1.4826 times that of a normal distribution is the standard deviation).
    """
    middle = median(times)
    reach = 5 * 1.4826 * median([abs(ns - middle) for ns in times])
    return [min(max(ns, middle - reach), middle + reach) for ns in times]


def _visits(finalists: Sequence[Finalist]) -> int:
    return min((len(finalist.visits) for finalist in finalists), default=0)
