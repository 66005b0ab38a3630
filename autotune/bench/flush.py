"""Clearing a device's caches between runs, by a kernel: a fill may go past them."""

from __future__ import annotations

import numpy as np

from autotune.bench.sources import FLUSH, common_options
from autotune.devices.opencl import Session

_ITEMS, _GROUP = 64 * 1024, 64


class Flush:
    """Overwrites a buffer larger than the last-level cache; allocated and built at the first use."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._ready = False

    def run(self) -> None:
        """Enqueue one flush."""
        if not self._ready:
            self._prepare()
        self._session.launch(self._kernel, (_ITEMS,), (_GROUP,))

    def _prepare(self) -> None:
        info = self._session.info
        # Drivers report a cache that is not always the last level: NVIDIA's counts the L1s. The floors are
        # above the largest L2 of today's GPUs and the shared cache of a CPU's chiplet.
        floor = 64 * 2**20 if info.kind == "cpu" else 256 * 2**20
        size = min(max(floor, 2 * self._session.cache), info.memory // 8)
        self._buffer = self._session.allocate(size)
        self._kernel = self._session.build(FLUSH, common_options(info)).kernel("flush")
        self._session.set_arguments(self._kernel, (self._buffer, np.uint64(size // 4), np.uint32(1)))
        self._session.launch(self._kernel, (_ITEMS,), (_GROUP,))
        self._session.finish()
        self._ready = True
