"""A fresh worker process with empty build caches: one use end to end, a saved build, inspected texts.

It is like the first call of a program. A compiler that crashes takes only this process down.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

from autotune.bench import EndToEnd, Inspect, Inspected, Keep, Kept, Report, Use
from autotune.devices import environment
from autotune.errors import UsageError, WorkerError
from autotune.model import DeviceInfo
from autotune.pool import Forkserver, Start, WorkerProcess, can_hold
from autotune.study import Plan

LIMIT_S = 300.0
"""Seconds for each message, and for the process to start."""

_SOURCE, _OPTIONS, _LOG = "kernel.cl", "options.txt", "build.log"
BUILD_FILES = (_SOURCE, _OPTIONS, _LOG, "kernel.ptx", "kernel.bin")
"""The files that `save_build` may write."""


def end_to_end(plan: Plan, device: DeviceInfo) -> EndToEnd:
    """Use a verified plan from nothing to the result. Raises WorkerError if the process fails or overruns."""
    answer = _ask(Use(plan), device, "end to end")
    assert isinstance(answer, EndToEnd)
    return answer


def save_build(plan: Plan, device: DeviceInfo, folder: Path) -> list[Path]:
    """Write `kernel.cl`, `options.txt`, `build.log` and the binary into a folder; return the written files.

    A plan that does not build leaves no binary, which is PTX on NVIDIA. Raises UsageError if the folder cannot be
    written, WorkerError if the build process dies or overruns.
    """
    _write(folder, {_SOURCE: plan.source.encode(), _OPTIONS: ("\n".join(plan.options) + "\n").encode()})
    kept = _ask(Keep(plan), device, "--save-build")
    assert isinstance(kept, Kept)
    files = {_LOG: (kept.log + "\n").encode()}
    if kept.binary:
        files[f"kernel.{kept.suffix}"] = kept.binary
    _write(folder, files)
    return [folder / name for name in (_SOURCE, _OPTIONS, *files)]


class Inspector:
    """Inspects one text after another with a device's compiler, each in a context of its own.

    One process answers them as long as it works, because a driver takes longer to start than a kernel to compile. If it
    dies, overruns or fails in another way than by refusing a text, the next text gets a new process. If it had answered
    before, this text is tried again too, so that no answer is the effect of an earlier text.
    """

    def __init__(self, device: DeviceInfo) -> None:
        self.device = device
        self._open = ExitStack()  # the worker's
        self._worker: WorkerProcess | None = None
        self._forks: Forkserver | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._drop()
        if self._forks is not None:
            self._forks.close()

    def inspect(self, source: str, options: Sequence[str], names: Sequence[str]) -> Inspected:
        """Return what the compiler finds in a kernel's text: arguments by entry, and what `names` stand for.

        Raises WorkerError, with the log, if it does not build.
        """
        message = Inspect(source, tuple(options), tuple(names))
        answer = self._asked_again(message) if self._worker is not None else None
        if answer is None:
            answer = self._asked(message)
        if isinstance(answer, Report):
            raise WorkerError(answer.reason, detail=answer.build_log)
        return answer

    def _asked_again(self, message: Inspect) -> Inspected | Report | None:
        """Ask a process that has answered before; None if it fails."""
        try:
            answer = self._asked(message)
        except WorkerError:
            return None
        return None if isinstance(answer, Report) and answer.fatal else answer

    def _asked(self, message: Inspect) -> Inspected | Report:
        try:
            if self._worker is None:
                self._worker = self._open.enter_context(_worker(self.device, self._start()))
            answer: Inspected | Report = _told(self._worker, message)
        except BaseException:
            self._drop()
            raise
        if isinstance(answer, Report) and answer.fatal:
            self._drop()
        return answer

    def _start(self) -> Start | None:
        if self._forks is None and can_hold():
            self._forks = Forkserver()
        return self._forks.start if self._forks is not None else None

    def _drop(self) -> None:
        self._worker = None
        self._open.close()


def _write(folder: Path, files: dict[str, bytes]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / name).write_bytes(content)
    except OSError as error:
        hint = "name a folder that may be written"
        raise UsageError(f"cannot be written: {error.strerror}", where=str(folder), hint=hint) from error


def _ask(message: Use | Keep, device: DeviceInfo, where: str) -> Any:
    try:
        with _worker(device) as worker:
            answer = _told(worker, message)
    except WorkerError as error:
        raise error.at(where) from None
    if isinstance(answer, Report):
        raise WorkerError(answer.reason, where=where, detail=answer.build_log)
    return answer


@contextmanager
def _worker(device: DeviceInfo, start: Start | None = None) -> Iterator[WorkerProcess]:
    with tempfile.TemporaryDirectory(prefix="autotune-") as name:
        folder = Path(name)
        worker = WorkerProcess("once", folder, environment(device, folder, worker=False), start)
        try:
            worker.send(device)
            worker.receive(LIMIT_S)  # it may be ended from here on
            yield worker
        finally:
            worker.kill()


def _told(worker: WorkerProcess, message: Use | Keep | Inspect) -> Any:
    worker.send(message)
    return worker.receive(LIMIT_S)
