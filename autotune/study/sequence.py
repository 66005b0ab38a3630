"""Unrolls the loops of one run into its launches in order, and follows buffers that change places."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from autotune.errors import StudyError
from autotune.study.arguments import Argument, Buffer, Scalar, extents
from autotune.study.plan import Launch, Loop, Plan
from autotune.study.structs import struct_name

MOST_LAUNCHES = 100_000
"""Launches of one run; at most MOST_DIFFERENT of them may differ."""

MOST_DIFFERENT = 10_000

MOST_TURNS = 10 * MOST_LAUNCHES
"""Turns of all loops of a run: some may launch nothing."""


class Unrolled:
    """Unrolls the launches of a study for these values of the names.

    `launches` are the different launches, `order` lists those of a run by index, `used` has their arguments by name.
    """

    def __init__(self, names: Mapping[str, Any], arguments: Mapping[str, Argument], steps: frozenset[str]) -> None:
        self._names = names
        self._arguments = arguments
        self._steps = steps
        self._known: dict[Any, Launch | None] = {}
        self._different: dict[Launch, int] = {}
        self._places: dict[str, str] = {}
        self._turns = 0
        self.order: list[int] = []
        self.idle: dict[str, None] = {}
        """The keys of the study because of which launches do not take place."""
        self.used: dict[str, Argument] = {}
        self.swapped: dict[str, tuple[tuple[str, ...], str]] = {}
        """For each name that changes places: its group, and the key of the study."""

    @property
    def launches(self) -> tuple[Launch, ...]:
        """The different launches, under the names that their buffers have when the run ends."""
        ends = self.ends
        return tuple(
            replace(launch, arguments=tuple(ends.get(name, name) for name in launch.arguments))
            for launch in self._different
        )

    @property
    def ends(self) -> dict[str, str]:
        """The name that each buffer has when the run ends, by the name with which it begins."""
        return {place: name for name, place in self._places.items()}

    def run(self, items: Sequence[Launch | Loop], steps: Mapping[str, int]) -> None:
        """Add the launches of these items in order. Raises StudyError."""
        for item in items:
            if isinstance(item, Loop):
                self._loop(item, steps)
            else:
                self._launch(item, steps)

    def _loop(self, loop: Loop, steps: Mapping[str, int]) -> None:
        names = {**self._names, **steps}
        if not loop.when.evaluate(names):
            self.idle[f"the when of {loop.place}"] = None
            return
        (turns,) = extents((loop.repeat,), names, f"{loop.place}.repeat", least=0)
        if not turns:
            self.idle[f"the repeat of {loop.place}"] = None
        for group in loop.swap:
            self.swapped |= dict.fromkeys(group, (group, f"{loop.place}.swap"))
        for turn in range(turns):
            self.run(loop.body, {**steps, loop.step: turn} if loop.step else steps)
            self._turns += 1
            if self._turns > MOST_TURNS:
                raise StudyError(f"one run is more than {MOST_TURNS:,} turns of loops", where=f"{loop.place}.repeat")
            for group in loop.swap:
                there = [self._places.get(name, name) for name in group]
                self._places |= dict(zip(group, [*there[1:], there[0]], strict=True))

    def _launch(self, launch: Launch, steps: Mapping[str, int]) -> None:
        key = (id(launch), tuple(steps.values()))
        if key not in self._known:
            self._known[key] = self._concrete(launch, {**self._names, **steps})
        made = self._known[key]
        if made is None:
            return
        if self._places:
            made = replace(made, arguments=tuple(self._places.get(name, name) for name in made.arguments))
        self.order.append(self._different.setdefault(made, len(self._different)))
        if len(self.order) > MOST_LAUNCHES or len(self._different) > MOST_DIFFERENT:
            limit = f"{MOST_LAUNCHES:,} launches, or {MOST_DIFFERENT:,} different ones"
            raise StudyError(f"one run is more than {limit}", where=launch.place, hint="repeat less often")

    def _concrete(self, launch: Launch, names: Mapping[str, Any]) -> Launch | None:
        if not launch.when.evaluate(names):
            self.idle[f"the when of {launch.place}"] = None
            return None
        counted = []
        for position, name in enumerate(launch.arguments):
            argument = self._arguments[name]
            if isinstance(argument, Scalar) and argument.names & self._steps:
                counted.append((position, argument.concrete(names)))
                self.used.setdefault(name, counted[-1][1])
            elif name not in self.used:
                self.used[name] = argument
        return replace(launch.concrete(names), counted=tuple(counted))


def exchanged(
    buffers: Mapping[str, Buffer],
    ends: Mapping[str, str],
    swapped: Mapping[str, tuple[tuple[str, ...], str]],
    compared: Iterable[str],
) -> dict[str, Buffer]:
    """Return the buffers that change places, by the names they have at the end, with how each is filled and compared.

    Raises StudyError if the buffers of a group differ in type or extents.
    """
    found, outputs = {}, set(compared)
    for begins, (group, place) in swapped.items():
        buffer, first = buffers[begins], buffers[group[0]]
        for key in ("type", "shape", "allocate"):
            one, other = getattr(first, key), getattr(buffer, key)
            if one != other:
                what = f"{group[0]} has {key} {_told(one)}, {begins} has {_told(other)}: they cannot be swapped"
                raise StudyError(what, where=place, hint="swapped buffers must have the same type, shape and allocate")
        name = ends.get(begins, begins)
        access = {"in": "inout", "out": "scratch"}.get(buffer.access, buffer.access)  # by its name at the end
        if access == "scratch" and name in outputs:
            access = "out"
        found[name] = replace(buffer, name=name, access=access, filled=begins if name != begins else "")
    return found


def as_begun(plan: Plan) -> Plan:
    """Return a plan in which buffers have the names that they begin with, as a program gives them.

    It compares nothing: `outputs` and `checks` use the names that buffers have at the end.
    """
    begins = {name: one.filled for name, one in plan.arguments.items() if isinstance(one, Buffer) and one.filled}
    launches = tuple(
        replace(one, arguments=tuple(begins.get(name, name) for name in one.arguments)) for one in plan.launches
    )
    arguments = {
        begins.get(name, name): replace(one, name=begins[name], filled="")
        if isinstance(one, Buffer) and one.filled
        else one
        for name, one in plan.arguments.items()
    }
    return replace(plan, launches=launches, arguments=arguments, outputs={}, checks={})


def ends_of(arguments: Mapping[str, Argument], given: Container[str]) -> dict[str, str]:
    """Return which given buffer holds each output when a run ends, if buffers change places: output -> given name.

    `arguments` are those of a plan. Raises StudyError if an output ends in a buffer that no caller gives.
    """
    moved = [one for one in arguments.values() if isinstance(one, Buffer) and one.filled and one.writes]
    for buffer in moved:
        if buffer.filled not in given:
            what = f"after the number of turns for this size, its result is in {buffer.filled}, which is scratch"
            hint = f'it could not be read: write access = "inout" for {buffer.filled} too, with data'
            raise StudyError(what, where=f"arguments.{buffer.name}", hint=hint)
    return {buffer.name: buffer.filled for buffer in moved}


def _told(value: Any) -> str:
    return struct_name(value) if isinstance(value, str) else str(value)
