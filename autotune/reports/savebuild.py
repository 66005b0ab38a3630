"""Keeps what one build takes and gives: source, options, log and binary (PTX on NVIDIA), for its author to read.

Builds in a fresh process (`python -m autotune.reports.savebuild`): a compiler that crashes takes nothing else down.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

from autotune.devices.opencl import BuildError, OpenCLError, Session
from autotune.errors import UsageError, WorkerError
from autotune.model import DeviceInfo
from autotune.pool import python_path
from autotune.study.plan import Plan

LIMIT_S = 300.0


def save_build(plan: Plan, device: DeviceInfo, folder: Path) -> list[Path]:
    """Write `kernel.cl`, `options.txt`, `build.log` and the binary into a folder; return what was written.

    A plan that does not build leaves no binary. Raises UsageError where the folder cannot be written,
    WorkerError where the build process dies or overruns.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "kernel.cl").write_text(plan.source, encoding="utf-8")
        (folder / "options.txt").write_text("\n".join(plan.options) + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot be written: {error.strerror}", where=str(folder)) from error
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "autotune.reports.savebuild", str(folder)],
            env={**os.environ, **python_path()},
            input=pickle.dumps((plan, device)),
            capture_output=True,
            timeout=LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        raise WorkerError(f"the build took more than {LIMIT_S:.0f} s", where="--save-build") from None
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().splitlines() or [f"exit code {done.returncode}"]
        raise WorkerError(f"the build process failed: {last[-1]}", where="--save-build")
    names = ["kernel.cl", "options.txt", *done.stdout.decode().split()]
    return [folder / name for name in names]


def build_here(plan: Plan, device: DeviceInfo, folder: Path) -> list[str]:
    """Build in this process and write log and binary; return the names of the files."""
    try:
        program = Session(device).build(plan.source, plan.options)
    except BuildError as error:
        (folder / "build.log").write_text(error.detail + "\n", encoding="utf-8")
        return ["build.log"]
    (folder / "build.log").write_text(program.log + "\n", encoding="utf-8")
    try:
        binary = program.binary
    except OpenCLError:  # a driver need not give it away
        return ["build.log"]
    name = "kernel.ptx" if device.vendor_name == "nvidia" else "kernel.bin"
    (folder / name).write_bytes(binary.rstrip(b"\0") if name.endswith("ptx") else binary)
    return ["build.log", name]


if __name__ == "__main__":
    asked_plan, asked_device = pickle.loads(sys.stdin.buffer.read())
    print(*build_here(asked_plan, asked_device, Path(sys.argv[1])))
