"""Builders are stopped while a trial is timed, and no time limit runs meanwhile."""

from __future__ import annotations

import errno
import math
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import pytest

from autotune.bench import Report
from autotune.bench.messages import Ready, Setup
from autotune.bench.timing import Limits, Rules
from autotune.model import Outcome
from autotune.pool import forkserver, process
from autotune.pool.forkserver import Forkserver, prepare, prepare_and_list, prepared
from autotune.pool.pause import Pause
from autotune.pool.process import WorkerDied, WorkerOverran, WorkerProcess
from tests.devices import device_here
from tests.processes import deafen, has_ended

pytestmark = pytest.mark.device


class Noted:
    def __init__(self) -> None:
        self.said: list[str] = []

    def halt(self) -> None:
        self.said.append("halt")

    def go_on(self) -> None:
        self.said.append("go on")


def test_members_are_halted_from_the_first_holder_to_the_last() -> None:
    pause, early, late, gone = Pause(), Noted(), Noted(), Noted()
    pause.join(early)
    pause.join(gone)
    pause.leave(gone)
    with pause.held():
        pause.join(late)
        with pause.held():
            pass
        assert early.said == late.said == ["halt"]
    assert early.said == late.said == ["halt", "go on"]
    assert gone.said == []


@pytest.fixture(scope="module")
def forks() -> Iterator[Forkserver]:
    prepare()  # it takes it, once
    server = Forkserver()
    assert not forkserver._prepared
    yield server
    server.close()


@pytest.fixture(params=["spawned", "forked"])
def worker(tmp_path: Path, request: pytest.FixtureRequest) -> WorkerProcess:
    start = request.getfixturevalue("forks").start if request.param == "forked" else None
    worker = WorkerProcess("builder", tmp_path, {}, start)
    assert worker.receive(60.0) is None  # it dies with its parent from here on
    return worker


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def await_state(pid: int, wanted: str) -> None:
    while state(pid) not in wanted:
        os.sched_yield()


def test_a_halted_worker_stands_still_then_answers_within_a_limit_that_did_not_run(worker: WorkerProcess) -> None:
    worker.send(device_here())
    pause = Pause()
    pause.join(worker)
    with pause.held():
        await_state(worker.pid, "T")
        worker.send(Setup("", {}, {}, None, Rules(), Limits()))
    assert isinstance(worker.receive(60.0), Ready)
    with pause.held():
        assert worker._clock() == pytest.approx(worker._clock(), abs=1e-9)
    before = worker._clock()
    with pytest.raises(WorkerOverran):
        worker.receive(0.05)
    assert worker._clock() >= before + 0.05
    with pytest.raises(ProcessLookupError):
        os.kill(worker.pid, 0)


class Standstill:
    """A connection whose message comes after everything was paused (`docker pause`), or after mere silence."""

    said: object = Report(Outcome.OK)

    def __init__(self, clock: list[float], waits: Sequence[float]) -> None:
        self._clock, self._waits = clock, list(waits)

    def poll(self, seconds: float) -> bool:
        self._clock[0] += self._waits.pop(0)
        return not self._waits

    def recv(self) -> object:
        return self.said

    def close(self) -> None:
        pass


def test_a_limit_does_not_run_while_everything_stands_still(
    worker: WorkerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    worker._connection.close()
    monkeypatch.setattr(process, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(worker, "_connection", Standstill(clock, [1.0, 300.0, 1.0, 0.5]))
    assert worker.receive(10.0) == Report(Outcome.OK)
    monkeypatch.setattr(worker, "_connection", Standstill(clock, [1.0] * 12))
    with pytest.raises(WorkerOverran):
        worker.receive(10.0)


def test_a_worker_that_answers_nonsense_is_gone(worker: WorkerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Standstill, "said", "here")
    worker._connection.close()
    monkeypatch.setattr(worker, "_connection", Standstill([0.0], [0.5]))
    with pytest.raises(WorkerDied, match="its messages make no sense"):
        worker.receive(10.0)
    assert has_ended(worker.pid)


def test_a_standstill_of_a_worker_that_is_halted_counts_once(
    worker: WorkerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    worker._connection.close()
    monkeypatch.setattr(process, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(worker, "_halted_since", 0.0)
    monkeypatch.setattr(worker, "_connection", Standstill(clock, [300.0, 0.5]))
    assert worker.receive(10.0) == Report(Outcome.OK)
    worker.go_on()
    assert worker._clock() == 0.0
    worker.kill()


def test_a_worker_that_somebody_stopped_goes_on_once_for_each_message(worker: WorkerProcess) -> None:
    os.kill(worker.pid, signal.SIGSTOP)
    await_state(worker.pid, "T")
    assert worker._wake()
    await_state(worker.pid, "SR")
    os.kill(worker.pid, signal.SIGSTOP)
    await_state(worker.pid, "T")
    assert not worker._wake()
    worker.send(None)
    assert not worker._woken
    worker.kill()


def test_a_worker_that_somebody_stopped_has_its_limit_once_more(worker: WorkerProcess) -> None:
    os.kill(worker.pid, signal.SIGSTOP)
    await_state(worker.pid, "T")
    with pytest.raises(WorkerOverran):
        worker.receive(0.0)  # nobody has asked it for anything
    assert worker._woken


def test_what_is_sent_to_all_processes_of_a_job_is_the_searchs_to_handle(
    worker: WorkerProcess, forks: Forkserver, tmp_path: Path
) -> None:
    assert WorkerProcess("builder", tmp_path, {}, forks.start).receive(60.0) is None
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        for pid in (worker.pid, process_of(forks).pid):
            os.kill(pid, number)
    worker.send(device_here())
    worker.send(Setup("", {}, {}, None, Rules(), Limits()))
    assert isinstance(worker.receive(60.0), Ready)
    worker.kill()
    assert WorkerProcess("builder", tmp_path, {}, forks.start).receive(60.0) is None


def test_what_is_no_message_is_the_end_of_the_worker(worker: WorkerProcess) -> None:
    ours, theirs = socket.socketpair()
    worker._connection.close()
    worker._connection = Connection(ours.detach())
    with theirs:
        theirs.sendall(b"\0\0\0\5nonsense")
        with pytest.raises(WorkerDied):
            worker.receive(math.inf)
    with pytest.raises(ProcessLookupError):
        os.kill(worker.pid, 0)


def test_a_worker_that_no_signal_ends_is_left(
    worker: WorkerProcess, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as stuck:
        stuck.setattr(process, "_KILL_S", 0.0)
        stuck.setattr(worker._process, "kill", lambda: None)
        worker.kill()
    assert "a driver holds it in the system" in caplog.text
    worker._process.kill()
    worker._process.wait()


def test_a_worker_that_is_gone_can_be_halted(worker: WorkerProcess) -> None:
    worker.kill()
    pause = Pause()
    pause.join(worker)
    with pause.held():
        pass


def test_forks_end_with_the_prepared_process_and_the_next_is_of_another(forks: Forkserver, tmp_path: Path) -> None:
    first = WorkerProcess("builder", tmp_path, {}, forks.start)
    assert first.receive(60.0) is None
    assert forks._server._process is not None
    forks._server._process.kill()
    with pytest.raises(WorkerDied, match="SIGKILL"):
        first.receive(60.0)
    forks._server.lost.wait()
    second = WorkerProcess("builder", tmp_path, {}, forks.start)
    assert second.receive(60.0) is None
    assert Path(f"/proc/{second.pid}/comm").read_text().startswith("autotune-build")
    forks.close()
    with pytest.raises(WorkerDied):
        second.receive(60.0)
    with pytest.raises(ProcessLookupError):
        os.kill(second.pid, 0)
    with pytest.raises(WorkerDied):
        WorkerProcess("builder", tmp_path, {}, forks.start)


def test_a_prepared_process_that_is_not_waited_for_ends_with_its_workers(tmp_path: Path) -> None:
    server = Forkserver()
    worker = WorkerProcess("builder", tmp_path, {}, server.start)
    prepared = server._server._process
    assert prepared is not None
    worker.halt()  # so that it takes a while
    server.close(wait=False)
    assert has_ended(worker.pid)
    assert has_ended(prepared.pid)
    server._server.join()


def test_a_prepared_process_that_is_stopped_keeps_nobody_from_ending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Forkserver()
    worker = WorkerProcess("builder", tmp_path, {}, server.start)
    assert worker.receive(60.0) is None
    prepared = server._server._process
    assert prepared is not None
    prepared.send_signal(signal.SIGSTOP)
    await_state(prepared.pid, "T")
    monkeypatch.setattr(forkserver, "_HEED_S", 0.01)
    worker.kill()
    server.close()
    assert has_ended(prepared.pid)


@pytest.mark.processor
def test_what_workers_import_is_imported_before_the_first_of_them_is_forked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")  # each import is a line of the log of who imports
    server = Forkserver()
    worker = WorkerProcess("builder", tmp_path, {}, server.start)
    assert worker.receive(60.0) is None
    worker.send(device_here())
    worker.send(Setup("", {}, {}, None, Rules(), Limits()))
    assert isinstance(worker.receive(60.0), Ready)
    server.close()
    imported = worker._log.read_text()
    assert "import time" in imported
    assert "autotune.bench" not in imported


@pytest.fixture
def stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Forkserver]:
    """A server whose prepared process somebody has stopped."""
    server = Forkserver()
    WorkerProcess("builder", tmp_path, {}, server.start)
    process_of(server).send_signal(signal.SIGSTOP)
    await_state(process_of(server).pid, "T")
    monkeypatch.setattr(forkserver, "_HEED_S", 0.01)
    yield server
    server.close()


def process_of(server: Forkserver) -> subprocess.Popen[bytes]:
    found = server._server._process
    assert found is not None
    return found


def test_a_prepared_process_that_is_stopped_goes_on_where_a_worker_is_wanted(
    stopped: Forkserver, tmp_path: Path
) -> None:
    assert WorkerProcess("builder", tmp_path, {}, stopped.start).receive(60.0) is None


def test_a_prepared_process_that_is_stopped_goes_on_to_end(
    stopped: Forkserver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not waited for like one that does not answer, which would take until the test's time limit."""
    monkeypatch.setattr(forkserver, "_HEED_S", 600.0)
    stopped.close()
    assert has_ended(process_of(stopped).pid)


def test_a_prepared_process_that_does_not_answer_is_lost(
    stopped: Forkserver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deaf = stopped._server
    monkeypatch.setattr(forkserver, "_BORN_S", 0.01)
    deafen(process_of(stopped), monkeypatch)
    with pytest.raises(WorkerDied, match="SIGKILL"):
        WorkerProcess("builder", tmp_path, {}, stopped.start)
    deaf.lost.wait()
    monkeypatch.undo()
    assert WorkerProcess("builder", tmp_path, {}, stopped.start).receive(60.0) is None


def test_who_waits_for_a_worker_is_told_that_none_will_come(
    stopped: Forkserver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, told = deafen(process_of(stopped), monkeypatch), list[str]()

    def ask() -> None:
        with pytest.raises(WorkerDied) as raised:
            WorkerProcess("builder", tmp_path, {}, stopped.start)
        told.append(raised.value.phase)

    waiting = Thread(target=ask)
    waiting.start()
    asked.wait()
    stopped.close(wait=False)
    waiting.join()
    assert told == ["start"]


def test_a_search_that_comes_to_nothing_leaves_another_threads_prepared_process_alone() -> None:
    def comes_to_nothing() -> None:
        with suppress(LookupError), prepared():
            raise LookupError("no such study")

    with prepared():
        mine = list(forkserver._prepared)
        other = Thread(target=comes_to_nothing)
        other.start()
        other.join()
        assert forkserver._prepared == mine != []
    assert not forkserver._prepared


@pytest.mark.parametrize("step", ["tempfile.TemporaryFile", "subprocess.Popen"])
def test_what_keeps_a_process_from_being_prepared_is_said_where_it_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], step: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "no more of it")

    monkeypatch.setattr(f"autotune.pool.forkserver.{step}", fail)
    server = Forkserver()
    with pytest.raises(WorkerDied, match=r"it ended by itself.*: no more of it"):
        WorkerProcess("device", tmp_path, {}, server.start)
    server.close()
    assert capfd.readouterr().err == ""


def test_where_no_thread_may_start_nothing_is_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(thread: Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Thread, "start", fail)
    prepare_and_list()
    assert forkserver._prepared == []


def test_a_prepared_process_that_cannot_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyopencl.py").write_text("raise ImportError('no driver of this kind')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    server = Forkserver()
    with pytest.raises(WorkerDied, match=r"it ended by itself.*no driver of this kind"):
        WorkerProcess("builder", tmp_path, {}, server.start)
    server.close()


NAMED_BY_THE_PROGRAM = """
import sys
sys.path[:0] = sys.argv[2:]
from pathlib import Path
from autotune.pool.forkserver import Forkserver
from autotune.pool.process import WorkerProcess, spawned
for start in (spawned, Forkserver().start):
    WorkerProcess("builder", Path(sys.argv[1]), {}, start).receive(60.0)
"""


def test_workers_import_from_where_a_program_does(tmp_path: Path) -> None:
    packages = tmp_path / "site-packages"  # as of `pip install --target`: a name that tells nothing
    packages.mkdir()
    (packages / "autotune").symlink_to(Path(process.__file__).parent.parent)
    (tmp_path / "program.py").write_text(NAMED_BY_THE_PROGRAM)
    own = [path for path in sys.path if path.endswith("site-packages")]
    words = [
        getattr(sys, "_base_executable", sys.executable),
        str(tmp_path / "program.py"),
        str(tmp_path),
        str(packages),
        *own,
    ]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


SEARCH = """
import os, sys, threading
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from queue import SimpleQueue
from autotune.devices import find_device
from autotune.pool.keeper import Keeper
from autotune.bench.messages import Setup
from autotune.pool.pause import Pause
from autotune.bench.timing import Limits
from autotune.bench.timing import Rules
device = find_device(None)
setup = Setup("", {}, {}, None, Rules(), Limits())
pause = Pause()
keeper = Keeper("builder", device, SimpleQueue(), None, print, lambda k: k.start_worker(device, lambda: setup, {}),
                Path(sys.argv[1]), pause)
with pause.held():
    keeper.start()
    while keeper._worker is None or "T" not in Path(f"/proc/{keeper._worker.pid}/stat").read_text().rpartition(")")[2]:
        os.sched_yield()
    print(keeper._worker.pid, flush=True)
    threading.Event().wait()
"""


def test_a_worker_halted_while_it_starts_dies_with_its_search(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SEARCH, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as search:
        assert search.stdout is not None
        descriptor = os.pidfd_open(int(search.stdout.readline()))
        search.kill()
    assert select.select([descriptor], [], [], 2.0)[0], "the halted worker outlived its search"
    os.close(descriptor)
