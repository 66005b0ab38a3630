"""Does `autotune.tuned` reach in a new process what a search found, and what does a call cost the host?

    python benchmarks/tuned.py [STUDY] [--size M=N=K] [--trials 20 | --seconds 40] [--db PATH] [--json]

Searches a little, then starts a new process that asks for the kernel and calls it with its own queue and arrays. The
time of a call, queued one after another, is compared with the time that the search stored: the device's share of a
call. Target: at most 2 % above. Then the host's share: the time until a call returns, at a size so small that the
device keeps up. It is compared with pyopencl's `enqueue_nd_range_kernel`, with its arguments set before, and with them
set anew. The same for a kernel of six scalars, whose values the study gives or each call gives, beside pyopencl's that
was told their types. Target: at most 20 us each. Exit code 1 if one is missed. `--json` writes results/tuned.json.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import autotune
from autotune.api import TunedKernel
from autotune.study import Buffer, Study, numpy_type
from autotune.text import parse_size
from autotune.tuner import Budget
from benchmarks.tables import save

MOST_SLOWER, MOST_US = 0.02, 20.0
SCALARS = ("a", "b", "c", "d", "e", "f")
BATCH_S, BATCHES, CALLS = 0.2, 15, 100
"""Seconds of a batch of calls, how many batches, and the calls in a batch whose host time is measured."""


def arrays(kernel: TunedKernel, queue: Any) -> dict[str, Any]:
    """Return the arguments of a call: inputs of random numbers, outputs of zeros."""
    import numpy as np
    import pyopencl.array as cla

    random, found = np.random.default_rng(1), {}
    for name, argument in kernel.arguments.items():
        if isinstance(argument, Buffer):
            dtype, width = numpy_type(argument.type)
            shape = (*argument.allocate, width) if width > 1 else argument.allocate
            data = random.uniform(-1, 1, shape) if argument.reads else np.zeros(shape)
            found[name] = cla.to_device(queue, data.astype(dtype))
    return found


def queue_of(kernel: TunedKernel) -> Any:
    """Return a queue on the device that the kernel was looked up for."""
    import pyopencl as cl

    from autotune.devices import list_devices

    index = next(info.index for info in list_devices() if info.fingerprint == kernel.best.device)
    device = [one for platform in cl.get_platforms() for one in platform.get_devices()][index]
    return cl.CommandQueue(cl.Context([device]))


def batches_ns(call: Callable[[], Any], queue: Any) -> list[float]:
    """Return the time of one call in each of some batches, from the first enqueue to the end of the last call."""
    call()
    queue.finish()
    begun = time.perf_counter()
    call()
    queue.finish()
    count = max(3, min(500, int(BATCH_S / (time.perf_counter() - begun))))
    found = []
    for _ in range(BATCHES + 1):
        begun = time.perf_counter()
        for _ in range(count):
            call()
        queue.finish()
        found.append((time.perf_counter() - begun) / count * 1e9)
    return found[1:]


def host_us(call: Callable[[], Any], queue: Any) -> float:
    """Return the time until a call returns: the median of batches, each on an empty queue."""
    found = []
    for _ in range(BATCHES * 2):
        queue.finish()
        begun = time.perf_counter()
        for _ in range(CALLS):
            call()
        found.append((time.perf_counter() - begun) / CALLS * 1e6)
    queue.finish()
    return statistics.median(found)


def plain_calls(kernel: TunedKernel, queue: Any, given: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """Return the launches of the same kernels without autotune: arguments set before, and set for each call."""
    import pyopencl as cl

    plan = kernel._main.ready.plan
    program = cl.Program(queue.context, plan.source).build(list(plan.options))
    launches = []
    for launch in plan.launches:
        one = cl.Kernel(program, launch.entry)
        values: list[Any] = []
        for name in launch.arguments:
            argument = plan.arguments[name]
            if name in given:
                values.append(given[name].base_data)
            elif isinstance(argument, Buffer):
                values.append(cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, argument.nbytes))
            elif argument.local_bytes:
                values.append(cl.LocalMemory(argument.local_bytes))
            else:
                values.append(argument.create(None))
        one.set_args(*values)
        launches.append((one, launch.global_size, launch.local_size, values))

    def enqueue() -> None:
        for one, whole, part, _ in launches:
            cl.enqueue_nd_range_kernel(queue, one, whole, part)

    def set_and_enqueue() -> None:
        for one, whole, part, values in launches:
            one.set_args(*values)
            cl.enqueue_nd_range_kernel(queue, one, whole, part)

    return {"enqueue_nd_range_kernel": enqueue, "set_args and enqueue": set_and_enqueue}


def of_scalars() -> Study:
    """Return a study of a kernel that does almost nothing with many scalars."""
    taken = ", ".join(f"float {name}" for name in SCALARS)
    return Study(
        name="scalars",
        source=f"kernel void scalars(global float *y, {taken}) {{ y[get_global_id(0)] = {' + '.join(SCALARS)}; }}",
        sizes={"N": 64},
        parameters={"WG": {"values": [64]}},
        arguments={
            "y": {"type": "float", "shape": ["N"], "access": "out"},
            **{name: {"type": "float", "value": "1"} for name in SCALARS},
        },
        launch=[{"entry": "scalars", "global": ["N"], "local": ["WG"], "arguments": ["y", *SCALARS]}],
        reference=lambda a, b, c, d, e, f, **_: {"y": a + b + c + d + e + f},
    )


def scalars_us(queue: Any) -> dict[str, float]:
    """Return the host's time of calls with scalars: ours, and pyopencl's that was told their types."""
    import numpy as np
    import pyopencl as cl
    import pyopencl.array as cla

    with warnings.catch_warnings(action="ignore"):
        kernel = autotune.tuned(of_scalars())
    y, turns = cla.zeros(queue, 64, np.float32), itertools.count()
    plain = cl.Kernel(cl.Program(queue.context, kernel.study.text.source).build(), "scalars")
    plain.set_arg_types([None, *[np.float32] * len(SCALARS)])
    return {
        "six scalars left": host_us(lambda: kernel(queue, y=y), queue),
        "given": host_us(lambda: kernel(queue, y=y, **dict.fromkeys(SCALARS, float(next(turns)))), queue),
        "pyopencl's": host_us(lambda: plain(queue, (64,), (64,), y.base_data, *[1.0] * len(SCALARS)), queue),
    }


def measure(study: str, size: dict[str, int]) -> dict[str, Any]:
    """Ask, call and time, in the new process."""
    begun = time.perf_counter()
    kernel = autotune.tuned(study, size=size)
    asked_s = time.perf_counter() - begun
    queue = queue_of(kernel)
    given = arrays(kernel, queue)
    queue.finish()
    begun = time.perf_counter()
    kernel(queue, **given).wait()
    first_s = time.perf_counter() - begun
    times = batches_ns(lambda: kernel(queue, **given), queue)
    with warnings.catch_warnings(action="ignore"):
        small = autotune.tuned(study, size=dict.fromkeys(size, 64))
    little = arrays(small, queue)
    host = {"tuned": host_us(lambda: small(queue, **little), queue)}
    with warnings.catch_warnings(action="ignore"):
        for name, call in plain_calls(small, queue, little).items():
            host[name] = host_us(call, queue)
    host |= scalars_us(queue)
    return {
        "match": kernel.match,
        "device": kernel.best.device_name,
        "stored_ns": kernel.best.time_ns,
        "times_ns": times,
        "asked_s": asked_s,
        "first_s": first_s,
        "host_us": host,
    }


def fresh(study: str, size: dict[str, int], database: str) -> dict[str, Any]:
    """Return what a new process measures."""
    words = [sys.executable, __file__, study, "--measure", json.dumps(size)]
    done = subprocess.run(words, env={**os.environ, "AUTOTUNE_DB": database}, stdout=subprocess.PIPE, check=True)
    return dict(json.loads(done.stdout))


def main() -> int:
    """Search, measure, print; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("study", nargs="?", default="sgemm")
    parser.add_argument("--size", default="", help="as for the command: 256, or M=1024,N=512")
    parser.add_argument("--trials", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--db", help="a database to use and keep; by default a new one")
    parser.add_argument("--json", action="store_true", help="write results/tuned.json")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure is not None:
        print(json.dumps(measure(options.study, json.loads(options.measure))))
        return 0
    size = parse_size([options.size] if options.size else [], Study.load(options.study).sizes)
    seconds = options.seconds or (None if options.trials else 40.0)
    with tempfile.TemporaryDirectory() as folder:
        database = options.db or f"{folder}/tuned.db"
        budget = Budget(trials=options.trials, seconds=seconds)
        result = autotune.search(options.study, size=size, budget=budget, database=database)
        if result.best is None:
            print("the search found nothing that passed", file=sys.stderr)
            return 1
        first, second = (fresh(options.study, size, database) for _ in range(2))
    ratios = [statistics.median(one["times_ns"]) / one["stored_ns"] for one in (first, second)]
    for ratio, one in zip(ratios, (first, second), strict=True):
        spread = min(one["times_ns"]), max(one["times_ns"])
        print(
            f"{one['device']}, {one['match']}: stored {one['stored_ns'] / 1e3:.2f} us, called "
            f"{statistics.median(one['times_ns']) / 1e3:.2f} us ({spread[0] / 1e3:.2f} to {spread[1] / 1e3:.2f} in "
            f"{BATCHES} batches): {ratio:.3f} x"
        )
        print(f"  asked for in {one['asked_s'] * 1e3:.0f} ms, first call in {one['first_s'] * 1e3:.0f} ms")
        print("  host, us a call: " + ", ".join(f"{name} {us:.1f}" for name, us in one["host_us"].items()))
    host = second["host_us"]
    over = host["tuned"] - host["enqueue_nd_range_kernel"]
    print(f"tuned() costs the host {over:+.1f} us over a plain enqueue, {host['tuned']:.1f} us in all")
    if options.json:
        save(
            "tuned",
            question="Does `autotune.tuned` reach the searched time in a fresh process, at what cost to the host?",
            command="python " + " ".join(["benchmarks/tuned.py", *sys.argv[1:]]),
            machine=second["device"],
            asked=f"at most {1 + MOST_SLOWER:g} x, {MOST_US:g} us",
            columns=["process", "called over stored", "first call", *(f"{name}, us" for name in host)],
            rows=[
                [name, f"{ratio:.3f}", f"{1e3 * one['first_s']:.0f} ms", *(f"{x:.1f}" for x in one["host_us"].values())]
                for name, ratio, one in zip(("the first", "the second"), ratios, (first, second), strict=True)
            ],
        )  # fmt: skip
    ours = max(host[name] for name in ("tuned", "six scalars left", "given"))
    return int(min(ratios) > 1 + MOST_SLOWER or ours > MOST_US)


if __name__ == "__main__":
    sys.exit(main())
