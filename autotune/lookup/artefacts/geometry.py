"""Launches, extents, scalars and build options of a configuration, as C over the sizes of the problem."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from autotune.errors import StudyError
from autotune.expression import Expression, put_in
from autotune.lookup.artefacts.catalogue import Entry
from autotune.lookup.artefacts.ctext import NoCError, whole
from autotune.study import Argument, Buffer, Launch, Local, Scalar, numpy_type


class LaunchText(NamedTuple):
    """One launch: `active` is C that is 0 where it does not take place; `local` None: the driver's choice."""

    entry: str
    active: str
    global_size: tuple[str, ...]
    local_size: tuple[str, ...] | None
    arguments: tuple[str, ...]


class ArgumentText(NamedTuple):
    """One argument: a buffer's or local memory's extents and the bytes of an element, or a scalar's value."""

    name: str
    kind: str  # "buffer", "local" or "scalar"
    type: str
    extents: tuple[str, ...]
    nbytes: int
    value: str


class Geometry(NamedTuple):
    """What depends on the sizes; equal for configurations that are launched alike. `valid` is C: whether it may run."""

    valid: str
    launches: tuple[LaunchText, ...]
    arguments: tuple[ArgumentText, ...]
    options: str  # those that no size enters, for clBuildProgram
    computed: tuple[tuple[str, str], ...]  # other defines, each with its value


def geometry(entry: Entry, names: dict[str, str], prefix: str) -> Geometry:
    """Return an entry's; where C cannot say all of it, that of its own size, valid there alone.

    `names` are the sizes in C. Raises StudyError where an option holds what no string of C can.
    """
    try:
        return _of_any_size(entry, names, prefix)
    except NoCError:
        return _of_its_size(entry, names)


def _of_any_size(entry: Entry, names: dict[str, str], prefix: str) -> Geometry:
    problem, configuration = entry.problem, entry.best.configuration
    known = {name: value for name, value in {**problem.constants, **configuration}.items() if name not in names}

    def c(expression: Expression) -> str:
        return whole(put_in(expression.tree, known), names, prefix)

    conditions = dict.fromkeys(c(constraint.require) for constraint in problem.constraints)
    conditions.pop("1LL", None)
    launches = []
    for launch in problem.study.launches:
        if not isinstance(launch, Launch):
            raise StudyError(
                "a loop of launches is not yet said in headers and tables",
                where=f"{problem.study.name}: launch",
                hint="autotune.tuned in Python runs it; autotune best --format json has every launch",
            )
        active = c(launch.when)
        if active != "0LL":
            local = None if launch.local_size is None else tuple(map(c, launch.local_size))
            extents = tuple(map(c, launch.global_size))
            launches.append(LaunchText(launch.entry, active, extents, local, launch.arguments))
    used = dict.fromkeys(name for launch in launches for name in launch.arguments)
    arguments = []
    for name in used:
        argument, concrete = problem.arguments[name], entry.plan.arguments.get(name)
        if concrete is None:
            concrete = argument.concrete({**problem.constants, **configuration})
        extents, value = tuple[str, ...](), ""
        match argument:
            case Buffer():
                extents = tuple(map(c, argument.allocate))
            case Local():
                extents = (c(argument.count),)
            case Scalar():
                value = _scalar(argument, known, names, prefix)
        arguments.append(_argument(concrete, extents, value))
    fixed, computed = _options(entry, known, names, prefix)
    return Geometry(" && ".join(conditions) or "1", tuple(launches), tuple(arguments), fixed, computed)


def _scalar(argument: Scalar, known: dict[str, Any], names: dict[str, str], prefix: str) -> str:
    tree = put_in(argument.value.tree, known)
    if tree.is_constant and isinstance(tree.value, float):
        return repr(tree.value)
    return whole(tree, names, prefix)


def _options(
    entry: Entry, known: dict[str, Any], names: dict[str, str], prefix: str
) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return the options that no size enters, and the defines that one does."""
    study = entry.problem.study
    if any(put_in(option.when.tree, known).names for option in study.options):
        raise NoCError("a size decides on an option")
    if any(f"{{{name}}}" in option.flag for option in study.options for name in names):
        raise NoCError("a size stands in an option")
    trees = {name: put_in(formula.tree, known) for name, formula in study.defines.items()}
    computed = {name: whole(tree, names, prefix) for name, tree in trees.items() if tree.names}
    fixed = [option for option in entry.plan.options if option[2:].partition("=")[0] not in computed]
    return joined(fixed, study.name), tuple(computed.items())


def _of_its_size(entry: Entry, names: dict[str, str]) -> Geometry:
    size, plan = entry.problem.size, entry.plan
    launches = tuple(
        LaunchText(launch.entry, "1LL", _numbers(launch.global_size), _local(launch), launch.arguments)
        for launch in plan.launches
    )
    arguments = []
    for argument in plan.arguments.values():
        match argument:
            case Scalar():
                arguments.append(_argument(argument, (), repr(argument.value)))
            case Buffer():
                arguments.append(_argument(argument, _numbers(argument.allocate), ""))
            case Local():
                arguments.append(_argument(argument, _numbers((argument.count,)), ""))
    conditions = [f"({c} == {size[name]}LL)" for name, c in names.items()]
    return Geometry(
        " && ".join(conditions) or "1", launches, tuple(arguments), joined(plan.options, entry.problem.study.name), ()
    )


def _argument(argument: Argument, extents: tuple[str, ...], value: str) -> ArgumentText:
    dtype, width = numpy_type(argument.type)
    kind = {Buffer: "buffer", Local: "local", Scalar: "scalar"}[type(argument)]
    return ArgumentText(argument.name, kind, argument.type, extents, dtype.itemsize * width, value)


def _local(launch: Launch) -> tuple[str, ...] | None:
    return None if launch.local_size is None else _numbers(launch.local_size)


def _numbers(values: tuple[int, ...]) -> tuple[str, ...]:
    return tuple(f"{value}LL" for value in values)


def joined(options: Iterable[str], study: str) -> str:
    """Return build options as the one string that clBuildProgram takes. Raises StudyError for what it would split."""
    options = list(options)
    for option in options:
        if not option.isprintable() or any(mark in option for mark in "\"'\\"):
            raise StudyError(f"the option {option!r:.60} cannot stand in one string of options", where=study)
    return " ".join(f'"{option}"' if " " in option else option for option in options)
