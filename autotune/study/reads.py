"""The other files that a study reads, for its reference, data and sizes, as one text for its hash.

Standard library only: a look-up of such a study uses this file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from autotune.errors import StudyError
from autotune.study.files import file_digest, find_data, size_of
from autotune.study.imports import files_of
from autotune.study.library import File, find_kernel, sources_of


class Read(NamedTuple):
    """A file that a study names besides its kernels: the kind of key (`file` or `python`), its name, its full key."""

    key: str
    name: str
    where: str


def text_read(table: Mapping[str, Any], study: File) -> str:
    """Return what a study reads as one text: kernels with includes, Python with its modules, digests of data."""
    reference, text = table.get("reference"), ""
    if isinstance(reference, Mapping) and (kernel := reference.get("kernel", "")):
        text += sources_of(kernel, table, study, "reference.kernel")[1]
    for read in reads_of(table):
        text += (_python if read.key == "python" else _file)(read.name, study, read.where)
    return text


def reads_of(table: Mapping[str, Any]) -> Iterator[Read]:
    """Yield the data files and Python files that a study's tables name, in the order in which they are hashed."""
    reference = table.get("reference")
    if isinstance(reference, Mapping):
        if python := str(reference.get("python", "")).rpartition(":")[0]:
            yield Read("python", python, "reference.python")
        files = reference.get("file")
        for name, entry in sorted(files.items()) if isinstance(files, Mapping) else ():
            file = entry.get("file", "") if isinstance(entry, Mapping) else entry
            yield Read("file", str(file), f"reference.file.{name}")
    arguments = table.get("arguments")
    for name, argument in sorted(arguments.items()) if isinstance(arguments, Mapping) else ():
        where, data = f"arguments.{name}.data", argument.get("data") if isinstance(argument, Mapping) else None
        if not isinstance(data, Mapping):
            continue
        if "file" in data:
            yield Read("file", str(data["file"]), f"{where}.file")
        if "python" in data:
            yield Read("python", str(data["python"]).rpartition(":")[0], f"{where}.python")


def size_read(entry: Mapping[str, Any], name: str, study: File) -> int:
    """Return a size that is taken from a data file. Raises StudyError."""
    found = size_of(entry, Path(study), f"sizes.{name}")
    if found < 1:
        raise StudyError(f"is {found} in {entry['file']}", where=f"{study}: sizes.{name}")
    return found


def _file(name: str, study: File, where: str) -> str:
    return f"\0{name}\0{file_digest(find_data(name, Path(study), where))}"


def _python(name: str, study: File, where: str) -> str:
    """Return the text of a Python file, and the names and digests of the other files that it uses from its folder."""
    (_, own), *others = files_of(Path(find_kernel(name, study, where))).items()
    text = own.decode(errors="replace").replace("\r\n", "\n")
    return text + "".join(f"\0{each}\0{hashlib.sha256(data).hexdigest()}" for each, data in sorted(others))
