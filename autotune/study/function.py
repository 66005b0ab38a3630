"""Calls a study's Python function, for its reference or its data."""

from __future__ import annotations

import importlib.util
import inspect
import keyword
import sysconfig
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from autotune.errors import StudyError
from autotune.study.scope import word_of_python
from autotune.text import did_you_mean

_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")})
"""The folders of Python's own modules and of those that pip installs."""

ALONE = ""
"""The name of an array that a function returned without a name."""


def call(function: Callable[..., Mapping[str, Any]], names: Mapping[str, Any], label: str = "") -> dict[str, Any]:
    """Call the author's function with the names that it takes, and return its arrays by name.

    An array of structs is passed as a record array, so that `p.mass` works as in other references. A single array that
    is returned gets the name ALONE; structs may be returned as a mapping of their members. `label` names the function
    in messages (default: its own name). Raises StudyError, naming the line, for whatever the function raises.
    """
    label = label or getattr(function, "__name__", type(function).__name__)
    taken = {
        name: value.view(np.recarray) if isinstance(value, np.ndarray) and value.dtype.names else value
        for name, value in _taken(function, names, label).items()
    }
    try:
        found = function(**taken)
    except (Exception, SystemExit) as error:
        raise _failure(error, label) from error
    if isinstance(found, np.ndarray):
        return {ALONE: found}
    if not isinstance(found, Mapping):
        what = f"the function returned {'None' if found is None else type(found).__name__}"
        raise StudyError(what, where=label, hint="return a dict of arrays by name, or the one array")
    return dict(found)


def call_file(path: Path, name: str, names: Mapping[str, Any]) -> dict[str, Any]:
    """Call a function of a Python file, as `call` does. It runs in this process; pool/alone.py makes that safe."""
    return call(_loaded(path, name), names, f"{path.name}:{name}")


def _taken(function: Callable[..., Any], names: Mapping[str, Any], label: str) -> Mapping[str, Any]:
    """Return the names that a function takes: all for `**others` or an unknown signature. Raises StudyError."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return names
    for each in parameters:
        packed = each.kind in (each.VAR_KEYWORD, each.VAR_POSITIONAL)
        if each.default is each.empty and not packed and each.name not in names:
            known = [name for name in names if not keyword.iskeyword(name)]
            what = f"takes {each.name!r}, which is not available{did_you_mean(each.name, known)}"
            hint = f"it may take {', '.join(known) or 'nothing'}"
            if (name := each.name.rstrip("_")) in names and keyword.iskeyword(name):
                hint = word_of_python(name)
            raise StudyError(what, where=label, hint=hint)
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return names
    return {parameter.name: names[parameter.name] for parameter in parameters if parameter.name in names}


def _loaded(path: Path, name: str) -> Callable[..., Mapping[str, Any]]:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise StudyError("cannot be loaded as Python", where=str(path))
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise _failure(error, path.name) from error
    if not callable(getattr(module, name, None)):
        raise StudyError(f"defines no function {name!r}", where=str(path))
    return getattr(module, name)  # type: ignore[no-any-return]


def _failure(error: BaseException, label: str) -> StudyError:
    """Return the error for what the author's code raised, with its line unless the call itself failed.

    That is the author's own line, not one of NumPy below it.
    """
    frames = [one for one in traceback.extract_tb(error.__traceback__) if one.filename != __file__]
    last = next((one for one in reversed(frames) if not _is_of_a_library(one.filename)), frames[-1] if frames else None)
    where = f"{Path(last.filename).name}:{last.lineno}" if last else label
    return StudyError(f"the function failed: {type(error).__name__}: {error}", where=where)


def _is_of_a_library(file: str) -> bool:
    return file.startswith("<") or any(Path(file).is_relative_to(folder) for folder in _LIBRARIES)
