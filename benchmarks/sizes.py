"""What is lost at a size that was never tuned: the best of the nearest size, a model of the others, the default.

    python benchmarks/sizes.py [--db PATH] [--json]

The same random configurations, the default among them, are searched at several sizes of each study, unless PATH holds
them already. Then each size in turn is left out, and each rule names a configuration from what is known at the other
sizes: from all trials, or from a random half of each size's, as if each had been searched separately. A rule's loss is
the time of what it names divided by the best time there, minus one; a stopped trial counts with its time until the
stop. `--json` writes results/sizes.json.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

import autotune
from autotune.devices import find_device
from autotune.identity import apart
from autotune.model import Configuration, DeviceInfo, Outcome, Trial, identity
from autotune.samplers.features import Features
from autotune.samplers.transfer import Donor
from autotune.store import Store
from autotune.study import Problem, Study
from autotune.tuner import fastest
from benchmarks.tables import save

STUDIES: Mapping[str, tuple[int, Sequence[str]]] = {
    "matmul": (40, ("64,64,64", "128,128,128", "256,256,256", "512,512,512", "1024,128,128", "64,64,1024")),
    "sgemm": (30, ("64,64,64", "128,128,128", "256,256,256", "512,512,512", "512,512,64", "96,96,2048")),
    "product_sum": (30, ("1024,64", "16384,64", "1024,1024", "65536,256", "256,8192")),
}
HALVES = 8
"""How many random halves are used."""

UNKNOWN = 0.5
"""The log loss of a configuration that was not tried at a size."""


@dataclass(frozen=True)
class Stored:
    """A size with its trials."""

    problem: Problem
    trials: Sequence[Trial]

    @cached_property
    def model(self) -> Callable[[Configuration], float]:
        """The prediction for a configuration there by the searches' transfer: its log time over the best."""
        features = Features(self.problem.space)
        donor = Donor(features, self.trials)
        return lambda configuration: float(donor.predict(features.of([configuration]))[0])

    @cached_property
    def best(self) -> Trial:
        """The trial that a look-up would name."""
        found = fastest(self.trials, self.problem.device.driver)
        assert found is not None
        return found


Rule = Callable[[Problem, Sequence[Stored]], Configuration]


def measured(name: str, device: DeviceInfo, database: str) -> list[Stored]:
    """Return the trials of each size, searched if they are not stored."""
    study, (count, sizes) = Study.load(name), STUDIES[name]
    pairs = [zip(study.sizes, map(int, size.split(",")), strict=True) for size in sizes]
    problems = [Problem(study, dict(pair), None, device) for pair in pairs]
    rows = problems[0].space.sample(np.random.default_rng(1), min(len(problems[0].space), 100 * count))
    drawn = [problems[0].default, *(problems[0].space.configuration(int(row)) for row in rows)]
    valid = {identity(one): one for one in drawn if all(one in problem.space for problem in problems)}
    start = list(valid.values())[:count]
    found = []
    for problem in problems:
        with Store.open(database) as store:
            trials = store.trials(problem.key)
        if len(trials) < len(start):
            autotune.search(
                name, device=device.number, size=problem.size, trials=len(start) - len(trials), sampler="random",
                seed=1, start=start, database=database,
            )  # fmt: skip
            with Store.open(database) as store:
                trials = store.trials(problem.key)
        found.append(Stored(problem, trials))
    return found


def nearest(left_out: Problem, others: Sequence[Stored]) -> Configuration:
    """Choose by the size alone."""
    return min(others, key=lambda other: apart(other.problem.size, left_out.size)).best.configuration


def weighted(left_out: Problem, others: Sequence[Stored]) -> Configuration:
    """Choose as a look-up does: the best that lost least at the sizes where it was tried; nearer sizes count more."""

    def loss(configuration: Configuration, at: Stored) -> float:
        name = identity(configuration)
        own = [trial for trial in at.trials if identity(trial.configuration) == name and not trial.outcome.failed]
        return math.log(own[-1].time_ns / at.best.time_ns) if own else UNKNOWN

    return _least(left_out, others, loss)


def modelled(left_out: Problem, others: Sequence[Stored]) -> Configuration:
    """Choose in the same way with the predictions of a model of each size."""
    return _least(left_out, others, lambda configuration, at: at.model(configuration))


def _least(
    left_out: Problem, others: Sequence[Stored], loss: Callable[[Configuration, Stored], float]
) -> Configuration:
    weights = [(0.5 + apart(other.problem.size, left_out.size)) ** -2 for other in others]
    valid = [other.best.configuration for other in others if other.best.configuration in left_out.space]
    return min(valid, key=lambda one: sum(w * loss(one, other) for w, other in zip(weights, others, strict=True)))


RULES: Mapping[str, Rule] = {
    "nearest size": nearest,
    "tried at others": weighted,
    "model of others": modelled,
    "default": lambda problem, _: problem.default,
}


def lost(rule: Rule, known: Sequence[Stored], told: Sequence[Stored]) -> list[float]:
    """Return the log loss at each size, left out in turn; `told` is the part of `known` that a rule may see."""
    found = []
    for place, here in enumerate(known):
        times = {identity(trial.configuration): trial.time_ns for trial in here.trials if not trial.outcome.failed}
        named = rule(here.problem, [one for at, one in enumerate(told) if at != place])
        found.append(math.log(times.get(identity(named), max(times.values())) / min(times.values())))
    return found


def halves(known: Sequence[Stored], seed: int) -> list[Stored]:
    """Return a random half of each size's trials, or all of them if nothing in that half passed."""
    rng = np.random.default_rng(seed)
    found = []
    for one in known:
        some = [trial for trial in one.trials if rng.random() < 0.5]
        found.append(Stored(one.problem, some if any(trial.outcome is Outcome.OK for trial in some) else one.trials))
    return found


def main() -> int:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--db", default=None)
    parser.add_argument("--studies", nargs="+", default=list(STUDIES), choices=list(STUDIES))
    parser.add_argument("--json", action="store_true", help="write results/sizes.json")
    options = parser.parse_args()
    device, rows, load = find_device(None), [], os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        for name in options.studies:
            known = measured(name, device, options.db or f"{folder}/sizes.db")
            for told, views in (("all", [known]), ("halves", [halves(known, seed) for seed in range(HALVES)])):
                for rule, choose in RULES.items():
                    found = np.array([lost(choose, known, view) for view in views])
                    mean = f"{100 * math.expm1(found.mean()):.0f}"
                    sizes = ", ".join(f"{100 * math.expm1(one):.0f}" for one in found.mean(axis=0))
                    rows.append([name, told, rule, mean, f"{100 * math.expm1(found.max()):.0f}", sizes])
                    print("  ".join(rows[-1]), flush=True)
    if options.json:
        save(
            "sizes",
            question="What is lost at a size that was never tuned, by what is stored for other sizes?",
            command="python benchmarks/sizes.py",
            columns=["study", "trials told", "rule", "loss, %", "worst, %", "at each size left out, %"],
            rows=rows,
            machine=f"{device.name}, PoCL, two shared cores",
            asked="less than the nearest size",
            note=f"Geometric means. Load of the machine before: {load:.1f}.",
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
