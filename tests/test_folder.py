"""The folder of a search's workers."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from autotune.bench.timing import Limits, Rules
from autotune.errors import SetupError
from autotune.pool import data
from autotune.pool.folder import RunFolder
from autotune.pool.lock import DeviceLock
from autotune.study import Problem
from tests.test_device import H200


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_LOCKS", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


CRASH = """
import os, sys
from autotune.pool.folder import RunFolder
from autotune.pool.lock import DeviceLock
from tests.test_device import H200
held, folder = DeviceLock(H200), RunFolder()
print(folder.path, flush=True)
os.kill(os.getpid(), 9)
"""


def test_a_killed_search_releases_its_device_and_the_next_removes_its_folder() -> None:
    done = subprocess.run([sys.executable, "-c", CRASH], stdout=subprocess.PIPE, text=True, env={
        **os.environ, "TMPDIR": tempfile.gettempdir(), "PYTHONPATH": str(Path(__file__).parent.parent),
    })  # fmt: skip
    left = Path(done.stdout.strip())
    assert left.is_dir()
    unfinished = left.with_name("autotune-run-unfinished")  # a sweep that was killed itself leaves no lock
    (unfinished / "pocl").mkdir(parents=True)
    DeviceLock(H200).release()
    folder = RunFolder()
    assert not left.exists()
    assert not unfinished.exists()
    other = RunFolder()
    assert folder.path.is_dir()
    folder.remove()
    assert not folder.path.exists()
    other.remove()


def test_a_folder_that_is_kept_is_named_and_outlives_the_next_search(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = RunFolder()
    (folder.path / "device.log").write_text("said")
    monkeypatch.setenv("AUTOTUNE_KEEP", "1")
    folder.remove()
    kept = Path(capsys.readouterr().err.strip().removeprefix("autotune: the workers' files are in "))
    monkeypatch.delenv("AUTOTUNE_KEEP")
    RunFolder().remove()
    assert (kept / "device.log").read_text() == "said"


def test_a_temporary_folder_that_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with pytest.raises(SetupError, match="set TMPDIR"):
        RunFolder()


def test_data_that_cannot_be_written_is_the_machines_fault(problem: Problem, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"the data cannot be written to .*gone: No such file.*; free some space"):
        data.compute(problem, tmp_path / "gone", Rules(), Limits())
