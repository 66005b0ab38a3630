"""Gates: what holds back the commands behind it in a queue until the host says so.

With all commands queued before the first may run, how fast the host enqueues them does not show in their time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np
import pyopencl as cl

_SOURCE = """
kernel void gate(volatile global int *open)
{
    for (uint turn = 0; turn < 1000000u && atomic_or(open, 0) == 0; ++turn)
        ;
    atomic_xchg(open, 0);
}
"""


class Gate(Protocol):
    """Stands in a queue from `hold` until `release`, which may be called again for nothing."""

    def hold(self) -> None: ...

    def release(self) -> None: ...


class KernelGate:
    """A kernel that waits for a word of device memory, which comes by another queue.

    What is behind it is on the device already. Where the other queue waits for the kernel, it gives up after a second.
    """

    def __init__(self, context: cl.Context, queue: cl.CommandQueue, other: cl.CommandQueue) -> None:
        self._queue, self._other = queue, other
        self._word = cl.Buffer(context, cl.mem_flags.READ_WRITE, 4)
        self._closed, self._open, self._held = np.zeros(1, np.int32), np.ones(1, np.int32), False
        self._kernel = cl.Kernel(cl.Program(context, _SOURCE).build(), "gate")
        self._kernel.set_arg(0, self._word)
        cl.enqueue_copy(queue, self._word, self._closed, is_blocking=True)

    def hold(self) -> None:
        """Hold back what is enqueued from here on."""
        cl.enqueue_nd_range_kernel(self._queue, self._kernel, (1,), (1,))
        self._queue.flush()
        self._held = True

    def release(self) -> None:
        """Let it run."""
        if self._held:
            self._held = False
            cl.enqueue_copy(self._other, self._word, self._open, is_blocking=False)
            self._other.flush()


class EventGate:
    """A marker that waits for an event of the host's. A driver may keep what is behind it on the host."""

    def __init__(self, context: cl.Context, queue: cl.CommandQueue, _other: cl.CommandQueue) -> None:
        self._context, self._queue = context, queue
        self._event: cl.UserEvent | None = None

    def hold(self) -> None:
        """Hold back what is enqueued from here on."""
        self._event = cl.UserEvent(self._context)
        cl.enqueue_marker(self._queue, [self._event])

    def release(self) -> None:
        """Let it run."""
        event, self._event = self._event, None
        if event is not None:
            event.set_status(cl.command_execution_status.COMPLETE)


GATES: Mapping[str, Callable[[cl.Context, cl.CommandQueue, cl.CommandQueue], Gate]] = {
    "kernel": KernelGate,
    "event": EventGate,
}
"""Kinds of gates, the better first."""
