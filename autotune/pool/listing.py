"""The devices of this machine, listed by a process of its own, usually while a command still imports.

A command whose kernels run in workers loads no driver itself: loading pyopencl takes as long as loading NumPy, and
starting NVIDIA's driver as long again. A driver may also crash, hang or exit when it is asked: this is reported, with
its name.
"""

from __future__ import annotations

import math
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.errors import SetupError, ending
from autotune.pool.allowance import lacks_processes
from autotune.pool.worker import FAULTS, LISTER, become_worker
from autotune.text import say

if TYPE_CHECKING:
    from autotune.model import DeviceInfo
    from autotune.pool.process import Process, Start

_WORRY_S, _PATIENCE_S = 10.0, 110.0
"""Seconds until a message says that drivers do not answer, and how much longer they get. Many GPUs take half a minute.
"""

_BEGIN_S = 30.0
"""How long the process has to begin asking drivers; if it does not, it is given up, and no driver is at fault."""

_KILL_S = 10.0
"""How long a killed process has to end."""

_LOOK_S = 0.001
"""How often to check whether it has ended."""


class Listing(threading.Thread):
    """Has a process list the devices; `start_process` starts it as it starts a worker.

    The process ends once it has answered or, if it `stays`, at `let_go`: while a process has NVIDIA's driver open, the
    driver starts in 10 ms instead of 100 in others.
    """

    def __init__(self, start_process: Start, *, stays: bool = False) -> None:
        super().__init__(name="autotune-listing", daemon=True)
        self._start_process = start_process
        self._connection: Connection | None = None
        self._process: Process | None = None
        self._found: Future[list[DeviceInfo] | None] = Future()
        self._failed = ""
        self._silent = False
        self._to_end = threading.Event()
        if stays:
            _staying.append(self._to_end)
        else:
            self._to_end.set()

    def begin(self) -> None:
        """Start the process; any thread may call this. Raises OSError."""
        ours, theirs = socket.socketpair()
        self._connection = Connection(ours.detach())
        with theirs, Path(os.devnull).open("wb") as nowhere:
            self._process = self._start_process(LISTER, theirs.fileno(), nowhere.fileno(), {})

    def run(self) -> None:
        """Pass on the answer of the process, which is started here if it was not yet. If anything fails, it is None."""
        found, code = None, 0
        try:
            with suppress(OSError, EOFError):
                if self._connection is None:
                    self.begin()
                if self._connection is not None and self._process is not None:
                    found = self._hear(self._connection, self._process)
            if self._process is not None and found is None:
                self._process.kill()  # without effect if it is already ending
                with suppress(subprocess.TimeoutExpired):  # what hangs in the system does not end
                    code = self._process.wait(_KILL_S)
            self._failed = self._failed or self._judged(code)
        finally:
            self._found.set_result(found)
        if found is not None:
            self._to_end.wait()
        if self._connection is not None:
            self._connection.close()
        if self._process is not None:
            self._process.wait()

    def _hear(self, connection: Connection, process: Process) -> list[DeviceInfo] | None:
        """Return its answer, or None if it does not begin, or does not answer (which is a driver's fault)."""
        if not connection.poll(_BEGIN_S) and not _wakes(process, connection, _BEGIN_S):
            return None
        connection.recv()
        if not connection.poll(_WORRY_S):
            say(f"autotune: the OpenCL drivers here have not answered for {_WORRY_S:g} s; waiting for them")
            if not _wakes(process, connection, _PATIENCE_S):
                self._failed = f"the OpenCL drivers here do not answer for {_WORRY_S + _PATIENCE_S:g} s"
                return None
        self._silent = True
        found: list[DeviceInfo] | None = connection.recv()
        self._silent = False
        return found

    def _judged(self, code: int) -> str:
        """Say what a driver has done, judged by the process's exit code. Empty if no driver is known to be at fault."""
        if -code not in FAULTS and not (self._silent and code >= 0):
            return ""
        return f"an OpenCL driver here ends the process that asks for devices ({ending(code)})"

    def answer(self) -> list[DeviceInfo] | None:
        """Return the devices, or None if the process could not tell. Raises SetupError if a driver is at fault."""
        found = self._found.result()
        if self._failed:
            from autotune import devices

            scarce = lacks_processes()  # then a driver may abort without being at fault
            hint = scarce or "; ".join(devices.faulty()) or "`clinfo` may tell which; reinstall or remove that driver"
            raise SetupError(self._failed, hint=hint)
        return found


def _wakes(process: Process, connection: Connection, seconds: float) -> bool:
    """Continue a process that somebody may have stopped; say whether a message comes within `seconds`."""
    process.send_signal(signal.SIGCONT)
    return connection.poll(seconds)


class _Child:
    """A fork of this process, with the interface of `subprocess.Popen`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended and was waited for."""
        if self._code is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it, whatever it is doing."""
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """Return its exit code, negative for a signal. Raises TimeoutExpired."""
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while self._code is None:
            found, status = os.waitpid(self.pid, 0 if timeout is None else os.WNOHANG)
            if found:
                self._code = os.waitstatus_to_exitcode(status)
            elif time.monotonic() >= deadline:
                raise subprocess.TimeoutExpired(LISTER, timeout or 0)
            else:
                time.sleep(_LOOK_S)
        return self._code


def _forked(role: str, connection: int, log: int, environment: Mapping[str, str]) -> _Child:
    own = os.getpid()
    pid = os.fork()
    if not pid:
        become_worker(role, environment, connection, log, own)
    return _Child(pid)


def list_ahead(start_process: Start, *, at_once: bool = False, stays: bool = False) -> None:
    """Begin to list the devices. `devices.list_devices` waits for the answer, and lists them itself if there is none.

    `at_once`: this thread starts the process, not another thread. `stays`: see `Listing`.
    """
    listing = Listing(start_process, stays=stays)
    with suppress(OSError):  # no more processes may be started: no answer
        if at_once:
            listing.begin()
    listing.start()
    from autotune import devices  # imported while the process runs

    devices.list_by(listing.answer)


_staying: list[threading.Event] = []
"""Events that end the processes that stay after they have listed the devices."""


def let_go() -> None:
    """End the processes that stay: all devices that are needed are open."""
    while _staying:
        _staying.pop().set()


def list_apart() -> None:
    """Begin to list the devices in a fork of this process, which has no other threads and has loaded no driver."""
    with suppress(RuntimeError):  # no more threads may be started
        list_ahead(_forked, at_once=True)


def list_when_asked(*, at_once: bool = False) -> None:
    """Let a new process list the devices once they are asked for, or `at_once`.

    It is not a fork of this process, which may have threads by then.
    """
    if at_once:
        _listed()
    from autotune import devices

    devices.list_by(lambda: _listed().answer())


@cache
def _listed() -> Listing:
    from autotune.pool.process import spawned

    listing = Listing(spawned)
    try:
        listing.start()  # the caller need not wait for the process to end
    except RuntimeError:  # no more threads may be started
        listing.run()
    return listing


os.register_at_fork(after_in_child=_listed.cache_clear)  # the fork does not have its thread
