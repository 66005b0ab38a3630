"""One plan on one device, inside the device worker: build, check the limits, verify, time, verify again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.bench.arena import Arena
from autotune.bench.launcher import Announce, Clock, Launcher, lost
from autotune.bench.prepare import Built, Compiled, binary_hash, bind, compile_plan
from autotune.bench.report import Fault, Limits, Report
from autotune.bench.timing import Precise, Rules, Timed, is_drifting, measure
from autotune.bench.verify import Checker, Verdict
from autotune.devices.opencl import OpenCLError, Session
from autotune.model import Measurement, Outcome
from autotune.ranking import FINALIST_MARGIN, median
from autotune.study import Plan, numpy_type

_KEPT = 256  # compiled plans kept for the finalists' re-timing

_LONG_NS = 250_000_000
"""Runs of this length do not notice what was in the caches before: a CPU refills them in a hundredth of it."""


_LEAST_RETIMED = 3
"""Runs of a finalist at least, however long they are: one says nothing of the noise."""

_VERIFIED_RUNS = 300
"""Runs of a finalist that are verified, as far as the time goes. If it passes, it is, with 95 % confidence, wrong in
fewer than one run in a hundred: .99 ** 300 = .049."""

_VERIFIED_SHARE = 1 / 3
"""Share of the finalists' time that is kept for these runs."""

_SERIES_S = 0.05
"""Seconds of verified runs that are queued at once: the host waits once for each series."""

_LAUNCH_S = 0.001
"""What a verified run takes at most beside the kernel and the restoring of its buffers, before it is known."""


@dataclass
class _Finalist:
    """A plan that is timed again: its times, that of its first run, the runs verified, and what went wrong.

    `run_s` is what a verified run takes, launches and checks included; 0 while that is not known.
    """

    place: int
    plan: Plan
    precise: Precise
    span_ns: int = 0
    verified: int = 0
    run_s: float = 0.0
    failure: Report | None = None


class Bench:
    """Runs plans on one session. `announce` is told each phase before it begins."""

    def __init__(
        self,
        session: Session,
        inputs: Mapping[str, NDArray[Any]],
        expected: Mapping[str, NDArray[Any]],
        rules: Rules,
        limits: Limits,
        announce: Announce,
    ) -> None:
        self._session = session
        self._arena = Arena(session, inputs)
        self._checker = Checker(session, expected)
        self._rules = rules
        self._limits = limits
        self._announce = announce
        self._clock = Clock()
        self._launcher = Launcher(session, self._arena, limits, announce, self._clock)
        self._compiled: dict[Any, Compiled] = {}
        self.place = 0  # of the plan at work, where several are timed interleaved
        self._fresh = True  # nothing has run since the buffers were filled

    def run(
        self,
        plan: Plan,
        best_ns: float | None,
        *,
        patient: bool = False,
        built_ahead: bool = False,
        on_built: Callable[[], None] | None = None,
    ) -> Report:
        """Put one plan through all steps. Never raises for what a kernel does.

        With `patient`, the first run may take as long as if no best were known. A plan that was `built_ahead` has
        had its binary hashed. `on_built` is called before anything runs.
        """
        clock = self._clock
        clock.restart()
        log, environment = "", dict[str, str | int | float]()
        try:
            built = self._build(plan)
            log, environment = built.program.log, built.environment
            clock.lap("build")
            if on_built is not None:
                on_built()
            built, span, verdict = self._verify_first(built, self._limits.run_s(None if patient else best_ns))
            clock.lap("verify")
            timed = self._time(built, best_ns, span)
            clock.lap("time")
            worst = max(verdict.max_error, self._verify_last(built).max_error)
            clock.lap("verify")
            outcome = Outcome.STOPPED if timed.stopped else Outcome.OK
            return Report(
                outcome, timed.reason, timed.measurement, worst, **clock.seconds, busy_s=self._launcher.busy_s(),
                binary_hash="" if built_ahead else binary_hash(self._session, built.program), build_log=log,
                environment=environment,
            )  # fmt: skip
        except Fault as fault:
            clock.lap("verify" if clock.seconds else "build")
            if fault.outcome is Outcome.WRONG_RESULT:
                self._refresh()
            busy, fatal = 0.0, fault.fatal
            try:
                busy = 0.0 if fatal else self._launcher.busy_s()
            except Fault:  # a refused launch may take the context along: the reason is still the refusal
                fatal = True
            return Report(
                fault.outcome, str(fault), **clock.seconds, busy_s=busy, build_log=fault.detail or log,
                environment=environment, fatal=fatal,
            )  # fmt: skip

    def reference(self, plan: Plan) -> dict[str, NDArray[Any]]:
        """Run a reference kernel once and return its outputs, in their logical shapes. Raises Fault."""
        built = self._build(plan)
        self._launcher.once(built, self._limits.first_s)
        outputs = {}
        for guarded in built.buffers:
            if guarded.buffer.writes:
                outputs[guarded.buffer.name] = np.empty(guarded.buffer.data_shape, numpy_type(guarded.buffer.type)[0])
                self._session.read(guarded.whole, outputs[guarded.buffer.name], guarded.start)
        verdict = self._checker.check(built.buffers, {})
        self._refresh()
        if verdict.reason:
            raise Fault(Outcome.WRONG_RESULT, verdict.reason)
        return outputs

    def retime(self, plans: Sequence[Plan], best_ns: float | None, budget_s: float) -> list[Measurement | Report]:
        """Time plans in turn, round by round, until each is precise or the seconds are spent; three runs at least.

        Every turn is verified, and what is fastest then in many more runs: what is wrong now and then, races above
        all, is rarely caught by the two checks of a trial. A plan that fails is left out from then on, and answered
        for by a report. Raises Fault where the device is lost.
        """
        first_turn = partial(self._first_turn, limit_s=self._limits.run_s(best_ns))
        finalists = [_Finalist(place, plan, Precise(self._rules)) for place, plan in enumerate(plans)]
        for finalist in finalists:
            self._attempt(finalist, first_turn)
        began = time.monotonic()
        deadline = began + budget_s * (1 - _VERIFIED_SHARE)
        while sound := [finalist for finalist in finalists if finalist.failure is None]:
            known = min(len(finalist.precise.samples) for finalist in sound)
            enough = all(finalist.precise.finished for finalist in sound) or time.monotonic() >= deadline
            if enough and known >= _LEAST_RETIMED:
                break
            for finalist in sound:
                self._attempt(finalist, self._turn)
        self._verify_finalists(finalists, began + budget_s)
        return [
            one.failure or Measurement(tuple(one.precise.samples), (), one.plan.cache, one.verified)
            for one in finalists
        ]

    # -- steps ----------------------------------------------------------------------------------

    def _build(self, plan: Plan) -> Built:
        self._announce("build", self._limits.build_s)
        key = (plan.source, plan.options, plan.launches, tuple(plan.arguments.items()), plan.local_memory)
        compiled = self._compiled.pop(key, None) or compile_plan(self._session, plan)
        self._compiled[key] = compiled
        if len(self._compiled) > _KEPT:
            del self._compiled[next(iter(self._compiled))]
        return bind(self._session, self._arena, self._checker, plan, compiled)

    def _verify_first(self, built: Built, limit_s: float) -> tuple[Built, int, Verdict]:
        # False before anything is launched: a fault in the middle must not leave the next plan spoilt buffers.
        fresh, self._fresh = self._fresh, False
        span = self._launcher.once(built, limit_s)
        verdict = self._check(built)
        if verdict.reason and not fresh:
            # An earlier kernel may have spoilt an input or the expected output without a trace: once more, clean.
            self._refresh()
            built = self._build(built.plan)
            self._fresh = False
            span = self._launcher.once(built, limit_s)
            verdict = self._check(built)
        if verdict.reason:
            raise Fault(Outcome.WRONG_RESULT, verdict.reason)
        return built, span, verdict

    def _verify_last(self, built: Built) -> Verdict:
        verdict = self._check(built, inputs=True)
        if verdict.reason:
            raise Fault(Outcome.WRONG_RESULT, f"right at first, wrong after the timed runs: {verdict.reason}")
        return verdict

    def _check(self, built: Built, *, inputs: bool = False) -> Verdict:
        self._announce("verify", self._limits.first_s)  # not the plan's doing, and PoCL may have the check to compile
        try:
            return self._checker.check(built.buffers, built.plan.outputs, inputs=inputs)
        except OpenCLError as error:
            raise lost(error) from None

    def _attempt(self, finalist: _Finalist, step: Callable[[_Finalist], None]) -> None:
        self.place = finalist.place
        try:
            step(finalist)
        except Fault as fault:
            if fault.fatal:
                raise
            finalist.failure = Report(fault.outcome, str(fault))
            self._refresh()

    def _verify_finalists(self, finalists: Sequence[_Finalist], deadline: float) -> None:
        """Verify many runs of what may be named, the fastest first, until the deadline.

        What is slower than a finalist may be, the default as a rule, has its turn where all others fail.
        """
        while sound := [finalist for finalist in finalists if finalist.failure is None]:
            bound = FINALIST_MARGIN * min(median(one.precise.samples) for one in sound)
            close = [one for one in sound if median(one.precise.samples) <= bound]
            due = [one for one in close if one.verified < _VERIFIED_RUNS]
            if not due:
                return
            finalist = min(due, key=lambda one: median(one.precise.samples))
            count = self._affordable(finalist, deadline - time.monotonic())
            if count < 1:
                return
            self._attempt(finalist, partial(self._series, count=count))

    def _affordable(self, finalist: _Finalist, left_s: float) -> int:
        """Return how many runs the next series may have."""
        finalist.run_s = finalist.run_s or self._launcher.restore_s + finalist.span_ns * 1e-9 + _LAUNCH_S
        series_s = min(left_s, max(_SERIES_S, finalist.run_s))
        return min(_VERIFIED_RUNS - finalist.verified, int(series_s / finalist.run_s))

    def _series(self, finalist: _Finalist, count: int) -> None:
        """Verify each of some runs, on outputs poisoned before it: what an earlier one left there cannot pass."""
        built = self._build(finalist.plan)
        self._announce("verify", self._limits.floor_s + self._limits.multiple * count * finalist.run_s)
        began = time.monotonic()
        try:
            run = partial(self._launcher.enqueue, built)
            verdict = self._checker.check(built.buffers, built.plan.outputs, inputs=True, run=run, runs=count)
        except OpenCLError as error:
            raise lost(error) from None
        finalist.run_s = (time.monotonic() - began) / count
        finalist.verified += count
        self._launcher.busy_s()  # lets go of the events
        if verdict.reason:
            raise Fault(Outcome.WRONG_RESULT, f"right at first, wrong in {finalist.verified} runs: {verdict.reason}")

    def _first_turn(self, finalist: _Finalist, limit_s: float) -> None:
        _, finalist.span_ns, _ = self._verify_first(self._build(finalist.plan), limit_s)
        finalist.verified += 1
        if finalist.span_ns >= _LONG_NS:
            finalist.precise.add(finalist.span_ns)

    def _turn(self, finalist: _Finalist) -> None:
        built = self._build(finalist.plan)  # on new buffers, where another's fault has spoilt the old
        span = finalist.span_ns
        # The first run of a turn still meets what the previous plan left in the caches.
        turn = self._launcher.repeat(built, 1, span) if span >= _LONG_NS else self._launcher.repeat(built, 4, span)[1:]
        verdict = self._check(built, inputs=True)
        if verdict.reason:
            raise Fault(Outcome.WRONG_RESULT, f"right at first, wrong when timed again: {verdict.reason}")
        finalist.verified += 1
        for ns in turn:
            finalist.precise.add(ns)

    def _refresh(self) -> None:
        self._arena.clear()
        self._checker.forget()
        self._fresh = True

    def _time(self, built: Built, best_ns: float | None, first_ns: int) -> Timed:
        """Time by the rules; times that drift are thrown away once and taken again."""
        longest, pending = first_ns, [first_ns]

        def source(count: int) -> Sequence[int]:
            nonlocal longest
            if pending:  # the verified run is the first of the warm-up
                return [pending.pop()]
            times = self._launcher.repeat(built, count, longest)
            longest = max(longest, *times)
            return times

        timed = measure(source, self._rules, best_ns, built.plan.cache)
        if not timed.stopped and is_drifting(timed.measurement.samples_ns, self._rules.confidence):
            timed = measure(source, self._rules, None, built.plan.cache)
            again = is_drifting(timed.measurement.samples_ns, self._rules.confidence)
            found = "and still drifting" if again else "steady then"
            timed = replace(timed, reason=f"the times drifted (throttling, or a busy machine): measured again, {found}")
        return timed
