"""An independent clock: wall time of 400 queued runs on a plain queue, in a process of its own.

    python -m benchmarks.trust.loop STUDY < configurations.json

Reads a list of configurations, runs them in turns, in a new order each round, and prints the nanoseconds of one run of
each, round by round. Of the tuner only the plan and its buffers are used: no gate, no events, nothing subtracted.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable

import pyopencl as cl

from autotune.bench.arena import Arena
from autotune.bench.prepare import bind, compile_plan
from autotune.bench.verify import Checker
from autotune.devices import find_device
from autotune.devices.opencl_session import OpenCLSession
from autotune.study import Problem, Study, input_data

RUNS, ROUNDS = 400, 5
_WARM_S = 0.2
_LONGEST_S = 0.2  # of a loop: long kernels are repeated less often


def main(path: str) -> None:
    """Print one list of nanoseconds for each configuration."""
    problem = Problem(Study.load(path), device=find_device(None))
    session = OpenCLSession(problem.device)
    arena, checker = Arena(session, input_data(problem)), Checker(session, {})
    queue = cl.CommandQueue(session._context)

    def loop_of(configuration: dict[str, int | float | str]) -> Callable[[int], float]:
        plan = problem.plan(configuration)
        built = bind(session, arena, checker, plan, compile_plan(session, plan))
        steps = [(kernel, launch.global_size, launch.local_size) for kernel, launch in built.kernels]

        def loop(runs: int) -> float:
            began = time.perf_counter()
            for _ in range(runs):
                for kernel, whole, local in steps:
                    cl.enqueue_nd_range_kernel(queue, kernel, whole, local)
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
            loops[index](max(1, runs[index] // 10))  # what the one before left in the caches
            times[index].append(1e9 * loops[index](runs[index]))
    print(json.dumps(times))


if __name__ == "__main__":
    main(sys.argv[1])
