"""What is read for a study: kept to a folder, where somebody else sent it; told to whoever wants to know."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from autotune.study.library import CONFINED, read_by


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


@contextmanager
def watched() -> Iterator[set[str]]:
    """Yield a set that comes to hold every file which is read or looked for within this context, by any thread."""
    names: set[str] = set()
    read_by.append(names)
    try:
        yield names
    finally:
        read_by[:] = [other for other in read_by if other is not names]
