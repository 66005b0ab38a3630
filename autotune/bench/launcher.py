"""Launching built plans on one session: buffers put into their state before, the limit announced, spans after."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from autotune.bench.arena import Arena
from autotune.bench.flush import Flush
from autotune.bench.prepare import Built
from autotune.bench.report import Fault, Limits
from autotune.devices.opencl import Event, Kernel, OpenCLError, Session, span_ns
from autotune.model import Outcome
from autotune.study.plan import Launch

_INSENSITIVE_NS = 1_000_000
"""Runs of this length do not notice that their output was filled before."""

Announce = Callable[[str, float], None]
"""Called with a phase (of `DOING` in pool/process.py) and the seconds within which the next thing will be said."""


class Clock:
    """Adds up wall seconds by step: `build_s`, `verify_s`, `time_s`."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Forget everything and start now."""
        self.seconds: dict[str, Any] = {}
        self._last = time.monotonic()

    def lap(self, step: str) -> None:
        """Add the time since the last lap to a step."""
        now = time.monotonic()
        self.seconds[f"{step}_s"] = self.seconds.get(f"{step}_s", 0.0) + now - self._last
        self._last = now


class Launcher:
    """Runs built plans. Its methods raise Fault; a fatal one where the device is lost."""

    def __init__(self, session: Session, arena: Arena, limits: Limits, announce: Announce, clock: Clock) -> None:
        self._session = session
        self._arena = arena
        self._flush = Flush(session)
        self._limits = limits
        self._announce = announce
        self._clock = clock
        self.restore_s = 0.0  # what it took to put the buffers into their state before the last first run

    def once(self, built: Built, limit_s: float) -> int:
        """Run all launches once on poisoned outputs and return their span in ns; on PoCL this compiles them."""
        self._restore(built)
        self._announce("run", limit_s)
        events = []
        for kernel, launch in built.kernels:
            events.append(self._launch(kernel, launch))
            if self._session.builds_at_launch:
                self._await_compilation(launch, events[-1])
                self._announce("run", limit_s)
                self._finish()
        self._finish()
        return span_ns(events[0], events[-1])

    def repeat(self, built: Built, count: int, longest_ns: float) -> list[int]:
        """Run all launches `count` times, restored before each, and return the spans in ns.

        The last run has its outputs poisoned, so that a kernel that no longer writes shows: what lay there was right.
        """
        longest_s = self.restore_s + longest_ns * 1e-9
        self._announce("time", self._limits.floor_s + self._limits.multiple * longest_s * count)
        spans = []
        for left in reversed(range(count)):
            with _noticing_loss():
                for guarded in built.buffers:
                    self._arena.restore(guarded)
                if left == 0 and (count > 1 or longest_ns >= _INSENSITIVE_NS):
                    self._poison(built, "out")
                if built.plan.cache == "cold":
                    self._flush.run()
            events = [self._launch(kernel, launch) for kernel, launch in built.kernels]
            spans.append((events[0], events[-1]))
        self._finish()
        return [span_ns(first, last) for first, last in spans]

    def enqueue(self, built: Built) -> None:
        """Queue all launches once, on restored buffers and poisoned outputs, and wait for nothing."""
        with _noticing_loss():
            self._poison(built, "out")
            for guarded in built.buffers:
                self._arena.restore(guarded)
        for kernel, launch in built.kernels:
            self._launch(kernel, launch)

    def busy_s(self) -> float:
        """Return the seconds that kernels executed for since the last call."""
        self._finish()
        return self._session.busy_ns() * 1e-9

    def _restore(self, built: Built) -> None:
        """Put the buffers into the state before a run, outputs poisoned, and note how long that takes."""
        self._announce("verify", self._limits.first_s)
        began = time.monotonic()
        with _noticing_loss():
            self._poison(built, "out", "scratch")
            for guarded in built.buffers:
                self._arena.restore(guarded)
        self._finish()
        self.restore_s = time.monotonic() - began

    def _poison(self, built: Built, *accesses: str) -> None:
        for guarded in built.buffers:
            if guarded.buffer.access in accesses:
                self._arena.poison(guarded)

    def _await_compilation(self, launch: Launch, event: Event) -> None:
        self._clock.lap("verify")
        self._announce("launch", self._limits.build_s)
        if not self._session.wait_until_running(event):
            raise Fault(Outcome.COMPILE_ERROR, f"{launch.entry} did not compile at its first launch", fatal=True)
        self._clock.lap("build")

    def _launch(self, kernel: Kernel, launch: Launch) -> Event:
        try:
            return self._session.launch(kernel, launch.global_size, launch.local_size)
        except OpenCLError as error:
            raise Fault(Outcome.LAUNCH_ERROR, _refusal(launch, error)) from None

    def _finish(self) -> None:
        with _noticing_loss():
            self._session.finish()


def _refusal(launch: Launch, error: OpenCLError) -> str:
    """Say why the driver does not launch a kernel; what it means where the error's name does not tell."""
    items = math.prod(launch.local_size or (1,))
    meaning = {
        "CL_OUT_OF_RESOURCES": f", too few registers or too little local memory for a work-group of {items}",
        "CL_INVALID_WORK_GROUP_SIZE": f", the device does not run this kernel with a work-group of {items}",
    }.get(error.name, "")
    sizes = f"global {launch.global_size}, local {launch.local_size}"
    return f"{launch.entry}: {error}{meaning} ({sizes})"


@contextmanager
def _noticing_loss() -> Iterator[None]:
    try:
        yield
    except OpenCLError as error:
        raise lost(error) from None


def lost(error: OpenCLError) -> Fault:
    """Return the fault of a device that is of no more use."""
    return Fault(Outcome.CRASH, f"the device gave up while running the kernel: {error}", fatal=True)
