"""The finalists timed again: interleaved in random order, each turn verified, the fastest in many more runs."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil
from operator import attrgetter
from typing import TYPE_CHECKING

from autotune.bench.clock import BATCH_NS, Clock
from autotune.bench.finalist import Finalist, Taken, sound
from autotune.bench.pace import LONG_NS
from autotune.bench.report import Fault, Report
from autotune.bench.settling import probe
from autotune.bench.timing import Rules, relative_width
from autotune.bench.words import LOCAL
from autotune.model import AT_FIRST, AT_TIMES, Outcome
from autotune.ranking import median, speedup
from autotune.study import Plan

if TYPE_CHECKING:
    from autotune.bench.trial import Bench

LEAST_TAKEN = 3
"""Turns of a finalist at least, however long they are: a single one tells nothing about the noise."""

TURN = 3
"""Samples of a turn, whose median counts as one sample: samples taken within a moment are alike, and would make a time
seem more certain than it is."""

MANY = 50
"""After so many turns a finalist's interval need only be as narrow as a trial's."""

DOUBT = 0.03
"""While another finalist may be faster than the fastest by this share, turns are added, until patience ends."""

_BRIEF_NS = 10_000_000
"""A turn of longer runs has one sample that counts."""

_VERIFIED_RUNS = 300
"""Runs of a finalist that are verified, if there is time. A finalist that passes is, with 95 % confidence, wrong in
fewer than one run in a hundred: .99 ** 300 = .049."""

_SERIES_S = 0.05
"""Seconds of verified runs that are queued at once: the host waits once for each series."""

_LAUNCH_S = 0.001
"""Assumed time of a verified run beside the kernel and the restoring of its buffers, until it has been measured."""


def _known(finalists: Sequence[Finalist]) -> int:
    """Return how many turns every finalist has at least."""
    return min(len(finalist.turns_ns) for finalist in finalists)


def _met_others(finalists: Sequence[Finalist]) -> bool:
    """Say whether some turns met the work of other programs and some did not: there are gaps worth waiting for."""
    contended = any(turn.contended for one in finalists for turn in one.aside)
    return contended and any(one.turns_ns for one in finalists)


def _in_doubt(finalists: Sequence[Finalist]) -> bool:
    """Say whether, by their turns, another finalist may be faster than the fastest by more than `DOUBT`."""
    count = _known(finalists)
    times = [one.times(count) for one in finalists]
    fastest = min(times, key=median)
    return any(speedup(rival, fastest)[1] < 1 - DOUBT for rival in times if rival is not fastest)


@dataclass
class Finals:
    """Times plans in turn on one bench, in a new order each round, so that all meet the same state of the machine.

    Each round gives every finalist that has not failed one sample, the median of its turn. Samples at the same index of
    two lists were thus taken at about the same moment, so finalists are compared pair by pair. A round does not count,
    while there is time for another, if the machine was slower than usual (as the anchor shows) or the device was
    throttled; a second throttled round in a row counts. A turn during the work of other programs does not count, and is
    repeated before any finalist has its next turn: so even short gaps in that work are used. The time is extended by up
    to the patience of the rules if too few turns were undisturbed (after that, disturbed ones count too), or while it
    is in doubt which finalist is the fastest, or by how much. `aim_ns` is the device time of a batch of short runs,
    `least` the minimum of turns, `turn` the samples of a turn.
    """

    bench: Bench
    rules: Rules
    aim_ns: int = 2 * BATCH_NS
    least: int = LEAST_TAKEN
    turn: int = TURN
    _random: random.Random = field(default_factory=lambda: random.Random(0))
    _again: bool = False  # the last round met throttling, and did not count
    _alone: bool = True  # turns during the work of other programs do not count

    def visit(self, finalists: Sequence[Finalist], limit_s: float, deadline: float) -> float:
        """Time the finalists until each is precise or the deadline has passed; return the seconds taken beyond it.

        Raises Fault if it is fatal.
        """
        self.prepare(finalists, limit_s)
        for finalist in sound(finalists)[:1]:
            self._attempt(finalist, lambda one: probe(self.bench, one.plan, one.first_ns))
        return self.go_round(finalists, deadline)

    def prepare(self, finalists: Sequence[Finalist], limit_s: float) -> None:
        """Build and verify each on this bench. Raises Fault if it is fatal."""
        for finalist in sound(finalists):
            finalist.begin()
            self._attempt(finalist, partial(self._first_turn, limit_s=limit_s))

    def go_round(self, finalists: Sequence[Finalist], deadline: float) -> float:
        """Time the prepared finalists, as `visit` does."""
        for finalist in sound(finalists):
            self._attempt(finalist, self._choose_clock)
        patient_until, waited_s, self._alone = deadline + self.rules.patience_s, 0.0, True
        self._first_round(sound(finalists), deadline)
        while left := sound(finalists):
            now = time.monotonic()
            if _known(left) < self.least and now >= (patient_until if _met_others(left) else deadline):
                self._count_all(left)
            if _known(left) >= self.least:
                patient = now < patient_until and (self._are_few_pairs(left) or _in_doubt(left))
                if all(map(self._is_precise, left)) or (now >= deadline and not patient):
                    break
            waited_s = max(0.0, min(now, patient_until) - deadline)
            behind = [finalist for finalist in left if len(finalist.turns_ns) == _known(left)]
            for finalist in self._random.sample(behind, len(behind)):
                self._attempt(finalist, self._turn)
            self._judge(behind, deadline)
        count = _known(left) if left else 0
        for finalist in left:
            finalist.end(count)
        return waited_s

    def _are_few_pairs(self, finalists: Sequence[Finalist]) -> bool:
        """Say whether there are several finalists, and too few turns of each for the interval of their ratios."""
        return len(finalists) > 1 and _known(finalists) < self.rules.minimum

    def _count_all(self, finalists: Sequence[Finalist]) -> None:
        """Count turns during the work of other programs: all later ones, and the least disturbed of those put aside.

        As many of the latter count as are missing, or all if no turn at all was undisturbed.
        """
        self._alone = False
        gaps = any(finalist.turns_ns for finalist in finalists)
        for finalist in finalists:
            missing = max(0, self.least - len(finalist.turns_ns)) if gaps else None
            finalist.take(sorted(finalist.aside, key=attrgetter("waited"))[:missing])
            finalist.aside = []

    def _is_precise(self, finalist: Finalist) -> bool:
        """Say whether more turns are of no use. After many turns, on a noisy machine, a wider interval is enough."""
        samples = finalist.turns_ns
        many = len(samples) >= MANY
        return finalist.rules.is_precise(samples) or (many and relative_width(samples) <= self.rules.trial_target)

    def _attempt(self, finalist: Finalist, step: Callable[[Finalist], None]) -> None:
        self.bench.place = finalist.place
        try:
            step(finalist)
        except Fault as fault:
            if fault.fatal:
                raise
            finalist.failure = Report(fault.outcome, str(fault))
            self.bench.refresh()

    def _first_turn(self, finalist: Finalist, limit_s: float) -> None:
        built = self.bench.build(finalist.plan)
        self.bench.contention()  # from here on
        try:
            built, finalist.first_ns, _ = self.bench.verify_first(built, limit_s)
        except Fault as fault:
            if fault.outcome is not Outcome.WRONG_RESULT or str(fault).startswith(AT_TIMES):
                raise
            raise Fault(fault.outcome, f"{AT_FIRST}wrong when run again: {fault}") from None
        if finalist.first_ns >= LONG_NS:
            self._note(finalist, finalist.first_ns, self.bench.contention())
        finalist.verified += 1

    def _choose_clock(self, finalist: Finalist) -> None:
        built = self.bench.build(finalist.plan)
        finalist.clock = clock = self.bench.clocks.choose(built, finalist.first_ns, self.aim_ns, finalist.usual)
        # The device's speed drifts whether or not the device is held meanwhile.
        finalist.turns_ns, finalist.rules = [], replace(self.rules, least_s=self.rules.least_s * clock.share)

    def _first_round(self, finalists: Sequence[Finalist], deadline: float) -> None:
        """If there are long first runs, count them as turns, and give each of the other finalists a turn."""
        if all(finalist.first_ns < LONG_NS for finalist in finalists):
            return
        for finalist in finalists:
            if finalist.first_ns < LONG_NS:
                self._attempt(finalist, self._turn)
        self._judge(finalists, deadline)

    def _turn(self, finalist: Finalist) -> None:
        assert finalist.clock is not None
        built = self.bench.build(finalist.plan)  # on new buffers, if another's fault has spoilt the old
        skipped, counted = self._samples(finalist.plan, finalist.clock, finalist.first_ns)
        self.bench.contention()  # from here on
        samples = finalist.clock.sample(built, skipped + counted)
        self._note(finalist, round(median(samples[skipped:])), self.bench.contention())
        self.bench.clocks.rest()
        verdict = self.bench.check_last(built, finalist.clock)
        if verdict.reason:
            raise Fault(Outcome.WRONG_RESULT, f"{AT_FIRST}wrong when timed again: {verdict.reason}")
        finalist.verified += 1

    def _samples(self, plan: Plan, clock: Clock, run_ns: int) -> tuple[int, int]:
        """Return the samples of a turn that do not count, and those that do."""
        if run_ns >= LONG_NS:
            return 0, 1
        settle_ns = self.bench.settling.seconds(plan, clock) * 1e9
        counted = self.turn if run_ns < _BRIEF_NS else 1
        # The first sample of a turn still finds the previous plan's data in the caches.
        return max(1, ceil(settle_ns / run_ns)), max(counted, ceil(settle_ns / 2 / run_ns))

    def _note(self, finalist: Finalist, ns: int, contention: float) -> None:
        """Record a turn, which `_judge` will count or put aside."""
        finalist.turn = Taken(ns, self.bench.throttled(), contention)

    def _judge(self, finalists: Sequence[Finalist], deadline: float) -> None:
        """Count the turns of the last round, or put them aside."""
        spoilt = self._is_spoilt(finalists) and time.monotonic() < deadline
        for finalist in sound(finalists):
            if spoilt or (self._alone and finalist.turn.contended):
                finalist.aside.append(finalist.turn)
            else:
                finalist.take([finalist.turn])

    def _is_spoilt(self, finalists: Sequence[Finalist]) -> bool:
        """Say whether a round does not count. Throttling in a second round in a row is accepted: it may not end."""
        self._again = not self._again and any(finalist.turn.throttled for finalist in finalists)
        return self._again or any(map(self._met_slowness, finalists))

    def _met_slowness(self, finalist: Finalist) -> bool:
        """Say whether this is the anchor, and its last turn was slower than usual on this machine.

        A turn of the anchor during the work of other programs tells nothing about turns that were undisturbed.
        """
        anchor, runs = self.bench.anchor, finalist.clock.runs if finalist.clock else 1
        told = finalist.plan == anchor.plan and not finalist.turn.contended
        return told and anchor.pace.is_slow([finalist.turn.ns / runs])

    def verify(self, finalists: Sequence[Finalist], deadline: float) -> None:
        """Verify many runs of the fastest finalist, until the deadline; if it fails, of the next fastest."""
        while left := sound(finalists):
            finalist = min(left, key=lambda one: median(one.samples))
            left_s = deadline - time.monotonic()
            # By its usual time: a kernel that reuses the first run's results takes longest in its first run.
            if not finalist.disturbed and median(finalist.samples) * 1e-9 <= left_s / 4:
                self._attempt(finalist, self._disturbed)
                continue
            count = self._affordable(finalist, left_s)
            if count < 1:
                return
            self._attempt(finalist, partial(self._series, count=count))

    def _disturbed(self, finalist: Finalist) -> None:
        """Verify that it does not rely on anything that an earlier run has left."""
        finalist.disturbed = True
        verdict = self.bench.check_disturbed(self.bench.build(finalist.plan))
        finalist.verified += 2
        if verdict.reason:
            what = "wrong if outputs or scratch hold other values before a run: it relies on them, or has a race"
            raise Fault(Outcome.WRONG_RESULT, f"{what}: {verdict.reason}")

    def _affordable(self, finalist: Finalist, left_s: float) -> int:
        """Return how many runs the next series may have: one at least for the first, whose words no trial uses."""
        missing = max(_VERIFIED_RUNS - finalist.verified, finalist.series < 1)
        if finalist.plan.checks and not finalist.run_s:  # their time on the host is not known
            return min(1, missing) if left_s > 0 else 0
        finalist.run_s = finalist.run_s or self.bench.launcher.restore_s + finalist.first_ns * 1e-9 + _LAUNCH_S
        series_s = min(left_s, max(_SERIES_S, finalist.run_s))
        return min(missing, int(series_s / finalist.run_s))

    def _series(self, finalist: Finalist, count: int) -> None:
        """Verify `count` runs, each on poisoned outputs: results of an earlier run cannot pass for its own."""
        built = self.bench.build(finalist.plan)
        began = time.monotonic()
        finalist.series += 1
        # Scratch and guards are filled once with each word: filling large ones takes longer than the runs.
        turn = (1 + finalist.series) % len(LOCAL) if finalist.series <= len(LOCAL) else None
        verdict = self.bench.check_runs(built, count, finalist.run_s, turn)
        finalist.run_s = (time.monotonic() - began) / count
        finalist.verified += count
        if verdict.reason:
            raise Fault(Outcome.WRONG_RESULT, f"{AT_FIRST}wrong in {finalist.verified} runs: {verdict.reason}")
