"""Finalists compared on several sessions of a device, where what sessions differ by is more than what they do.

What short kernels take differs from OpenCL context to context of one driver, by where in memory it happens to put what
belongs to it: on an H200, a sum in two launches by 5 %, ten sweeps of Jacobi's by 4 %. Other queues and buffers of the
same context change little. Each search would meet another, and tell another time of the same kernel. What an empty
launch takes does not tell which are quick.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
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

MOST_VISITS = 12
"""Benches at most: each more narrows what searches differ by, and takes half a second of seven finalists."""

LEAST_S = 0.05
"""Device time of a finalist at least, shared out over the rounds: the speed of a device wanders."""

_VISIT_TURNS = 2
"""Of a finalist on each other bench: what its samples there differ by is a tenth of what benches do."""

_VERIFIED_SHARE = 1 / 3
"""Share of the finalists' time that is kept for runs that are verified."""

_VERIFIED_S = 1.0
"""The same of short runs at most, in seconds: so many as are verified take no longer."""


def compare(
    home: Bench, elsewhere: Iterator[Bench] | None, rules: Rules, plans: Sequence[Plan], limit_s: float, budget_s: float
) -> list[Measurement | Report]:
    """Time plans in turn on one bench, or share the rounds out over it and others; three samples at least.

    Of several benches the quicker half counts. A first run may take `limit_s`, all together take `budget_s`. Raises
    Fault where fatal.
    """
    until, verified_s = time.monotonic() + budget_s, budget_s * _VERIFIED_SHARE
    finalists = [Finalist(place, plan) for place, plan in enumerate(plans)]
    least_s = max(rules.least_s, LEAST_S) / TURN if rules.least_s else 0.0  # of samples that stand for as many
    at_home = Finals(home, replace(rules, least_s=least_s, maximum=rules.most), home)
    if elsewhere is None:
        at_home.visit(finalists, limit_s, until - verified_s)
    else:
        _visit_all(at_home, elsewhere, finalists, limit_s, until - min(verified_s, _VERIFIED_S))
        _keep_quicker_half(sound(finalists))
    at_home.verify(finalists, until)
    return [finalist.answer() for finalist in finalists]


def _visit_all(
    at_home: Finals, elsewhere: Iterator[Bench], finalists: Sequence[Finalist], limit_s: float, deadline: float
) -> None:
    """Visit one after another while there is time, and room for one more on the device."""
    least_s = at_home.rules.least_s / MOST_VISITS
    rules = replace(at_home.rules, target=math.inf, minimum=LEAST_TAKEN, least_s=least_s)
    replace(at_home, rules=rules, aim_ns=BATCH_NS).visit(finalists, limit_s, deadline)
    rules = replace(rules, minimum=_VISIT_TURNS)
    visits = 1
    while visits < MOST_VISITS and time.monotonic() < deadline:
        before = sound(finalists)
        visits += 1
        try:
            there = replace(at_home, bench=next(elsewhere), rules=rules, aim_ns=BATCH_NS, least=_VISIT_TURNS)
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


def _keep_quicker_half(finalists: Sequence[Finalist]) -> None:
    """Keep the times from the benches on which all of them together were the quickest."""
    count = min((len(finalist.visits) for finalist in finalists), default=0)
    # A coarse timer of a driver may say 0.
    slowness = [sum(math.log(max(1.0, median(one.visits[visit]))) for one in finalists) for visit in range(count)]
    kept = sorted(sorted(range(count), key=slowness.__getitem__)[: (count + 1) // 2])
    for finalist in finalists:
        finalist.visits = [finalist.visits[visit] for visit in kept]
