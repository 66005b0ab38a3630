"""The cost of the event that pyopencl requests with each launch: batches behind the holder, with and without events.

python -m benchmarks.trust.events [STUDY ...] [--save]

Each study's default configuration, in three processes; in each process both kinds in turns. Without events the C
function itself is called, as by a program that passes none.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import subprocess
import sys
from collections.abc import Callable
from statistics import median
from typing import Any

import pyopencl as cl

from autotune.bench.arena import Arena
from autotune.bench.clock import MOST_COMMANDS
from autotune.bench.holder import Holder
from autotune.bench.prepare import bind, compile_plan
from autotune.bench.verify import Checker
from autotune.devices import find_device
from autotune.devices.opencl_session import OpenCLSession
from autotune.study import Problem, Study, input_data
from benchmarks.tables import save
from benchmarks.trust.device import HERE, STUDIES
from benchmarks.trust.loop import launch_function

PROCESSES, ROUNDS = 3, 15
_HOLD_NS, _LONGEST_NS = 5_000_000, 5_000_000  # of the holder; of a batch
COLUMNS = ("study", "launches", "with events, us", "without, us", "an event, us", "processes, with", "without")


def in_this_process(path: str) -> tuple[int, float, float]:
    """Return the launches of a run, and its nanoseconds with events and without."""
    problem = Problem(Study.load(path), device=find_device(None))
    session = OpenCLSession(problem.device)
    plan = problem.plan(problem.default)
    arena, checker = Arena(session, input_data(problem)), Checker(session, {})
    built = bind(session, arena, checker, plan, compile_plan(session, plan))
    holder, enqueue = Holder(session), _enqueue()

    def with_events() -> None:
        for kernel, launch in built.kernels:
            session.launch(kernel, launch.global_size, launch.local_size)

    def without() -> None:
        for kernel, launch in built.kernels:
            enqueue(session._queue, kernel, launch.global_size, launch.local_size)

    def batch(run: Callable[[], None], runs: int) -> int:
        with session.batch(holder.holding(_HOLD_NS)) as timed:
            for _ in range(runs):
                run()
        return timed.ns

    batch(with_events, 1)
    once_ns = max(1, batch(with_events, 1))
    runs = max(1, min(MOST_COMMANDS // len(built.kernels), _LONGEST_NS // once_ns))
    times: dict[Callable[[], None], list[float]] = {with_events: [], without: []}
    for _ in range(ROUNDS):
        bare = batch(without, 0)
        for run, found in times.items():
            found.append((batch(run, runs) - bare) / runs)
    return len(built.kernels), median(times[with_events]), median(times[without])


def _enqueue() -> Callable[[Any, Any, Any, Any], None]:
    """Return a launch by the library's own function, without an event."""
    function = launch_function()
    pointer, count = ctypes.c_void_p, ctypes.c_uint
    function.argtypes = [pointer, pointer, count, pointer, pointer, pointer, count, pointer, pointer]

    def launch(queue: cl.CommandQueue, kernel: cl.Kernel, whole: tuple[int, ...], local: tuple[int, ...]) -> None:
        sizes = ctypes.c_size_t * len(whole)
        handles = queue.int_ptr, kernel.int_ptr
        if function(*handles, len(whole), None, sizes(*whole), sizes(*local), 0, None, None):
            raise SystemExit("the device refused a launch")

    return launch


def judge(study: str) -> list[str]:
    """Return the row of one study."""
    words = [sys.executable, "-m", "benchmarks.trust.events", "--here", str(HERE / f"{study}.toml")]
    found = [json.loads(subprocess.run(words, capture_output=True, check=True).stdout) for _ in range(PROCESSES)]
    launches = found[0][0]
    noted, bare = ([one[place] / 1e3 for one in found] for place in (1, 2))
    return [
        study,
        str(launches),
        f"{median(noted):.2f}",
        f"{median(bare):.2f}",
        f"{(median(noted) - median(bare)) / launches:.2f}",
        f"{max(noted) / min(noted) - 1:.1%}",
        f"{max(bare) / min(bare) - 1:.1%}",
    ]


def main() -> None:
    """Print a row for each study."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("studies", nargs="*", default=STUDIES)
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--here", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        print(json.dumps(in_this_process(options.here)))
        return
    rows = []
    for study in options.studies:
        rows.append(judge(study))
        print(" | ".join(rows[-1]), flush=True)
    if options.save:
        save(
            "events-h200",
            question="What does the event cost that pyopencl asks for with each launch?",
            command="python -m benchmarks.trust.events",
            columns=COLUMNS,
            rows=rows,
            note="Device time of a run of the default configuration in batches behind the holder; median of "
            f"{PROCESSES} processes. Last columns: the largest of the {PROCESSES} against the smallest.",
        )


if __name__ == "__main__":
    main()
