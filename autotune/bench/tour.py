"""Finalists compared on several sessions of a device, where what sessions differ by is more than what they do.

What short kernels take differs from OpenCL context to context of one driver, by where in memory it happens to put what
belongs to it, and all kernels alike, by so much a launch. Each search would meet another, and tell another time of the
same kernel. What an empty launch takes does not tell which are quick.

Within a context it depends on what was allocated and let go there before, by which a kernel of atomics on a few values
took 8.1 or 9.2 us on an H100: the same of each context in which the same was done. A program meets a new one. So the
worker's own, where a reference has run, does not count.

There are a few levels, of which each context meets one, and none beyond the quickest and the slowest. The middle
between these is known from fewer contexts than the mean, and no context is far from it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from statistics import mean, quantiles, stdev
from typing import TYPE_CHECKING

from autotune.bench.clock import BATCH_NS
from autotune.bench.finals import LEAST_TAKEN, TURN, Finalist, Finals, sound
from autotune.bench.messages import Visited
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

VISITS = 8
"""Benches in a process beside its own: what they differ by differs from process to process."""

_VISIT_S = 1.0
"""Seconds of a visit at most, however slow its rounds are held to be: there are others."""

SAMPLES = 6
"""Samples into which the benches are shared out: the fewest whose range holds the median in 95 % of cases (it does in
97). Of fewer benches all turns count."""

SPREAD = 1.5
"""By so much the samples are spread about their median. That is moved to what is known better, the finalist's mean
beside the others, and their range with it: unspread, it holds how many times as fast one is in 85 to 94 % of cases,
so in 92 to 97 (simulated, with 8 to 24 benches of one or four levels)."""

LEAST_S = 0.05
"""Device time of a finalist at least on one bench, shared out over the rounds: the speed of a device wanders."""

_PATIENCE = 2
"""Patience is at most so many times the finalists' time: a device of a cluster is compared by what takes .3 s."""

_VERIFIED_SHARE = 1 / 3
"""Share of the finalists' time that is kept for runs that are verified."""

_VERIFIED_S = 1.0
"""The same of short runs at most, in seconds: so many as are verified take no longer."""


class Unsettled(Exception):
    """Another process is to go on: `visited` tells what is known of each plan."""

    def __init__(self, visited: tuple[Visited, ...]) -> None:
        super().__init__()
        self.visited = visited


def compare(
    home: Bench,
    elsewhere: Iterator[Bench] | None,
    rules: Rules,
    plans: Sequence[Plan],
    limit_s: float,
    budget_s: float,
    visited: Sequence[Visited] = (),
) -> list[Measurement | Report]:
    """Time plans in turn on one bench, or share the rounds out over others; three samples at least.

    Of several benches the middle counts, those that other processes have `visited` among them. A single plan is timed
    on one of them. A first run may take `limit_s`, all together take `budget_s`. Raises Unsettled, Fault where fatal.
    """
    began = time.monotonic()
    if visited:  # however long this process took to start, the one to be named is to be verified
        budget_s = max(budget_s, _VERIFIED_S)
    until, verified_s = began + budget_s, budget_s * _VERIFIED_SHARE
    finalists = [Finalist(place, plan) for place, plan in enumerate(plans)]
    least_s = max(rules.least_s, LEAST_S) / TURN if rules.least_s else 0.0  # of samples that stand for as many
    patience_s = min(rules.patience_s, _PATIENCE * budget_s)
    at_home = Finals(home, replace(rules, least_s=least_s, maximum=rules.most, patience_s=patience_s), home)
    if elsewhere is None:
        until += at_home.visit(finalists, limit_s, until - verified_s)
    elif len(plans) == 1:
        until += _visit_one(at_home, elsewhere, finalists, limit_s, until - verified_s)
    else:
        if visited:
            for finalist, known in zip(finalists, visited, strict=True):
                finalist.resume(known)
        end = until - min(verified_s, _VERIFIED_S)
        visits = _visit_all(at_home, elsewhere, finalists, limit_s, end)
        now = time.monotonic()
        in_time = now + (now - began) < end  # another process takes as long as this one
        if visits == VISITS and in_time and _goes_on(sound(finalists), rules):
            raise Unsettled(tuple(finalist.visited() for finalist in finalists))
        _share_out(sound(finalists))
    at_home.verify(finalists, until)
    return [finalist.answer() for finalist in finalists]


def _goes_on(finalists: Sequence[Finalist], rules: Rules) -> bool:
    """Say whether more benches are of use. Twice as sure as is asked: processes differ by more than theirs do."""
    return bool(finalists) and _visits(finalists) < MOST_VISITS and _width(finalists) > rules.target / 2


def _visit_one(
    at_home: Finals, elsewhere: Iterator[Bench], finalists: Sequence[Finalist], limit_s: float, deadline: float
) -> float:
    """Visit another bench, or the one at home where there is no room for another; return as `Finals.visit`."""
    with suppress(BackendError, Fault):  # where the device is lost, so it is at home
        waited_s = replace(at_home, bench=next(elsewhere)).visit(finalists, limit_s, deadline)
        if not _lacked_room(finalists):
            return waited_s
    _leave(finalists, 0)
    return at_home.visit(finalists, limit_s, deadline)


def _visit_all(
    at_home: Finals, elsewhere: Iterator[Bench], finalists: Sequence[Finalist], limit_s: float, deadline: float
) -> int:
    """Visit one after another until their middle is known, while there is time, and room for one more on the device.

    Return how many were visited. The first process begins at home, where it learns what fails and how long batches are;
    that counts where few others are visited.
    """
    rules = replace(at_home.rules, target=math.inf, minimum=1, least_s=0.0, patience_s=0.0)
    # Within a bench times differ by a fifth of what they do between benches: one sample on each will do.
    brief = replace(at_home, rules=rules, aim_ns=BATCH_NS, least=1, turn=1)
    home: dict[int, tuple[int, ...]] = {}
    if not _visits(sound(finalists)):
        thorough = replace(at_home, rules=replace(rules, minimum=LEAST_TAKEN), aim_ns=BATCH_NS)
        thorough.visit(finalists, limit_s, min(deadline, time.monotonic() + _VISIT_S))
        home = {finalist.place: finalist.visits.pop() for finalist in sound(finalists)}
    visits = 0
    while visits < VISITS and time.monotonic() < deadline and _goes_on(before := sound(finalists), at_home.rules):
        count = _visits(before)
        try:
            there = replace(brief, bench=next(elsewhere))
            there.visit(finalists, limit_s, min(deadline, time.monotonic() + _VISIT_S))
        except (BackendError, Fault):
            _leave(before, count)
            break
        if _lacked_room(before):
            _leave(before, count)
            break
        visits += 1
    if visits < SAMPLES:
        for finalist in sound(finalists):
            finalist.visits += [home[finalist.place]] if home else []
    return visits


def _lacked_room(finalists: Sequence[Finalist]) -> bool:
    """Say whether one failed, and not for being wrong: it had passed at home, or in its trial."""
    return any(one.failure is not None and one.failure.outcome is not Outcome.WRONG_RESULT for one in finalists)


def _leave(finalists: Sequence[Finalist], count: int) -> None:
    """Forget a visit after so many that broke off: there was no room for it, which is no finalist's doing."""
    for finalist in finalists:
        del finalist.visits[count:]
        finalist.clock = None
        if finalist.failure is not None and finalist.failure.outcome is not Outcome.WRONG_RESULT:
            finalist.failure = None


def _width(finalists: Sequence[Finalist]) -> float:
    """Return the width of the 95 % interval of the mean over all benches, as a share of it; infinite for a few benches.

    That of their middle is narrower.
    """
    count = _visits(finalists)
    return 4 * stdev(_slowness(_times(finalists))) / math.sqrt(count) if count >= VISITS else math.inf


def _share_out(finalists: Sequence[Finalist]) -> None:
    """Make each sample the mean of a finalist's times on a share of the benches, the same of every finalist.

    How far these are apart tells how sure their middle is. They are moved, so that their median is the finalist's mean
    beside the others on the same bench, by which finalists are compared, times the middle of how slow benches are; and
    spread, so that their range is that of a 95 % interval where they stand then.
    """
    if _visits(finalists) < SAMPLES:
        return
    times = _times(finalists)
    benches = _slowness(times)
    for finalist, taken in zip(finalists, times, strict=True):
        beside = _winsorized([ns / slow for ns, slow in zip(taken, benches, strict=True)])
        undisturbed = [ns * slow for ns, slow in zip(beside, benches, strict=True)]
        means = [mean(undisturbed[place::SAMPLES]) for place in range(SAMPLES)]
        centre, among = mean(beside) * _middle(benches), median(means)
        finalist.visits = [(max(1, round(centre + SPREAD * (ns - among))),) for ns in means]


def _times(finalists: Sequence[Finalist]) -> list[list[float]]:
    """Return each finalist's median on each bench that all have met. A coarse timer of a driver may say 0."""
    count = _visits(finalists)
    return [[max(1.0, median(visit)) for visit in finalist.visits[:count]] for finalist in finalists]


def _slowness(times: Sequence[Sequence[float]]) -> list[float]:
    """Return how slow each bench was for the finalists, 1 as usual: what benches differ by is common to them."""
    usual = list(map(median, times))
    return [median([ns / ours for ns, ours in zip(bench, usual, strict=True)]) for bench in zip(*times, strict=True)]


def _middle(benches: Sequence[float]) -> float:
    """Return what is half-way between the first and the last decile: a range's middle that one or two do not move."""
    deciles = quantiles(benches, n=10, method="inclusive")
    return (deciles[0] + deciles[-1]) / 2


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
