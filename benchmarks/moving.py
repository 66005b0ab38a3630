"""How long export and import take, and that a merge neither loses nor duplicates anything.

    python benchmarks/moving.py [--trials 100000] [--json]

Fills one database and another that holds half as many trials, and exports both. Imports the first export, then again
(nothing is new), then the other one (all of it is new). Also imports the first lines of one export, repeated for each
of 500 sizes, which then share their configurations. Target: a minute for each import of 10^5 trials. Exit code 1 above
it, or if a count is wrong. `--json` writes results/moving.json.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import TypeVar

sys.path.insert(0, str(Path(__file__).parent.parent))

from autotune.lookup.asking import DEFAULT_STUDY
from autotune.store import Store
from benchmarks.best import fill
from benchmarks.tables import save

TARGET_S = 60.0
SIZES = 500
IMPORTS = ("import", "import of many sizes")
T = TypeVar("T")


def timed(step: Callable[[], T]) -> tuple[float, T]:
    """Return the seconds that a step takes, and its result."""
    start = time.perf_counter()
    found = step()
    return time.perf_counter() - start, found


def export(database: Path, lines: Path) -> int:
    """Write every trial of a database; return how many."""
    with Store.open(str(database)) as store, lines.open("w", encoding="utf-8") as out:
        return sum(1 for line in store.export_lines() if out.write(line + "\n"))


def load(lines: Path, database: Path) -> int:
    """Import lines; return how many were new."""
    with Store.open(str(database)) as store, lines.open(encoding="utf-8") as file:
        return store.import_lines(file)


def repeat(lines: Path, copies: Path, count: int) -> None:
    """Write `count` lines: the same trials for each of SIZES sizes, in a separate search for each size."""
    with lines.open(encoding="utf-8") as file:
        first = [json.loads(line) for line in islice(file, -(-count // SIZES))]
    with copies.open("w", encoding="utf-8") as out:
        for number in range(count):
            line, place = first[number // SIZES], number % SIZES
            again = [{**one, "uuid": f"{one['uuid']}-{place}"} for one in line["retimings"]]
            search = {**line["search"], "uuid": f"{line['search']['uuid']}-{place}"}
            size = {name: value + place for name, value in line["size"].items()}
            copy = {"uuid": f"{line['uuid']}-{place}", "size": size, "search": search, "retimings": again}
            out.write(json.dumps(line | copy) + "\n")


def main() -> int:
    """Measure and print; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=100_000)
    parser.add_argument("--json", action="store_true", help="write results/moving.json")
    options = parser.parse_args()
    most, half = options.trials, options.trials // 2
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for which, count, first in (("one", most, 0), ("other", half, most)):
            fill(folder / f"{which}.db", DEFAULT_STUDY, count, first)
        steps: list[tuple[str, Callable[[], int], int]] = [
            ("export", lambda: export(folder / "one.db", folder / "one.jsonl"), most),
            ("import", lambda: load(folder / "one.jsonl", folder / "new.db"), most),
            ("import again", lambda: load(folder / "one.jsonl", folder / "new.db"), 0),
            ("export the other", lambda: export(folder / "other.db", folder / "other.jsonl"), half),
            ("merge it", lambda: load(folder / "other.jsonl", folder / "new.db"), half),
            ("import of many sizes", lambda: load(folder / "sizes.jsonl", folder / "sizes.db"), most),
            ("export the merged", lambda: export(folder / "new.db", folder / "all.jsonl"), most + half),
        ]
        rows = []
        for step, work, expected in steps:
            seconds, found = timed(work)
            if step == "export":
                repeat(folder / "one.jsonl", folder / "sizes.jsonl", most)
            rows.append([step, f"{found:,}", f"{expected:,}", f"{seconds:.1f}"])
            print("  ".join(f"{cell:<20}" for cell in rows[-1]), flush=True)
        together = {line for which in ("one", "other") for line in (folder / f"{which}.jsonl").open(encoding="utf-8")}
        same = together == set((folder / "all.jsonl").open(encoding="utf-8"))
        print("the merged lines are those of both" if same else "the merged lines are not those of both")
    if options.json:
        save(
            "moving",
            question="How long do export and import take, and is a merge the sum of its parts?",
            command="python benchmarks/moving.py",
            columns=["step", "trials", "expected", "seconds"],
            rows=rows,
            asked=f"each import of 100,000 trials in {TARGET_S:g} s",
            note=f"The merged lines are {'' if same else 'NOT '}those of both databases.",
        )
    wrong = any(found != expected for _, found, expected, _ in rows)
    slow = any(float(row[3]) > TARGET_S for row in rows if row[0] in IMPORTS)
    return int(wrong or not same or slow)


if __name__ == "__main__":
    sys.exit(main())
