"""Launches, extents, scalars and build options of a configuration, as C over the sizes of the problem."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from numpy import iinfo

from autotune.errors import StudyError
from autotune.expression import Expression, put_in
from autotune.lookup.artefacts.catalogue import Entry
from autotune.lookup.artefacts.ctext import MOST, NoCError, number_in, product, whole
from autotune.lookup.artefacts.options import Computed, joined, options
from autotune.study import Argument, Buffer, Launch, Local, Scalar, is_struct, numpy_type
from autotune.text import LARGEST_SIZE

_MOST_HALF = 65_519
"""The greatest whole number that half holds, rounded."""

MOST_LAUNCHES = 256
"""The most launches of one run, with loops unrolled, that a header can hold."""


_KINDS = {Buffer: "buffer", Local: "local", Scalar: "scalar"}


class LaunchText(NamedTuple):
    """One launch: `active` is C that is 0 if it does not take place; the driver chooses a `local_size` of None."""

    entry: str
    active: str
    global_size: tuple[str, ...]
    local_size: tuple[str, ...] | None
    offset: tuple[str, ...]
    arguments: tuple[str, ...]


class ArgumentText(NamedTuple):
    """One argument: a buffer's or local memory's extents and the bytes of an element, or a scalar's value."""

    name: str
    kind: str  # "buffer", "local" or "scalar"
    type: str
    extents: tuple[str, ...]
    nbytes: int
    value: str

    def total(self, prefix: str) -> str:
        """Return C for its total number of bytes."""
        return product((*self.extents, f"{self.nbytes}LL"), prefix)


class Geometry(NamedTuple):
    """What depends on the sizes; equal for configurations that are launched alike.

    `valid`: the conditions, in C, under which it may run at allowed sizes. `ends`: which buffer holds each output when
    a run ends, if that can change.
    """

    valid: tuple[str, ...]
    launches: tuple[LaunchText, ...]
    arguments: tuple[ArgumentText, ...]
    unsaid: tuple[str, ...]  # arguments that the user's program makes: images, samplers, scalars of several numbers
    options: str  # those that depend on no size, for clBuildProgram
    computed: tuple[Computed, ...]  # the others
    ends: tuple[tuple[str, str], ...] = ()
    unsayable: str = ""  # what C cannot express, so that only its own size is valid


def geometry(entry: Entry, names: dict[str, str], prefix: str) -> Geometry:
    """Return an entry's geometry. If C cannot express all of it, return that of its own size, valid only there.

    `names` are the sizes in C. Raises StudyError if an option holds what no string of C can.
    """
    try:
        return _of_any_size(entry, names, prefix)
    except NoCError as error:
        return _of_its_size(entry, names, prefix)._replace(unsayable=str(error))


def _of_any_size(entry: Entry, names: dict[str, str], prefix: str) -> Geometry:
    problem, configuration = entry.problem, entry.best.configuration
    known = {name: value for name, value in {**problem.constants, **configuration}.items() if name not in names}

    def c(expression: Expression) -> str:
        return whole(put_in(expression.tree, known), names, prefix)

    needs = _Needs(prefix, names)
    for constraint in problem.constraints:
        needs.add(f"{prefix}_holds_({c(constraint.require)})")
    for name in problem.study.fixed:
        needs.add(f"{names[name]} == {problem.size[name]}LL")
    for amount in filter(None, (problem.study.flops, problem.study.bytes)):
        with suppress(NoCError):  # not part of the geometry, and often a fraction
            needs.add(f"{c(amount)} >= 0LL")
    launches = [text for launch in problem.study.launches if (text := _launch(launch, c, needs)) is not None]
    needs.any([launch.active for launch in launches])
    arguments, unsaid = [], list[str]()
    for name in dict.fromkeys(name for launch in launches for name in launch.arguments):
        argument, concrete = problem.arguments[name], entry.plan.arguments.get(name)
        if concrete is None:
            concrete = argument.concrete({**problem.constants, **configuration})
        if not _is_said(concrete):
            unsaid.append(name)
            continue
        extents, value = _extents(argument, c, needs), ""
        if isinstance(argument, Scalar):
            value = _scalar(argument, known, names, prefix)
            needs.held(value, concrete.type)
        arguments.append(_argument(concrete, extents, value))
        if extents:
            needs.fit(1, (*extents, arguments[-1].total(prefix)))
    fixed, computed = options(entry, known, names, prefix)
    for value in (value for each in computed for value in each.of):
        needs.known(value)
    return Geometry(needs.found, tuple(launches), tuple(arguments), tuple(unsaid), fixed, computed)


def _launch(launch: object, c: Callable[[Expression], str], needs: _Needs) -> LaunchText | None:
    """Return a launch of a study as C, with what it needs; None if it never takes place."""
    if not isinstance(launch, Launch):
        raise NoCError("a loop of launches")
    active = c(launch.when)
    if active == "0LL":
        return None
    local = None if launch.local_size is None else tuple(map(c, launch.local_size))
    extents, offset = tuple(map(c, launch.global_size)), tuple(map(c, launch.offset or ()))
    needs.known(active)
    needs.fit(1, (*extents, *(local or ())), active)
    needs.fit(0, offset, active)
    return LaunchText(launch.entry, active, extents, local, offset, launch.arguments)


def _extents(argument: Argument, c: Callable[[Expression], str], needs: _Needs) -> tuple[str, ...]:
    """Return the extents of a buffer or of local memory as C; none for other arguments."""
    if isinstance(argument, Local):
        return (c(argument.count),)
    if not isinstance(argument, Buffer):
        return ()
    extents = tuple(map(c, argument.allocate))
    for shape, extent in zip(map(c, argument.shape), extents, strict=True):
        if shape != extent:
            needs.add(f"{shape} >= 1LL && {shape} <= {extent}")
    return extents


class _Needs:
    """The conditions, in C, under which sizes may be served. What depends on no size held at the entry's own size."""

    def __init__(self, prefix: str, names: dict[str, str]) -> None:
        self._prefix = prefix
        self._sizes = frozenset(names.values())
        self._found: dict[str, None] = {}

    @property
    def found(self) -> tuple[str, ...]:
        return tuple(self._found)

    def add(self, condition: str) -> None:
        if self._is_sized(condition):
            self._found[f"({condition})"] = None

    def known(self, value: str) -> None:
        """Require that an expression has a value."""
        if value not in self._sizes:
            self.add(f"{self._prefix}_known_({value})")

    def fit(self, least: int, values: Iterable[str], active: str = "1LL") -> None:
        """Require numbers of at least `least` that size_t can hold, if their launch takes place."""
        absent = f"{active} == 0LL || " if self._is_sized(active) else ""
        for value in values:
            number, condition = number_in(value), f"{absent}{self._prefix}_fits_({value}, {least}LL)"
            if number is not None and not least <= number < 2**32:
                self._found[f"({condition})"] = None
            elif number is None and value not in self._sizes:
                self.add(condition)

    def held(self, value: str, kind: str) -> None:
        """Require a number that a type of OpenCL can hold; a float holds any."""
        dtype = numpy_type(kind)[0]
        ends = (-_MOST_HALF, _MOST_HALF) if dtype.itemsize == 2 else (-MOST, MOST)
        if dtype.kind in "iu":
            ends = int(iinfo(dtype).min), int(iinfo(dtype).max)
        least, most = max(-MOST, ends[0]), min(MOST, ends[1])
        if value not in self._sizes or most < LARGEST_SIZE:
            self.add(f"{value} >= {least}LL && {value} <= {most}LL")

    def any(self, values: Sequence[str]) -> None:
        """Require that one value is not 0."""
        if all(map(self._is_sized, values)):
            self.add(" || ".join(f"{value} != 0LL" for value in values))

    def _is_sized(self, text: str) -> bool:
        return any(re.search(rf"\b{name}\b", text) for name in self._sizes)


def _scalar(argument: Scalar, known: dict[str, Any], names: dict[str, str], prefix: str) -> str:
    tree = put_in(argument.value.tree, known)
    if tree.is_constant and isinstance(tree.value, float):
        return repr(tree.value)
    return whole(tree, names, prefix)


def _of_its_size(entry: Entry, names: dict[str, str], prefix: str) -> Geometry:
    size, plan = entry.problem.size, entry.plan
    order = [plan.launches[place] for place in plan.order] if plan.order else plan.launches
    if len(order) > MOST_LAUNCHES or any(launch.counted for launch in order):
        long = len(order) > MOST_LAUNCHES
        what = f"runs more than {MOST_LAUNCHES} launches" if long else "has arguments that count the turns"
        raise StudyError(f"{what}, which a header cannot express", where=entry.best.study, hint="--format table can")
    launches = [
        LaunchText(
            one.entry, "1LL", _numbers(one.global_size),
            None if one.local_size is None else _numbers(one.local_size), _numbers(one.offset or ()), one.arguments,
        )
        for one in order
    ]  # fmt: skip
    arguments, unsaid = [], list[str]()
    for one in plan.arguments.values():
        if not _is_said(one):
            unsaid.append(one.name)
        elif isinstance(one, Scalar):
            arguments.append(_argument(one, (), repr(one.value)))
        elif isinstance(one, Buffer | Local):
            arguments.append(_argument(one, _numbers(one.allocate if isinstance(one, Buffer) else (one.count,)), ""))
    needs = _Needs(prefix, names)
    for name, c in names.items():
        needs.add(f"{c} == {size[name]}LL")
    for launch in launches:
        needs.fit(0, (*launch.global_size, *(launch.local_size or ()), *launch.offset))
    for argument in arguments:
        needs.fit(0, (argument.total(prefix),) if argument.extents else ())
    return Geometry(
        needs.found, tuple(launches), tuple(arguments), tuple(unsaid),
        joined(plan.options, entry.problem.study.name), (), tuple(entry.ends.items()),
    )  # fmt: skip


def _is_said(argument: Argument) -> bool:
    """Whether extents, or one number, describe an argument completely."""
    if type(argument) is Scalar:
        return isinstance(argument.value, int | float)
    return type(argument) in (Buffer, Local)


def kind_of(argument: Argument) -> str | None:
    """Return what kind of ArgumentText a study's argument becomes; None if extents or a number cannot describe it."""
    several = isinstance(argument, Scalar) and (isinstance(argument.value, tuple) or is_struct(argument.type))
    return None if several else _KINDS.get(type(argument))


def _argument(argument: Argument, extents: tuple[str, ...], value: str) -> ArgumentText:
    dtype, width = numpy_type(argument.type)
    return ArgumentText(argument.name, _KINDS[type(argument)], argument.type, extents, dtype.itemsize * width, value)


def _numbers(values: tuple[int, ...]) -> tuple[str, ...]:
    return tuple(f"{value}LL" for value in values)
