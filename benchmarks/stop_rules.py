"""What each stop rule costs and loses on recorded spaces, and how accurate the expected gain is.

    python benchmarks/stop_rules.py DIR ... [--seeds 5] [--save]

`--save` writes results/stop-rules.json and expected-gain.json.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray
from recording import Recording
from tables import save

from autotune.samplers import Proposer

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
    """Evaluations made when a rule first says stop; all of them if it never does."""
    return int(stop.argmax()) + 1 if stop.any() else BUDGET


def stale(best: NDArray[np.float64]) -> NDArray[np.int64]:
    """Evaluations since the best last improved."""
    fell = np.append(True, best[1:] < best[:-1])
    return np.arange(BUDGET) - np.maximum.accumulate(np.where(fell, np.arange(BUDGET), 0))


@dataclass
class Judged:
    """Where each rule stops each search, and what was expected of the next trials beside what they brought."""

    rules: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    pairs: list[tuple[int, float, float]] = field(default_factory=list)

    def add(self, recording: Recording, seed: int) -> None:
        """Add a search."""
        best, gains = search(recording, seed)
        known = np.nan_to_num(gains, nan=1.0)
        stops = {f"`--until-stale {n}`": stale(best) >= n for n in STALE}
        stops |= {f"`--until-gain {100 * gain:g}%`": known < gain for gain in GAINS}
        for name, stop in stops.items():
            count = first(stop)
            self.rules.setdefault(name, []).append((count, recording.best_ns / best[count - 1]))
        now = np.arange(2 * AHEAD - 1, BUDGET - AHEAD, AHEAD)  # the estimate uses the last trials too
        self.pairs += list(zip(now + 1, gains[now], 1 - best[now + AHEAD] / best[now], strict=True))

    def of_rules(self) -> Iterator[tuple[str, ...]]:
        """Yield a row of `RULES` for each rule."""
        for name, found in self.rules.items():
            counts, reached = np.array(found).T
            evaluations = f"{np.median(counts):.0f}", f"{counts.mean():.0f}"
            yield name, *evaluations, f"{np.median(reached):.3f}", f"{np.quantile(reached, 0.1):.3f}"

    def of_gains(self) -> Iterator[tuple[str, ...]]:
        """Yield a row of `EXPECTED` for each number of evaluations."""
        table = np.array(self.pairs, dtype=np.float64)
        for count in np.unique(table[:, 0]):
            _, expected, realised = table[table[:, 0] == count].T
            yield f"{count:.0f}", f"{np.nanmean(expected):.1%}", f"{np.nanmean(realised):.1%}"


RULES = ("rule", "evaluations, median", "mean", "optimum / best, median", "worst tenth of the runs")
EXPECTED = ("evaluations", "expected of the next 20", "realised")


def main() -> None:
    """Print one row per rule, then expected beside realised gain."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+", metavar="DIR")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    judged, paths = Judged(), [path for folder in options.folders for path in sorted(folder.glob("*__*.npz"))]
    for path in paths:
        recording = Recording.load(path)
        for seed in range(options.seeds):
            judged.add(recording, seed)
    command = "python benchmarks/stop_rules.py " + " ".join(sys.argv[1:])
    for name, question, columns, rows in (
        ("stop-rules", "What does each stop rule cost and lose?", RULES, list(judged.of_rules())),
        ("expected-gain", "Does the expected gain come true?", EXPECTED, list(judged.of_gains())),
    ):
        for row in (columns, *rows):
            print("".join(f"{cell:>26}" for cell in row))
        if options.save:
            note = f"`bayes`, cold, {options.seeds} seeds, {len(paths)} recorded spaces, {BUDGET} evaluations at most."
            save(name, question=question, command=command, columns=columns, rows=rows, note=note)


if __name__ == "__main__":
    main()
