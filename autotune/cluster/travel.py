"""What is sent from machine to machine: versions, devices, and a problem with everything that it needs to run.

The machines need no common file system. Kernels are sent as text; files of data and of Python are sent as they are, to
a folder of the receiver (luggage.py).
"""

from __future__ import annotations

import copy
import pickle
import platform
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

from autotune import __version__
from autotune.cluster.luggage import Depot, Item, Luggage
from autotune.errors import AutotuneError, SetupError, StudyError
from autotune.model import DeviceInfo
from autotune.pool import Settings
from autotune.study import Problem, Read, StudyText, data_place, files_of, python_place, reads_of

KEY = "autotune"
"""The name under which a worker describes itself to the scheduler, and under which its plugin is found."""


def versions() -> dict[str, str]:
    """Return the versions that must be equal on both sides, because code and pickled records are sent."""
    import distributed

    major, minor, _ = platform.python_version_tuple()
    return {"autotune": __version__, "python": f"{major}.{minor}", "distributed": distributed.__version__}


def difference(theirs: Mapping[str, Any]) -> str:
    """Return the versions that differ from here, in words, or an empty string if none does."""
    ours = versions()
    return ", ".join(
        f"{name} {theirs.get(name)}, here {mine}" for name, mine in ours.items() if theirs.get(name) != mine
    )


def facts_of(device: DeviceInfo) -> dict[str, Any]:
    """Return a device as plain data, which `store.device_of` reads."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(device).items()}


class Packed(NamedTuple):
    """A problem to send: the digest of what `unpack` reads, and, in the luggage, everything that it needs."""

    problem: str
    luggage: Luggage


def pack(problem: Problem, settings: Settings) -> Packed:
    """Pack a problem: study, kernels, size, choices, its default, its data, the Python of its data and reference.

    The space is not sent: configurations are proposed here and made concrete there. Raises StudyError if a file cannot
    be read, or if a function needs what no other process can have.
    """
    import cloudpickle

    lean = copy.copy(problem)
    lean.__dict__["default"] = problem.default  # computed from the space
    lean.__dict__.pop("space", None)
    for function in (problem.study.reference.function, *problem.study.given.values()):
        module = sys.modules.get(getattr(function, "__module__", None) or "")
        if callable(function) and module is not None:  # its module exists only here, so it is sent by value
            cloudpickle.register_pickle_by_value(module)
    luggage = Luggage()
    files = _files(problem, luggage)
    try:
        content = cloudpickle.dumps((lean, settings, files))
    except (TypeError, AttributeError, pickle.PicklingError, RecursionError) as error:
        hint = 'put the function into a file of its own: python = "FILE.py:NAME"'
        raise StudyError(f"cannot be sent to a worker: {error}", where=problem.study.path, hint=hint) from None
    return Packed(luggage.add(content), luggage)


def _files(problem: Problem, luggage: Luggage) -> dict[tuple[str, str], list[Item]]:
    """Add the files that a study names, each with those that it needs beside it, the named one first."""
    text, found = problem.study.text, dict[tuple[str, str], list[Item]]()
    for number, read in enumerate(reads_of(text.table)):
        if (read.key, read.name) not in found:
            contents = _contents(text, read)
            items = [Item(f"{number}/{name}", luggage.add(content)) for name, content in contents.items()]
            found[read.key, read.name] = items
    return found


def _contents(text: StudyText, read: Read) -> Mapping[str, bytes | Path]:
    """Return a file that a study names and the files that it needs beside it, by their paths in its folder."""
    if read.key == "python":
        return files_of(python_place(text, read.name, read.where))
    place = data_place(text, read.name, read.where)
    return {f"data{place.suffix}": place}


def unpack(problem: str, depot: Depot, folder: Path) -> tuple[Problem, Settings]:
    """Return what `pack` packed and a depot has, with the files of its study in a folder.

    The study then finds these files, and no local ones of the same names. Raises SetupError.
    """
    try:
        found, settings, files = pickle.loads(depot.read(problem))
        if not isinstance(found, Problem) or not isinstance(settings, Settings):
            raise TypeError("it is none")
    except AutotuneError:
        raise
    except Exception as error:
        raise SetupError(f"the problem cannot be read here: {type(error).__name__}: {error}") from None
    place, study = folder / "study", found.study
    for items in files.values():
        depot.lay(items, place)
    study.text.came = {named: place / items[0].path for named, items in files.items()}
    if isinstance(study.reference.function, tuple):
        name, _, function = study.text.table["reference"]["python"].rpartition(":")
        path = python_place(study.text, name, "reference.python")
        study.reference = replace(study.reference, function=(path, function))
    return found, settings
