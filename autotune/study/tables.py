"""What the smaller tables of a study declare: parameters, build options, the reference."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.errors import StudyError
from autotune.expression import Expression
from autotune.model import Value
from autotune.study.arguments import BRACES, Data
from autotune.study.plan import Launch, Loop
from autotune.study.schema import OptionTable, ParameterTable
from autotune.study.scope import Scope
from autotune.text import did_you_mean

ReferenceFunction = Callable[..., Mapping[str, Any]]
"""Called with every input array, scalar and size by name; returns the expected array of each output."""


@dataclass(frozen=True)
class Parameter:
    """A tunable `#define`: a finite, ordered tuple of values."""

    name: str
    values: tuple[Value, ...]
    default: Value
    about: str = ""


@dataclass(frozen=True)
class Option:
    """A build option; `{NAME}` in the flag stands for a value."""

    flag: str
    when: Expression

    @property
    def names(self) -> list[str]:
        """The names in braces, in their order."""
        return BRACES.findall(self.flag)


@dataclass(frozen=True)
class Reference:
    """Where expected outputs come from: exactly one of the five is set.

    `numpy` maps an output, or a check, to a NumPy expression; `files` to a file; `source` with `launches` is another
    kernel; `configuration` is a configuration of the kernel itself, with all parameters; `function` is Python, either
    given directly or as the file and the name, which is loaded only when the user allows it.
    """

    numpy: Mapping[str, str | Mapping[str, str]] | None = None
    source: str | None = None
    launches: tuple[Launch | Loop, ...] = ()
    function: ReferenceFunction | tuple[Path, str] | None = None
    files: Mapping[str, Data] | None = None
    configuration: Mapping[str, Value] | None = None

    @property
    def on_device(self) -> bool:
        """Whether a kernel computes the expected outputs."""
        return self.source is not None or self.configuration is not None


def parameter(name: str, table: ParameterTable) -> Parameter:
    values = tuple(table.values)
    if twice := _repeated(values):
        raise StudyError(f"has a value twice: {', '.join(twice)}", where=f"parameters.{name}.values")
    default = table.default if table.default is not None else values[0]
    if default not in values:
        hint = "they are " + ", ".join(map(str, values))
        raise StudyError(f"{default!r} is not one of the values", where=f"parameters.{name}.default", hint=hint)
    return Parameter(name, values, default, table.about)


def _repeated(values: Iterable[Value]) -> Iterable[str]:
    """Return the values that repeat an earlier one as a text or as a number (1.0 repeats 1), each once."""
    texts, met, found = set[str](), set[Value](), dict[str, None]()
    for value in values:
        if value in met or str(value) in texts:
            found[str(value)] = None
        met.add(value)
        texts.add(str(value))
    return found


def reference_configuration(values: Mapping[str, Value], parameters: Mapping[str, Parameter]) -> dict[str, Value]:
    """Return the configuration that a reference names. Raises StudyError if it is not one of the study's."""
    where = "reference.configuration"
    for name, value in values.items():
        if name not in parameters:
            raise StudyError(f"no parameter named {name!r}{did_you_mean(name, parameters)}", where=where)
        if value not in parameters[name].values:
            hint = "it can be " + ", ".join(map(str, parameters[name].values))
            raise StudyError(f"{name} cannot be {value!r}", where=where, hint=hint)
    if lacks := [name for name in parameters if name not in values]:
        hint = f"add {lacks[0]} = {parameters[lacks[0]].default!r}".replace("'", '"')
        raise StudyError(f"lacks {', '.join(lacks)}: it gives every parameter", where=where, hint=hint)
    return {name: values[name] for name in parameters}


def option(table: OptionTable, where: str, scope: Scope) -> Option:
    found = Option(table.flag, scope.expression(table.when, f"{where}.when"))
    for name in found.names:
        scope.require(name, f"{where}.flag")
    return found
