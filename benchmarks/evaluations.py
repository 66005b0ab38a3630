"""How many evaluations each sampler needs on a real device to come within 2 % of the best found by any of them.

    python benchmarks/evaluations.py [--study sgemm] [--size 4096] [-d DEVICE] [--samplers bayes,tpe,random]
                                     [--seeds 5] [--trials 200] [--json OUT]

Every search starts from an empty database. The first median of a trial counts, as the sampler saw it; the best
ever is the lowest over all searches of this run. Prints a line per search and a table of medians over the seeds.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
from pathlib import Path

from autotune import tuner
from autotune.devices import find_device
from autotune.model import Outcome
from autotune.pool import DeviceEvaluator, Settings
from autotune.store import Store
from autotune.study import Problem, Study
from autotune.text import parse_size
from autotune.tuner import Budget, Request

WITHIN = 1.02


def times_of(problem: Problem, evaluator: DeviceEvaluator, sampler: str, seed: int, trials: int) -> list[float]:
    """Search once, and return the first median of each trial in nanoseconds, in order; inf where there is none."""
    with tempfile.TemporaryDirectory() as folder:
        database, budget = str(Path(folder) / "a.db"), Budget(trials=trials)
        request = Request(problem, database=database, sampler=sampler, seed=seed, budget=budget)
        tuner.run(request, evaluator=evaluator)
        with Store.open(database) as store:
            return [
                trial.measurement.median_ns if trial.outcome is Outcome.OK and trial.measurement else math.inf
                for trial in store.trials(problem.key)
            ]


def evaluations(times: list[float], goal: float) -> float:
    """The number of the first trial that comes within the goal; inf where none does."""
    return next((number for number, time in enumerate(times, 1) if time <= goal), math.inf)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--study", default="sgemm")
    parser.add_argument("--size", default="4096")
    parser.add_argument("-d", "--device")
    parser.add_argument("--samplers", default="bayes,tpe,random")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()

    study = Study.load(arguments.study)
    device = find_device(arguments.device)
    problem = Problem(study, parse_size(arguments.size, study.sizes), None, device)
    found: dict[str, list[list[float]]] = {}
    with DeviceEvaluator(problem, [device], Settings()) as evaluator:
        for seed in range(1, arguments.seeds + 1):  # samplers in turn: a drifting clock meets all alike
            for sampler in arguments.samplers.split(","):
                times = times_of(problem, evaluator, sampler, seed, arguments.trials)
                found.setdefault(sampler, []).append(times)
                print(f"{sampler}, seed {seed}: {len(times)} trials, best {min(times) / 1e6:.4g} ms", flush=True)
                if arguments.json:
                    arguments.json.write_text(json.dumps(found))
    best = min(min(times) for runs in found.values() for times in runs)
    print(
        f"\n{device.name}, {arguments.study} {arguments.size}: best ever {best / 1e6:.4g} ms; within {WITHIN - 1:.0%}:"
    )
    print("| sampler | median evaluations | each seed | searches that got there |\n| --- | --- | --- | --- |")
    for sampler, runs in found.items():
        needed = [evaluations(times, WITHIN * best) for times in runs]
        each = ", ".join("-" if math.isinf(n) else str(n) for n in needed)
        median = statistics.median(needed)
        word = f"> {arguments.trials}" if math.isinf(median) else f"{median:g}"
        print(f"| {sampler} | {word} | {each} | {sum(map(math.isfinite, needed))} of {len(needed)} |")


if __name__ == "__main__":
    main()
