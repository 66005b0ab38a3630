"""When to start trusting run times, and when there are enough of them: pure rules, no device.

`Rules` judges the samples taken so far: whether the warm-up is over, whether there are enough, whether a configuration
is clearly slower than the best. `measure` applies the rules to any source of run times (a device, a recording).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from autotune.model import Measurement
from autotune.ranking import FINALIST_MARGIN, median, median_interval

Source = Callable[[int], Sequence[int]]
"""Called with n, it takes up to n samples and returns them in nanoseconds; it returns none when it is exhausted.

A sample is the time of one run, or of the number of runs that `measure` is given.
"""

_LEAST_NS = 1_000_000
"""Device time before runs count as steady: a few runs of microseconds tell little, and more of them cost nothing."""

_BATCH_NS = 50_000_000
"""Device time of the runs asked for at once: enough to hide the launches, and soon over if one run would be enough."""

_DRIFT = 0.02
"""Share by which the later half of the samples may differ from the earlier half on a steady device."""

_AWAKE_MARGIN, _AWAKE_FINE_MARGIN, _AWAKE_HOPELESS = 0.1, FINALIST_MARGIN - 1, 2.0
"""`margin`, `fine_margin` and `hopeless` for batches on a device that is awake: batches of one plan differ by a per
cent or two. However precise the time of a short launch is on one session, relative to its rivals it may be 3 % off on
others: a possible finalist must not be stopped."""

BUILD_S = 60.0
"""Seconds that a build may take by default."""

FIRST_S = 60.0
"""Seconds that a run may take by default while no best is known."""


VERIFIED_S = 1.0
"""Seconds that are enough to verify a short run as often as is wanted."""

_VERIFIED_SHARE = 1 / 3
"""Share of the finalists' time that is reserved for verified runs."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a build or a run may take, in seconds.

    A build may take `build_s`; a run `multiple` times the best and at least `floor_s`, or `first_s` without a best.
    """

    build_s: float = BUILD_S
    floor_s: float = 2.0
    first_s: float = FIRST_S
    multiple: float = 20.0

    def run_s(self, best_ns: float | None) -> float:
        """Return the limit of one verified run."""
        return self.first_s if best_ns is None else max(self.floor_s, self.multiple * best_ns * 1e-9)


@dataclass(frozen=True, slots=True)
class Rules:
    """How a configuration is timed. Shares are relative (0.01 is 1 %), times are seconds on the device."""

    target: float = 0.01  # width of the interval of the median, as a share of it, at which sampling ends
    confidence: float = 0.95
    minimum: int = 5  # samples; the fewest whose interval covers the median at about the default confidence
    maximum: int = 50  # samples
    most: int = 200  # the same for short samples, and for finalists on a noisy machine
    least_s: float = 0.02  # sampled before a median is believed: disturbances of a machine last for milliseconds
    budget_s: float = 2.0  # of samples of one configuration, at most
    trial_s: float = math.inf  # the same before the finale: less in a short search
    patience_s: float = 16.0  # more for finalists on one session while it is in doubt which is the fastest
    trial_target: float = 0.02  # the target before the finale, which times all doubtful configurations anew
    quiet: int = 2  # runs without a new minimum that end the warm-up
    warmup: int = 10  # runs of warm-up at most
    ramp_s: float = 0.5  # by then a clock has ramped up, and run times are steady
    settle_s: float = 0.0  # of runs that do not count, because the device lowers its clock meanwhile
    margin: float = 0.3  # slower than the best by more than this when steady: stop
    fine_margin: float = 0.03  # the same once the interval of the median is known
    stop_s: float = 0.001  # sampled before a configuration is stopped that is not hopeless
    hopeless: float = 10.0  # slower than the best by this factor: stop at once; no clock ramps that far
    sure: int = 3  # samples needed for that; a single short run may have met a busy machine

    def awake(self, first_ns: float, bound_ns: float | None) -> Rules:
        """Return the rules for batches of runs on a device that is awake, whose clock need not ramp up any more.

        If the first run, which was timed alone before, was hopeless, one batch is enough to confirm that. Without such
        a first run, a batch may be slow because of other work of the device, such as a desktop's next picture.
        """
        seen = bound_ns is not None and first_ns > _AWAKE_HOPELESS * bound_ns
        return replace(
            self,
            margin=_AWAKE_MARGIN,
            fine_margin=_AWAKE_FINE_MARGIN,
            hopeless=_AWAKE_HOPELESS,
            sure=1 if seen else self.sure,
        )

    def is_steady(self, runs: Sequence[int]) -> bool:
        """Say whether the warm-up is over: none of the last `quiet` runs is a new minimum by more than 1 %.

        While a clock ramps up, almost every run is a new minimum; with noise it is not. Short kernels also run for a
        millisecond in all. The warm-up ends in any case after `warmup` runs, or once a clock has had time to ramp up.
        """
        total, latest = sum(runs), range(len(runs) - self.quiet, len(runs))
        quiet = latest.start > 0 and all(runs[at] >= 0.99 * min(runs[:at]) for at in latest)
        return (quiet and total >= _LEAST_NS) or len(runs) >= self.warmup or total * 1e-9 >= self.ramp_s

    def is_hopeless(self, runs: Sequence[int], bound_ns: float) -> bool:
        """Say whether runs, steady or not, rule a configuration out: enough of them, or 50 ms, all hopeless."""
        seen = len(runs) >= self.sure or sum(runs) >= 50_000_000
        return seen and min(runs) > bound_ns * self.hopeless

    def is_slower(self, samples: Sequence[int], bound_ns: float) -> bool:
        """Say whether steady runs are clearly slower than the best so far, even by their fastest plausible median.

        The margin covers the end of a clock's ramp: the recorded spaces show plateaus of four runs up to 26 % above the
        final time. If runs are long, fewer are enough, with a wider margin: one of them may have met a busy machine.
        """
        count, seconds, enough = len(samples), sum(samples) * 1e-9, self.quiet + 1
        if seconds < self.stop_s or (count < enough and seconds < self.ramp_s):
            return False
        if min(samples) > bound_ns * (1 + self.margin * max(1.0, enough / count)):
            return True
        if count < self.minimum or seconds < self.least_s:
            return False
        low, _ = median_interval(samples, self.confidence)
        return low > bound_ns * (1 + self.fine_margin)

    def is_precise(self, samples: Sequence[int]) -> bool:
        """Say whether the median is known well enough, or no more time may be spent; three samples are always taken."""
        count, seconds = len(samples), sum(samples) * 1e-9
        if self.left(samples) <= 0 or (count >= 3 and seconds >= self.budget_s):
            return True
        enough = count >= self.minimum and seconds >= self.least_s
        return enough and relative_width(samples, self.confidence) <= self.target

    def to_settle(self, runs: Sequence[int]) -> int:
        """Return how many more runs to take until the device has settled, or 0 if it has."""
        left_ns = self.settle_s * 1e9 - sum(runs)
        return max(1, int(min(left_ns, _BATCH_NS) // runs[-1])) if runs and left_ns > 0 else 0

    def left(self, samples: Sequence[int]) -> int:
        """Return how many more samples are allowed: up to `maximum`, or to `most` until `least_s` is sampled."""
        short = sum(samples) * 1e-9 < self.least_s
        return (max(self.maximum, self.most) if short else self.maximum) - len(samples)


def relative_width(samples: Sequence[float], confidence: float = 0.95) -> float:
    """Return the width of the interval of the median as a share of the median; infinite for less than two samples."""
    if len(samples) < 2:
        return math.inf
    low, high = median_interval(samples, confidence)
    return (high - low) / median(samples)


def is_drifting(samples: Sequence[float], confidence: float = 0.95) -> bool:
    """Say whether the later half of the samples has another distribution, as on a throttled or disturbed device.

    True if the intervals of the halves do not overlap and their medians are more than 2 % apart.
    """
    half = len(samples) // 2
    if half < 5:
        return False
    early, late = samples[:half], samples[-half:]
    (low, high), (late_low, late_high) = median_interval(early, confidence), median_interval(late, confidence)
    apart = abs(median(late) - median(early))
    return (late_low > high or late_high < low) and apart > _DRIFT * median(early)


@dataclass(frozen=True, slots=True)
class Timed:
    """Run times and how the sampling ended: `stopped` if the configuration was clearly slower than the best.

    `facts` holds what the device's sensors said at the end, with `throttled` for what slowed it down. `contention` is
    the share of the time for which the kernel's threads waited for a core of the host.
    """

    measurement: Measurement
    stopped: bool
    reason: str = ""
    facts: Mapping[str, str | int | float] = field(default_factory=dict)
    contention: float = 0.0


def measure(source: Source, rules: Rules, bound_ns: float | None = None, cache: str = "warm", runs: int = 1) -> Timed:
    """Warm up until steady, sample until precise; stop early if clearly slower than `bound_ns`.

    The last runs of the warm-up, which showed it to be over, are the first samples. If they were only a plateau of a
    clock's ramp, the interval of the median is wide, and more samples are taken. If the rules have a time to settle,
    the runs until then do not count. They are faster than later ones, so what is too slow in them is stopped. A stopped
    configuration keeps the times taken so far. If a sample of the source is the time of several `runs`, the rules see
    whole samples, since they count seconds of the device; bound and measurement are times of one run.
    """
    whole_ns = math.inf if bound_ns is None else bound_ns * runs

    def timed(warmup: Sequence[int], samples: Sequence[int], *, stopped: bool = False) -> Timed:
        reason = _slower_text(samples, whole_ns, runs) if stopped else ""
        taken, before = (tuple(max(1, round(ns / runs)) for ns in times) for times in (samples, warmup))
        return Timed(Measurement(taken, before, cache), stopped, reason)

    warmup = _warm_up(source, rules, whole_ns)
    if rules.is_hopeless(warmup, whole_ns):
        return timed((), warmup, stopped=True)
    unsteady, steady = warmup[: -rules.quiet - 1], warmup[-rules.quiet - 1 :]
    run_ns = warmup[-1] if warmup else 0
    while rules.settle_s and (count := rules.to_settle([*unsteady, *steady])) and not rules.is_slower(steady, whole_ns):
        times = source(count)
        if not times:
            break
        steady += times
    if rules.is_slower(steady, whole_ns):
        return timed(unsteady, steady, stopped=True)
    first, samples = (steady[:1], steady[1:]) if not rules.settle_s else ([], [])
    unsteady += steady[: len(steady) - len(samples)]
    while not rules.is_precise(samples):
        times = source(_wanted(samples, rules, run_ns))
        if not times:
            break
        samples += times
        if rules.is_slower([*first, *samples], whole_ns):
            return timed(unsteady, samples, stopped=True)
    return timed(unsteady, samples)


def _warm_up(source: Source, rules: Rules, bound_ns: float) -> list[int]:
    runs: list[int] = []
    while not (rules.is_steady(runs) or rules.is_hopeless(runs, bound_ns)):
        times = source(1)
        if not times:
            break
        runs += times
    return runs


def _wanted(samples: Sequence[int], rules: Rules, run_ns: int) -> int:
    """Return how many runs to ask for at once: first up to the minimum, then about half as many as were taken.

    Long runs, judged by the time of one (`run_ns`), are asked for one by one: each may be the last.
    """
    taken = len(samples)
    batch = _BATCH_NS // max(1, run_ns)
    if taken < rules.minimum:
        return max(1, min(rules.minimum - taken, batch))
    seconds_left = rules.budget_s - sum(samples) * 1e-9
    affordable = int(seconds_left * 1e9 / max(1, run_ns))
    return max(1, min(1 + taken // 2, rules.left(samples), affordable, batch))


def _slower_text(samples: Sequence[int], bound_ns: float, runs: int) -> str:
    count = len(samples) * runs
    times = median(samples) / bound_ns
    return f"clearly slower than the best: {times:.2f} times as long after {count} run{'s' * (count != 1)}"


def verifying_s(budget_s: float) -> float:
    """Return the seconds of the finalists' time that are reserved for verified runs."""
    return budget_s * _VERIFIED_SHARE
