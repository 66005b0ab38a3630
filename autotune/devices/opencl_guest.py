"""OpenCL within a user's program: its queue, its arrays and buffers, and kernels enqueued among its own commands.

Here the host's time for a call matters: a kernel of 20 us must not wait for Python. So a run sets only the arguments
that it is given, and scalars only if they have changed, and looks at memory through few attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from operator import attrgetter
from typing import Any

import numpy as np

from autotune.devices import drivers
from autotune.devices.backend import BackendError, Memory
from autotune.devices.guest import Given, GivenImage, Guest, Run, Step
from autotune.devices.opencl_objects import MOST_FILLED, OpenCLProgram, channel_of, refused, whole
from autotune.devices.opencl_session import OpenCLSession, describe, passed
from autotune.errors import DeviceError
from autotune.model import DeviceInfo
from autotune.text import line

import pyopencl as cl  # isort: skip  (after opencl_objects.py, which turns its cache off)

_ZERO = np.zeros(1, np.uint8)
_BLACK = np.zeros(4, np.uint32)  # all bytes 0, for every type of channel
_AXES = {
    "image1d": ("width",), "image2d": ("height", "width"), "image3d": ("depth", "height", "width"),
    "image1d_buffer": ("width",), "image2d_array": ("array_size", "height", "width"),
}  # fmt: skip
_base_data = attrgetter("base_data")


def attach(queue: object) -> Guest | None:
    """Return a Guest for a program's own queue, or None if it is not an OpenCL queue.

    Raises DeviceError if its context is gone. With Intel's CPU driver that happens once the program drops the context.
    """
    if not isinstance(queue, cl.CommandQueue):
        return None
    try:
        _ = queue.context
    except cl.Error as error:
        hint = "keep it as long as the queue: context = cl.create_some_context(); queue = cl.CommandQueue(context)"
        raise DeviceError(f"the queue's context is gone: {line(str(error))}", hint=hint) from None
    return OpenCLGuest(queue)


@cache
def _known(address: int, device: cl.Device) -> DeviceInfo:
    """Return the description of a device; cached, since drivers take a while to answer."""
    return describe(device)


class OpenCLGuest(OpenCLSession):
    """The program's context and queue; its methods are documented in `guest.Guest`."""

    def __init__(self, queue: cl.CommandQueue) -> None:
        self._queue = queue
        self._context, self._device = queue.context, queue.device
        self._unordered = bool(queue.properties & cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE)
        self._is_on(_known(self._device.int_ptr, self._device))

    def shares(self, other: Guest) -> bool:
        return isinstance(other, OpenCLGuest) and (self._context, self._device) == (other._context, other._device)

    def unbuildable(self) -> Sequence[str]:
        return drivers.unbuildable() if drivers.is_pocl(self.info) else ()

    def restore(self, binary: bytes, options: Sequence[str] = ()) -> OpenCLProgram:
        try:
            program = cl.Program(self._context, [self._device], [binary])
        except cl.Error as error:
            raise refused(error) from None
        return self._built(program, options)

    def look_at(self, value: object) -> Given | None:
        if isinstance(value, cl.Image):
            return None
        if isinstance(value, cl.MemoryObjectHolder):
            return Given(self._own(value), value.size, only=_only(value))
        array: Any = value
        try:
            base, offset, dtype, shape = array.base_data, array.offset, array.dtype, array.shape
        except AttributeError:
            return None
        if not isinstance(base, cl.MemoryObjectHolder):
            return None
        if offset and array.nbytes and array.flags.c_contiguous:
            base = self._part(base, offset, array.nbytes)
        again = None if offset else _base_data
        return Given(self._own(base), array.nbytes, dtype, shape, array.flags.c_contiguous, _only(base), again)

    def look_at_image(self, value: object) -> GivenImage | None:
        if not isinstance(value, cl.Image):
            return None
        image: Any = self._own(value)
        made = image.format
        kind = _name_of(cl.mem_object_type, image.type).lower()
        order = _name_of(cl.channel_order, made.channel_order)
        shape = tuple(getattr(image, axis) for axis in _AXES.get(kind, ()))
        return GivenImage(image, kind, shape, order, *channel_of(made.channel_data_type), _only(image))

    def _own(self, memory: Any) -> Memory:
        """Return the memory if it is of the queue's context. Drivers may ignore that it is of another, or crash."""
        if memory.context != self._context:
            raise BackendError("is in another context than the queue's")
        return memory

    def _part(self, base: cl.MemoryObjectHolder, offset: int, nbytes: int) -> Memory:
        """Return the part of a buffer that contains an array, if this does not begin at the buffer's start.

        OpenCL has no parts of parts, and memory from a pool has no method for parts. So the result is always a part of
        the whole buffer.
        """
        memory: Any = base
        try:
            around = memory.get_info(cl.mem_info.ASSOCIATED_MEMOBJECT)
            begin = offset if around is None else memory.get_info(cl.mem_info.OFFSET) + offset
            buffer: Any = cl.Buffer.from_int_ptr((memory if around is None else around).int_ptr)
            return buffer.get_sub_region(begin, nbytes)
        except cl.Error:
            what = f"begins {offset} bytes into its buffer, an offset that this device does not allow"
            raise BackendError(what) from None

    def sequence(self, steps: Sequence[Step], zeroed: Sequence[tuple[Memory, int]], *, chained: bool) -> Run:
        fills = [fill for memory, nbytes in zeroed for fill in self._fills(memory, nbytes)]
        if self._unordered:
            return self._in_chain(steps, fills, chained=chained)
        queue: Any = self._queue
        enqueue: Any = cl.enqueue_nd_range_kernel
        kernels, launches = _parts(steps)

        def run(given: Mapping[str, Any], wait_for: Sequence[cl.Event] | None) -> Any:
            event = None
            try:
                for arguments in kernels:
                    arguments.give(given)
                for fill in fills:
                    fill(wait_for=wait_for)
                    wait_for = None
                for arguments, kernel, global_size, local_size, offset, own in launches:
                    if own:
                        arguments.give_all(given, own)
                    event = enqueue(queue, kernel, global_size, local_size, offset, wait_for)
                    wait_for = None
            except cl.Error as error:
                raise refused(error) from None
            except (TypeError, RuntimeError) as error:  # pyopencl says std::bad_cast
                raise _unfit(wait_for, error) from None
            return event

        return run

    def _fills(self, memory: Any, nbytes: int) -> Iterator[Callable[..., cl.Event]]:
        """Yield functions that together fill memory with zeros; each takes the events to `wait_for`."""
        if isinstance(memory, cl.Image):
            yield partial(cl.enqueue_fill_image, self._queue, memory, _BLACK, *whole(memory))
            return
        for begin in range(0, nbytes, MOST_FILLED):
            part = min(MOST_FILLED, nbytes - begin)
            yield partial(cl.enqueue_fill, self._queue, memory, _ZERO, part, offset=begin)

    def _in_chain(self, steps: Sequence[Step], fills: Sequence[Callable[..., cl.Event]], *, chained: bool) -> Run:
        """Return the function for a queue that keeps no order: each command waits for the one before it."""
        queue: Any = self._queue
        kernels, launches = _parts(steps)
        last: list[cl.Event] = []

        def run(given: Mapping[str, Any], wait_for: Sequence[cl.Event] | None) -> Any:
            try:
                before: list[Any] = [*(wait_for or ()), *last]
                for arguments in kernels:
                    arguments.give(given)
                for fill in fills:
                    before = [fill(wait_for=before)]
                for arguments, kernel, global_size, local_size, offset, own in launches:
                    if own:
                        arguments.give_all(given, own)
                    before = [cl.enqueue_nd_range_kernel(queue, kernel, global_size, local_size, offset, before)]
            except cl.Error as error:
                raise refused(error) from None
            except (TypeError, RuntimeError) as error:  # pyopencl says std::bad_cast
                raise _unfit(wait_for, error) from None
            if chained:
                last[:] = before
            return before[0]

        return run


def _unfit(wait_for: Sequence[object] | None, error: Exception) -> BackendError:
    """Return the error for an argument that pyopencl rejects: all except `wait_for` were checked before."""
    fits = all(isinstance(event, cl.Event) for event in wait_for or ())
    return BackendError(line(str(error)) if fits else "wait_for holds a value that is not an OpenCL event")


class _Arguments:
    """The arguments of one kernel, which all its launches share.

    `set_arg` is fast for memory, but takes 5 us for a scalar, because it tries all kinds of memory first. `set_args`,
    once it knows the sizes, sets all arguments in half a microsecond.
    """

    def __init__(self, step: Step) -> None:
        kernel: Any = step.kernel
        self._values = [passed(value) for value in step.values]  # without a caller's memory: not kept alive
        self._given = step.given
        self._scalars = [(place, name) for place, name in step.given if isinstance(self._values[place], bytes)]
        self._memory = [one for one in step.given if one not in self._scalars]
        self._last: list[bytes] | None = [self._values[place] for place, _ in self._scalars]
        if self._scalars or step.own:
            kernel.set_arg_types([np.dtype(f"V{len(v)}") if isinstance(v, bytes) else None for v in self._values])
        self._set, self._set_all = kernel.set_arg, kernel.set_args

    def give(self, given: Mapping[str, Any]) -> None:
        """Set the arguments that a run gives; scalars only if one has changed since the last run."""
        scalars = [given[name] for _, name in self._scalars]
        if scalars == self._last:
            for place, name in self._memory:
                self._set(place, given[name])
        else:
            self._last = None  # unknown if the next line fails
            self.give_all(given)
            self._last = scalars

    def give_all(self, given: Mapping[str, Any], own: Sequence[tuple[int, bytes]] = ()) -> None:
        """Set every argument: those that a run gives, and those of one launch alone."""
        values = [*self._values]
        for place, name in self._given:
            values[place] = given[name]
        for place, value in own:
            values[place] = value
        self._set_all(*values)


def _parts(steps: Sequence[Step]) -> tuple[list[_Arguments], list[tuple[Any, ...]]]:
    """Return the arguments of each kernel to which runs give some, and for each launch all that enqueues it."""
    first = {id(step.kernel): step for step in reversed(steps)}
    arguments = {key: _Arguments(step) for key, step in first.items()}
    launches = [
        (arguments[id(step.kernel)], step.kernel, step.global_size, step.local_size, step.offset, step.own)
        for step in steps
    ]
    return [arguments[key] for key, step in first.items() if step.given], launches


def _name_of(constants: Any, value: int) -> str:
    return str(constants.to_string(value, "0x%x"))


def _only(memory: Any) -> str:
    """Return "read" or "written" if kernels may do only that with the memory, else an empty string."""
    if memory.flags & cl.mem_flags.READ_ONLY:
        return "read"
    return "written" if memory.flags & cl.mem_flags.WRITE_ONLY else ""
