"""A caller's arguments of a kernel: memory and scalars by name, checked before anything is enqueued."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol
from typing import cast as cast_

import numpy as np

from autotune.api.memory import ImageSlot, MemorySlot
from autotune.devices import Guest, Session
from autotune.errors import UsageError
from autotune.study import Argument, Buffer, Image, Problem, Scalar, numpy_type, struct_name
from autotune.text import did_you_mean, line

_FORMATS = {
    "i1": "b", "u1": "B", "i2": "h", "u2": "H", "i4": "i", "u4": "I", "i8": "q", "u8": "Q",
    "f2": "e", "f4": "f", "f8": "d",
}  # fmt: skip
"""The formats of `struct` for NumPy's types, used with standard sizes: otherwise it accepts numbers beyond a float."""
_WHOLE = {bool, int, *(np.dtype(name).type for name in "bBhHiIlLqQ")}
_NUMBERS = {*_WHOLE, float, np.float16, np.float32, np.float64}


class Slot(Protocol):
    """One argument that callers give by name."""

    @property
    def argument(self) -> Buffer | Scalar:
        """The concrete argument."""

    def take(self, guest: Guest, value: object) -> Any:
        """Return what the kernel gets for a value. Raises UsageError."""


class ScalarSlot:
    """A scalar for which the study has a plain number: this number is the default, which a caller may replace."""

    def __init__(self, scalar: Scalar) -> None:
        self.scalar = scalar
        self._dtype, self._width = numpy_type(scalar.type)
        self._fields = self._dtype.names is not None
        self._numbers = 3 if scalar.type.endswith("3") else self._width
        if not self._fields:
            self._pack = struct.Struct(f"={self._width}{_FORMATS[self._dtype.str[1:]]}").pack
        self._plain = _NUMBERS if self._dtype.kind == "f" else _WHOLE
        self.default = self.take(None, scalar.value)

    @property
    def argument(self) -> Scalar:
        return self.scalar

    def take(self, guest: Guest | None, value: object) -> bytes:
        packed = None if self._fields else self._packed(value)
        if packed is not None:
            return packed
        if value is self.scalar.value or self._fields:  # the study's own, or a struct's record
            return self._record(value)
        one = named = self._width == 1
        try:
            found = _components(np.asarray(value))
            if found.shape == (3,) == (self._numbers,):  # in memory a vector of three has four components
                found = np.append(found, found.dtype.type(0))
            if found.dtype.kind not in "biuf" or found.shape not in ((), () if one else (self._width,)):
                raise ValueError
            named = True  # the count is right: any error is a number that does not fit the type
            with np.errstate(all="ignore"):  # a number that does not fit is reported below
                cast = found.astype(self._dtype)
            if self._dtype.kind != "f" and not np.array_equal(cast, found):
                raise ValueError
            if not np.array_equal(np.isinf(cast), np.isinf(found)):
                raise ValueError
        except (ValueError, TypeError, OverflowError):
            takes = self.scalar.type if named else f"{self.scalar.type}: {self._numbers} numbers, or one for all"
            raise UsageError(line(f"{value!r:.40} is not a value of {takes}"), where=self.scalar.name) from None
        return np.broadcast_to(cast, () if one else (self._width,)).tobytes()

    def _packed(self, value: object) -> bytes | None:
        """Return the bytes of plain numbers, or None for others. It is fast, since kernels may take many."""
        several = self._width > 1 and isinstance(value, list | tuple)
        numbers: Any = value if several else (value,) * self._width
        if not self._plain.issuperset(map(type, numbers)):
            return None
        try:
            return self._pack(*numbers)
        except (struct.error, OverflowError):  # too few or too many, or beyond the type
            return None

    def _record(self, value: object) -> bytes:
        """Return the bytes of a struct: the study's own value, or a record of exactly its type."""
        made: Any = value
        if value is self.scalar.value:
            made = self.scalar.create(cast_("Session", None))
        elif not isinstance(value, np.ndarray | np.void) or (value.dtype, value.shape) != (self._dtype, ()):
            what = f"{value!r:.40} is not a single record of {struct_name(self.scalar.type)}"
            dtype = f'numpy_type(kernel.arguments["{self.scalar.name}"].type)[0]'
            hint = f"give a NumPy record of dtype {dtype}, from autotune.study.types"
            raise UsageError(line(what), where=self.scalar.name, hint=hint)
        return cast_("bytes", made.tobytes())


def _components(given: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the components of a vector that is given as a record, like those of `cl.cltypes.make_float4`."""
    if given.dtype.names is None:
        return given
    from numpy.lib.recfunctions import structured_to_unstructured  # rarely given, slow to import

    return cast_("np.ndarray[Any, Any]", structured_to_unstructured(given))


def slots_of(problem: Problem, arguments: Mapping[str, Argument]) -> dict[str, Slot]:
    """Return the arguments that callers give for a problem, in any configuration; `arguments` are those of its plan.

    If buffers change places during a run, they have the names with which they begin.
    """
    found: dict[str, Slot] = {}
    begins = {one.filled or name: one for name, one in arguments.items() if isinstance(one, Buffer)}
    launched = problem.study.launched
    for name, declared in problem.study.arguments.items():
        if name not in launched:
            continue
        if isinstance(declared, Buffer) and (declared.reads or declared.writes):
            used = replace(begins.get(name) or declared.concrete(problem.constants, padded=False), name=name)
            found[name] = ImageSlot(used) if isinstance(used, Image) else MemorySlot(used)
        elif isinstance(declared, Scalar) and not declared.names:
            found[name] = ScalarSlot(declared.concrete(problem.constants))
    return found


def mistaken(name: str, problem: Problem, slots: Mapping[str, Slot], given: Mapping[str, object]) -> UsageError:
    """Return the error for a wrong or missing argument name of a caller."""
    takes = f"{problem.study.name} takes {', '.join(slots)}"
    if name in given:
        if name in problem.study.sizes:
            return UsageError(f"is a size, given in autotune.tuned({problem.study.name!r}, {name}=...)", where=name)
        if name in problem.study.arguments:
            return UsageError("is set by the kernel itself", where=name, hint=takes)
        return UsageError(f"no argument named {name!r}{did_you_mean(name, slots)}", hint=takes)
    return UsageError(f"no {name} is given", hint=takes)
