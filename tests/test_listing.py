"""The devices, listed by another process while this one imports."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

import autotune
from autotune import cluster, devices, pool
from autotune.devices import drivers, find_device, list_by, list_devices, select, vendors
from autotune.errors import SetupError
from autotune.lookup import warm
from autotune.model import DeviceInfo, Outcome
from autotune.pool import DeviceEvaluator, Settings, forkserver, listing, prepared
from autotune.pool.forkserver import Forkserver
from autotune.pool.listing import list_ahead
from autotune.pool.process import Process, Start
from autotune.service import child
from autotune.study import Problem
from tests.stored import DEVICE, put_in
from tests.studies import study

pytestmark = pytest.mark.device


@pytest.fixture(autouse=True)
def by_this_process() -> Iterator[None]:
    yield
    select._listing.clear()
    listing._listed.cache_clear()


@pytest.fixture
def forks() -> Iterator[Forkserver]:
    server = Forkserver()
    yield server
    server.close()


def unsized(found: Sequence[DeviceInfo]) -> list[DeviceInfo]:
    """Return devices without their memory: a CPU's is what the machine has left."""
    return [replace(device, memory=0, max_allocation=0) for device in found]


def test_another_process_lists_what_this_one_would(forks: Forkserver, monkeypatch: pytest.MonkeyPatch) -> None:
    here = unsized(list_devices())
    list_ahead(forks.start)
    monkeypatch.setattr(devices.load_backend("opencl"), "devices", lambda: pytest.fail("listed here"))
    assert unsized(list_devices()) == here
    assert unsized([find_device(None)])[0] in here  # asked again, it is answered again
    devices.diagnose()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_fork_waits_for_no_thread_and_process_of_who_it_is_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(select, "list_bundled", list)
    never: Future[Any] = Future()
    monkeypatch.setattr(listing, "Listing", lambda *_, **__: Mock(answer=never.result))
    listing.list_when_asked(at_once=True)
    with prepared():
        pid = os.fork()
        if not pid:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(20)  # a wait ends the child
            os._exit(len(list_devices()) + len(forkserver._prepared) + listing._listed.cache_info().currsize)
        assert os.waitpid(pid, 0)[1] == 0


def test_the_process_stays_until_a_worker_has_opened_the_device(forks: Forkserver) -> None:
    started: list[Process] = []

    def start(role: str, connection: int, log: int, environment: Mapping[str, str]) -> Process:
        started.append(forks.start(role, connection, log, environment))
        return started[0]

    list_ahead(start, stays=True)
    assert list_devices()
    with pytest.raises(subprocess.TimeoutExpired):
        started[0].wait(0.0)
    problem = Problem(study(), device=find_device(None))
    with DeviceEvaluator(problem, [problem.device], Settings(builders=0)) as evaluator:
        evaluator.submit(problem.default)
        assert evaluator.collect().outcome is Outcome.OK
        assert started[0].wait(60.0) == 0


def test_a_cache_that_pocl_was_given_is_gone_once_the_devices_are_told(tmp_path: Path) -> None:
    away = os.environ | {"HOME": "/dev/null/x", "XDG_CACHE_HOME": "", "POCL_CACHE_DIR": "", "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-m", "autotune", "devices"], env=away, capture_output=True, text=True)
    assert (done.returncode, list(tmp_path.iterdir())) == (0, []), done.stderr


def test_where_the_process_dies_the_devices_are_listed_here() -> None:
    def dies(role: str, connection: int, log: int, environment: Mapping[str, str]) -> Process:
        raise ConnectionResetError

    list_ahead(dies)
    assert list_devices()


def starting(does: str, popen: type[subprocess.Popen[bytes]]) -> Start:
    code = f"import os, signal, sys; from multiprocessing.connection import Connection; {does}"
    return lambda role, connection, log, environment: popen(
        [sys.executable, "-c", code, str(connection)], pass_fds=[connection]
    )


FAILS = "held = Connection(int(sys.argv[1])); held.send(None); held.send(None)"


@pytest.mark.parametrize("does", ["raise SystemExit(3)", "signal.pause()", FAILS])
def test_what_answers_nothing_or_does_not_begin_is_no_answer(does: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if "pause" in does:
        monkeypatch.setattr(listing, "_BEGIN_S", 0.0)
    list_ahead(starting(does, subprocess.Popen))
    assert list_devices()


@pytest.mark.parametrize(
    ("does", "said"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", r"ends the process that asks for devices \(SIGSEGV\); a\.icd it is"),
        (
            "held = Connection(int(sys.argv[1])); held.send(None); signal.pause()",
            r"not answer for 0 s; a\.icd it is",
        ),
        (
            "held = Connection(int(sys.argv[1])); held.send(None); os._exit(0)",
            r"ends the process that asks for devices \(exit code 0\); a\.icd it is",
        ),
    ],
)
def test_a_driver_that_crashes_hangs_or_exits_is_told(does: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for patience in ("_WORRY_S", "_PATIENCE_S") if "pause" in does else ():
        monkeypatch.setattr(listing, patience, 0.0)
    monkeypatch.setattr(devices, "faulty", lambda: ["a.icd it is"])
    list_ahead(starting(does, subprocess.Popen))
    with pytest.raises(SetupError, match=said):
        list_devices()


@pytest.mark.parametrize("device", [None, "0"])
def test_a_program_that_uses_no_driver_has_a_process_ask(
    device: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autotune.pool.process.spawned", starting("os.abort()", subprocess.Popen))
    monkeypatch.setattr(devices, "faulty", lambda: ["a.icd it is"])

    def ask() -> str:
        for kept in ("_here", "_answers"):
            monkeypatch.setattr(warm, kept, {})
        return autotune.best("matmul", device=device, database=tmp_path / "x.db").match

    monkeypatch.setitem(sys.modules, "pyopencl", sys.modules.get("pyopencl", pytest))
    assert ask() == "default"
    monkeypatch.delitem(sys.modules, "pyopencl")
    with pytest.raises(SetupError, match=r"\(SIGABRT\); a\.icd it is"):
        ask()


def test_a_search_of_a_program_has_a_fork_of_its_prepared_process_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    here = unsized(list_devices())
    monkeypatch.setitem(sys.modules, "pyopencl", sys.modules.get("pyopencl", pytest))
    with prepared():
        assert not select._listing
    monkeypatch.delitem(sys.modules, "pyopencl")
    monkeypatch.setattr(select, "list_bundled", lambda: pytest.fail("listed here"))
    with prepared():
        assert unsized(list_devices()) == here


@pytest.mark.parametrize(("on", "begun"), [(None, ["listed"]), ("tcp://127.0.0.1:1", [])])
def test_a_process_of_a_server_has_a_fork_ask(
    on: str | None, begun: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    monkeypatch.setattr(pool, "list_apart", lambda: done.append("listed"))
    monkeypatch.setattr(cluster, "list_models", lambda address: ([], []))
    monkeypatch.setattr(devices, "list_devices", list)
    monkeypatch.setattr(devices, "diagnose", list)
    assert child.WORKS["devices"]({"on": on}, print, threading.Event()) == {"devices": [], "amiss": []}
    assert done == begun


def test_a_driver_that_aborts_for_want_of_processes_is_not_at_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "faulty", lambda: pytest.fail("asked"))
    monkeypatch.setattr(listing, "lacks_processes", lambda: "9 of the 9 processes")
    list_ahead(starting("os.abort()", subprocess.Popen))
    with pytest.raises(SetupError, match=r"\(SIGABRT\); 9 of the 9 processes"):
        list_devices()


class Stuck(subprocess.Popen[bytes]):
    """A process that no signal ends, like one that waits for a device inside the kernel of the system."""

    def kill(self) -> None: ...


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Stuck]]:
    begun: list[Stuck] = []
    init = subprocess.Popen.__init__

    def keep(self: Stuck, *words: Any, **options: Any) -> None:
        begun.append(self)
        init(self, *words, **options)

    monkeypatch.setattr(Stuck, "__init__", keep)
    yield Stuck
    for process in begun:
        process.terminate()
        process.wait()


def test_who_asks_a_driver_and_cannot_be_killed_is_not_waited_for(
    stuck: type[Stuck], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name in (
        (listing, "_WORRY_S"),
        (listing, "_PATIENCE_S"),
        (listing, "_KILL_S"),
        (vendors, "_PATIENCE_S"),
        (vendors, "_KILL_S"),
    ):
        monkeypatch.setattr(module, name, 0.0)
    (tmp_path / "a.icd").touch()
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path))
    monkeypatch.setattr(vendors, "_ASK", "import signal; signal.pause()")
    list_ahead(starting("held = Connection(int(sys.argv[1])); held.send(None); signal.pause()", stuck))
    monkeypatch.setattr("autotune.devices.vendors.subprocess.Popen", stuck)
    with pytest.raises(SetupError, match=r"not answer for 0 s; .*a\.icd does not answer"):
        list_devices()


def test_where_no_driver_can_be_asked_alone_none_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.icd").touch()
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "full"))
    assert vendors.faulty() == []


def test_each_driver_is_asked_alone_and_named_where_it_crashes_or_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "import os; name = os.listdir(os.environ['OCL_ICD_VENDORS'])[0]; "
        f"os.abort() if name == 'b.icd' else os._exit(0 if name == 'd.icd' else {vendors._ASKED})"
    )
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path))
    monkeypatch.setattr(vendors, "_ASK", code)
    for name in ("a.icd", "b.icd", "c.txt", "d.icd"):
        (tmp_path / name).touch()
    said, other = vendors.faulty()
    assert other.startswith(f"{tmp_path}/d.icd ends every program that asks it (exit code 0): ")
    assert vendors._does(-35) == "ends every program that asks it (signal 35)"
    assert said.startswith(
        f"{tmp_path}/b.icd ends every program that asks it (SIGABRT): repair that driver, or `sudo mv {tmp_path}/b.icd "
    )
    monkeypatch.setattr(vendors, "_PATIENCE_S", 0.0)
    assert [line.partition(" ")[2].partition(":")[0] for line in vendors.faulty()] == ["does not answer"] * 3


def test_a_driver_that_is_named_by_its_library_is_asked_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "lib.so"
    library.touch()
    monkeypatch.setenv("OCL_ICD_VENDORS", str(library))
    monkeypatch.setattr(vendors, "_ASK", f"import os; os.environ['OCL_ICD_VENDORS'] == {str(library)!r} and os.abort()")
    assert vendors.faulty() == [
        f"{library} ends every program that asks it (SIGABRT): repair that driver, or `unset OCL_ICD_VENDORS`"
    ]
    monkeypatch.setattr(vendors, "_ASK", f"import os; os._exit({vendors._ASKED})")
    assert vendors.faulty() == []


@pytest.mark.parametrize("name", ["pyopencl", "ctypes", "os"])
def test_what_lies_in_the_folder_here_is_not_run_where_drivers_are_asked(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.icd").touch()
    (tmp_path / f"{name}.py").write_text("import pathlib\npathlib.Path('was-run').touch()")
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert vendors.faulty() == []
    (tmp_path / "libnone.so.1").touch()
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    assert not drivers._loadable("libnone.so.1")
    assert not (tmp_path / "was-run").exists()


def test_no_process_is_started_for_a_library_that_is_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drivers._loadable("libc.so.6")
    monkeypatch.setattr(subprocess, "run", Mock(side_effect=AssertionError("is started")))
    assert not drivers._loadable("libnone.so.1")
    monkeypatch.setattr(drivers, "_LISTED", Path("/nowhere"))
    with pytest.raises(AssertionError, match="is started"):
        drivers._loadable("libnone.so.1")


def test_what_was_listed_belongs_to_who_asked() -> None:
    kept = list_devices()
    list_by(lambda: kept)
    list_devices().clear()
    assert list_devices() == kept != []


SEARCH = """
import os, sys
from pathlib import Path
from autotune.__main__ import main
from tests import brief
brief.share_builds(setattr, Path(os.environ[brief.BUILDS]))
brief.shorten_finales(setattr)
sys.argv = ["autotune", "search", "matmul", "--size", "64", "--trials", "1", "--db", "DB", "--fix", "VARIANT=NAIVE"]
try:
    main()
finally:
    print(sorted(m for m in sys.modules if m.startswith("pyopencl")))
"""


BEST = """
import os, sys
from autotune import devices
from autotune.__main__ import main
devices.list_bundled = os.abort
devices.faulty = lambda: ["a.icd it is"]
sys.argv = ["autotune", "best", "matmul", "--db", "DB"]
main()
"""


def test_a_driver_that_crashes_ends_no_best(tmp_path: Path) -> None:
    def asked() -> tuple[int, str]:
        code = BEST.replace("DB", str(tmp_path / "x.db"))
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        return done.returncode, done.stderr

    crashed = "an OpenCL driver here ends the process that asks for devices (SIGABRT)"
    assert asked() == (3, f"error: {crashed}; a.icd it is\n")
    put_in(tmp_path / "x.db", [], device=DEVICE)
    code, said = asked()
    assert (code, f"note: {crashed}: answered for {DEVICE.fingerprint}, the only one stored" in said) == (0, True)


def test_a_search_loads_no_driver_itself_and_leaves_no_folder(tmp_path: Path) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    environment = {**os.environ, "HOME": "/proc/nowhere", "TMPDIR": str(temporary)}
    environment.pop("POCL_CACHE_DIR", None)
    environment.pop("XDG_CACHE_HOME", None)
    code = SEARCH.replace("DB", str(tmp_path / "x.db"))
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr
    assert not list(temporary.glob("autotune-*"))
