"""`autotune search` and a program that runs Kernel Tuner, over the same configurations, with empty build caches.

Ours draws them at random and verifies each; Kernel Tuner's program gets the same ones, with the kernel and its data.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .contests import CONTESTS, Contest

_CACHES = ("CUDA_CACHE_PATH", "POCL_CACHE_DIR", "XDG_CACHE_HOME", "XDG_DATA_HOME")


def timed(who: str, words: Sequence[str], folder: Path) -> tuple[float, dict[str, Any]]:
    """Run Python with these words and empty build caches; return its wall seconds and the JSON that it prints."""
    caches = {name: str(folder / f"{who}-{name}") for name in _CACHES}
    path = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, sys.path)])
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, *words],
        env={**os.environ, **caches, "PYOPENCL_NO_CACHE": "1", "PYTHONPATH": path},
        cwd=folder,  # Kernel Tuner leaves the source of a failed build in it
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    seconds = time.monotonic() - began
    return seconds, json.loads(done.stdout[done.stdout.index("{") :])


def run_ours(contest: Contest, problem: Any, trials: int, seed: int, folder: Path) -> tuple[float, dict[str, Any]]:
    """Search by the command; return its wall seconds and its output."""
    size = ",".join(f"{name}={value}" for name, value in problem.size.items())
    fixed = [
        word for name, values in contest.fix(problem.device.kind).items() for word in ("--fix", f"{name}={values[0]}")
    ]
    words = ["-m", "autotune", "search", contest.study, "-d", problem.device.number, "--size", size, *fixed]
    budget = ["--sampler", "random", "--seed", str(seed), "--trials", str(trials), "--json", "--db", "ours.db"]
    return timed("ours", [*words, *budget], folder)


def tried(problem: Any, folder: Path) -> list[Mapping[str, Any]]:
    """Return the configurations that our search tried."""
    from autotune.store import Store

    with Store.open(str(folder / "ours.db")) as store:
        return [trial.configuration for trial in store.trials(problem.key)]


def run_kernel_tuner(
    contest: Contest, problem: Any, size: int, configurations: Sequence[Mapping[str, Any]], folder: Path
) -> tuple[float, dict[str, Any]]:
    """Have Kernel Tuner try these configurations; return its wall seconds and its pick."""
    from autotune.study import input_data

    inputs = input_data(problem)
    expected = contest.expected(inputs).astype(np.float32)
    plan = problem.plan(problem.default)
    names = plan.launches[0].arguments
    stay = {name: values[0] for name, values in problem.values.items() if len(values) == 1}
    tuned = {name: sorted({one[name] for one in configurations}) for name in problem.space.names if name not in stay}
    threads = {tuple(one[name] for name in tuned): contest.threads(one) for one in configurations}
    request = {
        "kernel_name": plan.launches[0].entry,
        "kernel_source": plan.source,
        "problem_size": (contest.launched(size), 1),
        "arguments": [
            np.int32(size) if name in contest.sizes else inputs.get(name, np.zeros_like(expected)) for name in names
        ],
        "tune_params": {**tuned, "block_size_x": sorted(set(threads.values()))},
        "grid_div_x": list(contest.divisors),
        "grid_div_y": [],
        "answer": [expected if name == contest.output else None for name in names],
        "atol": plan.outputs[contest.output].absolute,
        "compiler_options": [word for word in plan.options if word.removeprefix("-D").partition("=")[0] not in tuned],
        "device": problem.device.index,
    }
    (folder / "request").write_bytes(pickle.dumps((request, threads, len(configurations))))
    seconds, found = timed("theirs", ["-m", "benchmarks.peer.race", str(folder / "request")], folder)
    return seconds, {**found, "pick": found["pick"] | stay}


def tune(path: str) -> None:
    """Run Kernel Tuner, as the program for that."""
    sys.modules["torch"] = None  # type: ignore[assignment]  # importing it takes seconds, and it is not used
    import kernel_tuner

    request, threads, trials = pickle.loads(Path(path).read_bytes())
    names = [name for name in request["tune_params"] if name != "block_size_x"]

    def allowed(p: dict[str, Any]) -> bool:  # Kernel Tuner would parse the text of a lambda
        return bool(threads.get(tuple(p[name] for name in names)) == p["block_size_x"])

    results, _ = kernel_tuner.tune_kernel(
        **request,
        restrictions=allowed,
        strategy="random_sample",
        strategy_options={"max_fevals": trials},
        lang="OpenCL",
        platform=0,
        verbose=False,
        quiet=True,
    )
    passed = [result for result in results if isinstance(result["time"], float)]
    best = min(passed, key=lambda result: result["time"])
    pick = {name: best[name] for name in names}
    print(json.dumps({"pick": pick, "ms": best["time"], "tried": len(results), "timed": len(passed)}, default=int))


def race(kernel: str, device: str | None, size: int, trials: int, seed: int) -> list[list[str]]:
    """Run both, print what they found, and return a row for each: tuner, wall time, pick timed again, ratio."""
    from autotune.model import Measurement
    from autotune.pool import DeviceEvaluator

    contest = CONTESTS[kernel]
    problem = contest.problem(device, size)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ours_s, ours = run_ours(contest, problem, trials, seed, folder)
        print("ours", f"{ours_s:.1f} s", {key: ours[key] for key in ("trials", "failures", "usage_s")}, flush=True)
        theirs_s, theirs = run_kernel_tuner(contest, problem, size, tried(problem, folder), folder)
        print("Kernel Tuner", f"{theirs_s:.1f} s", theirs, flush=True)
    with DeviceEvaluator(problem, [problem.device]) as evaluator:
        again = evaluator.retime([ours["best"]["configuration"], theirs["pick"]], 5.0)
    medians = [one.median_ns * 1e-6 if isinstance(one, Measurement) else np.nan for one in again]
    work = contest.work(size) * 1e-9
    print(f"\n{problem.device.name}, {kernel} {size}, {trials} configurations of {len(problem.space)}")
    print(f"{'':14} {'wall':>8} {'pick, re-timed':>15} {'TFLOPS':>8}")
    for tuner, seconds, ms in (("autotune", ours_s, medians[0]), ("Kernel Tuner", theirs_s, medians[1])):
        print(f"{tuner:14} {seconds:7.1f}s {ms:12.4f} ms {work / ms:8.2f}")
    used = ours["usage_s"]
    on_device = sum(used[step] for step in ("build", "verify", "time", "finalists", "idle"))
    print(f"ratio of wall times {theirs_s / ours_s:.1f}; pick against theirs {medians[1] / medians[0]:.3f}")
    print(f"kernels executed in {used['device'] / on_device:.0%} of the device worker's {on_device:.1f} s")
    told = f"{kernel} {size}"
    return [
        [told, "autotune", f"{ours_s:.1f}", f"{medians[0]:.4f}", f"{theirs_s / ours_s:.1f}"],
        [told, "Kernel Tuner", f"{theirs_s:.1f}", f"{medians[1]:.4f}", ""],
    ]


if __name__ == "__main__":
    tune(sys.argv[1])
