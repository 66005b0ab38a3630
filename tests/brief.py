"""Makes searches of tests share their builds and end quickly: in pytest's processes, and in those that tests start.

    python -m tests.brief search ./saxpy.toml

runs the command in this way, with its process, its signals and its workers like a user's. If the first word is a Python
file, it runs that program. The variable BUILDS names the folder.
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

from autotune import __main__
from autotune.devices import environment
from autotune.pool import folder, keeper
from autotune.tuner import loop

BUILDS = "AUTOTUNE_TEST_BUILDS"


def share_builds(change: Callable[[object, str, object], None], kept: Path) -> None:
    """Have workers keep what they build.

    Most build the same few kernels, such as the one by which a worker shows that its machine works.
    """
    change(keeper, "new_salt", lambda: 1)
    change(folder, "environment", lambda device, _, worker: environment(device, kept, worker=worker))


def shorten_finales(change: Callable[[object, str, object], None]) -> None:
    """Have finalists timed for half a second.

    On a machine that is busy with other tests the fastest often stays in doubt, and they would use all the time that a
    search gives them.
    """
    change(loop, "RETIME_S", 0.5)


if __name__ == "__main__":
    share_builds(setattr, Path(os.environ[BUILDS]))
    shorten_finales(setattr)
    if sys.argv[1:] and sys.argv[1].endswith(".py"):
        del sys.argv[0]
        runpy.run_path(sys.argv[0], run_name="__main__")
    else:
        __main__.command()
