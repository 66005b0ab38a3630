"""Finalists compared on several sessions of a device, where what sessions differ by is more than what they do.

What short kernels take differs from OpenCL context to context of one driver, by where in memory it happens to put what
belongs to it, and all kernels alike, by so much a launch. Each search would meet another, and tell another time of the
same kernel. What an empty launch takes does not tell which are quick.

Within a context it depends on what was allocated and let go there before, by which a kernel of atomics on a few values
took 8.1 or 9.2 us on an H100: the same of each context in which the same was done. A program meets a new one. So the
worker's own, where a reference has run, does not count: others visit, whose contexts are there to build. What those
have built makes no difference, nor do their fewer channels.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from autotune.bench.clock import BATCH_NS
from autotune.bench.finalist import Finalist, sound
from autotune.bench.finals import LEAST_TAKEN, TURN, Finals
from autotune.bench.holder import can_hold
from autotune.bench.levels import VISITS, share_out
from autotune.bench.messages import Visit, Visited
from autotune.bench.report import Fault, Report
from autotune.bench.timing import VERIFIED_S, Rules, verifying_s
from autotune.devices import BackendError, Memory, Session, open_session
from autotune.model import Measurement, Outcome
from autotune.study import Plan

if TYPE_CHECKING:
    from autotune.bench.trial import Bench

NOTICED_NS = 30_000
"""A launch that is longer hardly notices on which session it is: mostly by less than .2 us."""

SCATTERED = 2**27
"""Bytes of buffers that lie in so many places of a device that no other places differ from them. Fewer may lie, in a
cache of two halves, far from those that wait for each word of them: sums kept in global memory took an H100 160 to 178
us, by where the same buffers lay."""

_RUNS_OF_VISIT = 3
"""Runs of a finalist on a session at least: its first, one that does not count, one that does."""

LEAST_S = 0.05
"""Device time of a finalist at least on one bench, shared out over the rounds: the speed of a device wanders."""

HELD_BACK = 2**25
"""Bytes of the device that are kept from each next session of a process: several of the pages, of 2 MiB, that drivers
hand out."""

_VISIT_S = 1.0
"""Seconds of a visit at most, however slow its rounds are held to be: there are others."""

_PATIENCE = 2
"""Patience is at most so many times the finalists' time: a device of a cluster is compared by what takes .3 s."""


class Unsettled(Exception):
    """Others are to visit: `visited` tells what is known of each plan here. Few, where it is `doubted` that sessions
    differ, and they do not.
    """

    def __init__(self, visited: tuple[Visited, ...], *, doubted: bool) -> None:
        super().__init__()
        self.visited = visited
        self.doubted = doubted


def notices_sessions(session: Session, plans: Sequence[Plan], best_ns: float | None) -> bool:
    """Say whether there is something whose launches are short, by the time of the best."""
    if best_ns is None or not can_hold(session):
        return False
    return best_ns / max(len(plan.order or plan.launches) for plan in plans) <= NOTICED_NS


def may_notice_sessions(session: Session, plans: Sequence[Plan], best_ns: float | None, budget_s: float) -> bool:
    """Say whether longer launches may, and there is time to compare them. One plan alone has nothing to gain."""
    if best_ns is None or not can_hold(session) or len(plans) == 1:
        return False
    visits_s = VISITS * _RUNS_OF_VISIT * len(plans) * best_ns * 1e-9
    return visits_s <= budget_s and sum(buffer.nbytes for buffer in plans[0].buffers) <= SCATTERED


def compare(
    home: Bench, rules: Rules, plans: Sequence[Plan], limit_s: float, budget_s: float, known: Sequence[Visited] = ()
) -> list[Measurement | Report]:
    """Time plans in turn on one bench, three samples at least, or take what is `known` of them, if others have visited.

    A first run may take `limit_s`, all together take `budget_s`. Raises Fault where fatal.
    """
    began = time.monotonic()
    if known:  # however late it is, the one to be named is to be verified
        budget_s = max(budget_s, VERIFIED_S)
    until = began + budget_s
    finals = _thorough(home, rules, min(rules.patience_s, _PATIENCE * budget_s))
    finalists = _resumed(plans, known)
    if known and all(finalist.visits for finalist in sound(finalists)):
        _share_out(sound(finalists))
    else:
        until += finals.visit(finalists, limit_s, until - verifying_s(budget_s))
    finals.verify(finalists, until)
    return [finalist.answer() for finalist in finalists]


def begin(home: Bench, rules: Rules, plans: Sequence[Plan], limit_s: float) -> tuple[Visited, ...]:
    """Learn on the worker's own bench what fails and how long batches are. That of one alone its visitor learns.

    Raises Fault where fatal.
    """
    finalists = _resumed(plans, ())
    if len(plans) > 1:
        # Within a bench times differ by a fifth of what they do between benches.
        brief = replace(_brief(home, rules, plans), least=LEAST_TAKEN)
        brief.visit(finalists, limit_s, time.monotonic() + _VISIT_S)
    return tuple(finalist.visited() for finalist in finalists)


class Visitor:
    """Times finalists on sessions of one process, each time on another: at first on its own, if that is `fresh`."""

    def __init__(
        self,
        session: Session,
        bench_on: Callable[[Session, Visit], Bench],
        announce: Callable[[str, float], None],
        *,
        fresh: bool,
    ) -> None:
        self.bench: Bench | None = None  # its memory is kept from others until the next visit
        self._session = session
        self._bench_on = bench_on
        self._announce = announce
        self._fresh = fresh
        self._held_back: list[Memory] = []

    def visit(self, asked: Visit, wait_for_turn: Callable[[], float]) -> tuple[Visited, ...]:
        """Return what is known of each plan then; nothing where there was no room.

        `wait_for_turn` returns the seconds that there are; it is called when all is prepared.
        """
        finalists = _resumed(asked.plans, asked.known)
        try:
            self.bench = None  # one at a time
            self.bench = bench = self._bench_on(self._next_session(asked), asked)
            finals = _brief(bench, asked.setup.rules, asked.plans)
            finals.prepare(finalists, bench.limit_s(asked.best_ns))
            bench.get_ready()
            if left_s := wait_for_turn():
                visit_s = left_s if len(finalists) == 1 else min(left_s, _VISIT_S)
                finals.go_round(finalists, time.monotonic() + visit_s)
        except (BackendError, Fault):
            return ()
        return () if _lacked_room(finalists, asked.known) else tuple(finalist.visited() for finalist in finalists)

    def _next_session(self, asked: Visit) -> Session:
        """Return a session on which nothing has run. Raises BackendError.

        Sessions would get the same memory one after the other, and where that lies is much of what they differ by.
        """
        if self._fresh:
            self._fresh = False
            return self._session
        self._announce("start", asked.setup.limits.build_s)
        with suppress(BackendError):  # no room: they share what there is
            self._held_back.append(self._session.allocate(HELD_BACK))
            self._session.fill(self._held_back[-1], 0, 0, HELD_BACK)  # drivers give memory to who uses it
            self._session.finish()
        return open_session(self._session.info)


def _resumed(plans: Sequence[Plan], known: Sequence[Visited]) -> list[Finalist]:
    finalists = [Finalist(place, plan) for place, plan in enumerate(plans)]
    for finalist, one in zip(finalists, known, strict=False):
        finalist.resume(one)
    return finalists


def _lacked_room(finalists: Sequence[Finalist], known: Sequence[Visited]) -> bool:
    """Say whether one failed, and not for being wrong: it had passed in its trial."""
    failures = [finalist.failure for finalist, one in zip(finalists, known, strict=True) if one.failure is None]
    return any(failure is not None and failure.outcome is not Outcome.WRONG_RESULT for failure in failures)


def _thorough(bench: Bench, rules: Rules, patience_s: float) -> Finals:
    least_s = max(rules.least_s, LEAST_S) / TURN if rules.least_s else 0.0  # of samples that stand for as many
    return Finals(bench, replace(rules, least_s=least_s, maximum=rules.most, patience_s=patience_s))


def _brief(bench: Bench, rules: Rules, plans: Sequence[Plan]) -> Finals:
    """Return what takes one sample of each: what counts is on how many benches. One plan alone has one visit."""
    if len(plans) == 1:
        return _thorough(bench, rules, 0.0)
    rules = replace(rules, target=math.inf, minimum=1, least_s=0.0, patience_s=0.0)
    return Finals(bench, rules, aim_ns=BATCH_NS, least=1, turn=1)


def _share_out(finalists: Sequence[Finalist]) -> None:
    samples = share_out([finalist.visits for finalist in finalists])
    for finalist, visits in zip(finalists, samples, strict=True):
        finalist.visits = [tuple(visit) for visit in visits]
