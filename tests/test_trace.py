"""A trial, and a look-up, pass through little code: bounds that are only lowered (`benchmarks/trace.py --list`)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from operator import gt
from pathlib import Path

import pytest

from autotune.devices import environment, find_device
from tests.brief import BUILDS

pytestmark = pytest.mark.device

MOST = {"search thread": (94, 23, 64), "device worker": (110, 16, 75), "best --format json": (98, 10, 53)}
"""The most functions, files and calls from one file to another on each path. Lower them when you shorten a path. The
counts vary by a few with the load of the machine and with what it times."""


@pytest.mark.processor
def test_a_trial_and_a_look_up_pass_through_little() -> None:
    """The traced search and worker find their builds already made, by each other or by another test."""
    root = Path(__file__).parent.parent
    builds = environment(find_device(None), Path(os.environ[BUILDS]), worker=False)
    done = subprocess.run(
        [sys.executable, "-m", "tests.brief", str(root / "benchmarks" / "trace.py"), "--traced", "3"],
        env={**os.environ, **builds, "PYTHONPATH": str(root)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = {path: line for line in done.stdout.splitlines()[1:] for path in MOST if line.startswith(path)}
    found = {path: tuple(map(int, re.findall(r"\d+", line)[:3])) for path, line in lines.items()}
    assert set(found) == set(MOST), done.stdout
    assert {path: few for path, few in found.items() if any(map(gt, few, MOST[path]))} == {}
