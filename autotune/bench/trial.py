"""One plan on one device, inside the device worker: build, check the limits, verify, time, verify again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from numpy.typing import NDArray

from autotune.bench.arena import Arena
from autotune.bench.clock import Clock, Clocks
from autotune.bench.launcher import Announce, Launcher, Stopwatch, noticing_loss
from autotune.bench.pace import CONTENDED, Anchor, Contention, stretch
from autotune.bench.prepare import Built, Compiled, binary_hash, bind, compile_plan, holds_anything
from autotune.bench.report import Fault, Report
from autotune.bench.settling import Settling
from autotune.bench.signature import check_signatures
from autotune.bench.timing import Limits, Rules, Timed, is_drifting, measure
from autotune.bench.verify import Checker, Verdict
from autotune.bench.zeros import cure_by_zeros
from autotune.devices import Session
from autotune.model import AT_FIRST, AT_TIMES, CONTENTION, PACE, SETTLE, THROTTLED, Outcome
from autotune.ranking import median
from autotune.study import Plan

_AGAIN_NS = 1_000_000_000
"""Samples that took longer are not taken again because other programs used the cores: they would use them again."""

_KEPT = 256  # compiled plans kept for the finalists' re-timing


class Bench:
    """Runs plans on one session. `announce` is called before each phase.

    `marked`: the reference leaves some values of the outputs unwritten, and so may the plans (arena.py).
    """

    def __init__(
        self,
        session: Session,
        inputs: Mapping[str, NDArray[Any]],
        expected: Mapping[str, NDArray[Any]],
        rules: Rules,
        limits: Limits,
        announce: Announce,
        *,
        marked: bool = False,
    ) -> None:
        self.session = session
        self._marked = marked
        self._arena = Arena(session, inputs, marked=marked)
        self._checker = Checker(session, expected, inputs)
        # Beside other programs a few short runs in a row are not meaningful.
        stop_s = rules.least_s if session.traits.shares_cores else rules.stop_s
        self._rules = replace(
            rules,
            budget_s=min(rules.budget_s, rules.trial_s),
            target=max(rules.target, rules.trial_target),
            stop_s=stop_s,
        )
        self.final_rules = rules
        self._limits = limits
        self._announce = announce
        self._watch = Stopwatch()
        self.launcher = Launcher(session, self._arena, limits, announce, self._watch)
        self.clocks = Clocks(session, self.launcher)
        self.anchor = Anchor(self)
        # The share of the time, 0..1, for which threads waited for a core since the last call.
        self.contention: Callable[[], float] = Contention().read if session.traits.shares_cores else lambda: 0.0
        self._compiled: dict[Any, Compiled] = {}
        self._hints: dict[Any, tuple[str, ...]] = {}  # of sources and launches whose arguments fit
        self.hints: tuple[str, ...] = ()  # of the plan built last
        self.place = 0  # of the current plan, if several are timed interleaved
        self.settling = Settling()
        self._fresh = True  # nothing has run since the buffers were filled

    def run(
        self,
        plan: Plan,
        best_ns: float | None,
        *,
        built_ahead: bool = False,
        on_built: Callable[[], None] | None = None,
    ) -> Report:
        """Put one plan through all steps. Nothing that a kernel does makes this raise.

        If the plan was `built_ahead`, its binary was hashed then. `on_built` is called before anything runs.
        """
        self.place = 0
        watch = self._watch
        watch.restart()
        log, environment = "", dict[str, str | int | float]()
        try:
            built = self.build(plan)
            log, environment = built.program.log, built.environment
            watch.lap("build")
            if on_built is not None:
                on_built()
            built, first_ns, verdict = self.verify_first(built, self._limits.run_s(best_ns))
            watch.lap("verify")
            clock = self.clocks.choose(built, first_ns)
            timed, last = self._timed(built, clock, best_ns)
            if not clock.fits:  # a disturbance of its first batches made runs seem long
                clock = self.clocks.choose(built, first_ns)
                timed, last = self._timed(built, clock, best_ns)
            if self.anchor.has_moved():  # maybe while this plan was timed
                timed, last = self._timed(self.build(plan), clock, best_ns)
            environment |= {**clock.facts(), **timed.facts, **self._note(plan, clock, timed)}
            return Report(
                Outcome.STOPPED if timed.stopped else Outcome.OK, timed.reason, timed.measurement,
                max(verdict.max_error, last.max_error), **watch.seconds, busy_s=self.launcher.busy_s(),
                binary_hash="" if built_ahead else binary_hash(self.session, built.program), build_log=log,
                environment=environment,
            )  # fmt: skip
        except Fault as fault:
            watch.lap("verify" if watch.seconds else "build")
            hints = self.hints if fault.outcome is Outcome.CRASH else ()
            if fault.outcome is Outcome.WRONG_RESULT:
                self.refresh()
                hints = self._hints.get(_signed(plan), ())
            reason = "; ".join([str(fault), *hints])
            busy, fatal = 0.0, fault.fatal
            try:
                busy = 0.0 if fatal else self.launcher.busy_s()
            except Fault:  # a refused launch may break the context: the reason is still the refusal
                fatal = True
            return Report(
                fault.outcome, reason, **watch.seconds, busy_s=busy, build_log=fault.detail or log,
                environment=environment, fatal=fatal,
            )  # fmt: skip

    def get_ready(self) -> None:
        """Load and build what timing needs beside a plan, while nothing waits for it."""
        self.session.sense()
        self.clocks.prepare()

    def limit_s(self, best_ns: float | None) -> float:
        """Return the limit of a finalist's first run: the default may take many times as long as the best."""
        return max(self._limits.first_s, self._limits.run_s(best_ns))

    # -- steps ----------------------------------------------------------------------------------

    def build(self, plan: Plan) -> Built:
        """Return a plan ready to launch, compiled once. Raises Fault."""
        self.hints = ()
        self._announce("build", self._limits.build_s)
        key = (plan.source, plan.options, plan.launches, tuple(plan.arguments.items()), plan.local_memory)
        if (signed := _signed(plan)) not in self._hints:
            self._hints[signed] = tuple(check_signatures(self.session, plan))
        self.hints = self._hints[signed]
        compiled = self._compiled.pop(key, None) or compile_plan(self.session, plan)
        self.launcher.be_ready(plan)
        self._compiled[key] = compiled
        if len(self._compiled) > _KEPT:
            del self._compiled[next(iter(self._compiled))]
        return bind(self.session, self._arena, self._checker, plan, compiled)

    def verify_first(self, built: Built, limit_s: float) -> tuple[Built, int, Verdict]:
        """Run and check a plan once; return it (on new buffers if the old were spoilt), its ns and the verdict.

        Raises Fault.
        """
        # False before anything is launched: after a fault the next plan must not trust the buffers.
        fresh, self._fresh = self._fresh, False
        self.hints = (*self.hints, *holds_anything(built))
        span = self.launcher.once(built, limit_s)
        verdict = self._check(built)
        if verdict.reason and not fresh:
            # An earlier kernel may have spoilt an input or the expected output unnoticed: run again on new buffers.
            left, wrong = built, verdict.reason
            self.refresh()
            built = self.build(built.plan)
            self._fresh = False
            span = self.launcher.once(built, limit_s)
            verdict = self._check(built)
            if not verdict.reason and self._was_right(left, built):
                raise Fault(Outcome.WRONG_RESULT, f"{AT_TIMES}wrong in the run before: {wrong}")
        if verdict.reason:
            cure = cure_by_zeros(built, partial(self._is_right_on_zeros, built, limit_s), marked=self._marked)
            raise Fault(Outcome.WRONG_RESULT, "; ".join(filter(None, (verdict.reason, cure))))
        self.hints = ()  # the hints were not needed
        self.launcher.respoil(built)  # if it keeps the minimum or maximum of what it finds, its last check will fail
        return built, span, verdict

    def check_last(self, built: Built, clock: Clock) -> Verdict:
        """Check what the timed runs left, or one more run if none of them wrote on poisoned outputs."""
        if not clock.poisons:
            self.launcher.enqueue(built)
        return self._check(built, inputs=True)

    def check_runs(self, built: Built, count: int, run_s: float, turn: int | None) -> Verdict:
        """Check each of `count` runs, on poisoned outputs; one takes about `run_s` with its check. Raises Fault.

        If a `turn` is given, scratch and guards are filled with words of that number before the first run.
        """
        known_s = self._limits.floor_s + self._limits.multiple * count * run_s
        self._announce("verify", known_s if run_s else self._limits.first_s)
        run = partial(self.launcher.enqueue, built)
        if turn is not None:
            self.launcher.respoil(built, turn)
        with noticing_loss():
            verdict = self._checker.check(
                built.buffers, built.plan.outputs, built.plan.checks, inputs=True, run=run, runs=count
            )
        self.launcher.busy_s()  # releases the events
        return verdict

    def check_disturbed(self, built: Built) -> Verdict:
        """Check two runs on what earlier runs left in outputs and scratch, each time with another half of it changed.

        On unchanged leftovers, a kernel that reuses an earlier run's results passes, with less work. Raises Fault.
        """
        verdict = Verdict()
        self._announce("verify", self._limits.first_s)
        self.launcher.enqueue(built)  # another plan may have run last
        for part in (0, 1):
            self._announce("verify", self._limits.first_s)
            self.launcher.disturb(built, part)
            verdict = verdict if verdict.reason else self._check(built)
        self.launcher.busy_s()  # releases the events
        return verdict

    def throttled(self) -> str:
        """Name what slows the device down now, or return an empty string if its sensors say nothing."""
        reading = self.session.sense()
        return reading.throttled if reading else ""

    def refresh(self) -> None:
        """Forget all buffers: a faulty kernel may have written to any of them."""
        self._arena.clear()
        self._checker.forget()
        self._fresh = True

    def _is_right_on_zeros(self, built: Built, limit_s: float, names: Collection[str]) -> bool:
        try:
            self.launcher.on_zeros(built, names, limit_s)
            return not self._check(built, inputs=True).reason
        except Fault as fault:
            if fault.fatal:
                raise
            return False

    def _was_right(self, left: Built, built: Built) -> bool:
        """Say whether the run that left the buffers of `left` had found them unspoilt; False if that is not known.

        `built` is the same plan on new buffers. The expected outputs may have been spoilt too, and are uploaded again.
        """
        if any(guarded.pristine is not None for guarded in left.buffers):
            return False
        self._checker.forget()
        self._checker.prepare(built.buffers)
        spoilt = self._checker.check(left.buffers, {}, inputs=True).reason
        return not spoilt and bool(self._check(left).reason)

    def _check(self, built: Built, *, inputs: bool = False) -> Verdict:
        self._announce("verify", self._limits.first_s)  # a fixed limit: PoCL may first compile the check
        with noticing_loss():
            return self._checker.check(built.buffers, built.plan.outputs, built.plan.checks, inputs=inputs)

    def _timed(self, built: Built, clock: Clock, best_ns: float | None) -> tuple[Timed, Verdict]:
        """Time a plan, then check what it left. Raises Fault."""
        timed = self._time(built, clock, None if best_ns is None else best_ns * self.anchor.pace.now)
        self._watch.lap("time")
        last = self.check_last(built, clock)
        if last.reason:
            raise Fault(Outcome.WRONG_RESULT, f"{AT_FIRST}wrong after the timed runs: {last.reason}")
        self._watch.lap("verify")
        return timed, last

    def _note(self, plan: Plan, clock: Clock, timed: Timed) -> dict[str, str | int | float]:
        """Offer a plan as the anchor; return the pace for its environment, unless it is the usual one."""
        times = timed.measurement.samples_ns
        longer = stretch(times, timed.contention)
        if not timed.stopped and longer == 1:
            self.anchor.offer(plan, clock, median(times))
        pace = round(self.anchor.pace.now * longer, 3)
        return {} if pace == 1 else {PACE: pace}

    def _time(self, built: Built, clock: Clock, best_ns: float | None) -> Timed:
        """Time by the rules; disturbed times are discarded once and taken again."""

        def source(count: int) -> Sequence[int]:
            return [clock.known.pop()] if clock.known else clock.sample(built, count)

        def measured(bound_ns: float | None, longer: float = 1.0) -> Timed:
            self.contention()  # from here on
            rules = self._rules_of(built.plan, clock, bound_ns, longer)
            timed = measure(source, rules, bound_ns, built.plan.cache, clock.runs)
            waited = round(self.contention(), 3)
            disturbed = {CONTENTION: waited} if waited > CONTENDED else {}
            reading = self.session.sense()
            if not self.session.traits.shares_cores:
                self.settling.learn(timed, reading, settled=rules.settle_s > 0)
            facts = {**(reading.facts() if reading else {}), **disturbed}
            facts |= {SETTLE: rules.settle_s} if rules.settle_s else {}
            return replace(timed, facts=facts, contention=waited)

        knew = self.settling.needed
        timed = measured(best_ns)
        if self.settling.needed and not (knew or timed.stopped) and self.settling.seconds(built.plan, clock):
            timed = measured(best_ns)
        what, _ = self._spoilt(timed)
        again = timed.contention > CONTENDED and sum(timed.measurement.samples_ns) <= _AGAIN_NS
        if what or again:
            longer = stretch(timed.measurement.samples_ns, timed.contention)
            bound_ns = best_ns * longer if timed.stopped and best_ns is not None else None
            timed = measured(bound_ns, longer)
            _, still = self._spoilt(timed)
            said = what and f"{what}: measured again, {f'and still {still}' if still else 'steady then'}"
            timed = replace(timed, reason="; ".join(filter(None, (timed.reason, said))))
        self.clocks.rest()
        return timed

    def _rules_of(self, plan: Plan, clock: Clock, bound_ns: float | None, longer: float) -> Rules:
        """Return the rules for a plan that took `longer` times as long because of other programs."""
        # A disturbance of the machine lasts equally long whether or not the device is held meanwhile.
        settle_s = self.settling.seconds(plan, clock) if self.settling.needed else 0.0
        rules = replace(self._rules, least_s=self._rules.least_s * clock.share, settle_s=settle_s)
        if not clock.ramps:
            rules = rules.awake(clock.first_ns, bound_ns)
        if plan.cache == "cold":  # each sample costs a flush of the cache, however short it is
            afforded = int(rules.budget_s / max(self.launcher.flush_s, 1e-6))
            most = max(rules.minimum, min(rules.maximum, afforded))
            rules = replace(rules, maximum=most, most=most)
        return replace(rules, fine_margin=rules.margin) if longer > 1 else rules  # `longer` is a rough estimate

    def _spoilt(self, timed: Timed) -> tuple[str, str]:
        """Say why these times do not depend on the plan alone, in a clause and in a word, both empty if they do."""
        if names := timed.facts.get(THROTTLED):
            return f"the device was throttled ({names})", "throttled"
        if not timed.stopped and is_drifting(timed.measurement.samples_ns, self._rules.confidence):
            return "the times drifted (throttling, or a busy machine)", "drifting"
        return "", ""


def _signed(plan: Plan) -> Any:
    """Return what decides whether arguments fit the kernels: if they fit, they do so for other sizes and values too."""
    return plan.source, tuple((launch.entry, launch.arguments) for launch in plan.launches)
