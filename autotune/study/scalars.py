"""Arguments by value, numbers and structs, and local memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from autotune.errors import StudyError
from autotune.study.argument import Argument, Extent, concrete_type, declared_type, extents
from autotune.study.structs import is_struct, leaves, member_of, struct_name, widened
from autotune.study.types import holds, numpy_type
from autotune.text import did_you_mean

if TYPE_CHECKING:
    from autotune.devices import Session
    from autotune.study.schema import ArgumentTable
    from autotune.study.scope import Scope


class Members(tuple[tuple[str, Any], ...]):
    """The values of a struct's members by name."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Scalar(Argument):
    """An argument passed by value: one number (the same for all components of a vector), or one for each component.

    The value of a struct is `Members`, in which an array or a vector is a tuple.
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
        kind = declared_type(table.type, where, tuned, tuned)
        return cls(name, kind, _declared_value(table.value, f"{where}.value", tuned))

    def concrete(self, names: Mapping[str, Any], *, padded: bool = True) -> Self:
        where = f"arguments.{self.name}.value"
        made = type(self)(self.name, concrete_type(self.type, names), _evaluated(self.value, names, where))
        if isinstance(made.value, tuple) or is_struct(made.type):
            made._filled()
            return made
        dtype = numpy_type(made.type)[0]
        _require_held(made.value, dtype, made.type, where)
        whole = isinstance(made.value, bool) or dtype.kind in "iu"  # C and JSON have no other form for it
        return replace(made, value=int(made.value)) if whole else made

    def create(self, session: Session) -> Any:
        if isinstance(self.value, tuple):
            return self._filled()
        dtype, width = numpy_type(self.type)
        return dtype.type(self.value) if width == 1 else np.full(width, self.value, dtype)

    @property
    def named(self) -> Any:
        """The value that references use: the number that the kernel gets, or an array of the components in 64 bits."""
        if not isinstance(self.value, tuple):
            return numpy_type(self.type)[0].type(self.value).item()
        return widened(self._filled())

    def _filled(self) -> Any:
        """Return the components in the argument's type. Raises StudyError if their number or form is wrong."""
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
            shape, given = tuple(extent for extent, _ in leaf.axes), _nested_shape(value, f"{where}{leaf.label}")
            if given not in (shape, ()):
                what = f"{self.name}{leaf.label} takes {_counted(shape)}, the value has {_counted(given)}"
                raise StudyError(what, where=where)
            _require_held(value, place.dtype, leaf.scalar, f"{where}{leaf.label}")
            place[...] = value
        return found


def _counted(shape: tuple[int, ...]) -> str:
    return f"{' x '.join(map(str, shape))} numbers" if shape else "one number"


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


def _nested_shape(value: Any, where: str) -> tuple[int, ...]:
    """Return the extents of nested lists. Raises StudyError if lists differ in length, or hold a table."""
    if isinstance(value, Members):
        raise StudyError("holds a table, but is not a struct", where=where)
    if not isinstance(value, tuple):
        return ()
    shapes = {_nested_shape(part, where) for part in value}
    if len(shapes) > 1:
        raise StudyError("is a list of parts of different lengths", where=where)
    return (len(value), *(shapes.pop() if shapes else ()))


def _require_held(value: Any, dtype: np.dtype[Any], kind: str, where: str) -> None:
    """Raise StudyError for a number that a type does not hold; a float may lose precision."""
    if isinstance(value, tuple):
        for part in value:
            _require_held(part, dtype, kind, where)
    elif not holds(dtype, value):
        raise StudyError(f"{value}, which {kind} cannot hold", where=where, hint=_wider(dtype, value))


def _wider(dtype: np.dtype[Any], value: float) -> str:
    """Return a hint what to write if a type does not hold a number."""
    wider = ("float", "double") if dtype.kind == "f" else ("int", "uint", "long", "ulong")
    kind = next((each for each in wider if holds(numpy_type(each)[0], value)), "")
    if kind:
        return f'{kind} holds it: type = "{kind}" in [arguments] or [structs], and in the kernel'
    return "make it whole, as N // 2 does, or use a float" if dtype.kind in "iu" else "no type here holds it"


def _require_members(value: Any, dtype: np.dtype[Any], where: str) -> None:
    """Raise StudyError if the values are not those of the struct's members."""
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
            raise StudyError(f"{name} is not a struct", where=where)


@dataclass(frozen=True, slots=True)
class Local(Argument):
    """A `__local` argument of `count` elements."""

    count: Extent

    key: ClassVar[str] = "local"
    kind: ClassVar[str] = "local memory"

    @property
    def local_bytes(self) -> int:  # type: ignore[override]  # for other kinds a plain 0, without a call
        return self.nbytes

    @property
    def _extents(self) -> tuple[Extent, ...]:
        return (self.count,)

    def concrete(self, names: Mapping[str, Any], *, padded: bool = True) -> Self:
        (count,) = extents((self.count,), names, f"arguments.{self.name}.local")
        return type(self)(self.name, concrete_type(self.type, names), count)

    def create(self, session: Session) -> Any:
        return self.nbytes


def _names_in(value: Any) -> frozenset[str]:
    """Return the names in an expression, or in the expressions of a list or of a struct's members."""
    if isinstance(value, Members):
        value = tuple(part for _, part in value)
    if isinstance(value, tuple):
        return frozenset[str]().union(*map(_names_in, value))
    return getattr(value, "names", frozenset())
