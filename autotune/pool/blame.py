"""Whose fault it is that a worker failed: its kernel's, the machine's, or another program's that ended it."""

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
"""Signals that come from outside: out of memory, a shutdown, `ulimit -t`. A worker's own fault has other signals."""

_ERROR, _PLACE = re.compile(r"\berror\b"), re.compile(r":\d+:")
"""An error and its line of the source, as the compilers of PoCL and NVIDIA write them, in either order. `<built-in>` is
not a line of the kernel: the driver's own headers are broken."""


def is_from_outside(death: WorkerDied) -> bool:
    """Say whether a worker was ended from outside."""
    return death.signal in _OUTSIDE


def forgiving(step: Callable[[], Any]) -> Any:
    """Run a step, and again if the worker was ended from outside: by SIGKILL, usually because memory was short."""
    try:
        return step()
    except WorkerDied as death:
        if not is_from_outside(death):
            raise
    return step()


def may_be_the_machines(report: Report) -> bool:
    """Say whether a failure need not be the kernel's own: a lost build, or an error that names no line of it."""
    if report.outcome is Outcome.CRASH:
        return report.phase in ("build", "launch")
    return report.outcome is Outcome.COMPILE_ERROR and not _is_placed(report.build_log)


def _is_placed(log: str) -> bool:
    lines = (line for line in log.splitlines() if "<built-in>:" not in line)
    return any(_ERROR.search(line) and _PLACE.search(line) for line in lines)


_ROOM = 2**20
"""Bytes that must fit into the folder of the drivers' caches: a few kernels."""


def unwritable(folder: Path) -> str:
    """Say why a file of `_ROOM` bytes cannot be written to a folder, with the folder's name. Empty if it can."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(_ROOM))
    except OSError as error:
        return f"{folder}: {error.strerror}"
    return ""


def machine_fault(reason: str, folder: Path, detail: str = "") -> SetupError:
    """Return the error of a machine on which a kernel known to be good fails: the reason, and the cure."""
    hint = "; ".join(_cures(folder)) or "`clinfo` and `dmesg` may tell more; reinstalling the driver often helps"
    return SetupError(f"a kernel known to be good fails on this machine: {reason}", hint=hint, detail=detail)


def _cures(folder: Path) -> list[str]:
    if full := unwritable(folder):
        return [f"{MORE_ROOM} ({full})"]
    if scarce := lacks_processes():
        return [scarce]
    cures = []
    with suppress(OSError):
        if os.statvfs(folder).f_flag & os.ST_NOEXEC:  # PoCL loads its builds from there
            cures.append(f"set TMPDIR to a folder from which programs may run ({folder} is mounted noexec)")
    return cures + diagnose()
