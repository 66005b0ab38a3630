"""How many evaluations each sampler needs on recorded spaces.

    python benchmarks/search.py DIR ... [--samplers bayes bayes+transfer tpe] [--seeds 20] [--keep FOLDER] [--json OUT]
    python benchmarks/search.py DIR ... --peers        # Kernel Tuner's strategies in the same harness
    python benchmarks/search.py DIR ... --save         # writes results/search.json

DIR holds recorded spaces, `<kernel>__<device>.npz`. An evaluation is a distinct valid configuration tried; failures
count. A sampler's name may have suffixes: `+transfer` (it knows 200 evaluations on each other device of the same
kernel, made there by the same sampler with another seed), `+N` (N proposals in flight), `+fail30` (a random 30 % of the
configurations fail), `+noise5` (5 % noise on each time; judged by the time without), `+finals` (the result after each
number of evaluations is the fastest of eight that are timed again, as a search ends). Figures are medians over seeds;
the means are geometric, over spaces and over kernels.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy's import: CPU time of one thread, none that compete
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from figures import MARKS, TABLE, aggregate, figures, late, losses, print_table, table_rows
from recorded import CALM, Disturbance, Retiming, curve, search
from recording import Recording
from tables import save

from autotune import samplers
from autotune.errors import AutotuneError, UsageError
from autotune.model import Trial

DONOR_SEED = 1_000_003  # added to the seed of the searches whose trials are transferred
DONOR_TRIALS = 200
_BARE = ("transfer", "finals")


@dataclass(frozen=True)
class Variant:
    """A sampler and how it is run."""

    name: str
    sampler: str
    transfer: bool = False
    in_flight: int = 1
    disturbance: Disturbance = CALM
    peer: bool = False
    finals: bool = False

    @classmethod
    def parse(cls, name: str) -> Variant:
        """`bayes+transfer+4` -> the sampler with transfer and four proposals in flight."""
        sampler, *extras = name.split("+")
        if sampler not in samplers.SAMPLERS:
            raise UsageError(f"unknown sampler {sampler!r}", hint=f"use some of: {', '.join(samplers.SAMPLERS)}")
        given: dict[str, int] = {}
        for extra in extras:
            word = extra.rstrip("0123456789")
            if word not in ("transfer", "finals", "", "fail", "noise") or (word in _BARE) == (extra != word):
                hint = "use +transfer, +N, +failN, +noiseN or +finals"
                raise UsageError(f"unknown extra {extra!r} of {name!r}", hint=hint)
            given[word] = int(extra.removeprefix(word) or 0)
        disturbance = Disturbance(given.get("fail", 0) / 100, given.get("noise", 0) / 100)
        in_flight, finals = given.get("", 1), "finals" in given
        return cls(name, sampler, "transfer" in given, in_flight, disturbance, finals=finals)


@dataclass(frozen=True)
class Task:
    """One search: a recorded space, how to search, and the seed; `others` are the other devices of the kernel."""

    path: Path
    others: tuple[Path, ...]
    variant: Variant
    seed: int
    budget: int
    keep: Path | None

    @property
    def file(self) -> Path | None:
        """Where its result is kept: in a folder for the samplers' sources, so that it runs again after they change."""
        if self.keep is None:
            return None
        return self.keep / sources() / f"{self.variant.name}+{self.budget}" / f"{self.path.stem}.{self.seed}.json"

    def run(self) -> dict[str, Any]:
        """The curve and the CPU time, computed or read from the kept result."""
        if self.file is not None and self.file.exists():
            return dict(json.loads(self.file.read_text()))
        recording = load(self.path)
        if self.variant.peer:
            from peers import search_with_kernel_tuner

            trials, cpu_ms = search_with_kernel_tuner(recording, self.variant.sampler, self.seed, self.budget)
        else:
            prior = [self._donor(path) for path in self.others] if self.variant.transfer else []
            recording = self.variant.disturbance.of(recording, self.seed)
            trials, cpu_ms = search(
                recording, self.variant.sampler, self.seed, self.budget, prior, self.variant.in_flight
            )
        finals = Retiming(self.variant.disturbance.noise, self.seed) if self.variant.finals else None
        found = curve(recording, load(self.path), trials, self.budget, finals)
        result = {"curve": [round(float(value), 5) for value in found], "cpu_ms": cpu_ms}
        if self.file is not None:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self.file.write_text(json.dumps(result))
        return result

    def _donor(self, path: Path) -> list[Trial]:
        return [load(path).trial(row) for row in donor_rows(path, self.variant.sampler, self.seed, self.keep)]


@lru_cache(maxsize=1024)
def donor_rows(path: Path, sampler: str, seed: int, keep: Path | None) -> list[int]:
    """The rows that a cold search tried on one device. Kept rows are used for every version of the sampler."""
    file = None if keep is None else keep / "donors" / f"{sampler}.{path.stem}.{seed}.json"
    if file is not None and file.exists():
        return list(json.loads(file.read_text()))
    recording = load(path)
    trials, _ = search(recording, sampler, seed + DONOR_SEED, DONOR_TRIALS, whole=True)
    rows = [recording.space.row(trial.configuration) for trial in trials]
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(rows))
    return [row for row in rows if row is not None]


@lru_cache(maxsize=64)
def load(path: Path) -> Recording:
    """A recorded space, read once per process."""
    return Recording.load(path)


@lru_cache(maxsize=1)
def sources() -> str:
    """A digest of the samplers' source files."""
    folder = Path(samplers.__file__).parent
    return sha256(b"".join(path.read_bytes() for path in sorted(folder.glob("*.py")))).hexdigest()[:12]


def tasks(paths: list[Path], variant: Variant, options: argparse.Namespace) -> Iterator[Task]:
    """All searches of a variant, seed by seed; with transfer, only on spaces that have donors."""
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        for path in paths:
            kernel = path.stem.partition("__")[0]
            others = tuple(other for other in paths if other != path and other.stem.partition("__")[0] == kernel)
            if others or not variant.transfer:
                yield Task(path, others, variant, seed, options.budget, options.keep)


def benchmark(paths: list[Path], variants: list[Variant], options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """All variants on all spaces: variant -> space -> figures."""
    results: dict[str, dict[str, Any]] = {}
    with ProcessPoolExecutor(options.jobs) as pool:
        for variant in variants:
            listed = list(tasks(paths, variant, options))
            runs: dict[str, list[dict[str, Any]]] = {}
            for task, found in zip(listed, pool.map(Task.run, listed, chunksize=1), strict=True):
                runs.setdefault(task.path.stem, []).append(found)
            results[variant.name] = {
                space: figures(np.array([run["curve"] for run in found]), [run["cpu_ms"] for run in found])
                for space, found in runs.items()
            }
            print(f"{variant.name}: {aggregate(results[variant.name])}", file=sys.stderr, flush=True)
    return results


def compare_transfer(results: dict[str, dict[str, Any]]) -> None:
    """Print where transfer costs more than it gives."""
    for name in results:
        if f"{name}+transfer" in results:
            pair = results[name], results[f"{name}+transfer"]
            print(f"{name}+transfer loses more than .01 to {name} at 100: {', '.join(losses(*pair)) or 'nowhere'}")
            print(f"{name}+transfer needs more than 5 evaluations more: {', '.join(late(*pair)) or 'nowhere'}")


def main() -> None:
    """Parse the command line, run, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+", metavar="DIR")
    parser.add_argument("--samplers", nargs="+", default=["bayes", "bayes+4", "bayes+transfer", "tpe", "random"])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--budget", type=int, default=MARKS[-1], help="evaluations of a search")
    parser.add_argument("--spaces", nargs="+", help="only the spaces whose names begin so")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--peers", action="store_true", help="also Kernel Tuner's strategies (extra [bench])")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep each search here, and run none twice")
    parser.add_argument("--json", type=Path, metavar="OUT")
    parser.add_argument("--save", action="store_true", help="write results/search.json")
    options = parser.parse_args()
    try:
        variants = [Variant.parse(name) for name in options.samplers]
        if options.peers:
            from peers import STRATEGIES

            variants += [Variant(f"kt_{name}", name, peer=True) for name in STRATEGIES]
        wanted = tuple(options.spaces or [""])
        paths = [path for folder in options.folders for path in sorted(folder.glob("*__*.npz"))]
        paths = [path for path in paths if path.name.startswith(wanted)]
        if not paths:
            raise UsageError("no recorded spaces (<kernel>__<device>.npz)", where=", ".join(map(str, options.folders)))
        results = benchmark(paths, variants, options)
    except AutotuneError as error:
        sys.exit(f"error: {error}")
    print_table(results)
    compare_transfer(results)
    if options.json:
        totals = {"aggregate": {name: aggregate(by_space) for name, by_space in results.items()}}
        options.json.write_text(json.dumps(totals | results, indent=1) + "\n")
    if options.save:
        store(results, len(paths))


def store(results: dict[str, dict[str, Any]], spaces: int) -> None:
    """Write the table for the docs."""
    rows = table_rows(results)
    save(
        "search",
        question=f"How near to the optimum does a search come, in how many evaluations, on {spaces} recorded spaces?",
        command="python benchmarks/search.py " + " ".join(sys.argv[1:]),
        columns=TABLE,
        rows=rows,
        asked="of `bayes` .945, .980, .996, 1.000 and 17; with transfer .970, .983, .992, .999 and 5",
        note="Optimum / best so far after so many evaluations, and evaluations to come within 5 % (the whole "
        "budget if a search did not): geometric means over spaces (and over kernels) of medians over seeds; and the "
        "worst tenth of all runs. `transfer`: only spaces that have donors; `16`: so many in flight; `fail30`: a "
        "random 30 % fail; `noise5`: 5 % noise on each time, judged by the time without noise; `finals`: the best is "
        "the fastest of eight that are timed again.",
    )


if __name__ == "__main__":
    main()
