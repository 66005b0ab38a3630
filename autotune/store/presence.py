"""Whether a search's process is still running.

The pending trials of a killed search are lost. A search that was wrongly taken for dead loses nothing: `Store.finish`
accepts lost trials as well as pending ones.
"""

from __future__ import annotations

import hashlib
import os
import platform
from datetime import UTC, datetime, timedelta
from pathlib import Path

PATIENCE = timedelta(days=1)
"""How long a search is believed to run if its process cannot be checked, as on another machine."""

PROC = Path("/proc")


LIVELY = timedelta(hours=1)
"""A running search begins a trial more often than this."""


def this_process() -> str:
    """Return an identifier of this process among all machines: host, boot, name space of numbers, number, start."""
    host = hashlib.sha256(platform.node().encode()).hexdigest()[:12]
    return ":".join((host, *_boot(), str(os.getpid()), _start(os.getpid())))


def is_dead(process: str, started: str) -> bool:
    """Return whether a process has ended, by its `this_process` and the instant `started` of its search."""
    here, there = this_process().split(":"), process.split(":")
    if len(there) == len(here) and there[:3] == here[:3]:
        return not _is_running(there[3], there[4])
    if len(there) == len(here) and there[0] == here[0] and there[1] != here[1]:
        return True  # this machine was restarted since
    try:
        age = datetime.now(UTC) - datetime.fromisoformat(started)
    except (ValueError, TypeError):
        return True
    return abs(age) > PATIENCE  # also if far in the future, by a wrong clock


def is_recent(instant: str) -> bool:
    """Return whether an instant is less than LIVELY ago, or ahead, if clocks differ."""
    try:
        return abs(datetime.now(UTC) - datetime.fromisoformat(instant)) < LIVELY
    except (ValueError, TypeError):
        return False


def _is_running(number: str, start: str) -> bool:
    if not number.isdecimal():
        return False
    if start:
        return _start(int(number)) == start
    try:
        os.kill(int(number), 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # another user's
        pass
    return True


def _boot() -> tuple[str, str]:
    """Return a value that changes when the machine starts, and one for each container; "" if they are unknown."""
    try:
        boot = (PROC / "sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        return boot, str((PROC / "self/ns/pid").stat().st_ino)
    except OSError:
        return "", ""


def _start(number: int) -> str:
    """Return when a process began, in ticks since the boot; "" if there is none or it has ended."""
    try:
        fields = (PROC / str(number) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]
