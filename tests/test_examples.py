"""The examples run unchanged."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.device

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
MORE = {"compare_sizes": ["256", "1024"]}
"""Further arguments of an example, besides a number of trials or seconds."""


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(path: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "AUTOTUNE_DB": str(tmp_path / "a.db"), "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-m", "tests.brief", str(path), "1", *MORE.get(path.stem, ())]
    done = subprocess.run(words, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_the_page_lists_every_example() -> None:
    page = (ROOT / "examples" / "README.md").read_text()
    assert all(f"]({path.name})" in page for path in EXAMPLES)
