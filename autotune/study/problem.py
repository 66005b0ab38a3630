"""A study at one size, with its choices, on one device: constants, space, and the plan of a configuration."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from autotune.errors import SpaceError, StudyError, UsageError, placed
from autotune.expression import Expression
from autotune.identity import own_value
from autotune.model import Choices, Configuration, DeviceInfo, ProblemKey, Size, Value
from autotune.space import Constraint, Space
from autotune.study import planning
from autotune.study.arguments import Argument, Buffer, Scalar
from autotune.study.library import problem_key
from autotune.study.limits import WHOLE, limits_of, require_device
from autotune.study.loops import launches_of
from autotune.study.plan import Plan, Tolerance
from autotune.study.scope import DEVICE_FACTS
from autotune.study.study import Study
from autotune.text import did_you_mean, pairs, require_known

GENERIC_DEVICE = DeviceInfo(
    index=-1, name="generic", vendor="generic", platform="", driver="", kind="gpu", opencl_version="1.2",
    compute_units=16, memory=2**33, local_memory=48 * 1024, max_work_group_size=1024,
    max_work_item_sizes=(1024, 1024, 64), clock=1000, extensions=("cl_khr_fp64",),
)  # fmt: skip
"""The device to assume if a study is checked without one: the least that common GPUs offer."""


_MOST_WORK = 2.0**80
"""Operations or bytes of one run: a device of 1 EFLOPS would take two weeks."""


class Problem:
    """A study with everything decided except the configuration.

    `size` and `choices` override the study's defaults; `fix` keeps only the given values of a parameter.
    Raises UsageError for names or values the study does not offer, DeviceError if the study's `[requires]`
    excludes the device, SpaceError (from `space`) if no configuration is valid.
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
        chosen = next((name for name in size or {} if name in study.choices), "")
        hint = chosen and f'a choice is choices={{"{chosen}": {(size or {})[chosen]!r}}}'
        require_known("size", size or {}, study.sizes, hint=hint)
        require_known("choice", choices or {}, study.choices)
        self.size: dict[str, int] = {**study.sizes, **(size or {})}
        for name, file in study.fixed.items():
            if self.size[name] != study.sizes[name]:
                what = f"{name} is {study.sizes[name]}, as {file} has it, and cannot be {self.size[name]}"
                raise UsageError(what, where=f"study {study.name}", hint=self._file_hint("another", name))
        first = {name: values[0] for name, values in study.choices.items()}
        given = {name: own_value(value, study.choices[name]) for name, value in (choices or {}).items()}
        self.choices: dict[str, Value] = {**first, **given}
        for name, value in self.choices.items():
            if value not in study.choices[name]:
                offered = ", ".join(map(str, study.choices[name]))
                raise UsageError(f"{name} cannot be {value!r:.40}", where="choices", hint=f"it can be {offered}")
        self.values = _fixed(study, fix or {})
        require_device(self)
        facts = {name: told(self.device) for name, told in DEVICE_FACTS.items()}
        stated = {name: value.evaluate(facts | self.choices) for name, value in study.device.items()}
        self.constants: dict[str, Any] = {**facts, **stated, **self.size, **self.choices}
        passed = {name: Scalar(name, "int", Expression.parse(name)) for name in study.sizes}
        self.arguments: dict[str, Argument] = {**passed, **study.arguments}

    @property
    def smaller(self) -> str:
        """A hint what to type if something does not fit in memory."""
        first = next(iter(self.study.fixed), None)
        return self._file_hint("a smaller", first) if first else "give a smaller --size"

    def _file_hint(self, which: str, name: str) -> str:
        """Return a hint how to change the named size, which comes from a file, and which sizes --size can still set."""
        free = [each for each in self.study.sizes if each not in self.study.fixed]
        rest = f"; --size sets {', '.join(free)}" if free else ""
        return f"use {which} file than {self.study.fixed[name]}, or write a number for {name} in [sizes]{rest}"

    @property
    def key(self) -> ProblemKey:
        """The key under which results of this problem are stored."""
        return problem_key(self.study.text, self.size, self.choices, self.device.fingerprint)

    @cached_property
    def space(self) -> Space:
        """The valid configurations. Raises SpaceError if there are none."""
        with placed(self.study.path, UsageError):
            try:
                return Space.build(self.values, self.constraints, self.constants)
            except SpaceError as error:
                if not self.on_device and any(f"{fact}=" in error.what for fact in DEVICE_FACTS):
                    error.hint = "without a device, a typical GPU is assumed: --device names one"
                elif WHOLE in error.what:
                    error.hint = "if the kernel checks its bounds, write round_up(SIZE, WORK_GROUP) in global"
                raise

    @cached_property
    def constraints(self) -> tuple[Constraint, ...]:
        """The study's constraints and those that the device's limits add for each launch."""
        limits = [limit for found in launches_of(self.study.launches) for limit in limits_of(self, *found)]
        return (*self.study.constraints, *limits)

    @cached_property
    def default(self) -> dict[str, Value]:
        """The study's default configuration or, if that is not valid here, the nearest valid one.

        `Space.nearest` defines what is nearest.
        """
        wanted = {
            name: parameter.default if parameter.default in self.values[name] else self.values[name][0]
            for name, parameter in self.study.parameters.items()
        }
        return self.space.nearest(wanted)

    @property
    def moved(self) -> dict[str, tuple[Value, Value]]:
        """The parameters whose default changes here: parameter -> (the study's value, the value used instead)."""
        stated = {name: parameter.default for name, parameter in self.study.parameters.items()}
        return {name: (stated[name], value) for name, value in self.default.items() if value != stated[name]}

    @cached_property
    def inputs(self) -> dict[str, Buffer]:
        """The buffers that have input data, by name and unpadded: no parameter changes them."""
        return {buffer.name: buffer.concrete(self.constants, padded=False) for buffer in self.study.inputs}

    @cached_property
    def outputs(self) -> dict[str, Buffer]:
        """The buffers that are compared directly, by name and unpadded; without the outputs that checks compare."""
        plain = [buffer for buffer in self.study.outputs if buffer.name not in self.study.checked]
        return {buffer.name: buffer.concrete(self.constants, padded=False) for buffer in plain}

    @cached_property
    def defined(self) -> dict[str, int | float]:
        """The numbers among the computed names of `[defines]` that no configuration decides, by name."""
        found = {name: value.evaluate(self.constants) for name, value in self.study.definitions.items()}
        return {name: value for name, value in found.items() if not isinstance(value, str)}

    @property
    def fixed(self) -> dict[str, int | float]:
        """The numbers that no configuration decides, by name: choices that are numbers, sizes, `defined`."""
        choices = {name: value for name, value in self.choices.items() if isinstance(value, int | float)}
        return {**choices, **self.size, **self.defined}

    @cached_property
    def tolerance(self) -> Tolerance:
        """By how much an element of an output may differ."""
        relative, absolute = self.study.tolerance
        return Tolerance(self._number(relative, "tolerance.relative"), self._number(absolute, "tolerance.absolute"))

    def plan(self, configuration: Configuration) -> Plan:
        """Return what a worker builds and runs for a configuration. Raises SpaceError if it is not valid."""
        self.flops(configuration), self.bytes(configuration)  # so that their errors come before anything runs
        return planning.plan_of(self, configuration, self.valid(configuration, self.values))

    def reference_plan(self) -> Plan | None:
        """Return the plan of the reference kernel; None if the reference is not a kernel.

        Raises StudyError if the reference is a configuration that is not valid here.
        """
        return planning.reference_plan_of(self)

    def flops(self, configuration: Configuration) -> float | None:
        """Return the floating-point (or integer) operations of one run; None if the study does not give them."""
        return self._work(self.study.flops, configuration, "work.flops")

    def bytes(self, configuration: Configuration) -> float | None:
        """Return the bytes that one run has to move; None if the study does not give them."""
        return self._work(self.study.bytes, configuration, "work.bytes")

    def _work(self, amount: Expression | None, configuration: Configuration, where: str) -> float | None:
        return None if amount is None else self._number(amount, where, configuration, _MOST_WORK)

    def _number(
        self, amount: Expression, where: str, configuration: Configuration | None = None, most: float = math.inf
    ) -> float:
        """Return a number from 0 to `most`. Raises StudyError for other values; expression errors name the file."""
        with placed(self.study.path, UsageError):
            found = amount.evaluate({**self.constants, **(configuration or {})})
        place = f"{self.study.path}: {where}"
        if isinstance(found, str):
            raise StudyError(f"gives the text {found!r}, not a number", where=place)
        if not 0 <= found <= most:  # NaN is refused too
            bounds = "of 0 or more" if most == math.inf else f"from 0 to {most:g}"
            raise StudyError(f"gives {float(found):g}, but must be a number {bounds}", where=place)
        return float(found)

    def in_own_values(self, configuration: Configuration) -> dict[str, Value]:
        """Return a configuration with each value replaced by the study's equal one (1.0 by 1); others stay."""
        return {name: own_value(one, self.values.get(name, ())) for name, one in configuration.items()}

    def valid(self, configuration: Configuration, values: Mapping[str, Sequence[Value]]) -> dict[str, Any]:
        """Return the values of all names for a configuration. Raises SpaceError if it is not valid."""
        for name in configuration:
            if name not in values:
                raise SpaceError(f"no parameter named {name!r}{did_you_mean(name, values)}", where=self.study.name)
        for name, listed in values.items():
            if configuration.get(name) not in listed:
                value = configuration.get(name)
                can = "is fixed to" if value in self.study.parameters[name].values else "can be"
                hint = f"it {can} {', '.join(map(str, listed))}"
                what = f"{name} cannot be {value!r}" if name in configuration else f"no value for {name}"
                raise SpaceError(what, where=self.study.name, hint=hint)
        names = {**self.constants, **configuration}
        for constraint in self.constraints:
            if not constraint.require.holds(names):
                what = f"{pairs(configuration)} is not a valid configuration: {constraint.reason}"
                raise SpaceError(what, where=self.study.name)
        return names


def _generic(study: Study) -> DeviceInfo:
    """Return the generic device with all that the study requires: no device needs to have it to read a study."""
    required = study.requires
    extensions, vendor = (*GENERIC_DEVICE.extensions, *required.extensions), required.vendor or GENERIC_DEVICE.vendor
    return replace(GENERIC_DEVICE, extensions=extensions, vendor=vendor)


def _fixed(study: Study, fix: Mapping[str, Sequence[Value]]) -> dict[str, tuple[Value, ...]]:
    values = {name: parameter.values for name, parameter in study.parameters.items()}
    require_known("parameter", fix, values)
    for name, wanted in fix.items():
        if not wanted:
            hint = f"it can be {', '.join(map(str, values[name]))}"
            raise UsageError(f"{name} is given no value to keep", hint=hint)
        alien = [value for value in wanted if value not in values[name]]
        if alien:
            raise UsageError(f"{name} cannot be {alien[0]!r}", hint=f"it can be {', '.join(map(str, values[name]))}")
        values[name] = tuple(value for value in values[name] if value in wanted)
    return values
