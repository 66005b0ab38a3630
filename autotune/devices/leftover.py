"""Temporary folders that are locked while their process lives.

The operating system releases the lock however the process ends. Whoever creates the next such folder removes the
unlocked ones.
"""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from pathlib import Path
from typing import IO


def locked_folder(base: Path, prefix: str) -> tuple[Path, IO[str]]:
    """Return a new folder in `base`, locked as long as the file stays open, in this process or a fork of it.

    First, folders with this prefix that are no longer locked are removed. Raises OSError.
    """
    _sweep(base, prefix)
    # Locked under another name first, so that no other process finds it unlocked and removes it.
    made = Path(tempfile.mkdtemp(prefix=f".{prefix}", dir=base))
    try:
        lock = (made / "lock").open("w", encoding="utf-8")
        fcntl.flock(lock, fcntl.LOCK_EX)
        return made.rename(base / made.name[1:]), lock
    except OSError:
        shutil.rmtree(made, ignore_errors=True)
        raise


def _sweep(base: Path, prefix: str) -> None:
    for folder in base.glob(f"{prefix}*"):
        try:
            with (folder / "lock").open("r+", encoding="utf-8") as file:
                if try_lock(file.fileno()):
                    shutil.rmtree(folder, ignore_errors=True)
        except FileNotFoundError:  # an earlier sweep was killed, or a linker was still writing
            shutil.rmtree(folder, ignore_errors=True)
        except OSError:  # another user's
            continue


def try_lock(descriptor: int) -> bool:
    """Take the lock of an open file if it is free; say whether it is held now."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
