"""What each stop rule costs and loses on recorded spaces, and how true the expected gain comes.

python benchmarks/stop_rules.py DIR ... [--seeds 5]
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray

from autotune.samplers import Proposer
from autotune.tuner.replay import Recording

BUDGET = 200
AHEAD = 20
STALE = (20, 30, 50)
GAINS = (0.05, 0.02, 0.01, 0.005)


def search(recording: Recording, seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Best time so far (BUDGET,) and the gain then expected from the next AHEAD trials (NaN: unknown)."""
    proposer = Proposer(recording.space, "bayes", seed)
    times, gains = [], []
    for _ in range(BUDGET):
        configuration = proposer.ask()
        assert configuration is not None
        row = recording.space.row(configuration)
        assert row is not None
        trial = recording.trial(row)
        proposer.tell(trial)
        times.append(trial.time_ns)
        gain = proposer.expected_gain(AHEAD)
        gains.append(np.nan if gain is None else gain)
    return np.fmin.accumulate(times), np.array(gains)


def first(stop: NDArray[np.bool_]) -> int:
    """Evaluations made when a rule first says stop; all of them where it never does."""
    return int(stop.argmax()) + 1 if stop.any() else BUDGET


def stale(best: NDArray[np.float64]) -> NDArray[np.int64]:
    """Evaluations since the best last fell."""
    fell = np.append(True, best[1:] < best[:-1])
    return np.arange(BUDGET) - np.maximum.accumulate(np.where(fell, np.arange(BUDGET), 0))


def main() -> None:
    """Print one row per rule, then expected beside realised gain."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+", metavar="DIR")
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    rules: dict[str, list[tuple[int, float]]] = {}
    pairs = []
    for path in [path for folder in options.folders for path in sorted(folder.glob("*__*.npz"))]:
        recording = Recording.load(path)
        for seed in range(options.seeds):
            best, gains = search(recording, seed)
            known = np.nan_to_num(gains, nan=1.0)
            stops = {f"until-stale {n}": stale(best) >= n for n in STALE}
            stops |= {f"gain below {gain:.1%}": known < gain for gain in GAINS}
            for name, stop in stops.items():
                count = first(stop)
                rules.setdefault(name, []).append((count, recording.best_ns / best[count - 1]))
            now = np.arange(AHEAD - 1, BUDGET - AHEAD, AHEAD)
            pairs += list(zip(now + 1, gains[now], 1 - best[now + AHEAD] / best[now], strict=True))
    print(f"{'rule':<20}{'evaluations: median':>20}{'mean':>8}{'optimum/best: median':>22}{'worst tenth':>13}")
    for name, found in rules.items():
        counts, reached = np.array(found).T
        print(
            f"{name:<20}{np.median(counts):>20.0f}{counts.mean():>8.0f}"
            f"{np.median(reached):>22.3f}{np.quantile(reached, 0.1):>13.3f}"
        )
    print(f"\n{'evaluations':>12}{'expected gain of the next 20':>30}{'realised':>10}   (means)")
    table = np.array(pairs, dtype=np.float64)
    for count in np.unique(table[:, 0]):
        here = table[table[:, 0] == count]
        print(f"{count:>12.0f}{np.nanmean(here[:, 1]):>30.3f}{np.nanmean(here[:, 2]):>10.3f}")


if __name__ == "__main__":
    main()
