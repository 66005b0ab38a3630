"""Memory that a caller gives a kernel: arrays, plain buffers, images.

Checks are not repeated: an array with the type and extents of its argument's last array passes after one comparison,
and the same array again by its identity. So each queue has slots of its own.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from autotune.devices import BackendError, GivenImage, Guest, Session
from autotune.errors import UsageError
from autotune.study import Buffer, Image, numpy_type

_Found = TypeVar("_Found")


class MemorySlot:
    """A caller's buffer: a device array, whose type and extents are checked, or plain memory, whose size is checked."""

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        self._dtype, self._width = numpy_type(buffer.type)
        self._known: object = None
        self._last: tuple[Callable[[], object], Callable[[Any], Any]] | None = None

    @property
    def argument(self) -> Buffer:
        return self.buffer

    def take(self, guest: Guest, value: object) -> Any:
        last = self._last
        if last is not None and value is not None and last[0]() is value:  # the reference to a dead array gives None
            return last[1](value)
        given = _looked_at(guest.look_at, value, self.buffer.name)
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
        _require_access(buffer, only)
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
        """Return the shape with an axis for components, which an array of vectors or complex numbers does not have.

        In memory a complex number is like a vector of two.
        """
        if dtype == self._dtype:
            return shape
        fields = [field for field, *_ in (dtype.fields or {}).values()]
        if dtype.kind == "c":
            fields = [dtype.type().real.dtype] * 2
        whole = dtype.itemsize == self._width * self._dtype.itemsize
        if fields and whole and all(field == self._dtype for field in fields):
            return (*shape, self._width)
        hint = "np.dtype([...], align=True) lays out members as C does" if self._dtype.names else ""
        raise UsageError(f"holds {dtype}, the kernel takes {self.buffer.type}", where=self.buffer.name, hint=hint)

    @property
    def wants(self) -> str:
        """What the kernel takes: `1024 x 1024 float`."""
        buffer = self.buffer
        said = f"{_by(buffer.allocate)} {buffer.type}"
        padded = f", {_by(buffer.shape)} of them used, the rest zeros" if buffer.allocate != buffer.shape else ""
        four = ", each in the space of four" if buffer.type.endswith("3") else ""
        return said + padded + four

    def _is_none(self, value: object) -> UsageError:
        if isinstance(value, np.ndarray):
            hint = f"pyopencl.array.to_device(queue, {self.buffer.name}) puts it on the device"
            return UsageError("lies on the host", where=self.buffer.name, hint=hint)
        if getattr(value, "size", None) == 0:  # pyopencl gives an empty array no memory
            return UsageError(f"is empty, the kernel takes {self.wants}", where=self.buffer.name)
        if getattr(value, "base_data", None) is not None:
            hint = "make the array without an SVMAllocator"
            return UsageError("is in shared virtual memory, which calls cannot take", where=self.buffer.name, hint=hint)
        what = f"{type(value).__name__} is not a buffer of the device"
        return UsageError(what, where=self.buffer.name, hint="give a pyopencl array or buffer")


class ImageSlot:
    """A caller's image. Its extents and format must match exactly: a kernel's results depend on an image's edges."""

    def __init__(self, image: Image) -> None:
        self.image = image
        self._known: object = None

    @property
    def argument(self) -> Image:
        return self.image

    def stand_in(self, session: Session) -> Any:
        """Return an image of one pixel, which is set until a call gives one: drivers may refuse a missing image."""
        return self.image.create(session, (1,) * len(self.image.shape))

    def take(self, guest: Guest, value: object) -> Any:
        given = _looked_at(guest.look_at_image, value, self.image.name)
        if given is None:
            what = "lies on the host" if isinstance(value, np.ndarray) else f"{type(value).__name__} is not an image"
            hint = f"give a pyopencl image: {self.wants}"
            raise UsageError(what, where=self.image.name, hint=hint)
        found = given[1:]
        if found != self._known:
            self._check(given)
            self._known = found
        return given.memory

    def _check(self, given: GivenImage) -> None:
        image = self.image
        _require_access(image, given.only)
        if given.kind != image.called:
            raise UsageError(f"is of kind {given.kind}, the kernel takes {self.wants}", where=image.name)
        found = (given.shape, given.order, given.channel, given.normalized)
        if found != (image.shape, image.order, image.channel, image.normalized):
            raise UsageError(f"has {_pixels(*found)}, the kernel takes {self.wants}", where=image.name)

    @property
    def wants(self) -> str:
        """What the kernel takes: `an image2d of 480 x 640 pixels of uchar RGBA, normalized`, rows before columns."""
        image = self.image
        pixels = _pixels(image.shape, image.order, image.channel, image.normalized)
        return f"an {image.called} of {pixels}"


def _looked_at(look: Callable[[object], _Found], value: object, name: str) -> _Found:
    try:
        return look(value)
    except BackendError as error:
        raise UsageError(f"{error}", where=name, hint="give a copy of it") from None


def _require_access(buffer: Buffer, only: str) -> None:
    """Raise UsageError if memory may `only` be "read" or "written", and the kernel does the other."""
    done = {"read": "written" if buffer.writes else "", "written": "read" if buffer.reads else ""}.get(only)
    if done:
        what = f"is in memory created to be only {only}, but is {done}"
        raise UsageError(what, where=buffer.name, hint="make it with cl.mem_flags.READ_WRITE")


def _by(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "one"


def _pixels(shape: tuple[int, ...], order: str, channel: str, normalized: bool) -> str:
    return f"{_by(shape)} pixels of {channel} {order}{', normalized' * normalized}"
