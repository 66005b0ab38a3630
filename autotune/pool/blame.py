"""Whose fault it is that a worker failed: its kernel's, the machine's, or of somebody who ended it."""

from __future__ import annotations

import os
import re
import signal
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from autotune.bench import Report
from autotune.devices import diagnose
from autotune.errors import SetupError
from autotune.model import Outcome
from autotune.pool.allowance import MORE_ROOM, lacks_processes
from autotune.pool.process import WorkerDied

_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGXCPU)
"""Signals that others send: what is out of memory, who shuts down, `ulimit -t`. A worker's own fault is another."""

_ERROR, _PLACE = re.compile(r"\berror\b"), re.compile(r":\d+:")
"""An error and its line of the source, as PoCL's compiler and NVIDIA's write them, in either order. What a compiler has
`<built-in>` is no line of the kernel's: the driver's own headers are amiss."""


def is_from_outside(death: WorkerDied) -> bool:
    """Say whether somebody else has ended a worker."""
    return death.signal in _OUTSIDE


def forgiving(step: Callable[[], Any]) -> Any:
    """Take a step, and once more where the worker was ended from outside: a SIGKILL, usually for want of memory."""
    try:
        return step()
    except WorkerDied as death:
        if not is_from_outside(death):
            raise
    return step()


def may_be_the_machines(report: Report) -> bool:
    """Say whether a failure tells nothing of the kernel's own fault: a lost build, an error at no line of its."""
    if report.outcome is Outcome.CRASH:
        return report.phase in ("build", "launch")
    return report.outcome is Outcome.COMPILE_ERROR and not _is_placed(report.build_log)


def _is_placed(log: str) -> bool:
    lines = (line for line in log.splitlines() if "<built-in>:" not in line)
    return any(_ERROR.search(line) and _PLACE.search(line) for line in lines)


_ROOM = 2**20
"""Bytes that the folder of the drivers' caches must take: a few kernels."""


def unwritable(folder: Path) -> str:
    """Say why a folder takes no file of `_ROOM` bytes, with the folder's name; empty where it does."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(_ROOM))
    except OSError as error:
        return f"{folder}: {error.strerror}"
    return ""


def machine_fault(reason: str, folder: Path, detail: str = "") -> SetupError:
    """Return the error of a machine on which a kernel known to be good fails: what was said, and the cure."""
    hint = "; ".join(_cures(folder)) or "`clinfo` and `dmesg` may tell more; reinstalling the driver often helps"
    return SetupError(f"a kernel known to be good fails on this machine: {reason}", hint=hint, detail=detail)


def _cures(folder: Path) -> list[str]:
    if full := unwritable(folder):
        return [f"{MORE_ROOM} ({full})"]
    if scarce := lacks_processes():
        return [scarce]
    cures = []
    with suppress(OSError):
        if os.statvfs(folder).f_flag & os.ST_NOEXEC:  # PoCL loads from there what it has built
            cures.append(f"set TMPDIR to a folder from which programs may run ({folder} is mounted noexec)")
    return cures + diagnose()
