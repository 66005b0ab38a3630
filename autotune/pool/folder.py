"""The folder of a search: inputs, logs and compiler caches of its workers.

The folder is locked while the search runs. The operating system releases the lock however the process ends, and the
next search removes the folder.
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
    """Return the folder for temporary files. Raises SetupError if there is none."""
    try:
        return Path(tempfile.gettempdir())
    except OSError:
        raise SetupError("no folder for temporary files", hint="set TMPDIR to one that can be written") from None


class RunFolder:
    """A temporary folder for inputs, logs and compiler caches. Folders of killed searches are removed."""

    def __init__(self) -> None:
        base = temporary_folder()
        try:
            self.path, self._lock = locked_folder(base, _PREFIX)
        except OSError as error:
            what = f"no folder can be made there: {error.strerror}"
            raise SetupError(what, where=str(base), hint=MORE_ROOM) from None

    def environment(self, device: DeviceInfo) -> Mapping[str, str]:
        """Return a worker's environment variables: private caches, through which builders hand over their work.

        So a worker that dies while it writes to a cache leaves nothing broken for the next search.
        """
        return environment(device, self.path, worker=True)

    def remove(self) -> None:
        """Delete the folder. If AUTOTUNE_KEEP is set, rename it so that no search removes it, and say where it is."""
        if os.environ.get("AUTOTUNE_KEEP"):
            kept = self.path.rename(self.path.with_name(self.path.name.replace(_PREFIX, "autotune-kept-")))
            say(f"autotune: the workers' files are in {kept}")
        else:
            shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


_PREFIX = "autotune-run-"
