"""What a caller gives a kernel: memory and scalars by name, checked before anything is enqueued.

A check is made once for each kind of array: an array like the last one of its name passes by one comparison, and the
last one itself by its identity. So each queue has slots of its own.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from autotune.devices import BackendError, Guest
from autotune.errors import StudyError, UsageError
from autotune.study import Argument, Buffer, Image, Launch, Problem, Scalar, is_struct, numpy_type
from autotune.text import did_you_mean


class Slot(Protocol):
    """One argument that callers give by name."""

    def take(self, guest: Guest, value: object) -> Any:
        """Return what the kernel is given for a value. Raises UsageError."""


class MemorySlot:
    """A buffer of the caller's: an array of the device, checked by type and extent, or plain memory by its bytes."""

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        self._dtype, self._width = numpy_type(buffer.type)
        self._known: object = None
        self._last: tuple[Callable[[], object], Callable[[Any], Any]] | None = None

    def take(self, guest: Guest, value: object) -> Any:
        last = self._last
        if last is not None and last[0]() is value:
            return last[1](value)
        try:
            given = guest.look_at(value)
        except BackendError as error:
            raise UsageError(f"{error}", where=self.buffer.name, hint="give a copy of the array") from None
        if given is None:
            raise self._is_none(value)
        found = given[1:5]
        if found != self._known:
            self._check(*found)
            self._known = found
        if given.again is not None:
            self._last = weakref.ref(value), given.again
        return given.memory

    def _check(self, nbytes: int, dtype: np.dtype[Any] | None, shape: tuple[int, ...] | None, in_order: bool) -> None:
        buffer = self.buffer
        if dtype is not None and shape is not None:
            shape = self._components(dtype, shape)
            if not in_order:
                raise UsageError("has gaps, or its axes in another order than C's", where=buffer.name,
                                 hint="give a contiguous copy")  # fmt: skip
            wanted = (*buffer.allocate, self._width) if self._width > 1 else buffer.allocate
            if len(shape) == len(wanted) > 1 and (shape[1:] != wanted[1:] or shape[0] < wanted[0]):
                raise UsageError(f"is of shape {_by(shape)}, the kernel takes {self.wants}", where=buffer.name)
        if nbytes < buffer.nbytes:
            what = f"has {nbytes:,} bytes, the kernel takes {buffer.nbytes:,}: {self.wants}"
            raise UsageError(what, where=buffer.name)

    def _components(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape with an axis of components, which an array of OpenCL's vectors has not."""
        if dtype == self._dtype:
            return shape
        fields = [field for field, *_ in (dtype.fields or {}).values()]
        whole = dtype.itemsize == self._width * self._dtype.itemsize
        if fields and whole and all(field == self._dtype for field in fields):
            return (*shape, self._width)
        raise UsageError(f"holds {dtype}, the kernel takes {self.buffer.type}", where=self.buffer.name)

    @property
    def wants(self) -> str:
        """What the kernel takes: `1024 x 1024 float`."""
        buffer = self.buffer
        said = f"{_by(buffer.allocate)} {buffer.type}"
        padded = f", {_by(buffer.shape)} of them used, the rest zeros" if buffer.allocate != buffer.shape else ""
        return said + padded

    def _is_none(self, value: object) -> UsageError:
        if isinstance(value, np.ndarray):
            hint = f"pyopencl.array.to_device(queue, {self.buffer.name}) puts it on the device"
            return UsageError("lies on the host", where=self.buffer.name, hint=hint)
        what = f"{type(value).__name__} is no memory of the device"
        return UsageError(what, where=self.buffer.name, hint="give a pyopencl array or buffer")


class ScalarSlot:
    """A scalar whose value the study states as a plain number: the default, which a caller may replace."""

    def __init__(self, scalar: Scalar) -> None:
        self.scalar = scalar
        self._dtype, self._width = numpy_type(scalar.type)
        self.default = self.take(None, scalar.value)

    def take(self, guest: Guest | None, value: object) -> Any:
        one = self._width == 1
        try:
            found = np.asarray(value)
            if found.dtype.kind not in "biuf" or found.shape not in ((), () if one else (self._width,)):
                raise ValueError
            cast = found.astype(self._dtype)
            if self._dtype.kind != "f" and not np.array_equal(cast, found):
                raise ValueError
        except (ValueError, TypeError, OverflowError):
            takes = self.scalar.type if one else f"{self.scalar.type}: {self._width} numbers, or one for all"
            raise UsageError(f"{value!r:.40} is no value of {takes}", where=self.scalar.name) from None
        return cast[()] if one else np.broadcast_to(cast, (self._width,)).copy()


def slots_of(problem: Problem, arguments: Mapping[str, Argument]) -> dict[str, Slot]:
    """Return what callers give for a problem, whatever its configuration; `arguments` are those of its plan.

    Raises StudyError for a kind of argument that no caller can give.
    """
    found: dict[str, Slot] = {}
    launches = [launch for launch in problem.study.launches if isinstance(launch, Launch) and launch.offset is None]
    if len(launches) < len(problem.study.launches):
        what = "repeats launches, or begins them at an offset: a program does that itself"
        raise StudyError(what, where=f"study {problem.study.name}", hint="autotune.best gives it the values")
    launched = {name for launch in launches for name in launch.arguments}
    for name, declared in problem.study.arguments.items():
        if name not in launched:
            continue
        if isinstance(declared, Image) or (isinstance(declared, Scalar) and is_struct(declared.type)):
            raise StudyError(f"a program cannot give {declared.kind} to a tuned kernel", where=f"arguments.{name}")
        if isinstance(declared, Buffer):
            if declared.reads or declared.writes:
                used = arguments.get(name) or problem.inputs.get(name) or problem.outputs[name]
                assert isinstance(used, Buffer)
                found[name] = MemorySlot(used)
        elif isinstance(declared, Scalar):
            if not declared.names:
                found[name] = ScalarSlot(declared.concrete(problem.constants))
        elif declared.local_count is None:
            raise StudyError(f"a program cannot give {declared.kind} to a tuned kernel", where=f"arguments.{name}")
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
