"""A kernel's arguments, one class a kind: what a study declares (expressions) and what a plan holds (numbers).

A kind to come is a class here with its row in `KINDS`, its keys in `schema.ArgumentTable`, and its tests. Workers load
this file: frozen plain data, no OpenCL, no pydantic.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, cast

import numpy as np

from autotune.errors import StudyError
from autotune.study.types import numpy_type

if TYPE_CHECKING:
    from autotune.devices import Session
    from autotune.study.schema import ArgumentTable, Scope

Extent = Any
"""An Expression in a study, a number in a plan."""

BRACES = re.compile(r"\{(\w+)\}")
"""A name whose value is put into a type or a flag."""


class Data(NamedTuple):
    """Where the contents of an input come from: a distribution, a file, Python, or what a Python caller gave.

    `low`, `high` and `value` are expressions in a study where they are no plain numbers. `numpy` is the expression that
    the contents are made by, of which those above are a part under the argument's own name.
    """

    distribution: str = "uniform"
    low: Extent = -1.0
    high: Extent = 1.0
    value: Extent = 0
    seed: int = 1
    file: str | None = None
    part: str | None = None
    type: str | None = None
    numpy: str | None = None
    python: str | None = None
    given: str | None = None

    def concrete(self, names: Mapping[str, Any], where: str) -> Data:
        """Return it with numbers for bounds. Raises StudyError where one gives text."""
        found = {}
        for key in ("low", "high", "value"):
            bound = getattr(self, key)
            if not isinstance(bound, int | float):
                found[key] = bound.evaluate(names)
                if isinstance(found[key], str):
                    raise StudyError(f"gives the text {found[key]!r}, not a number", where=f"{where}.{key}")
        return self._replace(**found) if found else self


_UNIFORM = Data()
_READ, _WRITTEN = {"in", "inout"}, {"out", "inout"}


@dataclass(frozen=True, slots=True)
class Argument(ABC):
    """What every kind has: a name, and OpenCL's type, in a study with `{CHOICE}` in it."""

    name: str
    type: str

    key: ClassVar[str]
    """The key of its table that only this kind has."""
    kind: ClassVar[str]
    """What messages call it."""

    @property
    def reads(self) -> bool:
        """Whether input data is drawn for it."""
        return False

    @property
    def writes(self) -> bool:
        """Whether it is an output, which is compared."""
        return False

    @property
    def local_count(self) -> Extent | None:
        """Elements of `__local` memory; None where it takes none."""
        return None

    @property
    def local_bytes(self) -> int:
        """Bytes of `__local` memory that it takes in a plan."""
        return 0 if self.local_count is None else self.nbytes

    @property
    def effect(self) -> str:
        """What the author may not have meant, if anything."""
        return ""

    @property
    def nbytes(self) -> int:
        """Bytes that it takes in a plan, padding included."""
        dtype, width = numpy_type(self.type)
        return math.prod(self._extents) * width * dtype.itemsize

    @property
    @abstractmethod
    def _extents(self) -> tuple[Extent, ...]:
        """Elements along each dimension of what the kernel sees."""

    @classmethod
    def declare(cls, name: str, table: ArgumentTable, given: Scope, tuned: Scope) -> Self:
        """Return what a table of a study says; parameters stand in `tuned` only. Raises StudyError.

        As it stands for kinds of one field more, which the key gives.
        """
        where, make = f"arguments.{name}", cast("Callable[..., Self]", cls)
        kind = _declared_type(table.type, where, tuned, tuned)
        return make(name, kind, tuned.expression(getattr(table, cls.key), f"{where}.{cls.key}"))

    @abstractmethod
    def concrete(self, names: Mapping[str, Any], *, padded: bool = True) -> Self:
        """Return what a plan holds where the names have these values; unpadded: as its data is. Raises StudyError."""

    @abstractmethod
    def create(self, session: Session) -> Any:
        """Return it as `Session.set_arguments` takes it, in memory of its own where it takes any."""


@dataclass(frozen=True, slots=True)
class Buffer(Argument):
    """A global buffer: its data fills `shape`; the kernel sees `allocate`, each extent >= that of `shape`.

    `access` is `in`, `out`, `inout` (restored before each verified run), `scratch` or `zeroed` (before each
    run). What lies in `allocate` and not in `shape` is zero. `filled` names the input whose contents it begins with,
    where that is another's: the two have changed places when the run ends. `constant`: in constant memory.
    """

    shape: tuple[Extent, ...]
    allocate: tuple[Extent, ...]
    access: str = "in"
    data: Data = _UNIFORM
    filled: str = ""
    constant: bool = False

    key: ClassVar[str] = "shape"
    kind: ClassVar[str] = "a buffer"

    @property
    def reads(self) -> bool:
        return self.access in _READ

    @property
    def writes(self) -> bool:
        return self.access in _WRITTEN

    @property
    def data_shape(self) -> tuple[int, ...]:
        """The shape of its data: a vector type has one more axis."""
        _, width = numpy_type(self.type)
        return (*self.shape, width) if width > 1 else self.shape

    @property
    def _extents(self) -> tuple[Extent, ...]:
        return self.allocate

    @classmethod
    def declare(cls, name: str, table: ArgumentTable, given: Scope, tuned: Scope) -> Self:
        where, access, shaped = f"arguments.{name}", table.access or "", tuned
        if access in _READ | _WRITTEN:  # every configuration solves the same problem
            _require_no_parameter(table, where, given, tuned)
            shaped = given
        shape = shaped.expressions(table.shape or (), f"{where}.shape")
        kind = _declared_type(table.type, where, shaped, tuned)
        allocate = shape if table.allocate is None else tuned.expressions(table.allocate, f"{where}.allocate")
        return cls(name, kind, shape, allocate, access, _data(table, where, given), constant=table.constant)

    def concrete(self, names: Mapping[str, Any], *, padded: bool = True) -> Self:
        where = f"arguments.{self.name}"
        kind, shape = concrete_type(self.type, names), extents(self.shape, names, f"{where}.shape")
        allocate = extents(self.allocate, names, f"{where}.allocate") if padded else shape
        if tuple(map(max, allocate, shape)) != allocate:
            raise StudyError(f"allocates {allocate}, less than its shape {shape}", where=where)
        data = self.data.concrete(names, f"{where}.data")
        return replace(self, type=kind, shape=shape, allocate=allocate, data=data)

    def create(self, session: Session) -> Any:
        return session.allocate(self.nbytes)


@dataclass(frozen=True, slots=True)
class Scalar(Argument):
    """An argument passed by value; of a vector type every component has it."""

    value: Extent

    key: ClassVar[str] = "value"
    kind: ClassVar[str] = "a scalar"

    @property
    def _extents(self) -> tuple[Extent, ...]:
        return ()

    @property
    def effect(self) -> str:
        several = "{" not in self.type and numpy_type(self.type)[1] > 1
        return f"arguments.{self.name}: every component of {self.type} is {self.value.text}" if several else ""

    def concrete(self, names: Mapping[str, Any], *, padded: bool = True) -> Self:
        kind, value = concrete_type(self.type, names), self.value.evaluate(names)
        if isinstance(value, str):
            raise StudyError(f"gives the text {value!r}, not a number", where=f"arguments.{self.name}")
        return type(self)(self.name, kind, value)

    def create(self, session: Session) -> Any:
        dtype, width = numpy_type(self.type)
        return dtype.type(self.value) if width == 1 else np.full(width, self.value, dtype)


@dataclass(frozen=True, slots=True)
class Local(Argument):
    """A `__local` argument of `count` elements."""

    count: Extent

    key: ClassVar[str] = "local"
    kind: ClassVar[str] = "local memory"

    @property
    def local_count(self) -> Extent | None:
        return self.count

    @property
    def _extents(self) -> tuple[Extent, ...]:
        return (self.count,)

    def concrete(self, names: Mapping[str, Any], *, padded: bool = True) -> Self:
        (count,) = extents((self.count,), names, f"arguments.{self.name}.local")
        return type(self)(self.name, concrete_type(self.type, names), count)

    def create(self, session: Session) -> Any:
        return self.nbytes


KINDS: tuple[type[Argument], ...] = (Buffer, Scalar, Local)


def buffers_of(arguments: Iterable[Argument]) -> list[Buffer]:
    """Return those that lie in global memory."""
    return [argument for argument in arguments if isinstance(argument, Buffer)]


def extents(expressions: Iterable[Extent], names: Mapping[str, Any], where: str, *, least: int = 1) -> tuple[int, ...]:
    """Return the whole numbers that expressions of a study give. Raises StudyError below the least, and for others."""
    found = []
    for expression in expressions:
        value = expression.evaluate(names)
        if isinstance(value, str) or int(value) != value or value < least:
            raise StudyError(f"{expression.text} gives {value}, not a whole number of at least {least}", where=where)
        found.append(int(value))
    return tuple(found)


def filled(text: str, names: Mapping[str, Any]) -> str:
    """Return a type or a flag with values for the names in braces."""
    return BRACES.sub(lambda match: str(names[match[1]]), text) if "{" in text else text


def concrete_type(text: str, names: Mapping[str, Any]) -> str:
    """Return a type with the values in it. Raises StudyError where OpenCL has none of that name."""
    found = filled(text, names)
    numpy_type(found)
    return found


def _declared_type(text: str, where: str, shaped: Scope, tuned: Scope) -> str:
    """Return a type with the names in braces, also one that a name stands for. Raises StudyError."""
    text = text if "{" in text or text not in tuned.known else f"{{{text}}}"
    for name in BRACES.findall(text):
        shaped.require(name, f"{where}.type")
    if "{" not in text:
        try:
            numpy_type(text)
        except StudyError as error:
            raise error.at(f"{where}.type") from None
    return text


def _data(table: ArgumentTable, where: str, given: Scope) -> Data:
    """Return where a buffer's contents come from, its bounds read. Raises StudyError."""
    stated = dict(table.data or {})
    for key in ("low", "high", "value"):
        if isinstance(bound := stated.get(key), str):
            stated[key] = given.expression(bound, f"{where}.data.{key}")
    return Data(**stated)


def _require_no_parameter(table: ArgumentTable, where: str, given: Scope, tuned: Scope) -> None:
    """Raise StudyError where a parameter shapes data that every configuration has in common."""
    shapes = tuned.expressions(table.shape or (), f"{where}.shape")
    used = [(name, "shape") for each in shapes for name in each.names]
    used += [(name, "type") for name in BRACES.findall(table.type) or [table.type]]
    for name, key in sorted(used):
        if name in tuned.known - given.known:
            raise StudyError(
                f"{name} is a parameter, which cannot shape data that every configuration has in common",
                where=f"{where}.{key}",
                hint="pad with allocate, which may use parameters"
                if key == "shape"
                else "make it a choice, or cast in the kernel",
            )
