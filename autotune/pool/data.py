"""The data that workers load: inputs and expected outputs, computed once and kept in the folder of the run."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.bench import Limits, Rules, Setup
from autotune.devices import traits
from autotune.errors import AutotuneError, SetupError, StudyError, WorkerError, placed
from autotune.model import DeviceInfo
from autotune.pool.allowance import MORE_ROOM, available
from autotune.pool.caller import Caller
from autotune.pool.contract import Settings
from autotune.pool.folder import RunFolder
from autotune.pool.keeper import Keeper
from autotune.study import Problem, PythonCaller, expected_data, input_data, numpy_type


class Setups:
    """Gives each worker its first messages. The data is computed in the background; a worker that needs it waits."""

    def __init__(self, problem: Problem, folder: RunFolder, settings: Settings) -> None:
        self._problem = problem
        self._folder = folder
        self._settings = settings
        self._data: Future[Setup] = Future()
        self._expected: Mapping[str, str] = {}
        self._turn = threading.Lock()
        self._python = Caller(folder.path, settings.limits.first_s) if settings.allow_python else None
        threading.Thread(target=self._compute, name="autotune-data", daemon=True).start()

    def known(self) -> Setup:
        """Wait for the data and return the set-up of a device's worker. Raises the error of computing the data."""
        known = self._data.result()
        return replace(known, expected=self._expected or known.expected)

    def start_runner(self, keeper: Keeper, device: DeviceInfo) -> None:
        """Start a device's worker. Raises what `Keeper.start_worker` raises, and the error of computing the data."""
        with ExitStack() as held, placed(self._problem.study.path):

            @cache
            def take_turn() -> None:
                held.enter_context(self._turn)

            def setup() -> Setup:
                # A reference kernel runs once: the first worker saves its outputs for the others, which open their
                # devices meanwhile.
                if not self._expected and self._problem.reference_plan() is not None:
                    take_turn()
                return self.known()

            self._expected = keeper.start_worker(device, setup, self._folder.environment(device)).expected

    def start_builder(self, keeper: Keeper, device: DeviceInfo) -> None:
        """Start a worker that builds ahead. It needs the data only if it launches what it builds."""
        nothing = Setup("", {}, {}, None, self._settings.rules, self._settings.limits)
        setup = self._data.result if traits(device).builds_at_launch else lambda: nothing
        keeper.start_worker(device, setup, self._folder.environment(device))

    def close(self) -> None:
        """Stop all waits for the data, and end the process of the author's Python that computes it."""
        with suppress(InvalidStateError):
            self._data.set_exception(WorkerError("closed"))
        if self._python is not None:
            self._python.close()

    def _compute(self) -> None:
        given, failure = self._settings, None
        try:
            setup = compute(self._problem, self._folder.path, given.rules, given.limits, self._python)
        except AutotuneError as error:
            failure = error
        except (Exception, SystemExit) as error:  # a reference in Python may raise anything; `collect` reports it
            failure = StudyError(f"the reference failed: {type(error).__name__}: {error}")
        with suppress(InvalidStateError):  # closed meanwhile
            if failure is None:
                self._data.set_result(setup)
            else:
                self._data.set_exception(failure)


def compute(problem: Problem, folder: Path, rules: Rules, limits: Limits, python: PythonCaller | None = None) -> Setup:
    """Compute the data and return the set-up of workers.

    Raises StudyError, SetupError if the data cannot be written, and whatever a reference in Python raises.
    """
    inputs = input_data(problem, python=python, room=available)
    expected = expected_data(problem, inputs, python=python, room=available)
    # In the buffer's type, as the device compares: half the bytes to write, read and upload.
    with np.errstate(all="ignore"):  # a value beyond a float's range is infinite for the kernel too
        types = {name: numpy_type(buffer.type)[0] for name, buffer in problem.outputs.items()}
        typed = {name: data.astype(types.get(name, data.dtype), copy=False) for name, data in (expected or {}).items()}
    return Setup(
        folder=str(folder),
        inputs=_save(folder, "input", inputs),
        expected=_save(folder, "expected", typed),
        reference=problem.reference_plan() if expected is None else None,
        rules=rules,
        limits=limits,
    )


def _save(folder: Path, prefix: str, arrays: Mapping[str, NDArray[Any]]) -> dict[str, str]:
    files = {name: str(folder / f"{prefix}-{name}.npy") for name in arrays}
    try:
        for name, data in arrays.items():
            np.save(files[name], data)
    except OSError as error:
        raise SetupError(f"the data cannot be written to {folder}: {error.strerror or error}", hint=MORE_ROOM) from None
    return files
