"""Entry point of worker processes: `python -m autotune.pool.worker ROLE FD PARENT`, as `command_of` writes it.

A worker ignores signals that ask it to end, which the search handles, and dies with its parent whatever it is doing. A
hung launch never notices a closed pipe, so the operating system is asked to kill the worker (PR_SET_PDEATHSIG), before
the heavy imports.
"""

import atexit
import ctypes
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

_PR_SET_PDEATHSIG = 1

FAULTS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT)
"""Signals by which a kernel or a driver ends its process. Other signals need not be their fault."""

LISTER = "lister"
"""The role of a process that lists the devices, and ends once its connection is closed."""


def die_with(parent: int, by: int = signal.SIGKILL) -> None:
    """Ignore Ctrl-C, which the parent handles, and let the system send the signal `by` when the parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, by)
    if os.getppid() != parent:  # it died before the call above
        os._exit(1)


def leave_ending() -> None:
    """Ignore signals that a service manager or batch system sends to all processes of a job: a trial would crash."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def command_of(module: str, *words: str) -> list[str]:
    """Return the command by which another process runs a module of this package with the arguments `words`.

    It imports from the same folders as this process, even if a program added them, or `pip install --target` uses
    another folder than Python's own. The first folder is left out if it is the current one or the program's: a file
    there may have the name of a module of Python.
    """
    root = str(Path(__file__).parent.parent.parent)
    program = getattr(sys.modules.get("__main__"), "__file__", None)
    unsafe = {str(Path(program).resolve().parent)} if program else set()
    with suppress(OSError):  # it was removed
        unsafe.add(str(Path.cwd()))
    found = [path for path in sys.path[:1] if path not in unsafe] + sys.path[1:]
    paths = [path for path in dict.fromkeys([*found, root]) if isinstance(path, str) and path]
    first = f"import runpy, sys; sys.path[:0] = [path for path in {paths!a} if path not in sys.path]"
    run = f"runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"
    return [sys.executable, "-P", "-c", f"{first}; {run}", *words]


def main(role: str, descriptor: int, parent: int) -> None:
    """Serve `builder`, `device` or `once` requests over an inherited socket until the search closes it."""
    die_with(parent)
    leave_ending()
    from multiprocessing.connection import Connection

    connection = Connection(descriptor)
    connection.send(None)  # from here on it dies with its parent, so it may be halted
    if role == LISTER:
        found = None
        try:
            from autotune.devices import list_bundled

            found = list_bundled()
            # A fork does not run exit functions by itself, and once the answer is sent, the parent may end, and this
            # process with it: a driver's temporary folder must be removed before.
            atexit._run_exitfuncs()
        finally:  # a process that sends nothing was ended by a driver
            connection.send(found)
        with suppress(EOFError, OSError):
            connection.recv()
        return
    from autotune.bench import serve

    if role == "builder":
        os.nice(5)  # the device's worker and the search go first
    os.set_inheritable(descriptor, False)  # a linker that PoCL starts must not hold it open
    serve(role, connection)


def be_named(role: str) -> None:
    """Set the name that lists of processes show; the system cuts it to 15 characters."""
    with suppress(OSError):
        Path("/proc/self/comm").write_text(f"autotune-{role}", encoding="utf-8")


def become_worker(role: str, environment: Mapping[str, str], connection: int, log: int, server: int) -> NoReturn:
    """Do what `python -m autotune.pool.worker` does, in a fork."""
    code = 1
    try:
        os.setsid()
        for stream in (1, 2):
            os.dup2(log, stream)
        os.close(log)
        os.environ.update(environment)
        be_named(role)
        main(role, connection, server)
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        sys.stdout.flush()
        os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
