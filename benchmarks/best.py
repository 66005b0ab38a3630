"""How long a cold `autotune best -d FINGERPRINT --format json` takes beside `python -c "import sqlite3"`.

    python benchmarks/best.py [--runs 41] [--trials 500]

Builds a database with that many trials of the default study, then runs the two commands by turns, each a new
process, and prints the medians and their ratio. Target: at most 4. Exit code 1 above it. Both have their
bytecode, as an installed package has.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from autotune.lookup.asking import DEFAULT_STUDY
from autotune.model import DeviceInfo, Measurement, Outcome, Trial
from autotune.store import Store
from autotune.study import default_choices, default_configuration, default_size, find_study, problem_key, space_hash

TARGET = 4.0
DEVICE = DeviceInfo(
    index=0, name="NVIDIA H200", vendor="NVIDIA Corporation", platform="NVIDIA CUDA", driver="550.54.15", kind="gpu",
    opencl_version="3.0", compute_units=132, memory=140 * 2**30, local_memory=48 * 2**10, max_work_group_size=1024,
    max_work_item_sizes=(1024, 1024, 64), clock=1980,
)  # fmt: skip


def fill(place: Path, trials: int) -> None:
    """Store verified trials of the default study, each with 30 samples."""
    text = find_study(DEFAULT_STUDY)
    key = problem_key(text, default_size(text), default_choices(text), DEVICE.fingerprint)
    names = list(default_configuration(text))
    with Store.open(str(place)) as store:
        environment = {"space": space_hash(text)}
        search = store.start_search(key, DEVICE, sampler="random", seed=1, environment=environment)
        for number in range(trials):
            configuration = dict.fromkeys(names, number)
            samples = tuple(range(1_000_000 + number, 1_000_030 + number))
            trial = Trial(configuration, Outcome.OK, measurement=Measurement(samples))
            store.finish(store.begin(search, configuration), trial)


def seconds(words: list[str], environment: dict[str, str]) -> float:
    """Return the wall time of one process. It must succeed."""
    start = time.perf_counter()
    subprocess.run(words, check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> int:
    """Measure and print; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=41)
    parser.add_argument("--trials", type=int, default=500)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "best.db"
        fill(place, options.trials)
        asked = ["best", "-d", DEVICE.fingerprint, "--format", "json", "--db", str(place)]
        commands = {
            'python -c "import sqlite3"': [sys.executable, "-c", "import sqlite3"],
            "autotune best -d FINGERPRINT --format json": [sys.executable, "-m", "autotune", *asked],
        }
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPYCACHEPREFIX"] = folder
        for words in commands.values():
            seconds(words, environment)  # writes the bytecode
        times: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(options.runs):
            for name, words in commands.items():
                times[name].append(seconds(words, environment))
    medians = {name: statistics.median(taken) for name, taken in times.items()}
    for name, median in medians.items():
        print(f"{1000 * median:8.1f} ms  {name}")
    plain, best = medians.values()
    print(f"ratio {best / plain:.2f} (target: at most {TARGET:g}), {options.trials} trials, {options.runs} runs each")
    return 0 if best <= TARGET * plain else 1


if __name__ == "__main__":
    sys.exit(main())
