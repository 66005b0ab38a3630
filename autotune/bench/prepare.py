"""From a plan to kernels that can be launched: built, within the device's limits, with buffers and arguments set."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.bench.arena import Arena, Guarded, round_up
from autotune.bench.report import Fault, first_error, located, resources, too_large
from autotune.bench.verify import Checker
from autotune.devices.opencl import (
    ArgumentError,
    BuildError,
    Event,
    Kernel,
    KernelLimits,
    OpenCLError,
    Program,
    Session,
)
from autotune.model import Outcome
from autotune.study import Launch, Plan

_MOST_ON_NVIDIA = 228 * 1024
"""Bytes of local memory of a compute unit on the largest of NVIDIA's devices (capability 9.0 and 10.0)."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A plan's program and, for each launch, a kernel within the device's limits."""

    program: Program
    kernels: list[tuple[Kernel, Launch, KernelLimits]]


@dataclass(frozen=True, slots=True)
class Built:
    """A plan ready to launch: kernels with their arguments set; `environment` holds registers, spills and memory."""

    plan: Plan
    program: Program
    kernels: list[tuple[Kernel, Launch]]
    buffers: list[Guarded]
    environment: dict[str, str | int | float]


def compile_plan(session: Session, plan: Plan) -> Compiled:
    """Build a plan's program and kernels. Raises Fault."""
    program = build(session, plan)
    return Compiled(program, kernels(session, program, plan))


def build(session: Session, plan: Plan) -> Program:
    """Build a plan's program. Raises Fault with the first error line of the log."""
    verbose = ("-cl-nv-verbose",) if session.info.vendor_name == "nvidia" else ()  # tells registers and spills
    try:
        return session.build(plan.source, (*plan.options, *verbose))
    except BuildError as error:
        log = located(error.detail, plan.source)
        line = first_error(log)
        # NVIDIA's assembler refuses static local memory beyond the device.
        outcome = Outcome.LAUNCH_ERROR if "too much shared data" in log else Outcome.COMPILE_ERROR
        raise Fault(outcome, f"{error}: {line}" if line else str(error), detail=log) from None


def kernels(session: Session, program: Program, plan: Plan) -> list[tuple[Kernel, Launch, KernelLimits]]:
    """Return a kernel with its limits for each launch. Raises Fault where one is missing or exceeds the device."""
    found = []
    for number, launch in enumerate(plan.launches, 1):
        try:
            kernel = program.kernel(launch.entry)
            limits = program.limits(kernel)
        except OpenCLError as error:
            raise Fault(Outcome.COMPILE_ERROR, f"no kernel {launch.entry!r}: {error}", detail=program.log) from None
        if kernel.num_args != len(launch.arguments):
            takes, given = f"{kernel.num_args} argument{'s' * (kernel.num_args != 1)}", len(launch.arguments)
            raise Fault(Outcome.COMPILE_ERROR, f"{launch.entry} takes {takes}, launch {number} gives {given}")
        _check_limits(session, plan, launch, limits)
        found.append((kernel, launch, limits))
    return found


def bind(session: Session, arena: Arena, checker: Checker, plan: Plan, compiled: Compiled) -> Built:
    """Give a compiled plan its buffers and arguments. Raises Fault where the device has no room for them."""
    try:
        buffers = arena.prepare(plan)
        checker.prepare(buffers)
        _set_arguments(session, plan, compiled, buffers)
    except OpenCLError as error:
        raise Fault(Outcome.LAUNCH_ERROR, str(error)) from None
    facts = {
        "local_memory": max(limits.local_memory for _, _, limits in compiled.kernels),
        "private_memory": max(limits.private_memory for _, _, limits in compiled.kernels),
    }
    ready = [(kernel, launch) for kernel, launch, _ in compiled.kernels]
    return Built(plan, compiled.program, ready, buffers, {**facts, **resources(compiled.program.log)})


def launch_ahead(session: Session, arena: Arena, plan: Plan, compiled: Compiled) -> Iterator[Event]:
    """Launch as little of each kernel as makes PoCL compile it for this launch, and yield the events.

    It compiles for the local size, and apart for grids of more than 65535 items in a dimension; what it
    compiled it keeps on disk for the other workers of this search. Raises OpenCLError.
    """
    _set_arguments(session, plan, compiled, arena.prepare(plan))
    for kernel, launch, _ in compiled.kernels:
        if launch.local_size is not None:
            sizes = zip(launch.global_size, launch.local_size, strict=True)
            some = [local if whole < 2**16 else min(whole, round_up(2**16, local)) for whole, local in sizes]
            yield session.launch(kernel, some, launch.local_size)


def binary_hash(session: Session, program: Program) -> str:
    """Return the SHA-256 of a program's binary; PoCL has none worth the second compilation it would take."""
    return "" if session.builds_at_launch else hashlib.sha256(program.binary).hexdigest()


def _check_limits(session: Session, plan: Plan, launch: Launch, limits: KernelLimits) -> None:
    # A driver that takes more than it reports adds to what a kernel declares, and refuses most of what is too much
    # by itself. Others corrupt memory.
    lax = session.understates_limits
    allowed = _MOST_ON_NVIDIA if lax else plan.local_memory or session.info.local_memory
    arguments = [plan.arguments[name] for name in launch.arguments]
    needed = limits.local_memory + sum(argument.local_bytes for argument in arguments)
    if needed > allowed:
        raise Fault(
            Outcome.LAUNCH_ERROR, f"{launch.entry} needs {needed} bytes of local memory, the device has {allowed}"
        )
    items, required = math.prod(launch.local_size or (1,)), limits.required_work_group_size
    if launch.local_size is not None and required not in (0, items):
        raise Fault(Outcome.LAUNCH_ERROR, f"{launch.entry} requires a work-group of {required}, the launch has {items}")
    most = session.info.max_work_group_size if lax or required else limits.work_group_size
    if 0 < most < items:
        raise Fault(Outcome.LAUNCH_ERROR, too_large(items, launch.entry, most))


def _set_arguments(session: Session, plan: Plan, compiled: Compiled, buffers: Sequence[Guarded]) -> None:
    values: dict[str, Any] = {guarded.buffer.name: guarded.view for guarded in buffers}
    values |= {name: each.create(session) for name, each in plan.arguments.items() if name not in values}
    for kernel, launch, _ in compiled.kernels:
        try:
            session.set_arguments(kernel, [values[name] for name in launch.arguments])
        except ArgumentError as error:
            raise _refused(plan, launch, error) from None


def _refused(plan: Plan, launch: Launch, error: ArgumentError) -> Fault:
    """The fault of an argument that the kernel does not take: the study and the kernel do not fit each other."""
    name = launch.arguments[error.position]
    argument = plan.arguments[name]
    if argument.local_bytes:  # may be too large for this device only
        return Fault(Outcome.LAUNCH_ERROR, f"{launch.entry}: local argument {name}: {error}")
    given = f"{argument.kind} of {argument.type} as argument {error.position + 1}, {name}"
    return Fault(Outcome.COMPILE_ERROR, f"{launch.entry} does not take {given}: {error}")
