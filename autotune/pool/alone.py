"""Calls a study's function, in a process of its own (see guard.py).

The function may only read files that the study's hash covers (study/imports.py): an audit hook sees what Python opens,
and refuses other files. It does not see what a C library, another process or the network reads.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from autotune.errors import StudyError
from autotune.study import call_file

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC

_SYSTEM = ("/dev", "/etc", "/proc", "/sys", "/usr")


class _Watch:
    """Refuses to open a file for reading unless it is one of `known`, belongs to Python, or was written here."""

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
        flags = given[2] if event == "open" and isinstance(given[2], int) else os.O_RDONLY
        if flags & _WRITES and (flags & os.O_TRUNC or not os.path.lexists(real)):
            self._known.add(real)
        elif flags & (os.O_WRONLY | os.O_RDWR) != os.O_WRONLY and not self._may_read(real):
            self.refused = self.refused or real
            raise PermissionError(f"{real} is not a part of the study")

    def _may_read(self, real: str) -> bool:
        path = Path(real)
        if real in self._known or os.path.isdir(path):
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


def main(request: Path) -> NoReturn:
    """Call the function as a request says (written by caller.py), write the answer beside it, and end this process."""
    asked = json.loads(request.read_text(encoding="utf-8"))
    place, path = request.parent, Path(asked["path"])
    names = {name: np.load(place / file) for name, file in asked["arrays"].items()} | asked["numbers"]
    os.chdir(path.parent)
    sys.path.insert(0, str(path.parent))
    watch = _Watch(path.parent, [path.parent / name for name in asked["files"]])
    sys.addaudithook(watch)
    try:
        outputs: dict[str, Any] = {}
        for name, found in call_file(path, asked["name"], names).items():
            members = found if isinstance(found, Mapping) else {"": found}
            files = {str(member): f"found-{len(outputs)}-{number}.npy" for number, member in enumerate(members)}
            for file, array in zip(files.values(), members.values(), strict=True):
                np.save(place / file, np.asarray(array), allow_pickle=False)
            outputs[str(name)] = files if isinstance(found, Mapping) else files[""]
        answer: dict[str, Any] = {"outputs": outputs}
    except StudyError as error:
        answer = {"error": [error.what, error.where, error.hint]}
    except ValueError as error:
        answer = {"error": [f"the function returned no numbers: {error}", f"{path.name}:{asked['name']}", ""]}
    if watch.refused:
        what = f"the function reads {watch.refused}, whose changes cannot be noticed"
        answer = {"error": [what, path.name, "put the file beside it, and name it there in an import or a text"]}
    (place / "answer.json").write_text(json.dumps(answer), encoding="utf-8")
    sys.stdout.flush()
    os._exit(0)  # threads that the author's code left behind do not matter
