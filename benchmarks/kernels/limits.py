"""The device's limits, measured with kernels of our own in several shapes: the best one counts."""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from autotune.devices import Kernel, Memory

from .queued import QueuedSession, Run, interleave, seconds

SOURCE = Path(__file__).parent.parent / "limits.cl"

_NEVER = np.float32(-1.0)  # all sums are positive
_LAUNCH_S = 0.004
_FINALISTS = 3
_WARM_UP_S = 0.3  # an idle device needs time to raise its clock


@dataclass(frozen=True)
class Limit:
    """One limit: `rate` in `unit`, reached by `shape`; `run` repeats it, `work` is that of one run in units * s."""

    name: str
    unit: str
    shape: str
    rate: float
    work: float
    run: Run

    def raised(self, times: Sequence[float]) -> Limit:
        """Return this limit, raised if it did better in these seconds, which were taken beside contenders."""
        return replace(self, rate=max(self.rate, self.work / statistics.median(times)))


@dataclass(frozen=True)
class _Shape:
    """One way to run a limit kernel."""

    text: str
    work: float
    run: Run


def measure(session: QueuedSession) -> dict[str, Limit]:
    """Return the limits `fma` (TFLOPS), `read` and `copy` (GB/s, of bytes read and of bytes read plus written)."""
    data, other, count = _data(session)
    result = session.allocate(4 * _most_items(session))
    return {
        "fma": _best("fma", "TFLOPS", _multiply_add(session, result)),
        "read": _best("read", "GB/s", _walk(session, "read_all", count, (data, _NEVER, result), 16 * count)),
        "copy": _best("copy", "GB/s", _walk(session, "copy_all", count, (data, other), 32 * count)),
    }


def _best(name: str, unit: str, shapes: Iterator[_Shape]) -> Limit:
    first = next(shapes)
    began = time.monotonic()
    while time.monotonic() - began < _WARM_UP_S:
        first.run(8)
    tried = []
    for shape in itertools.chain([first], shapes):
        shape.run(1)
        tried.append((shape.work / min(seconds(shape.run, 3) for _ in range(2)), shape))
    tried.sort(key=lambda pair: -pair[0])
    finalists = {shape.text: shape for _, shape in tried[:_FINALISTS]}
    times = interleave({text: shape.run for text, shape in finalists.items()}, rounds=5)
    best = max(finalists.values(), key=lambda shape: shape.work / statistics.median(times[shape.text]))
    return Limit(name, unit, best.text, best.work / statistics.median(times[best.text]), best.work, best.run)


def _is_cpu(session: QueuedSession) -> bool:
    return session.info.kind == "cpu"


def _most_items(session: QueuedSession) -> int:
    return 256 * 1024 * session.info.compute_units


def _multiply_add(session: QueuedSession, result: Memory) -> Iterator[_Shape]:
    cpu = _is_cpu(session)
    widths, chains, bodies = ((8, 16), (4, 8), (64,)) if cpu else ((1,), (4, 8, 16), (128, 512, 1024))
    # Several times as many items as are resident at once, so that no compute unit ends long before the others.
    items = session.info.compute_units * (256 if cpu else 8 * 2048)
    for width, chain, body in itertools.product(widths, chains, bodies):
        steps = body // chain
        options = (f"-DCHAINS={chain}", f"-DSTEPS={steps}", f"-DWIDTH={width}")
        kernel = session.build(SOURCE.read_text(), options).kernel("multiply_add")
        for group in (16,) if cpu else (64, 128, 256):  # NVIDIA builds for 256 if the source asks for no size

            def add(turns: int, kernel: Kernel = kernel, group: int = group) -> Run:
                values = (np.int32(turns), np.float32(0.5), np.float32(1.0), _NEVER, result)
                return _runner(session, kernel, values, items, group)

            add(1)(1)
            turns = max(64, math.ceil(64 * _LAUNCH_S / seconds(add(64), 2)))
            text = f"{chain} chains of {width}, {steps} steps, group {group}"
            yield _Shape(text, 2e-12 * items * turns * steps * chain * width, add(turns))


def _walk(session: QueuedSession, entry: str, count: int, arguments: tuple[Any, ...], nbytes: int) -> Iterator[_Shape]:
    cpu = _is_cpu(session)
    unrolls, groups = ((2, 4), (1,)) if cpu else ((1, 2, 4, 8, 16), (128, 256))
    per_unit = (1, 16) if cpu else (4, 8, 16, 32, 64, 256)
    for unroll in unrolls:
        kernel = session.build(SOURCE.read_text(), [f"-DUNROLL={unroll}", f"-DCONTIGUOUS={int(cpu)}"]).kernel(entry)
        for group, several in itertools.product(groups, per_unit):
            items = min(session.info.compute_units * several * group, _most_items(session))
            yield _Shape(
                f"{unroll} float4 in flight, group {group}, {several} groups a unit",
                nbytes * 1e-9,
                _runner(session, kernel, (np.uint64(count), *arguments), items, group),
            )


def _runner(session: QueuedSession, kernel: Kernel, arguments: tuple[Any, ...], items: int, group: int) -> Run:
    def run(count: int) -> None:
        session.set_arguments(kernel, arguments)
        for _ in range(count):
            session.launch(kernel, (items,), (group,))
        session.finish()

    return run


def _data(session: QueuedSession) -> tuple[Memory, Memory, int]:
    """Two buffers far beyond any cache, filled by a kernel, and their length in float4."""
    nbytes = 2**28 if _is_cpu(session) else 2**32
    nbytes = min(nbytes, session.info.max_allocation or nbytes, 2 ** int(math.log2(session.info.memory // 8)))
    count = nbytes // 16
    kernel = session.build(SOURCE.read_text()).kernel("initialise")
    buffers = []
    for _ in range(2):
        buffers.append(session.allocate(16 * count))
        session.set_arguments(kernel, (np.uint64(count), buffers[-1]))
        session.launch(kernel, (session.info.compute_units * 1024,), (16 if _is_cpu(session) else 256,))
    session.finish()
    return buffers[0], buffers[1], count
