"""A backend for tests: a device that computes with NumPy. Its kernels are Python text, run on arrays of bytes.

`-DNAME=VALUE` defines a name. A kernel is a function: it gets a buffer as an array of its bytes, a scalar as a NumPy
number, local memory as a number of bytes. `geometry()` returns the sizes of the launch. NUMPY_DEVICE names another
model. NUMPY_THROTTLED gives the device sensors, which report this as the reason for throttling.
"""

from __future__ import annotations

import inspect
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune import devices
from autotune.devices import ArgumentError, BackendError, BuildError, KernelLimits, Reading, Traits
from autotune.model import DeviceInfo

INFO = DeviceInfo(
    index=0, name=os.environ.get("NUMPY_DEVICE", "NumPy"), vendor="Tests", platform="NumPy", driver=np.__version__,
    kind="accelerator", opencl_version="", compute_units=1, memory=2**30, local_memory=2**15, max_work_group_size=256,
    max_work_item_sizes=(256, 256, 256), clock=1000, backend="numpy", images=False,
)  # fmt: skip


class Kernel:
    """A function of a program, and its arguments."""

    def __init__(self, run: Callable[..., None]) -> None:
        self.run = run
        self.num_args = len(inspect.signature(run).parameters)
        self.arguments: list[Any] = []


class Program:
    """A module made from the text."""

    log, binary_suffix = "", "bin"
    resources: Mapping[str, int] = {}

    def __init__(self, code: Any, names: dict[str, Any]) -> None:
        self.binary = code.co_code
        self.names = names

    def kernel(self, entry: str) -> Kernel:
        if not inspect.isfunction(self.names.get(entry)):
            raise BackendError(f"no function {entry!r}")
        return Kernel(self.names[entry])

    def limits(self, kernel: Kernel) -> KernelLimits:
        return KernelLimits(work_group_size=INFO.max_work_group_size)


class Session(devices.Session):
    """Everything runs when it is enqueued; an event is the pair of its begin and its end."""

    alignment = 64
    cache = 2**16

    def __init__(self, info: DeviceInfo) -> None:
        self.info = info
        self.traits = BACKEND.traits(info)
        self._busy_ns = 0
        self._geometry: tuple[Any, ...] = ()

    def allocate(self, nbytes: int) -> NDArray[np.uint8]:
        try:
            return np.zeros(nbytes, np.uint8)
        except MemoryError as error:
            raise BackendError(f"{error}", name="MemoryError") from None

    def region(self, buffer: NDArray[np.uint8], offset: int, nbytes: int) -> NDArray[np.uint8]:
        return buffer[offset : offset + nbytes]

    def fill(self, buffer: NDArray[np.uint8], word: int, offset: int, nbytes: int) -> None:
        buffer[offset : offset + nbytes] = np.full(-(-nbytes // 4), word, np.uint32).view(np.uint8)[:nbytes]

    def write(self, buffer: NDArray[np.uint8], data: NDArray[Any], offset: int = 0) -> None:
        buffer[offset : offset + data.nbytes] = np.ascontiguousarray(data).reshape(-1).view(np.uint8)

    def read(self, buffer: NDArray[np.uint8], data: NDArray[Any], offset: int = 0) -> None:
        data[...] = buffer[offset : offset + data.nbytes].view(data.dtype).reshape(data.shape)

    def copy(self, source: Any, target: Any, nbytes: int, source_offset: int, target_offset: int) -> None:
        target[target_offset : target_offset + nbytes] = source[source_offset : source_offset + nbytes]

    def build(self, source: str, options: Sequence[str] = ()) -> Program:
        names: dict[str, Any] = {"np": np, "geometry": lambda: self._geometry}
        for option in options:
            name, _, value = option.removeprefix("-D").partition("=")
            names[name] = int(value) if value.lstrip("-").isdecimal() else value
        try:
            code = compile(source, "kernel", "exec")
            exec(code, names)
        except Exception as error:
            log = f"kernel:{getattr(error, 'lineno', 1)}: error: {error}"
            raise BuildError("the text is not a module", name=type(error).__name__, detail=log) from None
        return Program(code, names)

    def set_arguments(self, kernel: Kernel, arguments: Sequence[Any], first: int = 0) -> None:
        for position, argument in enumerate(arguments, first):
            if not isinstance(argument, np.ndarray | np.generic | int):
                raise ArgumentError("nothing that a kernel takes", position)
        kernel.arguments[first : first + len(arguments)] = arguments

    def launch(self, kernel: Kernel, *geometry: Sequence[int] | None) -> tuple[int, int]:
        if len(kernel.arguments) != kernel.num_args:
            raise BackendError(f"{kernel.num_args} arguments, not {len(kernel.arguments)}")
        self._geometry = tuple(sizes and tuple(sizes) for sizes in (*geometry, None)[:3])
        began = time.perf_counter_ns()
        try:
            kernel.run(*kernel.arguments)
        except Exception as error:
            raise BackendError(f"the kernel failed: {error}", name=type(error).__name__) from None
        ended = max(began + 1, time.perf_counter_ns())
        self._busy_ns += ended - began
        return began, ended

    def busy_ns(self) -> int:
        busy, self._busy_ns = self._busy_ns, 0
        return busy

    def span_ns(self, first: tuple[int, int], last: tuple[int, int]) -> int:
        return last[1] - first[0]

    def finish(self) -> None:
        pass

    def sense(self) -> Reading | None:
        throttled = os.environ.get("NUMPY_THROTTLED")
        return None if throttled is None else Reading(clock_mhz=500, power_w=12.5, throttled=throttled)


class NumPy(devices.Backend):
    """The backend."""

    name = "numpy"

    def devices(self) -> list[DeviceInfo]:
        return [INFO]

    def traits(self, info: DeviceInfo) -> Traits:
        return Traits(keeps_builds=False, shares_cores=True, checks_on_device=False)

    def open(self, info: DeviceInfo) -> Session:
        return Session(info)


BACKEND = NumPy()
