"""The lock of a device."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import tempfile
import threading
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue

import pytest

from autotune.errors import SetupError, StoreError
from autotune.pool import Stopped, lock
from autotune.pool.lock import DeviceLock, find_holder, lock_devices, lock_folder, lock_key
from autotune.pool.process import state_of
from tests.test_device import H200, NEWER, POCL, RTX


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_LOCKS", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> SimpleQueue[str]:
    """Return everything that is said: what threads write between two reads of capsys may be lost."""
    said: SimpleQueue[str] = SimpleQueue()
    monkeypatch.setattr(lock, "say", said.put)
    return said


def test_a_second_search_waits_and_says_for_whom(said: SimpleQueue[str]) -> None:
    first, other = DeviceLock(H200), DeviceLock(RTX)
    locks: list[DeviceLock] = []
    second = threading.Thread(target=lambda: locks.append(DeviceLock(H200)), daemon=True)
    second.start()
    assert f"NVIDIA H200 is in use by another search (process {os.getpid()})" in said.get(timeout=60)
    assert not locks
    first.release()
    second.join()
    locks[0].release()
    other.release()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")  # the run's own threads
def test_a_fork_of_who_locked_a_device_does_not_hold_it() -> None:
    first = DeviceLock(H200)
    pid = os.fork()
    if not pid:
        os.kill(os.getpid(), signal.SIGSTOP)
        os._exit(0)
    os.waitpid(pid, os.WUNTRACED)
    try:
        assert find_holder(H200) == str(os.getpid())
        first.release()
        assert find_holder(H200) is None
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_a_holder_that_somebody_has_stopped_is_told(tmp_path: Path, said: SimpleQueue[str]) -> None:
    with subprocess.Popen(["sleep", "1000"]) as holder:
        holder.send_signal(signal.SIGSTOP)
        while state_of(holder.pid) != "T":
            os.sched_yield()
        first, stop = DeviceLock(H200), threading.Event()
        stop.set()
        lock_file(tmp_path).write_text(str(holder.pid))
        with pytest.raises(Stopped):
            DeviceLock(H200, stop)
        assert f"(process {holder.pid}, which is stopped: kill -CONT {holder.pid} has it go on)" in said.get()
        first.release()
        holder.kill()


def test_a_search_that_waits_can_be_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    first, stop, opened, open_shared = DeviceLock(H200), threading.Event(), [], lock._open_shared
    stop.set()
    with pytest.raises(Stopped):
        lock_devices([H200], stop)
    monkeypatch.setattr("time.sleep", interrupted)
    monkeypatch.setattr(lock, "_open_shared", lambda path: opened.append(open_shared(path)) or opened[-1])
    with pytest.raises(KeyboardInterrupt):
        lock_devices([H200])
    with pytest.raises(OSError, match="Bad file descriptor"):  # a notebook goes on
        os.fstat(*opened)
    first.release()
    lock_devices([H200], stop)[0].release()


def test_what_would_make_waiting_vain_is_said_before() -> None:
    def fails() -> None:
        raise StoreError("is newer")

    lock_devices([H200], None, fails)[0].release()  # nobody waits
    first = DeviceLock(H200)
    with pytest.raises(StoreError, match="is newer"):
        lock_devices([H200], None, fails)
    first.release()
    DeviceLock(H200).release()


def test_a_lock_is_of_the_hardware() -> None:
    assert lock_key(H200) == "aa"
    assert lock_key(replace(H200, uuid="", pci="0000:01:00.0")) == "0000:01:00.0"
    assert lock_key(replace(H200, uuid="")) != lock_key(replace(H200, uuid="", index=1))
    assert lock_key(POCL) == lock_key(NEWER)


def test_devices_are_locked_in_one_order_whatever_is_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(lock, "DeviceLock", lambda device, *_: asked.append(device.uuid))
    for devices in ([H200, RTX], [RTX, H200], [RTX, H200, RTX]):
        lock_devices(devices)
    assert asked == sorted({H200.uuid, RTX.uuid}) * 3


def test_what_was_locked_is_given_back_where_the_next_fails(tmp_path: Path) -> None:
    first, second = sorted((H200, RTX), key=lock_key)
    (tmp_path / f"autotune-device-{lock_key(second)}.lock").mkdir()
    with pytest.raises(SetupError, match="sudo rm"):
        lock_devices([H200, RTX])
    DeviceLock(first).release()


def lock_file(folder: Path) -> Path:
    return folder / f"autotune-device-{lock_key(H200)}.lock"


def test_every_user_may_lock_the_file_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        DeviceLock(H200).release()
    finally:
        os.umask(before)
    assert lock_file(tmp_path).stat().st_mode & 0o777 == 0o666


def test_a_link_laid_by_another_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for lay in (lock_file(tmp_path).symlink_to, lock_file(tmp_path).hardlink_to):
        lay(victim)
        with pytest.raises(SetupError, match=r"autotune-device-.*sudo rm"):
            DeviceLock(H200)
        lock_file(tmp_path).unlink()
    os.mkfifo(lock_file(tmp_path))
    with pytest.raises(SetupError, match="is not a lock file"):
        DeviceLock(H200)
    assert victim.read_text() == "precious"


def test_a_folder_without_locks_is_told_with_what_to_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    for folder, fails in ((str(tmp_path), "locked: No locks available"), ("/proc", "opened: No such file")):
        monkeypatch.setenv("AUTOTUNE_LOCKS", folder)
        for step in (DeviceLock, find_holder):
            with pytest.raises(SetupError, match=rf"\.lock: cannot be {fails}.*; set AUTOTUNE_LOCKS to"):
                step(H200)


def test_a_lock_on_a_disk_that_is_only_read_is_not_to_be_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    DeviceLock(H200).release()

    def refused(*_: object) -> int:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(SetupError, match="Read-only file system; set AUTOTUNE_LOCKS"):
        DeviceLock(H200)


def test_a_holder_is_a_number_whatever_the_file_says(tmp_path: Path, said: SimpleQueue[str]) -> None:
    first = DeviceLock(H200)
    lock_file(tmp_path).write_text("\x1b[31mroot")
    second = threading.Thread(target=lambda: DeviceLock(H200).release(), daemon=True)
    second.start()
    assert "(process unknown)" in said.get(timeout=60)
    first.release()
    second.join()


def test_a_lock_whose_file_was_removed_while_it_waited_is_taken_anew(tmp_path: Path) -> None:
    descriptor = lock._open_shared(lock_file(tmp_path))
    assert lock._is_at(descriptor, lock_file(tmp_path))
    lock_file(tmp_path).unlink()
    assert not lock._is_at(descriptor, lock_file(tmp_path))
    DeviceLock(H200).release()
    assert not lock._is_at(descriptor, lock_file(tmp_path))
    os.close(descriptor)


def test_the_folder_is_the_machines_not_the_sessions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("AUTOTUNE_LOCKS")
    everybodys, own = tmp_path / "everybodys", tmp_path / "own"
    everybodys.mkdir()
    everybodys.chmod(0o1777)
    own.mkdir(0o700)
    monkeypatch.setattr(lock, "LOCK_FOLDERS", (tmp_path / "missing", own, everybodys))
    for runtime_dir in ("", str(tmp_path / "missing"), __file__):
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime_dir)
        assert lock_folder() == everybodys


def test_where_no_folder_is_everybodys_it_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("AUTOTUNE_LOCKS")
    monkeypatch.setattr(lock, "LOCK_FOLDERS", (tmp_path / "missing",))
    assert lock_folder() == tmp_path
    assert "another user's search on this device would not be seen" in capsys.readouterr().err
    for named, cure in ((__file__, "name a folder"), (f"{tmp_path}/new", f"mkdir -p {tmp_path}/new")):
        monkeypatch.setenv("AUTOTUNE_LOCKS", named)
        with pytest.raises(SetupError, match=f"is not a folder; {cure}$"):
            lock_folder()
