"""The devices of this machine, listed by a fork of the prepared process while a command still imports.

A command whose kernels run in workers loads no driver itself: to load pyopencl takes as long as to load NumPy, and to
start NVIDIA's driver as long again.
"""

from __future__ import annotations

import os
import socket
import threading
from concurrent.futures import Future
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

from autotune import devices
from autotune.model import DeviceInfo
from autotune.pool.worker import LISTER

if TYPE_CHECKING:
    from autotune.pool.process import Start


class Listing(threading.Thread):
    """Has a process list the devices, which `start_process` starts as it starts a worker."""

    def __init__(self, start_process: Start) -> None:
        super().__init__(name="autotune-listing", daemon=True)
        self._start_process = start_process
        self._found: Future[list[DeviceInfo] | None] = Future()

    def run(self) -> None:
        """Start it and hand on what it answers; whatever goes wrong, there is no answer."""
        found, process = None, None
        try:
            with suppress(OSError, EOFError):
                ours, theirs = socket.socketpair()
                with Connection(ours.detach()) as connection:
                    with theirs, Path(os.devnull).open("wb") as nowhere:
                        process = self._start_process(LISTER, theirs.fileno(), nowhere.fileno(), {})
                    connection.recv()  # it has begun
                    found = connection.recv()
        finally:
            self._found.set_result(found)
        if process is not None:
            process.wait()

    def answer(self) -> list[DeviceInfo] | None:
        """Return the devices; None where the process could not tell."""
        return self._found.result()


def list_ahead(start_process: Start) -> None:
    """Begin to list the devices: `devices.list_devices` waits for that, and lists them itself where it fails."""
    listing = Listing(start_process)
    listing.start()
    devices.list_by(listing.answer)
