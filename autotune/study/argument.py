"""The base class of all kinds of arguments, and the functions that read their expressions and types.

Workers load this file: frozen plain data, no OpenCL, no pydantic.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, cast

from autotune.errors import StudyError, placed
from autotune.study.types import numpy_type

if TYPE_CHECKING:
    from autotune.devices import Session
    from autotune.study.schema import ArgumentTable
    from autotune.study.scope import Scope

Extent = Any
"""An Expression in a study, a number in a plan."""

BRACES = re.compile(r"\{(\w+)\}")
"""A name whose value is put into a type or a flag."""


class Data(NamedTuple):
    """Where the contents of an input come from: a distribution, a file, Python, or what a Python caller gave.

    In a study, `low`, `high` and `value` are expressions unless they are plain numbers; `low` and `high` are None if
    they are not written. `numpy` is the expression that computes the contents; in it, the argument's own name stands
    for the contents that the other keys give.
    """

    distribution: str = "uniform"
    low: Extent = None
    high: Extent = None
    value: Extent = 0
    seed: int = 1
    file: str | None = None
    part: str | None = None
    type: str | None = None
    numpy: str | None = None
    python: str | None = None
    given: str | None = None
    fields: tuple[tuple[str, Data], ...] = ()
    """The distributions of those members of a struct that have their own."""

    @property
    def bounds(self) -> tuple[float, float]:
        """The numbers between which it is drawn, in a plan: -1 and 1 if none are written."""
        return -1.0 if self.low is None else self.low, 1.0 if self.high is None else self.high

    @classmethod
    def declare(cls, table: Mapping[str, Any], where: str, given: Scope) -> Data:
        """Return the data that a table of a study declares, with its bounds parsed. Raises StudyError."""
        stated = {name: value for name, value in table.items() if name != "fields"}
        for key in ("low", "high", "value"):
            if isinstance(bound := stated.get(key), str):
                stated[key] = given.expression(bound, f"{where}.{key}")
        inner = (table.get("fields") or {}).items()
        members = ((name, cls.declare(dict(entry), f"{where}.fields.{name}", given)) for name, entry in inner)
        return cls(**stated, fields=tuple(members))

    def concrete(self, names: Mapping[str, Any], where: str) -> Data:
        """Return this data with numbers as bounds. Raises StudyError if a bound gives text."""
        found: dict[str, Any] = {}
        for key in ("low", "high", "value"):
            bound = getattr(self, key)
            if bound is not None and not isinstance(bound, int | float):
                found[key] = bound.evaluate(names)
                if isinstance(found[key], str):
                    raise StudyError(f"gives the text {found[key]!r}, not a number", where=f"{where}.{key}")
        if self.fields:
            members = ((name, inner.concrete(names, f"{where}.fields.{name}")) for name, inner in self.fields)
            found["fields"] = tuple(members)
        return self._replace(**found) if found else self


@dataclass(frozen=True, slots=True)
class Argument(ABC):
    """Base of all kinds of arguments: a name, and an OpenCL type, which may contain `{CHOICE}` in a study."""

    name: str
    type: str

    key: ClassVar[str]
    """The key of its table that only this kind has."""
    kind: ClassVar[str]
    """The name of this kind in messages."""
    local_bytes: ClassVar[int] = 0
    """Bytes of `__local` memory that it takes in a plan."""

    @property
    def reads(self) -> bool:
        """Whether input data is drawn for it."""
        return False

    @property
    def writes(self) -> bool:
        """Whether it is an output, which is compared."""
        return False

    @property
    def effect(self) -> str:
        """A line about something that the author may not have meant; empty if there is nothing."""
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
        """Return the argument that a table of a study declares; only `tuned` knows parameters. Raises StudyError.

        This implementation serves kinds with one field of their own: an expression under `key`.
        """
        where, make = f"arguments.{name}", cast("Callable[..., Self]", cls)
        kind = declared_type(table.type, where, tuned, tuned)
        return make(name, kind, tuned.expression(getattr(table, cls.key), f"{where}.{cls.key}"))

    @abstractmethod
    def concrete(self, names: Mapping[str, Any], *, padded: bool = True) -> Self:
        """Return it for a plan, with these values of the names; not `padded`: as its data is. Raises StudyError."""

    @abstractmethod
    def create(self, session: Session) -> Any:
        """Return it in the form that `Session.set_arguments` takes, in newly allocated memory if it needs any."""


def extents(expressions: Iterable[Extent], names: Mapping[str, Any], where: str, *, least: int = 1) -> tuple[int, ...]:
    """Return the whole numbers that expressions give. Raises StudyError if one is not whole, or less than `least`."""
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
    """Return a type with values for the names in braces. Raises StudyError if OpenCL has no such type."""
    found = filled(text, names)
    numpy_type(found)
    return found


def declared_type(text: str, where: str, shaped: Scope, tuned: Scope) -> str:
    """Return a type with names in braces: `T` becomes `{T}`, a struct's name its text. Raises StudyError."""
    text = tuned.structs.get(text.removeprefix("struct ").strip(), text)
    text = text if "{" in text or text not in tuned.known else f"{{{text}}}"
    for name in BRACES.findall(text):
        shaped.require(name, f"{where}.type")
    if not BRACES.search(text):
        with placed(f"{where}.type"):
            numpy_type(text)
    return text
