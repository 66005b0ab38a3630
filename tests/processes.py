"""Processes as a test sees them: whether one has ended."""

from __future__ import annotations

import os
import select
from contextlib import suppress


def has_ended(pid: int, within_s: float = 60.0) -> bool:
    """Tell whether a process ends; who was sent SIGKILL is there for a moment still, longer on a busy machine."""
    with suppress(ProcessLookupError):
        descriptor = os.pidfd_open(pid)
        try:
            return bool(select.select([descriptor], [], [], within_s)[0])
        finally:
            os.close(descriptor)
    return True
