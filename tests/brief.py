"""Searches of tests keep their builds for one another, and are brief: in pytest's processes, and in those they start.

    python -m tests.brief search ./saxpy.toml

is the command so, with its process, its signals and its workers a user's; and so is a program, where the first word
is a file of Python. The variable BUILDS names the folder.
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
    """Have workers keep what they build: most build the same few kernels, among them the one by which a worker shows
    that its machine is sound."""
    change(keeper, "new_salt", lambda: 1)
    change(folder, "environment", lambda device, _, worker: environment(device, kept, worker=worker))


def shorten_finales(change: Callable[[object, str, object], None]) -> None:
    """Have finalists timed for half a second: on a machine that is busy with other tests it stays in doubt which is the
    fastest, and they would run for all the time that a search gives them."""
    change(loop, "RETIME_S", 0.5)


if __name__ == "__main__":
    share_builds(setattr, Path(os.environ[BUILDS]))
    shorten_finales(setattr)
    if sys.argv[1:] and sys.argv[1].endswith(".py"):
        del sys.argv[0]
        runpy.run_path(sys.argv[0], run_name="__main__")
    else:
        __main__.command()
