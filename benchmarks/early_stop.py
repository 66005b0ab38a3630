"""What it saves to stop slow configurations early, and whether it loses anything, on recorded raw run times.

    python benchmarks/early_stop.py [DIRECTORY] [--seeds N]

Each recorded space is searched at random (all its configurations, in a seeded order) by the rules of
`autotune/bench/timing.py`, once with and once without the early stop; both see the same runs of each configuration. The
final pick is what ranks first after the search. Printed per space: the share of seeds with the same pick, the worst
loss (recorded time of the pick against that without early stop), and the device time saved.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from autotune.bench.timing import Rules, measure

DIRECTORY = Path(__file__).parent.parent.parent / "shared" / "replay"


def search(runs: list[list[int]], order: np.ndarray, rules: Rules, *, stops: bool = True) -> tuple[int, float]:
    """Search the configurations in this order; return the pick and the device seconds. `stops`: stop slow ones."""
    best, pick, spent = None, -1, 0
    for index in order:
        left = iter(runs[index])

        def source(count: int, left: Iterator[int] = left) -> list[int]:
            return list(islice(left, count))

        timed = measure(source, rules, best if stops else None)
        spent += sum(timed.measurement.warmup_ns) + sum(timed.measurement.samples_ns)
        if not timed.stopped and (best is None or timed.measurement.median_ns < best):
            best, pick = timed.measurement.median_ns, int(index)
    return pick, spent * 1e-9


def main() -> None:
    """Print one line per space, and the totals."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", nargs="?", type=Path, default=DIRECTORY)
    parser.add_argument("--seeds", type=int, default=20)
    options = parser.parse_args()
    print(f"{'space':32} {'same pick':>9} {'worst loss':>10} {'without':>10} {'with':>10} {'saved':>6}")
    total = np.zeros(2)
    worst = 0.0
    for path in sorted(options.directory.glob("*.npz")):
        with np.load(path) as recorded:
            raw = recorded["runs_ms"][recorded["outcome"] == 0]
        runs = [[int(ms * 1e6) for ms in row[~np.isnan(row)]] for row in raw]
        settled = np.array([np.median(row[len(row) // 3 :]) for row in runs])
        same, loss, seconds = 0, 0.0, np.zeros(2)
        rules = Rules(budget_s=1e6)
        full, full_s = search(runs, np.arange(len(runs)), rules, stops=False)  # the order does not matter
        for seed in range(options.seeds):
            early, early_s = search(runs, np.random.default_rng(seed).permutation(len(runs)), rules)
            same += full == early
            loss = max(loss, settled[early] / settled[full] - 1)
            seconds += (full_s, early_s)
        total += seconds
        worst = max(worst, loss)
        saved = 1 - seconds[1] / seconds[0]
        means = seconds / options.seeds
        print(
            f"{path.stem:32} {same / options.seeds:9.0%} {loss:10.2%} {means[0]:9.1f}s {means[1]:9.1f}s {saved:6.0%}",
            flush=True,
        )
    print(f"{'all':32} {'':9} {worst:10.2%} {'':10} {'':10} {1 - total[1] / total[0]:6.0%}")


if __name__ == "__main__":
    main()
