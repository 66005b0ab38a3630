"""Contenders and their times: each runs batches of launches that wait in a queue, in turns with the others.

The time of a batch is wall time from its first enqueue to the return of the wait, divided by its launches. Clock and
queueing are the same for OpenCL, CUDA and the host. A batch lasts tens of milliseconds, so that the microseconds of the
wait do not matter. Queues use no profiling events, which cost microseconds between launches.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from autotune.bench.arena import Arena
from autotune.bench.prepare import Compiled, bind, compile_plan
from autotune.bench.verify import Checker
from autotune.devices.opencl_session import OpenCLSession
from autotune.model import DeviceInfo
from autotune.study import Plan, numpy_type

Run = Callable[[int], None]
"""Called with n, runs n times and waits for the last."""

BATCH_S = 0.04
"""Seconds of a timed batch."""

ROUNDS = 9
"""Batches per contender."""

_LEAST_RUNS, _MOST_RUNS = 2, 2000


class QueuedSession(OpenCLSession):
    """A session whose queue does not profile, and which keeps no events."""

    def __init__(self, info: DeviceInfo) -> None:
        super().__init__(info)
        self._queue = cl.CommandQueue(self._context)
        self._launched = None

    @property
    def queue(self) -> cl.CommandQueue:
        """The queue, for libraries that enqueue by themselves."""
        return self._queue

    @property
    def device(self) -> cl.Device:
        """The device, for libraries that need it."""
        return self._device

    def launch(self, kernel: cl.Kernel, global_size: Sequence[int], local_size: Sequence[int] | None) -> cl.Event:
        """Enqueue one kernel and pass it to the device at once, as CUDA does: none waits for the end of a batch."""
        event = super().launch(kernel, global_size, local_size)
        self._queue.flush()
        return event


class Table:
    """The buffers of one problem on a device, shared by its plans. `inputs` are arrays of the logical shapes."""

    def __init__(self, session: QueuedSession, inputs: Mapping[str, NDArray[Any]]) -> None:
        self.session = session
        self.arena = Arena(session, inputs)
        self.checker = Checker(session, {})


class Planned:
    """A plan of a study, ready to run in batches."""

    def __init__(self, table: Table, plan: Plan, compiled: Compiled | None = None) -> None:
        self._session = table.session
        compiled = compiled or compile_plan(table.session, plan)
        self._built = bind(table.session, table.arena, table.checker, plan, compiled)
        changing = [one.buffer.name for one in self._built.buffers if one.restored]
        assert not changing, f"{changing} would have to be restored before each run"

    def __call__(self, count: int) -> None:
        """Run `count` times and wait."""
        for _ in range(count):
            for kernel, launch in self._built.kernels:
                self._session.launch(kernel, launch.global_size, launch.local_size)
        self._session.finish()

    def output(self, name: str) -> NDArray[Any]:
        """Run once and return an output, in its logical shape."""
        self(1)
        guarded = next(one for one in self._built.buffers if one.buffer.name == name)
        dtype, width = numpy_type(guarded.buffer.type)
        assert width == 1
        data = np.empty(guarded.buffer.allocate, dtype)
        self._session.read(guarded.whole, data, guarded.start)
        return data[tuple(slice(extent) for extent in guarded.buffer.shape)]


def seconds(run: Run, count: int) -> float:
    """Return the wall seconds of one of `count` queued runs."""
    began = time.perf_counter()
    run(count)
    return (time.perf_counter() - began) / count


def batch_size(run: Run, batch_s: float = BATCH_S) -> int:
    """Warm up, and return how many runs last `batch_s` seconds."""
    run(1)
    one = seconds(run, 1)
    while one * _LEAST_RUNS < batch_s / 10:  # short runs: the estimate is mostly the wait
        count = max(2, min(_MOST_RUNS, int(batch_s / 4 / one)))
        again = seconds(run, count)
        if again > 0.8 * one:
            one = again
            break
        one = again
    return max(_LEAST_RUNS, min(_MOST_RUNS, round(batch_s / one)))


def interleave(runs: Mapping[str, Run], *, rounds: int = ROUNDS, batch_s: float = BATCH_S) -> dict[str, list[float]]:
    """Time contenders in turns, a batch each, and return their seconds per run, round by round."""
    counts = {name: batch_size(run, batch_s) for name, run in runs.items()}
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            times[name].append(seconds(run, counts[name]))
    return times


def ratio(mine: Sequence[float], other: Sequence[float]) -> float:
    """Return how many times faster `mine` is: the median over the rounds."""
    return statistics.median(theirs / own for own, theirs in zip(mine, other, strict=True))
