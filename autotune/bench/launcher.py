"""Launching built plans on one session: buffers put into their state before, the limit announced, spans after."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from autotune.bench.arena import Arena
from autotune.bench.kernels import Flush
from autotune.bench.prepare import Built
from autotune.bench.report import Fault, Limits
from autotune.devices import BackendError, Event, Kernel, Session
from autotune.model import Outcome
from autotune.study import Launch

INSENSITIVE_NS = 1_000_000
"""Runs of this length do not notice that their output was filled before."""

Announce = Callable[[str, float], None]
"""Called with a phase (of `messages.DOING`) and the seconds within which the next thing will be said."""


class Stopwatch:
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

    def __init__(self, session: Session, arena: Arena, limits: Limits, announce: Announce, watch: Stopwatch) -> None:
        self._session = session
        self._arena = arena
        self._flush = Flush(session)
        self._limits = limits
        self._announce = announce
        self._watch = watch
        self.restore_s = 0.0  # what it took to put the buffers into their state before the last first run

    def once(self, built: Built, limit_s: float) -> int:
        """Run all launches once on poisoned outputs and return their span in ns; on PoCL this compiles them."""
        self._announce("verify", self._limits.first_s)
        began = time.monotonic()
        self._put_back(built, "out", "scratch")
        self.finish()
        self.restore_s = time.monotonic() - began
        self._announce("run", limit_s)
        events = []
        for kernel, launch in built.kernels:
            events.append(self._launch(kernel, launch))
            if self._session.traits.builds_at_launch:
                self._await_compilation(launch, events[-1])
                self._announce("run", limit_s)
                self.finish()
        self.finish()
        return self._session.span_ns(events[0], events[-1])

    def repeat(self, built: Built, count: int, longest_ns: float) -> list[int]:
        """Run all launches `count` times, restored before each, and return the spans in ns.

        The last of long runs has its outputs poisoned, so that a kernel that no longer writes shows: what lay there
        was right.
        """
        self._allow(count, longest_ns)
        poisoned = ("out",) if longest_ns >= INSENSITIVE_NS else ()
        spans = []
        for left in reversed(range(count)):
            self._put_back(built, *(() if left else poisoned))
            if built.plan.cache == "cold":
                with noticing_loss():
                    self._flush.run()
            events = [self._launch(kernel, launch) for kernel, launch in built.kernels]
            spans.append((events[0], events[-1]))
        self.finish()
        return [self._session.span_ns(first, last) for first, last in spans]

    def batch(self, built: Built, runs: int, longest_ns: float, instead: Callable[[], None] | None = None) -> int:
        """Queue so many runs behind a gate, restored before each, and return the host's ns from its release to the end.

        `instead` enqueues something else in the place of the launches.
        """
        self._allow(runs, longest_ns)
        restored = [guarded for guarded in built.buffers if guarded.restored]
        with noticing_loss(), self._session.batch() as batch:
            for _ in range(runs):
                for guarded in restored:
                    self._arena.restore(guarded)
                for kernel, launch in () if instead else built.kernels:
                    self._launch(kernel, launch)
                if instead:
                    instead()
        return batch.ns

    def enqueue(self, built: Built) -> None:
        """Queue all launches once, on restored buffers and poisoned outputs, and wait for nothing."""
        self._put_back(built, "out")
        for kernel, launch in built.kernels:
            self._launch(kernel, launch)

    def finish(self) -> None:
        """Wait for everything enqueued."""
        with noticing_loss():
            self._session.finish()

    def busy_s(self) -> float:
        """Return the seconds that kernels executed for since the last call."""
        self.finish()
        return self._session.busy_ns() * 1e-9

    def _allow(self, runs: int, longest_ns: float) -> None:
        longest_s = self.restore_s + longest_ns * 1e-9
        self._announce("time", self._limits.floor_s + self._limits.multiple * longest_s * runs)

    def _put_back(self, built: Built, *poisoned: str) -> None:
        """Put the buffers into the state before a run; those of the accesses named are poisoned."""
        with noticing_loss():
            for guarded in built.buffers:
                if guarded.buffer.access in poisoned:
                    self._arena.poison(guarded)
                self._arena.restore(guarded)

    def _await_compilation(self, launch: Launch, event: Event) -> None:
        self._watch.lap("verify")
        self._announce("launch", self._limits.build_s)
        if not self._session.wait_until_running(event):
            raise Fault(Outcome.COMPILE_ERROR, f"{launch.entry} did not compile at its first launch", fatal=True)
        self._watch.lap("build")

    def _launch(self, kernel: Kernel, launch: Launch) -> Event:
        try:
            return self._session.launch(kernel, launch.global_size, launch.local_size)
        except BackendError as error:
            raise Fault(Outcome.LAUNCH_ERROR, _refusal(launch, error)) from None


def _refusal(launch: Launch, error: BackendError) -> str:
    """Say why the driver does not launch a kernel; what it means where the error's name does not tell."""
    items = math.prod(launch.local_size or (1,))
    meaning = {
        "CL_OUT_OF_RESOURCES": f", too few registers or too little local memory for a work-group of {items}",
        "CL_INVALID_WORK_GROUP_SIZE": f", the device does not run this kernel with a work-group of {items}",
    }.get(error.name, "")
    sizes = f"global {launch.global_size}, local {launch.local_size}"
    return f"{launch.entry}: {error}{meaning} ({sizes})"


@contextmanager
def noticing_loss() -> Iterator[None]:
    """Raise the fault of a device that is of no more use where a call inside fails."""
    try:
        yield
    except BackendError as error:
        raise Fault(Outcome.CRASH, f"the device gave up while running the kernel: {error}", fatal=True) from None
