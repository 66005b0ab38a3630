"""Finds studies by name or by path. Standard library only, and without pathlib, as library.py."""

from __future__ import annotations

import re
from os import path as paths
from typing import TYPE_CHECKING

from autotune.errors import StudyError
from autotune.study.library import StudyText, bundled_folder, is_file, read_study, read_table, read_text
from autotune.text import command, did_you_mean

if TYPE_CHECKING:
    from pathlib import Path


def find_study(name_or_path: str) -> StudyText:
    """Return the study with that name, as `study_file` finds it, or at that path.

    A text with a slash or the suffix `.toml` is a path. Raises StudyError where there is none.
    """
    if name_or_path.endswith(".cl") and is_file(name_or_path):
        hint = f"{command('new', name_or_path)} writes a study for it"
        raise StudyError("is a kernel, not a study", where=name_or_path, hint=hint)
    if "/" in name_or_path or name_or_path.endswith(".toml"):
        if not is_file(name_or_path):
            what = "not a study file" if paths.lexists(name_or_path) else "no such study file"
            raise StudyError(f"{what}: {name_or_path}", hint="autotune studies lists those found by name")
        return read_study(name_or_path)
    file = study_file(name_or_path)
    if file is not None:
        bundled = _bundled(name_or_path)
        hides = file != bundled and is_file(bundled) and read_text(file) != read_text(bundled)
        return read_study(file, shadows=bundled if hides else None)
    known = f"known: {', '.join(sorted(study_paths()))}{did_you_mean(name_or_path, study_paths())}"
    here = f"./{name_or_path}.toml"
    hint = f"the file here is {here}" if is_file(here) else f"{known}; a path needs a slash or the suffix .toml"
    raise StudyError(f"no study named {name_or_path!r}", hint=hint)


def study_file(name: str) -> str | None:
    """Return the file that a name means: in `./studies`, bundled, else the one in `./studies` whose `name` it is.

    By its `name` results are stored and told. None where there is none. Raises StudyError where several are called so.
    """
    for file in (paths.join("studies", f"{name}.toml"), _bundled(name)):
        if is_file(file):
            return file
    called = [str(path) for path in study_paths().values() if _is_called(str(path), name)]
    if len(called) > 1:
        raise StudyError(f"several studies are called {name!r}: {', '.join(called)}", hint="give the path of one")
    return called[0] if called else None


def _is_called(file: str, name: str) -> bool:
    """Whether a study calls itself so, as far as it can be read. Only the text of one that may is taken apart."""
    try:
        likely = re.search(rf"^\W?name\W.*['\"]{re.escape(name)}['\"]", read_text(file), re.MULTILINE)
        return likely is not None and read_table(file).get("name") == name
    except StudyError:
        return False


def _bundled(name: str) -> str:
    return paths.join(bundled_folder(), "studies", f"{name}.toml")


def study_paths() -> dict[str, Path]:
    """Return the studies that a name finds here: the bundled ones and those in `./studies`, by name."""
    from pathlib import Path

    folders = Path(bundled_folder(), "studies"), Path("studies")
    return {path.stem: path for folder in folders for path in sorted(folder.glob("*.toml"))}
