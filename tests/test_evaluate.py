"""The fault table on a real device (PoCL): any fault of a kernel costs one trial and never the search."""

from __future__ import annotations

import math
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune import tuner
from autotune.bench.messages import Setup
from autotune.bench.timing import Limits
from autotune.devices import load_backend, traits
from autotune.errors import SetupError, StudyError, WorkerError
from autotune.model import Configuration, DeviceInfo, Measurement, Outcome, Trial
from autotune.pool import DeviceEvaluator, Settings, Stopped, data, forkserver
from autotune.pool import evaluator as evaluator_module
from autotune.pool.data import Setups
from autotune.pool.forkserver import Forkserver, prepare
from autotune.pool.keeper import Keeper
from autotune.pool.lock import lock_devices
from autotune.pool.pause import Pause
from autotune.store import Store
from autotune.study import Problem, Study
from autotune.tuner import Budget, Request, loop
from tests.contracts.evaluator import EvaluatorContract
from tests.processes import deafen, has_ended
from tests.studies import study
from tests.waiting import WAIT_S

pytestmark = pytest.mark.device

STUDY = """
name = "faults"
kernel = "faults.cl"
[sizes]
N = 512
[parameters.VARIANT]
values = ["GOOD", "SYNTAX", "SEGFAULT", "ENDLESS", "AFTER", "BEFORE", "NANS", "WRONG", "UNWRITTEN", "LOCAL",
          "REQUIRED", "INPUT", "RACE", "INOUT", "OPTION"]
[[options]]
flag = "-no-such-option"
when = "VARIANT == 'OPTION'"
[arguments]
a = { type = "float", shape = ["N"], access = "in", data = { low = 1.0, high = 2.0 } }
c = { type = "float", shape = ["N"], allocate = ["N + 64"], access = "out" }
memory = { type = "int", shape = ["4"], access = "scratch" }
[arguments.d]
type = "int"
shape = ["N"]
access = "inout"
data = { distribution = "integers", low = 0, high = 100, seed = 2 }
[[launch]]
entry = "faults"
global = ["N"]
local = ["16"]
arguments = ["N", "a", "c", "d", "memory"]
[reference]
numpy = { c = "a * 2", d = "d + 1" }
[tolerance]
relative = 1e-5
"""

NAMES = STUDY.split("values = [")[1].split("]")[0].replace('"', "").replace("\n", "").replace(" ", "").split(",")

KERNEL = (
    "".join(f"#define {name} {number}\n" for number, name in enumerate(NAMES))
    + """
#if VARIANT == REQUIRED
__attribute__((reqd_work_group_size(8, 1, 1)))
#endif
kernel void faults(int n, global float *a, global float *c, global int *d, global int *memory) {
    int i = get_global_id(0);
    float value = a[i] * 2;
#if VARIANT == SYNTAX
    int 3;
#elif VARIANT == SEGFAULT
    c[(long)(i + 1) << 40] = 1;
#elif VARIANT == ENDLESS
    if (i == 0) while (((volatile global int *)memory)[2] != 12345) {  // on one core: the other is another test's
#ifdef __x86_64__
        long call = 34;  // pause(): it waits for a signal, and leaves this core to other tests as well
        __asm__ volatile("syscall" : "+a"(call) : : "rcx", "r11", "memory");
#endif
    }
#elif VARIANT == AFTER
    if (i == 0) c[n + 64] = 1;
#elif VARIANT == BEFORE
    if (i == 0) a[-1] = 1;
#elif VARIANT == NANS
    if (i == 5) value = NAN;
#elif VARIANT == WRONG
    if (i == 7) value = 3;
#elif VARIANT == UNWRITTEN
    if (i == 9) return;
#elif VARIANT == LOCAL
    local int big[1000000];
    big[i] = i;
    barrier(CLK_LOCAL_MEM_FENCE);
    memory[1] = big[i * 7 % 1000];
#elif VARIANT == INPUT
    if (i == 7) a[i] += 1;
#elif VARIANT == RACE
    if (i == 3 && memory[0] == 1) value = 0;
    if (i == 3) memory[0] = 1;
#endif
    c[i] = value;
    d[i] += 1;
}
"""
)

LIMITS = Limits(build_s=20.0, floor_s=2.0, first_s=5.0)
PATIENT = Limits()
"""Limits for tests without endless kernels: a busy machine has time."""


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory, device: DeviceInfo) -> Problem:
    folder = tmp_path_factory.mktemp("faults")
    (folder / "faults.toml").write_text(STUDY)
    (folder / "faults.cl").write_text(KERNEL)
    return Problem(Study.load(str(folder / "faults.toml")), device=device)


@pytest.fixture(scope="module")
def evaluator(
    problem: Problem, device: DeviceInfo, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DeviceEvaluator]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUTOTUNE_LOCKS", str(tmp_path_factory.mktemp("locks")))
        evaluator = DeviceEvaluator(problem, [device], Settings(limits=LIMITS, builders=0))
    with evaluator:
        assert run(evaluator, "GOOD").outcome is Outcome.OK
        yield evaluator


@pytest.fixture
def own_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A separate lock for each test, so that neither `evaluator` nor a search beside the tests delays it."""
    monkeypatch.setenv("AUTOTUNE_LOCKS", str(tmp_path))


@pytest.fixture(scope="module")
def prepared_process() -> Iterator[Forkserver]:
    server = Forkserver()
    yield server
    server.close()


@pytest.fixture
def shared(prepared_process: Forkserver, device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The workers are forks of one process, where a test is of what they do; that a search ends its own others tell.

    So they are gone with their keepers, whom nobody helps, where these are waited for.
    """

    class Kept:
        start = staticmethod(prepared_process.start)

        def close(self, *, wait: bool = True) -> None: ...

    monkeypatch.setattr(evaluator_module, "Forkserver", Kept)
    yield
    assert traits(device).ends_slowly or not prepared_process._server._alive


def run(evaluator: DeviceEvaluator, variant: str) -> Trial:
    evaluator.submit({"VARIANT": variant})
    return evaluator.collect()


@pytest.mark.parametrize(
    ("variant", "outcome", "reason"),
    [
        ("SYNTAX", Outcome.COMPILE_ERROR, "faults.cl:24:9: "),
        ("OPTION", Outcome.COMPILE_ERROR, "-no-such-option"),
        ("ENDLESS", Outcome.TIMEOUT, "ran the kernel for the first time; killed; memory holds any values before"),
        ("REQUIRED", Outcome.LAUNCH_ERROR, "faults requires a work-group of 8, the launch has 16"),
        pytest.param("SEGFAULT", Outcome.CRASH, "(SIGSEGV); if it accesses memory", marks=pytest.mark.processor),
        ("AFTER", Outcome.WRONG_RESULT, "kernel wrote outside buffer c (canary after its end: "),
        ("BEFORE", Outcome.WRONG_RESULT, "kernel wrote outside buffer a (canary before its start: "),
        ("WRONG", Outcome.WRONG_RESULT, "1 of 512 values of c are wrong; first c[7] = 3.0, expected"),
        ("NANS", Outcome.WRONG_RESULT, "1 of 512 values of c are wrong, 1 of them NaN; first c[5] = nan, expected"),
        ("UNWRITTEN", Outcome.WRONG_RESULT, "c[9] = -inf (as before the run; never written?), expected"),
        ("INPUT", Outcome.WRONG_RESULT, "kernel overwrote its input a, first a[7] = "),
        ("RACE", Outcome.WRONG_RESULT, "right at first, wrong after the timed runs: 1 of 512"),
    ],
)  # fmt: skip
def test_a_fault_is_an_outcome_and_the_next_trial_is_right(
    evaluator: DeviceEvaluator, variant: str, outcome: Outcome, reason: str
) -> None:
    trial = run(evaluator, variant)
    assert (trial.outcome, reason in trial.reason) == (outcome, True), trial.reason
    assert trial.measurement is None
    assert trial.configuration == {"VARIANT": variant}
    assert run(evaluator, "INOUT").outcome in (Outcome.OK, Outcome.STOPPED)


def test_more_local_memory_than_there_is_is_said(evaluator: DeviceEvaluator) -> None:
    trial = run(evaluator, "LOCAL")
    assert trial.outcome in (Outcome.LAUNCH_ERROR, Outcome.CRASH)  # PoCL 5 and 6 end the process as they say so
    assert re.search("local memory|shared data", trial.reason)


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("statement", ["raise SystemExit(3)", "raise ValueError(3)"])
def test_a_python_reference_that_ends_is_said(
    own_lock: None, tmp_path: Path, device: DeviceInfo, statement: str
) -> None:
    (tmp_path / "faults.toml").write_text(STUDY.replace('numpy = { c = "a * 2", d = "d + 1" }', 'python = "ref.py:f"'))
    (tmp_path / "faults.cl").write_text(KERNEL)
    (tmp_path / "ref.py").write_text(f"def f(**_):\n    {statement}\n")
    problem = Problem(Study.load(str(tmp_path / "faults.toml")), device=device)
    with (
        DeviceEvaluator(problem, [device], Settings(limits=LIMITS, allow_python=True)) as evaluator,
        pytest.raises(StudyError, match=r"the (reference|function) failed: \w+: 3"),
    ):
        run(evaluator, "GOOD")


class TestDeviceEvaluator(EvaluatorContract):
    @pytest.fixture
    def passing(self) -> list[Configuration]:
        return [{"VARIANT": "GOOD"}, {"VARIANT": "INOUT"}]

    @pytest.fixture
    def failing(self) -> Configuration:
        return {"VARIANT": "WRONG"}


def test_a_good_trial_says_what_is_known(evaluator: DeviceEvaluator, device: DeviceInfo) -> None:
    evaluator.best_ns = None
    trial = run(evaluator, "GOOD")
    assert trial.outcome is Outcome.OK
    assert trial.measurement is not None
    assert trial.measurement.samples_ns
    assert trial.max_error is not None
    assert trial.max_error <= 1
    assert trial.driver == device.driver
    assert trial.build_s > 0
    assert trial.verify_s > 0
    assert trial.time_s > 0
    assert trial.started is not None
    assert trial.finished is not None
    assert trial.started < trial.finished
    assert evaluator.best_ns == trial.bounding_ns
    assert trial.made is not None
    assert "-DVARIANT=GOOD" in trial.made["options"]
    assert trial.made["launches"]


def test_a_wait_without_end_is_one(evaluator: DeviceEvaluator) -> None:
    evaluator.submit({"VARIANT": "GOOD"})
    assert evaluator.collect(math.inf).outcome in (Outcome.OK, Outcome.STOPPED)
    with pytest.raises(TimeoutError):
        evaluator.collect(0.0)


def test_a_configuration_that_is_not_valid_is_a_launch_error(evaluator: DeviceEvaluator) -> None:
    assert run(evaluator, "NO_SUCH").outcome is Outcome.LAUNCH_ERROR


@pytest.mark.parametrize(
    ("variant", "outcome", "reason"),
    [
        pytest.param("SEGFAULT", Outcome.CRASH, "SIGSEGV", marks=pytest.mark.processor),
        ("RACE", Outcome.WRONG_RESULT, "right at first, wrong when timed again: 1 of 512"),
    ],
)
def test_finalists_are_timed_again_and_one_that_fails_is_a_failed_trial(
    evaluator: DeviceEvaluator, variant: str, outcome: Outcome, reason: str
) -> None:
    variants = [{"VARIANT": "GOOD"}, {"VARIANT": variant}, {"VARIANT": "INOUT"}]
    good, broken, other = evaluator.retime(variants, budget_s=0.1)
    assert isinstance(broken, Trial)
    assert (broken.configuration, broken.outcome) == (variants[1], outcome)
    assert reason in broken.reason
    assert isinstance(good, Measurement)
    assert isinstance(other, Measurement)
    assert len(good.samples_ns) == len(other.samples_ns) >= 3


def test_a_worker_killed_among_the_finalists_is_forgiven_once(evaluator: DeviceEvaluator) -> None:
    def kill() -> None:
        os.kill(worker_of(evaluator, "time"), signal.SIGKILL)

    threading.Thread(target=kill).start()
    answers = evaluator.retime([{"VARIANT": "GOOD"}, {"VARIANT": "INOUT"}], budget_s=1.0)
    assert all(isinstance(answer, Measurement) for answer in answers), answers


@pytest.mark.usefixtures("shared")
def test_who_waits_for_the_finalists_can_stop(problem: Problem, device: DeviceInfo, own_lock: None) -> None:
    stop = threading.Event()
    with DeviceEvaluator(problem, [device], Settings(limits=LIMITS, builders=0)) as evaluator:

        def end() -> None:
            worker_of(evaluator, "time")
            stop.set()

        threading.Thread(target=end).start()
        with pytest.raises(Stopped):
            evaluator.retime([{"VARIANT": "GOOD"}, {"VARIANT": "INOUT"}], 3600.0, stop)


def test_usage_adds_up_to_the_wall_time_of_the_device(evaluator: DeviceEvaluator) -> None:
    usage = evaluator.usage()
    assert set(usage) == {"build", "verify", "time", "finalists", "idle", "built_ahead", "device"}
    assert usage["build"] > 0
    assert usage["built_ahead"] == 0
    assert 0 < usage["device"] < usage["verify"] + usage["time"]


def test_idle_time_is_counted_once_where_workers_are_replaced(evaluator: DeviceEvaluator) -> None:
    def counted() -> float:
        usage = evaluator.usage()
        return sum(usage[step] for step in ("build", "verify", "time", "finalists", "idle"))

    run(evaluator, "SEGFAULT")
    run(evaluator, "SEGFAULT")
    run(evaluator, "GOOD")
    (since,) = (keeper.since for keeper in evaluator._runners)
    assert since is not None
    assert counted() <= time.monotonic() - since


def test_the_time_of_finalists_is_not_idle(evaluator: DeviceEvaluator) -> None:
    before, began = evaluator.usage(), time.monotonic()
    evaluator.retime([{"VARIANT": "GOOD"}, {"VARIANT": "INOUT"}], 0.05)
    wall_s, after = time.monotonic() - began, evaluator.usage()
    spent_s = {step: after[step] - before[step] for step in ("finalists", "idle")}
    assert 0 < spent_s["finalists"] <= wall_s
    assert spent_s["idle"] <= time.monotonic() - began - spent_s["finalists"]


def worker_of(evaluator: DeviceEvaluator, phase: str) -> int:
    """Return the process id of the device worker, once it is in this phase."""
    while True:
        worker = evaluator._runners[0]._worker
        if worker is not None and worker.phase == phase:
            return worker.pid
        time.sleep(0.001)  # to turn round and round would take the core that the worker needs


def test_a_killed_worker_gets_its_trial_again_and_the_second_time_it_is_a_crash(evaluator: DeviceEvaluator) -> None:
    evaluator.submit({"VARIANT": "ENDLESS"})
    first = worker_of(evaluator, "run")
    os.kill(first, signal.SIGKILL)
    second = first
    while second == first:
        second = worker_of(evaluator, "run")
        time.sleep(0.001)
    os.kill(second, signal.SIGKILL)
    trial = evaluator.collect()
    assert trial.outcome is Outcome.CRASH
    assert "SIGKILL" in trial.reason


@pytest.mark.usefixtures("shared")
def test_a_reference_that_fails_is_raised_by_collect(
    problem: Problem, device: DeviceInfo, tmp_path: Path, own_lock: None
) -> None:
    (tmp_path / "bad.toml").write_text(STUDY.replace("a * 2", "a[:3]"))
    (tmp_path / "faults.cl").write_text(KERNEL)
    broken = Problem(Study.load(str(tmp_path / "bad.toml")), device=device)
    with DeviceEvaluator(broken, [device]) as evaluator, pytest.raises(StudyError, match=r"has shape \(3,\)"):
        run(evaluator, "GOOD")


def test_closing_while_the_reference_is_computed_is_quiet(device: DeviceInfo, own_lock: None) -> None:
    closed = threading.Event()

    def fails(**_: object) -> object:
        closed.wait()
        raise ValueError("too late")

    with DeviceEvaluator(Problem(study(reference=fails), device=device), [device]):
        (computing,) = (thread for thread in threading.enumerate() if thread.name == "autotune-data")
    closed.set()
    computing.join()  # pytest makes an error of what is raised in a thread


@pytest.mark.processor
@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize(("first", "built_ahead"), [("GOOD", False), ("INOUT", True)])
def test_the_default_is_built_by_the_device_s_worker_where_it_comes_first(
    problem: Problem, device: DeviceInfo, own_lock: None, first: str, built_ahead: bool
) -> None:
    assert problem.default["VARIANT"] == "GOOD"
    with DeviceEvaluator(problem, [device], Settings(limits=LIMITS, builders=1)) as evaluator:
        run(evaluator, first)
        assert (evaluator.usage()["built_ahead"] > 0) == built_ahead
        run(evaluator, "GOOD")
        assert evaluator.usage()["built_ahead"] > 0


@pytest.mark.usefixtures("shared")
def test_what_a_builder_cannot_do_is_lost_to_nobody(
    problem: Problem, device: DeviceInfo, own_lock: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt, failed = DeviceEvaluator._attempt_build, list[bool]()

    def fails_once(self: DeviceEvaluator, keeper: Keeper, task: Any) -> Any:
        if not failed:
            failed.append(True)
            raise OSError("too many open files")
        return attempt(self, keeper, task)

    monkeypatch.setattr(DeviceEvaluator, "_attempt_build", fails_once)
    with DeviceEvaluator(problem, [device], Settings(limits=LIMITS, builders=2)) as evaluator:
        for _ in range(2):  # the first of all is none of theirs; the other may be stopped for being slower
            assert not run(evaluator, "GOOD").outcome.failed
    assert failed


def test_a_search_that_cannot_begin_leaves_the_device_to_others(
    problem: Problem, device: DeviceInfo, own_lock: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full() -> None:
        raise SetupError("no folder can be made there")

    stop = threading.Event()
    stop.set()  # who waits for a device is told so
    monkeypatch.setattr(evaluator_module, "RunFolder", full)
    with pytest.raises(SetupError):
        DeviceEvaluator(problem, [device])
    for lock in lock_devices([device], stop):
        lock.release()


def test_close_leaves_no_process_and_no_file(problem: Problem, device: DeviceInfo, own_lock: None) -> None:
    with DeviceEvaluator(problem, [device], Settings(limits=LIMITS, builders=0)) as evaluator:
        evaluator.submit({"VARIANT": "ENDLESS"})
        process = worker_of(evaluator, "run")
        folder = evaluator._folder.path
        assert folder.exists()
    assert not folder.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_close_waits_for_no_worker_that_does_not_come(
    problem: Problem, device: DeviceInfo, own_lock: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = prepare()
    while server is None or server._process is None:
        os.sched_yield()
    server._process.send_signal(signal.SIGSTOP)
    woken = deafen(server._process, monkeypatch)
    monkeypatch.setattr(forkserver, "_HEED_S", 0.01)
    with DeviceEvaluator(problem, [device], Settings(limits=LIMITS, builders=0)):
        woken.wait()  # for a worker: it stays stopped


SEARCH = """
import sys
import time
from autotune.pool import Settings
from autotune.devices import find_device
from autotune.pool import DeviceEvaluator
from autotune.study import Problem
from autotune.study import Study
device = find_device(None)
evaluator = DeviceEvaluator(Problem(Study.load(sys.argv[1]), device=device), [device], Settings(builders=0))
evaluator.submit({"VARIANT": "ENDLESS"})
while (worker := evaluator._runners[0]._worker) is None or worker.phase != "run":
    time.sleep(0.001)
print(worker.pid, flush=True)
evaluator.collect()
"""


def test_a_killed_search_takes_its_endless_kernel_along(problem: Problem, own_lock: None) -> None:
    command = [sys.executable, "-c", SEARCH, str(problem.study.text.path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as search:
        assert search.stdout is not None
        worker = int(search.stdout.readline())
        descriptor = os.pidfd_open(worker)
        search.kill()
    assert select.select([descriptor], [], [], 2.0)[0], "the worker outlived its search by two seconds"
    os.close(descriptor)


def test_what_is_withdrawn_before_it_began_is_not_collected(evaluator: DeviceEvaluator) -> None:
    evaluator.submit({"VARIANT": "ENDLESS"})
    worker_of(evaluator, "run")
    evaluator.submit({"VARIANT": "WRONG"})
    evaluator.submit({"VARIANT": "NANS"})
    withdrawn = evaluator.withdraw()
    assert sorted(str(one["VARIANT"]) for one in withdrawn) == ["NANS", "WRONG"]
    assert evaluator.withdraw() == []
    assert evaluator.collect().configuration == {"VARIANT": "ENDLESS"}
    assert run(evaluator, "GOOD").configuration == {"VARIANT": "GOOD"}


@pytest.mark.usefixtures("shared")
def test_what_a_device_still_builds_is_withdrawn_when_asked_for(
    device: DeviceInfo, tmp_path: Path, own_lock: None
) -> None:
    (tmp_path / "faults.toml").write_text(STUDY)
    eightfold = "".join(f"#define A{n + 1}(x) {f'A{n}(x) ' * 8}\n" for n in range(1, 9))
    bomb = f"#define A1(x) x\n{eightfold}\n#if VARIANT == WRONG\nvoid bomb(int k) {{ A9(k++;) }}\n#endif\n"
    (tmp_path / "faults.cl").write_text(f"#define WRONG {NAMES.index('WRONG')}\n{bomb}{KERNEL}")
    problem = Problem(Study.load(str(tmp_path / "faults.toml")), device=device)
    with DeviceEvaluator(problem, [device], Settings(limits=LIMITS, builders=0)) as evaluator:
        evaluator.submit({"VARIANT": "WRONG"})
        process = worker_of(evaluator, "build")
        assert evaluator.withdraw() == []
        assert evaluator.withdraw(building=True) == [{"VARIANT": "WRONG"}]
        assert run(evaluator, "GOOD").configuration == {"VARIANT": "GOOD"}
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)
        evaluator.submit({"VARIANT": "ENDLESS"})
        worker_of(evaluator, "run")
        assert evaluator.withdraw(building=True) == []
        assert evaluator.collect().outcome is Outcome.TIMEOUT


@pytest.mark.usefixtures("shared")
def test_builders_drop_what_is_withdrawn(problem: Problem, device: DeviceInfo, own_lock: None) -> None:
    with DeviceEvaluator(problem, [device], Settings(limits=LIMITS, builders=2)) as evaluator:
        for variant in ("SYNTAX", "WRONG", "NANS", "SEGFAULT"):
            evaluator.submit({"VARIANT": variant})
        assert len(evaluator.withdraw()) == 4
        assert run(evaluator, "GOOD").configuration == {"VARIANT": "GOOD"}


@pytest.mark.processor
@pytest.mark.usefixtures("shared")
def test_builders_work_ahead_and_their_failures_never_reach_the_device(
    problem: Problem, device: DeviceInfo, own_lock: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold, held = Pause._hold, list[int]()

    def noted(pause: Pause, change: int) -> None:
        held.append(change)
        hold(pause, change)

    monkeypatch.setattr(Pause, "_hold", noted)
    wanted = {
        "GOOD": Outcome.OK,
        "SYNTAX": Outcome.COMPILE_ERROR,
        "REQUIRED": Outcome.LAUNCH_ERROR,
        "WRONG": Outcome.WRONG_RESULT,
        "SEGFAULT": Outcome.CRASH,
    }
    with DeviceEvaluator(problem, [device], Settings(limits=PATIENT, builders=2)) as evaluator:
        assert evaluator.capacity == 4
        for variant in wanted:
            evaluator.submit({"VARIANT": variant})
        trials = [evaluator.collect() for _ in wanted]
        usage = evaluator.usage()
    assert {trial.configuration["VARIANT"]: trial.outcome for trial in trials} == wanted
    assert held == [1, -1] * 3, "builders are halted for each trial whose kernel runs"
    assert usage["built_ahead"] > 0
    assert all(trial.build_s > 0 for trial in trials if trial.outcome is not Outcome.CRASH)


@pytest.mark.processor
@pytest.mark.usefixtures("shared")
def test_trials_are_spread_over_several_devices(problem: Problem, device: DeviceInfo, own_lock: None) -> None:
    with DeviceEvaluator(problem, [device, device], Settings(limits=LIMITS, builders=0)) as evaluator:
        assert evaluator.capacity == 2
        assert run(evaluator, "GOOD").outcome is Outcome.OK
        evaluator.submit({"VARIANT": "ENDLESS"})
        evaluator.submit({"VARIANT": "INOUT"})
        assert evaluator.collect().configuration == {"VARIANT": "INOUT"}


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("at", ["start", "trial"])
def test_one_device_lost_leaves_the_search_to_the_others(
    problem: Problem, device: DeviceInfo, own_lock: None, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    lost: list[Keeper] = []

    def once_it_fails(method: Callable[..., Any]) -> Callable[..., Any]:
        def called(first: Any, *rest: Any, **options: Any) -> Any:
            keeper = rest[0] if at == "start" else first
            if not lost or keeper in lost:
                lost.append(keeper)
                raise WorkerError("the device worker cannot start")
            return method(first, *rest, **options)

        return called

    where, name = (Setups, "start_runner") if at == "start" else (Keeper, "attempt")
    monkeypatch.setattr(where, name, once_it_fails(getattr(where, name)))
    with DeviceEvaluator(problem, [device, device], Settings(limits=LIMITS, builders=0)) as evaluator:
        for variant in ("GOOD", "INOUT", "WRONG"):
            evaluator.submit({"VARIANT": variant})
        assert {evaluator.collect().configuration["VARIANT"] for _ in range(3)} == {"GOOD", "INOUT", "WRONG"}
    lost.clear()
    with DeviceEvaluator(problem, [device], Settings(limits=LIMITS, builders=0)) as evaluator:
        evaluator.submit({"VARIANT": "GOOD"})
        with pytest.raises(WorkerError, match="cannot start"):
            evaluator.collect()


@pytest.fixture
def queued(
    problem: Problem, device: DeviceInfo, own_lock: None, shared: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., list[Trial]]]:
    """Submit variants before the device begins with the first; return the trials in the order of their ends."""
    compute, submitted = data.compute, threading.Event()

    def once_all_wait(*given: Any, **options: Any) -> Setup:
        submitted.wait()
        return compute(*given, **options)

    monkeypatch.setattr(data, "compute", once_all_wait)
    limits = replace(LIMITS, floor_s=1.0, first_s=2.0)
    with DeviceEvaluator(problem, [device], Settings(limits=limits, builders=0)) as evaluator:

        def run_all(*variants: str, best_ns: float | None = None) -> list[Trial]:
            for variant in variants:
                evaluator.submit({"VARIANT": variant})
            evaluator.best_ns = best_ns
            submitted.set()
            trials = [evaluator.collect() for _ in variants]
            assert {trial.configuration["VARIANT"] for trial in trials} == set(variants)
            assert evaluator.usage()["verify"] == pytest.approx(sum(trial.verify_s for trial in trials))
            return trials

        yield run_all


def test_a_long_run_makes_way_for_what_is_ready_and_a_fast_one_settles_it(queued: Callable[..., list[Trial]]) -> None:
    _, good, endless = queued("SYNTAX", "ENDLESS", "GOOD")
    assert (good.configuration["VARIANT"], good.outcome) == ("GOOD", Outcome.OK)
    assert endless.outcome is Outcome.TIMEOUT
    assert "no answer within 2 s" not in endless.reason
    assert endless.verify_s >= 1


def test_what_made_way_has_its_time_once_nothing_else_is_ready(queued: Callable[..., list[Trial]]) -> None:
    _, wrong, endless = queued("SYNTAX", "ENDLESS", "WRONG")
    assert wrong.outcome is Outcome.WRONG_RESULT
    assert "no answer within 2 s" in endless.reason
    assert endless.verify_s >= 1 + 2


@pytest.mark.parametrize("best_ns", [None, 1000.0])
def test_the_first_configuration_has_its_time(queued: Callable[..., list[Trial]], best_ns: float | None) -> None:
    endless, good = queued("ENDLESS", "GOOD", best_ns=best_ns)
    assert "no answer within 2 s" in endless.reason
    assert good.outcome in (Outcome.OK, Outcome.STOPPED)


def test_the_default_is_timed_to_the_end_whatever_is_faster(evaluator: DeviceEvaluator, problem: Problem) -> None:
    assert problem.default == {"VARIANT": "GOOD"}
    for variant, outcome in (("GOOD", Outcome.OK), ("INOUT", Outcome.STOPPED)):
        evaluator.best_ns = 1.0
        assert run(evaluator, variant).outcome is outcome


FLAKY = """
kernel void flaky(global uint *seen, global int *out) {
    int i = get_global_id(0);
    uint work = i + 1;  /* the sound one is the slowest by far: no compiler makes one step of these */
    for (int n = 0; n < (EVERY ? 500 : 8000); n++) { work ^= work << 13; work ^= work >> 17; work ^= work << 5; }
    uint draw = seen[i]++ * 2654435761u >> 16;  /* in no step with the runs that are verified */
    out[i] = EVERY && draw % EVERY == 0 ? -1 : i + (work == 0);  /* which it never is */
}
"""


@pytest.mark.usefixtures("shared")
def test_a_kernel_that_is_wrong_now_and_then_is_never_named(
    device: DeviceInfo, store: Store, own_lock: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "RETIME_S", 24.0)  # time for 300 runs, however busy the machine
    flaky = Problem(
        study(
            source=FLAKY,
            sizes={"N": 16},
            choices={},
            parameters={"EVERY": {"values": [0, 10, 30]}},
            constraints=[],
            defines={},
            options=[],
            arguments={
                "seen": {"type": "uint", "shape": ["N"], "access": "scratch"},
                "out": {"type": "int", "shape": ["N"], "access": "out"},
            },
            launch=[{"entry": "flaky", "global": ["N"], "local": ["N"], "arguments": ["seen", "out"]}],
            reference={"numpy": {"out": "arange(N)"}},
            work={},
            size_lists={},
        ),
        device=device,
    )
    with DeviceEvaluator(flaky, [device], Settings(limits=LIMITS, builders=0)) as evaluator:
        request = Request(flaky, database=store.where, sampler="grid", seed=1, budget=Budget(trials=3))
        result = tuner.run(request, evaluator=evaluator)
    assert result.failures[Outcome.WRONG_RESULT] in (1, 2)  # one that is not the fastest need not be proven
    assert result.best is not None
    assert result.best.configuration == {"EVERY": 0}
    assert result.best.verified_runs >= 300
    (stored,) = [trial for trial in store.trials(flaky.key) if trial.outcome is Outcome.OK and trial.retimed]
    assert stored.verified_runs == result.best.verified_runs


def test_builders_that_end_slowly_are_not_waited_for(
    problem: Problem, device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, own_lock: None
) -> None:
    slow = replace(traits(device), ends_slowly=True)
    monkeypatch.setattr(load_backend(device.backend), "traits", lambda info: slow)
    monkeypatch.setattr(Keeper, "join", lambda keeper, timeout=None: joined.append(keeper.role))
    joined: list[str] = []
    with DeviceEvaluator(problem, [device], Settings(builders=2)) as evaluator:
        builders = list(evaluator._builders.begun)
        for keeper in builders:
            keeper.started.wait()
        pids = [keeper._worker.pid for keeper in builders if keeper._worker is not None]
    assert set(joined) == {"device"}
    assert pids
    assert all(has_ended(pid) for pid in pids)


GATHER = """
name = "gather"
kernel = "gather.cl"
[sizes]
N = 1024
[parameters.WPT]
values = [1, 2]
default = 1
[arguments]
index = { type = "int", shape = ["N"], access = "in", data = { distribution = "integers", low = 0, high = 1023 } }
x = { type = "float", shape = ["N"], access = "in", data = { distribution = "uniform", low = 1, high = 2, seed = 2 } }
y = { type = "float", shape = ["N"], access = "out" }
[[launch]]
entry = "gather"
global = ["N / WPT"]
arguments = ["x", "index", "y"]
[reference]
numpy = { y = "x[index]" }
[tolerance]
relative = 1e-6
"""


@pytest.mark.usefixtures("shared")
def test_pointers_that_changed_places_are_told_where_the_kernel_dies_of_them(
    tmp_path: Path, device: DeviceInfo, own_lock: None
) -> None:
    (tmp_path / "gather.toml").write_text(GATHER)
    (tmp_path / "gather.cl").write_text(
        "kernel void gather(global const int *index, global const float *x, global float *y) {\n"
        "    for (int k = 0, i = get_global_id(0) * WPT; k < WPT; ++k, ++i) y[i] = x[(long)index[i] << 20];\n}\n"
    )
    problem = Problem(Study.load(str(tmp_path / "gather.toml")), device=device)
    with DeviceEvaluator(problem, [device], Settings(builders=0)) as evaluator:
        evaluator.submit(problem.default)
        trial = evaluator.collect(WAIT_S)
    assert trial.outcome is Outcome.CRASH
    assert "gather takes x as `global const int *`, in the study it is float" in trial.reason


def test_a_prepared_process_whose_thread_never_runs_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if it died while Python sets it up: a request for a worker would wait for ever."""
    monkeypatch.setattr(forkserver, "_HEED_S", 0.0)
    monkeypatch.setattr(forkserver._Server, "run", lambda self: None)
    server = forkserver._Server()
    with pytest.raises(ConnectionResetError), Path(os.devnull).open("w") as log:
        server.fork("builder", log.fileno(), log.fileno(), {})
    assert server.lost.is_set()
    server.end()
