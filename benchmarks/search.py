"""How many evaluations each sampler needs on recorded spaces.

    python benchmarks/search.py DIR [--samplers bayes bayes+transfer tpe] [--seeds 20] [--jobs 2] [--json OUT]
    python benchmarks/search.py DIR --peers        # Kernel Tuner's strategies in the same harness

DIR holds recorded spaces, `<kernel>__<device>.npz`. An evaluation is a distinct valid configuration tried;
failures count. A sampler's name may carry what to run it with: `+transfer` (knows 200 evaluations on each other
device of the same kernel, those that the same sampler made there under another seed) and `+N` (N proposals
in flight). Figures are medians over seeds; the aggregate is their geometric mean over the spaces.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import deque
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy: CPU time of one thread, and no crowding
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray

from autotune.errors import AutotuneError, UsageError
from autotune.model import ProblemKey, Trial
from autotune.replay import Recording
from autotune.samplers import SAMPLERS
from autotune.samplers.proposer import Proposer

MARKS = (25, 50, 100, 200)
BUDGET = MARKS[-1]
WITHIN = 1.05
DONOR_SEED = 1_000_003  # added to the seed of the searches whose trials are handed over


@dataclass(frozen=True)
class Variant:
    """A sampler and how it is run."""

    name: str
    sampler: str
    transfer: bool = False
    in_flight: int = 1
    peer: bool = False

    @classmethod
    def parse(cls, name: str) -> Variant:
        """`bayes+transfer+4` -> the sampler with transfer and four proposals in flight."""
        sampler, *extras = name.split("+")
        if sampler not in SAMPLERS:
            raise UsageError(f"unknown sampler {sampler!r}", hint=f"use some of: {', '.join(SAMPLERS)}")
        counts = [int(extra) for extra in extras if extra.isdigit()]
        if unknown := [extra for extra in extras if extra != "transfer" and not extra.isdigit()]:
            raise UsageError(f"unknown extra {unknown[0]!r} of {name!r}", hint="use +transfer or +N")
        return cls(name, sampler, "transfer" in extras, counts[0] if counts else 1)


@dataclass(frozen=True)
class Run:
    """One search: optimum / best so far after each evaluation, shape (BUDGET,), and its CPU time."""

    space: str
    curve: NDArray[np.float64]
    cpu_ms: float  # per proposal, telling included


def search(
    recording: Recording, variant: Variant, seed: int, prior: list[tuple[ProblemKey, list[Trial]]], whole: bool
) -> tuple[list[Trial], float]:
    """The trials of one search in the order they ended, and its CPU milliseconds per proposal.

    Unless `whole`, it ends with the optimum: after that no figure changes.
    """
    began = time.process_time()
    proposer = Proposer(recording.space, variant.sampler, seed, prior)
    flying: deque[Trial] = deque()
    done: list[Trial] = []
    while len(done) < BUDGET:
        while len(flying) < variant.in_flight and (configuration := proposer.ask()) is not None:
            row = recording.space.row(configuration)
            assert row is not None, f"{variant.name} proposed what is not valid: {configuration}"
            flying.append(recording.trial(row))
        if not flying:
            break
        done.append(flying.popleft())
        proposer.tell(done[-1])
        if not whole and done[-1].time_ns <= recording.best_ns + 1:
            break
    return done, (time.process_time() - began) / len(done) * 1000


def curve(recording: Recording, trials: Iterable[Trial]) -> NDArray[np.float64]:
    """Optimum / best so far after 1, 2, ... BUDGET evaluations; 0 before the first that worked."""
    times = np.array([trial.time_ns for trial in trials])
    times = np.append(times, np.full(BUDGET - len(times), np.nan))  # a space smaller than the budget
    best = np.fmin.accumulate(times)
    # Trials hold whole nanoseconds: the optimum may round down by half of one.
    return np.nan_to_num(np.minimum(recording.best_ns / best, 1.0))


@lru_cache(maxsize=64)
def load(path: Path) -> Recording:
    """A recorded space, read once per process."""
    return Recording.load(path)


def run_kernel(paths: tuple[Path, ...], variant: Variant, seed: int) -> list[Run]:
    """Search every device of one kernel under one seed."""
    recordings = [load(path) for path in paths]
    if variant.peer:
        from peers import search_with_kernel_tuner

        return [
            Run(r.name, curve(r, trials), cpu)
            for r in recordings
            for trials, cpu in [search_with_kernel_tuner(r, variant.sampler, seed, BUDGET)]
        ]
    known: dict[str, list[Trial]] = {}
    if variant.transfer:
        known = {r.name: search(r, variant, seed + DONOR_SEED, [], whole=True)[0] for r in recordings}
    runs = []
    for recording in recordings:
        prior = [(_key(name), trials) for name, trials in known.items() if name != recording.name]
        trials, cpu_ms = search(recording, variant, seed, prior, whole=False)
        runs.append(Run(recording.name, curve(recording, trials), cpu_ms))
    return runs


def _key(name: str) -> ProblemKey:
    kernel, _, device = name.partition("__")
    return ProblemKey(kernel, "", "", device, {}, {})


def figures(runs: list[Run]) -> dict[str, object]:
    """The figures of one sampler on one space, over seeds, as in baselines.json."""
    curves = np.array([run.curve for run in runs])
    needed = evaluations(curves)
    middle = float(np.median(needed))
    return {
        "seeds": len(runs),
        "at": {str(mark): round(float(np.median(curves[:, mark - 1])), 4) for mark in MARKS},
        "evaluations_to_5pct": middle if np.isfinite(middle) else None,
        "reached": round(float(np.isfinite(needed).mean()), 3),
        "cpu_ms": round(float(np.mean([run.cpu_ms for run in runs])), 2),
        "at_100_by_seed": [round(float(value), 4) for value in curves[:, 99]],
    }


def evaluations(curves: NDArray[np.float64]) -> NDArray[np.float64]:
    """Evaluations to come within 5 % of the optimum, per seed; infinite where not within the budget."""
    near = curves >= 1 / WITHIN
    return np.where(near.any(axis=1), near.argmax(axis=1) + 1.0, np.inf)


def aggregate(by_space: dict[str, dict]) -> dict[str, object]:
    """Geometric means over spaces; a space that was not reached counts with the whole budget."""
    at = {
        str(mark): round(float(np.exp(np.mean([np.log(max(f["at"][str(mark)], 1e-3)) for f in by_space.values()]))), 4)
        for mark in MARKS
    }
    needed = [f["evaluations_to_5pct"] or BUDGET for f in by_space.values()]
    return {
        "at": at,
        "evaluations_to_5pct": round(float(np.exp(np.mean(np.log(needed)))), 1),
        "cpu_ms": round(float(np.mean([f["cpu_ms"] for f in by_space.values()])), 2),
    }


def losses(cold: dict[str, dict], transfer: dict[str, dict], margin: float = 0.01) -> list[str]:
    """Spaces where a paired bootstrap over seeds shows (95 %) a loss of median at 100 beyond the margin."""
    rng = np.random.default_rng(0)
    found = []
    for space in cold:
        pair = np.array([cold[space]["at_100_by_seed"], transfer[space]["at_100_by_seed"]])
        drawn = pair[:, rng.integers(pair.shape[1], size=(2000, pair.shape[1]))]
        lost = np.median(drawn[0], axis=1) - np.median(drawn[1], axis=1)
        if np.quantile(lost, 0.05) > margin:
            found.append(f"{space} ({np.median(pair[0]) - np.median(pair[1]):.3f})")
    return found


def report(results: dict[str, dict[str, dict]]) -> None:
    """Print the aggregate of each sampler."""
    print(f"{'sampler':<28}" + "".join(f"{mark:>8}" for mark in MARKS) + f"{'to 5 %':>9}{'CPU ms':>8}")
    for name, by_space in results.items():
        total = aggregate(by_space)
        at = "".join(f"{value:>8.3f}" for value in total["at"].values())
        print(f"{name:<28}{at}{total['evaluations_to_5pct']:>9.1f}{total['cpu_ms']:>8.2f}")
    for name in results:
        if f"{name}+transfer" in results:
            lost = losses(results[name], results[f"{name}+transfer"])
            print(f"{name}+transfer loses more than .01 to {name} at 100: {', '.join(lost) or 'nowhere'}")


def benchmark(paths: list[Path], variants: list[Variant], seeds: int, jobs: int) -> dict[str, dict[str, dict]]:
    """All variants on all spaces: variant -> space -> figures."""
    kernels: dict[str, list[Path]] = {}
    for path in paths:
        kernels.setdefault(load(path).kernel, []).append(path)
    results = {}
    with ProcessPoolExecutor(jobs) as pool:
        for variant in variants:
            tasks = [(tuple(group), variant, seed) for group in kernels.values() for seed in range(seeds)]
            runs: dict[str, list[Run]] = {}
            for done in pool.map(run_kernel, *zip(*tasks, strict=True), chunksize=1):
                for run in done:
                    runs.setdefault(run.space, []).append(run)
            results[variant.name] = {space: figures(found) for space, found in runs.items()}
            print(f"{variant.name}: {aggregate(results[variant.name])}", file=sys.stderr, flush=True)
    return results


def main() -> None:
    """Parse the command line, run, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--samplers", nargs="+", default=["bayes", "bayes+4", "bayes+transfer", "tpe", "random"])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--spaces", nargs="+", help="only the spaces whose names begin so")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--peers", action="store_true", help="also Kernel Tuner's strategies (extra [bench])")
    parser.add_argument("--json", type=Path, metavar="OUT")
    options = parser.parse_args()
    try:
        variants = [Variant.parse(name) for name in options.samplers]
        if options.peers:
            from peers import STRATEGIES

            variants += [Variant(f"kt_{name}", name, peer=True) for name in STRATEGIES]
        wanted = tuple(options.spaces or [""])
        paths = [path for path in sorted(options.folder.glob("*__*.npz")) if path.name.startswith(wanted)]
        if not paths:
            raise UsageError("no recorded spaces (<kernel>__<device>.npz)", where=str(options.folder))
        results = benchmark(paths, variants, options.seeds, options.jobs)
    except AutotuneError as error:
        sys.exit(f"error: {error}")
    report(results)
    if options.json:
        totals = {"aggregate": {name: aggregate(by_space) for name, by_space in results.items()}}
        options.json.write_text(json.dumps(totals | results, indent=1) + "\n")


if __name__ == "__main__":
    main()
