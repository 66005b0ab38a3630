"""The share of wall time in which the device executed kernels, by sampler, over the whole space of sgemm.

    python benchmarks/share.py [-d DEVICE] [--size 4096] [--trials 200] [--seeds 3]

Once started (from the end of the first trial to the end of the last), and of the whole time of the device's worker,
with the first builds and the finalists. The time of a build shows the speed of the host: if builders are the
bottleneck, they limit the share.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from typing import Any

from engine import make_problem

from autotune import tuner
from autotune.model import Trial
from autotune.pool import DeviceEvaluator
from autotune.tuner import Budget, Request


class Watched(DeviceEvaluator):
    """Records the wall and device seconds at the end of every trial."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.seen: list[tuple[float, float]] = []

    def collect(self, timeout_s: float | None = None) -> Trial:
        """Return the next finished trial."""
        trial = super().collect(timeout_s)
        self.seen.append((time.monotonic(), self.usage()["device"]))
        return trial


def main() -> None:
    """Search with two samplers, once per seed, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-d", "--device")
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    problem = make_problem(options.device, options.size)
    budget = Budget(trials=options.trials)
    print(f"{'sampler':8}{'seed':>5}{'once started':>22}{'in all':>17}{'a build':>10}")
    for sampler in ("bayes", "random"):
        for seed in range(1, options.seeds + 1):
            with (
                tempfile.TemporaryDirectory() as folder,
                Watched(problem, [problem.device]) as evaluator,
            ):
                request = Request(problem, database=f"{folder}/bench.db", sampler=sampler, seed=seed, budget=budget)
                usage = tuner.run(request, evaluator=evaluator).usage
            (began, before), (ended, after) = evaluator.seen[0], evaluator.seen[-1]
            started_s = ended - began
            all_s = sum(usage[step] for step in ("build", "verify", "time", "finalists", "idle"))
            print(
                f"{sampler:8}{seed:5}{(after - before) / started_s:13.0%} of {started_s:4.1f} s"
                f"{usage['device'] / all_s:8.0%} of {all_s:4.1f} s{usage['built_ahead'] / options.trials:8.2f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
