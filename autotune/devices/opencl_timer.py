"""Finds out whether a driver's profiling events tell the time, and times by the host's clock if they do not.

Mesa's rusticl of 2022 reports 0 for every command on llvmpipe; other drivers have counted in units of their own. A
kernel would seem to take a nanosecond, or any other time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple, cast

import numpy as np
import pyopencl as cl

_APART_NS = 2_000_000
"""Time between two commands whose events are compared with the host's clock."""


class HostSpan(NamedTuple):
    """A launch that the host waited for: its start and end, in nanoseconds of the host's clock."""

    start: int
    end: int


def timed_by_host(queue: cl.CommandQueue, enqueue: Callable[[], object]) -> HostSpan:
    """Launch once all earlier commands have ended, and wait for the end."""
    queue.finish()
    began = time.perf_counter_ns()
    enqueue()
    queue.finish()
    return HostSpan(began, time.perf_counter_ns())


def tells_time(context: cl.Context, queue: cl.CommandQueue) -> bool:
    """Say whether the events of a profiling queue agree with the host's clock.

    By the device's events, the time between two commands must be at least the host's time from the end of the first
    wait to the second command, and at most the host's time around both commands, however busy the host is. Half and
    twice these times are accepted.
    """
    try:
        memory = cl.Buffer(context, cl.mem_flags.READ_WRITE, 4)
        began = time.perf_counter_ns()
        first, over = _fill(queue, memory)
        since = time.perf_counter_ns()
        time.sleep(_APART_NS * 1e-9)
        until = time.perf_counter_ns()
        again, last = _fill(queue, memory)
        ended = time.perf_counter_ns()
        return again - over >= (until - since) / 2 and last - first <= 2 * (ended - began)
    except cl.Error:
        return False


def _fill(queue: cl.CommandQueue, memory: cl.Buffer) -> tuple[int, int]:
    """Run a command; return its start and end by its event."""
    event = cl.enqueue_fill(queue, memory, np.zeros(1, np.uint32), 4)
    event.wait()
    return _told(event, cl.profiling_info.START), _told(event, cl.profiling_info.END)


def _told(event: cl.Event, what: int) -> int:
    return cast("int", event.get_profiling_info(what))
