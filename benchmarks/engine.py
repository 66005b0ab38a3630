"""How fast the measuring engine is: beside Kernel Tuner, per trial, and from search to search.

    python benchmarks/engine.py peer [-d DEVICE] [--kernel sgemm] [--size 4096] [--trials 200] [--save]
    python benchmarks/engine.py compilers [-d DEVICE] [--kernel sgemm] [--size 4096] [--trials 200] [--processes 16,32]
    python benchmarks/engine.py overhead [-d DEVICE]
    python benchmarks/engine.py repeat [-d DEVICE] [--size 4096] [--searches 10]

`peer` needs the extra `[bench]`. It runs `autotune search` with random configurations (builds differ tenfold in length)
and a program that runs Kernel Tuner over the same ones, each a new process with empty build caches. Both verify every
configuration; the wall time is that of the whole process. Both picks are then timed again, interleaved, in one process.
`compilers` builds as many random configurations with pyopencl alone, in processes that do nothing else and are ready
before: no search that builds each of them can be faster.
If PYTHONDONTWRITEBYTECODE is set, unset it and run `python -m compileall` over the packages, because pip leaves them
compiled: compiling them in each process takes longer than a short search.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from typing import Any

import numpy as np
from peer.contests import CONTESTS
from tables import save, saved


def make_problem(device: str | None, size: int) -> Any:
    """Return the whole sgemm problem."""
    return CONTESTS["sgemm"].problem(device, size, whole=True)


def peer(options: argparse.Namespace) -> None:
    """Race against Kernel Tuner, and keep the rows beside those of the other kernels and sizes."""
    from peer.race import race

    size = options.size or CONTESTS[options.kernel].size
    rows = race(options.kernel, options.device, size, options.trials, options.seed)
    if options.save:
        command = "python benchmarks/engine.py peer --kernel KERNEL --size SIZE --save"
        others = [row for row in saved("peer-gpu", command) if row[0] != rows[0][0]]
        save(
            "peer-gpu",
            question="How long do the same 200 configurations take beside Kernel Tuner 1.5.0, with empty caches?",
            command=command,
            columns=("kernel", "tuner", "wall, s", "pick, timed again, ms", "ratio"),
            rows=sorted([*others, *rows], key=lambda row: row[0]),
            asked="14 for sgemm 4096, 6 for kernels of 40 us (sgemm 768, nbody 2048)",
            note="Python compiles its packages in each process here."
            if sys.dont_write_bytecode
            else "Python's packages are compiled to bytecode, as pip leaves them.",
        )


def compilers(options: argparse.Namespace) -> None:
    """Time the driver's compiler by itself, and keep the rows beside those of the other kernels and sizes."""
    from peer.compilers import alone, sources

    contest = CONTESTS[options.kernel]
    size = options.size or contest.size
    problem = contest.problem(options.device, size, whole=options.whole)
    programs = sources(problem, options.trials, options.seed)
    told = f"{options.kernel} {size}{', whole space' if options.whole else ''}"
    rows = []
    for processes in map(int, options.processes.split(",")):
        total, one = alone(problem.device.name, programs, processes)
        rows.append([told, len(programs), os.cpu_count(), processes, f"{total:.1f}", f"{one:.2f}"])
        print(*rows[-1], sep=" | ", flush=True)
    if options.save:
        command = "python benchmarks/engine.py compilers --kernel KERNEL --size SIZE --trials N --processes P --save"
        ours = [row[:4] for row in rows]
        others = [row for row in saved("compilers-gpu", command) if row[:4] not in ours]
        save(
            "compilers-gpu",
            question="How long does the driver's compiler take, in processes that do nothing else?",
            command=command,
            columns=("kernel", "builds", "cores", "processes", "all, s", "a build, s"),
            rows=sorted([*others, *rows]),
            note="Measured from when all processes are ready; a search also needs time to start and to end.",
        )


def overhead(options: argparse.Namespace) -> None:
    """Time the loop, store and sampler with an evaluator that answers at once; and the device's idle time."""
    from autotune import api, tuner
    from autotune.model import Measurement, Outcome, Trial
    from autotune.tuner import Budget, Request

    class Instant:
        capacity, best_ns = 1, None

        def __init__(self) -> None:
            self.waiting: list[Any] = []
            self.times: list[float] = []

        def submit(self, configuration: Any) -> None:
            self.waiting.append(configuration)

        def collect(self, timeout_s: float | None = None) -> Trial:
            self.times.append(time.perf_counter())
            measurement = Measurement((1_000_000 + len(self.times),) * 7)
            return Trial(self.waiting.pop(), Outcome.OK, measurement=measurement)

        def retime(self, configurations: Any, budget_s: float = 5.0, stop: Any = None) -> list[None]:
            return [None] * len(configurations)

        def withdraw(self, leave: int = 0, *, building: bool = False) -> list[Any]:
            return []

        def usage(self) -> dict[str, float]:
            return {}

        def close(self) -> None:
            pass

    problem = make_problem(options.device, options.size or 4096)
    evaluator = Instant()
    with tempfile.TemporaryDirectory() as folder:
        database, budget = f"{folder}/bench.db", Budget(trials=5100)
        request = Request(problem, database=database, sampler="random", seed=1, budget=budget)
        tuner.run(request, evaluator=evaluator)
    steps = np.diff(evaluator.times) * 1e3
    for at in (100, 5000):
        print(f"loop, store and random sampler at trial {at}: {np.median(steps[at - 50 : at + 50]):.2f} ms")
    with tempfile.TemporaryDirectory() as folder:
        result = api.search(
            "sgemm", device=options.device, size=dict.fromkeys("MNK", options.size or 4096), trials=options.trials,
            sampler="random", seed=1, database=f"{folder}/bench.db",
        )  # fmt: skip
    idle = (result.usage["idle"] + result.usage["finalists"]) / result.trials * 1e3
    print(f"device worker idle per trial, start and finalists included, over {result.trials} trials: {idle:.1f} ms")
    print(json.dumps(dict(result.usage)))


def repeat(options: argparse.Namespace) -> None:
    """Measure one configuration in separate searches and print the medians."""
    from autotune.pool import DeviceEvaluator

    problem = make_problem(options.device, options.size or 4096)
    medians = []
    for _ in range(options.searches):
        with DeviceEvaluator(problem, [problem.device]) as evaluator:
            evaluator.submit(problem.default)
            trial = evaluator.collect()
        medians.append(trial.time_ns * 1e-6)
        print(f"{medians[-1]:.4f} ms {trial.outcome} {len(trial.measurement.samples_ns)} samples", flush=True)
    print(f"{options.searches} searches: spread {(max(medians) - min(medians)) / np.median(medians):.2%} of the median")


def main() -> None:
    """Dispatch."""
    modes = {"peer": peer, "compilers": compilers, "overhead": overhead, "repeat": repeat}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mode", choices=list(modes))
    parser.add_argument("-d", "--device")
    parser.add_argument("--kernel", choices=list(CONTESTS), default="sgemm", help="peer, compilers: of which kernel")
    parser.add_argument("--size", type=int)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--processes", default=str(os.cpu_count()), help="compilers: how many at once")
    parser.add_argument("--whole", action="store_true", help="compilers: of the whole space")
    parser.add_argument("--searches", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save", action="store_true", help="peer, compilers: write their file of results")
    options = parser.parse_args()
    modes[options.mode](options)


if __name__ == "__main__":
    main()
