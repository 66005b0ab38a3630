"""What a caller gives a kernel: memory and scalars by name, checked before anything is enqueued.

A check is made once for each kind of array: an array like the last one of its name passes by one comparison, and the
last one itself by its identity. So each queue has slots of its own.
"""

from __future__ import annotations

import struct
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol
from typing import cast as cast_

import numpy as np

from autotune.devices import BackendError, Guest, Session
from autotune.errors import StudyError, UsageError
from autotune.study import Argument, Buffer, Image, Problem, Scalar, numpy_type, struct_name
from autotune.text import did_you_mean, line

_FORMATS = {
    "i1": "b", "u1": "B", "i2": "h", "u2": "H", "i4": "i", "u4": "I", "i8": "q", "u8": "Q",
    "f2": "e", "f4": "f", "f8": "d",
}  # fmt: skip
"""What `struct` calls NumPy's types; in its standard sizes, where alone it refuses a number beyond a float."""
_WHOLE = {bool, int, *(np.dtype(name).type for name in "bBhHiIlLqQ")}
_NUMBERS = {*_WHOLE, float, np.float16, np.float32, np.float64}


class Slot(Protocol):
    """One argument that callers give by name."""

    @property
    def argument(self) -> Argument:
        """What is given, concrete."""

    def take(self, guest: Guest, value: object) -> Any:
        """Return what the kernel is given for a value. Raises UsageError."""


class MemorySlot:
    """A buffer of the caller's: an array of the device, checked by type and extent, or plain memory by its bytes."""

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        self._dtype, self._width = numpy_type(buffer.type)
        self._known: object = None
        self._last: tuple[Callable[[], object], Callable[[Any], Any]] | None = None

    @property
    def argument(self) -> Argument:
        return self.buffer

    def take(self, guest: Guest, value: object) -> Any:
        last = self._last
        if last is not None and value is not None and last[0]() is value:  # nor is the array that is gone
            return last[1](value)
        try:
            given = guest.look_at(value)
        except BackendError as error:
            raise UsageError(f"{error}", where=self.buffer.name, hint="give a copy of the array") from None
        if given is None:
            raise self._is_none(value)
        found = given[1:6]
        if found != self._known:
            self._check(*found)
            self._known = found
        if given.again is not None:
            self._last = weakref.ref(value), given.again
        return given.memory

    def _check(
        self, nbytes: int, dtype: np.dtype[Any] | None, shape: tuple[int, ...] | None, in_order: bool, only: str
    ) -> None:
        buffer = self.buffer
        done = {"read": "written" if buffer.writes else "", "written": "read" if buffer.reads else ""}.get(only)
        if done:
            what = f"lies in memory that was made to be {only} only, and is {done}"
            raise UsageError(what, where=buffer.name, hint="make it with cl.mem_flags.READ_WRITE")
        if dtype is not None and shape is not None:
            shape = self._components(dtype, shape)
            if not in_order:
                what = "has gaps, runs backwards, or has its axes in another order than C's"
                raise UsageError(what, where=buffer.name, hint="give a contiguous copy")
            wanted = (*buffer.allocate, self._width) if self._width > 1 else buffer.allocate
            if len(shape) == len(wanted) > 1 and (shape[1:] != wanted[1:] or shape[0] < wanted[0]):
                raise UsageError(f"is of shape {_by(shape)}, the kernel takes {self.wants}", where=buffer.name)
        if nbytes < buffer.nbytes:
            what = f"has {nbytes:,} bytes, the kernel takes {buffer.nbytes:,}: {self.wants}"
            raise UsageError(what, where=buffer.name)

    def _components(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape with an axis of components, which an array of vectors or of complex numbers has not.

        A complex number lies in memory as a vector of two does.
        """
        if dtype == self._dtype:
            return shape
        fields = [field for field, *_ in (dtype.fields or {}).values()]
        if dtype.kind == "c":
            fields = [dtype.type().real.dtype] * 2
        whole = dtype.itemsize == self._width * self._dtype.itemsize
        if fields and whole and all(field == self._dtype for field in fields):
            return (*shape, self._width)
        hint = "np.dtype([...], align=True) lays members out as C does" if self._dtype.names else ""
        raise UsageError(f"holds {dtype}, the kernel takes {self.buffer.type}", where=self.buffer.name, hint=hint)

    @property
    def wants(self) -> str:
        """What the kernel takes: `1024 x 1024 float`."""
        buffer = self.buffer
        said = f"{_by(buffer.allocate)} {buffer.type}"
        padded = f", {_by(buffer.shape)} of them used, the rest zeros" if buffer.allocate != buffer.shape else ""
        four = ", each of which has the room of four" if buffer.type.endswith("3") else ""
        return said + padded + four

    def _is_none(self, value: object) -> UsageError:
        if isinstance(value, np.ndarray):
            hint = f"pyopencl.array.to_device(queue, {self.buffer.name}) puts it on the device"
            return UsageError("lies on the host", where=self.buffer.name, hint=hint)
        if getattr(value, "size", None) == 0:  # pyopencl gives an empty array no memory
            return UsageError(f"is empty, the kernel takes {self.wants}", where=self.buffer.name)
        if getattr(value, "base_data", None) is not None:
            hint = "make the array without an SVMAllocator"
            return UsageError("lies in shared virtual memory, which no call takes", where=self.buffer.name, hint=hint)
        what = f"{type(value).__name__} is no buffer of the device"
        return UsageError(what, where=self.buffer.name, hint="give a pyopencl array or buffer")


class ScalarSlot:
    """A scalar whose value the study states as a plain number: the default, which a caller may replace."""

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
    def argument(self) -> Argument:
        return self.scalar

    def take(self, guest: Guest | None, value: object) -> bytes:
        packed = None if self._fields else self._packed(value)
        if packed is not None:
            return packed
        if value is self.scalar.value or self._fields:  # the study's own, or a struct's record
            return self._record(value)
        one = self._width == 1
        try:
            found = _components(np.asarray(value))
            if found.shape == (3,) == (self._numbers,):  # they take the room of four
                found = np.append(found, found.dtype.type(0))
            if found.dtype.kind not in "biuf" or found.shape not in ((), () if one else (self._width,)):
                raise ValueError
            with np.errstate(all="ignore"):  # what does not fit is said below
                cast = found.astype(self._dtype)
            if self._dtype.kind != "f" and not np.array_equal(cast, found):
                raise ValueError
            if not np.array_equal(np.isinf(cast), np.isinf(found)):
                raise ValueError
        except (ValueError, TypeError, OverflowError):
            takes = self.scalar.type if one else f"{self.scalar.type}: {self._numbers} numbers, or one for all"
            raise UsageError(line(f"{value!r:.40} is no value of {takes}"), where=self.scalar.name) from None
        return np.broadcast_to(cast, () if one else (self._width,)).tobytes()

    def _packed(self, value: object) -> bytes | None:
        """Return the bytes of plain numbers, by the quickest way since kernels may take many; None for others."""
        several = self._width > 1 and isinstance(value, list | tuple)
        numbers: Any = value if several else (value,) * self._width
        if not self._plain.issuperset(map(type, numbers)):
            return None
        try:
            return self._pack(*numbers)
        except (struct.error, OverflowError):  # too few or too many, or beyond the type
            return None

    def _record(self, value: object) -> bytes:
        """Return a struct's bytes, the study's own or a record of the very same type."""
        made: Any = value
        if value is self.scalar.value:
            made = self.scalar.create(cast_("Session", None))
        elif not isinstance(value, np.ndarray | np.void) or (value.dtype, value.shape) != (self._dtype, ()):
            what = f"{value!r:.40} is no single record of {struct_name(self.scalar.type)}"
            dtype = f'numpy_type(kernel.arguments["{self.scalar.name}"].type)[0]'
            hint = f"give one of NumPy's, of the dtype {dtype}, from autotune.study.types"
            raise UsageError(line(what), where=self.scalar.name, hint=hint)
        return cast_("bytes", made.tobytes())


def _components(given: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the components of a vector that is a record of them, as `cl.cltypes.make_float4` makes it."""
    if given.dtype.names is None:
        return given
    from numpy.lib.recfunctions import structured_to_unstructured  # rarely given, slow to import

    return cast_("np.ndarray[Any, Any]", structured_to_unstructured(given))


def slots_of(problem: Problem, arguments: Mapping[str, Argument]) -> dict[str, Slot]:
    """Return what callers give for a problem, whatever its configuration; `arguments` are those of its plan.

    By the names with which buffers begin, where they change places. Raises StudyError for what no caller can give.
    """
    found: dict[str, Slot] = {}
    begins = {one.filled or name: one for name, one in arguments.items() if isinstance(one, Buffer)}
    launched = problem.study.launched
    for name, declared in problem.study.arguments.items():
        if name not in launched:
            continue
        if isinstance(declared, Buffer) and (declared.reads or declared.writes):
            if isinstance(declared, Image):
                what = "is an image, which a program cannot give to a tuned kernel yet"
                raise StudyError(what, where=f"arguments.{name}", hint="launch what `autotune best` names yourself")
            used = begins.get(name) or declared.concrete(problem.constants, padded=False)
            found[name] = MemorySlot(replace(used, name=name))
        elif isinstance(declared, Scalar) and not declared.names:
            found[name] = ScalarSlot(declared.concrete(problem.constants))
    return found


def mistaken(name: str, problem: Problem, slots: Mapping[str, Slot], given: Mapping[str, object]) -> UsageError:
    """Return what is wrong with the names of the arguments that a caller gives."""
    takes = f"{problem.study.name} takes {', '.join(slots)}"
    if name in given:
        if name in problem.study.sizes:
            return UsageError(f"is a size: autotune.tuned({problem.study.name!r}, {name}=...) decides it", where=name)
        if name in problem.study.arguments:
            return UsageError("is set by the kernel itself", where=name, hint=takes)
        return UsageError(f"no argument named {name!r}{did_you_mean(name, slots)}", hint=takes)
    return UsageError(f"no {name} is given", hint=takes)


def _by(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "one"
