"""One use of a kernel from nothing to the result on the host, each step timed, and another one after it.

Runs in a fresh process (`python -m autotune.reports.endtoend`) with empty build caches, as the first call of a
program does.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from autotune.bench.prepare import argument
from autotune.devices.opencl import Session
from autotune.errors import WorkerError
from autotune.model import DeviceInfo
from autotune.pool import python_path
from autotune.study.plan import Buffer, Plan, numpy_type

LIMIT_S = 300.0


@dataclass(frozen=True)
class EndToEnd:
    """Seconds of wall time. `setup`: driver, context, queue, allocation; `build`: source to kernel; `transfer`:
    inputs to the device; `kernel`: from the first launch to the end of the last; `read_back`: outputs to the host.

    `next_use` is what the same costs once more, in the program that has its context and its kernels by now:
    transfer, kernel and read back. PoCL compiles at the first launch: that is counted as build.
    """

    setup: float
    build: float
    transfer: float
    kernel: float
    read_back: float
    next_use: float

    @property
    def total(self) -> float:
        """The first use, in seconds: all but `next_use`."""
        return self.setup + self.build + self.transfer + self.kernel + self.read_back


def end_to_end(plan: Plan, device: DeviceInfo) -> EndToEnd:
    """Run a verified plan once in a fresh process. Raises WorkerError where that process fails or overruns."""
    with tempfile.TemporaryDirectory() as empty:
        done = _in_fresh_process(plan, device, {"POCL_CACHE_DIR": empty, "CUDA_CACHE_DISABLE": "1"})
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().splitlines() or [f"exit code {done.returncode}"]
        raise WorkerError(last[-1], where="end to end")
    return EndToEnd(**json.loads(done.stdout))


def _in_fresh_process(plan: Plan, device: DeviceInfo, caches: dict[str, str]) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            [sys.executable, "-P", "-m", "autotune.reports.endtoend"],
            env={**os.environ, **python_path(), **caches},
            input=pickle.dumps((plan, device)),
            capture_output=True,
            timeout=LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        raise WorkerError(f"one run took more than {LIMIT_S:.0f} s", where="end to end") from None


def run_once(plan: Plan, device: DeviceInfo) -> EndToEnd:
    """Do it here: set up, transfer random inputs, launch, read the outputs back; then all but the set-up again."""
    buffers = {name: buffer for name, buffer in plan.arguments.items() if isinstance(buffer, Buffer)}
    inputs = {name: _random(buffer) for name, buffer in buffers.items() if buffer.access in ("in", "inout")}
    outputs = {name: np.empty(buffers[name].nbytes, np.uint8) for name in plan.outputs}
    begun = time.perf_counter()
    session = Session(device)
    memory = {name: session.allocate(buffer.nbytes) for name, buffer in buffers.items()}
    ready = time.perf_counter()
    program = session.build(plan.source, plan.options)
    kernels = [program.kernel(launch.entry) for launch in plan.launches]
    for kernel, launch in zip(kernels, plan.launches, strict=True):
        session.set_arguments(kernel, [argument(plan, name, memory) for name in launch.arguments])
    built = time.perf_counter()

    def use() -> tuple[float, float, float]:
        """Seconds for transfer, kernel and read back."""
        since = time.perf_counter()
        for name, buffer in buffers.items():
            if buffer.access == "zeroed":
                session.fill(memory[name], 0, 0, buffer.nbytes // 4 * 4)
        for name, data in inputs.items():
            session.write(memory[name], data)
        there = time.perf_counter()
        for kernel, launch in zip(kernels, plan.launches, strict=True):
            session.launch(kernel, launch.global_size, launch.local_size)
        session.finish()
        ran = time.perf_counter()
        for name, data in outputs.items():
            session.read(memory[name], data)
        return there - since, ran - there, time.perf_counter() - ran

    transfer, running, read_back = use()
    compiling = max(0.0, running - session.busy_ns() * 1e-9) if session.builds_at_launch else 0.0
    return EndToEnd(
        setup=ready - begun,
        build=built - ready + compiling,
        transfer=transfer,
        kernel=running - compiling,
        read_back=read_back,
        next_use=sum(use()),
    )


def _random(buffer: Buffer) -> Any:
    dtype, _ = numpy_type(buffer.type)
    count = buffer.nbytes // dtype.itemsize
    return (np.random.default_rng(1).random(count, dtype=np.float32) * 8).astype(dtype)


if __name__ == "__main__":
    print(json.dumps(asdict(run_once(*pickle.loads(sys.stdin.buffer.read())))))
