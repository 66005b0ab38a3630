"""What is lost at a size never tuned: the best of the nearest size, a model of all others, and the study's default.

    python benchmarks/sizes.py [-d DEVICE] [--db PATH] [--configurations 30] [--json]

For each study the same random configurations, the default among them, are searched at several sizes and stored. Then
each size in turn is left out: each rule names one of the configurations from what is stored of the others, and its loss
is its time at that size over the best there, less one. `nearest` is what a look-up does. `--json` writes
results/sizes.json.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

import autotune
from autotune.identity import Size
from autotune.model import Configuration, DeviceInfo, Outcome, Trial, identity
from autotune.store import Store
from autotune.study import Problem, Study
from benchmarks.sizes_rules import RULES, Stored
from benchmarks.tables import save

STUDIES: Mapping[str, Sequence[Sequence[int]]] = {
    "matmul": ((32, 32, 32), (64, 64, 64), (128, 128, 128), (256, 256, 64), (192, 192, 192)),
    "element_mult": ((64, 64), (256, 256), (64, 4096), (4096, 64), (1024, 1024)),
    "matmul_rect": ((40, 40, 40), (64, 64, 256), (104, 104, 104), (208, 56, 104), (160, 160, 160)),
}


def same(study: Study, sizes: Sequence[Size], device: DeviceInfo, count: int) -> list[Configuration]:
    """Return random configurations that are valid at every size, the default first."""
    problems = [Problem(study, size, None, device) for size in sizes]
    space = problems[0].space
    rows = space.sample(np.random.default_rng(1), min(len(space), 50 * count))
    found = [problems[0].default, *(space.configuration(int(row)) for row in rows)]
    valid = [one for one in found if all(one in problem.space for problem in problems)]
    return list({identity(one): one for one in valid}.values())[:count]


def measure(name: str, device: DeviceInfo, count: int, database: str) -> dict[tuple[int, ...], list[Trial]]:
    """Search the same configurations at each size, where they are not stored; return the trials by size."""
    study = Study.load(name)
    sizes = [dict(zip(study.sizes, size, strict=True)) for size in STUDIES[name]]
    configurations = same(study, sizes, device, count)
    found = {}
    for size in sizes:
        autotune.search(
            name, device=device.number, size=size, trials=len(configurations), sampler="random", seed=1,
            start=configurations, database=database,
        )  # fmt: skip
        with Store.open(database) as store:
            found[tuple(size.values())] = store.trials(Problem(study, size, None, device).key)
        print(f"{name} {size}: {len(found[tuple(size.values())])} trials", file=sys.stderr, flush=True)
    return found


def losses(study: Study, trials: Mapping[tuple[int, ...], Sequence[Trial]]) -> dict[str, list[float]]:
    """Return what each rule loses at each size, in the order of the sizes."""
    found: dict[str, list[float]] = {rule: [] for rule in RULES}
    for left_out, own in trials.items():
        times = {identity(t.configuration): t.time_ns for t in own if t.outcome is Outcome.OK}
        others = [Stored(size, list(some)) for size, some in trials.items() if size != left_out]
        for rule, choose in RULES.items():
            named = identity(choose(study, others, left_out))
            found[rule].append(times.get(named, max(times.values())) / min(times.values()) - 1)
    return found


def main() -> int:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("-d", "--device", default=None)
    parser.add_argument("--db", default=None)
    parser.add_argument("--configurations", type=int, default=30)
    parser.add_argument("--studies", nargs="+", default=list(STUDIES), choices=list(STUDIES))
    parser.add_argument("--json", action="store_true", help="write results/sizes.json")
    options = parser.parse_args()
    from autotune.devices import find_device

    device, rows = find_device(options.device), []
    with tempfile.TemporaryDirectory() as folder:
        database = options.db or f"{folder}/sizes.db"
        for name in options.studies:
            found = losses(Study.load(name), measure(name, device, options.configurations, database))
            for rule, lost in found.items():
                shown = [f"{100 * loss:.0f} %" for loss in lost]
                row = [name, rule, f"{100 * statistics.mean(lost):.0f} %", f"{100 * max(lost):.0f} %", ", ".join(shown)]
                rows.append(row)
                print("  ".join(f"{cell:<14}" for cell in row))
    if options.json:
        save(
            "sizes",
            question="What is lost at a size that was never tuned, by what is stored of four others?",
            command="python benchmarks/sizes.py",
            columns=["study", "rule", "mean loss", "worst", "at each size left out"],
            rows=rows,
            note=f"{device.name}. Each size left out in turn; {options.configurations} configurations, equal at all.",
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
