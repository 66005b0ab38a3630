"""How long runs must go on before their times count, because a device lowers its clock while it works.

A kernel that would take more power than the device may is fast for a moment only. A program that queues the kernel sees
the clock that the device keeps.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING

from autotune.bench.clock import QUEUED_NS, Clock
from autotune.bench.timing import Timed
from autotune.devices import Reading
from autotune.model import Measurement
from autotune.ranking import median, median_interval
from autotune.study import Plan

if TYPE_CHECKING:
    from autotune.bench.trial import Bench

SETTLE_S = 0.2
"""Device time after which a device at its power limit runs at the clock that it keeps. After a pause of some
milliseconds an H200 ran a kernel for 40 ms at its full clock, and then 12 to 18 % slower; after .1 s it was within 1 %
of the final time."""

_PROBE_S, _PROBED = 0.1, 10
"""Device time of the runs that show whether a device lowers its clock, and how many runs at least."""

_SLOWER = 1.01
"""A device that has lowered its clock is slower by more than this factor."""


class Settling:
    """Whether a device lowers its clock while it works, by what is known so far."""

    def __init__(self) -> None:
        self.needed = False

    def seconds(self, plan: Plan, clock: Clock) -> float:
        """Return for how long a plan must run before its times count.

        Short runs, in batches or with gaps between them, are over before the clock is lowered, and flushes of a cold
        cache would take too long.
        """
        long = clock.ramps and clock.first_ns >= QUEUED_NS
        return SETTLE_S if self.needed and long and plan.cache == "warm" else 0.0

    def learn(self, timed: Timed, reading: Reading | None, *, settled: bool) -> None:
        """Learn from times, from whether the device had `settled` before they counted, and from its sensors."""
        limited = reading is not None and reading.at_power_limit
        times = timed.measurement
        if not settled:
            self.needed = self.needed or limited or gets_slower(times.samples_ns)
        elif reading is not None:
            self.needed = limited
        elif not timed.stopped:
            self.needed = median(times.samples_ns) > _SLOWER * min(times.warmup_ns)


def gets_slower(samples_ns: Sequence[int]) -> bool:
    """Say whether the last third of these times is clearly slower than the first."""
    third = len(samples_ns) // 3
    if third < 3:
        return False
    (_, early), (late, _) = median_interval(samples_ns[:third]), median_interval(samples_ns[-third:])
    return late > _SLOWER * early


def probe(bench: Bench, plan: Plan, run_ns: int) -> None:
    """Let a bench learn whether its device lowers its clock while a plan runs, which no short trial shows.

    Batches are too short for that, and few long runs show no difference. Raises Fault.
    """
    if bench.session.traits.shares_cores or not QUEUED_NS <= run_ns <= 1e9 * _PROBE_S / 4:
        return
    built = bench.build(plan)
    clock = bench.clocks.choose(built, run_ns)
    if clock.ramps and plan.cache == "warm" and not bench.settling.needed:
        times = clock.sample(built, max(_PROBED, ceil(1e9 * _PROBE_S / run_ns)))
        bench.settling.learn(Timed(Measurement(times), stopped=False), bench.session.sense(), settled=False)
