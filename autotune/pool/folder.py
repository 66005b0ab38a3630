"""The folder of a search: inputs, logs and compiler caches of its workers.

It is locked while the search runs. The operating system releases that however the process ends, and the next search
removes what it left.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from autotune.devices import environment
from autotune.errors import SetupError
from autotune.model import DeviceInfo
from autotune.text import say


def temporary_folder() -> Path:
    """Return the folder for temporary files. Raises SetupError where there is none."""
    try:
        return Path(tempfile.gettempdir())
    except OSError:
        raise SetupError("no folder for temporary files", hint="set TMPDIR to one that can be written") from None


class RunFolder:
    """A temporary folder for inputs, logs and compiler caches; those of searches that were killed are removed."""

    def __init__(self) -> None:
        base = temporary_folder()
        _sweep(base)
        made: Path | None = None
        try:
            # Locked under another name first, so that nobody's sweep finds it unlocked.
            made = Path(tempfile.mkdtemp(prefix=".autotune-", dir=base))
            self._lock = (made / "lock").open("w")
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            self.path = made.rename(base / made.name.replace(".autotune-", _PREFIX))
        except OSError as error:
            if made is not None:
                shutil.rmtree(made, ignore_errors=True)
            raise SetupError(
                f"no folder can be made there: {error.strerror}",
                where=str(base),
                hint="make room, or set TMPDIR to a folder that can be written",
            ) from None

    def environment(self, device: DeviceInfo) -> Mapping[str, str]:
        """Return the variables of a worker: private caches, through which the builders hand over their work.

        A worker that dies in the middle of writing leaves nothing behind for the next search.
        """
        return environment(device, self.path, worker=True)

    def remove(self) -> None:
        """Delete the folder; where AUTOTUNE_KEEP is set, keep it under a name that no sweep knows, and say where."""
        if os.environ.get("AUTOTUNE_KEEP"):
            kept = self.path.rename(self.path.with_name(self.path.name.replace(_PREFIX, "autotune-kept-")))
            say(f"autotune: the workers' files are in {kept}")
        else:
            shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


_PREFIX = "autotune-run-"


def _sweep(base: Path) -> None:
    for folder in base.glob(f"{_PREFIX}*"):
        try:
            with (folder / "lock").open("r+") as file:
                if try_lock(file.fileno()):
                    shutil.rmtree(folder, ignore_errors=True)
        except FileNotFoundError:  # a sweep began that was killed itself, or met a linker that still wrote
            shutil.rmtree(folder, ignore_errors=True)
        except OSError:  # another user's
            continue


def try_lock(descriptor: int) -> bool:
    """Take the lock of an open file if nobody has it; say whether it is held now."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
