"""One prepared process from which the workers of a search are forked, so that their imports are done only once.

It has imported what a worker needs and called no driver. It watches the request channel and its children: a worker
dies with it, and it dies with the search, whatever either is doing. Workers are held by pidfd, so that no signal can
reach another process that has got the same number.

    python -m autotune.pool.forkserver FD PARENT
"""

from __future__ import annotations

import math
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from select import select

from autotune.pool.worker import LISTER, be_named, become_worker, command_of, die_with, leave_ending

_LONGEST = 2**16
"""Bytes of a message."""

_HEED_S, _BORN_S = 2.0, 120.0
"""Seconds in which the prepared process must report an end, or end itself; and start a worker, imports included."""


class Forked:
    """A worker that the fork server started, with the interface of `subprocess.Popen`."""

    def __init__(self, pid: int, descriptor: int) -> None:
        self.pid = pid
        self._descriptor = descriptor
        self._ended = threading.Event()
        self._code = 0

    def __del__(self) -> None:
        os.close(self._descriptor)

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._descriptor, number)

    def kill(self) -> None:
        """Kill it, whatever it is doing."""
        self.send_signal(signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        """Return its exit code, negative for a signal, once it is gone. Raises TimeoutExpired."""
        left_s, gone = math.inf if timeout is None else timeout, False
        while not self._ended.wait(min(_HEED_S, left_s)):
            if gone:  # and the fork server does not report it
                return -signal.SIGKILL
            left_s -= _HEED_S
            if left_s <= 0:
                raise subprocess.TimeoutExpired("worker", timeout or 0)
            gone = bool(select([self._descriptor], [], [], 0)[0])
        return self._code

    def note_end(self, code: int) -> None:
        """Tell waiting threads that the process has ended."""
        self._code = code
        self._ended.set()


def can_hold() -> bool:
    """Say whether the system has pidfds: Linux since 5.3, unless a sandbox forbids them."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (OSError, AttributeError):
        return False
    return True


_prepared: list[_Server] = []
"""A process that is prepared before a search needs it."""

os.register_at_fork(after_in_child=_prepared.clear)  # a fork of this process must not use it


def prepare() -> _Server | None:
    """Begin to prepare a process for the next `Forkserver`, while this process goes on with its own imports.

    Return it, or None if one is prepared already or none can be started.
    """
    if _prepared or not can_hold():
        return None
    try:
        server = _Server()
    except RuntimeError:  # no more threads may be started: reported when one is needed
        return None
    _prepared.append(server)
    return server


@contextmanager
def prepared() -> Iterator[None]:
    """Prepare a process for a `Forkserver` of this block; if none takes the process, it ends with the block."""
    from autotune.pool.listing import let_go

    server = prepare() if "pyopencl" in sys.modules else prepare_and_list()  # a program that uses drivers lists them
    try:
        yield
    finally:
        let_go()
        if server is not None:  # else it belongs to another thread's search
            with suppress(ValueError):  # a search has taken it
                _prepared.remove(server)
                server.end()


def prepare_and_list() -> _Server | None:
    """Do as `prepare`, and let a fork of it list the devices meanwhile, so that this process needs no driver."""
    begun = prepare()
    from autotune.pool.listing import list_ahead  # imported while the process starts

    with suppress(RuntimeError, IndexError):
        list_ahead(_prepared[0].fork, stays=True)
    return begun


class Forkserver:
    """Starts the workers of one search. If the prepared process is lost, with its workers, `start` replaces it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._closed = False
        self._server = _prepared.pop() if _prepared else _Server()

    def start(self, role: str, connection: int, log: int, environment: Mapping[str, str]) -> Forked:
        """Start a worker with these descriptors and variables. Raises OSError as `Start` says (process.py)."""
        with self._lock:
            if self._server.lost.is_set() and not self._closed:
                self._server.end()
                self._server = _Server()
            return self._server.fork(role, connection, log, environment)

    def close(self, *, wait: bool = True) -> None:
        """End the server and the remaining workers and, with `wait`, wait until they have ended."""
        self._closed = True
        self._server.end(wait=wait)  # makes a thread that waits for a worker release the lock
        with self._lock:
            self._server.end(wait=wait)


class _Server(threading.Thread):
    """The search's side of one prepared process: a thread, because the process dies with the thread that started it."""

    def __init__(self) -> None:
        super().__init__(name="autotune-forkserver", daemon=True)
        self.lost = threading.Event()
        self._last_words = ""
        self._channel, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._born: SimpleQueue[Forked | None] = SimpleQueue()
        self._asking = threading.Lock()  # one request at a time, so that its answer is not taken for another's
        self._alive: dict[int, Forked] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._code = -int(signal.SIGKILL)
        try:
            self.start()
        except RuntimeError:  # no more threads may be started
            self._channel.close()
            self._theirs.close()
            raise

    def run(self) -> None:
        """Start the process and receive news of its children until it has ended."""
        descriptor, ours = str(self._theirs.fileno()), str(os.getpid())
        code = self._code
        try:
            with tempfile.TemporaryFile() as log:
                self._process = subprocess.Popen(
                    command_of("autotune.pool.forkserver", descriptor, ours),
                    # When NumPy is imported, OpenBLAS starts a thread for each core; forks would lack these threads.
                    env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
                    pass_fds=[self._theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
                self._theirs.close()
                with suppress(OSError):
                    self._listen()
                code = self._code = self._process.wait()
                log.seek(0)
                self._last_words = log.read().decode(errors="replace").strip().rpartition("\n")[2]
        except OSError as error:  # no folder for temporary files, no more processes
            code = self._code = 1
            self._last_words = error.strerror or str(error)
        finally:
            self.lost.set()
            self._born.put(None)
            for worker in self._alive.values():
                worker.note_end(code if code < 0 else -signal.SIGKILL)
            self._channel.close()
            self._theirs.close()

    def fork(self, role: str, connection: int, log: int, environment: Mapping[str, str]) -> Forked:
        """Ask for one worker. Raises OSError if the process is lost, ChildProcessError if it ended by itself."""
        with self._asking:
            try:
                socket.send_fds(self._channel, [pickle.dumps((role, dict(environment)))], [connection, log])
            except OSError as error:
                if not (self.lost.is_set() or isinstance(error, BrokenPipeError | ConnectionResetError)):
                    raise
            born = self._awaited()
        if born is None:
            self._born.put(None)
            if self._code > 0:
                raise ChildProcessError(self._last_words)
            raise ConnectionResetError
        return born

    def _awaited(self) -> Forked | None:
        """Return the worker that was asked for, or None if the process is lost or told to end."""
        for seconds, then in ((_HEED_S, signal.SIGCONT), (_BORN_S, signal.SIGKILL)):
            with suppress(Empty):
                return self._born.get(timeout=seconds)
            if not self.is_alive():
                break
            if self._process is not None:
                self._process.send_signal(then)
        while self.is_alive():
            with suppress(Empty):
                return self._born.get(timeout=_HEED_S)
        self.lost.set()  # even if its thread never ran
        self._channel.close()
        self._theirs.close()
        return None

    def end(self, *, wait: bool = True) -> None:
        """Make it end its children and itself. No worker can be asked for after that; a thread that waits gets None."""
        if self._process is not None and not self._alive:  # it may still be importing
            self._process.kill()
        with suppress(OSError):
            self._channel.shutdown(socket.SHUT_WR)
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)  # if somebody has stopped it, it could not end
        self._born.put(None)
        if wait:
            self.join(_HEED_S)
            if self._process is not None:
                self._process.kill()  # without effect if it has ended
            self.join()

    def _listen(self) -> None:
        while True:
            message, descriptors, _, _ = socket.recv_fds(self._channel, _LONGEST, 1)
            if not message:
                return
            pid, code = pickle.loads(message)
            if descriptors:
                self._alive[pid] = Forked(pid, descriptors[0])
                self._born.put(self._alive[pid])
            else:
                self._alive.pop(pid).note_end(code)


# -- in the prepared process -------------------------------------------------------------------------


def main(descriptor: int, parent: int) -> None:
    """Import what workers need, then fork one for each request until the search closes the channel."""
    die_with(parent)
    leave_ending()
    be_named("forks")
    os.set_inheritable(descriptor, False)
    channel = socket.socket(fileno=descriptor)
    import gc

    gc.disable()  # imported objects stay alive
    from autotune import devices

    woken, waker = socket.socketpair()
    woken.setblocking(False)
    waker.setblocking(False)
    signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    devices.prepare()
    children: set[int] = set()
    if _asks_for(channel) == LISTER:  # this is all it needs; a worker forked now would have to import the rest itself
        _take(channel, children)
    from autotune.bench import serve  # noqa: F401  (for the forks)

    devices.prepare_sensors()

    gc.freeze()  # no collection of a worker copies these pages
    gc.enable()
    _serve(channel, woken, children)


def _asks_for(channel: socket.socket) -> str:
    """Return the role of a request that has arrived, or "" if there is none. The request is left for `_take`."""
    if not select([channel], [], [], 0)[0]:
        return ""
    message = channel.recv(_LONGEST, socket.MSG_PEEK)
    return str(pickle.loads(message)[0]) if message else ""


def _serve(channel: socket.socket, woken: socket.socket, children: set[int]) -> None:
    asked = True
    while asked or children:
        ready, _, _ = select([woken, channel] if asked else [woken], [], [])
        if woken in ready:
            woken.recv(_LONGEST)
            _reap(channel, children)
        if channel in ready:
            asked = _take(channel, children)


def _take(channel: socket.socket, children: set[int]) -> bool:
    """Fork a worker as requested. If the channel is closed, kill the workers and return False."""
    message, descriptors, _, _ = socket.recv_fds(channel, _LONGEST, 2)
    if message:
        children.add(_fork(channel, message, descriptors))
        return True
    for pid in children:  # not waited for yet, so no other process has the number
        os.kill(pid, signal.SIGKILL)
    return False


def _reap(channel: socket.socket, children: set[int]) -> None:
    for pid in list(children):
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            children.remove(pid)
            channel.send(pickle.dumps((pid, os.waitstatus_to_exitcode(status))))


def _fork(channel: socket.socket, request: bytes, descriptors: Sequence[int]) -> int:
    server = os.getpid()
    pid = os.fork()
    if not pid:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        channel.close()
        role, environment = pickle.loads(request)
        connection, log = descriptors
        become_worker(role, environment, connection, log, server)
    for descriptor in descriptors:
        os.close(descriptor)
    held = os.pidfd_open(pid)
    socket.send_fds(channel, [pickle.dumps((pid, 0))], [held])
    os.close(held)
    return pid


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
