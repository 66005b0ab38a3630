"""Calls a study's function, of a reference or of data.

As `python -m autotune.study.function REQUEST PARENT`, it does so in a process of its own. There it is held to the files
that the study's hash covers (imports.py): an audit hook sees what Python opens, and whatever else it reads is refused.
What a library in C, another process or the network reads is not seen.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from autotune.errors import StudyError
from autotune.process import die_with

ALONE = ""
"""The name of an array that a function returned without one."""

_SYSTEM = ("/dev", "/etc", "/proc", "/sys", "/usr")


def call(function: Callable[..., Mapping[str, Any]], names: Mapping[str, Any]) -> dict[str, Any]:
    """Call the author's function with those of the names that it takes, and return its arrays by name.

    An array by itself has the name ALONE. Whatever the function raises is the study's error, with the line of it.
    """
    try:
        found = function(**_taken(function, names))
    except (Exception, SystemExit) as error:
        raise _failure(error) from error
    if isinstance(found, np.ndarray):
        return {ALONE: found}
    if not isinstance(found, Mapping):
        raise StudyError(f"the function returned {type(found).__name__}", hint="return a dict of arrays by name")
    return dict(found)


def _taken(function: Callable[..., Any], names: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a function takes of the names: all, where it has `**others` or does not tell."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return names
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return names
    return {parameter.name: names[parameter.name] for parameter in parameters if parameter.name in names}


def load(path: Path, name: str) -> Callable[..., Mapping[str, Any]]:
    """Return a function of a file of Python. Raises StudyError."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise StudyError("cannot be loaded as Python", where=str(path))
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise _failure(error) from error
    if not callable(getattr(module, name, None)):
        raise StudyError(f"defines no function {name!r}", where=str(path))
    return getattr(module, name)  # type: ignore[no-any-return]


def _failure(error: BaseException) -> StudyError:
    last = traceback.extract_tb(error.__traceback__)[-1]
    what = f"the function failed: {type(error).__name__}: {error}"
    return StudyError(what, where=f"{Path(last.filename).name}:{last.lineno}")


class _Watch:
    """Refuses to open for reading what is neither one of `known`, nor Python's, nor written here before."""

    def __init__(self, folder: Path, known: Iterable[Path]) -> None:
        self.refused = ""
        self._folder = str(folder.resolve())
        self._known = {str(path.resolve()) for path in known}
        package = Path(__file__).parent.parent
        places = (sys.prefix, sys.base_prefix, package, *sysconfig.get_paths().values(), *_SYSTEM)
        self._roots = {str(Path(str(place)).resolve()) for place in places}

    def __call__(self, event: str, given: tuple[Any, ...]) -> None:
        path: Any = given[0] if event == "open" else given[1] if event == "import" else None
        if event == "ctypes.dlopen" and isinstance(given[0], str) and "/" in given[0]:
            path = given[0]
        if not isinstance(path, str | bytes | os.PathLike):
            return
        opened: str = os.fsdecode(path)
        real = str(Path(opened).resolve())
        if event == "open" and isinstance(given[2], int) and given[2] & (os.O_WRONLY | os.O_CREAT | os.O_TRUNC):
            self._known.add(real)
        elif not self._may_read(real):
            self.refused = self.refused or real
            raise PermissionError(f"{real} is no part of the study")

    def _may_read(self, real: str) -> bool:
        path = Path(real)
        if real in self._known or path.is_dir():
            return True
        if path.parent.name == "__pycache__":  # Python compares it with its source
            try:
                path = Path(importlib.util.source_from_cache(path))
            except ValueError:
                return False
            if str(path) in self._known:
                return True
        places = self._roots | {self._folder}
        nearest = next((str(place) for place in path.parents if str(place) in places), self._folder)
        return nearest != self._folder


def main(request: Path, parent: int) -> None:
    """Do what a request says (pool/caller.py writes it) and leave the answer beside it."""
    die_with(parent)
    asked = json.loads(request.read_text())
    place, path = request.parent, Path(asked["path"])
    names = {name: np.load(place / file) for name, file in asked["arrays"].items()} | asked["numbers"]
    os.chdir(path.parent)
    sys.path.insert(0, str(path.parent))
    watch = _Watch(path.parent, [path.parent / name for name in asked["files"]])
    sys.addaudithook(watch)
    try:
        found = {str(name): np.asarray(array) for name, array in call(load(path, asked["name"]), names).items()}
        answer: dict[str, Any] = {"outputs": {}}
        for number, (name, array) in enumerate(found.items()):
            np.save(place / f"found-{number}.npy", array, allow_pickle=False)
            answer["outputs"][name] = f"found-{number}.npy"
    except StudyError as error:
        answer = {"error": [error.what, error.where, error.hint]}
    except ValueError as error:
        answer = {"error": [f"the function returned no numbers: {error}", asked["name"], ""]}
    if watch.refused:
        what = f"the function reads {watch.refused}, whose changes cannot be noticed"
        answer = {"error": [what, path.name, "put the file beside it, and name it there in an import or a text"]}
    (place / "answer.json").write_text(json.dumps(answer))
    sys.stdout.flush()
    os._exit(0)  # threads that the author left behind are of no interest


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
