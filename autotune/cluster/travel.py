"""What goes from machine to machine: versions, devices, and a problem with all that it takes to run it.

Nothing is read from a file system that machines would have to share: kernels travel as text, and so do the files of a
reference in Python, which are written to a folder of the receiver's.
"""

from __future__ import annotations

import copy
import pickle
import platform
import sys
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from autotune import __version__, errors
from autotune.errors import AutotuneError, SetupError, WorkerError
from autotune.model import DeviceInfo
from autotune.pool import Settings
from autotune.study import Problem, files_of

KEY = "autotune"
"""Under which name a worker tells the scheduler what it is, and where its plugin is found."""


def versions() -> dict[str, str]:
    """Return what must be alike on both sides: what is sent is code and pickled records."""
    import distributed

    major, minor, _ = platform.python_version_tuple()
    return {"autotune": __version__, "python": f"{major}.{minor}", "distributed": distributed.__version__}


def difference(theirs: Mapping[str, Any]) -> str:
    """Return what differs from here, in words; empty where nothing does."""
    ours = versions()
    return ", ".join(
        f"{name} {theirs.get(name)}, here {mine}" for name, mine in ours.items() if theirs.get(name) != mine
    )


def facts_of(device: DeviceInfo) -> dict[str, Any]:
    """Return a device as plain data."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(device).items()}


def device_of(facts: Mapping[str, Any]) -> DeviceInfo:
    """Return the device of `facts_of`. Raises SetupError where it is none of ours."""
    try:
        known: dict[str, Any] = {field.name: facts[field.name] for field in fields(DeviceInfo)}
        tuples: dict[str, Any] = {name: tuple(value) for name, value in known.items() if isinstance(value, list)}
        return DeviceInfo(**{**known, **tuples})
    except (KeyError, TypeError) as error:
        raise SetupError(f"a worker announces no device that this version knows ({error})") from None


def pack(problem: Problem, settings: Settings) -> bytes:
    """Return a problem as bytes: study, kernels, size, choices, its default, and the files of its reference.

    The space stays behind: configurations are proposed here and made concrete there.
    """
    import cloudpickle

    lean = copy.copy(problem)
    lean.__dict__["default"] = problem.default  # computed from the space
    lean.__dict__.pop("space", None)
    function, files = problem.study.reference.function, dict[str, bytes]()
    if isinstance(function, tuple):
        files = dict(files_of(function[0]))
    elif function is not None:  # a function of a module that is nowhere else: by value
        module = sys.modules.get(getattr(function, "__module__", ""))
        if module is not None:
            cloudpickle.register_pickle_by_value(module)
    return bytes(cloudpickle.dumps((lean, settings, files)))


def unpack(data: bytes, folder: Path) -> tuple[Problem, Settings]:
    """Return what `pack` packed, with the files of its reference in a folder. Raises SetupError."""
    try:
        problem, settings, files = pickle.loads(data)
        if not isinstance(problem, Problem) or not isinstance(settings, Settings):
            raise TypeError("it is none")
    except Exception as error:
        raise SetupError(f"the problem cannot be read here: {type(error).__name__}: {error}") from None
    function = problem.study.reference.function
    if isinstance(function, tuple):
        place = folder / "reference"
        for name, content in files.items():
            path = place / name
            if not path.resolve().is_relative_to(place.resolve()):
                raise SetupError(f"a file of the reference lies outside its folder: {name!r}")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        problem.study.reference = replace(problem.study.reference, function=(place / function[0].name, function[1]))
    return problem, settings


def told(error: AutotuneError) -> dict[str, str]:
    """Return an error as plain data."""
    return {
        "kind": type(error).__name__,
        "what": error.what,
        "where": error.where,
        "hint": error.hint,
        "detail": error.detail,
    }


def heard(told: Mapping[str, str], place: str) -> AutotuneError:
    """Return the error that `told` tells of, as happened at a place."""
    kind = getattr(errors, told["kind"], WorkerError)
    if not (isinstance(kind, type) and issubclass(kind, AutotuneError)):
        kind = WorkerError
    where = f"{place}: {told['where']}" if told["where"] else place
    error: AutotuneError = kind(told["what"], where=where, hint=told["hint"], detail=told["detail"])
    return error
