"""The cost of having every trial on the disk itself: SQLite's synchronous=FULL beside NORMAL, for its two commits.

    python benchmarks/commits.py [FOLDER] [--trials N]

A trial with 300 samples is begun and finished, in two transactions. NORMAL leaves out the fsync: a power cut may lose
the last trials, but never damages the file. autotune begins with NORMAL and finishes with FULL, which puts both on the
disk. The ways take turns, ten times, so that other work of the machine affects all alike. Printed for each:
milliseconds per trial, median and 95th percentile.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from unittest import mock

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from autotune.model import Measurement, Outcome, Trial
from autotune.store import Store, database
from tests.stored import DEVICE, KEY

SAMPLES = tuple(range(100_000, 100_300))
TURNS = 10


WAYS = {"both NORMAL": ("NORMAL", "NORMAL"), "begun NORMAL": ("NORMAL", "FULL"), "both FULL": ("FULL", "FULL")}


def trials_ms(path: Path, begun: str, ended: str, count: int) -> list[float]:
    """Return the milliseconds that each of `count` trials took to be stored."""
    taken = []
    modes = mock.patch.multiple(database, HASTY=begun, SYNCHRONOUS=ended)
    with modes, Store.open(str(path)) as store:
        search = store.start_search(KEY, DEVICE, sampler="random", seed=1)
        for number in range(count):
            began = time.perf_counter()
            trial = Trial({"A": number}, Outcome.OK, measurement=Measurement(SAMPLES))
            store.finish([(store.begin(search, [trial.configuration])[0], trial)])
            taken.append(1e3 * (time.perf_counter() - began))
    return taken


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", type=Path, help="on the disk to measure; default: a temporary one")
    parser.add_argument("--trials", type=int, default=500)
    asked = parser.parse_args()
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        for turn in range(TURNS):
            for way, taken in found.items():
                place = Path(folder, f"{way}-{turn}.db")
                taken += trials_ms(place, *WAYS[way], max(1, asked.trials // TURNS))
    for way, taken in found.items():
        low, high = np.percentile(taken, (50, 95))
        print(f"{way:12}  {low:.2f} ms a trial, 95 % within {high:.2f} ms")


if __name__ == "__main__":
    main()
