"""One use of a kernel from nothing to the result on the host, each step timed: what a single call costs.

Runs in a fresh process (`python -m autotune.endtoend`) with empty build caches, as the first call of a program does.
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

from autotune.engine.supervise import python_path
from autotune.errors import WorkerError
from autotune.model import DeviceInfo
from autotune.opencl import Event, Memory, Session
from autotune.plan import Buffer, Local, Plan, Scalar, numpy_type

LIMIT_S = 300.0


@dataclass(frozen=True)
class EndToEnd:
    """Seconds of wall time. `setup`: driver, context, queue, allocation; `build`: source to kernel; `transfer`:
    inputs to the device; `kernel`: from the first launch to the end of the last; `read_back`: outputs to the host.
    """

    setup: float
    build: float
    transfer: float
    kernel: float
    read_back: float

    @property
    def total(self) -> float:
        """All five, in seconds."""
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
            [sys.executable, "-P", "-m", "autotune.endtoend"],
            env={**os.environ, **python_path(), **caches},
            input=pickle.dumps((plan, device)),
            capture_output=True,
            timeout=LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        raise WorkerError(f"one run took more than {LIMIT_S:.0f} s", where="end to end") from None


def run_once(plan: Plan, device: DeviceInfo) -> EndToEnd:
    """Do it here: set up, transfer random inputs, launch, read the outputs back."""
    inputs = {
        name: _random(buffer)
        for name, buffer in plan.arguments.items()
        if isinstance(buffer, Buffer) and buffer.access in ("in", "inout")
    }
    begun = time.perf_counter()
    session = Session(device)
    buffers = {name: session.allocate(b.nbytes) for name, b in plan.arguments.items() if isinstance(b, Buffer)}
    ready = time.perf_counter()
    program = session.build(plan.source, plan.options)
    built = time.perf_counter()
    for name, buffer in plan.arguments.items():
        if isinstance(buffer, Buffer) and buffer.access == "zeroed":
            session.fill(buffers[name], 0, 0, buffer.nbytes // 4 * 4)
    for name, data in inputs.items():
        session.write(buffers[name], data)
    there = time.perf_counter()
    compiling = _launch_all(session, program, plan, buffers)
    ran = time.perf_counter()
    for name in plan.outputs:
        output = plan.arguments[name]
        assert isinstance(output, Buffer)
        session.read(buffers[name], np.empty(output.nbytes, np.uint8))
    back = time.perf_counter()
    return EndToEnd(ready - begun, built - ready + compiling, there - built, ran - there - compiling, back - ran)


def _launch_all(session: Session, program: Any, plan: Plan, buffers: dict[str, Memory]) -> float:
    """Launch and wait; return the seconds in which PoCL compiled, which belong to the build."""
    compiling = 0.0
    for launch in plan.launches:
        begun = time.perf_counter()
        kernel = program.kernel(launch.entry)
        session.set_arguments(kernel, [_argument(plan.arguments[name], buffers) for name in launch.arguments])
        event: Event = session.launch(kernel, launch.global_size, launch.local_size)
        if session.builds_at_launch:
            if not session.wait_until_running(event):
                raise WorkerError(f"{launch.entry} did not compile at its first launch")
            compiling += time.perf_counter() - begun
    session.finish()
    return compiling


def _argument(argument: Buffer | Scalar | Local, buffers: dict[str, Memory]) -> Any:
    if isinstance(argument, Buffer):
        return buffers[argument.name]
    if isinstance(argument, Local):
        return argument.nbytes
    return numpy_type(argument.type)[0].type(argument.value)


def _random(buffer: Buffer) -> Any:
    dtype, _ = numpy_type(buffer.type)
    count = buffer.nbytes // dtype.itemsize
    return (np.random.default_rng(1).random(count, dtype=np.float32) * 8).astype(dtype)


if __name__ == "__main__":
    print(json.dumps(asdict(run_once(*pickle.loads(sys.stdin.buffer.read())))))
