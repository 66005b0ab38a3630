"""How many evaluations each sampler needs on a real device to come near the best that any of them finds.

    python benchmarks/evaluations.py [TARGET ...] [-d DEVICE] [--ways bayes bayes+donor tpe random] [--seeds 5]
                                     [--trials 40] [--save]

A target is STUDY@SIZE@DONOR: the size that is searched and, for `+donor`, a size of which 60 trials are known, found by
`bayes` with the same seed. Otherwise every search starts from an empty database. The time of a configuration is the
median of its first medians in all searches of the run, so that no search is judged by a lucky measurement of its own.
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from tables import save

from autotune import tuner
from autotune.devices import find_device
from autotune.model import DeviceInfo, Identity, Outcome, identity
from autotune.pool import DeviceEvaluator, Settings
from autotune.store import Store
from autotune.study import Problem, Study
from autotune.text import parse_size
from autotune.tuner import Budget, Request

OURS = Path(__file__).parent / "trust"
TARGETS = (
    "sgemm@4096@2048",
    f"{OURS / 'stencil.toml'}@160@96",
    f"{OURS / 'histogram.toml'}@4194304@1048576",
    f"{OURS / 'convolution.toml'}@1536@768",
)
WAYS = ("bayes", "bayes+donor", "tpe", "random")
WITHIN = (1.05, 1.02)
AT = 25
DONOR_TRIALS = 60
SECONDS = 8.0
"""Enough for the trials; the finale takes a tenth and does not count."""
COLUMNS = ("study", "size", "way", "to 5 %", "to 2 %", f"best at {AT}", "each seed to 2 %")

Trials = list[tuple[Identity, float]]
"""Configurations in the order tried, and the first median of each in nanoseconds; inf if it has none."""


@dataclass(frozen=True)
class Target:
    """What is searched: a problem, and the same study at the donor's size."""

    problem: Problem
    donor: Problem

    @classmethod
    def parse(cls, text: str, device: DeviceInfo) -> Target:
        """Read STUDY@SIZE@DONOR."""
        name, *sizes = text.split("@")
        study = Study.load(name)
        return cls(*(Problem(study, parse_size(size, study.sizes), None, device) for size in sizes))

    def searched(self, way: str, seed: int, trials: int, evaluator: DeviceEvaluator, donors: Path) -> Trials:
        """The trials of one search."""
        sampler, _, donor = way.partition("+")
        with tempfile.TemporaryDirectory() as folder:
            database = Path(folder) / "a.db"
            if donor:
                database.write_bytes((donors / f"{seed}.db").read_bytes())
            search(self.problem, str(database), sampler, seed, trials, evaluator)
            with Store.open(str(database)) as store:
                return [
                    (
                        identity(one.configuration),
                        one.measurement.median_ns if one.outcome is Outcome.OK and one.measurement else math.inf,
                    )
                    for one in store.trials(self.problem.key)
                ]


def search(problem: Problem, database: str, sampler: str, seed: int, trials: int, evaluator: DeviceEvaluator) -> None:
    """Search with an evaluator that many searches share."""
    budget = Budget(trials=trials, seconds=SECONDS)
    request = Request(problem, database=database, sampler=sampler, seed=seed, budget=budget)
    tuner.run(request, evaluator=evaluator)


def measured(target: Target, ways: list[str], seeds: int, trials: int) -> dict[str, list[Trials]]:
    """All searches of a target, the ways in turn, so that a drifting clock affects all alike."""
    found: dict[str, list[Trials]] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory() as folder:
        if any("+" in way for way in ways):
            with DeviceEvaluator(target.donor, [target.donor.device], Settings()) as evaluator:
                for seed in range(1, seeds + 1):
                    search(target.donor, f"{folder}/{seed}.db", "bayes", seed, DONOR_TRIALS, evaluator)
        with DeviceEvaluator(target.problem, [target.problem.device], Settings()) as evaluator:
            for seed in range(1, seeds + 1):
                for way in ways:
                    found[way].append(target.searched(way, seed, trials, evaluator, Path(folder)))
    return found


def rows(target: Target, found: dict[str, list[Trials]]) -> list[list[str]]:
    """Return a row of the table for each way."""
    seen: dict[Identity, list[float]] = defaultdict(list)
    for runs in found.values():
        for trials in runs:
            for name, time_ns in trials:
                seen[name].append(time_ns)
    time = {name: statistics.median(times) for name, times in seen.items()}
    best = min(time.values())
    table = []
    for way, runs in found.items():
        needed = [[_first(trials, time, share * best) for trials in runs] for share in WITHIN]
        near = statistics.median(best / min(time[name] for name, _ in trials[:AT]) for trials in runs)
        sizes = ",".join(map(str, target.problem.size.values()))
        medians = [_count(statistics.median(counts)) for counts in needed]
        table.append(
            [target.problem.study.name, sizes, way, *medians, f"{near:.3f}", ", ".join(map(_count, needed[1]))]
        )
    return table


def _first(trials: Trials, time: dict[Identity, float], goal: float) -> float:
    """The number of the first trial that reaches the goal; inf if none does."""
    return next((number for number, (name, _) in enumerate(trials, 1) if time[name] <= goal), math.inf)


def _count(number: float) -> str:
    return "-" if math.isinf(number) else f"{number:g}"


def main() -> None:
    """Print the rows of each target as they are known."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", default=TARGETS, metavar="TARGET")
    parser.add_argument("-d", "--device")
    parser.add_argument("--ways", nargs="+", default=list(WAYS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    device = find_device(options.device)
    table: list[list[str]] = []
    for text in options.targets:
        target = Target.parse(text, device)
        found = rows(target, measured(target, options.ways, options.seeds, options.trials))
        print("\n".join(" | ".join(row) for row in found), flush=True)
        table += found
        if options.save:  # after each target, because a lent machine may be taken away
            write(table, options)


def write(table: list[list[str]], options: argparse.Namespace) -> None:
    """Write the result file."""
    save(
        "evaluations-h200",
        question="How many evaluations does it take on a real device to come within 5 and 2 % of the best that any "
        "search found?",
        command="python benchmarks/evaluations.py --save",
        columns=COLUMNS,
        rows=table,
        note=f"Medians of {options.seeds} searches of {options.trials} trials; `+donor` knows {DONOR_TRIALS} of "
        "another size. The default, tried first, counts. A configuration's time is its median over all "
        "searches. -: not reached in half of the searches.",
    )


if __name__ == "__main__":
    main()
