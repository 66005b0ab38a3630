"""Finds studies by their `name`, and makes the errors for studies and kernels that are not found."""

from __future__ import annotations

import re
from collections.abc import Mapping
from os import path as paths
from pathlib import Path
from typing import Any

from autotune.errors import StudyError
from autotune.study.library import File, bundled_folder, is_file, read_table, read_text
from autotune.text import command, did_you_mean


def not_found(name_or_path: str) -> StudyError:
    """Return the error for a name or a path for which there is no study."""
    if name_or_path.endswith(".cl") and is_file(name_or_path):
        hint = f"{command('new', name_or_path)} writes a study for it"
        return StudyError("is a kernel, not a study", where=name_or_path, hint=hint)
    if "/" in name_or_path or name_or_path.endswith(".toml"):
        what = "not a study file" if paths.lexists(name_or_path) else "no such study file"
        return StudyError(f"{what}: {name_or_path}", hint="autotune studies lists those found by name")
    known = f"known: {', '.join(sorted(study_paths()))}{did_you_mean(name_or_path, study_paths())}"
    here = f"./{name_or_path}.toml"
    hint = f"the file here is {here}" if is_file(here) else f"{known}; a path needs a slash or the suffix .toml"
    return StudyError(f"no study named {name_or_path!r}", hint=hint)


def called(name: str) -> str | None:
    """Return the study here whose `name` this is, or None. Raises StudyError if there are several."""
    found = [str(path) for path in study_paths().values() if _is_called(str(path), name)]
    if len(found) > 1:
        raise StudyError(f"several studies are called {name!r}: {', '.join(found)}", hint="give the path of one")
    return found[0] if found else None


def _is_called(file: str, name: str) -> bool:
    """Whether this is the `name` of a study that can be read. The file is parsed only if its text suggests so."""
    try:
        likely = re.search(rf"^\W?name\W.*['\"]{re.escape(name)}['\"]", read_text(file), re.MULTILINE)
        return likely is not None and read_table(file).get("name") == name
    except StudyError:
        return False


def study_paths() -> dict[str, Path]:
    """Return the studies that a name finds here: the bundled ones and those in `./studies`, by name."""
    folders = Path(bundled_folder(), "studies"), Path("studies")
    return {path.stem: path for folder in folders for path in sorted(folder.glob("*.toml"))}


def no_kernel(table: Mapping[str, Any], study: File, key: str) -> StudyError:
    """Return the error for a key that names no kernel file; the key may be misspelt."""
    for other in () if "kernel" in table else table:
        if meant := did_you_mean(other, ["kernel"]):
            return StudyError(f"{other}: unknown key{meant}", where=str(study))
    named = f'{key} = "{Path(study).stem}.cl"'
    return StudyError("names no kernel file", where=str(study), hint=f"write {named} above the first [table]")


def too_large(kernel: File) -> StudyError:
    """Return the error for a kernel beyond MAX_TEXT."""
    return StudyError("the kernel with its includes is larger than 4 MiB", where=str(kernel))
