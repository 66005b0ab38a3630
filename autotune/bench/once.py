"""One plan in a process of its own: used from scratch with each step timed, or built for its author to read."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from autotune.bench.inspect import inspect
from autotune.bench.messages import EndToEnd, Inspect, Inspected, Keep, Kept, Use
from autotune.bench.prepare import compile_plan, set_arguments
from autotune.devices import BackendError, BuildError, load_backend
from autotune.model import DeviceInfo
from autotune.study import Buffer, Plan, numpy_type


def once(device: DeviceInfo, message: Use | Keep | Inspect) -> EndToEnd | Kept | Inspected:
    """Do what the message says. Raises Fault, BackendError."""
    if isinstance(message, Inspect):
        return inspect(device, message)
    return use(device, message.plan) if isinstance(message, Use) else keep(device, message.plan)


def use(device: DeviceInfo, plan: Plan) -> EndToEnd:
    """Set up, transfer random inputs, launch, read the outputs back; then repeat everything except the set-up."""
    inputs = {buffer.name: _random(buffer) for buffer in plan.buffers if buffer.reads}
    outputs = {buffer.name: np.empty(buffer.nbytes, np.uint8) for buffer in plan.buffers if buffer.writes}
    backend = load_backend(device.backend)
    backend.prepare()  # so that Python's imports are not timed
    begun = time.perf_counter()
    session = backend.open(device)
    memory = {buffer.name: buffer.create(session) for buffer in plan.buffers}
    ready = time.perf_counter()
    compiled = compile_plan(session, plan)
    set_arguments(session, plan, compiled, memory)
    built = time.perf_counter()

    def again() -> tuple[float, float, float]:
        """Seconds for transfer, kernel and read back."""
        since = time.perf_counter()
        for buffer in plan.buffers:
            if buffer.access == "zeroed":
                session.fill(memory[buffer.name], 0, 0, buffer.nbytes)
        for name, data in inputs.items():
            session.write(memory[name], data)
        there = time.perf_counter()
        for place in plan.sequence:
            kernel, launch, _ = compiled.kernels[place]
            for position, argument in launch.counted:
                session.set_arguments(kernel, [argument.create(session)], position)
            session.launch(kernel, launch.global_size, launch.local_size, launch.offset)
        session.finish()
        ran = time.perf_counter()
        for name, data in outputs.items():
            session.read(memory[name], data)
        return there - since, ran - there, time.perf_counter() - ran

    transfer, running, read_back = again()
    compiling = max(0.0, running - session.busy_ns() * 1e-9) if session.traits.builds_at_launch else 0.0
    return EndToEnd(
        setup=ready - begun,
        build=built - ready + compiling,
        transfer=transfer,
        kernel=running - compiling,
        read_back=read_back,
        next_use=sum(again()),
    )


def keep(device: DeviceInfo, plan: Plan) -> Kept:
    """Build a plan and return its log and binary."""
    try:
        program = load_backend(device.backend).open(device).build(plan.source, plan.options)
    except BuildError as error:
        return Kept(error.detail)
    try:
        suffix = program.binary_suffix
        return Kept(program.log, program.binary.rstrip(b"\0") if suffix == "ptx" else program.binary, suffix)
    except BackendError:  # a driver may keep the binary to itself
        return Kept(program.log)


def _random(buffer: Buffer) -> Any:
    dtype, _ = numpy_type(buffer.type)
    if dtype.names is not None:
        return np.zeros(buffer.nbytes // dtype.itemsize, dtype)
    count = buffer.nbytes // dtype.itemsize
    return (np.random.default_rng(1).random(count, dtype=np.float32) * 8).astype(dtype)
