"""Compares finalists on several sessions of a device, if sessions differ by more than the finalists do.

The times of short kernels differ from one OpenCL context of a driver to the next, depending on where in memory the
driver happens to put the context's own data. All kernels differ alike, by the same time for each launch. Each search
would meet another context, and report another time for the same kernel. The time of an empty launch does not show which
contexts are quick.

Within a context, times also depend on what was allocated and freed there before: a kernel of atomics on a few values
took 8.1 or 9.2 us on an H100, the same in each context with the same history. A program starts with a new context. So
the worker's own context, where a reference has run, does not count. Instead the workers that build, which have contexts
already, visit (time) the finalists. What they have built makes no difference, and neither do their fewer channels.
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
"""Longer launches hardly depend on the session: mostly by less than .2 us."""

SCATTERED = 2**27
"""Bytes of buffers that are spread over so many places of a device that sessions do not differ by them. Smaller buffers
may lie, in a cache of two halves, far from the work-items that wait for their words: sums kept in global memory took
160 to 178 us on an H100, depending on where the same buffers lay."""

_RUNS_OF_VISIT = 3
"""Runs of a finalist on a session at least: the first run, one that does not count, one that does."""

LEAST_S = 0.05
"""Device time of a finalist at least on one bench, spread over the rounds, since the speed of a device drifts."""

HELD_BACK = 2**25
"""Bytes of the device that are withheld from each further session of a process: several of the drivers' pages of 2 MiB.
"""

_VISIT_S = 1.0
"""Seconds of a visit at most, however slow its rounds are: there are other visits."""

_PATIENCE = 2
"""Patience is at most so many times the finalists' time: a device of a cluster is compared in .3 s."""


class Unsettled(Exception):
    """Other workers must visit the plans; `visited` tells what is known of each plan here.

    If it is `doubted` that sessions differ, a few visits are enough unless they show a difference.
    """

    def __init__(self, visited: tuple[Visited, ...], *, doubted: bool) -> None:
        super().__init__()
        self.visited = visited
        self.doubted = doubted


def retime(
    bench: Bench, plans: Sequence[Plan], best_ns: float | None, budget_s: float, visited: Sequence[Visited] = ()
) -> list[Measurement | Report]:
    """Time plans in turn, round by round, until each is precise or the time is spent; three runs at least.

    Every turn is verified, and then the fastest plan in many more runs: the two checks of a trial rarely catch what
    is wrong only now and then, such as races. A plan that fails is left out from then on, and gets a report as its
    answer. If times may depend on the session, they are compared on several; `visited` is then what is known of
    all plans. Raises Unsettled if other workers must visit the plans, Fault if the device is lost.
    """
    bench.place = 0
    rules, limit_s = bench.final_rules, bench.limit_s(best_ns)
    short = notices_sessions(bench.session, plans, best_ns)
    if not visited and (short or may_notice_sessions(bench.session, plans, best_ns, budget_s)):
        known = begin(bench, rules, plans, limit_s)
        if short or not bench.settling.needed:  # a clock that is lowered differs by more than sessions do
            raise Unsettled(known, doubted=not short)
    return compare(bench, rules, plans, limit_s, budget_s, visited)


def notices_sessions(session: Session, plans: Sequence[Plan], best_ns: float | None) -> bool:
    """Say whether a plan has short launches, judged by the time of the best."""
    if best_ns is None or not can_hold(session):
        return False
    return best_ns / max(len(plan.order or plan.launches) for plan in plans) <= NOTICED_NS


def may_notice_sessions(session: Session, plans: Sequence[Plan], best_ns: float | None, budget_s: float) -> bool:
    """Say whether longer launches may depend on the session, and there is time for visits. One plan never needs any."""
    if best_ns is None or not can_hold(session) or len(plans) == 1:
        return False
    visits_s = VISITS * _RUNS_OF_VISIT * len(plans) * best_ns * 1e-9
    return visits_s <= budget_s and sum(buffer.nbytes for buffer in plans[0].buffers) <= SCATTERED


def compare(
    home: Bench, rules: Rules, plans: Sequence[Plan], limit_s: float, budget_s: float, known: Sequence[Visited] = ()
) -> list[Measurement | Report]:
    """Time plans in turn on one bench, three samples at least, or use the `known` times if others have visited them.

    A first run may take `limit_s`, all together `budget_s`. Raises Fault if it is fatal.
    """
    began = time.monotonic()
    if known:  # however late it is, the winner must be verified
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
    """Learn on the worker's own bench which plans fail and how long batches are. A single plan is left to its visitor.

    Raises Fault if it is fatal.
    """
    finalists = _resumed(plans, ())
    if len(plans) > 1:
        # Times within a bench differ by a fifth of the differences between benches.
        brief = replace(_brief(home, rules, plans), least=LEAST_TAKEN)
        brief.visit(finalists, limit_s, time.monotonic() + _VISIT_S)
    return tuple(finalist.visited() for finalist in finalists)


class Visitor:
    """Times finalists on sessions of one process, a new one for each visit; first on `session`, if that is `fresh`."""

    def __init__(
        self,
        session: Session,
        bench_on: Callable[[Session, Visit], Bench],
        announce: Callable[[str, float], None],
        *,
        fresh: bool,
    ) -> None:
        self.bench: Bench | None = None  # it keeps its memory until the next visit
        self._session = session
        self._bench_on = bench_on
        self._announce = announce
        self._fresh = fresh
        self._held_back: list[Memory] = []

    def visit(self, asked: Visit, wait_for_turn: Callable[[], float]) -> tuple[Visited, ...]:
        """Time the plans and return what is known of each, or nothing if there was no room on the device.

        `wait_for_turn` is called when all is prepared, and returns the seconds that may be used.
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

        One session after another would get the same memory, and sessions differ mostly by where their memory lies.
        """
        if self._fresh:
            self._fresh = False
            return self._session
        self._announce("start", asked.setup.limits.build_s)
        with suppress(BackendError):  # no room: the sessions share memory
            self._held_back.append(self._session.allocate(HELD_BACK))
            self._session.fill(self._held_back[-1], 0, 0, HELD_BACK)  # drivers allocate at first use
            self._session.finish()
        return open_session(self._session.info)


def _resumed(plans: Sequence[Plan], known: Sequence[Visited]) -> list[Finalist]:
    finalists = [Finalist(place, plan) for place, plan in enumerate(plans)]
    for finalist, one in zip(finalists, known, strict=False):
        finalist.resume(one)
    return finalists


def _lacked_room(finalists: Sequence[Finalist], known: Sequence[Visited]) -> bool:
    """Say whether a plan failed here for a reason other than a wrong result, although it had passed in its trial."""
    failures = [finalist.failure for finalist, one in zip(finalists, known, strict=True) if one.failure is None]
    return any(failure is not None and failure.outcome is not Outcome.WRONG_RESULT for failure in failures)


def _thorough(bench: Bench, rules: Rules, patience_s: float) -> Finals:
    least_s = max(rules.least_s, LEAST_S) / TURN if rules.least_s else 0.0  # a turn's sample stands for TURN samples
    return Finals(bench, replace(rules, least_s=least_s, maximum=rules.most, patience_s=patience_s))


def _brief(bench: Bench, rules: Rules, plans: Sequence[Plan]) -> Finals:
    """Return Finals that take one sample of each plan: many benches say more. A single plan has one thorough visit."""
    if len(plans) == 1:
        return _thorough(bench, rules, 0.0)
    rules = replace(rules, target=math.inf, minimum=1, least_s=0.0, patience_s=0.0)
    return Finals(bench, rules, aim_ns=BATCH_NS, least=1, turn=1)


def _share_out(finalists: Sequence[Finalist]) -> None:
    samples = share_out([finalist.visits for finalist in finalists])
    for finalist, visits in zip(finalists, samples, strict=True):
        finalist.visits = [tuple(visit) for visit in visits]
