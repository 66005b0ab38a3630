"""A study at one size, with its choices, on one device: constants, space, and the plan of a configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from autotune.errors import DeviceError, SpaceError, StudyError, UsageError
from autotune.expression import Expression
from autotune.model import Choices, Configuration, DeviceInfo, ProblemKey, Size, Value
from autotune.space import Constraint, Space
from autotune.study import includes, library
from autotune.study.library import did_you_mean
from autotune.study.plan import Buffer, Launch, Local, Plan, Scalar, Tolerance, numpy_type
from autotune.study.rules import DEVICE_FACTS, Argument, LaunchRule
from autotune.study.study import Study

GENERIC_DEVICE = DeviceInfo(
    index=-1, name="generic", vendor="generic", platform="", driver="", kind="gpu", opencl_version="1.2",
    compute_units=16, memory=2**33, local_memory=48 * 1024, max_work_group_size=1024,
    max_work_item_sizes=(1024, 1024, 64), clock=1000, extensions=("cl_khr_fp64",),
)  # fmt: skip
"""Stands in where a study is checked without a device: the least that common GPUs offer."""


class Problem:
    """A study with everything decided but the configuration.

    `size` and `choices` override the study's defaults; `fix` keeps only the given values of a parameter.
    Raises UsageError for names or values the study does not offer, DeviceError where the study's `[requires]`
    excludes the device, SpaceError (from `space`) where no configuration is valid.
    """

    def __init__(
        self,
        study: Study,
        size: Size | None = None,
        choices: Choices | None = None,
        device: DeviceInfo | None = None,
        *,
        fix: Mapping[str, Sequence[Value]] | None = None,
    ) -> None:
        self.study = study
        self.on_device = device is not None
        self.device = device or _generic(study)
        self.size: dict[str, int] = _merge("size", study.sizes, size or {})
        defaults = {name: values[0] for name, values in study.choices.items()}
        self.choices: dict[str, Value] = _merge("choice", defaults, choices or {})
        self.values = _fixed(study, fix or {})
        self._require_device()
        facts = _facts(self.device)
        stated = {name: value.evaluate(facts | self.choices) for name, value in study.device.items()}
        self.states_local_memory = "local_memory" in stated
        self.constants: dict[str, Any] = {**facts, **stated, **self.size, **self.choices}

    @property
    def key(self) -> ProblemKey:
        """What results of this problem are stored under."""
        return library.problem_key(self.study.text, self.size, self.choices, self.device.fingerprint)

    @cached_property
    def space(self) -> Space:
        """The valid configurations. Raises SpaceError where there is none."""
        return Space.build(self.values, self.constraints, self.constants)

    @cached_property
    def constraints(self) -> tuple[Constraint, ...]:
        """The study's constraints and those that the device's limits add for each launch."""
        limits = [limit for number, rule in enumerate(self.study.launches, 1) for limit in self._limits(rule, number)]
        return (*self.study.constraints, *limits)

    @cached_property
    def default(self) -> dict[str, Value]:
        """The study's default configuration or, where it is not valid here, the valid one nearest to it.

        Nearest: fewest parameters changed, then the least distance in the ordered values.
        """
        wanted = {
            name: parameter.default if parameter.default in self.values[name] else self.values[name][0]
            for name, parameter in self.study.parameters.items()
        }
        if wanted in self.space:
            return wanted
        target = np.array([self.values[name].index(wanted[name]) for name in self.space.names])
        rows = self.space.sample(np.random.default_rng(0), min(len(self.space), 200_000))
        apart = np.abs(self.space.indices(rows) - target)
        best = np.lexsort((rows, apart.sum(axis=1), (apart > 0).sum(axis=1)))[0]
        return self.space.configuration(int(rows[best]))

    @property
    def moved(self) -> dict[str, tuple[Value, Value]]:
        """What of the study's default is not valid here: parameter -> (the study's value, the one that stands in)."""
        stated = {name: parameter.default for name, parameter in self.study.parameters.items()}
        return {name: (stated[name], value) for name, value in self.default.items() if value != stated[name]}

    def plan(self, configuration: Configuration) -> Plan:
        """Return what a worker builds and runs for a configuration. Raises SpaceError where it is not valid."""
        self._require_valid(configuration)
        names = {**self.constants, **configuration}
        relative, absolute = (float(value.evaluate(self.constants)) for value in self.study.tolerance)
        arguments = self._arguments(self.study.launches, names)
        outputs = [name for name, argument in self.study.arguments.items() if argument.access in ("out", "inout")]
        return Plan(
            # The compiler's messages then name the author's file, as they do for its includes.
            source=f'#line 1 "{self.study.text.kernel_path.name}"\n{self.study.text.source}',
            options=self._options(configuration, names),
            launches=_launches(self.study.launches, names),
            arguments=arguments,
            outputs={name: Tolerance(relative, absolute) for name in outputs},
            cache=self.study.timing.cache,
            local_memory=int(self.constants["local_memory"]) if self.states_local_memory else None,
        )

    def reference_plan(self) -> Plan | None:
        """Return the plan of the reference kernel; None where the reference is no kernel."""
        reference = self.study.reference
        if reference.source is None:
            return None
        names = {**self.constants, **self.default}
        return Plan(
            source=reference.source,
            options=tuple(_define(name, value) for name, value in self.choices.items()),
            launches=_launches(reference.launches, names),
            arguments=self._arguments(reference.launches, names, padded=False),
            cache="warm",
        )

    def flops(self, configuration: Configuration) -> float | None:
        """Return the floating-point (or integer) operations of one run; None where the study gives none."""
        return self._work(self.study.flops, configuration)

    def bytes(self, configuration: Configuration) -> float | None:
        """Return the bytes that one run has to move; None where the study gives none."""
        return self._work(self.study.bytes, configuration)

    def argument(self, name: str) -> Argument:
        """Return the declared argument, or the `int` scalar that a size name stands for."""
        if name in self.study.arguments:
            return self.study.arguments[name]
        return Argument(name, "int", value=Expression.parse(name))

    def buffer(self, name: str) -> Buffer:
        """Return a declared input or output buffer, unpadded: no parameter has a part in it."""
        found = _concrete(self.study.arguments[name], self.constants, padded=False)
        if not isinstance(found, Buffer):
            raise StudyError("is no buffer", where=f"arguments.{name}")
        return found

    def _work(self, amount: Expression | None, configuration: Configuration) -> float | None:
        return None if amount is None else float(amount.evaluate({**self.constants, **configuration}))

    def _require_device(self) -> None:
        requires = self.study.requires
        missing = [name for name in requires.extensions if name not in self.device.extensions]
        if missing:
            raise DeviceError(f"{self.device.name} lacks {', '.join(missing)}", where=f"study {self.study.name}")
        if requires.vendor and self.on_device and requires.vendor != self.device.vendor_name:
            raise DeviceError(
                f"needs a device of {requires.vendor}, and {self.device.name} is of {self.device.vendor_name}",
                where=f"study {self.study.name}",
                hint="choose one with --device (autotune devices lists them)",
            )

    def _require_valid(self, configuration: Configuration) -> None:
        for name in configuration:
            if name not in self.values:
                raise SpaceError(f"no parameter named {name!r}{did_you_mean(name, self.values)}", where=self.study.name)
        for name, values in self.values.items():
            if configuration.get(name) not in values:
                raise SpaceError(
                    f"{name} cannot be {configuration.get(name)!r}",
                    where=self.study.name,
                    hint="it can be " + ", ".join(map(str, values)),
                )
        names = {**self.constants, **configuration}
        for constraint in self.constraints:
            if not constraint.require.holds(names):
                raise SpaceError(f"not a valid configuration: {constraint.reason}", where=self.study.name)

    def _limits(self, rule: LaunchRule, number: int) -> list[Constraint]:
        """Work-group limits, divisibility and `__local` arguments of one launch, as constraints."""
        limits = []
        which = f"launch {number} ({rule.entry})"
        if rule.local_size is not None:
            product = " * ".join(f"({extent.text})" for extent in rule.local_size)
            limits.append((f"{product} <= max_work_group_size", "the work-group fits the device"))
            for axis, (whole, part) in enumerate(zip(rule.global_size, rule.local_size, strict=True)):
                limit = self.device.max_work_item_sizes[axis]
                limits.append((f"({part.text}) >= 1 and ({part.text}) <= {limit}", f"work-group extent {axis} fits"))
                limits.append((f"({whole.text}) % ({part.text}) == 0", f"global size {axis} is whole work-groups"))
        local = [self.argument(name) for name in rule.arguments]
        needed = [f"({a.local.text}) * {self._element_bytes(a)}" for a in local if a.local is not None]
        if needed:
            limits.append((f"{' + '.join(needed)} <= local_memory", "local memory fits the device"))
        return [
            Constraint(Expression.parse(f"(not ({rule.when.text})) or ({text})", where=which), f"{which}: {reason}")
            for text, reason in limits
        ]

    def _element_bytes(self, argument: Argument) -> int:
        """Return the bytes of one element, the largest where a parameter enters the type."""
        names = re.findall(r"\{(\w+)\}", argument.type)
        tuned = [name for name in names if name in self.values]
        types = [_filled(argument.type, self.constants | {name: v}) for name in tuned for v in self.values[name]]
        sizes = [numpy_type(text) for text in types or [_filled(argument.type, self.constants)]]
        return max(dtype.itemsize * width for dtype, width in sizes)

    def _options(self, configuration: Configuration, names: Mapping[str, Any]) -> tuple[str, ...]:
        defined: dict[str, Any] = {**self.choices, **configuration}
        defined |= {name: value.evaluate(names) for name, value in self.study.defines.items()}
        flags = [_filled(option.flag, names) for option in self.study.options if option.when.evaluate(names)]
        options = (*(_define(name, value) for name, value in defined.items()), *flags)
        includes.check_options(options, f"{self.study.text.path}: options")
        return options

    def _arguments(
        self, rules: Sequence[LaunchRule], names: Mapping[str, Any], *, padded: bool = True
    ) -> dict[str, Buffer | Scalar | Local]:
        used = dict.fromkeys(name for rule in rules if rule.when.evaluate(names) for name in rule.arguments)
        for name, argument in self.study.arguments.items():
            if argument.access in ("out", "inout"):
                used.setdefault(name)
        return {name: _concrete(self.argument(name), names, padded) for name in used}


def made_of(problem: Problem, plan: Plan, configuration: Configuration) -> dict[str, Any]:
    """Return what a trial is built and launched as and the work of one run, as plain data to be stored with it.

    `options`: the build options, computed defines among them. `launches`: entry, global and local size of each (None:
    the driver's choice). `flops`, `bytes`: None where the study gives none. `work`: the formulas that these are of.
    """
    work = problem.study.text.table.get("work", {})
    return {
        "options": list(plan.options),
        "launches": [
            [launch.entry, list(launch.global_size), None if launch.local_size is None else list(launch.local_size)]
            for launch in plan.launches
        ],
        "flops": problem.flops(configuration),
        "bytes": problem.bytes(configuration),
        "work": {name: str(formula) for name, formula in work.items()},
    }


def _concrete(argument: Argument, names: Mapping[str, Any], padded: bool) -> Buffer | Scalar | Local:
    where = f"arguments.{argument.name}"
    kind = _filled(argument.type, names)
    numpy_type(kind)
    if argument.value is not None:
        value = argument.value.evaluate(names)
        if isinstance(value, str):
            raise StudyError(f"gives the text {value!r}, not a number", where=where)
        return Scalar(argument.name, kind, value)
    if argument.local is not None:
        return Local(argument.name, kind, _extent(argument.local, names, f"{where}.local"))
    shape = tuple(_extent(extent, names, f"{where}.shape") for extent in argument.shape)
    allocate = shape
    if padded:
        allocate = tuple(_extent(extent, names, f"{where}.allocate") for extent in argument.allocate)
    if any(whole < part for whole, part in zip(allocate, shape, strict=True)):
        raise StudyError(f"allocates {allocate}, less than its shape {shape}", where=where)
    return Buffer(argument.name, kind, shape, allocate, argument.access)


def _launches(rules: Sequence[LaunchRule], names: Mapping[str, Any]) -> tuple[Launch, ...]:
    launches = [_launch(rule, names) for rule in rules if rule.when.evaluate(names)]
    if not launches:
        raise StudyError("no launch applies", where="launch", hint="look at the when of each [[launch]]")
    return tuple(launches)


def _launch(rule: LaunchRule, names: Mapping[str, Any]) -> Launch:
    whole = tuple(_extent(extent, names, f"launch {rule.entry}: global") for extent in rule.global_size)
    part = None
    if rule.local_size is not None:
        part = tuple(_extent(extent, names, f"launch {rule.entry}: local") for extent in rule.local_size)
    return Launch(rule.entry, whole, part, rule.arguments)


def _extent(extent: Expression, names: Mapping[str, Any], where: str) -> int:
    value = extent.evaluate(names)
    if isinstance(value, str) or int(value) != value or value < 1:
        raise StudyError(f"{extent.text} gives {value}, not a whole number of at least 1", where=where)
    return int(value)


def _generic(study: Study) -> DeviceInfo:
    """The typical device, with the extensions that the study requires: a mere reading needs none of them."""
    return replace(GENERIC_DEVICE, extensions=(*GENERIC_DEVICE.extensions, *study.requires.extensions))


def _facts(device: DeviceInfo) -> dict[str, Any]:
    facts = (
        device.local_memory,
        device.max_work_group_size,
        device.compute_units,
        device.vendor_name,
        device.kind,
        float(device.compute_capability or 0),
        device.extensions,
    )
    return dict(zip(DEVICE_FACTS, facts, strict=True))


def _merge(what: str, defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    for name in given:
        if name not in defaults:
            raise UsageError(
                f"no {what} named {name!r}{did_you_mean(name, defaults)}",
                hint=f"known: {', '.join(defaults) or 'none'}",
            )
    return {**defaults, **given}


def _fixed(study: Study, fix: Mapping[str, Sequence[Value]]) -> dict[str, tuple[Value, ...]]:
    values = {name: parameter.values for name, parameter in study.parameters.items()}
    for name, wanted in fix.items():
        if name not in values:
            raise UsageError(
                f"no parameter named {name!r}{did_you_mean(name, values)}", hint=f"known: {', '.join(values)}"
            )
        alien = [value for value in wanted if value not in values[name]]
        if alien:
            raise UsageError(f"{name} cannot be {alien[0]!r}", hint=f"it can be {', '.join(map(str, values[name]))}")
        values[name] = tuple(value for value in values[name] if value in wanted)
    return values


def _filled(text: str, names: Mapping[str, Any]) -> str:
    return re.sub(r"\{(\w+)\}", lambda match: str(names[match[1]]), text)


def _define(name: str, value: Any) -> str:
    return f"-D{name}={int(value) if isinstance(value, bool) else value}"
