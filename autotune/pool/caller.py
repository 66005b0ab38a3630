"""Runs a study's function in a process of its own, which is killed when it overruns."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from autotune import text
from autotune.errors import StudyError
from autotune.pool.process import signal_name
from autotune.pool.worker import python_path
from autotune.study import PythonCaller, files_of


def caller(folder: Path, limit_s: float) -> PythonCaller:
    """Return what runs a function of a file within `limit_s` seconds, and keeps its files in a folder meanwhile."""

    def run(path: Path, name: str, names: Mapping[str, Any]) -> Mapping[str, Any]:
        with tempfile.TemporaryDirectory(prefix="reference-", dir=folder) as place:
            return _run(Path(place), path, name, names, limit_s)

    return run


def _run(place: Path, path: Path, name: str, names: Mapping[str, Any], limit_s: float) -> Mapping[str, Any]:
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
    (place / "request.json").write_text(json.dumps(request))
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "autotune.pool.guard", str(place / "request.json"), str(os.getpid())],
        env={**os.environ, **python_path()},
        stdin=subprocess.DEVNULL,
        stdout=2,  # what it prints is no data of ours
        start_new_session=True,
    )
    try:
        code = process.wait(timeout=limit_s)
    except subprocess.TimeoutExpired:
        what = f"the function took more than {text.duration(limit_s)}"
        raise StudyError(what, where=path.name, hint="allow it more with --run-limit 10m") from None
    finally:
        with suppress(ProcessLookupError):  # what it started, too
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return _answer(place, path, code)


def _answer(place: Path, path: Path, code: int) -> Mapping[str, Any]:
    """Read what the process left. It is the author's, who may have written anything."""
    ended = f"killed by {signal_name(-code)}" if code < 0 else f"exit code {code}"
    try:
        answer = json.loads((place / "answer.json").read_text())
        if "error" in answer:
            what, where, hint = map(str, answer["error"])
            raise StudyError(what, where=where, hint=hint)
        return {name: np.load(place / Path(file).name) for name, file in answer["outputs"].items()}
    except StudyError:
        raise
    except Exception as error:
        raise StudyError(f"the function left no answer ({ended})", where=path.name) from error
