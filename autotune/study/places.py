"""Where the files lie that a study names: beside it, or where they were put that came with it from another machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from autotune.errors import StudyError
from autotune.study.files import find_data
from autotune.study.library import StudyText, find_kernel

Places = Mapping[tuple[str, str], Path]
"""Files that came with a study, by the key that names them, `file` or `python`, and their names in it."""


def data_place(text: StudyText, name: str, where: str) -> Path:
    """Return the file of data that a study names so. Raises StudyError."""
    return find_data(name, text.path, where) if text.came is None else _came(text, "file", name, where)


def python_place(text: StudyText, name: str, where: str) -> Path:
    """Return the file of Python that a study names so. Raises StudyError."""
    return Path(find_kernel(name, text.path, where)) if text.came is None else _came(text, "python", name, where)


def _came(text: StudyText, key: str, name: str, where: str) -> Path:
    """What lies here under that name is of no interest: it is another machine's study."""
    found: Path | None = text.came.get((key, name))
    if found is None:
        raise StudyError(f"{name!r:.80} did not come with the study", where=f"{text.file}: {where}")
    return found
