"""The search's side of a cluster, with devices that only answer: which serve, which do not, what is sent again."""

from __future__ import annotations

import asyncio
import hashlib
import math
import os
import platform
import re
import socket
import ssl
import struct
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from autotune.errors import DeviceError, SetupError, StudyError, UsageError, WorkerError
from autotune.model import PACE, DeviceInfo, Measurement, Outcome, Trial, identity
from autotune.pool import Settings, Stopped
from autotune.study import Problem, Study, data_place, input_data, python_place, toml
from autotune.tuner import Budget, Request
from tests.studies import SOURCE, study, table
from tests.waiting import wait_until

if find_spec("distributed") is None:
    pytest.skip("needs dask.distributed: pip install '.[cluster]'", allow_module_level=True)

import dask.config
import distributed  # noqa: F401  (which sets its defaults)

from autotune import __version__, cluster
from autotune.cluster import address, claims, failures, flights, luggage, roster, travel
from autotune.cluster.address import Address, connect
from autotune.cluster.anchor import Anchors
from autotune.cluster.luggage import Depot, Item, Luggage
from benchmarks.fleet.simulated import DEVICE, Answer, Cluster, invented

NOWHERE = Address("tcp", "127.0.0.1", 1)


@pytest.fixture
def problem() -> Problem:
    return Problem(study(), device=replace(DEVICE, extensions=("cl_khr_fp64",)))


class Said(list[str]):
    """Collects the lines that are said."""

    def wait_for(self, text: str) -> str:
        wait_until(lambda: any(text in line for line in self), lambda: self)
        return next(line for line in self if text in line)


@pytest.fixture
def said() -> Said:
    return Said()


def facts(host: str = "simulated", versions: Mapping[str, str] | None = None, **changes: Any) -> dict[str, Any]:
    device = replace(DEVICE, **changes)
    return {"autotune": {"versions": versions or travel.versions(), "host": host, "device": travel.facts_of(device)}}


class Playing(Cluster):
    """A simulated cluster whose workers may refuse, be busy and go."""

    def __init__(self, devices: int = 2, trial_s: float = 0.001) -> None:
        super().__init__(devices, trial_s, invented())
        self.answers: dict[str, dict[str, Any]] = {}
        self.connected = 0
        self.sent: list[Answer] = []
        self.named: list[str] = []
        self.asked: dict[str, Any] = {}

    async def connect(self) -> Cluster:
        if self.status != "running":
            raise cluster.SchedulerAway("no scheduler answers (test)")
        self.connected += 1
        return self

    def submit(self, task: Any, request: bytes, *, key: str, workers: Any = (), **more: Any) -> Any:
        for worker in workers:
            if worker in self.answers and "claim" in key:
                answer = Answer()
                answer.set(self.answers[worker])
                return answer
        answer = super().submit(task, request, key=key, workers=workers, **more)
        if "trial" in key:
            self.sent.append(answer)
        if "retime" in key:
            self.named = list(workers)
        return answer

    async def run(self, task: Any, request: bytes, *, workers: Sequence[str], **_: Any) -> Any:
        answers: dict[str, Any] = {}
        for worker in workers:
            if worker in self.asked:
                answers |= await self.asked[worker](self, [worker])
        return answers

    def evaluator(self, problem: Problem, said: Said, **more: Any) -> cluster.ClusterEvaluator:
        return cluster.ClusterEvaluator(problem, NOWHERE, client=self.connect, say=said.append, **more)


CONFIGURATIONS = [{"WPT": 1, "WG": 64, "FAST": 0}, {"WPT": 2, "WG": 64, "FAST": 0}, {"WPT": 4, "WG": 64, "FAST": 1}]


def run_all(evaluator: cluster.ClusterEvaluator) -> None:
    for configuration in CONFIGURATIONS:
        evaluator.submit(configuration)
    trials = [evaluator.collect(30) for _ in CONFIGURATIONS]
    assert {trial.outcome for trial in trials} == {Outcome.OK}
    assert evaluator.best_ns == min(trial.time_ns for trial in trials)


def test_only_devices_of_the_model_and_driver_serve(problem: Problem, said: Said) -> None:
    playing = Playing(2)
    playing.workers |= {"sim://other": facts(name="Another"), "sim://driver": facts(host="old", driver="2")}
    playing.workers |= {"sim://python": {}, "sim://strange": {"autotune": {"device": {}}}}
    old = {**travel.versions(), "autotune": "0.1"}
    playing.workers["sim://version"] = facts(host="behind", versions=old)
    with playing.evaluator(problem, said) as evaluator:
        said.wait_for("old")
        said.wait_for("behind")
        run_all(evaluator)
        assert evaluator.devices == 2
    assert sorted(said) == [
        f"Simulated 0 of behind is left out: autotune 0.1, here {__version__}",
        "Simulated 0 of old is left out: driver 2, the search is for driver 1",
    ]


def test_at_most_so_many_devices_are_taken(problem: Problem, said: Said) -> None:
    with Playing(5).evaluator(problem, said, most=2) as evaluator:
        wait_until(lambda: evaluator.capacity >= 6)
        run_all(evaluator)
        assert (evaluator.devices, evaluator.capacity) == (2, 6)


@pytest.mark.parametrize(("seconds", "trial_s", "patience_s"), [(40.0, 0.4, 4.0), (None, math.inf, 16.0)])
def test_a_short_search_has_its_devices_sample_for_less(
    problem: Problem, monkeypatch: pytest.MonkeyPatch, seconds: float | None, trial_s: float, patience_s: float
) -> None:
    given: list[Settings] = []

    def begins(problem: Problem, address: Address, settings: Settings, *_: Any, **more: Any) -> None:
        given.append(settings)
        raise Stopped

    monkeypatch.setattr("autotune.cluster.evaluator.ClusterEvaluator", begins)
    monkeypatch.setattr("autotune.cluster.evaluator.run_search", lambda request, *_, **more: request)
    cluster.run(Request(problem, budget=Budget(seconds=seconds)), address=NOWHERE)
    assert [(found.rules.trial_s, found.rules.patience_s) for found in given] == [(trial_s, patience_s)]


def test_a_device_in_use_is_waited_for(problem: Problem, said: Said) -> None:
    playing = Playing(1)
    playing.answers["sim://0"] = {"busy": "process 7 of other"}

    def free(text: str) -> None:
        said.append(text)
        playing.answers.clear()

    with cluster.ClusterEvaluator(problem, NOWHERE, client=playing.connect, say=free) as evaluator:
        run_all(evaluator)
    assert said == ["Simulated 0 of simulated is in use by another search (process 7 of other); waiting"]


def test_a_free_device_is_taken_where_another_is_in_use(problem: Problem, said: Said) -> None:
    playing = Playing(4)
    for number in (0, 1, 2):
        playing.answers[f"sim://{number}"] = {"busy": "process 7 of other"}
    with playing.evaluator(problem, said, most=1) as evaluator:
        run_all(evaluator)
        assert list(evaluator._fleet.claims.members) == ["sim://3"]
    assert said == []


def test_a_search_does_not_call_itself_another(problem: Problem, said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    playing = Playing(1)
    playing.answers["sim://0"] = {"busy": f"process {os.getpid()} of {platform.node()}"}
    submit = playing.submit

    def freed(task: Any, request: bytes, **more: Any) -> Any:
        answer = submit(task, request, **more)
        playing.answers.clear()
        return answer

    playing.submit = freed  # type: ignore[method-assign]
    with cluster.ClusterEvaluator(problem, NOWHERE, client=playing.connect, say=said.append) as evaluator:
        run_all(evaluator)
    assert said == []
    monkeypatch.setattr(claims, "_ENDING_S", 0)
    playing.answers["sim://0"] = {"busy": f"process {os.getpid()} of {platform.node()}"}
    with cluster.ClusterEvaluator(problem, NOWHERE, client=playing.connect, say=said.append) as evaluator:
        run_all(evaluator)
    assert [line.partition(" (")[0] for line in said] == ["Simulated 0 of simulated is in use by another search"]


def refusal(error: UsageError | SetupError) -> dict[str, Any]:
    return failures.refused(error)


def test_a_machine_at_fault_is_left_out_and_the_last_ends_the_search(problem: Problem, said: Said) -> None:
    playing = Playing(2)
    playing.answers["sim://0"] = refusal(SetupError("no linker", hint="install one"))
    with playing.evaluator(problem, said) as evaluator:
        run_all(evaluator)
    assert said == ["Simulated 0 of simulated is left out: simulated: no linker; install one"]
    playing.answers["sim://1"] = playing.answers["sim://0"]
    with pytest.raises(SetupError, match="simulated: no linker; install one"):
        playing.evaluator(problem, said)


def test_what_is_wrong_with_the_study_ends_the_search(problem: Problem, said: Said) -> None:
    playing = Playing(2)
    playing.answers["sim://0"] = playing.answers["sim://1"] = refusal(StudyError("the reference failed", where="a.py"))
    with pytest.raises(StudyError, match=r"simulated: a\.py: the reference failed"):
        playing.evaluator(problem, said)


def test_a_scheduler_that_comes_back_gets_what_was_in_flight_again(problem: Problem, said: Said) -> None:
    playing = Playing(1, trial_s=3600.0)
    with playing.evaluator(problem, said) as evaluator:
        for configuration in CONFIGURATIONS:
            evaluator.submit(configuration)
        playing.status = "closed"
        said.wait_for("the scheduler has gone; waiting for it")
        playing.__init__(1)  # type: ignore[misc]
        assert {evaluator.collect(30).outcome for _ in CONFIGURATIONS} == {Outcome.OK}
        said.wait_for("the scheduler is back")


def test_a_connection_that_is_lost_as_a_device_comes_loses_no_trial(said: Said) -> None:
    async def fly() -> list[object]:
        there, delivered = asyncio.Event(), list[object]()
        lost = SimpleNamespace(there=there, client=None, search="autotune-1", members={})
        sent = flights.Flights(lost, "1", delivered.append, said.append)  # type: ignore[arg-type]
        sent.submit(CONFIGURATIONS[0])
        await asyncio.sleep(0)
        there.set()
        there.clear()  # before who waits has woken
        for _ in range(5):
            await asyncio.sleep(0)
        sent.cancel()
        return delivered

    assert asyncio.run(fly()) == []


async def _hangs(*_: object) -> object:
    return await asyncio.Event().wait()


async def _fails(*_: object) -> object:
    raise AttributeError("'NoneType' object has no attribute 'broadcast'")  # which a closed client does


async def _answers_nonsense(playing: Playing, workers: Sequence[str]) -> object:
    return dict.fromkeys(workers, 5)


async def _gives_all_back(playing: Playing, workers: Sequence[str]) -> object:
    for answer in playing.sent:
        answer.set({"withdrawn": True, "worker": workers[0]})
    for _ in range(9):  # the other's answer takes longer: by then this one would have been asked again
        await asyncio.sleep(0)
    return {worker: [] for worker in workers}


async def _has_begun_one(playing: Playing, workers: Sequence[str]) -> object:
    return {worker: [identity(CONFIGURATIONS[1])] for worker in workers}


@pytest.mark.parametrize(
    ("one", "other", "taken"),
    [
        (_has_begun_one, _hangs, [0, 2]),
        (_has_begun_one, _fails, [0, 2]),
        (_has_begun_one, _answers_nonsense, [0, 2]),
        (_hangs, _fails, [0, 1, 2]),
        (_gives_all_back, _hangs, [0, 1, 2]),
    ],
)
def test_what_no_device_has_begun_is_taken_back_whatever_another_answers(
    problem: Problem, said: Said, monkeypatch: pytest.MonkeyPatch, one: Any, other: Any, taken: list[int]
) -> None:
    monkeypatch.setattr(flights, "_ANSWER_S", 0.05)
    monkeypatch.setattr(flights, "_AGAIN_S", 0)
    playing = Playing(2, trial_s=3600.0)
    with playing.evaluator(problem, said) as evaluator:
        wait_until(lambda: evaluator.devices == 2)
        for configuration in CONFIGURATIONS:
            evaluator.submit(configuration)
        wait_until(lambda: len(playing.sent) == len(CONFIGURATIONS))
        playing.asked = {"sim://0": one, "sim://1": other}
        assert list(evaluator.withdraw()) == [CONFIGURATIONS[at] for at in taken]
        assert len(playing.sent) == len(CONFIGURATIONS)  # none was sent again
        for answer in playing.sent:
            answer.set(answered({}) | {"trial": replace(PASSED, configuration=CONFIGURATIONS[1])})
        assert len(taken) == 3 or evaluator.collect(30).configuration == CONFIGURATIONS[1]
        assert evaluator.ready == 0
        if one is not _hangs:  # else nobody answers, and each may be asked
            evaluator.retime(CONFIGURATIONS[:1])
            assert playing.named == ["sim://0"]


def test_who_leaves_is_said_and_who_joins_is_used(problem: Problem, said: Said) -> None:
    playing = Playing(2)
    with playing.evaluator(problem, said) as evaluator:
        wait_until(lambda: evaluator.devices >= 2)
        gone = playing.workers.pop("sim://1")
        said.wait_for("Simulated 0 of simulated has left; 1 device left")
        assert evaluator.capacity == 3
        playing.workers["sim://9"] = gone
        wait_until(lambda: evaluator.devices >= 2)
        run_all(evaluator)


def test_a_bound_that_is_set_is_told_from_one_that_was_lowered(problem: Problem, said: Said) -> None:
    with Playing(1).evaluator(problem, said) as evaluator:
        run_all(evaluator)
        epoch, best_ns = evaluator._fleet.flights.bound
        evaluator.best_ns = best_ns
        assert evaluator._fleet.flights.bound == (epoch, best_ns)
        evaluator.best_ns = None
        assert evaluator._fleet.flights.bound == (epoch + 1, None)


def test_a_device_that_differs_is_named_once(said: Said) -> None:
    anchors = Anchors(said.append)
    for number, base in enumerate((100_000, 101_000, 99_000, 120_000, 100_500)):
        samples = tuple(base + 100 * offset for offset in range(-10, 11))
        anchors.add(f"sim://{number}", f"GPU of machine {number}", Measurement(samples))
    (line,) = said
    assert line.startswith("GPU of machine 3 is 19 % slower than the others of its model (120.0 µs for the same conf")
    assert anchors.of("sim://3") == 120_000
    assert anchors.of("sim://9") is None


@pytest.mark.parametrize("pace", [1.0, 0.5, 2.0])
def test_the_first_best_of_enough_trials_is_the_anchor_whatever_the_pace(pace: float, said: Said) -> None:
    async def land(times_ns: Sequence[int]) -> list[object]:
        members = {name: SimpleNamespace(anchor=None, found=SimpleNamespace(worker=name)) for name in ("a", "b")}
        alone = SimpleNamespace(there=asyncio.Event(), client=None, search="autotune-1", members=members)
        sent = flights.Flights(alone, "1", lambda _: None, said.append)  # type: ignore[arg-type]
        found = list[object]()
        for number, ns in enumerate(times_ns):
            flight = flights.Flight({"A": number})
            sent._flights[identity(flight.configuration)] = flight
            measured = Measurement((ns,))
            sent._land(flight, Trial(flight.configuration, Outcome.OK, measurement=measured, environment={PACE: pace}))
            found.append(sent._anchors.configuration)
        return found

    assert asyncio.run(land([900, 800, 700, 800, 600, 500])) == [None] * 4 + [{"A": 4}] * 2


@pytest.mark.parametrize("told", [[Measurement(())], [], [Measurement((-5,))]])
def test_times_of_the_anchor_that_none_can_be_end_no_search(
    problem: Problem, said: Said, told: list[Measurement], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Playing, "_timed", lambda self, configuration: next(iter(told), None))
    with Playing(2).evaluator(problem, said) as evaluator:
        wait_until(lambda: evaluator.devices == 2)
        flights = evaluator._fleet.flights
        flights._anchors.configuration = CONFIGURATIONS[0]
        run_all(evaluator)
        wait_until(lambda: all(one.anchor and one.anchor.done() for one in evaluator._fleet.claims.members.values()))
        run_all(evaluator)
        assert [flights._anchors.of(worker) for worker in evaluator._fleet.claims.members] == [None, None]


def announced(device: object) -> roster.Found:
    told = {"autotune": {"versions": travel.versions(), "host": "gpu1", "device": device}}
    return roster.read({"workers": {"tcp://1": told}})["tcp://1"]


def test_a_device_travels_as_it_is() -> None:
    assert announced(travel.facts_of(DEVICE)).device == DEVICE


@pytest.mark.parametrize(
    "changes",
    [None, "gpu", {"clock": None}, {"name": 5}, {"compute_units": "many"}, {"memory": -1}, {"kind": {}}],
)
def test_a_device_that_is_announced_otherwise_is_left_out(changes: object) -> None:
    facts = travel.facts_of(DEVICE)
    found = announced({**facts, **changes} if isinstance(changes, Mapping) else changes)
    assert found.unfit.startswith("it is announced in another way: ")
    assert roster.fits(found, DEVICE) == found.unfit
    assert found.place.endswith(" 0 of gpu1")


REFERENCE = """
import numpy as np
from helper import scale

def product(x, y, N, alpha):
    return {"y": alpha * scale(x) + y + np.load("offset.npy")}
"""


def put(depot: Depot, data: bytes) -> str:
    digest = hashlib.sha256(data).hexdigest()
    depot.put(digest, 0, data, len(data))
    return digest


def arrived_at(folder: Path, luggage: Luggage) -> Depot:
    depot = Depot(folder)
    for digest, nbytes in luggage.sizes.items():
        depot.put(digest, 0, luggage.piece(digest, 0), nbytes)
    assert not depot.lacks(luggage.sizes)
    return depot


@pytest.fixture
def in_files(tmp_path: Path) -> Study:
    """A study whose reference is Python with a module and data beside it."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "ref.py").write_text(REFERENCE)
    (home / "helper.py").write_text("def scale(x):\n    return x\n")
    np.save(home / "offset.npy", np.zeros(1))
    changed = {**table(), "reference": {"python": str(home / "ref.py") + ":product"}}
    return Study(source=SOURCE, **changed)


def test_a_problem_travels_with_its_kernel_default_and_reference(
    in_files: Study, tmp_path: Path, problem: Problem
) -> None:
    sent = Problem(in_files, {"N": 100}, {"T": "float"}, problem.device, fix={"WG": [64, 128]})
    packed = travel.pack(sent, Settings(builders=3, allow_python=True))
    there = tmp_path / "there"
    there.mkdir()
    depot = arrived_at(tmp_path / "depot", packed.luggage)
    for file in (tmp_path / "home").iterdir():
        file.unlink()
    arrived, settings = travel.unpack(packed.problem, depot, there)
    assert settings == Settings(builders=3, allow_python=True)
    assert arrived.plan(arrived.default) == sent.plan(sent.default)
    assert "space" not in vars(arrived)
    function = arrived.study.reference.function
    assert isinstance(function, tuple)
    path, name = function
    assert (path.parent.parent, name) == (there / "study", "product")
    assert sorted(file.name for file in path.parent.iterdir()) == ["helper.py", "offset.npy", "ref.py"]
    with pytest.raises(SetupError, match="the problem cannot be read here"):
        travel.unpack(put(depot, b"nonsense"), depot, there)


def reading(home: Path) -> Study:
    """A study that reads a file of data, named from the root, and Python with a module."""
    home.mkdir()
    np.save(home / "x.npy", np.ones(100, np.float32))
    (home / "make.py").write_text("from helper import made\ndef make(N):\n    return made(N)\n")
    (home / "helper.py").write_text("def made(N):\n    return [1] * N\n")
    (home / "saxpy.cl").write_text(SOURCE)
    changed = table()
    changed["arguments"]["x"]["data"] = {"file": str(home / "x.npy")}
    changed["arguments"]["y"]["data"] = {"python": "make.py:make"}
    (home / "saxpy.toml").write_text(toml(changed))
    return Study.load(str(home / "saxpy.toml"))


def unpacked(study: Study, folder: Path, device: DeviceInfo) -> Problem:
    """Return what arrives of a study after its own files have changed."""
    packed = travel.pack(Problem(study, {"N": 100}, {"T": "float"}, device), Settings())
    depot = arrived_at(folder / "depot", packed.luggage)
    for file in study.text.path.parent.iterdir():
        file.write_text("another")
    return travel.unpack(packed.problem, depot, folder)[0]


def called(path: Path, name: str, names: Mapping[str, Any]) -> Mapping[str, Any]:
    assert sorted(file.name for file in path.parent.iterdir()) == ["helper.py", "make.py"]
    return {"y": np.ones(names["N"])}


def test_a_study_that_came_finds_its_own_files_and_no_others(tmp_path: Path, problem: Problem) -> None:
    study = reading(tmp_path / "home")
    arrived = unpacked(study, tmp_path, problem.device)
    assert (input_data(arrived, python=called)["x"] == 1).all()
    named = arrived.study.text
    for place, name in ((data_place, "y.npy"), (data_place, "make.py"), (python_place, "helper.py")):
        (tmp_path / "home" / name).touch()
        with pytest.raises(StudyError, match=f"'{name}' did not come with the study"):
            place(named, name, "arguments.x.data")


@pytest.mark.parametrize("name", ["../x.npy", "/tmp/x.npy", "a/../../x.npy", "", ".", "a\0b"])
def test_what_came_is_kept_in_its_folder(name: str, tmp_path: Path) -> None:
    depot = Depot(tmp_path / "depot")
    digest = put(depot, b"data")
    with pytest.raises(SetupError, match="a file of the study lies outside its folder"):
        depot.lay([Item(name, digest)], tmp_path / "study")
    with pytest.raises(SetupError, match="no digest of a file"):
        depot.put(name, 0, b"", 0)


def test_pieces_make_a_file_in_their_order_and_only_what_was_packed_is_laid(tmp_path: Path) -> None:
    depot, digest = Depot(tmp_path / "depot"), hashlib.sha256(b"abcd").hexdigest()
    assert depot.put(digest, 2, b"cd", 4) == 0
    assert depot.put(digest, 0, b"ab", 4) == 2
    assert depot.put(digest, 0, b"ab", 4) == 2  # of another search
    assert depot.lacks([digest]) == [digest]
    assert depot.put(digest, 2, b"cd", 4) == depot.put(digest, 0, b"ab", 4) == 4
    assert depot.lacks([digest]) == []
    depot.lay([Item("0/a.npy", digest)], tmp_path / "study")
    assert (tmp_path / "study" / "0" / "a.npy").read_bytes() == b"abcd"
    depot.put(other := "0" * 64, 0, b"else", 4)
    with pytest.raises(SetupError, match="not the one that the search began with"):
        depot.lay([Item("0/b.npy", other)], tmp_path / "study")
    assert depot.lacks([digest, other]) == [other]
    depot.keep_only([other])
    assert depot.lacks([digest, other]) == [digest, other]


def test_what_is_put_in_the_place_of_a_file_that_was_checked_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    depot, hashing = Depot(tmp_path / "depot"), luggage._digest
    place = tmp_path / "depot" / put(depot, b"data")

    def swapped(content: bytes | Path) -> str:
        found = hashing(content)
        place.write_bytes(b"else")
        return found

    monkeypatch.setattr(luggage, "_digest", swapped)
    assert depot.read(place.name) == b"data"
    place.write_bytes(b"data")
    depot.lay([Item("0/a.py", place.name)], tmp_path / "study")
    assert (tmp_path / "study" / "0" / "a.py").read_bytes() == b"data"


def test_what_has_no_room_leaves_it_to_others(tmp_path: Path) -> None:
    depot, digest = Depot(tmp_path), hashlib.sha256(b"abcd").hexdigest()
    (tmp_path / f"{digest}.part").symlink_to("/dev/full")
    with pytest.raises(SetupError, match="No space left on device; make room, or set TMPDIR to a folder that has it"):
        depot.put(digest, 0, b"abcd", 4)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_cut_short_meanwhile_is_said(tmp_path: Path) -> None:
    carried, file = Luggage(), tmp_path / "a.npy"
    file.write_bytes(b"abcd")
    digest = carried.add(file)
    file.write_bytes(b"ab")
    assert carried.piece(digest, 0) == b"ab"
    with pytest.raises(SetupError, match=r"a.npy: has changed since the search began"):
        carried.piece(digest, 2)
    file.unlink()
    with pytest.raises(SetupError, match=r"a.npy: cannot be read"):
        carried.piece(digest, 0)


def test_what_no_other_process_can_have_is_said(problem: Problem) -> None:
    changed = table()
    generator = (n for n in ())
    changed["arguments"]["x"]["data"] = lambda N: generator
    held = Study(source=SOURCE, **changed)
    with pytest.raises(StudyError, match=r"cannot be sent to a worker: .*generator"):
        travel.pack(Problem(held, {"N": 100}, {"T": "float"}, problem.device), Settings())


def test_errors_travel_with_their_place() -> None:
    found = failures.heard(failures.refused(DeviceError("no room", where="buffer a", hint="give less")), "gpu3")
    assert (type(found), str(found)) == (DeviceError, "gpu3: buffer a: no room; give less")
    strange = {"kind": "SystemExit", "what": "a", "where": "", "hint": "", "detail": ""}
    assert type(failures.heard({"refused": strange}, "gpu3")) is WorkerError


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("tcp://head:8786", "tcp://head:8786"),
        ("head", "tcp://head:8786"),
        ("tls://10.0.0.1:9/", "tls://10.0.0.1:9"),
        ("[::1]:8786", "tcp://[::1]:8786"),
    ],
)
def test_addresses(typed: str, meant: str) -> None:
    assert str(Address.parse(typed)) == meant


def refused(typed: str) -> str:
    """Return the error of a failed connection."""
    with pytest.raises(SetupError) as raised:
        asyncio.run(connect(Address.parse(typed), 0.5))
    return str(raised.value)


def test_who_does_not_connect_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address, "_ANSWER_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        said = refused(f"tcp://127.0.0.1:{port}")
    assert said.endswith(
        "(silence); what listens there is stopped, or no scheduler, or one with TLS (write --on tls://...)"
    )
    said = refused(f"tcp://127.0.0.1:{port}")
    told = f"dask scheduler --host 127.0.0.1 --port {port} --no-dashboard --dashboard-address 127.0.0.1:0"
    assert said.endswith(f"); start one there: {told}")
    for name in ("nowhere.invalid", "a..b"):
        said = refused(name)
        assert said.startswith(f"tcp://{name}:8786: unknown host {name} (")
        assert said.endswith("); correct the name, or write its number")


WEB = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"
FRAME = struct.pack("<QQQ", 19, 1, 3) + b"\xc1\xc1\xc1"  # of Dask's, with what is no message: it logs a traceback


@pytest.mark.parametrize("sent", [WEB, FRAME], ids=["web", "frame"])
def test_what_answers_in_another_language_is_said_in_a_line(sent: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    def answer() -> None:
        with suppress(OSError):  # the end
            while True:
                connection, _ = stranger.accept()
                with connection, suppress(OSError):
                    connection.sendall(sent)
                    connection.recv(1)

    with socket.create_server(("127.0.0.1", 0)) as stranger:
        threading.Thread(target=answer, daemon=True).start()
        said = refused(f"tcp://127.0.0.1:{stranger.getsockname()[1]}")
        stranger.shutdown(socket.SHUT_RDWR)
    assert ": no scheduler answers (the answer is not a scheduler's: " in said
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    "typed", ["", "http://head", "head:0", "head:99999", "a b", "tcp://head:8786;rm", "inproc://1"]
)
def test_what_is_no_address_is_refused(typed: str) -> None:
    with pytest.raises(UsageError, match="write --on tcp://HOST:8786"):
        Address.parse(typed)


@pytest.mark.parametrize("role", ["client", "worker"])
def test_tls_files_that_cannot_be_read_are_named(tmp_path: Path, role: str) -> None:
    there = Address("tls", "127.0.0.1", 1)
    with pytest.raises(SetupError, match=rf"no certificate of a {role} is named; docs/cluster.md, Who may join"):
        address.security(there, role)
    files = {"ca-file": f"{tmp_path}/ca.crt", f"{role}.cert": f"{tmp_path}/one.crt", f"{role}.key": "-----\nsecret"}
    said = rf"{tmp_path}/one.crt, {tmp_path}/ca.crt: the TLS files of a {role} cannot be read: .*No such file"
    known = {f"distributed.comm.tls.{name}": value for name, value in files.items()}
    with dask.config.set(known), pytest.raises(SetupError, match=said) as raised:
        address.security(there, role)
    assert "secret" not in str(raised.value)


def test_a_key_with_a_pass_phrase_is_refused_and_nobody_is_asked_for_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    key = f"{tmp_path}/closed.key"
    words = ["openssl", "req", "-x509", "-newkey", "ed25519", "-passout", "pass:secret", "-subj", "/CN=autotune"]
    subprocess.run([*words, "-keyout", key, "-out", f"{key}.crt"], check=True, capture_output=True)
    files = {"ca-file": f"{key}.crt", "client.cert": f"{key}.crt", "client.key": key}
    known = {f"distributed.comm.tls.{name}": value for name, value in files.items()}
    with dask.config.set(known), pytest.raises(SetupError, match=f"{key}: has a pass phrase, .*pkey -in {key} -out"):
        address.security(Address("tls", "127.0.0.1", 1))
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(("code", "cure"), [(9, "make another"), (10, "make another"), (18, "start it with")])
def test_a_certificate_that_is_refused_is_told_with_its_cure(code: int, cure: str) -> None:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_code = code
    assert address._away(Address("tls", "127.0.0.1", 1), error).hint.startswith(cure)


def test_loopback_stays_loopback() -> None:
    assert Address.parse("127.0.0.1").near() == "127.0.0.1"
    assert not Address.parse("localhost").is_open
    assert Address.parse("tcp://192.0.2.1").is_open
    assert not Address.parse("tls://192.0.2.1").is_open


def test_a_model_is_chosen_by_what_its_devices_have_in_common(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = [
        replace(
            DEVICE, name="NVIDIA H200", kind="gpu", index=number, uuid=f"GPU-{number}", driver=driver, memory=memory
        )
        for number, (driver, memory) in enumerate([("2", 100), ("1", 90), ("1", 80)])
    ]
    cpu = replace(DEVICE, name="Xeon", kind="cpu", compute_units=64)
    found = [roster.Found(f"tcp://{n}", f"host{n}", device) for n, device in enumerate([cpu, *gpus])]
    monkeypatch.setattr(roster, "list_devices", lambda address: found)
    (best,) = roster.choose(NOWHERE, None)
    assert (best.name, best.driver, best.memory, best.uuid, best.index) == ("NVIDIA H200", "1", 80, "", 0)
    assert [model.name for model in roster.choose(NOWHERE, "all")] == ["NVIDIA H200", "Xeon"]
    assert [model.name for model in roster.choose(NOWHERE, "h200")] == ["NVIDIA H200"]
    monkeypatch.setattr(roster, "PATIENCE_S", 0.0)
    with pytest.raises(DeviceError, match="no device 'a100' in the cluster; choose with -d: "):
        roster.choose(NOWHERE, "a100")
    monkeypatch.setattr(roster, "list_devices", lambda address: [])
    with pytest.raises(DeviceError, match="the cluster has no device; start a worker: autotune worker --on tcp"):
        roster.choose(NOWHERE, "a100")
    for wrong in ("autotune 0.1, here 0.2", announced({}).unfit):
        behind = roster.Found("tcp://1", "gpu1", DeviceInfo(**asdict(DEVICE)), wrong)
        monkeypatch.setattr(roster, "list_devices", lambda address, one=behind: [one])
        with pytest.raises(SetupError, match=f"its one worker is left out, gpu1 for this: {wrong}; install the same"):
            roster.choose(NOWHERE, None)


PASSED = Trial({"A": 1}, Outcome.OK, measurement=Measurement((5, 6)))


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (None, "another trial"),
        (replace(PASSED, configuration={"A": 2}), "another trial"),
        (replace(PASSED, configuration=["A"]), "AttributeError"),
        (replace(PASSED, measurement=None), "no time"),
        (replace(PASSED, measurement=Measurement(())), "no time"),
        (replace(PASSED, measurement=Measurement((-5, 5))), "samples_ns.0: Input should be greater than or equal to 0"),
        (replace(PASSED, measurement=Measurement((0, 0))), "samples_ns: a time must be above 0"),
        (replace(PASSED, measurement=Measurement((math.nan,))), "ValueError: cannot convert float NaN"),
        (replace(PASSED, measurement="fast"), "AttributeError"),
        (replace(PASSED, outcome=Outcome.LOST), "a trial that has not ended"),
        (replace(PASSED, outcome="fine"), "outcome: "),
        (replace(PASSED, reason=5), "AttributeError"),
        (replace(PASSED, build_s=math.nan), "build_s: "),
        (replace(PASSED, started="yesterday"), "AttributeError"),
        (replace(PASSED, environment={"x": [1]}), "environment.x"),
        (replace(PASSED, environment={"x": 2**70, "y": object()}), "TypeError"),
        (replace(PASSED, made={"options": []}), "made: is not options, launches"),
        (replace(PASSED, origin={"file": "x"}), "origin: is not format, file and entry"),
    ],
)
def test_what_no_worker_can_have_measured_is_refused(told: Any, said: str) -> None:
    answer = failures.vetted({"worker": "tcp://1", "trial": told}, "trial", failures.believed_trial, {"A": 1})
    assert set(answer) == {"worker", "refused"}
    refusal = failures.heard(answer, "gpu1")
    assert str(refusal).startswith("gpu1: its answer is invalid: ")
    assert said in refusal.what


@pytest.mark.parametrize(
    "told",
    [
        None, [1], [None, None], [Measurement((-5,))], [Measurement(())], [Measurement((5,), verified_runs="x")],
        [Measurement((5,), throttled=[1])], [Trial({"A": 2}, Outcome.CRASH)],
    ],
)  # fmt: skip
def test_an_answer_that_is_none_to_the_finalists_is_refused(told: object) -> None:
    answer = {"worker": "tcp://1", "times": told}
    assert set(failures.vetted(answer, "times", failures.believed_times, [{"A": 1}])) == {"worker", "refused"}


@pytest.mark.parametrize("told", [None, {}, {"kind": "SetupError"}, {"kind": [], "what": "x", "where": "", "hint": ""}])
def test_a_refusal_that_is_none_leaves_its_worker_out_all_the_same(told: object) -> None:
    answer = failures.vetted({"worker": "tcp://1", "refused": told}, "trial", failures.believed_trial, {"A": 1})
    assert "its answer is invalid" in str(failures.heard(answer, "gpu1"))


@pytest.mark.parametrize("told", [None, "x", [1], {}, {"trial": PASSED}, {"worker": [], "trial": PASSED}])
def test_an_answer_that_is_nobody_s_is_no_answer(told: object) -> None:
    with pytest.raises(WorkerError, match="a worker answers what none of autotune does; install the same"):
        failures.signed(told)


def test_what_a_worker_may_have_measured_is_believed() -> None:
    hopeless = Trial({"A": 1}, Outcome.STOPPED, measurement=Measurement((), (9, 9)))  # which no timing gives
    for told in (PASSED, hopeless, Trial({"A": 1}, Outcome.CRASH, "\x1b[2J")):
        assert failures.believed_trial(told, {"A": 1}) == told
    again = [Measurement((5,), verified_runs=30, throttled="hw"), None, Trial({"A": 1}, Outcome.CRASH)]
    believed = failures.believed_times(again, [{"A": 1}] * 3)
    assert believed == again
    assert (believed[0].verified_runs, believed[0].throttled) == (30, "hw")


def test_of_a_trial_only_what_its_worker_knows_is_believed() -> None:
    foreign = {"format": "t1", "file": "x", "entry": "y"}
    more = replace(PASSED, configuration={"A": 1.0}, origin=foreign, generation=7, retimed=Measurement((1,)))
    believed = failures.believed_trial(replace(more, device_index=9, reason="\udcff"), {"A": 1})
    assert believed == replace(PASSED, reason="?")
    assert type(believed.configuration["A"]) is int
    assert believed.generation == 0


def answered(usage: object) -> dict[str, object]:
    return {"worker": "sim://0", "trial": replace(PASSED, configuration=CONFIGURATIONS[0]), "usage": usage}


def test_what_devices_spent_is_added_up(problem: Problem, said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    told = answered({"build": 2.0, "idle": 0.5})
    monkeypatch.setattr(Playing, "_end", lambda self, worker, answer, _: answer.set(told))
    with Playing(1).evaluator(problem, said) as evaluator:
        evaluator.submit(CONFIGURATIONS[0])
        evaluator.collect(30)
        assert (evaluator.usage()["build"], evaluator.usage()["idle"]) == (2.0, 0.5)


@pytest.mark.parametrize(
    ("told", "line"),
    [
        (None, "a worker answers what none of autotune does"),
        ({"worker": "sim://0", "trial": PASSED}, "simulated: its answer is invalid: another trial"),
        ({"worker": "sim://0", "refused": 5}, "simulated: its answer is invalid: TypeError"),
        (answered(usage=[]), "simulated: its answer is invalid: AttributeError"),
        (answered(usage={"build": "x"}), "simulated: its answer is invalid: ValueError"),
        (answered(usage={"build": math.nan}), "simulated: its answer is invalid: seconds"),
        (answered(usage={"build": -1}), "simulated: its answer is invalid: seconds"),
    ],
)
def test_an_answer_that_none_gives_ends_the_search_in_a_line(
    problem: Problem, said: Said, told: object, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Playing, "_end", lambda self, worker, answer, _: answer.set(told))
    with Playing(1).evaluator(problem, said) as evaluator:
        evaluator.submit(CONFIGURATIONS[0])
        with pytest.raises(WorkerError, match=line):
            evaluator.collect(30)


@pytest.mark.parametrize(
    "told", [None, 5, {}, {"slots": 0}, {"slots": 10**12}, {"slots": "7"}, {"busy": 5}, {"lacks": 5}]
)
def test_a_claim_that_is_answered_with_nonsense_leaves_the_worker_out(problem: Problem, said: Said, told: Any) -> None:
    playing = Playing(1)
    playing.answers["sim://0"] = told
    line = f"it answered a claim with {told!r}; install the same version there"
    with pytest.raises(WorkerError, match=re.escape(line)):
        playing.evaluator(problem, said)
    assert said == [f"Simulated 0 of simulated is left out: {line}"]


def test_an_error_in_a_late_callback_is_for_who_debugs(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    def late() -> None:
        raise RuntimeError("too late")

    async def asking() -> None:
        address.keep_quiet()
        asyncio.get_running_loop().call_soon(late)
        await asyncio.sleep(0)

    caplog.set_level("DEBUG", "autotune")
    asyncio.run(asking())
    assert [(one.levelname, "too late" in str(one.exc_info)) for one in caplog.records] == [("DEBUG", True)]
    assert capfd.readouterr().err == ""
