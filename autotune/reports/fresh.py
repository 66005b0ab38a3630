"""A fresh worker process with empty build caches: a use from nothing to the result, a build kept, a text inspected.

As in the first call of a program; and a compiler that crashes takes nothing else down.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autotune.bench import EndToEnd, Inspect, Inspected, Keep, Kept, Report, Use
from autotune.devices import environment
from autotune.errors import UsageError, WorkerError
from autotune.model import DeviceInfo
from autotune.pool import WorkerProcess
from autotune.study import Plan

LIMIT_S = 300.0
"""For all of it."""

_SOURCE, _OPTIONS, _LOG = "kernel.cl", "options.txt", "build.log"
BUILD_FILES = (_SOURCE, _OPTIONS, _LOG, "kernel.ptx", "kernel.bin")
"""What `save_build` may write."""


def end_to_end(plan: Plan, device: DeviceInfo) -> EndToEnd:
    """Use a verified plan from nothing. Raises WorkerError where the process fails or overruns."""
    answer = _ask(Use(plan), device, "end to end")
    assert isinstance(answer, EndToEnd)
    return answer


def save_build(plan: Plan, device: DeviceInfo, folder: Path) -> list[Path]:
    """Write `kernel.cl`, `options.txt`, `build.log` and the binary into a folder; return what was written.

    A plan that does not build leaves no binary, which is PTX on NVIDIA. Raises UsageError where the folder cannot be
    written, WorkerError where the build process dies or overruns.
    """
    _write(folder, {_SOURCE: plan.source.encode(), _OPTIONS: ("\n".join(plan.options) + "\n").encode()})
    kept = _ask(Keep(plan), device, "--save-build")
    assert isinstance(kept, Kept)
    files = {_LOG: (kept.log + "\n").encode()}
    if kept.binary:
        files[f"kernel.{kept.suffix}"] = kept.binary
    _write(folder, files)
    return [folder / name for name in (_SOURCE, _OPTIONS, *files)]


def inspect(source: str, options: Sequence[str], names: Sequence[str], device: DeviceInfo) -> Inspected:
    """Return what the device's compiler tells of a kernel's text: arguments by entry, and what `names` stand for.

    Raises WorkerError, with the log, where it does not build.
    """
    answer = _ask(Inspect(source, tuple(options), tuple(names)), device, "")
    assert isinstance(answer, Inspected)
    return answer


def _write(folder: Path, files: dict[str, bytes]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / name).write_bytes(content)
    except OSError as error:
        raise UsageError(f"cannot be written: {error.strerror}", where=str(folder)) from error


def _ask(message: Use | Keep | Inspect, device: DeviceInfo, where: str) -> Any:
    with tempfile.TemporaryDirectory(prefix="autotune-") as name:
        folder = Path(name)
        worker = WorkerProcess("once", folder, environment(device, folder, worker=False))
        try:
            worker.send(device)
            worker.receive(LIMIT_S)  # it may be ended from here on
            worker.send(message)
            answer = worker.receive(LIMIT_S)
        except WorkerError as error:
            raise error.at(where) from None
        finally:
            worker.kill()
    if isinstance(answer, Report):
        raise WorkerError(answer.reason, where=where, detail=answer.build_log)
    return answer
