"""A trial, and a look-up, pass through few files: limits that are only lowered (`benchmarks/trace.py --list`)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.devices import environment, find_device
from tests.brief import BUILDS

pytestmark = pytest.mark.device

FILES = {"search thread": 25, "device worker": 15, "best --format json": 10}
"""The most files of the package on each path. Lower them when you shorten a path."""


@pytest.mark.processor
def test_a_trial_and_a_look_up_pass_through_few_files() -> None:
    """The traced search and worker find their builds already made, by each other or by another test."""
    root = Path(__file__).parent.parent
    builds = environment(find_device(None), Path(os.environ[BUILDS]), worker=False)
    done = subprocess.run(
        [sys.executable, "-m", "tests.brief", str(root / "benchmarks" / "trace.py"), "--traced", "3"],
        env={**os.environ, **builds, "PYTHONPATH": str(root)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = {path: int(line.split(" / ")[1]) for line in done.stdout.splitlines()[1:] for path in FILES if path in line}
    assert set(found) == set(FILES), done.stdout
    assert {path: count for path, count in found.items() if count > FILES[path]} == {}
