"""Limits the files read for a study to one folder, if somebody else sent it, and records which files are read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from autotune.study.library import CONFINED, File, is_file, read_by

YOUNG_NS = 50_000_000
"""A file younger than this may change again and keep its time stamp: file systems count time in milliseconds."""

_FOLDERS_ABOVE = 8
"""How many of the folders around a file are searched."""


@contextmanager
def confined(folder: Path) -> Iterator[None]:
    """Limit what is read for a study within this context to files in the folder.

    Files elsewhere count as missing: by an absolute path, by `..`, by a link; so do the bundled kernels.
    """
    token = CONFINED.set(os.path.realpath(folder))
    try:
        yield
    finally:
        CONFINED.reset(token)


def folder_above(name: str, file: File) -> str:
    """Return the nearest folder around `file` that holds `name`, relative if `file` is; "" if there is none."""
    for up in range(_FOLDERS_ABOVE):
        folder = Path(os.path.normpath(Path(file).parent / "/".join([".."] * up)))
        if is_file(folder / name):
            return str(folder)
    return ""


@contextmanager
def watched() -> Iterator[set[str]]:
    """Yield a set; every file that is read or looked for within this context, by any thread, is added to it."""
    names: set[str] = set()
    read_by[id(names)] = names  # one step, safe among threads
    try:
        yield names
    finally:
        del read_by[id(names)]
