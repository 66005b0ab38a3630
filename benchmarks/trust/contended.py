"""The finalists' turns on a CPU beside a load that comes and goes, both simulated: who is picked, and how soon.

    python -m benchmarks.trust.contended [--finales 200] [--save]

Eight finalists of known times run on two cores; the default takes 1.4 times as long as the fastest. On each core
another program alternately computes and rests. A run takes as long as its slower half. Beside the other program a run
gets half of a core, and the scheduler's accounts show that the thread waited. Runs vary as much as those of the studies
in this folder did on a virtual machine. The code under test is `autotune.bench.finals`.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean, median
from types import SimpleNamespace
from typing import Any, NamedTuple

from autotune.bench import finals
from autotune.bench.finalist import Finalist
from autotune.bench.finals import TURN, Finals
from autotune.bench.timing import Rules
from autotune.bench.tour import LEAST_S
from autotune.ranking import speedup
from autotune.tuner.loop import RETIME_S
from benchmarks.tables import save

FINALISTS, CORES = 8, 2
LOADS = {"none": None, "gaps of .3 to 3 s": (0.3, 3.0), "gaps of .1 to 1 s": (0.1, 1.0), "no gaps": (0.0, 1e-6)}
"""Seconds for which the other programs rest; they compute for .3 to 3 s."""

RUNS_MS = 1.5, 15.0, 80.0
COLUMNS = (
    "run, ms", "load", "within 3 %", "mean loss", "worst", "seconds", "at most", "said to be busy",
    "ratio in its interval",
)  # fmt: skip
NOISE = 0.05  # standard deviation of a run
STEP_S = 0.001  # beside a run: building, checking


class Cores:
    """Runs kernels; `now` is the simulated time in seconds."""

    def __init__(self, seed: int, rests: tuple[float, float] | None) -> None:
        self.random = random.Random(seed)
        self.now = self.ran = self.waited = 0.0
        self._rests = rests
        self._computes = [False] * CORES
        self._until = [0.0 if rests else float("inf")] * CORES

    def run(self, true_ns: float) -> int:
        """Return the time of a run."""
        began, left_s = self.now, true_ns * 1e-9 * max(0.5, self.random.gauss(1, NOISE))
        while left_s > 1e-9:
            taken = self._taken()
            speed = 0.5 if taken else 1.0
            step = min(left_s / speed, min(self._until) - self.now)
            left_s -= step * speed
            self.now += step
            self.ran += step * (CORES - taken / 2)
            self.waited += step * taken / 2
        return round((self.now - began) * 1e9)

    def _taken(self) -> int:
        """Return how many cores another program uses now."""
        for core, until in enumerate(self._until):
            if until <= self.now:
                self._computes[core] = not self._computes[core]
                low, high = (0.3, 3.0) if self._computes[core] else self._rests or (0.0, 0.0)
                self._until[core] = self.now + self.random.uniform(low, high) + 1e-9
        return sum(self._computes)


class Bench:
    """The part of a bench that finalists need; a plan is its time in nanoseconds."""

    def __init__(self, cores: Cores) -> None:
        self._cores = cores
        self.place, self.restore_s = 0, 0.0
        self.anchor = SimpleNamespace(plan=None)
        clock = SimpleNamespace(runs=1, share=1.0, sample=lambda built, count: [cores.run(built) for _ in range(count)])
        self.clocks = SimpleNamespace(choose=lambda *_: clock, rest=lambda: None)

    def build(self, plan: float) -> float:
        """Take a moment."""
        self._cores.now += STEP_S
        return plan

    def contention(self) -> float:
        """Return the share of time waited since the last call."""
        ran, waited = self._cores.ran, self._cores.waited
        self._cores.ran = self._cores.waited = 0.0
        return waited / (ran + waited) if waited else 0.0

    def verify_first(self, built: float, limit_s: float) -> tuple[float, int, None]:
        """Run once."""
        return built, self._cores.run(built), None

    def check_last(self, built: float, clock: object) -> Any:
        """Take a moment; nothing is wrong."""
        self._cores.now += STEP_S
        return SimpleNamespace(reason="")

    def throttled(self) -> str:
        """Return no throttling."""
        return ""


class Found(NamedTuple):
    """The result of a finale.

    `loss` of the pick, the seconds, whether it is `said` that others used its cores, and whether its true ratio to the
    default lies `inside` the reported interval.
    """

    loss: float
    seconds: float
    said: bool
    inside: bool


def finale(seed: int, run_ms: float, rests: tuple[float, float] | None) -> Found:
    """Return the result of one finale."""
    cores, draw = Cores(seed, rests), random.Random(-seed)
    times = [run_ms * 1e6 * (1 + draw.uniform(0, 0.12)) for _ in range(FINALISTS - 1)] + [run_ms * 1.4e6]
    vars(finals)["time"] = SimpleNamespace(monotonic=lambda: cores.now)
    bench: Any = Bench(cores)
    rules = replace(Rules(), least_s=LEAST_S / TURN, maximum=Rules().most)
    finalists = [Finalist(place, plan) for place, plan in enumerate(times)]  # type: ignore[arg-type]
    Finals(bench, rules, bench).visit(finalists, 60.0, RETIME_S * 2 / 3)
    pick = min(finalists, key=lambda one: median(one.samples))
    _, low, high = speedup(finalists[-1].samples, pick.samples)
    inside = low <= times[-1] / times[pick.place] <= high
    return Found(times[pick.place] / min(times) - 1, cores.now, bool(pick.throttled), inside)


def row(run_ms: float, load: str, found: Sequence[Found]) -> list[str]:
    """Return the cells of some finales."""
    losses, seconds, said, inside = zip(*found, strict=True)
    within = fmean(loss <= 0.03 for loss in losses)
    return [
        f"{run_ms:g}", load, f"{within:.1%}", f"{fmean(losses):.1%}", f"{max(losses):.1%}",
        f"{fmean(seconds):.1f}", f"{max(seconds):.1f}", f"{fmean(said):.0%}", f"{fmean(inside):.1%}",
    ]  # fmt: skip


def main() -> None:
    """Print a row for each length of a run and load."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--finales", type=int, default=200)
    parser.add_argument("--save", action="store_true", help="write results/trust-contended.json")
    options = parser.parse_args()
    rows = [
        row(run_ms, load, [finale(seed, run_ms, rests) for seed in range(options.finales)])
        for run_ms in RUNS_MS
        for load, rests in LOADS.items()
    ]
    for cells in rows:
        print(" | ".join(cells))
    if options.save:
        save(
            "trust-contended",
            question="Which finalist is picked beside a load that comes and goes?",
            command=f"python -m benchmarks.trust.contended --finales {options.finales} --save",
            columns=COLUMNS,
            rows=rows,
            asked="95 % within 3 %, 93 to 97 % in the interval",
            note="Simulated: eight finalists within 12 % of the fastest and a default 1.4 times as long, on two cores, "
            "on each of which another program computes for .3 to 3 s and rests. Runs vary by 5 %. "
            "Seconds are those of the turns.",
        )


if __name__ == "__main__":
    main()
