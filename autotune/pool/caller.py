"""Runs a study's function in a process of its own, which is killed when it overruns."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from autotune import text
from autotune.errors import StudyError, WorkerError, ending
from autotune.pool.worker import command_of
from autotune.study import files_of


class Caller:
    """Runs a function of a file within `limit_s` seconds, and keeps its files in `folder` meanwhile.

    It runs one function at a time. It is a `PythonCaller`.
    """

    def __init__(self, folder: Path, limit_s: float) -> None:
        self._folder, self._limit_s = folder, limit_s
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False

    def __call__(self, path: Path, name: str, names: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what the function returns. Raises StudyError, or WorkerError once this is closed."""
        with tempfile.TemporaryDirectory(prefix="reference-", dir=self._folder) as place:
            _write(Path(place), path, name, names)
            return _answer(Path(place), path, self._run(Path(place), path))

    def close(self) -> None:
        """End the running function, with all processes that it has started."""
        with self._lock:
            self._closed = True
            if self._process is not None:
                _end(self._process)

    def _run(self, place: Path, path: Path) -> int:
        with self._lock:
            if self._closed:
                raise WorkerError("closed")
            process = self._process = _started(place)
        try:
            return process.wait(timeout=self._limit_s)
        except subprocess.TimeoutExpired:
            what = f"the function took more than {text.duration(self._limit_s)}"
            raise StudyError(what, where=path.name, hint="allow it more with --run-limit 10m") from None
        finally:
            with self._lock:
                self._process = None
            _end(process)
            process.wait()


def _write(place: Path, path: Path, name: str, names: Mapping[str, Any]) -> None:
    arrays = {key: f"given-{key}.npy" for key, value in names.items() if isinstance(value, np.ndarray)}
    for key, file in arrays.items():
        np.save(place / file, names[key])
    request = {
        "path": str(path.resolve()),
        "name": name,
        "files": list(files_of(path)),
        "arrays": arrays,
        "numbers": {key: value for key, value in names.items() if key not in arrays},
    }
    (place / "request.json").write_text(json.dumps(request), encoding="utf-8")


def _started(place: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command_of("autotune.pool.guard", str(place / "request.json"), str(os.getpid())),
        stdin=subprocess.DEVNULL,
        stdout=2,  # stdout is for our data, not for what it prints
        start_new_session=True,
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process, and the processes that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _answer(place: Path, path: Path, code: int) -> Mapping[str, Any]:
    """Read the answer of the process. The author's code may have written anything."""
    ended = f"{'killed by ' * (code < 0)}{ending(code)}"
    try:
        answer = json.loads((place / "answer.json").read_text(encoding="utf-8"))
        if "error" in answer:
            what, where, hint = map(str, answer["error"])
            raise StudyError(what, where=where, hint=hint)
        return {name: _loaded(place, file) for name, file in answer["outputs"].items()}
    except StudyError:
        raise
    except Exception as error:
        raise StudyError(f"the function left no answer ({ended})", where=path.name) from error


def _loaded(place: Path, file: str | Mapping[str, str]) -> Any:
    """Return the array of a file, or the arrays of a struct's members."""
    if isinstance(file, Mapping):
        return {member: np.load(place / Path(one).name) for member, one in file.items()}
    return np.load(place / Path(file).name)
