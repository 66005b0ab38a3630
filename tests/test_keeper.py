"""Threads that each keep one worker process: what they do if it is killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import Pipe
from pathlib import Path
from queue import SimpleQueue

import pytest

from autotune.bench import serving
from autotune.bench.messages import Job, Onward, Retime, Setup, Visited
from autotune.bench.report import Report
from autotune.bench.timing import Limits, Rules
from autotune.devices import BackendError, environment, linker, open_session
from autotune.errors import AutotuneError, SetupError, StudyError, WorkerError
from autotune.model import Measurement, Outcome
from autotune.pool import blame, process
from autotune.pool import keeper as module
from autotune.pool.data import compute
from autotune.pool.forkserver import Forkserver
from autotune.pool.keeper import Cancelled, Keeper
from autotune.pool.process import WorkerDied, WorkerProcess, last_words, unready
from autotune.study import Buffer, Launch, Plan, Problem, Tolerance
from tests.brief import BUILDS
from tests.devices import device_here
from tests.studies import study

SETUP = Setup("", {}, {}, None, Rules(), Limits())

pytestmark = pytest.mark.device


new_salt = module.new_salt


@pytest.fixture(autouse=True, scope="module")
def forks() -> Iterator[None]:
    """The workers are forks of one prepared process, as in a search."""
    server = Forkserver()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "spawned", server.start)
        yield
    server.close()


def test_no_probe_is_like_another() -> None:
    assert len({new_salt() for _ in range(3)}) == 3


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[Keeper]:
    keeper = Keeper("builder", device_here(), SimpleQueue(), lambda *_: None, lambda _: None, lambda _: None, tmp_path)
    yield keeper
    keeper.close()
    keeper._drop()


def builds() -> Mapping[str, str]:
    """The environment of a worker that finds its probe built; one that tests the machine builds it in a new cache."""
    return environment(device_here(), Path(os.environ[BUILDS]), worker=True)


def start(keeper: Keeper, kills: int) -> int:
    """Start a worker that is killed this many times while it starts; return how often it was started."""
    starts = []

    def setup() -> Setup:
        assert keeper._worker is not None
        starts.append(keeper._worker.pid)
        if len(starts) <= kills:
            os.kill(keeper._worker.pid, signal.SIGKILL)
        return SETUP

    keeper.start_worker(device_here(), setup, builds())
    return len(starts)


@pytest.fixture
def no_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_START_DELAYS_S", (0.0, 0.0, 0.0))
    monkeypatch.setattr(module, "_DOUBTS_S", (0.0, 0.0))


def test_a_worker_killed_while_it_starts_is_started_again(keeper: Keeper, no_delays: None) -> None:
    assert start(keeper, kills=3) == 4


def test_a_reference_that_loses_the_device_is_the_studys_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with NVIDIA's driver: the process lives, but its queue can no longer be used."""
    session, reference = open_session(device_here()), {"configuration": {"WPT": 1, "WG": 32, "FAST": 0}}
    problem = Problem(study(reference=reference), device=device_here())

    def lost() -> None:
        raise BackendError("clFinish failed: CL_INVALID_COMMAND_QUEUE (-36)")

    monkeypatch.setattr(session, "finish", lost)
    monkeypatch.setattr("autotune.bench.reference.check_signatures", lambda *_, **__: ["f takes x as `int`"])
    monkeypatch.setattr(serving, "open_session", lambda _: session)
    here, there = Pipe()
    here.send(device_here())
    here.send(compute(problem, tmp_path, Rules(), Limits()))
    serving.serve("device", there)
    while not isinstance(answer := here.recv(), Report):
        pass
    error = unready("device", answer)
    assert isinstance(error, StudyError)
    assert str(error).startswith("reference: its kernel ended the worker: the device gave up while running the kernel")
    assert "(-36); f takes x as `int`; if it accesses" in str(error)


def test_others_open_the_device_after_its_worker_and_before_a_kernel_or_its_data_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []
    probe = Keeper._probe

    def set_up(keeper: Keeper) -> None:
        keeper.start_worker(device_here(), lambda: opened.append(keeper.opened.is_set()) or SETUP, builds())

    def probed(keeper: Keeper, worker: WorkerProcess) -> None:
        opened.append(keeper.opened.is_set())
        probe(keeper, worker)

    monkeypatch.setattr(Keeper, "_probe", probed)
    keeper = Keeper("device", device_here(), SimpleQueue(), lambda *_: None, lambda _: None, set_up, tmp_path)
    keeper.start()
    assert keeper.started.wait(60.0)
    keeper.close()
    assert opened == [True, True]


def test_a_device_that_is_gone_is_told_before_others_open_it(tmp_path: Path) -> None:
    told: list[AutotuneError] = []
    gone = replace(device_here(), index=77)

    def set_up(keeper: Keeper) -> None:
        keeper.start_worker(gone, lambda: SETUP, {})

    keeper = Keeper("device", gone, SimpleQueue(), lambda *_: None, told.append, set_up, tmp_path)
    keeper.start()
    keeper.join(60.0)
    assert str(told[0]).startswith("the device worker cannot start: device 77, ")


def test_who_waits_for_a_worker_that_cannot_open_the_device_goes_on(tmp_path: Path) -> None:
    def fails(_: Keeper) -> None:
        raise WorkerError("no")

    keeper = Keeper("device", device_here(), SimpleQueue(), lambda *_: None, lambda _: None, fails, tmp_path)
    keeper.start()
    keeper.join()
    assert keeper.opened.is_set()


def test_a_worker_killed_whenever_it_starts_is_an_error(keeper: Keeper, no_delays: None) -> None:
    with pytest.raises(WorkerError, match=r"the builder worker cannot start: .*SIGKILL.*stored trials are kept"):
        start(keeper, kills=4)


def test_who_is_cancelled_waits_for_no_start(keeper: Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_START_DELAYS_S", (1e6,))
    wait = keeper._interrupted.wait

    def meanwhile(timeout: float | None = None) -> bool:
        keeper.cancel()
        return wait(timeout)

    monkeypatch.setattr(keeper._interrupted, "wait", meanwhile)
    with pytest.raises(Cancelled):
        start(keeper, kills=1)


def test_others_visit_finalists_where_the_worker_asks_for_that(keeper: Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    home, known = Onward((Visited(((5,),)),), doubted=True), (Visited(((5,), (6,))),)
    done = [Measurement((5, 6, 7), (), "warm")]
    answers, asked, visited = iter([home, done]), [], []

    def ask(message: Retime, limit_s: float) -> object:
        asked.append(message)
        return next(answers)

    def visit(request: Retime, found: Onward) -> tuple[Visited, ...]:
        visited.append((request, found))
        return known

    monkeypatch.setattr(keeper, "ask", ask)
    assert keeper.retime([plan("")], 5.0, 60.0, 1.0, visit) == done
    assert [one.visited for one in asked] == [(), known]
    ((request, found),) = visited
    assert found == home
    assert asked[1].budget_s < request.budget_s < 60.0


def test_a_worker_is_borrowed_while_it_has_nothing_to_do(tmp_path: Path) -> None:
    tasks, met = SimpleQueue[str | None](), list[bool]()

    def handle(keeper: Keeper, task: object) -> None:
        with keeper.borrowed() as idle:
            met.append(idle)

    keeper = Keeper("builder", device_here(), tasks, handle, lambda _: None, lambda _: None, tmp_path)
    with keeper.borrowed() as idle:
        assert not idle  # it has not started
    keeper.since = 1.0
    with keeper.borrowed() as idle, keeper.borrowed() as again:
        assert idle
        assert not again
    tasks.put("task")
    tasks.put(None)
    keeper.run()
    assert met == [False]
    with keeper.borrowed() as idle:
        assert idle


def test_what_goes_wrong_in_the_thread_is_told(tmp_path: Path) -> None:
    def handle(keeper: Keeper, task: object) -> None:
        raise ValueError("odd")

    told: list[AutotuneError] = []
    keeper = Keeper("device", device_here(), SimpleQueue(), handle, told.append, lambda _: None, tmp_path)
    keeper._tasks.put("task")
    keeper.run()
    assert [str(error) for error in told] == ["the thread of the device worker failed: ValueError: odd"]
    assert "in handle" in told[0].detail


def test_who_closes_is_not_told_what_fails_for_what_is_removed(tmp_path: Path) -> None:
    def handle(keeper: Keeper, task: object) -> None:
        keeper.close()
        raise FileNotFoundError("its folder")

    told: list[AutotuneError] = []
    keeper = Keeper("builder", device_here(), SimpleQueue(), handle, told.append, lambda _: None, tmp_path)
    keeper._tasks.put("task")
    keeper.run()
    assert told == []


def test_a_worker_whose_folder_has_gone_leaves_no_descriptors_open(tmp_path: Path) -> None:
    """Python warns of a socket that is left to it, and warnings are errors here."""
    with pytest.raises(SetupError, match="the builder worker cannot start: No such file or directory"):
        WorkerProcess("builder", tmp_path / "gone", {})


def test_a_worker_whose_log_is_removed_has_died(tmp_path: Path) -> None:
    worker = WorkerProcess("builder", tmp_path, {})
    worker._log.unlink()
    worker.stop()
    with pytest.raises(WorkerDied, match="SIGKILL"):
        list(iter(lambda: worker.receive(60.0), "never"))  # it may have begun


NO_LINKER = {"PATH": linker._OURS + os.pathsep, "AUTOTUNE_TCC": "/bin/false"}
"""The environment of a machine whose linker fails for every kernel."""


def kept(tmp_path: Path, role: str, *environments: dict[str, str]) -> Keeper:
    """Return a keeper whose workers get these environments one after the other; an empty one is a sound machine's."""
    left = iter({"POCL_CACHE_DIR": str(tmp_path), **one} if one else builds() for one in environments)

    def set_up(keeper: Keeper) -> None:
        keeper.start_worker(device_here(), lambda: SETUP, next(left))

    return Keeper(role, device_here(), SimpleQueue(), lambda *_: None, lambda _: None, set_up, tmp_path)


@contextmanager
def closing(keeper: Keeper) -> Iterator[Keeper]:
    try:
        yield keeper
    finally:
        keeper.close()
        keeper._drop()


def plan(body: str) -> Plan:
    out = Buffer("out", "int", (64,), (64,), "out")
    launch = Launch("some", (64,), (64,), ("out",))
    return Plan(f"kernel void some(global int *out) {{\n{body}\n}}", (), (launch,), {"out": out}, {"out": Tolerance()})


@pytest.mark.usefixtures("links")
def test_a_machine_that_runs_no_kernel_is_said_before_any_trial(tmp_path: Path, no_delays: None) -> None:
    with (
        closing(kept(tmp_path, "device", NO_LINKER)) as keeper,
        pytest.raises(SetupError, match=r"good fails on this machine: (the worker died while )?it"),
    ):
        keeper._set_up(keeper)


def test_a_folder_that_takes_no_files_is_the_machines_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_delays: None
) -> None:
    keeper = kept(tmp_path, "device", {})
    probe = keeper._probe

    def once_gone(worker: WorkerProcess) -> None:
        keeper._folder = tmp_path / "gone"
        probe(worker)

    monkeypatch.setattr(keeper, "_probe", once_gone)
    with closing(keeper), pytest.raises(SetupError, match=r"gone: No such file.* free some space or set TMPDIR"):
        keeper._set_up(keeper)


def test_who_takes_part_again_does_not_miss_that_it_ends(keeper: Keeper) -> None:
    keeper.cancel()
    keeper.resume()
    assert not keeper._interrupted.is_set()
    keeper.close()
    keeper.resume()
    assert keeper._interrupted.is_set()


LOST = "out[(long)(get_global_id(0) + 1) << 40] = 1;"
"""The process ends while it runs the kernel, which is a part of the build on PoCL, or right after it."""


@pytest.mark.usefixtures("links")
def test_a_build_that_is_lost_on_a_broken_machine_is_no_trial(tmp_path: Path, no_delays: None) -> None:
    lost = {**NO_LINKER, "AUTOTUNE_TCC": str(tmp_path / "tcc")}
    (tmp_path / "tcc").write_text("#!/bin/sh\nread -r _ _ _ worker _ < /proc/$PPID/stat\nkill -ABRT $worker\n")
    (tmp_path / "tcc").chmod(0o755)
    with (
        closing(kept(tmp_path, "builder", lost, lost)) as keeper,
        pytest.raises(SetupError, match="a kernel known to be good fails"),
    ):
        keeper.attempt(Job(plan("out[0] = 1;")), 60.0)


@pytest.mark.usefixtures("links")
def test_a_build_that_is_lost_on_a_sound_machine_is_a_crash(tmp_path: Path) -> None:
    with closing(kept(tmp_path, "builder", {}, {})) as keeper:
        assert keeper.attempt(Job(plan(LOST)), 60.0).outcome is Outcome.CRASH
        assert keeper.attempt(Job(plan("out[get_global_id(0)] = 1;")), 60.0).outcome is Outcome.OK


KILLED_TWICE = """#!/bin/sh
mkdir "{0}/once" 2>/dev/null && kill -9 $$
mkdir "{0}/twice" 2>/dev/null && kill -9 $$
exec {1} "$@"
"""


@pytest.mark.usefixtures("links")
def test_a_fault_that_passes_is_no_verdict_on_the_machine(tmp_path: Path, no_delays: None) -> None:
    (tmp_path / "tcc").write_text(KILLED_TWICE.format(tmp_path, linker._tcc()))
    (tmp_path / "tcc").chmod(0o755)
    ours = {"PATH": f"{linker._OURS}{os.pathsep}{os.environ['PATH']}", "AUTOTUNE_TCC": str(tmp_path / "tcc")}
    with closing(kept(tmp_path, "device", ours)) as keeper:
        keeper._set_up(keeper)
        assert (tmp_path / "twice").exists()
        assert keeper.attempt(Job(plan("out[get_global_id(0)] = 1;")), 60.0).outcome is Outcome.OK


@pytest.mark.parametrize("body", ["int 3;", "#error odd\n"])
def test_an_error_at_a_line_of_the_kernel_is_its_own(tmp_path: Path, body: str) -> None:
    with closing(kept(tmp_path, "builder", {})) as keeper:
        report = keeper.attempt(Job(plan(body)), 60.0)
        assert report.outcome is Outcome.COMPILE_ERROR
        assert not blame.may_be_the_machines(report), report.build_log


def test_an_error_at_a_line_as_nvidia_says_it() -> None:
    log = "scale.cl:35:9: error: use of undeclared identifier 'k'"
    assert not blame.may_be_the_machines(Report(Outcome.COMPILE_ERROR, build_log=log))


@pytest.mark.parametrize(
    "log", ["error: cannot write: disk full", "error: <built-in>:1:10: '/pocl/pocl_types.h' file not found"]
)
def test_an_error_at_no_line_may_be_the_machines(log: str) -> None:
    assert blame.may_be_the_machines(Report(Outcome.COMPILE_ERROR, build_log=log))


def test_every_signal_can_be_told() -> None:
    assert "(SIGSEGV)" in str(WorkerDied("start", 0, signal.SIGSEGV, ""))
    assert "(signal 40)" in str(WorkerDied("run", 0, 40, ""))


def test_what_a_kernel_may_have_done_is_told_with_the_signal_that_ended_it() -> None:
    outside, divides = "; if it accesses memory outside its buffers", "(SIGFPE); if it divides whole numbers by 0"
    assert outside in str(WorkerDied("run", 0, signal.SIGSEGV, ""))
    assert outside in str(WorkerDied("run", 0, signal.SIGABRT, "malloc(): corrupted top size"))
    assert divides in str(WorkerDied("launch", 0, signal.SIGFPE, ""))
    for phase, number, words in (("run", signal.SIGABRT, "shared data"), ("run", 9, ""), ("build", signal.SIGSEGV, "")):
        assert "; if" not in str(WorkerDied(phase, 0, number, words))


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("PLEASE submit a bug report to https://x and include the crash backtrace.\n", ""),
        ("too much local memory\n\nPLEASE submit a bug report to https://x.\n", "too much local memory"),
        ("first\n last \n", "last"),
        ("out of memory\n1 warning generated.\n12 warnings generated.\n", "out of memory"),
        ("", ""),
    ],
)
def test_a_worker_that_died_is_told_by_its_last_words(log: str, words: str) -> None:
    assert last_words(log) == words
