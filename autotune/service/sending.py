"""A study as it is sent to a server: by name, by the hashes of its text, or whole with its files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autotune.errors import UsageError
from autotune.text import typed

BESIDE = "../kernels/"
"""The beginning of the names of files in the kernels' folder beside the study's folder."""


def question_of(study: str | Path) -> list[tuple[str, str]]:
    """Return how to ask for a study: by its name and, if it is a path, also by the hashes of its text."""
    if not is_path(study):
        return [("study", str(study))]
    from autotune.study import find_study

    text = find_study(str(study))
    return [("study", text.name), ("kernel_hash", text.kernel_hash), ("study_hash", text.study_hash)]


def is_path(study: str | Path) -> bool:
    """Whether a study is given as a file. Raises UsageError if it is neither a name nor a path."""
    if not isinstance(study, str | Path):
        raise UsageError(f"{type(study).__name__} is neither the name of a study nor a path", where="study")
    return isinstance(study, Path) or "/" in study or study.endswith(".toml")


def upload_of(path: Path) -> dict[str, Any]:
    """Return a study as it is uploaded: its text, and each file that it reads under the name that it uses for it."""
    from autotune.study import find_study, kernel_folders, watched

    with watched() as looked_for:
        text = find_study(str(path) if "/" in str(path) or path.suffix == ".toml" else f"./{path}")
        code = set(map(Path, looked_for)) - {text.path}
        _ = text.study_hash
    roots = list(map(Path, kernel_folders(text.file)))
    files: dict[str, Path] = {}
    for file in map(Path, sorted(looked_for)):
        if not os.path.isfile(file) or file.resolve() == text.path.resolve():
            continue
        name = _name_in(file, roots)
        if files.setdefault(name, file).resolve() != file.resolve():
            raise UsageError(f"{file} and {files[name]} would have one name", where=str(path), hint="rename one")
    sent = {name: _text(file, code=file in code) for name, file in files.items()}
    return {"upload": {"study": _text(text.path), "files": sent}}


def _name_in(file: Path, roots: Sequence[Path]) -> str:
    """Return a file's name relative to the first folder that holds it; what its links lead to must be in a folder too.

    A checkout from somebody else may hold a link to a private file of the user. Raises UsageError.
    """
    plain, there = _plain(file), file.resolve()
    folders = [folder for folder in map(_plain, roots) if plain.is_relative_to(folder)]
    if folders and any(there.is_relative_to(root.resolve()) for root in roots):
        beside = BESIDE if folders[0] == _plain(roots[1]) != _plain(roots[0]) else ""
        return beside + plain.relative_to(folders[0]).as_posix()
    led = f": it is a link to {there}" if folders else ""
    hint = f"a server takes what lies beside the study, or in {BESIDE}: copy it there"
    raise UsageError(f"{file} lies outside of the study's folder{led}", hint=hint)


def _plain(path: Path) -> Path:
    """Return an absolute path without following its links."""
    return Path(os.path.abspath(path))  # noqa: PTH100


def _text(path: Path, *, code: bool = False) -> str:
    """Return a file as it is sent; in a kernel and its includes, bytes that are not UTF-8 become `\\xa9`, as here."""
    try:
        return path.read_bytes().decode("utf-8-sig", "backslashreplace" if code else "strict")
    except UnicodeDecodeError as error:
        before, byte = error.object[: error.start], error.object[error.start]
        if b"\0" in error.object:
            raise UsageError("is not text", where=str(path), hint="a server takes text alone") from None
        convert = typed(["iconv", "-f", "latin1", "-t", "utf-8", str(path)])
        raise UsageError(
            f"byte 0x{byte:02x} is not UTF-8, and a server takes text alone",
            where=f"{path}:{before.count(10) + 1}",
            hint=f"if it is Latin-1, what `{convert}` prints is UTF-8",
        ) from None
