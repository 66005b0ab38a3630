"""Whose fault it is that a worker failed: its kernel's, the machine's, or of somebody who ended it."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from typing import Any

from autotune.bench import Report
from autotune.model import Outcome
from autotune.pool.process import WorkerDied

_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP)
"""Signals that others send: what is out of memory, who shuts down. A worker's own fault is another."""

_PLACED = re.compile(r"\berror\b.*:\d+:|:\d+:.*\berror\b")
"""An error at a line of the source, as PoCL's compiler and NVIDIA's write it."""


def is_from_outside(death: WorkerDied) -> bool:
    """Say whether somebody else has ended a worker."""
    return death.signal in _OUTSIDE


def forgiving(step: Callable[[], Any]) -> Any:
    """Take a step, and once more where the worker was killed from outside: a SIGKILL, usually for want of memory."""
    try:
        return step()
    except WorkerDied as death:
        if death.signal != signal.SIGKILL:
            raise
    return step()


def may_be_the_machines(report: Report) -> bool:
    """Say whether a failure tells nothing of the kernel's own fault: a lost build, an error at no line of its."""
    if report.outcome is Outcome.CRASH:
        return report.phase in ("build", "launch")
    return report.outcome is Outcome.COMPILE_ERROR and not _PLACED.search(report.build_log)
