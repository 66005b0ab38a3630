"""What the workers load: input data and expected outputs, computed once and kept in the folder of the run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.bench import Limits, Rules, Setup
from autotune.errors import SetupError
from autotune.pool.caller import caller
from autotune.pool.memory import available
from autotune.study import Problem, expected_data, input_data, numpy_type


def compute(problem: Problem, folder: Path, rules: Rules, limits: Limits, *, allow_python: bool) -> Setup:
    """Return the set-up of workers. Raises StudyError, SetupError where the folder takes no more
    files, and whatever a reference in Python raises.
    """
    inputs = input_data(problem)
    python = caller(folder, limits.first_s) if allow_python else None
    expected = expected_data(problem, inputs, python=python, room=available)
    # In the buffer's type, as the device compares: half the bytes to write, read and upload.
    typed = {
        name: data.astype(numpy_type(problem.outputs[name].type)[0], copy=False)
        for name, data in (expected or {}).items()
    }
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
        hint = "free some space or set TMPDIR to another folder"
        raise SetupError(f"the data cannot be written to {folder}: {error.strerror or error}", hint=hint) from None
    return files
