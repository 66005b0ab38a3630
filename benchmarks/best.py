"""How long a cold `autotune best -d FINGERPRINT` takes, in each format, beside `python -c "import sqlite3"`.

    python benchmarks/best.py [STUDY] [--runs 21] [--trials 500 100000 1000000] [--json]

Builds a database with this many trials of the study, as a search stores them: values from its lists, with what they
were built as, some failed, some timed again. Then runs the commands in turns, each in a new process, and prints the
medians and their ratios. Target: at most 4. Exit code 1 above it. All use compiled bytecode, as an installed package
does. `--json` writes results/best.json.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice, product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from autotune.identity import digest
from autotune.lookup.asking import DEFAULT_STUDY
from autotune.lookup.formats import FORMATS
from autotune.model import Configuration, DeviceInfo, Measurement, Outcome, Trial
from autotune.store import Store, standings
from autotune.store.fields import trial_columns
from autotune.store.records import ordered
from autotune.store.schema import trials as table
from autotune.study import Problem, Study, find_study, made_of, space_hash
from benchmarks.tables import save

TARGET = 4.0
PLAIN = 'python -c "import sqlite3"'
RETIMED = 5
PAGE = 1000
DEVICE = DeviceInfo(
    index=0, name="NVIDIA H200", vendor="NVIDIA Corporation", platform="NVIDIA CUDA", driver="550.54.15", kind="gpu",
    opencl_version="3.0", compute_units=132, memory=140 * 2**30, local_memory=48 * 2**10, max_work_group_size=1024,
    max_work_item_sizes=(1024, 1024, 64), clock=1980, compute_capability="9.0",
)  # fmt: skip


def configurations(problem: Problem, count: int) -> Iterator[Configuration]:
    """Yield configurations from the study's lists, the default first; `best` checks the lists, not the constraints."""
    yield problem.default
    names = list(problem.values)
    yield from (
        dict(zip(names, values, strict=True)) for values in islice(product(*problem.values.values()), count - 1)
    )


def fill(place: Path, study: str, count: int, first: int = 0) -> None:
    """Store trials of a study at its default size, each with 30 samples; every tenth has failed.

    They are numbered from `first` on; a trial with the same number is the same trial.
    """
    text = find_study(study)
    problem = Problem(Study.load(study), device=DEVICE)
    made = made_of(problem, problem.plan(problem.default), problem.default)
    known = dict(problem.choices)
    computed = made["options"][len(known) + len(problem.default) :]
    drawn = random.Random(1)
    samples = Measurement(tuple(range(1_000_000, 1_000_030)))
    failed = trial_columns(Trial(problem.default, Outcome.TIMEOUT, driver=DEVICE.driver, made=made))
    passed = trial_columns(Trial(problem.default, Outcome.OK, measurement=samples, driver=DEVICE.driver, made=made))
    fastest: list[tuple[int, Configuration]] = []
    with Store.open(str(place)) as store:
        search = store.start_search(
            problem.key, DEVICE, sampler="random", seed=1, environment={"space": space_hash(text)}
        )
        with store._writing() as connection:
            for page in _pages(enumerate(configurations(problem, count))):
                rows = []
                for number, configuration in page:
                    options = [f"-D{name}={value}" for name, value in {**known, **configuration}.items()]
                    moment = f"2026-11-22T00:00:00.{number % 10**6:06d}+00:00"
                    row = passed if number % 10 else failed
                    row = row | {
                        "uuid": f"{first + number:032x}",
                        "search_id": search,
                        "started": moment,
                        "finished": moment,
                    }
                    row |= {"configuration": ordered(configuration), "configuration_hash": digest(configuration)}
                    row["made"] = ordered({**made, "options": [*options, *computed]})
                    if number % 10:
                        start = drawn.randrange(1_000_000, 9_000_000)
                        row |= {"time_ns": start + 14.5, "samples_ns": ordered(range(start, start + 30))}
                        fastest.append((start, configuration))
                    rows.append(row)
                connection.execute(table.insert(), rows)
                fastest = sorted(fastest, key=lambda pair: pair[0])[:RETIMED]
            standings.build(connection)
        for at, configuration in fastest:
            store.retime(search, [(configuration, Measurement(tuple(range(at + 100, at + 130))))])
        store.end_search(search, "done")


def _pages(items: Iterator[Any]) -> Iterator[list[Any]]:
    while page := list(islice(items, PAGE)):
        yield page


def seconds(words: list[str], environment: dict[str, str]) -> float:
    """Return the wall time of one process, which must succeed."""
    start = time.perf_counter()
    subprocess.run(words, check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


def medians_ms(study: str, trials: int, runs: int) -> dict[str, float]:
    """Return the median wall time of each command in milliseconds, PLAIN first."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "best.db"
        fill(place, study, trials)
        asked = [sys.executable, "-m", "autotune", "best", study, "-d", DEVICE.fingerprint, "--db", str(place)]
        commands = {PLAIN: [sys.executable, "-c", "import sqlite3"]}
        commands |= {format: [*asked, "--format", format] for format in FORMATS}
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPYCACHEPREFIX"] = folder
        for words in commands.values():
            seconds(words, environment)  # writes the bytecode
        times: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(runs):
            for name, words in commands.items():
                times[name].append(seconds(words, environment))
    return {name: 1000 * statistics.median(taken) for name, taken in times.items()}


def main() -> int:
    """Measure and print; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("study", nargs="?", default=DEFAULT_STUDY)
    parser.add_argument("--runs", type=int, default=21)
    parser.add_argument("--trials", type=int, nargs="+", default=[500, 100_000, 1_000_000])
    parser.add_argument("--json", action="store_true", help="write results/best.json")
    options = parser.parse_args()
    rows = []
    for trials in options.trials:
        plain, *found = medians_ms(options.study, trials, options.runs).items()
        print(f"{plain[1]:8.1f} ms  {plain[0]}")
        for format, median in found:
            print(f"{median:8.1f} ms  {format:8} {median / plain[1]:.2f} x, {trials} trials")
        rows.append([trials, f"{plain[1]:.0f}", *(f"{median / plain[1]:.2f}" for _, median in found)])
    if options.json:
        save(
            "best",
            question=f"How long does a cold look-up take, in each format, over `{PLAIN}`?",
            command="python benchmarks/best.py",
            columns=["trials stored", "import sqlite3, ms", *FORMATS],
            rows=rows,
            asked=f"at most {TARGET:g} x",
            note=f"Medians of {options.runs} runs each, of the study {options.study}.",
        )
    return int(any(float(ratio) > TARGET for row in rows for ratio in row[2:]))


if __name__ == "__main__":
    sys.exit(main())
