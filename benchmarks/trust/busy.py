"""Searches on a CPU device beside a load that comes and goes, judged by a table that was measured without load.

    python -m benchmarks.trust.busy [STUDY ...] [--searches 20] [--trials 30] [--save]

The table has all configurations, timed in turns before and after all searches; a slowdown of a round that all of them
share is removed. While the searches run, as many processes as there are cores compute for .3 to 3 s and rest for as
long. A pick's loss is relative to the fastest configuration that its search tried.
Beside it are the picks that the mean and the least of each trial's first seven runs would have made. Trials are within
5 % by the time that they were compared by; the best's time is divided by that in the table.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean, median

import autotune
from autotune.devices import find_device
from autotune.model import Configuration, Measurement, Outcome, Trial
from autotune.pool import DeviceEvaluator, Settings
from autotune.ranking import speedup
from autotune.study import Problem, Study
from autotune.tuner import Result
from benchmarks.tables import save

HERE = Path(__file__).parent
STUDIES = ("histogram", "stencil", "transpose")
COLUMNS = (
    "study", "configurations", "table moved", "searches", "within 3 %", "worst loss", "ratio in its interval",
    "faster than the default, falsely", "called noisy", "mean of 7 within 3 %", "least of 7 within 3 %",
    "trials within 5 %", "within 10 %", "the best's time",
)  # fmt: skip
_ROUND_S = 0.7
"""Seconds of the table for each configuration."""


@contextmanager
def load(seed: int) -> Iterator[None]:
    """Keep all cores busy from time to time."""
    cores = range(len(os.sched_getaffinity(0)))
    processes = [multiprocessing.Process(target=_compute, args=(seed + core,)) for core in cores]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.join()


def _compute(seed: int) -> None:
    draw = random.Random(seed)
    while True:
        until = time.monotonic() + draw.uniform(0.3, 3)
        while time.monotonic() < until:
            sum(range(10_000))
        time.sleep(draw.uniform(0.3, 3))


def key(configuration: Configuration) -> str:
    """Return a configuration as text."""
    return json.dumps(configuration, sort_keys=True)


def table(problem: Problem) -> dict[str, float]:
    """Return the time of every configuration, all timed in turns, at the machine's pace in the median round."""
    everything = [problem.space.configuration(row) for row in range(len(problem.space))]
    with DeviceEvaluator(problem, [problem.device], Settings()) as evaluator:
        found = evaluator.retime(everything, _ROUND_S * len(everything))
    times = {
        key(configuration): one.samples_ns
        for configuration, one in zip(everything, found, strict=True)
        if isinstance(one, Measurement)
    }
    # Samples at the same position were taken in the same round.
    rounds = zip(*([ns / median(samples) for ns in samples] for samples in times.values()), strict=True)
    pace = [median(ratios) for ratios in rounds]
    return {name: median([ns / p for ns, p in zip(samples, pace, strict=True)]) for name, samples in times.items()}


class Judged:
    """What the searches of one study said, beside the true values."""

    def __init__(self, true: Mapping[str, float]) -> None:
        self.true = true
        self.losses: list[float] = []
        self.of_seven: dict[str, list[float]] = {"mean": [], "least": []}
        self.inside: list[bool] = []
        self.falsely: list[bool] = []
        self.noisy = 0
        self.errors: list[float] = []
        self.of_best: list[float] = []

    def add(self, result: Result, tried: Sequence[Trial]) -> None:
        """Add a search and its trials."""
        best, default = result.best, result.default
        assert best is not None
        assert default is not None
        passed = [one for one in tried if one.outcome in (Outcome.OK, Outcome.STOPPED) and one.measurement is not None]
        least = min(self.true[key(one.configuration)] for one in passed)
        self.losses.append(self.true[key(best.configuration)] / least - 1)
        for name, rule in (("mean", fmean), ("least", min)):
            pick = min(passed, key=lambda one: rule(one.measurement.samples_ns[:7]))
            self.of_seven[name].append(self.true[key(pick.configuration)] / least - 1)
        self.noisy += not result.is_ranked
        self.errors += [abs(one.paced_ns / self.true[key(one.configuration)] - 1) for one in passed]
        self.of_best.append(best.time_ns / self.true[key(best.configuration)])
        if best.configuration != default.configuration and best.retimed and default.retimed:
            _, low, high = speedup(default.retimed.samples_ns, best.retimed.samples_ns)
            truth = self.true[key(default.configuration)] / self.true[key(best.configuration)]
            self.inside.append(low <= truth <= high)
            self.falsely.append(low > 1 >= truth)

    def row(self) -> list[str]:
        """Return the cells."""
        count = len(self.losses)
        return [
            str(count),
            _share(loss <= 0.03 for loss in self.losses),
            f"{max(self.losses):.1%}",
            f"{sum(self.inside)} of {len(self.inside)}",
            f"{sum(self.falsely)} of {len(self.falsely)}",
            f"{self.noisy} of {count}",
            *(_share(loss <= 0.03 for loss in self.of_seven[name]) for name in ("mean", "least")),
            *(f"{fmean(error <= most for error in self.errors):.0%}" for most in (0.05, 0.1)),
            f"{min(self.of_best):.2f} to {max(self.of_best):.2f}",
        ]


def _share(of: Iterator[bool]) -> str:
    found = list(of)
    return f"{sum(found)} of {len(found)}"


def judge(name: str, searches: int, trials: int) -> list[str]:
    """Return the row of a study."""
    path = HERE / f"{name}.toml"
    problem = Problem(Study.load(str(path)), device=find_device(None))
    before = table(problem)
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(searches):
            with load(10 * seed):
                database = f"{folder}/{seed}.db"
                result = autotune.search(path, trials=trials, seed=seed, database=database)
            found.append(result)
            print(name, seed, result.best and result.best.configuration, flush=True)
    after = table(problem)
    true = {name: median((before[name], after[name])) for name in before if name in after}
    judged = Judged(true)
    for result in found:
        judged.add(result, result.trials._trials)
    moved = median(abs(after[one] / before[one] - 1) for one in true)
    return [name, str(len(true)), f"{moved:.1%}", *judged.row()]


def main() -> None:
    """Print a row for each study as it is known."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("studies", nargs="*", default=STUDIES)
    parser.add_argument("--searches", type=int, default=20)
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    rows = []
    for study in options.studies:
        rows.append(judge(study, options.searches, options.trials))
        print(" | ".join(rows[-1]), flush=True)
    if options.save:
        save(
            "trust-busy",
            question="How right is a search on a CPU while other work comes and goes?",
            command=f"python -m benchmarks.trust.busy --searches {options.searches} --trials {options.trials}",
            columns=COLUMNS,
            rows=rows,
            asked="95 % within 3 %, 93 to 97 % in the interval, under 5 % falsely faster",
            note="If the table itself moved by more than is asked, the machine was not quiet, and the row only "
            "compares the three rules. Times within 5 and 10 %: the median of each trial, at the pace by which it was "
            "compared. The best's time: over that of the table.",
        )


if __name__ == "__main__":
    main()
