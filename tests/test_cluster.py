"""Searches through a cluster: a real scheduler and workers as processes, which come, go and are killed."""

from __future__ import annotations

import asyncio
import hashlib
import os
import platform
import re
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import autotune
from autotune.errors import DeviceError, SetupError
from autotune.model import Configuration, Outcome
from autotune.pool import Settings
from autotune.pool.lock import DeviceLock
from autotune.study import Problem, Study
from tests.contracts.evaluator import EvaluatorContract
from tests.machines import ROOT, Machines, kill, may_have_networks
from tests.waiting import WAIT_S

if find_spec("distributed") is None:
    pytest.skip("needs dask.distributed: pip install '.[cluster]'", allow_module_level=True)

import dask.config
from distributed import Client  # whose import sets its defaults

from autotune import cluster
from autotune.cluster import luggage
from autotune.cluster.address import connect

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

STUDY = """
name = "waits"
kernel = "waits.py"
[sizes]
N = 64
[parameters]
A.values = [%(A)s]
B.values = [%(B)s]
[arguments]
a = { type = "float", shape = ["N"], access = "in" }
c = { type = "float", shape = ["N"], access = "out" }
[[launch]]
entry = "waits"
global = ["N"]
arguments = ["a", "c"]
[reference]
numpy = { c = "a * 2" }
"""

KERNEL = """
import os, time
def waits(a, c):
    if A == 0:
        return
    if A == -1:  # takes its machine down: what started the prepared process that the device's worker is a fork of
        with open(f"/proc/{os.getppid()}/stat") as stat:
            os.kill(int(stat.read().rpartition(")")[2].split()[1]), 9)
        time.sleep(60)
    c.view(np.float32)[:] = 2 * a.view(np.float32)
    time.sleep(1e-4 * (3 + 9 * (A - 7) ** 2 + 6 * abs(B - 3)))
"""


def made(folder: Path, a: Sequence[int], b: Sequence[int]) -> Path:
    """Write a study, and its backend beside it: by far the fastest is A=7, B=3; A=0 is wrong, A=-1 kills."""
    (folder / "waits.toml").write_text(STUDY % {"A": ", ".join(map(str, a)), "B": ", ".join(map(str, b))})
    (folder / "waits.py").write_text(KERNEL)
    info = folder / "numpy_backend-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: numpy-backend\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[autotune.backends]\nnumpy = tests.numpy_backend:BACKEND\n")
    return folder / "waits.toml"


def rows(database: Path, query: str) -> list[tuple]:
    connection = sqlite3.connect(database)
    try:
        return connection.execute(query).fetchall()
    except sqlite3.OperationalError:  # not made yet
        return [(0,)]
    finally:
        connection.close()


def counted(database: Path) -> int:
    """Return how many trials have ended."""
    return int(rows(database, "SELECT count(*) FROM trials WHERE outcome NOT IN ('pending', 'lost')")[0][0])


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    with Machines(tmp_path, apart=may_have_networks()) as found:
        yield found


def serve(machines: Machines, *numbers: int, **options: object) -> list[subprocess.Popen[str]]:
    """Start workers, and wait until each serves."""
    before = {number: machines.said(number).count("serves") for number in numbers}
    started = [machines.worker(number, **options) for number in numbers]
    for number, process in zip(numbers, started, strict=True):
        machines.wait_for(lambda number=number: machines.said(number).count("serves") > before[number], process)
    return started


def finish(search: subprocess.Popen[str], timeout_s: float = 300) -> tuple[str, str]:
    output, errors = search.communicate(timeout=timeout_s)
    assert "Traceback" not in errors, errors
    assert search.returncode == 0, errors
    return output, errors


def require_whole(database: Path, trials: int) -> None:
    """Assert that every configuration is on record once, and that none is unfinished."""
    query = "SELECT count(*), count(DISTINCT configuration_hash) FROM trials WHERE outcome IN ('ok', 'stopped')"
    assert rows(database, query) == [(trials, trials)]


RANDOM = ("--sampler", "random", "--seed", "1")
OTHER = "tests-other-1cu-1g"


@pytest.fixture(scope="class")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """A scheduler and four workers, the last with a device of another model, for searches that end none of them."""
    folder = tmp_path_factory.mktemp("four")
    made(folder, range(1, 13), range(1, 6))
    with Machines(folder, apart=may_have_networks()) as found:
        found.scheduler()
        serve(found, 1, 2, 3)
        serve(found, 4, env={"NUMPY_DEVICE": "Other"})
        yield found


class TestFourMachines:
    @pytest.fixture
    def machines(self, four: Machines) -> Iterator[Machines]:
        """The same machines, without what a failed test has left behind."""
        known = len(four.processes)
        yield four
        for process in four.processes[known:]:
            if process.poll() is None:
                kill(process)

    def test_three_machines_share_one_search_and_pick_as_one_does(self, machines: Machines, tmp_path: Path) -> None:
        database = tmp_path / "a.db"
        asked = ("waits.toml", "--trials", "60", *RANDOM, "-d", "tests-numpy-1cu-1g")
        output, _ = finish(machines.search(*asked, database=database))
        # On a machine too busy to tell the two fastest apart, a search says so.
        assert re.search(r"best +A=7 B=3", output) or re.search(r"^noise .*tie .*A=7 B=3", output, re.M | re.S), output
        require_whole(database, 60)
        places = {environment for (environment,) in rows(database, "SELECT DISTINCT environment FROM trials")}
        assert all('"gpu"' in place for place in places)
        if machines.apart:
            assert {found[0] for place in places if (found := re.findall(r"machine-\d", place))} == {
                "machine-1", "machine-2", "machine-3",
            }  # fmt: skip
            for machine in range(4):
                own = machines.host if machine == 0 else f"10.77.0.{10 + machine}"
                listening = machines.listening(machine).split()
                assert listening
                assert all(where.startswith((f"{own}:", "127.0.0.1:")) for where in listening), listening
                assert machines.answering_http(machine, own) == []

    def test_a_worker_outlives_the_searches_that_are_ended_and_the_next_goes_on(
        self, machines: Machines, tmp_path: Path
    ) -> None:
        database = tmp_path / "a.db"
        worker = machines.processes[4]  # the first is the scheduler's
        before, said = machines.children(worker), machines.said(4)
        asked = ("waits.toml", *RANDOM, "-d", OTHER, "--trials")
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            trials = counted(database)
            search = machines.search(*asked, "60", database=database)
            machines.wait_for(lambda trials=trials: counted(database) > trials + 3, search)
            search.send_signal(number)
            search.communicate(timeout=100)
        kept = counted(database)
        output, errors = finish(machines.search(*asked, str(60 - kept), database=database))
        assert f"{60 - kept} new trials and {kept} stored" in output
        require_whole(database, 60)
        assert "waiting" not in errors
        assert machines.said(4) == said
        assert machines.children(worker) == before

    def test_models_do_not_mix_and_a_device_is_one_search_s(self, machines: Machines, tmp_path: Path) -> None:
        one, other = tmp_path / "one.db", tmp_path / "other.db"
        asked = ("waits.toml", *RANDOM, "--trials")
        first = machines.search(*asked, "40", "-d", OTHER, database=one)
        machines.wait_for(lambda: counted(one) > 0, first)
        waiting = machines.search(*asked, "5", "-d", "other", database=tmp_path / "third.db")
        beside = machines.search(*asked, "5", "-d", "tests-numpy-1cu-1g", "--at-most", "1", database=other)
        finish(beside)
        output, _ = finish(first)
        assert f" --on {machines.address} --timeout 5m" in output
        _, errors = finish(waiting)
        assert "is in use by another search (process " in errors
        for database, hosts, trials in ((one, {"machine-4"}, 40), (other, {"machine-1", "machine-2", "machine-3"}, 5)):
            require_whole(database, trials)
            if machines.apart:
                places = rows(database, "SELECT DISTINCT environment FROM trials")
                assert all(re.findall(r'"host":"([^"]*)"', place)[0] in hosts for (place,) in places)

    def test_a_device_that_the_cluster_lacks_is_said_in_a_line(self, machines: Machines, tmp_path: Path) -> None:
        asked = machines.search("waits.toml", "-d", "h200", database=tmp_path / "a.db")
        _, errors = asked.communicate(timeout=100)
        assert asked.returncode == 2
        assert errors.count("\n") == 1
        assert f"no device 'h200' in the cluster; choose with -d: tests-numpy-1cu-1g (NumPy), {OTHER} (Other)" in errors


def test_nothing_is_lost_where_machines_die_leave_and_join(machines: Machines, tmp_path: Path) -> None:
    study = made(tmp_path, range(1, 13), range(1, 6))
    machines.scheduler()
    first, second = serve(machines, 1, 2)
    database = tmp_path / "a.db"
    search = machines.search(str(study), "--trials", "60", *RANDOM, database=database)
    machines.wait_for(lambda: counted(database) > 5, search)
    kill(first)
    machines.wait_for(lambda: counted(database) > 15, search)
    machines.worker(3)
    second.send_signal(signal.SIGTERM)
    output, errors = finish(search)
    assert "is gone; " in errors
    assert re.search(r"best +A=7 B=3", output), output
    require_whole(database, 60)
    assert second.wait(60) == 130


def test_a_scheduler_that_is_gone_is_waited_for(machines: Machines, tmp_path: Path) -> None:
    study = made(tmp_path, range(4, 11), range(1, 6))
    scheduler = machines.scheduler()
    serve(machines, 1)
    database = tmp_path / "a.db"
    said = tmp_path / "said.log"
    with said.open("w") as errors:
        search = machines.search(str(study), "--trials", "35", *RANDOM, database=database, stderr=errors)
    machines.wait_for(lambda: counted(database) > 5, search)
    kill(scheduler)
    machines.wait_for(lambda: "the scheduler has gone" in said.read_text(), search)
    machines.scheduler()
    output, _ = search.communicate(timeout=300)
    assert search.returncode == 0, said.read_text()
    assert said.read_text().count("the scheduler has gone; waiting for it") == 1
    assert re.search(r"best +A=7 B=3", output), output
    require_whole(database, 35)


@pytest.mark.gallery
def test_every_study_is_searched_on_every_model(machines: Machines, tmp_path: Path) -> None:
    study = made(tmp_path, range(1, 11), range(1, 4))
    other = tmp_path / "other.toml"
    other.write_text(study.read_text().replace('name = "waits"', 'name = "other"'))
    machines.scheduler()
    serve(machines, 1)
    serve(machines, 2, env={"NUMPY_DEVICE": "Other"})
    database = tmp_path / "a.db"
    asked = (str(study), str(other), "--sizes", "64,128", "-d", "all", "--trials", "24", *RANDOM)
    output, errors = finish(machines.search(*asked, database=database))
    assert "on NumPy (tests-numpy-1cu-1g), Other (tests-other-1cu-1g) within 24 trials for each model" in errors
    assert "in use by another search" not in errors  # which the size before was
    assert "48 new trials in " in output
    assert f"-d all --sizes 64,128 --db {database} --sampler random --on {machines.address}" in output
    query = (
        "SELECT study, device, count(*), count(DISTINCT configuration_hash), min(trials.environment) FROM trials "
        "JOIN searches ON searches.id = search_id JOIN problems ON problems.id = problem_id GROUP BY problems.id"
    )
    found = rows(database, query)
    assert sorted((name, device) for name, device, *_ in found) == sorted(
        2 * [(name, device) for name in ("waits", "other") for device in ("tests-numpy-1cu-1g", "tests-other-1cu-1g")]
    )
    assert all(trials == distinct == 6 for _, _, trials, distinct, _ in found)
    if machines.apart:
        assert all(("machine-2" in place) == ("other" in device) for _, device, *_, place in found)


def test_what_cannot_serve_is_said_in_a_line(machines: Machines, tmp_path: Path) -> None:
    study = made(tmp_path, [7], [3])
    refused = machines.search(str(study), database=tmp_path / "a.db")
    _, errors = refused.communicate(timeout=100)
    assert refused.returncode == 3
    assert errors.startswith(f"error: {machines.address}: no scheduler answers (")
    cure = (
        f"dask scheduler --host {machines.host} --port {machines.port} --no-dashboard --dashboard-address 127.0.0.1:0"
    )
    assert errors.endswith(f"); start one there: {cure}\n")
    assert errors.count("\n") == 1
    machines.scheduler()
    asked = machines.start(0, "-m", "autotune", "devices", "--on", machines.address, stderr=subprocess.PIPE)
    _, errors = asked.communicate(timeout=100)
    assert errors == f"error: no worker serves this cluster; start one: autotune worker --on {machines.address}\n"


@pytest.mark.gallery
def test_a_server_hands_its_searches_to_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fastapi", reason="pip install '.[serve]'")
    from autotune.service.client import Server, ServerAway
    from tests.test_serve import started

    study = made(tmp_path, range(1, 11), range(1, 5))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(ROOT)]))
    with Machines(tmp_path, apart=False) as machines:
        machines.scheduler()
        with started(tmp_path, "--on", machines.address) as (_, url, token):
            server = Server(url, token, cache=False, tell=lambda _: None)
            with pytest.raises(ServerAway, match="the server has no device to search on; "):
                server.submit(study)
            serve(machines, 1)
            serve(machines, 2, env={"NUMPY_DEVICE": "Other"})
            asked = {"budget": {"trials": 8}, "sampler": "random", "seed": 1}
            both = [server.submit(study, device=device, **asked) for device in ("tests-numpy-1cu-1g", "other")]
            assert len({one["queue"] for one in both}) == 2
            for one in both:
                ended = server.wait(one["id"])
                assert ended["state"] == "done", ended["reason"]
                assert ended["outcomes"].keys() <= {"ok", "stopped"}
            whole = rows(tmp_path / "a.db", "SELECT count(DISTINCT configuration_hash) FROM trials GROUP BY search_id")
            assert whole == [(8,), (8,)]


@pytest.mark.parametrize(
    ("words", "ending"),
    [
        (("worker", "-d", "numpy:0"), signal.SIGHUP),
        (("worker", "-d", "numpy:0"), signal.SIGTERM),
        (("devices",), signal.SIGINT),
    ],
)
def test_what_asks_to_end_ends_a_command_that_a_mute_peer_keeps_waiting(
    tmp_path: Path, words: Sequence[str], ending: signal.Signals
) -> None:
    made(tmp_path, [7], [3])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    with socket.create_server(("127.0.0.1", 0)) as mute:
        mute.settimeout(WAIT_S)
        words = [*words, "--on", f"tcp://127.0.0.1:{mute.getsockname()[1]}"]
        asked = subprocess.Popen(
            [sys.executable, "-m", "autotune", *words], env=environment, text=True, stderr=subprocess.PIPE
        )
        connection, _ = mute.accept()
        with connection:
            asked.send_signal(ending)
            _, errors = asked.communicate(timeout=100)
        assert (asked.returncode, errors) == (130, "interrupted\n")


def certificate(folder: Path, name: str) -> Path:
    """A key with its self-signed certificate: whoever has it belongs to the cluster."""
    path = folder / name
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=autotune"]
    subprocess.run([*command, "-keyout", path, "-out", f"{path}.crt"], check=True, capture_output=True)
    return path


def settings(key: Path) -> dict[str, str]:
    """Dask's settings for a key, as variables; docs/cluster.md shows them as a file."""
    base, parts = "DASK_DISTRIBUTED__COMM__", ("SCHEDULER", "WORKER", "CLIENT")
    found = {f"{base}REQUIRE_ENCRYPTION": "True", f"{base}TLS__CA_FILE": f"{key}.crt"}
    for part in parts:
        found |= {f"{base}TLS__{part}__CERT": f"{key}.crt", f"{base}TLS__{part}__KEY": str(key)}
    return found


def test_only_who_has_the_key_is_let_in(tmp_path: Path) -> None:
    study = made(tmp_path, range(1, 6), [3])
    key, other = certificate(tmp_path, "cluster.key"), certificate(tmp_path, "other.key")
    with Machines(tmp_path, apart=may_have_networks(), environment=settings(key)) as machines:
        machines.protocol = "tls"
        known = dask.config.merge(dask.config.config, dask.config.collect_env(settings(key)))
        with dask.config.set(known), pytest.raises(SetupError, match="--port 1 --protocol tls --no-dashboard --dash"):
            asyncio.run(connect(cluster.Address("tls", "127.0.0.1", 1), 0.5))
        machines.scheduler("--protocol", "tls")
        serve(machines, 1)
        output, _ = finish(machines.search(str(study), "--trials", "5", database=tmp_path / "a.db"))
        assert re.search(r"best +A=5 B=3", output), output
        stranger = machines.search(str(study), database=tmp_path / "b.db", env=settings(other))
        _, errors = stranger.communicate(timeout=100)
        assert stranger.returncode == 3
        assert "no scheduler answers" in errors
        assert errors.endswith("give both ends the same certificate: docs/cluster.md, Who may join\n")
        machines.protocol = "tcp"
        plain = machines.search(str(study), database=tmp_path / "b.db")
        _, errors = plain.communicate(timeout=100)
        assert plain.returncode == 3
        assert "write --on tls://" in errors
        plain = machines.search(str(study), database=tmp_path / "b.db", env=dict.fromkeys(settings(key), "None"))
        _, errors = plain.communicate(timeout=100)
        assert plain.returncode == 3
        assert errors.endswith("is not a scheduler, or is one with TLS (write --on tls://...)\n")


COPIES = """
name = "copies"
kernel = "copies.py"
[sizes]
N = 64
[parameters]
A.values = [1, 2]
[arguments]
a = { type = "float", shape = ["N"], access = "in", data = { %s } }
c = { type = "float", shape = ["N"], access = "out" }
[[launch]]
entry = "copies"
global = ["N"]
arguments = ["a", "c"]
[reference]
%s
"""

READING = {
    "array": ('file = "data/a.npy"', 'numpy = { c = "a" }'),
    "matrix": ('file = "a.mtx", part = "values"', 'numpy = { c = "a" }'),
    "golden": ('file = "data/a.npy"', 'file = { c = "data/c.npy" }'),
    "python": ('python = "make.py:make"', 'python = "right.py:right"'),
}
"""Studies that read more than their kernel: data, and the reference."""


def copied(folder: Path, value: int) -> Path:
    """Files of the READING studies that all contain one number, which their kernel writes through its include."""
    (folder / "data").mkdir(parents=True)
    (folder / "lib").mkdir()
    for name, (data, reference) in READING.items():
        (folder / f"{name}.toml").write_text(COPIES % (data, reference))
    (folder / "copies.py").write_text('#include "value.inc"\ndef copies(a, c):\n    c.view(np.float32)[:] = VALUE\n')
    (folder / "value.inc").write_text(f"VALUE = {value}\n")
    for name in ("a", "c"):
        np.save(folder / "data" / f"{name}.npy", np.full(64, value, np.float32))
    entries = "".join(f"{row} 1 {value}\n" for row in range(1, 65))
    (folder / "a.mtx").write_text(f"%%MatrixMarket matrix coordinate real general\n64 1 64\n{entries}")
    (folder / "lib" / "__init__.py").write_text("import numpy as np\ndef whole():\n    return np.load('data/a.npy')\n")
    told = f"import os\nfrom lib import whole\nassert whole()[0] == {value}, os.getcwd()\n"
    (folder / "make.py").write_text(f"{told}def make(N):\n    return whole()\n")
    (folder / "right.py").write_text(f"{told}def right(a):\n    return a * 0 + {value}\n")
    return folder


@pytest.fixture(scope="module")
def loopback(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """A scheduler and two workers on loopback, for evaluators in this process; the workers' files differ."""
    folder = tmp_path_factory.mktemp("loopback")
    made(folder, [-1, 0, 6, 7, 8], [3, 4])
    with Machines(folder, apart=False) as found, pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        found.scheduler()
        serve(found, 1, 2, cwd=copied(folder / "there", 5))
        yield found


def test_what_a_study_reads_is_the_searcher_s_not_the_worker_s(loopback: Machines, tmp_path: Path) -> None:
    home, address = copied(tmp_path / "home", 6), cluster.Address.parse(loopback.address)
    (device,) = cluster.choose(address, "numpy")
    for name in READING:
        problem = Problem(Study.load(str(home / f"{name}.toml")), device=device)
        with cluster.ClusterEvaluator(problem, address, Settings(allow_python=True)) as evaluator:
            evaluator.submit({"A": 1})
            assert evaluator.collect(100).outcome is Outcome.OK
    kept = [*loopback.folder.glob("dask-scratch-space/*/autotune-files")]
    assert 1 <= len(kept) <= 2
    assert all(folder.stat().st_mode & 0o077 == 0 for folder in kept)
    asked = ("./array.toml", "--trials", "2")
    finish(loopback.search(*asked, database=tmp_path / "array.db", cwd=home))
    require_whole(tmp_path / "array.db", 2)
    (home / "data" / "a.npy").unlink()
    lacks = loopback.search(*asked, database=tmp_path / "lacks.db", cwd=home)
    _, errors = lacks.communicate(timeout=100)
    assert (lacks.returncode, "'data/a.npy' is not there" in errors) == (2, True), errors


def test_dask_does_not_look_at_what_a_worker_does_beside_its_kernels(loopback: Machines) -> None:
    with Client(loopback.address, set_as_default=False) as client:
        for setting, value in (("worker.profile.enabled", False), ("admin.tick.interval", "1s")):
            found = client.run(dask.config.get, f"distributed.{setting}")
            assert list(found.values()) == [value] * 2


def test_data_of_any_length_travels_in_pieces_and_once(
    loopback: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(luggage, "PIECE", 1000)
    home = copied(tmp_path / "home", 6)
    (home / "data" / "a.npy").unlink()
    (home / "data" / "a.npy").symlink_to("c.npy")
    np.save(home / "data" / "c.npy", np.full(2000, 6, np.float32))
    address, sent, sending = cluster.Address.parse(loopback.address), list[str](), luggage.Luggage.piece
    monkeypatch.setattr(luggage.Luggage, "piece", lambda self, *asked: sent.append(asked[0]) or sending(self, *asked))
    (device,) = cluster.choose(address, "numpy")
    problem = Problem(Study.load(str(home / "array.toml")), {"N": 2000}, device=device)
    data = hashlib.sha256((home / "data" / "c.npy").read_bytes()).hexdigest()
    for _ in range(2):
        with cluster.ClusterEvaluator(problem, address) as evaluator:
            loopback.wait_for(lambda: evaluator.devices == 2)
            evaluator.submit({"A": 1})
            assert evaluator.collect(100).outcome is Outcome.OK
        assert sent.count(data) == 2 * 9  # once for each worker


@pytest.fixture
def evaluator(loopback: Machines) -> Iterator[cluster.ClusterEvaluator]:
    address = cluster.Address.parse(loopback.address)
    (device,) = cluster.choose(address, "numpy")
    problem = Problem(Study.load(str(loopback.folder / "waits.toml")), device=device)
    with cluster.ClusterEvaluator(problem, address) as found:
        yield found


class TestClusterEvaluator(EvaluatorContract):
    @pytest.fixture
    def passing(self) -> list[Configuration]:
        return [{"A": 7, "B": 3}, {"A": 6, "B": 3}, {"A": 8, "B": 4}]

    @pytest.fixture
    def failing(self) -> Configuration:
        return {"A": 0, "B": 3}


def test_who_has_a_device_outside_of_the_cluster_is_told(loopback: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    address, locks, said = cluster.Address.parse(loopback.address), list[DeviceLock](), list[str]()
    (device,) = cluster.choose(address, "numpy")
    for machine in (1, 2):
        monkeypatch.setenv("AUTOTUNE_LOCKS", str(loopback.folder / f"locks-{machine}"))
        locks.append(DeviceLock(device))

    def free(line: str) -> None:
        said.append(line)
        while locks:
            locks.pop().release()

    problem = Problem(Study.load(str(loopback.folder / "waits.toml")), device=device)
    with cluster.ClusterEvaluator(problem, address, say=free) as evaluator:
        evaluator.submit({"A": 7, "B": 3})
        assert evaluator.collect(100).outcome is Outcome.OK
    told = (
        f"NumPy numpy:0 of {platform.node()} is in use by another search (process {os.getpid()} of {platform.node()})"
    )
    assert said == [f"{told}; waiting"]


def test_a_program_searches_on_a_cluster_too(loopback: Machines, tmp_path: Path) -> None:
    study, database = str(loopback.folder / "waits.toml"), str(tmp_path / "a.db")
    found = autotune.search(study, on=loopback.address, database=database, trials=4, fix={"A": [6, 7, 8]})
    assert (found.trials, found.reason) == (4, "4 trials done")
    with pytest.raises(DeviceError, match="no device 'h200' in the cluster"):
        autotune.search(study, on=loopback.address, device="h200", database=database)


def test_what_takes_its_machines_down_is_a_crash(evaluator: cluster.ClusterEvaluator) -> None:
    evaluator.submit({"A": -1, "B": 3})
    trial = evaluator.collect(300)
    assert trial.outcome is Outcome.CRASH
    assert trial.reason == "lost with 4 workers of the cluster, one after the other"
    evaluator.submit({"A": 7, "B": 3})
    assert evaluator.collect(100).outcome in (Outcome.OK, Outcome.STOPPED)
