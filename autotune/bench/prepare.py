"""Turns a plan into kernels that can be launched: built, within the device's limits, buffers and arguments set."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from autotune.bench.arena import Arena, Guarded
from autotune.bench.report import Fault, first_error, located, too_large
from autotune.bench.signature import check_signatures
from autotune.bench.verify import Checker
from autotune.devices import (
    ArgumentError,
    BackendError,
    BuildError,
    Event,
    Guest,
    Kernel,
    KernelLimits,
    Memory,
    Program,
    Session,
)
from autotune.errors import StudyError
from autotune.model import Outcome
from autotune.study import Launch, Plan, is_builtin, leaves, numpy_type, round_up, struct_name


@dataclass(frozen=True, slots=True)
class Compiled:
    """A plan's program and, for each of its launches, a kernel within the device's limits.

    Launches of one entry with the same arguments share a kernel.
    """

    program: Program
    kernels: list[tuple[Kernel, Launch, KernelLimits]]


@dataclass(frozen=True, slots=True)
class Built:
    """A plan ready to launch: kernels with their arguments set, in the order of a run.

    `environment` holds registers, spills and memory; a work-group uses at most `local_bytes` of local memory.
    """

    plan: Plan
    program: Program
    kernels: list[tuple[Kernel, Launch]]
    buffers: list[Guarded]
    environment: dict[str, str | int | float]
    local_bytes: int


TO_ZERO = {
    "scratch": 'access = "zeroed"',
    "out": 'access = "inout" with data = { distribution = "constant", value = 0 }',
}
"""For each access, what to write in a study so that a buffer holds zeros before each run."""


def holds_anything(built: Built) -> list[str]:
    """Say what may be wrong with a kernel that crashes or hangs in its first run: it expects zeros, as in a counter.

    Empty if it has neither scratch nor an output with whole numbers.
    """
    buffers = [one.buffer for one in built.buffers]
    names = {access: [one.name for one in buffers if one.access == access] for access in TO_ZERO}
    whole = {one.name for one in buffers if any(numpy_type(leaf.scalar)[0].kind in "iu" for leaf in leaves(one.type))}
    names["out"] = [name for name in names["out"] if name in whole]
    return [
        f"{' and '.join(some)} {'holds' if len(some) == 1 else 'hold'} any values before a run: "
        f"to start with zeros, write {TO_ZERO[access]}"
        for access, some in names.items()
        if some
    ]


def compile_plan(session: Session | Guest, plan: Plan, program: Program | None = None) -> Compiled:
    """Build a plan's program, unless `program` is given, and a kernel for each launch.

    Raises Fault if it does not build, or if a kernel is missing or exceeds the limits of the device.
    """
    program = program or build(session, plan)
    kernels = []
    made: dict[tuple[str, tuple[str, ...]], tuple[Kernel, KernelLimits]] = {}
    for number, launch in enumerate(plan.launches, 1):
        key = (launch.entry, launch.arguments)
        try:
            if key not in made:
                fresh = program.kernel(launch.entry)
                made[key] = fresh, program.limits(fresh)
        except BackendError as error:
            what = f"no kernel {launch.entry!r}: {error}"
            if is_builtin(launch.entry):
                what = f"no kernel {launch.entry!r}: OpenCL C has a function of that name, which hides it: rename it"
            raise Fault(Outcome.COMPILE_ERROR, what, detail=program.log) from None
        kernel, limits = made[key]
        if kernel.num_args != len(launch.arguments):
            check_signatures(session, plan)  # raises with the arguments' names, if the driver tells them
            takes, given = f"{kernel.num_args} argument{'s' * (kernel.num_args != 1)}", len(launch.arguments)
            raise Fault(Outcome.COMPILE_ERROR, f"{launch.entry} takes {takes}, launch {number} gives {given}")
        _check_limits(session, plan, launch, limits)
        kernels.append((kernel, launch, limits))
    return Compiled(program, kernels)


def build(session: Session | Guest, plan: Plan) -> Program:
    """Build a plan's program. Raises Fault with the first error line of the log."""
    try:
        return session.build(plan.source, plan.options)
    except BuildError as error:
        log = located(error.detail, plan.source)
        line = first_error(log)
        outcome = Outcome.LAUNCH_ERROR if error.too_large else Outcome.COMPILE_ERROR
        raise Fault(outcome, f"{error}: {line}" if line else str(error), detail=log) from None


def bind(session: Session, arena: Arena, checker: Checker, plan: Plan, compiled: Compiled) -> Built:
    """Give a compiled plan its buffers and arguments. Raises Fault if there is no room, or no way to check outputs."""
    try:
        buffers = arena.prepare(plan)
        checker.prepare(buffers)
        set_arguments(session, plan, compiled, {guarded.buffer.name: guarded.argument for guarded in buffers})
    except (BackendError, StudyError) as error:  # StudyError: too many buffers, or too much padding, to check
        raise Fault(Outcome.LAUNCH_ERROR, str(error)) from None
    facts = {
        "local_memory": max(limits.local_memory for _, _, limits in compiled.kernels),
        "private_memory": max(limits.private_memory for _, _, limits in compiled.kernels),
    }
    ready = [compiled.kernels[place][:2] for place in plan.sequence]
    local_bytes = max(_local_bytes(plan, launch, limits) for _, launch, limits in compiled.kernels)
    return Built(plan, compiled.program, ready, buffers, {**facts, **compiled.program.resources}, local_bytes)


def _local_bytes(plan: Plan, launch: Launch, limits: KernelLimits) -> int:
    return limits.local_memory + sum(plan.arguments[name].local_bytes for name in launch.arguments)


def launch_ahead(session: Session, arena: Arena, plan: Plan, compiled: Compiled) -> Iterator[Event]:
    """Launch as little of each kernel as makes the driver compile it, and yield the events.

    This is for drivers that compile at the first launch. PoCL compiles for each local size, and separately for grids of
    more than 65535 items in a dimension; it keeps the result on disk, for all workers of this search. Raises
    BackendError.
    """
    set_arguments(session, plan, compiled, {one.buffer.name: one.argument for one in arena.prepare(plan)})
    done = set()
    for kernel, launch, _ in compiled.kernels:
        if launch.local_size is not None and (key := compiled_apart(launch)) not in done:
            done.add(key)
            sizes = zip(launch.global_size, launch.local_size, strict=True)
            some = tuple(local if whole < 2**16 else min(whole, round_up(2**16, local)) for whole, local in sizes)
            yield session.launch(kernel, some, launch.local_size, launch.offset)


def compiled_apart(launch: Launch) -> tuple[Any, ...]:
    """Return a key that differs between launches that PoCL compiles separately."""
    return launch.entry, launch.local_size, tuple(whole < 2**16 for whole in launch.global_size), bool(launch.offset)


def binary_hash(session: Session, program: Program) -> str:
    """Return the SHA-256 of a program's binary, or an empty string where that would cost another compilation."""
    return hashlib.sha256(program.binary).hexdigest() if session.traits.hashes_binaries else ""


def _check_limits(session: Session | Guest, plan: Plan, launch: Launch, limits: KernelLimits) -> None:
    # A driver that understates its limits adds to the memory that a kernel declares, and refuses most of what is too
    # large by itself. Other drivers corrupt memory.
    lax = session.traits.understates_limits
    allowed = session.traits.local_memory if lax else plan.local_memory or session.info.local_memory
    needed = _local_bytes(plan, launch, limits)
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


def set_arguments(session: Session, plan: Plan, compiled: Compiled, views: Mapping[str, Memory]) -> None:
    """Set the arguments of all kernels; `views` are the buffers on the device by name. Raises Fault."""
    done = set()
    for kernel, launch, _ in compiled.kernels:
        if (launch.entry, launch.arguments) in done:  # the same kernel
            continue
        done.add((launch.entry, launch.arguments))
        values = [views[name] if name in views else plan.arguments[name].create(session) for name in launch.arguments]
        try:
            session.set_arguments(kernel, values)
        except ArgumentError as error:
            check_signatures(session, plan)
            raise _refused(plan, launch, error) from None


def _refused(plan: Plan, launch: Launch, error: ArgumentError) -> Fault:
    """Return the fault of an argument that the kernel does not take: study and kernel do not fit each other."""
    name = launch.arguments[error.position]
    argument = plan.arguments[name]
    if argument.local_bytes:  # may be too large for this device only
        return Fault(Outcome.LAUNCH_ERROR, f"{launch.entry}: local argument {name}: {error}")
    given = f"{argument.kind} of {struct_name(argument.type)} as argument {error.position + 1}, {name}"
    return Fault(Outcome.COMPILE_ERROR, f"{launch.entry} does not take {given}: {error}")
