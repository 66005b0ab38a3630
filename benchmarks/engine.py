"""How fast the measuring engine is: beside Kernel Tuner, per trial, and from search to search.

    python benchmarks/engine.py peer [-d DEVICE] [--size 4096] [--trials 200] [--save]
    python benchmarks/engine.py overhead [-d DEVICE]
    python benchmarks/engine.py repeat [-d DEVICE] [--size 4096] [--searches 10]

`peer` needs the extra `[bench]`. It runs our search and Kernel Tuner's, each a fresh process with empty build
caches, over the same kernel file, space and size. Both get the same distinct configurations, drawn at random
(builds differ tenfold in length), and verify every one; the wall time is that of the whole process. Both picks are
then timed again, interleaved, in one process.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tables import save

# One kernel per configuration (Kernel Tuner launches one), and a product of values that it can walk in a second.
FIXED: dict[str, dict[str, Any]] = {
    "gpu": {"VECTOR_N": 4, "FMA_WIDTH": 1, "STAGES": 2, "VECTOR_A": 4},
    "cpu": {"VECTOR_N": 8, "FMA_WIDTH": 8, "STAGES": 1, "VECTOR_A": 1},
}
FIXED_EVERYWHERE = {
    "COPY_A": "REGISTERS",
    "COPY_B": "REGISTERS",
    "SPLIT_K": 1,
    "VECTOR_B": 4,
    "METHOD": "FMA",
}


def make_problem(device: str | None, size: int, *, whole: bool = False) -> Any:
    """Return the sgemm problem both tuners work on: part of the space, or the `whole`."""
    from autotune.devices import find_device
    from autotune.study import Problem, Study

    info = find_device(device)
    fix = {} if whole else fixed(info.kind)
    return Problem(Study.load("sgemm"), dict.fromkeys("MNK", size), None, info, fix=fix)


def fixed(kind: str) -> dict[str, list[Any]]:
    """Return the parameters that stay at one value."""
    return {name: [value] for name, value in (FIXED_EVERYWHERE | FIXED[kind]).items()}


def draw(problem: Any, trials: int, seed: int) -> list[dict[str, Any]]:
    """Return distinct configurations: the default, which a search of ours begins with, and others at random."""
    rows = problem.space.sample(np.random.default_rng(seed), min(trials, len(problem.space)))
    others = [problem.space.configuration(int(row)) for row in rows]
    return [problem.default, *(one for one in others if one != problem.default)][:trials]


def run_ours(device: str | None, size: int, trials: int, seed: int) -> None:
    """Search, and print the pick."""
    from autotune import api

    problem = make_problem(device, size)
    with tempfile.TemporaryDirectory() as folder:
        result = api.search(
            "sgemm",
            device=device,
            size=dict.fromkeys("MNK", size),
            trials=trials,
            sampler="random",
            seed=seed,
            fix=fixed(problem.device.kind),
            start=draw(problem, trials, seed)[1:],
            database=f"{folder}/bench.db",
        )
    assert result.best is not None
    print(json.dumps({
        "pick": dict(result.best.configuration), "ms": result.best.time_ns * 1e-6, "tried": result.trials,
        "failures": {outcome: [count, result.examples[outcome].reason] for outcome, count in result.failures.items()},
        "usage": dict(result.usage), "search_s": result.elapsed_s,
    }))  # fmt: skip


def run_kernel_tuner(device: str | None, size: int, trials: int, seed: int) -> None:
    """Let Kernel Tuner search the same space, and print its pick."""
    sys.modules["torch"] = None  # type: ignore[assignment]  # it would import it for seconds and not use it
    import kernel_tuner

    from autotune.study import expected_data, input_data

    np.random.seed(seed)
    problem = make_problem(device, size)
    inputs = input_data(problem)
    expected = expected_data(problem, inputs)["C"].astype(np.float32)
    plan = problem.plan(problem.default)
    stay = {name: values[0] for name, values in problem.values.items() if len(values) == 1}
    valid = draw(problem, trials, seed)
    tuned = {name: sorted({c[name] for c in valid}) for name in problem.space.names if name not in stay}
    tuned["block_size_x"] = sorted({_threads(configuration) for configuration in valid})
    rows = {tuple(configuration[name] for name in tuned if name != "block_size_x") for configuration in valid}

    def allowed(p: dict[str, Any]) -> bool:
        return p["block_size_x"] == _threads(p) and tuple(p[name] for name in tuned if name != "block_size_x") in rows

    n = np.int32(size)
    results, _ = kernel_tuner.tune_kernel(
        "sgemm",
        plan.source,
        (size * size, 1),
        [n, n, n, inputs["A"], inputs["B"], np.zeros_like(expected)],
        tuned,
        grid_div_x=["TILE_M", "TILE_N"],
        grid_div_y=[],
        restrictions=allowed,
        answer=[None, None, None, None, None, expected],
        atol=plan.outputs["C"].absolute,
        strategy="random_sample",
        strategy_options={"max_fevals": trials},
        compiler_options=[o for o in plan.options if o.removeprefix("-D").partition("=")[0] not in tuned],
        lang="OpenCL",
        device=problem.device.index,
        platform=0,
        verbose=False,
        quiet=True,
    )
    timed = [result for result in results if isinstance(result["time"], float)]
    best = min(timed, key=lambda result: result["time"])
    pick = {name: best[name] for name in tuned if name != "block_size_x"} | stay
    print(json.dumps({"pick": pick, "ms": best["time"], "tried": len(results), "timed": len(timed)}))


def _threads(configuration: dict[str, Any]) -> int:
    return configuration["TILE_M"] // configuration["WPT_M"] * (configuration["TILE_N"] // configuration["WPT_N"])


def fresh(mode: str, arguments: Sequence[str]) -> tuple[float, dict[str, Any]]:
    """Run this file in a fresh process with empty caches; return its wall seconds and what it printed."""
    with tempfile.TemporaryDirectory() as caches:
        names = ("CUDA_CACHE_PATH", "POCL_CACHE_DIR", "XDG_CACHE_HOME", "XDG_DATA_HOME")
        environment = {**os.environ, **{name: f"{caches}/{name}" for name in names}, "PYOPENCL_NO_CACHE": "1"}
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, str(Path(__file__).resolve()), mode, *arguments],
            env=environment | {"PYTHONPATH": os.pathsep.join(["", *sys.path])[1:]},
            cwd=caches,  # Kernel Tuner leaves the source of a failed build in it
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        return time.monotonic() - began, json.loads(done.stdout.strip().splitlines()[-1])


def peer(options: argparse.Namespace) -> None:
    """Run both and print the table."""
    arguments = ["--size", str(options.size), "--trials", str(options.trials), "--seed", str(options.seed)]
    arguments += ["-d", options.device] if options.device else []
    ours_s, ours = fresh("_ours", arguments)
    print("ours", f"{ours_s:.1f} s", ours, flush=True)
    theirs_s, theirs = fresh("_kernel_tuner", arguments)
    print("Kernel Tuner", f"{theirs_s:.1f} s", theirs, flush=True)
    from autotune.model import Measurement
    from autotune.pool import DeviceEvaluator

    problem = make_problem(options.device, options.size)
    with DeviceEvaluator(problem, [problem.device]) as evaluator:
        again = evaluator.retime([ours["pick"], theirs["pick"]], 5.0)
    medians = [one.median_ns * 1e-6 if isinstance(one, Measurement) else np.nan for one in again]
    work = 2 * options.size**3 * 1e-9
    print(f"\n{problem.device.name}, sgemm {options.size}, {options.trials} configurations of {len(problem.space)}")
    print(f"{'':14} {'wall':>8} {'pick, re-timed':>15} {'TFLOPS':>8}")
    for name, seconds, ms in (("autotune", ours_s, medians[0]), ("Kernel Tuner", theirs_s, medians[1])):
        print(f"{name:14} {seconds:7.1f}s {ms:12.4f} ms {work / ms:8.2f}")
    used = ours["usage"]
    on_device = used["build"] + used["verify"] + used["time"] + used["idle"]
    print(f"ratio of wall times {theirs_s / ours_s:.1f}; pick against theirs {medians[1] / medians[0]:.3f}")
    if options.save:
        save(
            "peer-h200",
            question="How long do the same configurations take beside Kernel Tuner 1.5.0, with empty caches?",
            command=f"python benchmarks/engine.py peer --size {options.size} --trials {options.trials} --save",
            columns=("tuner", "wall, s", "pick, timed again, ms", "ratio"),
            rows=[
                ["autotune", f"{ours_s:.1f}", f"{medians[0]:.4f}", f"{theirs_s / ours_s:.1f}"],
                ["Kernel Tuner", f"{theirs_s:.1f}", f"{medians[1]:.4f}", ""],
            ],
            asked="10",
        )
    print(f"kernels executed in {used['device'] / on_device:.0%} of the device worker's {on_device:.1f} s")


def overhead(options: argparse.Namespace) -> None:
    """Time the loop, store and sampler around an evaluator that answers at once; and the device's idle time."""
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

    problem = make_problem(options.device, options.size, whole=True)
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
            "sgemm", device=options.device, size=dict.fromkeys("MNK", options.size), trials=options.trials,
            sampler="random", seed=1, database=f"{folder}/bench.db",
        )  # fmt: skip
    idle = result.usage["idle"] / result.trials * 1e3
    print(f"device worker idle per trial, start and finalists included, over {result.trials} trials: {idle:.1f} ms")
    print(json.dumps(dict(result.usage)))


def repeat(options: argparse.Namespace) -> None:
    """Measure one configuration in separate searches and print the medians."""
    from autotune.pool import DeviceEvaluator

    problem = make_problem(options.device, options.size)
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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mode", choices=["peer", "overhead", "repeat", "_ours", "_kernel_tuner"])
    parser.add_argument("-d", "--device")
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--searches", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save", action="store_true", help="peer: write results/peer-h200.json")
    options = parser.parse_args()
    if options.mode.startswith("_"):
        run = run_ours if options.mode == "_ours" else run_kernel_tuner
        run(options.device, options.size, options.trials, options.seed)
    else:
        {"peer": peer, "overhead": overhead, "repeat": repeat}[options.mode](options)


if __name__ == "__main__":
    main()
