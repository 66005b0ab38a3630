"""The devices of this machine, listed by a process of its own, as a rule while a command still imports.

A command whose kernels run in workers loads no driver itself: to load pyopencl takes as long as to load NumPy, and to
start NVIDIA's driver as long again. And a driver may crash, or hang, as it is asked: that is told, with its name.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
from concurrent.futures import Future
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

from autotune import devices
from autotune.errors import SetupError
from autotune.model import DeviceInfo
from autotune.pool.allowance import lacks_processes
from autotune.pool.worker import FAULTS, LISTER
from autotune.text import say

if TYPE_CHECKING:
    from autotune.pool.process import Process, Start

_WORRY_S, _PATIENCE_S = 10.0, 110.0
"""After how long it is said that drivers do not answer, and how long they have then. Many GPUs take half a minute."""

_BEGIN_S = 30.0
"""How long a process has to begin to ask them; one that does not is left, and no driver is at fault."""

_KILL_S = 10.0
"""How long one has to end that is killed."""


class Listing(threading.Thread):
    """Has a process list the devices, which `start_process` starts as it starts a worker."""

    def __init__(self, start_process: Start) -> None:
        super().__init__(name="autotune-listing", daemon=True)
        self._start_process = start_process
        self._found: Future[list[DeviceInfo] | None] = Future()
        self._failed = ""

    def run(self) -> None:
        """Start it and hand on what it answers; whatever goes wrong, there is no answer."""
        found, process, code = None, None, 0
        try:
            with suppress(OSError, EOFError):
                ours, theirs = socket.socketpair()
                with Connection(ours.detach()) as connection:
                    with theirs, Path(os.devnull).open("wb") as nowhere:
                        process = self._start_process(LISTER, theirs.fileno(), nowhere.fileno(), {})
                    found = self._hear(connection, process)
            if process is not None and found is None:
                process.kill()  # where it ends by itself, it has begun to
                with suppress(subprocess.TimeoutExpired):  # what hangs in the system does not end
                    code = process.wait(_KILL_S)
            self._failed = self._failed or _judged(code)
        finally:
            self._found.set_result(found)
        if process is not None:
            process.wait()

    def _hear(self, connection: Connection, process: Process) -> list[DeviceInfo] | None:
        """Return what it answers; None where it does not begin, or, which is a driver's fault, does not answer."""
        if not connection.poll(_BEGIN_S) and not _wakes(process, connection, _BEGIN_S):
            return None
        connection.recv()
        if not connection.poll(_WORRY_S):
            say(f"autotune: the OpenCL drivers here have not answered for {_WORRY_S:g} s; waiting for them")
            if not _wakes(process, connection, _PATIENCE_S):
                self._failed = f"the OpenCL drivers here do not answer for {_WORRY_S + _PATIENCE_S:g} s"
                return None
        found: list[DeviceInfo] = connection.recv()
        return found

    def answer(self) -> list[DeviceInfo] | None:
        """Return the devices; None where the process could not tell. Raises SetupError where a driver is at fault."""
        found = self._found.result()
        if self._failed:
            scarce = lacks_processes()  # for want of which a driver may abort: none of them is at fault
            hint = scarce or "; ".join(devices.faulty()) or "`clinfo` may tell which; reinstall or remove that driver"
            raise SetupError(self._failed, hint=hint)
        return found


def _wakes(process: Process, connection: Connection, seconds: float) -> bool:
    """Have a process go on where somebody has stopped it; say whether a message comes then."""
    process.send_signal(signal.SIGCONT)
    return connection.poll(seconds)


def _judged(code: int) -> str:
    if -code not in FAULTS:
        return ""
    return f"an OpenCL driver here ends the process that asks for devices ({signal.Signals(-code).name})"


def list_ahead(start_process: Start) -> None:
    """Begin to list the devices: `devices.list_devices` waits for that, and lists them itself where it fails."""
    listing = Listing(start_process)
    listing.start()
    devices.list_by(listing.answer)


def list_apart() -> None:
    """Begin to list the devices in a process that is started for that."""
    from autotune.pool.process import spawned

    with suppress(RuntimeError):  # no more threads may be started
        list_ahead(spawned)
