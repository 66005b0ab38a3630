"""Which of the installed OpenCL drivers takes down, or holds up, whoever asks for devices: each is asked alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from autotune.text import typed

VENDORS = Path("/etc/OpenCL/vendors")
"""Where a system registers its drivers, unless OCL_ICD_VENDORS names another place."""

_FOLDER = "OCL_ICD_VENDORS"

_PATIENCE_S = 30.0

_ASK = "import pyopencl\nfor platform in pyopencl.get_platforms():\n    platform.get_devices()"


def faulty() -> list[str]:
    """Return a line for each registered driver that ends, or does not answer, a process that asks it for devices."""
    return list(_faulty(Path(os.environ.get(_FOLDER) or VENDORS)))


def _faulty(folder: Path) -> Iterator[str]:
    for entry in sorted(folder.glob("*.icd")):
        with tempfile.TemporaryDirectory(prefix="autotune-driver-") as alone:
            (Path(alone) / entry.name).symlink_to(entry.absolute())
            code = _ask({**os.environ, _FOLDER: alone})
        if code is None or code < 0:
            does = "does not answer" if code is None else f"ends who asks ({signal.Signals(-code).name})"
            away = typed(["sudo", "mv", str(entry), f"{entry}.off"])
            yield f"{entry} {does}: mend that driver, or `{away}`, or set {_FOLDER} to a folder without it"


def _ask(environment: dict[str, str]) -> int | None:
    """Return the exit code of a process that asks for devices; None where it does not end."""
    try:
        return subprocess.run(
            [sys.executable, "-c", _ASK],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_PATIENCE_S,
        ).returncode
    except subprocess.TimeoutExpired:
        return None
