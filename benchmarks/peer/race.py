"""Our search and Kernel Tuner's of the same configurations, each a fresh process with empty build caches."""

from __future__ import annotations

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

from .contests import CONTESTS, Contest

_CACHES = ("CUDA_CACHE_PATH", "POCL_CACHE_DIR", "XDG_CACHE_HOME", "XDG_DATA_HOME")


def draw(problem: Any, trials: int, seed: int) -> list[dict[str, Any]]:
    """Return distinct configurations: the default, which a search of ours begins with, and others at random."""
    rows = problem.space.sample(np.random.default_rng(seed), min(trials, len(problem.space)))
    others = [problem.space.configuration(int(row)) for row in rows]
    return [problem.default, *(one for one in others if one != problem.default)][:trials]


def run_ours(contest: Contest, device: str | None, size: int, trials: int, seed: int) -> dict[str, Any]:
    """Search, and return the pick."""
    from autotune import api

    problem = contest.problem(device, size)
    with tempfile.TemporaryDirectory() as folder:
        result = api.search(
            contest.study,
            device=device,
            size=dict.fromkeys(contest.sizes, size),
            trials=trials,
            sampler="random",
            seed=seed,
            fix=contest.fix(problem.device.kind),
            start=draw(problem, trials, seed)[1:],
            database=f"{folder}/bench.db",
        )
    assert result.best is not None
    return {
        "pick": dict(result.best.configuration), "ms": result.best.time_ns * 1e-6, "tried": result.trials,
        "failures": {outcome: [count, result.examples[outcome].reason] for outcome, count in result.failures.items()},
        "usage": dict(result.usage), "search_s": result.elapsed_s,
    }  # fmt: skip


def run_kernel_tuner(contest: Contest, device: str | None, size: int, trials: int, seed: int) -> dict[str, Any]:
    """Let Kernel Tuner search the same configurations, and return its pick."""
    sys.modules["torch"] = None  # type: ignore[assignment]  # it would import it for seconds and not use it
    import kernel_tuner

    from autotune.study import input_data

    np.random.seed(seed)
    problem = contest.problem(device, size)
    inputs = input_data(problem)
    expected = contest.expected(inputs).astype(np.float32)
    plan = problem.plan(problem.default)
    given = [
        np.int32(size) if name in contest.sizes else inputs.get(name, np.zeros_like(expected))
        for name in plan.launches[0].arguments
    ]
    stay = {name: values[0] for name, values in problem.values.items() if len(values) == 1}
    valid = draw(problem, trials, seed)
    tuned = {name: sorted({c[name] for c in valid}) for name in problem.space.names if name not in stay}
    tuned["block_size_x"] = sorted({contest.threads(configuration) for configuration in valid})
    rows = {tuple(configuration[name] for name in tuned if name != "block_size_x") for configuration in valid}

    def allowed(p: dict[str, Any]) -> bool:
        named = tuple(p[name] for name in tuned if name != "block_size_x")
        return p["block_size_x"] == contest.threads(p) and named in rows

    results, _ = kernel_tuner.tune_kernel(
        plan.launches[0].entry,
        plan.source,
        (contest.launched(size), 1),
        given,
        tuned,
        grid_div_x=list(contest.divisors),
        grid_div_y=[],
        restrictions=allowed,
        answer=[expected if name == contest.output else None for name in plan.launches[0].arguments],
        atol=plan.outputs[contest.output].absolute,
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
    return {"pick": pick, "ms": best["time"], "tried": len(results), "timed": len(timed)}


def fresh(who: str, kernel: str, device: str | None, *numbers: int) -> tuple[float, dict[str, Any]]:
    """Run one of both in a fresh process with empty caches; return its wall seconds and what it found."""
    given = [who, kernel, device or "", *map(str, numbers)]
    with tempfile.TemporaryDirectory() as caches:
        environment = {**os.environ, **{name: f"{caches}/{name}" for name in _CACHES}, "PYOPENCL_NO_CACHE": "1"}
        path = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, sys.path)])
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.peer.race", *given],
            env=environment | {"PYTHONPATH": path},
            cwd=caches,  # Kernel Tuner leaves the source of a failed build in it
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        return time.monotonic() - began, json.loads(done.stdout.strip().splitlines()[-1])


def race(kernel: str, device: str | None, size: int, trials: int, seed: int) -> list[list[str]]:
    """Run both, print what they found, and return a row for each: tuner, wall time, pick timed again, ratio."""
    from autotune.model import Measurement
    from autotune.pool import DeviceEvaluator

    ours_s, ours = fresh("ours", kernel, device, size, trials, seed)
    print("ours", f"{ours_s:.1f} s", ours, flush=True)
    theirs_s, theirs = fresh("kernel_tuner", kernel, device, size, trials, seed)
    print("Kernel Tuner", f"{theirs_s:.1f} s", theirs, flush=True)
    contest = CONTESTS[kernel]
    problem = contest.problem(device, size)
    with DeviceEvaluator(problem, [problem.device]) as evaluator:
        again = evaluator.retime([ours["pick"], theirs["pick"]], 5.0)
    medians = [one.median_ns * 1e-6 if isinstance(one, Measurement) else np.nan for one in again]
    work = contest.work(size) * 1e-9
    print(f"\n{problem.device.name}, {kernel} {size}, {trials} configurations of {len(problem.space)}")
    print(f"{'':14} {'wall':>8} {'pick, re-timed':>15} {'TFLOPS':>8}")
    for name, seconds, ms in (("autotune", ours_s, medians[0]), ("Kernel Tuner", theirs_s, medians[1])):
        print(f"{name:14} {seconds:7.1f}s {ms:12.4f} ms {work / ms:8.2f}")
    used = ours["usage"]
    on_device = used["build"] + used["verify"] + used["time"] + used["idle"]
    print(f"ratio of wall times {theirs_s / ours_s:.1f}; pick against theirs {medians[1] / medians[0]:.3f}")
    print(f"kernels executed in {used['device'] / on_device:.0%} of the device worker's {on_device:.1f} s")
    told = f"{kernel} {size}"
    return [
        [told, "autotune", f"{ours_s:.1f}", f"{medians[0]:.4f}", f"{theirs_s / ours_s:.1f}"],
        [told, "Kernel Tuner", f"{theirs_s:.1f}", f"{medians[1]:.4f}", ""],
    ]


def main(given: Sequence[str]) -> None:
    """Be one of both."""
    who, kernel, device, *numbers = given
    run = run_ours if who == "ours" else run_kernel_tuner
    print(json.dumps(run(CONTESTS[kernel], device or None, *map(int, numbers))))


if __name__ == "__main__":
    main(sys.argv[1:])
