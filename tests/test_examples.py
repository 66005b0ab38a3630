"""The examples run as they stand."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.device

BRIEF = """import os, runpy, sys
from pathlib import Path
from autotune.devices import environment
from autotune.pool import folder
from autotune.tuner import loop
loop.RETIME_S = 0.5
folder.environment = lambda device, _, worker: environment(device, Path(os.environ["BUILDS"]), worker=worker)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs a program whose searches are as brief as those of the other tests, and keep their builds for the next."""

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(path: Path, tmp_path: Path) -> None:
    (builds := tmp_path / "builds").mkdir()
    environment = {**os.environ, "BUILDS": str(builds), "AUTOTUNE_DB": str(tmp_path / "a.db"), "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-c", BRIEF, str(path), "1"]
    done = subprocess.run(words, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_the_page_lists_every_example() -> None:
    page = (ROOT / "examples" / "README.md").read_text()
    assert all(f"]({path.name})" in page for path in EXAMPLES)
