"""What the system allows this process: cores, memory, processes. A container or a job has less than its machine.

Control groups of either version say so, each folder from this process's own up to the top. Standard library only: this
is looked at before NumPy is imported.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import suppress

_GROUPS = "/sys/fs/cgroup"
_PROC = "/proc"

MORE_PROCESSES = "allow more with ulimit -u, or in the container's pids.max"
"""What to do where no more processes or threads may be started."""

MORE_ROOM = "free some space or set TMPDIR to another folder"
"""What to do where a folder for temporary files takes no more."""

_SPARE = 32
"""Processes and threads that a command starts, beside those that a driver starts on each core."""

_UNSOUND = (OSError, ValueError, LookupError, ArithmeticError)
"""What reading a file raises that is not there, or says none of what it is read for."""

_EACH = 16
"""Of processes that may be started, for each core: where there are less, NumPy's library has one thread."""


def count_cores() -> int:
    """Return how many cores this process may use: fewer than there are in a container or under `taskset`."""
    quota = min(_quotas(), default=math.inf)
    return _cores_seen() if quota == math.inf else max(1, min(_cores_seen(), math.ceil(quota)))


def _cores_seen() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _quotas() -> Iterator[float]:
    """Cores' worth of time that each group has."""
    for folder in _folders("cpu"):
        with suppress(*_UNSOUND):
            quota, period = map(int, _read(f"{folder}/cpu.max").split())
            yield quota / period
        with suppress(*_UNSOUND):
            quota, period = (int(_read(f"{folder}/cpu.cfs_{name}_us")) for name in ("quota", "period"))
            if quota > 0:
                yield quota / period


def available() -> float:
    """Return the bytes of memory that this process could still take; infinite where the system does not tell."""
    return min(_free(), default=math.inf)


def _free() -> Iterator[int]:
    with suppress(*_UNSOUND):
        yield 1024 * _table(f"{_PROC}/meminfo")["MemAvailable:"]
    for folder in _folders("memory"):
        for limit, used, cached in (
            ("max", "current", "inactive_file"),
            ("limit_in_bytes", "usage_in_bytes", "total_inactive_file"),
        ):
            with suppress(*_UNSOUND):
                left = int(_read(f"{folder}/memory.{limit}")) - int(_read(f"{folder}/memory.{used}"))
                yield left + _table(f"{folder}/memory.stat")[cached]


def lacks_processes() -> str:
    """Say that hardly any process or thread can be started, and what to do; empty where some can.

    Drivers say of it what they like, or nothing.
    """
    few = _SPARE + (os.cpu_count() or 1)
    used, most = min(_processes(), key=lambda found: found[1] - found[0], default=(0, math.inf))
    if most - used > few:
        return ""
    return f"{used} of the {most} processes and threads that may be are at work: {MORE_PROCESSES}"


def _processes() -> Iterator[tuple[int, int]]:
    """How many there are and may be, of this user and of each group."""
    limit = _user_limit()
    if limit is not None:
        with suppress(OSError):
            yield _threads_of_user(), limit
    yield from _processes_of_groups()


def _processes_of_groups() -> Iterator[tuple[int, int]]:
    for folder in _folders("pids"):
        with suppress(*_UNSOUND):
            yield int(_read(f"{folder}/pids.current")), int(_read(f"{folder}/pids.max"))


def _user_limit() -> int | None:
    """How many processes and threads a user may have; None: no limit, or one that does not bind, as for root."""
    import resource

    limit = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    return None if limit == resource.RLIM_INFINITY or os.geteuid() == 0 else limit


def _threads_of_user() -> int:
    found, user = 0, os.geteuid()
    for name in os.listdir(_PROC):
        with suppress(OSError):
            if name.isdigit() and os.stat(f"{_PROC}/{name}").st_uid == user:
                found += len(os.listdir(f"{_PROC}/{name}/task"))
    return found


def bound_threads() -> None:
    """Have NumPy's library (OpenBLAS) start as many threads as there are cores to use; one where processes are few.

    Where it cannot start them it ends the command as Ctrl-C would. One too where a process's memory is limited: each
    thread has buffers of its own, and what finds no room for them waits for it for ever. Call it before NumPy is
    imported.
    """
    limits = [limit for limit in (_user_limit(), *(most for _, most in _processes_of_groups())) if limit is not None]
    seen = _cores_seen()
    threads = 1 if min(limits, default=math.inf) < _EACH * seen or limits_memory() else count_cores()
    if threads < seen:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", str(threads))


def limits_memory() -> bool:
    """Say whether there is a limit on the memory that this process may map, as batch systems set it (ulimit -v)."""
    import resource

    return resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY


def _folders(controller: str) -> Iterator[str]:
    """The folders of this process's control groups, from its own up, that are there."""
    try:
        lines = _read(f"{_PROC}/self/cgroup").splitlines()
    except OSError:
        return
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and controller not in controllers.split(","):
            continue
        base = f"{_GROUPS}/{controller}" if controllers else _GROUPS
        parts = [part for part in path.split("/") if part]
        for count in range(len(parts), -1, -1):
            yield "/".join((base, *parts[:count]))


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def _table(path: str) -> dict[str, int]:
    rows = (row.split() for row in _read(path).splitlines())
    return {row[0]: int(row[1]) for row in rows}
