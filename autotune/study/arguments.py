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
from autotune.study.structs import is_struct, leaves, member_of, struct_name, widened
from autotune.study.types import numpy_type, scalar_type
from autotune.text import did_you_mean

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
    fields: tuple[tuple[str, Data], ...] = ()
    """What the members of a struct are drawn from, where they have a distribution of their own."""

    @classmethod
    def declare(cls, table: Mapping[str, Any], where: str, given: Scope) -> Data:
        """Return what a table of a study says, its bounds read. Raises StudyError."""
        stated = {name: value for name, value in table.items() if name != "fields"}
        for key in ("low", "high", "value"):
            if isinstance(bound := stated.get(key), str):
                stated[key] = given.expression(bound, f"{where}.{key}")
        inner = (table.get("fields") or {}).items()
        members = ((name, cls.declare(dict(entry), f"{where}.fields.{name}", given)) for name, entry in inner)
        return cls(**stated, fields=tuple(members))

    def concrete(self, names: Mapping[str, Any], where: str) -> Data:
        """Return it with numbers for bounds. Raises StudyError where one gives text."""
        found: dict[str, Any] = {}
        for key in ("low", "high", "value"):
            bound = getattr(self, key)
            if not isinstance(bound, int | float):
                found[key] = bound.evaluate(names)
                if isinstance(found[key], str):
                    raise StudyError(f"gives the text {found[key]!r}, not a number", where=f"{where}.{key}")
        if self.fields:
            members = ((name, inner.concrete(names, f"{where}.fields.{name}")) for name, inner in self.fields)
            found["fields"] = tuple(members)
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
        data = Data.declare(dict(table.data or {}), f"{where}.data", given)
        return cls(name, kind, shape, allocate, access, data, constant=table.constant)

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
class Image(Buffer):
    """An image of one to three dimensions; as data it is a buffer of vectors, one component a channel.

    `shape` is as NumPy has it: `(height, width)`. `order` is OpenCL's order of channels; `normalized`: the kernel sees
    whole numbers as 0 to 1 (or -1 to 1). On the device its pixels lie beside it in a buffer, from which it is filled
    and into which it is copied to be checked.
    """

    order: str = "RGBA"
    normalized: bool = False

    key: ClassVar[str] = "image"
    kind: ClassVar[str] = "an image"

    @classmethod
    def declare(cls, name: str, table: ArgumentTable, given: Scope, tuned: Scope) -> Self:
        where, shape = f"arguments.{name}", given.expressions(table.image or (), f"arguments.{name}.image")
        order, kind = table.channels or "RGBA", _declared_type(table.type, where, given, tuned)
        if "{" not in kind and (scalar_type(kind)[2] != 1 or kind in ("long", "ulong", "double")):
            hint = f'an image of order {order} and type "float" is read as float4 by the kernel'
            raise StudyError(f"{kind!r} is no type of a channel", where=f"{where}.type", hint=hint)
        width = "" if CHANNELS[order] == 1 else str(CHANNELS[order])
        data, normalized = Data.declare(dict(table.data or {}), f"{where}.data", given), bool(table.normalized)
        access = table.access or ""
        return cls(name, kind + width, shape, shape, access, data, order=order, normalized=normalized)

    def concrete(self, names: Mapping[str, Any], *, padded: bool = True) -> Self:
        made = super(Image, self).concrete(names, padded=padded)
        if self.normalized and made.channel not in ("char", "uchar", "short", "ushort"):
            what = f"a channel of {made.channel} is not normalized: that is for whole numbers of 8 and 16 bits"
            raise StudyError(what, where=f"arguments.{self.name}.normalized")
        return made

    @property
    def channel(self) -> str:
        """OpenCL's scalar type of one channel."""
        return scalar_type(self.type)[1]

    def create(self, session: Session) -> Any:
        return session.image(self.shape, self.order, self.channel, self.normalized)


CHANNELS = {
    "R": 1, "A": 1, "RG": 2, "RA": 2, "RGBA": 4, "BGRA": 4, "ARGB": 4, "INTENSITY": 1, "LUMINANCE": 1,
}  # fmt: skip
"""Orders of channels, and how many components they have."""


@dataclass(frozen=True, slots=True)
class Sampler(Argument):
    """How a kernel reads images, as an argument: addressing, filter, whether coordinates run from 0 to 1."""

    addressing: str
    filter: str
    normalized: bool

    key: ClassVar[str] = "sampler"
    kind: ClassVar[str] = "a sampler"

    @property
    def _extents(self) -> tuple[Extent, ...]:
        return ()

    @classmethod
    def declare(cls, name: str, table: ArgumentTable, given: Scope, tuned: Scope) -> Self:
        said = table.sampler
        assert said is not None
        return cls(name, "sampler_t", said.addressing, said.filter, said.normalized)

    def concrete(self, names: Mapping[str, Any], *, padded: bool = True) -> Self:
        return self

    def create(self, session: Session) -> Any:
        return session.sampler(self.addressing, self.filter, self.normalized)


class Members(tuple[tuple[str, Any], ...]):
    """The values of a struct's members by name."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Scalar(Argument):
    """An argument passed by value: one number, which every component of a vector then has, or one for each component.

    Of a struct the values are `Members`, in which an array or a vector is a tuple.
    """

    value: Extent

    key: ClassVar[str] = "value"
    kind: ClassVar[str] = "a scalar"

    @property
    def _extents(self) -> tuple[Extent, ...]:
        return ()

    @property
    def effect(self) -> str:
        one = not isinstance(self.value, tuple) and "{" not in self.type and numpy_type(self.type)[1] > 1
        return f"arguments.{self.name}: every component of {self.type} is {self.value.text}" if one else ""

    @property
    def names(self) -> frozenset[str]:
        """The names in the expressions of its value."""
        return _names_in(self.value)

    @classmethod
    def declare(cls, name: str, table: ArgumentTable, given: Scope, tuned: Scope) -> Self:
        where = f"arguments.{name}"
        kind = _declared_type(table.type, where, tuned, tuned)
        return cls(name, kind, _declared_value(table.value, f"{where}.value", tuned))

    def concrete(self, names: Mapping[str, Any], *, padded: bool = True) -> Self:
        where = f"arguments.{self.name}.value"
        made = type(self)(self.name, concrete_type(self.type, names), _evaluated(self.value, names, where))
        if isinstance(made.value, tuple) or is_struct(made.type):
            made._filled()
        return made

    def create(self, session: Session) -> Any:
        dtype, width = numpy_type(self.type)
        if isinstance(self.value, tuple) or is_struct(self.type):
            return self._filled()
        return dtype.type(self.value) if width == 1 else np.full(width, self.value, dtype)

    @property
    def named(self) -> Any:
        """What references see: a number, or an array of the components in 64 bits."""
        if not isinstance(self.value, tuple):
            return self.value
        found = self._filled()
        return found.astype(widened(found.dtype))

    def _filled(self) -> Any:
        """Return the components in the argument's type. Raises StudyError where they are not as many."""
        dtype, width = numpy_type(self.type)
        where, record = f"arguments.{self.name}.value", is_struct(self.type)
        if record != isinstance(self.value, Members):
            form = '{ MEMBER = "..." }' if record else 'a list such as ["1", "2"], or one expression'
            raise StudyError(f"the value of {struct_name(self.type)} is {form}", where=where)
        found = np.zeros((width,) if width > 1 else (), dtype)
        if record:
            _require_members(self.value, dtype, where)
        for leaf in leaves(self.type):
            place, value = member_of(found, leaf), _value_at(self.value, leaf.path)
            shape, given = tuple(extent for extent, _ in leaf.axes), _nested_shape(value)
            if given not in (shape, ()):
                kind = "".join(f"[{extent}]" for extent in shape) or "one number"
                what = f"{self.name}{leaf.label} has {kind}, the value {list(given)}"
                raise StudyError(what, where=where)
            place[...] = value
        return found


def _declared_value(value: Any, where: str, scope: Scope) -> Any:
    if isinstance(value, Mapping):
        return Members((name, _declared_value(part, f"{where}.{name}", scope)) for name, part in value.items())
    if isinstance(value, list | tuple):
        return tuple(_declared_value(part, f"{where}.{n}", scope) for n, part in enumerate(value, 1))
    return scope.expression(value, where)


def _evaluated(value: Any, names: Mapping[str, Any], where: str) -> Any:
    if isinstance(value, Members):
        return Members((name, _evaluated(part, names, f"{where}.{name}")) for name, part in value)
    if isinstance(value, tuple):
        return tuple(_evaluated(part, names, where) for part in value)
    found = value.evaluate(names)
    if isinstance(found, str):
        raise StudyError(f"gives the text {found!r}, not a number", where=where)
    return found


def _value_at(value: Any, path: tuple[str, ...]) -> Any:
    """Return the numbers of one member, through arrays of structs."""
    if not path:
        return value
    if isinstance(value, Members):
        return _value_at(dict(value)[path[0]], path[1:])
    return tuple(_value_at(part, path) for part in value)


def _nested_shape(value: Any) -> tuple[int, ...]:
    if not isinstance(value, tuple):
        return ()
    shapes = {_nested_shape(part) for part in value}
    return (len(value), *(shapes.pop() if len(shapes) == 1 else ()))


def _require_members(value: Any, dtype: np.dtype[Any], where: str) -> None:
    """Raise StudyError where the values are not those of the struct's members."""
    fields: Mapping[str, Any] = dtype.fields or {}
    if not isinstance(value, Members):
        if not isinstance(value, tuple):
            raise StudyError('a struct is { MEMBER = "..." }', where=where)
        for part in value:
            _require_members(part, dtype, where)
        return
    given = dict(value)
    for name in given:
        if name not in fields:
            raise StudyError(f"the struct has no member {name!r}{did_you_mean(name, fields)}", where=where)
    if lacks := [name for name in fields if name not in given]:
        raise StudyError(f"lacks {', '.join(lacks)}", where=where, hint=f'add {lacks[0]} = "0"')
    for name, part in given.items():
        inner = fields[name][0].base
        if inner.names is not None:
            _require_members(part, inner, f"{where}.{name}")
        elif isinstance(part, Members):
            raise StudyError(f"{name} is no struct", where=where)


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


KINDS: tuple[type[Argument], ...] = (Buffer, Image, Sampler, Scalar, Local)


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
    text = tuned.structs.get(text.removeprefix("struct ").strip(), text)
    text = text if "{" in text or text not in tuned.known else f"{{{text}}}"
    for name in BRACES.findall(text):
        shaped.require(name, f"{where}.type")
    if not BRACES.search(text):
        try:
            numpy_type(text)
        except StudyError as error:
            raise error.at(f"{where}.type") from None
    return text


def _names_in(value: Any) -> frozenset[str]:
    """Return the names in an expression, or in those of a list, or of a struct's members."""
    if isinstance(value, Members):
        value = tuple(part for _, part in value)
    if isinstance(value, tuple):
        return frozenset[str]().union(*map(_names_in, value))
    return getattr(value, "names", frozenset())


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
                hint="pad with allocate, which may use parameters, or let [check] stand for the output"
                if key == "shape"
                else "make it a choice, or cast in the kernel",
            )
