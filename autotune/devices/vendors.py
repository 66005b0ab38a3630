"""Finds installed OpenCL drivers that crash or hang a process that asks for devices, by asking each one alone."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from autotune.errors import ending
from autotune.text import typed

VENDORS = Path("/etc/OpenCL/vendors")
"""Where a system registers its drivers, unless OCL_ICD_VENDORS names another folder, or the library of one driver."""

_FOLDER = "OCL_ICD_VENDORS"

_PATIENCE_S = 30.0

_KILL_S = 1.0
"""How long a killed process has to end."""

_ASKED = 86
"""The exit code of a process that has asked, whether it found devices or not; no driver ends a process with it."""

_ASK = f"""
import os
try:
    import pyopencl
    for platform in pyopencl.get_platforms():
        platform.get_devices()
finally:
    os._exit({_ASKED})
"""


def faulty() -> list[str]:
    """Return a line for each registered driver that ends a process that asks it for devices, or does not answer it."""
    found: list[str] = []
    with suppress(OSError):  # no room for a folder, or no more processes allowed: return what is known so far
        named = os.environ.get(_FOLDER, "")
        found.extend(_faulty_alone(named) if named and not os.path.isdir(named) else _faulty(Path(named or VENDORS)))
    return found


def _faulty_alone(driver: str) -> Iterator[str]:
    """Yield the line of the only driver, which is given by its library or its entry."""
    if does := _does(_ask(dict(os.environ))):
        yield f"{driver} {does}: repair that driver, or `unset {_FOLDER}`"


def _faulty(folder: Path) -> Iterator[str]:
    for entry in sorted(folder.glob("*.icd")):
        with tempfile.TemporaryDirectory(prefix="autotune-driver-") as alone:
            (Path(alone) / entry.name).symlink_to(entry.absolute())
            code = _ask({**os.environ, _FOLDER: alone})
        if does := _does(code):
            away = typed(["sudo", "mv", str(entry), f"{entry}.off"])
            yield f"{entry} {does}: repair that driver, or `{away}`, or set {_FOLDER} to a folder without it"


def _does(code: int | None) -> str:
    """Return what a driver does to a process that asks it, by the exit code; empty if it answers."""
    if code is None:
        return "does not answer"
    return "" if code == _ASKED else f"ends every program that asks it ({ending(code)})"


def _ask(environment: dict[str, str]) -> int | None:
    """Return the exit code of a process that asks for devices, or None if it does not end."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", _ASK],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        return process.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired:
        return None
    finally:
        process.kill()  # without effect if it has ended
        with suppress(subprocess.TimeoutExpired):  # a process that hangs in a system call does not end
            process.wait(_KILL_S)
