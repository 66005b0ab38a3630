"""Launches built plans on one session: prepares the buffers, announces the time limit, returns the spans."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from itertools import islice
from typing import Any

from autotune.bench.arena import Arena
from autotune.bench.kernels import flusher, spoiler
from autotune.bench.prepare import Built, compiled_apart
from autotune.bench.report import Fault
from autotune.bench.timing import Limits
from autotune.bench.words import LOCAL
from autotune.devices import BackendError, Batch, Event, Kernel, Session
from autotune.model import Outcome
from autotune.study import Launch, Plan

_MOST_EVENTS = 10_000
"""If one call has more launches than this, their events are released at once, and not at the end of the trial."""

Announce = Callable[[str, float], None]
"""Called with a phase (of `messages.DOING`) and the seconds within which the next announcement will follow."""


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
    """Runs built plans. Its methods raise Fault, a fatal one if the device is lost."""

    def __init__(self, session: Session, arena: Arena, limits: Limits, announce: Announce, watch: Stopwatch) -> None:
        self._session = session
        self._arena = arena
        self._limits = limits
        self._announce = announce
        self._watch = watch
        self._busy_ns = 0
        self._turn = 0  # the index of the words that outputs were poisoned with
        self.flush_s = 0.0  # seconds that clearing the cache takes, once it was asked for
        self.restore_s = 0.0  # seconds that preparing the buffers took before the last first run

    def once(self, built: Built, limit_s: float) -> int:
        """Run all launches once on poisoned outputs and local memory, and return their span in ns.

        On PoCL this compiles the kernels.
        """
        self._announce("verify", self._limits.first_s)
        self._turn = self._arena.first
        self.finish()
        began = time.monotonic()
        self._put_back(built, "out", "scratch")
        self.finish()
        self.restore_s = time.monotonic() - began
        self._announce("run", limit_s)
        self._spoil_local(built)
        first: Event = None
        seen = set()
        for kernel, launch in built.kernels:
            last = self._launch(kernel, launch)
            first = last if first is None else first
            if self._session.traits.builds_at_launch and (key := compiled_apart(launch)) not in seen:
                seen.add(key)
                self._await_compilation(launch, last)
                self._announce("run", limit_s)
                self.finish()
        self.finish()
        return self._span_ns(first, last)

    def be_ready(self, plan: Plan) -> None:
        """Build and time the kernel that clears the cache, if the plan needs it: no limit of a run covers its build."""
        if plan.cache == "cold" and not self.flush_s:
            with noticing_loss():
                flush, began = self._flush, time.monotonic()
                flush()
                self._session.finish()
            self.flush_s = time.monotonic() - began

    def repeat(self, built: Built, count: int, longest_ns: float, *, poison: bool) -> list[int]:
        """Run all launches `count` times, with buffers restored before each run, and return the spans in ns.

        With `poison`, outputs and local memory are poisoned before the last run, with other words than before the first
        run. So a kernel that no longer writes is noticed, although earlier runs left right values there.
        """
        cold = built.plan.cache == "cold"
        self._allow(count, longest_ns + self.flush_s * 1e9 * cold)
        self._turn = 1 if poison else self._turn
        poisoned = ("out",) if poison else ()
        spans = []
        for left in reversed(range(count)):
            self._put_back(built, *(() if left else poisoned))
            if cold:
                with noticing_loss():
                    self._flush()
            if poison and not left:
                self._spoil_local(built)
            spans.append(self._run(built))
        self.finish()
        times = [self._span_ns(first, last) for first, last in spans]
        if len(built.kernels) * count > _MOST_EVENTS:
            self._busy_ns += self._session.busy_ns()  # releases the events
        return times

    def batch(
        self, built: Built, runs: int, longest_ns: float, hold: Callable[[], Event] | None, *, launches: bool = True
    ) -> Batch:
        """Queue `runs` runs, with buffers restored before each, behind what `hold` enqueues, and wait for the end.

        Without `launches`, only the restoring is queued.
        """
        self._allow(runs, longest_ns)
        restored = [guarded for guarded in built.buffers if guarded.restored]
        with noticing_loss(), self._session.batch(hold) as batch:
            for _ in range(runs if launches or restored else 0):
                for guarded in restored:
                    self._arena.restore(guarded)
                if launches:
                    self._run(built)
        return batch

    def enqueue(self, built: Built) -> None:
        """Queue all launches once, on restored buffers. Outputs and local memory are poisoned with the next words.

        Does not wait.
        """
        self._turn = (self._turn + 1) % len(LOCAL)
        self._put_back(built, "out")
        self._spoil_local(built)
        self._run(built)

    def on_zeros(self, built: Built, names: Collection[str], limit_s: float) -> None:
        """Run once as in a first run, but with zeros in the named outputs and scratch."""
        self._announce("run", limit_s)
        self._turn = self._arena.first
        self._put_back(built, "out", "scratch")
        with noticing_loss():
            for guarded in built.buffers:
                if guarded.buffer.name in names:
                    self._arena.zero(guarded)
        self._spoil_local(built)
        self._run(built)
        self.finish()

    def disturb(self, built: Built, part: int) -> None:
        """Queue a run on what the last one has left in outputs and scratch, with half of it changed (`Arena.disturb`).

        Does not wait.
        """
        for guarded in built.buffers:
            if guarded.buffer.access in ("out", "scratch"):
                changed = False
                with suppress(BackendError):  # a failure of our own kernel must not count against the plan
                    changed = self._arena.disturb(guarded, part)
                if not changed:
                    with noticing_loss():
                        self._arena.poison(guarded, self._turn)
        self._put_back(built)
        self._run(built)

    def respoil(self, built: Built, turn: int | None = None) -> None:
        """Fill scratch and the guards of all buffers with words number `turn`. Does not wait.

        Without a turn, scratch and the guards of inputs get other words than in a first run: they show mistakes that
        the first words cannot show.
        """
        with noticing_loss():
            for guarded in built.buffers:
                if guarded.buffer.access == "scratch":
                    self._arena.poison(guarded, 1 if turn is None else turn)
                if guarded.buffer.access == "in" or turn is not None:
                    self._arena.surround(guarded, turn)

    def finish(self) -> None:
        """Wait for everything enqueued."""
        with noticing_loss():
            self._session.finish()

    def busy_s(self) -> float:
        """Return the seconds for which kernels have executed since the last call."""
        self.finish()
        busy_ns, self._busy_ns = self._busy_ns + self._session.busy_ns(), 0
        return busy_ns * 1e-9

    def _spoil_local(self, built: Built) -> None:
        """Poison local memory, so that a kernel that relies on zeros or on an earlier run's values there shows.

        The run must follow at once: a GPU that is idle for a moment turns to other processes, and clears this memory.
        """
        if built.local_bytes and self._spoil is not None:
            with suppress(BackendError):
                self._spoil(built.local_bytes, LOCAL[self._turn])

    @cached_property
    def _spoil(self) -> Callable[[int, int], None] | None:
        """Function that fills local memory, or None if the device cannot: no kernel is refused for that."""
        if self._session.traits.checks_on_device:
            with suppress(BackendError):
                return spoiler(self._session)
        return None

    @cached_property
    def _flush(self) -> Callable[[], None]:
        return flusher(self._session)

    def _run(self, built: Built) -> tuple[Event, Event]:
        """Queue all launches of a run; return the events of the first and the last."""
        first = last = self._launch(*built.kernels[0])
        for kernel, launch in islice(built.kernels, 1, None):
            last = self._launch(kernel, launch)
        return first, last

    def _span_ns(self, first: Event, last: Event) -> int:
        """Return a run's time by its events, at least a nanosecond: a timer may tick more coarsely than a run takes."""
        return max(1, self._session.span_ns(first, last))

    def _allow(self, runs: int, longest_ns: float) -> None:
        longest_s = self.restore_s + longest_ns * 1e-9
        self._announce("time", self._limits.floor_s + self._limits.multiple * longest_s * runs)

    def _put_back(self, built: Built, *poisoned: str) -> None:
        """Put the buffers into their state before a run; buffers of the accesses `poisoned` are poisoned."""
        with noticing_loss():
            for guarded in built.buffers:
                if guarded.buffer.access in poisoned:
                    self._arena.poison(guarded, self._turn)
                self._arena.restore(guarded)

    def _await_compilation(self, launch: Launch, event: Event) -> None:
        self._watch.lap("verify")
        self._announce("launch", self._limits.build_s)
        if not self._session.wait_until_running(event):
            raise Fault(Outcome.COMPILE_ERROR, f"{launch.entry} did not compile at its first launch", fatal=True)
        self._watch.lap("build")

    def _launch(self, kernel: Kernel, launch: Launch) -> Event:
        try:
            for position, argument in launch.counted:
                self._session.set_arguments(kernel, [argument.create(self._session)], position)
            return self._session.launch(kernel, launch.global_size, launch.local_size, launch.offset)
        except BackendError as error:
            raise Fault(Outcome.LAUNCH_ERROR, _refusal(launch, error)) from None


def _refusal(launch: Launch, error: BackendError) -> str:
    """Say why the driver does not launch a kernel, with the meaning of the error if its name does not tell."""
    size = launch.local_size
    group = "the driver's own choice of a work-group" if size is None else f"a work-group of {math.prod(size)}"
    meaning = {
        "CL_OUT_OF_RESOURCES": f", too few registers or too little local memory for {group}",
        "CL_INVALID_WORK_GROUP_SIZE": f", the device does not run this kernel with {group}",
    }.get(error.name, "")
    said = f"{launch.entry}: {error}{meaning} (global {launch.global_size}, local {size})"
    if size is None and error.name == "CL_INVALID_WORK_GROUP_SIZE":  # the kernel may require another
        said += "; write local in its [[launch]]"
    return said


@contextmanager
def noticing_loss() -> Iterator[None]:
    """Raise a fatal Fault if a call inside fails: the device is lost."""
    try:
        yield
    except BackendError as error:
        raise Fault(Outcome.CRASH, f"the device gave up while running the kernel: {error}", fatal=True) from None
