"""Where a path begins. Standard library only."""

from __future__ import annotations

import os
from os import path as paths

from autotune.errors import StoreError


def placed(named: str) -> str:
    """Return the path that a word names. Raises StoreError where it begins in a folder that is there no more."""
    path = paths.expanduser(named)
    if not paths.isabs(path):
        try:
            os.getcwd()
        except OSError:
            what = "begins in the folder here, which was removed"
            raise StoreError(what, where=path, hint="give the whole path, or change to another folder") from None
    return path
