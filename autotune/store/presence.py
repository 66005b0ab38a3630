"""Whether the process of a search is still there.

What a search that was killed left pending is lost. One that was taken for dead and is not loses nothing: `Store.finish`
takes a lost trial as well as a pending one.
"""

from __future__ import annotations

import hashlib
import os
import platform
from datetime import UTC, datetime, timedelta
from pathlib import Path

PATIENCE = timedelta(days=1)
"""How long a search that cannot be looked at from here, as on another machine, is believed to be at work."""

PROC = Path("/proc")


LIVELY = timedelta(hours=1)
"""A search that is at work begins a trial in less."""


def this_process() -> str:
    """Return what names this process among all of all machines: host, boot, name space of numbers, number, start."""
    host = hashlib.sha256(platform.node().encode()).hexdigest()[:12]
    return ":".join((host, *_boot(), str(os.getpid()), _start(os.getpid())))


def is_dead(process: str, started: str) -> bool:
    """True where the process that `this_process` named, and that began at the instant `started`, is at work no more."""
    here, there = this_process().split(":"), process.split(":")
    if len(there) == len(here) and there[:3] == here[:3]:
        return not _is_running(there[3], there[4])
    if len(there) == len(here) and there[0] == here[0] and there[1] != here[1]:
        return True  # this machine has been started since
    try:
        age = datetime.now(UTC) - datetime.fromisoformat(started)
    except (ValueError, TypeError):
        return True
    return abs(age) > PATIENCE  # or ahead, by a clock that was wrong


def is_recent(instant: str) -> bool:
    """Say whether an instant is less than LIVELY ago, or ahead, by clocks that do not agree."""
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
    """Return what changes when the machine starts, and what differs between containers; "" where it cannot be told."""
    try:
        boot = (PROC / "sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        return boot, str((PROC / "self/ns/pid").stat().st_ino)
    except OSError:
        return "", ""


def _start(number: int) -> str:
    """Return when a process began, in ticks since the boot; "" where there is none or it has ended."""
    try:
        fields = (PROC / str(number) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]
