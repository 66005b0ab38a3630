"""One plan on one device, inside the device worker: build, check the limits, verify, time, verify again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.engine.arena import Arena
from autotune.engine.flush import Flush
from autotune.engine.prepare import Built, Compiled, binary_hash, bind, compile_plan
from autotune.engine.report import Fault, Limits, Report
from autotune.engine.verify import Checker, Verdict
from autotune.model import Measurement, Outcome
from autotune.opencl import Event, Kernel, OpenCLError, Session, span_ns
from autotune.plan import Launch, Plan, numpy_type
from autotune.timing import Precise, Rules, Timed, is_drifting, measure

_KEPT = 256  # compiled plans kept for the finalists' re-timing

_LONG_NS = 250_000_000
"""Runs of this length do not notice what was in the caches before: a CPU refills them in a hundredth of it."""


Announce = Callable[[str, float], None]
"""Called with a phase (of `supervise.DOING`) and the seconds within which the next thing will be said."""


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
        self._flush = Flush(session)
        self._rules = rules
        self._limits = limits
        self._announce = announce
        self._clock = _Clock()
        self._compiled: dict[Any, Compiled] = {}
        self._fresh = True  # nothing but right kernels has run since the buffers were filled

    def run(
        self,
        plan: Plan,
        best_ns: float | None,
        *,
        built_ahead: bool = False,
        on_built: Callable[[], None] | None = None,
    ) -> Report:
        """Put one plan through all steps. Never raises for what a kernel does.

        A plan that was `built_ahead` has had its binary hashed. `on_built` is called before anything runs.
        """
        clock = self._clock = _Clock()
        log, environment = "", dict[str, str | int | float]()
        try:
            built = self._build(plan)
            log, environment = built.program.log, built.environment
            clock.lap("build")
            if on_built is not None:
                on_built()
            span, verdict = self._verify_first(built, best_ns)
            clock.lap("verify")
            timed = self._time(built, best_ns, span)
            clock.lap("time")
            worst = max(verdict.max_error, self._verify_last(built).max_error)
            clock.lap("verify")
            outcome = Outcome.STOPPED if timed.stopped else Outcome.OK
            return Report(
                outcome, timed.reason, timed.measurement, worst, **clock.seconds, busy_s=self._busy_s(), build_log=log,
                binary_hash="" if built_ahead else binary_hash(self._session, built.program), environment=environment,
            )  # fmt: skip
        except Fault as fault:
            clock.lap("verify" if clock.seconds else "build")
            if fault.outcome is Outcome.WRONG_RESULT:
                self._refresh()
            busy = 0.0 if fault.fatal else self._busy_s()
            return Report(
                fault.outcome, str(fault), **clock.seconds, busy_s=busy, build_log=fault.detail or log,
                environment=environment, fatal=fault.fatal,
            )  # fmt: skip

    def reference(self, plan: Plan) -> dict[str, NDArray[Any]]:
        """Run a reference kernel once and return its outputs, in their logical shapes. Raises Fault."""
        built = self._build(plan)
        self._run_once(built, None)
        outputs = {}
        for guarded in built.buffers:
            if guarded.buffer.access in ("out", "inout"):
                dtype, width = numpy_type(guarded.buffer.type)
                shape = (*guarded.buffer.shape, width) if width > 1 else guarded.buffer.shape
                outputs[guarded.buffer.name] = np.empty(shape, dtype)
                self._session.read(guarded.whole, outputs[guarded.buffer.name], guarded.start)
        verdict = self._checker.check(built.buffers, {})
        self._refresh()
        if verdict.reason:
            raise Fault(Outcome.WRONG_RESULT, verdict.reason)
        return outputs

    def retime(self, plans: Sequence[Plan], budget_s: float) -> list[Measurement]:
        """Time plans in turn, round by round, until each is precise or the seconds are spent. Raises Fault."""
        built, first = [], []
        for plan in plans:
            built.append(self._build(plan))
            first.append(self._run_once(built[-1], None))
        precise = [Precise(self._rules) for _ in plans]
        deadline = time.monotonic() + budget_s
        while not all(rule.finished for rule in precise) and time.monotonic() < deadline:
            for rule, one, span in zip(precise, built, first, strict=True):
                # The first run of a turn still meets what the previous plan left in the caches.
                turn = self._runs(one, 1, span) if span >= _LONG_NS else self._runs(one, 4, span)[1:]
                for ns in turn:
                    rule.add(ns)
        return [Measurement(tuple(rule.samples), (), plan.cache) for rule, plan in zip(precise, plans, strict=True)]

    # -- steps ----------------------------------------------------------------------------------

    def _build(self, plan: Plan) -> Built:
        self._announce("build", self._limits.build_s)
        key = (plan.source, plan.options, plan.launches, tuple(plan.arguments.items()), plan.local_memory)
        compiled = self._compiled.pop(key, None) or compile_plan(self._session, plan)
        self._compiled[key] = compiled
        if len(self._compiled) > _KEPT:
            del self._compiled[next(iter(self._compiled))]
        return bind(self._session, self._arena, self._checker, plan, compiled)

    def _verify_first(self, built: Built, best_ns: float | None) -> tuple[int, Verdict]:
        span = self._run_once(built, best_ns)
        verdict = self._check(built)
        if verdict.reason and not self._fresh:
            # An earlier kernel may have spoilt an input or the expected output without a trace: once more, clean.
            self._refresh()
            built = self._build(built.plan)
            span = self._run_once(built, best_ns)
            verdict = self._check(built)
        self._fresh = False
        if verdict.reason:
            raise Fault(Outcome.WRONG_RESULT, verdict.reason)
        return span, verdict

    def _verify_last(self, built: Built) -> Verdict:
        self._announce("verify", self._limits.floor_s)
        verdict = self._check(built, inputs=True)
        if verdict.reason:
            raise Fault(Outcome.WRONG_RESULT, f"right at first, wrong after the timed runs: {verdict.reason}")
        return verdict

    def _check(self, built: Built, *, inputs: bool = False) -> Verdict:
        try:
            return self._checker.check(built.buffers, built.plan.outputs, inputs=inputs)
        except OpenCLError as error:
            raise _lost(error) from None

    def _refresh(self) -> None:
        self._arena.clear()
        self._checker.forget()
        self._fresh = True

    def _run_once(self, built: Built, best_ns: float | None) -> int:
        """Run all launches once on poisoned outputs and return their span; on PoCL this compiles them."""
        limit = self._limits.run_s(best_ns)
        self._announce("verify", limit)
        for guarded in built.buffers:
            if guarded.buffer.access in ("out", "scratch"):
                self._arena.poison(guarded)
            self._arena.restore(guarded)
        events = []
        for kernel, launch in built.kernels:
            events.append(self._launch(kernel, launch))
            if self._session.builds_at_launch:
                self._await_compilation(launch, events[-1])
                self._announce("verify", limit)
                self._finish()
        self._finish()
        return span_ns(events[0], events[-1])

    def _await_compilation(self, launch: Launch, event: Event) -> None:
        self._clock.lap("verify")
        self._announce("launch", self._limits.build_s)
        if not self._session.wait_until_running(event):
            raise Fault(Outcome.COMPILE_ERROR, f"{launch.entry} did not compile at its first launch", fatal=True)
        self._clock.lap("build")

    def _time(self, built: Built, best_ns: float | None, first_ns: int) -> Timed:
        """Time by the rules; times that drift are thrown away once and taken again."""
        longest, pending = first_ns, [first_ns]

        def source(count: int) -> Sequence[int]:
            nonlocal longest
            if pending:  # the verified run is the first of the warm-up
                return [pending.pop()]
            times = self._runs(built, count, longest)
            longest = max(longest, *times)
            return times

        timed = measure(source, self._rules, best_ns, built.plan.cache)
        if not timed.stopped and is_drifting(timed.measurement.samples_ns, self._rules.confidence):
            timed = measure(source, self._rules, None, built.plan.cache)
            again = is_drifting(timed.measurement.samples_ns, self._rules.confidence)
            found = "and still drifting" if again else "steady then"
            timed = replace(timed, reason=f"the times drifted (throttling, or a busy machine): measured again, {found}")
        return timed

    def _runs(self, built: Built, count: int, longest_ns: float) -> list[int]:
        self._announce("time", self._limits.floor_s + self._limits.multiple * longest_ns * 1e-9 * count)
        spans = []
        for _ in range(count):
            for guarded in built.buffers:
                self._arena.restore(guarded)
            if built.plan.cache == "cold":
                self._flush.run()
            events = [self._launch(kernel, launch) for kernel, launch in built.kernels]
            spans.append((events[0], events[-1]))
        self._finish()
        return [span_ns(first, last) for first, last in spans]

    def _launch(self, kernel: Kernel, launch: Launch) -> Event:
        try:
            return self._session.launch(kernel, launch.global_size, launch.local_size)
        except OpenCLError as error:
            sizes = f"global {launch.global_size}, local {launch.local_size}"
            raise Fault(Outcome.LAUNCH_ERROR, f"{launch.entry}: {error} ({sizes})") from None

    def _finish(self) -> None:
        try:
            self._session.finish()
        except OpenCLError as error:
            raise _lost(error) from None

    def _busy_s(self) -> float:
        self._finish()
        return self._session.busy_ns() * 1e-9


def _lost(error: OpenCLError) -> Fault:
    return Fault(Outcome.CRASH, f"the device gave up while running the kernel: {error}", fatal=True)


class _Clock:
    """Adds up wall seconds by step: `build_s`, `verify_s`, `time_s`."""

    def __init__(self) -> None:
        self.seconds: dict[str, Any] = {}
        self._last = time.monotonic()

    def lap(self, step: str) -> None:
        now = time.monotonic()
        self.seconds[f"{step}_s"] = self.seconds.get(f"{step}_s", 0.0) + now - self._last
        self._last = now
