"""One configuration made concrete on a queue: built, with its arguments set and its scratch memory allocated."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from copy import copy
from typing import Any, cast

from autotune.api import binaries
from autotune.api.arguments import ScalarSlot, mistaken, slots_of
from autotune.api.memory import ImageSlot, MemorySlot
from autotune.bench import Compiled, Fault, compile_plan
from autotune.devices import ArgumentError, BackendError, Event, Guest, Program, Session, Step
from autotune.errors import AutotuneError, DeviceError, UsageError
from autotune.lookup import Best
from autotune.study import Buffer, Launch, Plan, Problem, ends_of

_MOST_PROGRAMS = 64
"""Programs kept per process: those used last. Each keeps its context alive."""


class Ready:
    """The answer of a look-up with its plan: what is built and launched, and which arguments callers give."""

    def __init__(self, problem: Problem, best: Best) -> None:
        self.problem = problem
        self.best = best
        self.plan = problem.plan(best.configuration)
        self.slots = slots_of(problem, self.plan.arguments)
        self.ends = ends_of(self.plan.arguments, self.slots)
        self.defaults = {name: slot.default for name, slot in self.slots.items() if isinstance(slot, ScalarSlot)}

    @property
    def extents(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Type and extents of the memory that callers give; padding may depend on the configuration."""
        slots = {name: slot for name, slot in self.slots.items() if isinstance(slot, MemorySlot)}
        return {name: (slot.buffer.type, slot.buffer.allocate) for name, slot in slots.items()}


class Bound:
    """A configuration on a queue. A call enqueues its launches, without those of other threads' calls among them."""

    def __init__(self, ready: Ready, guest: Guest) -> None:
        self.ready = ready
        self.guest = guest
        self._slots = {name: copy(slot) for name, slot in ready.slots.items()}
        self._names = self._slots.keys()
        self._defaults = ready.defaults
        self._lock = threading.Lock()
        compiled = _compiled(guest, ready.plan, ready.problem.study.name)
        # Kept here, because a kernel does not keep its arguments alive.
        own = self._own = {
            buffer.name: cast("Any", buffer.create(cast("Session", guest)))
            for buffer in ready.plan.buffers
            if (buffer.filled or buffer.name) not in self._slots
        }
        session = cast("Session", guest)
        images = {name: slot.stand_in(session) for name, slot in self._slots.items() if isinstance(slot, ImageSlot)}
        steps = [self._step(kernel, launch, own | images) for kernel, launch, _ in compiled.kernels]
        zeroed = [(own[one.name], one.nbytes) for one in ready.plan.buffers if one.access == "zeroed"]
        # Without memory of our own, runs need not wait for each other: the caller gives the events to wait for.
        self._run = guest.sequence([steps[place] for place in ready.plan.sequence], zeroed, chained=bool(own))

    def __call__(self, arguments: Mapping[str, object], wait_for: Iterable[Event] | None) -> Event:
        slots, guest = self._slots, self.guest
        events = None if wait_for is None else _listed(wait_for)
        if arguments.keys() != self._names:
            self._require(arguments)
        given = {name: slots[name].take(guest, value) for name, value in arguments.items()}
        if self._defaults:
            given = self._defaults | given
        try:
            with self._lock:
                return self._run(given, events)
        except BackendError as error:
            raise _placed(error, self.ready.problem.study.name) from None

    def _require(self, arguments: Mapping[str, object]) -> None:
        """Raise UsageError if an argument is unknown, or if one without a value in the study is missing."""
        known = {*self._defaults, *arguments}
        for name in (*arguments, *self._names):
            if (name in known) != (name in self._slots):
                raise mistaken(name, self.ready.problem, self._slots, arguments)

    def _step(self, kernel: Any, launch: Launch, own: Mapping[str, Any]) -> Step:
        """Set the arguments that no call changes, and return the launch. Others stay empty, or get a stand-in."""
        plan, session = self.ready.plan, cast("Session", self.guest)
        given = []
        for position, name in enumerate(launch.arguments):
            argument = plan.arguments[name]
            begins = argument.filled or name if isinstance(argument, Buffer) else name
            if begins in self._slots:
                given.append((position, begins))
        known: dict[str, Any] = {**self._defaults, **own}
        empty = {launch.arguments[position]: known.get(name) for position, name in given}
        values = [
            empty[name] if name in empty else known[name] if name in known else plan.arguments[name].create(session)
            for name in launch.arguments
        ]
        try:
            self.guest.set_arguments(kernel, values)
        except ArgumentError as error:
            what = f"{launch.entry} does not take {launch.arguments[error.position]}: {error}"
            raise UsageError(what, where=self.ready.problem.study.name) from None
        counted = tuple((position, argument.create(session).tobytes()) for position, argument in launch.counted)
        sizes = launch.global_size, launch.local_size
        return Step(kernel, *sizes, tuple(values), tuple(given), launch.offset, counted)


def _listed(wait_for: Iterable[Event]) -> list[Event]:
    """Return the events as a list, which keeps them alive. They may come from a generator that calls this kernel."""
    try:
        found = iter(wait_for)
    except TypeError:
        what = f"{type(wait_for).__name__} is not a list of events"
        raise UsageError(what, where="wait_for", hint="write wait_for=[event]") from None
    return [*found]


_programs: list[tuple[str, Guest, Program]] = []
_swapping = threading.Lock()
_building: dict[str, threading.Lock] = {}


def _compiled(guest: Guest, plan: Plan, study: str) -> Compiled:
    """Return a plan's program, built at most once in this process, with new kernels. Raises UsageError."""
    key = binaries.key_of(guest.info, plan.source, plan.options)
    with _building.setdefault(key, threading.Lock()):
        known = next((one for one in tuple(_programs) if one[0] == key and guest.shares(one[1])), None)
        program = binaries.restore(guest, key, plan.options) if known is None else known[2]
        try:
            if program is not None:
                try:
                    compiled = compile_plan(guest, plan, program)
                except Fault:
                    program = None
            if program is None:
                compiled = compile_plan(guest, plan)
                if guest.traits.tells_binaries:  # PoCL keeps its builds by itself
                    binaries.keep(compiled.program, key)
        except Fault as fault:
            raise _unbuilt(fault, guest, study) from None
        with _swapping:
            others = [one for one in _programs if one is not known]
            _programs[:] = [*others, (key, guest, compiled.program)][-_MOST_PROGRAMS:]
        return compiled


def _unbuilt(fault: Fault, guest: Guest, study: str) -> DeviceError:
    """Return the error of a failed build, with what may be wrong on the machine if the compiler found no error."""
    hint = "" if "error:" in fault.detail else "; ".join(guest.unbuildable())
    return DeviceError(f"{fault}", where=f"{study} on {guest.info.name}", hint=hint, detail=fault.detail)


def _placed(error: BackendError, study: str) -> AutotuneError:
    hint = "the queue's device has no room" if "ALLOCATION" in error.name else ""
    return UsageError(str(error), where=study, hint=hint, detail=error.detail)
