"""The lock of a device and the folder of a run."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.engine import data
from autotune.engine.report import Limits
from autotune.engine.runtime import DeviceLock, RunFolder, lock_key
from autotune.errors import SetupError
from autotune.problem import Problem
from autotune.timing import Rules
from tests.test_device import H200, NEWER, POCL, RTX


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_a_second_search_waits_and_says_for_whom(capsys: pytest.CaptureFixture[str]) -> None:
    first, other = DeviceLock(H200), DeviceLock(RTX)
    waiting = threading.Event()
    locks: list[DeviceLock] = []

    def search() -> None:
        waiting.set()
        locks.append(DeviceLock(H200))

    second = threading.Thread(target=search)
    second.start()
    waiting.wait()
    second.join(0.05)
    assert not locks
    first.release()
    second.join()
    assert f"NVIDIA H200 is in use by another search (process {os.getpid()})" in capsys.readouterr().err
    locks[0].release()
    other.release()


def test_a_lock_is_of_the_hardware() -> None:
    assert lock_key(H200) == "aa"
    assert lock_key(replace(H200, uuid="", pci="0000:01:00.0")) == "0000:01:00.0"
    assert lock_key(replace(H200, uuid="")) != lock_key(replace(H200, uuid="", index=1))
    assert lock_key(POCL) == lock_key(NEWER)


CRASH = """
import os, sys
from autotune.engine.runtime import DeviceLock, RunFolder
from tests.test_device import H200
lock, folder = DeviceLock(H200), RunFolder()
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


def test_a_folder_that_cannot_be_made_is_the_machines_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(SetupError, match=r"no folder can be made in .*gone: No such file.*; set TMPDIR"):
        RunFolder()


def test_data_that_cannot_be_written_is_the_machines_fault(problem: Problem, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"the data cannot be written to .*gone: No such file.*; free some space"):
        data.compute(problem, tmp_path / "gone", Rules(), Limits(), allow_python=False)
