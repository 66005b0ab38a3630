"""Other implementations of the same product: cuBLAS through PyTorch, CLBlast through ctypes, NumPy's BLAS on the host.

Each is left out, with a reason, if it is not installed.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from autotune.errors import SetupError

from .queued import QueuedSession, seconds

Matrix = NDArray[np.float32]


class Peer(Protocol):
    """Multiplies the same two matrices: runs in batches, then returns the product."""

    name: str

    def __call__(self, count: int) -> None: ...

    def product(self) -> Matrix: ...


class Cublas:
    """cuBLAS in fp32, TF32 off, by `torch.mm`. Raises SetupError without PyTorch or the session's CUDA device."""

    name = "cuBLAS fp32"

    def __init__(self, session: QueuedSession, a: Matrix, b: Matrix) -> None:
        self._torch = torch = _torch()
        torch.backends.cuda.matmul.allow_tf32 = False
        place = torch.device("cuda", _cuda_index(torch, session))
        self._place = place
        self._a, self._b = torch.from_numpy(a).to(place), torch.from_numpy(b).to(place)
        self._c = torch.empty(a.shape[0], b.shape[1], dtype=torch.float32, device=place)

    def __call__(self, count: int) -> None:
        """Multiply `count` times and wait."""
        for _ in range(count):
            self._torch.mm(self._a, self._b, out=self._c)
        self._torch.cuda.synchronize(self._place)

    def product(self) -> Matrix:
        """Return the product."""
        self(1)
        found: Matrix = self._c.cpu().numpy()
        return found


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise SetupError("PyTorch is not installed") from None
    if not torch.cuda.is_available():
        raise SetupError("PyTorch finds no CUDA device")
    return torch


def _cuda_index(torch: Any, session: QueuedSession) -> int:
    """The index of the CUDA device that is the session's OpenCL device."""
    if session.info.vendor_name != "nvidia":
        raise SetupError(f"{session.info.name} is no CUDA device")
    count = int(torch.cuda.device_count())
    same = [i for i in range(count) if str(torch.cuda.get_device_properties(i).uuid) == session.info.uuid]
    if same:
        return same[0]
    if count == 1:
        return 0
    raise SetupError(f"which of {count} CUDA devices is {session.info.name}, PyTorch does not tell")


_ROW_MAJOR, _PLAIN, _SINGLE = 101, 111, 32  # of clblast_c.h


class Clblast:
    """CLBlast on the session's queue. Raises SetupError if `libclblast` does not load or fails.

    `tuning` is a folder with the JSON files of `clblast_tuner_xgemm` (Debian's clblast-utils), run on this device.
    Without it CLBlast uses the entry in its database for the device nearest to this one.
    """

    def __init__(self, session: QueuedSession, a: Matrix, b: Matrix, tuning: Path | None = None) -> None:
        self.name = "CLBlast, tuned here" if tuning else "CLBlast, its database"
        self._session = session
        try:
            self._library = ctypes.CDLL("libclblast.so.1")
        except OSError as error:
            raise SetupError(f"libclblast does not load: {error}") from None
        (m, k), n = a.shape, b.shape[1]
        self._shape = (m, n)
        self._buffers = [session.allocate(4 * size) for size in (m * k, k * n, m * n)]
        session.write(self._buffers[0], a)
        session.write(self._buffers[1], b)
        size, pointer = ctypes.c_size_t, ctypes.c_void_p
        queue = pointer(session.queue.int_ptr)
        a_, b_, c_ = (pointer(buffer.int_ptr) for buffer in self._buffers)
        self._arguments = (
            _ROW_MAJOR, _PLAIN, _PLAIN, size(m), size(n), size(k), ctypes.c_float(1.0), a_, size(0), size(k),
            b_, size(0), size(n), ctypes.c_float(0.0), c_, size(0), size(n), ctypes.byref(queue), None,
        )  # fmt: skip
        if tuning:
            for kernel, parameters in tuned(tuning).items():
                self._override(kernel, parameters)
            self._choose_path()
        self(1)

    def __call__(self, count: int) -> None:
        """Multiply `count` times and wait."""
        for _ in range(count):
            self._check(self._library.CLBlastSgemm(*self._arguments), "CLBlastSgemm")
            self._session.queue.flush()
        self._session.finish()

    def product(self) -> Matrix:
        """Return the product."""
        self(1)
        found = np.empty(self._shape, np.float32)
        self._session.read(self._buffers[2], found)
        return found

    def _choose_path(self) -> None:
        """Take the faster one here of CLBlast's two kernels; by default CLBlast chooses by a size in its database."""
        times = {}
        for least_size in (1, 2**15):  # from it on the tuned kernel, with transposed copies; below the direct one
            self._override("GemmRoutine", {"XGEMM_MIN_INDIRECT_SIZE": least_size})
            self(1)
            times[least_size] = seconds(self, 8)
        self._override("GemmRoutine", {"XGEMM_MIN_INDIRECT_SIZE": min(times, key=lambda least: times[least])})

    def _override(self, kernel: str, parameters: Mapping[str, int]) -> None:
        names = (ctypes.c_char_p * len(parameters))(*(name.encode() for name in parameters))
        values = (ctypes.c_size_t * len(parameters))(*parameters.values())
        status = self._library.CLBlastOverrideParameters(
            ctypes.c_void_p(self._session.device.int_ptr), kernel.encode(), _SINGLE,
            ctypes.c_size_t(len(parameters)), names, values,
        )  # fmt: skip
        self._check(status, f"CLBlastOverrideParameters of {kernel}")

    @staticmethod
    def _check(status: int, call: str) -> None:
        if status:
            raise SetupError(f"{call} returned {status}")


def tuned(folder: Path) -> dict[str, dict[str, int]]:
    """Return the fastest parameters of each kernel in the tuner's files of single precision."""
    best: dict[str, tuple[float, dict[str, int]]] = {}
    for path in sorted(folder.glob("clblast_xgemm*_32.json")):
        for result in json.loads(path.read_text())["results"]:
            entry = (float(result["time"]), {k: int(v) for k, v in result["parameters"].items() if k != "PRECISION"})
            if result["kernel"] not in best or entry[0] < best[result["kernel"]][0]:
                best[result["kernel"]] = entry
    if not best:
        raise SetupError(f"no clblast_xgemm*_32.json in {folder}")
    return {kernel: parameters for kernel, (_, parameters) in best.items()}


class NumpyBlas:
    """NumPy's BLAS on the host."""

    name = "NumPy BLAS (host)"

    def __init__(self, a: Matrix, b: Matrix) -> None:
        self._a, self._b = a, b
        self._c = np.empty((a.shape[0], b.shape[1]), np.float32)

    def __call__(self, count: int) -> None:
        """Multiply `count` times."""
        for _ in range(count):
            np.matmul(self._a, self._b, out=self._c)

    def product(self) -> Matrix:
        """Return the product."""
        self(1)
        return self._c


def available(
    session: QueuedSession, a: Matrix, b: Matrix, tuning: Path | None, say: Callable[[str], None]
) -> dict[str, Peer]:
    """Return the peers that work here, by name; a missing one is reported with its reason."""
    makers: list[Callable[[], Peer]] = [
        lambda: Cublas(session, a, b),
        lambda: Clblast(session, a, b, tuning),
        lambda: NumpyBlas(a, b),
    ]
    found: dict[str, Peer] = {}
    for make in makers:
        try:
            peer = make()
        except SetupError as error:
            say(f"left out: {error}")
        else:
            found[peer.name] = peer
    return found
