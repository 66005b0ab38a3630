"""Each backend fulfils the contract; one that is installed beside this package runs whole searches unchanged."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from typer.testing import CliRunner

from autotune import devices, tuner
from autotune.bench.timing import Limits
from autotune.cli import app
from autotune.devices import diagnose as diagnosis
from autotune.devices import find_device, list_devices, load_backend, select
from autotune.errors import SetupError
from autotune.model import DeviceInfo, Outcome
from autotune.pool import DeviceEvaluator, Settings
from autotune.pool.data import Setups
from autotune.pool.keeper import Keeper
from autotune.store import Store
from autotune.study import Problem, Study
from autotune.tuner import Budget, Request
from tests import numpy_backend
from tests.contracts.backend import BackendContract
from tests.devices import device_here


def installed(folder: Path, name: str, value: str) -> Path:
    """A folder that looks like an installed package with its own backend."""
    made = folder / f"{name}_backend-1.0.dist-info"
    made.mkdir()
    (made / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}-backend\nVersion: 1.0\n")
    (made / "entry_points.txt").write_text(f"[autotune.backends]\n{name} = {value}\n")
    return folder


@pytest.fixture(scope="module")
def numpy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeviceInfo]:
    """The NumPy device, for this process and for workers."""
    folder = installed(tmp_path_factory.mktemp("installed"), "numpy", "tests.numpy_backend:BACKEND")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        patch.setenv("PYTHONPATH", str(folder))
        yield find_device("numpy:0")


def test_a_backend_is_written_with_what_type_checkers_let_others_import() -> None:
    text = Path(numpy_backend.__file__).read_text()
    (imported,) = re.findall(r"^from autotune\.devices import (.*)$", text, re.MULTILINE)
    used = {*imported.split(", "), *re.findall(r"\bdevices\.([A-Z]\w+)", text)}
    assert {"Backend", "Session", "Traits"} <= used <= set(devices.__all__)


def test_what_is_installed_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Mock(return_value=())
    monkeypatch.setattr(select, "entry_points", asked)
    monkeypatch.syspath_prepend(str(tmp_path))  # nobody has looked there
    for _ in range(2):
        list_devices()
    assert asked.call_count == 1


@pytest.mark.device
class TestOpenCL(BackendContract):
    BACKEND = "opencl"
    COPY = """kernel void copy(int n, global const int *source, global int *target) {
        for (int i = 0; i < n; ++i) target[i] = i < 100 ? source[i] : 0;
    }"""
    ADD = "kernel void add(global const int *a, global int *total) { total[0] += a[0] + STEP; }"
    MARK = """kernel void mark(global int *target) {
        int x = get_global_id(0), y = get_global_id(1), at = x - get_global_offset(0) + 8 * (y - get_global_offset(1));
        target[at] = x + 100 * y + 10000 * (int)get_local_size(0);
    }"""
    BROKEN = "kernel void broken( {"

    @pytest.fixture
    def device(self) -> DeviceInfo:
        return device_here()


class TestNumPy(BackendContract):
    BACKEND = "numpy"
    COPY = """
def copy(n, source, target):
    whole = target.base.view(np.int32)  # with what lies around it, as a kernel in C could write
    start = (target.ctypes.data - target.base.ctypes.data) // 4
    whole[start : start + n] = np.resize(source.view(np.int32), n)
"""
    ADD = """
def add(a, total):
    total.view(np.int32)[0] += a.view(np.int32)[0] + STEP
"""
    MARK = """
def mark(target):
    (width, height), (wide, _), offset = geometry()
    x, y = offset or (0, 0)
    marks = x + np.arange(width) + 100 * (y + np.arange(height)[:, None]) + 10000 * wide
    target.view(np.int32).reshape(height, width)[:] = marks
"""
    BROKEN = "def broken(:"

    @pytest.fixture
    def device(self, numpy: DeviceInfo) -> DeviceInfo:
        return numpy


def test_each_backend_of_this_package_keeps_the_contract() -> None:
    kept = {one.BACKEND for one in BackendContract.__subclasses__()}
    assert not select.BACKENDS.keys() - kept, "each has a class here, as TestNumPy is one"


def test_the_best_device_runs_what_most_kernels_are_written_in(numpy: DeviceInfo) -> None:
    assert numpy in list_devices()
    assert find_device(None).backend == "opencl"


STUDY = """
name = "doubles"
kernel = "doubles.py"
[sizes]
N = 64
[parameters]
VARIANT.values = ["GOOD", "WRONG", "INPUT", "SYNTAX", "RAISES", "ABORT", "ENDLESS"]
[arguments]
a = { type = "float", shape = ["N"], access = "in" }
c = { type = "float", shape = ["N"], allocate = ["N + 8"], access = "out" }
d = { type = "int", shape = ["N"], access = "inout" }
[[launch]]
entry = "doubles"
global = ["N"]
local = ["16"]
arguments = ["N", "a", "c", "d"]
[reference]
numpy = { c = "a * 2", d = "d + 1" }
"""

KERNEL = """
import os, time
if VARIANT == "SYNTAX":
    raise SyntaxError("this is no kernel")
def doubles(n, a, c, d):
    if VARIANT == "RAISES":
        raise ValueError("not this one")
    if VARIANT == "ABORT":
        os.abort()
    while VARIANT == "ENDLESS":
        time.sleep(1)  # it leaves its core to other tests
    a, c, d = a.view(np.float32), c.view(np.float32), d.view(np.int32)
    c[:n] = 2 * a
    d += 1
    if VARIANT == "WRONG":
        c[5] = 0
    if VARIANT == "INPUT":
        a[5] += 1
"""

OUTCOMES = {
    "GOOD": (Outcome.OK, ""),
    "WRONG": (Outcome.WRONG_RESULT, "1 of 64 values of c are wrong; first c[5] = 0.0, expected "),
    "INPUT": (Outcome.WRONG_RESULT, "kernel overwrote its input a, first a[5] = "),
    "SYNTAX": (Outcome.COMPILE_ERROR, "this is no kernel"),
    "RAISES": (Outcome.LAUNCH_ERROR, "the kernel failed: not this one"),
    "ABORT": (Outcome.CRASH, "SIGABRT"),
    "ENDLESS": (Outcome.TIMEOUT, "no answer within 1 s while the worker ran the kernel for the first time; killed"),
}


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory, numpy: DeviceInfo) -> Problem:
    folder = tmp_path_factory.mktemp("doubles")
    (folder / "doubles.toml").write_text(STUDY)
    (folder / "doubles.py").write_text(KERNEL)
    return Problem(Study.load(str(folder / "doubles.toml")), device=numpy)


@pytest.mark.slow
@pytest.mark.parametrize("builders", [None, 1])
def test_a_whole_search_runs_on_another_backend(problem: Problem, tmp_path: Path, builders: int | None) -> None:
    settings = Settings(limits=Limits(build_s=20.0, floor_s=1.0, first_s=1.0), builders=builders)
    with (
        Store.open(str(tmp_path / "a.db")) as store,
        DeviceEvaluator(problem, [problem.device], settings) as evaluator,
    ):
        budget = Budget(trials=len(OUTCOMES))
        request = Request(problem, database=store.where, sampler="random", seed=1, budget=budget)
        tuner.run(request, evaluator=evaluator)
        trials = store.trials(problem.key)
    assert sorted(str(trial.configuration["VARIANT"]) for trial in trials) == sorted(OUTCOMES)
    for trial in trials:
        outcome, reason = OUTCOMES[str(trial.configuration["VARIANT"])]
        assert trial.outcome is outcome, trial.reason
        assert reason in trial.reason


@pytest.mark.slow
def test_the_first_builder_begins_beside_the_device(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, start_builder, start_runner = threading.Event(), Setups.start_builder, Setups.start_runner

    def builder(setups: Setups, keeper: Keeper, device: DeviceInfo) -> None:
        begun.set()
        start_builder(setups, keeper, device)

    def runner(setups: Setups, keeper: Keeper, device: DeviceInfo) -> None:
        assert begun.wait(60)
        start_runner(setups, keeper, device)

    traits = replace(load_backend(problem.device.backend).traits(problem.device), shares_cores=False)
    monkeypatch.setattr("autotune.pool.evaluator.traits", lambda info: traits)
    monkeypatch.setattr(Setups, "start_builder", builder)
    monkeypatch.setattr(Setups, "start_runner", runner)
    with DeviceEvaluator(problem, [problem.device], Settings(builders=1)) as evaluator:
        evaluator.submit(problem.default)
        assert evaluator.collect().outcome is Outcome.OK


@pytest.mark.slow
def test_a_search_warns_where_its_best_was_timed_on_a_throttled_device(
    problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMPY_THROTTLED", "hw_slowdown")
    typed = f"search {problem.study.path} -d numpy:0 --fix VARIANT=GOOD --trials 1 --db {tmp_path / 'a.db'} --json"
    done = CliRunner().invoke(app, typed.split())
    assert done.exit_code == 0, done.stderr
    (warning,) = [line for line in done.stderr.splitlines() if line.startswith("warning:")]
    assert warning.startswith("warning: the best was timed while the device was throttled (hw_slowdown): ")
    assert json.loads(done.stdout)["best"]["throttled"] == "hw_slowdown"
    with Store.open(str(tmp_path / "a.db")) as store:
        (trial,) = store.trials(problem.key)
    told = {name: trial.environment[name] for name in ("clock_mhz", "power_w", "throttled")}
    assert told == {"clock_mhz": 500, "power_w": 12.5, "throttled": "hw_slowdown"}
    assert trial.retimed is not None


@pytest.mark.slow
def test_a_search_of_several_sizes_warns_of_each_best_timed_on_a_throttled_device(
    problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMPY_THROTTLED", "hw_slowdown")
    typed = (
        f"search {problem.study.path} -d numpy:0 --fix VARIANT=GOOD --trials 2 --sizes 64,128 --db {tmp_path / 'a.db'}"
    )
    done = CliRunner().invoke(app, typed.split())
    assert done.exit_code == 0, done.stderr
    warnings = [line for line in done.stderr.splitlines() if line.startswith("warning:")]
    assert [line.split(" was timed ")[0] for line in warnings] == [
        "warning: the best of doubles N=64", "warning: the best of doubles N=128",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "answer", "said"),
    [
        ("devices", OSError("no such board"), "OSError: no such board"),
        ("traits", OSError("no such board"), "OSError: no such board"),
        ("traits", {}, "TypeError: the traits of NumPy are not Traits"),
        (
            "devices",
            [replace(numpy_backend.INFO, backend="opencl")],
            "ValueError: NumPy says that its backend is opencl",
        ),
    ],
)
def test_a_backend_that_cannot_tell_its_devices_hides_no_other(
    monkeypatch: pytest.MonkeyPatch, numpy: DeviceInfo, capsys: pytest.CaptureFixture[str], asked: str, answer: Any,
    said: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(load_backend("numpy"), asked, Mock(side_effect=[answer]), raising=False)
    assert find_device(None).backend == "opencl"
    assert f"the backend numpy cannot list its devices: {said}" in capsys.readouterr().err
    monkeypatch.setattr(load_backend("numpy"), "diagnose", Mock(side_effect=OSError("no such board")), raising=False)
    assert "the backend numpy cannot tell what is wrong: OSError: no such board" in diagnosis()


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("nowhere.at_all:BACKEND", "the backend broken cannot be loaded: ModuleNotFoundError"),
        ("json:loads", "json:loads is not a Backend whose `name` is 'broken'"),
        ("tests.numpy_backend:NumPy", "tests.numpy_backend:NumPy is not a Backend whose `name` is 'broken'"),
        ("tests.numpy_backend:BACKEND", "tests.numpy_backend:BACKEND is not a Backend whose `name` is 'broken'"),
    ],
)
def test_a_backend_that_is_none_is_said_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str, said: str
) -> None:
    monkeypatch.syspath_prepend(str(installed(tmp_path, "broken", value)))
    numbers = [device.number for device in list_devices()]
    assert len(set(numbers)) == len(numbers)
    assert any(said in one for one in diagnosis())
    with pytest.raises(SetupError, match=rf"repair or remove the package that has {re.escape(value)}"):
        load_backend("broken")
    with pytest.raises(SetupError, match="no backend 'nobody' is installed"):
        load_backend("nobody")
