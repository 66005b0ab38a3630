"""Finds the files that a study names: beside it, or where they were put if it came from another machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from autotune.errors import StudyError
from autotune.study.files import find_data
from autotune.study.library import StudyText, find_kernel

Places = Mapping[tuple[str, str], Path]
"""Files that came with a study, by the key that names them, `file` or `python`, and their names in it."""


def data_place(text: StudyText, name: str, where: str) -> Path:
    """Return the data file that a study calls by this name. Raises StudyError."""
    return find_data(name, text.path, where) if text.came is None else _came(text, "file", name, where)


def python_place(text: StudyText, name: str, where: str) -> Path:
    """Return the Python file that a study calls by this name. Raises StudyError."""
    return Path(find_kernel(name, text.path, where)) if text.came is None else _came(text, "python", name, where)


def _came(text: StudyText, key: str, name: str, where: str) -> Path:
    """Return a file that came with a study from another machine. This machine's file of that name is ignored."""
    found: Path | None = text.came.get((key, name))
    if found is None:
        raise StudyError(f"{name!r:.80} did not come with the study", where=f"{text.file}: {where}")
    return found
