"""The folder of a search: inputs, logs and compiler caches of its workers.

It is locked while the search runs. The operating system releases that however the process ends, and the next search
removes what it left.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from autotune.devices import environment, locked_folder
from autotune.errors import SetupError
from autotune.model import DeviceInfo
from autotune.pool.allowance import MORE_ROOM
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
        try:
            self.path, self._lock = locked_folder(base, _PREFIX)
        except OSError as error:
            what = f"no folder can be made there: {error.strerror}"
            raise SetupError(what, where=str(base), hint=MORE_ROOM) from None

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
