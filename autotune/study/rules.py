"""What a study says, as records: parameters, arguments, launches, options, the reference. Expressions are parsed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autotune.expression import Expression
from autotune.model import Value
from autotune.study import schema

DEVICE_FACTS = (
    "local_memory",
    "max_work_group_size",
    "compute_units",
    "vendor",
    "device_kind",
    "compute_capability",
    "extensions",
)
"""Names of device facts in expressions: bytes, work-items, count, one word, `gpu` or `cpu`, NVIDIA's number, names."""

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
class Argument:
    """A kernel argument: a buffer (`shape`), a scalar (`value`) or local memory (`local`)."""

    name: str
    type: str
    shape: tuple[Expression, ...] = ()
    allocate: tuple[Expression, ...] = ()
    access: str = ""
    data: schema.DataTable = field(default_factory=schema.DataTable)
    value: Expression | None = None
    local: Expression | None = None

    @property
    def is_data(self) -> bool:
        """True for a buffer whose contents the user gives or gets, so that no parameter may shape it."""
        return self.access in ("in", "out", "inout")


@dataclass(frozen=True)
class LaunchRule:
    """A launch as the study writes it: extents are expressions."""

    entry: str
    global_size: tuple[Expression, ...]
    local_size: tuple[Expression, ...] | None
    arguments: tuple[str, ...]
    when: Expression


@dataclass(frozen=True)
class Option:
    """A build option; `{NAME}` in the flag stands for a value."""

    flag: str
    when: Expression


@dataclass(frozen=True)
class Reference:
    """Where expected outputs come from: exactly one of the three is set.

    `numpy` maps an output to a NumPy expression; `source` with `launches` is another kernel; `function` is
    Python, either given directly or named as `file.py:name`, which is loaded only when the user allows it.
    """

    numpy: Mapping[str, str] | None = None
    source: str | None = None
    launches: tuple[LaunchRule, ...] = ()
    function: ReferenceFunction | tuple[Path, str] | None = None
