"""The driver's compiler by itself: the least time of any search with these builds, whatever else it does."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np

Source = tuple[str, list[str]]
"""A program's text and its build options."""

_opened: Any = None


def sources(problem: Any, number: int, seed: int) -> list[Source]:
    """Return this many programs of random configurations, all different."""
    rows = problem.space.sample(np.random.default_rng(seed), number)
    plans = (problem.plan(problem.space.configuration(int(row))) for row in rows)
    return [(plan.source, list(plan.options)) for plan in plans]


def _open(name: str, numbers: Any) -> None:
    """Initialise a process that builds for a device of this name; several such devices are used in turn."""
    global _opened
    os.environ.update(CUDA_CACHE_DISABLE="1", POCL_KERNEL_CACHE="0", PYOPENCL_NO_CACHE="1")
    import pyopencl as cl

    devices = [one for platform in cl.get_platforms() for one in platform.get_devices() if one.name.strip() == name]
    with numbers.get_lock():
        number = numbers.value
        numbers.value += 1
    _opened = cl.Context([devices[number % len(devices)]])


def _build(source: Source) -> float:
    """Return the seconds of a build."""
    import pyopencl as cl

    text, options = source
    began = time.monotonic()
    cl.Program(_opened, text).build(options)
    return time.monotonic() - began


def _ready(_: int) -> int:
    """Return the number of this process after a moment, so that another process takes the next task."""
    time.sleep(0.05)
    return os.getpid()


def alone(name: str, programs: Sequence[Source], processes: int) -> tuple[float, float]:
    """Build the programs in this many processes, all ready before; return the seconds of all and the median of one."""
    spawn = get_context("spawn")
    numbers = spawn.Value("i", 0)
    with ProcessPoolExecutor(processes, spawn, initializer=_open, initargs=(name, numbers)) as pool:
        ready: set[int] = set()
        while len(ready) < processes:
            ready.update(pool.map(_ready, range(processes)))
        began = time.monotonic()
        taken = list(pool.map(_build, programs))
        return time.monotonic() - began, float(np.median(taken))
