"""What the system allows this process: cores, memory, processes. A container or a job has less than its machine.

Limits are read from control groups of either version, in each folder from this process's own up to the top. Standard
library only: limits are read before NumPy is imported.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import suppress

_GROUPS = "/sys/fs/cgroup"
_PROC = "/proc"

MORE_PROCESSES = "allow more with ulimit -u, or in the container's pids.max"
"""What to do if no more processes or threads may be started."""

MORE_ROOM = "free some space or set TMPDIR to another folder"
"""What to do if a folder for temporary files is full."""

_SPARE = 32
"""Processes and threads that a command starts, beside the threads that a driver starts for each core."""

_UNSOUND = (OSError, ValueError, LookupError, ArithmeticError)
"""Errors of reading a file that is missing or does not hold what is expected."""

_EACH = 16
"""If fewer processes than this may be started for each core, NumPy's library gets only one thread."""


def count_cores() -> int:
    """Return how many cores this process may use; in a container or under `taskset` not all that there are."""
    quota = min(_quotas(), default=math.inf)
    return _cores_seen() if quota == math.inf else max(1, min(_cores_seen(), math.ceil(quota)))


def _cores_seen() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _quotas() -> Iterator[float]:
    """Yield the time quota of each group, in cores."""
    for folder in _folders("cpu"):
        with suppress(*_UNSOUND):
            quota, period = map(int, _read(f"{folder}/cpu.max").split())
            yield quota / period
        with suppress(*_UNSOUND):
            quota, period = (int(_read(f"{folder}/cpu.cfs_{name}_us")) for name in ("quota", "period"))
            if quota > 0:
                yield quota / period


def available() -> float:
    """Return the bytes of memory that this process could still take; infinite if the system does not tell."""
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
    """Say that hardly any process or thread can be started, and what to do, or return "" if there is room for some.

    Drivers report this state in any way they like, or not at all.
    """
    few = _SPARE + (os.cpu_count() or 1)
    used, most = min(_processes(), key=lambda found: found[1] - found[0], default=(0, math.inf))
    if most - used > few:
        return ""
    return f"{used} of the {most} processes and threads that may be are at work: {MORE_PROCESSES}"


def _processes() -> Iterator[tuple[int, int]]:
    """Yield how many processes and threads there are, and how many are allowed, for this user and each group."""
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
    """Return how many processes and threads a user may have, or None without a limit (it does not apply to root)."""
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
    """Make NumPy's library (OpenBLAS) start as many threads as there are cores to use, or one if limits are tight.

    If few processes are allowed: OpenBLAS ends the command, as Ctrl-C would, when it cannot start its threads. If a
    process's memory is limited: each thread has buffers of its own, and waits for ever if there is no room for them.
    Call this before NumPy is imported.
    """
    limits = [limit for limit in (_user_limit(), *(most for _, most in _processes_of_groups())) if limit is not None]
    seen = _cores_seen()
    threads = 1 if min(limits, default=math.inf) < _EACH * seen or limits_memory() else count_cores()
    if threads < seen:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", str(threads))


def limits_memory() -> bool:
    """Say whether the memory that this process may map is limited, as batch systems do (ulimit -v)."""
    import resource

    return resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY


def _folders(controller: str) -> Iterator[str]:
    """Yield the folders of this process's control groups, from its own up."""
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
