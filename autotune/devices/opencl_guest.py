"""OpenCL within somebody else's program: its queue, its arrays and buffers, and kernels enqueued among what it does.

What a call costs the host is what counts here: a kernel of 20 us is not to wait for Python. So a run sets only the
arguments that it is given, and looks at memory through few attributes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from operator import attrgetter
from typing import Any, cast

import numpy as np

from autotune.devices.backend import BackendError, Memory
from autotune.devices.guest import Given, Guest, Run, Step
from autotune.devices.opencl import OpenCLSession, describe
from autotune.devices.opencl_objects import MOST_FILLED, OpenCLProgram, refused
from autotune.model import DeviceInfo
from autotune.text import line

import pyopencl as cl  # isort: skip  (after opencl_objects.py, which turns its cache off)

_ZERO = np.zeros(1, np.uint8)
_base_data = attrgetter("base_data")


def attach(queue: object) -> Guest | None:
    """Return a program's own queue as one to build and launch for; None for what is no queue of OpenCL's."""
    return OpenCLGuest(queue) if isinstance(queue, cl.CommandQueue) else None


@cache
def _known(address: int, device: cl.Device) -> DeviceInfo:
    """What a device is; asked once, since drivers take their time."""
    return describe(device)


class OpenCLGuest(OpenCLSession):
    """The program's context and queue; what its methods do stands in `guest.Guest`."""

    def __init__(self, queue: cl.CommandQueue) -> None:
        self._queue = queue
        self._context, self._device = queue.context, queue.device
        self._unordered = bool(queue.properties & cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE)
        self._is_on(_known(self._device.int_ptr, self._device))

    def shares(self, other: Guest) -> bool:
        return isinstance(other, OpenCLGuest) and (self._context, self._device) == (other._context, other._device)

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
            return Given(self._own(value), value.size)
        array: Any = value
        try:
            base, offset, dtype, shape = array.base_data, array.offset, array.dtype, array.shape
        except AttributeError:
            return None
        if not isinstance(base, cl.MemoryObjectHolder):
            return None
        if offset:
            base = self._part(base, offset, array.nbytes)
        again = None if offset else _base_data
        return Given(self._own(base), array.nbytes, dtype, shape, array.flags.c_contiguous, again)

    def _own(self, memory: Any) -> Memory:
        """Return memory of the queue's context: drivers need not notice another's, nor survive it."""
        if memory.context != self._context:
            raise BackendError("lies in another context than the queue's")
        return memory

    def _part(self, base: cl.MemoryObjectHolder, offset: int, nbytes: int) -> Memory:
        """Return the part of a buffer in which an array lies that does not begin where its buffer does."""
        try:
            return cast("Any", base).get_sub_region(offset, nbytes)
        except (cl.Error, AttributeError):
            what = f"begins {offset} bytes into its buffer, where this device lets no argument begin"
            raise BackendError(what) from None

    def sequence(self, steps: Sequence[Step], zeroed: Sequence[tuple[Memory, int]], *, chained: bool) -> Run:
        fills = [
            (memory, begin, min(MOST_FILLED, nbytes - begin))
            for memory, nbytes in zeroed
            for begin in range(0, nbytes, MOST_FILLED)
        ]
        if self._unordered:
            return self._in_chain(steps, fills, chained=chained)
        queue: Any = self._queue
        enqueue: Any = cl.enqueue_nd_range_kernel
        setters, launches = _setters(steps), _launches(steps)

        def run(given: Mapping[str, Any], wait_for: Sequence[cl.Event] | None) -> Any:
            event = None
            try:
                for set_argument, places in setters:
                    for position, name in places:
                        set_argument(position, given[name])
                for memory, begin, nbytes in fills:
                    cl.enqueue_fill(queue, memory, _ZERO, nbytes, offset=begin, wait_for=wait_for)
                    wait_for = None
                for kernel, global_size, local_size, offset, own in launches:
                    for position, value in own:
                        kernel.set_arg(position, value)
                    event = enqueue(queue, kernel, global_size, local_size, offset, wait_for)
                    wait_for = None
            except cl.Error as error:
                raise refused(error) from None
            except (TypeError, RuntimeError) as error:  # pyopencl says std::bad_cast
                raise _unfit(wait_for, error) from None
            return event

        return run

    def _in_chain(self, steps: Sequence[Step], fills: Sequence[tuple[Memory, int, int]], *, chained: bool) -> Run:
        """Return the function for a queue that keeps no order: what has to follow waits for what was before it."""
        queue: Any = self._queue
        setters, launches = _setters(steps), _launches(steps)
        last: list[cl.Event] = []

        def run(given: Mapping[str, Any], wait_for: Sequence[cl.Event] | None) -> Any:
            try:
                before: list[Any] = [*(wait_for or ()), *last]
                for set_argument, places in setters:
                    for position, name in places:
                        set_argument(position, given[name])
                for memory, begin, nbytes in fills:
                    before = [cl.enqueue_fill(queue, memory, _ZERO, nbytes, offset=begin, wait_for=before)]
                for kernel, global_size, local_size, offset, own in launches:
                    for position, value in own:
                        kernel.set_arg(position, value)
                    before = [cl.enqueue_nd_range_kernel(queue, kernel, global_size, local_size, offset, before)]
            except cl.Error as error:
                raise refused(error) from None
            except (TypeError, RuntimeError) as error:  # pyopencl says std::bad_cast
                raise _unfit(wait_for, error) from None
            if chained:
                last[:] = before
            return before[0]

        return run


def _unfit(wait_for: object, error: Exception) -> BackendError:
    """Return what to say where pyopencl does not take what it is given: all but `wait_for` was looked at before."""
    try:
        fits = all(isinstance(event, cl.Event) for event in cast("Any", wait_for or ()))
    except TypeError:  # no sequence
        fits = False
    return BackendError(line(str(error)) if fits else "wait_for holds what is no event of OpenCL's")


def _setters(steps: Sequence[Step]) -> list[tuple[Any, tuple[tuple[int, str], ...]]]:
    """Return how each kernel is given its arguments, once where several launches share it."""
    kernels: dict[int, tuple[Any, Step]] = {id(step.kernel): (step.kernel, step) for step in steps}
    return [(kernel.set_arg, step.given) for kernel, step in kernels.values() if step.given]


def _launches(steps: Sequence[Step]) -> list[tuple[Any, ...]]:
    return [(step.kernel, step.global_size, step.local_size, step.offset, step.own) for step in steps]
