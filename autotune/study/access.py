"""What is read for a study: kept to a folder, where somebody else sent it; told to whoever wants to know."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from autotune.study.library import CONFINED, File, is_file, read_by

YOUNG_NS = 50_000_000
"""Younger than this, a file may change again without another instant: clocks of file systems tick in milliseconds."""

_FOLDERS_ABOVE = 8
"""So many folders around a file are looked through."""


@contextmanager
def confined(folder: Path) -> Iterator[None]:
    """Have nothing read for a study, within this context, that does not lie in the folder.

    What lies elsewhere is not there: neither an absolute path nor `..`, nor a link, nor the bundled kernels.
    """
    token = CONFINED.set(os.path.realpath(folder))
    try:
        yield
    finally:
        CONFINED.reset(token)


def folder_above(name: str, file: File) -> str:
    """Return the nearest folder around a file in which what it includes lies, as its path begins; empty: none."""
    for up in range(_FOLDERS_ABOVE):
        folder = Path(os.path.normpath(Path(file).parent / "/".join([".."] * up)))
        if is_file(folder / name):
            return str(folder)
    return ""


@contextmanager
def watched() -> Iterator[set[str]]:
    """Yield a set that comes to hold every file which is read or looked for within this context, by any thread."""
    names: set[str] = set()
    read_by[id(names)] = names  # one step each, as threads need it
    try:
        yield names
    finally:
        del read_by[id(names)]
