"""What a worker process does: answer the messages of one search, one by one."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from autotune.bench.arena import Arena
from autotune.bench.messages import (
    EndToEnd,
    Inspected,
    Job,
    Kept,
    Onward,
    Phase,
    Probe,
    Ready,
    Retime,
    Setup,
    Turn,
    Visit,
)
from autotune.bench.once import once
from autotune.bench.prepare import binary_hash, compile_plan, launch_ahead
from autotune.bench.probe import PROBE, probe
from autotune.bench.reference import ReferenceBench
from autotune.bench.report import Fault, Report
from autotune.bench.timing import Limits
from autotune.bench.tour import Unsettled, Visitor, retime
from autotune.bench.trial import Bench
from autotune.bench.unwritten import indistinct, left_alone, not_numbers, unjudged, unmoved, unverified
from autotune.devices import BackendError, Program, Session, open_session
from autotune.errors import AutotuneError, StudyError
from autotune.model import UNVERIFIED, DeviceInfo, Outcome
from autotune.study import Plan, require_numbers

_PROBE_S = 60.0
"""Limit for the probe, a small kernel, on a machine that may be busy."""


def serve(role: str, connection: Connection) -> None:
    """Serve one search until it closes the connection.

    The device is opened first: its driver starts while the search still computes the data that Setup names.
    """
    if role != "builder":  # to time as in a program, which has all channels; builders start faster with one
        os.environ.pop("CUDA_DEVICE_MAX_CONNECTIONS", None)
    try:
        device = connection.recv()
        if role == "once":
            _serve_once(device, connection)
        session = open_session(device)
        if role == "builder":
            _serve_builds(session, _receive(session, connection), connection)
        else:
            connection.send(None)  # others may open the device now
            sensing = Thread(target=session.sense, daemon=True)  # waits for the others' contexts
            sensing.start()
            setup = _receive(session, connection)
            _serve_trials(session, setup, connection, sensing)
    except EOFError:
        return
    except AutotuneError as error:
        # This process can no longer be used: say why, and let the search start another worker.
        outcome = error.outcome if isinstance(error, Fault) else Outcome.CRASH
        connection.send(Report(outcome, str(error), build_log=error.detail, fatal=True))


def _serve_once(device: DeviceInfo, connection: Connection) -> NoReturn:
    """Answer one message after another, each in a session of its own, until a driver fails."""
    while True:
        message = connection.recv()
        try:
            answer: EndToEnd | Kept | Inspected | Report = once(device, message)
        except Fault as fault:
            answer = Report(fault.outcome, str(fault), build_log=fault.detail)
        connection.send(answer)


def _receive(session: Session, connection: Connection) -> Any:
    """Return the next message that is not a Probe; probes are answered here."""
    while isinstance(message := connection.recv(), Probe):
        connection.send(Phase(PROBE, _PROBE_S))
        connection.send(probe(session, message.salt))
    return message


def _serve_builds(session: Session, setup: Setup, connection: Connection) -> None:
    arena = Arena(session, _load(setup.inputs))
    visitor = _visitor(session, connection, fresh=True)
    connection.send(Ready({}))
    while True:
        job = _receive(session, connection)
        if isinstance(job, Visit):
            _serve_visit(visitor, job, connection)
            continue
        began = time.monotonic()
        try:
            connection.send(Phase("build", setup.limits.build_s))
            program = _build_ahead(session, setup, arena, job, connection)
        except Fault as fault:
            seconds = time.monotonic() - began
            connection.send(Report(fault.outcome, str(fault), build_s=seconds, build_log=fault.detail))
            continue
        digest, facts = binary_hash(session, program), program.resources
        seconds = time.monotonic() - began
        connection.send(
            Report(Outcome.OK, build_s=seconds, build_log=program.log, binary_hash=digest, environment=facts)
        )


def _build_ahead(session: Session, setup: Setup, arena: Arena, job: Job, connection: Connection) -> Program:
    """Build a job's plan so that the device's worker finds it in the driver's cache. Raises Fault."""
    compiled = compile_plan(session, job.plan)
    # A launch that fails here fails again on the device's worker, which decides the outcome.
    with suppress(BackendError):
        for event in launch_ahead(session, arena, job.plan, compiled) if session.traits.builds_at_launch else ():
            session.wait_until_running(event)
            connection.send(Phase("run", setup.limits.floor_s))
            session.finish()
            connection.send(Phase("launch", setup.limits.build_s))
    return compiled.program


def _serve_trials(session: Session, setup: Setup, connection: Connection, sensing: Thread) -> None:
    def announce(name: str, limit_s: float) -> None:
        connection.send(Phase(name, limit_s, bench.place, bench.hints))

    def wait_for_turn() -> None:
        connection.send(Turn())
        connection.recv()

    inputs = _load(setup.inputs)
    expected = dict(setup.expected)
    if setup.reference is not None and not expected:
        try:
            outputs = _outputs(session, inputs, setup.limits, setup.reference, connection)
        except Fault as fault:
            connection.send(Report(fault.outcome, str(fault), build_log=fault.detail, fatal=True, phase="run"))
            return
        for name, data in outputs.items():
            expected[name] = str(Path(setup.folder) / f"expected-{name}.npy")
            np.save(expected[name], data)
    known = _load(expected)
    unwritten = unverified(setup.reference, known) if setup.reference is not None else ""
    bench = Bench(session, inputs, known, setup.rules, setup.limits, announce, marked=bool(unwritten))
    visitor = _visitor(session, connection, fresh=False)
    connection.send(Ready(expected))
    said: str | None = None
    sensing.join()
    bench.get_ready()  # while the first configuration is built
    while True:
        job = _receive(session, connection)
        if isinstance(job, Retime):
            try:
                connection.send(retime(bench, job.plans, job.best_ns, job.budget_s, job.visited))
            except Unsettled as unsettled:
                connection.send(Onward(unsettled.visited, unsettled.doubted))
            except Fault as fault:
                connection.send(Report(fault.outcome, str(fault), fatal=True, place=bench.place))
        elif isinstance(job, Visit):
            _serve_visit(visitor, job, connection)
        else:
            on_built = wait_for_turn if job.asks else None
            report = bench.run(job.plan, job.best_ns, built_ahead=job.built_ahead, on_built=on_built)
            if said is None:  # any plan has the tolerances and checks
                announce("verify", 2 * setup.limits.first_s)  # the checks are computed twice more
                notes = [unwritten, not_numbers(job.plan, known), unmoved(left_alone(known, inputs))]
                notes += indistinct(job.plan.outputs, known), unjudged(job.plan, inputs, known)
                said = "; ".join(filter(None, notes))
            if said and not report.outcome.failed:
                report = replace(report, environment={**report.environment, UNVERIFIED: said})
            connection.send(report)


def _visitor(session: Session, connection: Connection, *, fresh: bool) -> Visitor:
    """Return the Visitor that times finalists for another worker."""

    def announce(name: str, limit_s: float) -> None:
        bench = visitor.bench
        connection.send(Phase(name, limit_s, bench.place, bench.hints) if bench else Phase(name, limit_s))

    def bench_on(session: Session, asked: Visit) -> Bench:
        setup = asked.setup
        known = _load(setup.expected)
        marked = setup.reference is not None and unverified(setup.reference, known) != ""
        return Bench(session, _load(setup.inputs), known, setup.rules, setup.limits, announce, marked=marked)

    visitor = Visitor(session, bench_on, announce, fresh=fresh)
    return visitor


def _serve_visit(visitor: Visitor, asked: Visit, connection: Connection) -> None:
    def wait_for_turn() -> float:
        connection.send(Turn())
        return float(connection.recv())

    connection.send(Onward(visitor.visit(asked, wait_for_turn)))


_NO_NUMBER = "it reads unwritten memory, or gives NaN for these inputs: check their low and high"


def _outputs(
    session: Session, inputs: Mapping[str, NDArray[Any]], limits: Limits, reference: Plan, connection: Connection
) -> dict[str, NDArray[Any]]:
    """Return the outputs of a reference kernel. Raises Fault."""

    def announce(name: str, limit_s: float) -> None:
        connection.send(Phase(name, limit_s, hints=bench.hints))

    bench = ReferenceBench(session, inputs, limits, announce)
    try:
        outputs = bench.reference(reference)
        require_numbers(outputs, inputs, _NO_NUMBER)
    except StudyError as error:
        raise Fault(Outcome.WRONG_RESULT, str(error)) from None
    except (Fault, BackendError) as error:  # if the process dies, its last message has the hints
        if isinstance(error, Fault) and error.outcome is not Outcome.CRASH:
            raise
        raise Fault(Outcome.CRASH, "; ".join([str(error), *bench.hints]), detail=error.detail) from None
    return outputs


def _load(files: Mapping[str, str]) -> dict[str, NDArray[Any]]:
    return {name: np.load(path, mmap_mode="r") for name, path in files.items()}
