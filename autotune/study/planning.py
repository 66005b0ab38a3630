"""Turns a configuration of a problem, or its reference, into the plan that a worker builds and runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from autotune.errors import SpaceError, StudyError, placed
from autotune.identity import word_fault
from autotune.model import Configuration
from autotune.study.arguments import Argument, Buffer, Scalar, filled
from autotune.study.arrays import names_of
from autotune.study.functions import names_declared
from autotune.study.includes import check_options
from autotune.study.plan import Check, Launch, Loop, Plan
from autotune.study.sequence import Unrolled, exchanged

if TYPE_CHECKING:
    from autotune.expression import Expression
    from autotune.study.problem import Problem


def plan_of(problem: Problem, configuration: Configuration, names: Mapping[str, Any]) -> Plan:
    """Return the plan of a valid configuration; `names` are the values of all names for it."""
    launches, arguments, order = _concrete(problem, problem.study.launches, names)
    return Plan(
        problem.study.source,
        _options(problem, configuration, names),
        launches,
        arguments,
        outputs=dict.fromkeys(problem.outputs, problem.tolerance),
        cache=problem.study.timing.cache,
        local_memory=int(problem.constants["local_memory"]) if "local_memory" in problem.study.device else None,
        order=order,
        checks=_checks(problem, arguments, configuration),
    )


def reference_plan_of(problem: Problem) -> Plan | None:
    """Return the plan of the reference kernel, as Problem.reference_plan does."""
    reference = problem.study.reference
    if reference.configuration is not None:
        every = {name: parameter.values for name, parameter in problem.study.parameters.items()}
        try:
            names = problem.valid(reference.configuration, every)
        except SpaceError as error:
            hint = "name one that is valid at every size, on every device"
            where = f"{problem.study.path}: reference.configuration"
            raise StudyError(error.what, where=where, hint=hint) from None
        return plan_of(problem, reference.configuration, names)
    if reference.source is None:
        return None
    names = {**problem.constants, **problem.default}
    own = names_declared(reference.source)  # a -D would replace these names in the source
    fixed = {
        name: value
        for name, value in problem.study.defines.items()
        if value.names <= problem.constants.keys() and name not in own
    }
    options = tuple(_defines(problem, problem.choices, fixed, names))
    launches, arguments, order = _concrete(problem, reference.launches, names, padded=False)
    outputs, checks = dict.fromkeys(problem.outputs, problem.tolerance), _checks(problem, arguments, problem.default)
    return Plan(reference.source, options, launches, arguments, outputs, order=order, checks=checks)


def _options(problem: Problem, configuration: Configuration, names: Mapping[str, Any]) -> tuple[str, ...]:
    options = _defines(problem, {**problem.choices, **configuration}, problem.study.defines, names)
    for option in problem.study.options:
        if option.when.evaluate(names):
            options.append(filled(option.flag, names))
    check_options(options, f"{problem.study.path}: options")
    return tuple(options)


def _defines(
    problem: Problem, given: Mapping[str, Any], computed: Mapping[str, Expression], names: Mapping[str, Any]
) -> list[str]:
    """Return a -D option for each given name, and for each computed name of `[defines]`."""
    defined = dict(given)
    for name, expression in computed.items():
        value = expression.evaluate(names)
        defined[name] = int(value) if isinstance(value, bool) else value
        if fault := word_fault(value):
            raise StudyError(fault, where=f"{problem.study.path}: defines.{name}")
    return [f"-D{name}={value}" for name, value in defined.items()]


def _concrete(
    problem: Problem, launches: Sequence[Launch | Loop], names: Mapping[str, Any], *, padded: bool = True
) -> tuple[tuple[Launch, ...], dict[str, Argument], tuple[int, ...]]:
    """Return the launches that take place, their arguments together with all outputs, and the order of launches."""
    unrolled = Unrolled(names, problem.arguments, problem.study.steps)
    with placed(problem.study.path):
        unrolled.run(launches, {})
        if not unrolled.order:
            raise StudyError("no launch applies", where="launch", hint=f"look at {', '.join([*unrolled.idle][:4])}")
        swapped, outputs = unrolled.swapped, [buffer.name for buffer in problem.study.outputs]
        used = {**unrolled.used, **{name: problem.arguments[name] for name in (*swapped, *outputs)}}
        # A scalar that depends on a loop's step is concrete already.
        made = {
            name: argument.concrete(names, padded=padded) if argument is problem.arguments[name] else argument
            for name, argument in used.items()
        }
        if swapped:
            buffers = {name: argument for name, argument in made.items() if isinstance(argument, Buffer)}
            made |= exchanged(buffers, unrolled.ends, swapped, outputs)
    order = tuple(unrolled.order)
    return unrolled.launches, made, () if order == tuple(range(len(order))) else order


def _checks(problem: Problem, arguments: Mapping[str, Argument], configuration: Configuration) -> dict[str, Check]:
    """Return the checks of a plan, with the numbers that they may name."""
    scalars = {name: argument.value for name, argument in arguments.items() if isinstance(argument, Scalar)}
    known = {**configuration, **problem.fixed, **scalars}
    found = {}
    for name, text in problem.study.checks.items():
        used = names_of(text, f"check.{name}") & known.keys()
        numbers = tuple((each, known[each]) for each in sorted(used) if isinstance(known[each], int | float))
        found[name] = Check(text, problem.tolerance, numbers)
    return found


def made_of(problem: Problem, plan: Plan, configuration: Configuration) -> dict[str, Any]:
    """Return how a trial is built and launched and the work of one run, as plain data that is stored with it.

    `options`: the build options, including computed defines. `launches`: entry, global and local size of each (None:
    the driver chooses). `times`: how often each runs, if loops repeat some. `offsets`: those of the launches, if any
    has one. `flops`, `bytes`: None if the study does not give them. `work`: the formulas of these two.
    """
    work, more = problem.study.text.table.get("work", {}), dict[str, Any]()
    if plan.order:
        counts = Counter(plan.order)
        more["times"] = [counts[place] for place in range(len(plan.launches))]
    if any(launch.offset for launch in plan.launches):
        more["offsets"] = [list(launch.offset or ()) for launch in plan.launches]
    return more | {
        "options": list(plan.options),
        "launches": [
            [launch.entry, list(launch.global_size), None if launch.local_size is None else list(launch.local_size)]
            for launch in plan.launches
        ],
        "flops": problem.flops(configuration),
        "bytes": problem.bytes(configuration),
        "work": {name: str(formula) for name, formula in work.items()},
    }
