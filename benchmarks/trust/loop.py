"""An independent clock: wall time of 400 queued runs on a plain queue, in a process of its own.

    python -m benchmarks.trust.loop STUDY [--in-c] < configurations.json

Reads a list of configurations, runs them in turns, in a new order each round, and prints the nanoseconds of one run of
each, round by round. Only the plan and its buffers come from the tuner: no gate, no profiling, nothing subtracted.
Python enqueues, by pyopencl, or C does, which needs a compiler, `cc`.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyopencl as cl

from autotune.bench.arena import Arena
from autotune.bench.prepare import Built, bind, compile_plan
from autotune.bench.verify import Checker
from autotune.devices import find_device
from autotune.devices.opencl_session import OpenCLSession
from autotune.study import Problem, Study, input_data

RUNS, ROUNDS = 400, 5
_WARM_S = 0.2
_LONGEST_S = 0.2  # seconds of a loop: long kernels are repeated less often

Enqueuer = Callable[[cl.CommandQueue, Built], Callable[[int], None]]
"""Given a queue and a built plan, a function that enqueues this many runs of it there."""


class Launch(ctypes.Structure):
    """The struct of `enqueue.c`."""

    _fields_ = (
        ("kernel", ctypes.c_void_p),
        ("axes", ctypes.c_uint),
        ("whole", ctypes.c_size_t * 3),
        ("local", ctypes.c_size_t * 3),
    )


def launch_function() -> Any:
    """Return clEnqueueNDRangeKernel of the library that pyopencl has loaded; a caller can pass no event."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return ctypes.CDLL(next(line.split()[-1] for line in lines if "libOpenCL" in line)).clEnqueueNDRangeKernel


def _compiled() -> Callable[..., int]:
    """Return `enqueue` of `enqueue.c`, compiled, with the library's function as its first argument."""
    with tempfile.TemporaryDirectory() as folder:
        library = f"{folder}/enqueue.so"
        source = str(Path(__file__).with_name("enqueue.c"))
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, source], check=True)
        enqueue = ctypes.CDLL(library).enqueue
    launch = ctypes.cast(launch_function(), ctypes.c_void_p)
    return lambda *rest: int(enqueue(launch, *rest))


def in_c() -> Enqueuer:
    """Return an enqueuer by C, without events."""
    enqueue = _compiled()

    def of(queue: cl.CommandQueue, built: Built) -> Callable[[int], None]:
        launches = (Launch * len(built.kernels))()
        made: list[tuple[Any, Any]] = built.kernels  # `Kernel` says nothing of pyopencl
        for one, (kernel, launch) in zip(launches, made, strict=True):
            one.kernel, one.axes = kernel.int_ptr, len(launch.global_size)
            one.whole[: one.axes] = launch.global_size
            one.local[: one.axes] = launch.local_size or (0,) * one.axes

        def runs(count: int) -> None:
            status = enqueue(ctypes.c_void_p(queue.int_ptr), launches, len(built.kernels), count)  # keeps the kernels
            assert status == 0, f"the driver refuses a launch: {status}"

        return runs

    return of


def in_python(queue: cl.CommandQueue, built: Built) -> Callable[[int], None]:
    """Return an enqueuer by pyopencl, with an event for each launch."""
    steps = [(kernel, launch.global_size, launch.local_size) for kernel, launch in built.kernels]

    def runs(count: int) -> None:
        for _ in range(count):
            for kernel, whole, local in steps:
                cl.enqueue_nd_range_kernel(queue, kernel, whole, local)

    return runs


def main(path: str, enqueuer: Enqueuer) -> None:
    """Print one list of nanoseconds for each configuration."""
    problem = Problem(Study.load(path), device=find_device(None))
    session = OpenCLSession(problem.device)
    arena, checker = Arena(session, input_data(problem)), Checker(session, {})
    queue = cl.CommandQueue(session._context)

    def loop_of(configuration: dict[str, int | float | str]) -> Callable[[int], float]:
        plan = problem.plan(configuration)
        built = bind(session, arena, checker, plan, compile_plan(session, plan))
        enqueue = enqueuer(queue, built)

        def loop(runs: int) -> float:
            began = time.perf_counter()
            enqueue(runs)
            queue.finish()
            return (time.perf_counter() - began) / runs

        return loop

    loops = [loop_of(configuration) for configuration in json.load(sys.stdin)]
    session.finish()
    runs = [min(RUNS, max(1, int(_LONGEST_S / min(loop(1) for _ in range(3))))) for loop in loops]
    times: list[list[float]] = [[] for _ in loops]
    warm = time.perf_counter() + _WARM_S
    while time.perf_counter() < warm:
        loops[0](runs[0])
    for _ in range(ROUNDS):
        for index in random.sample(range(len(loops)), len(loops)):
            loops[index](max(1, runs[index] // 10))  # replaces what the previous loop left in the caches
            times[index].append(1e9 * loops[index](runs[index]))
    print(json.dumps(times))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("study")
    parser.add_argument("--in-c", action="store_true")
    options = parser.parse_args()
    main(options.study, in_c() if options.in_c else in_python)
