"""The cost of a cluster: the same search of one device, in this process and through a worker on loopback, in turns."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

from autotune import cluster, tuner
from autotune.devices import find_device
from autotune.study import Problem, Study
from autotune.tuner import Budget, Request
from tests.machines import ROOT, Machines
from tests.test_cluster import made


def compare(trials: int, turns: int) -> tuple[list[float], list[float]]:
    """Return trials a second of the search without and with a cluster, turn by turn."""
    local, clustered = [], []
    with tempfile.TemporaryDirectory() as folder, Machines(Path(folder), apart=False) as machines:
        prepare(Path(folder), trials)
        machines.scheduler()
        machines.worker(1)
        machines.wait_for(lambda: "serves" in machines.said(1))
        address = cluster.Address.parse(machines.address)
        study = Study.load(f"{folder}/waits.toml")
        for turn in range(turns):
            local.append(_rate(Problem(study, device=find_device("numpy:0")), None, folder, trials, turn))
            (device,) = cluster.choose(address, "numpy")
            clustered.append(_rate(Problem(study, device=device), address, folder, trials, turn))
    return local, clustered


def prepare(folder: Path, trials: int) -> None:
    """Write a study whose trials take about 20 ms into a folder, and make its backend available here too."""
    import sys

    made(folder, range(1, 1 + (trials + 9) // 10), range(1, 11))
    kernel = folder / "waits.py"
    text = kernel.read_text().replace("100 + 300 * (A - 7) ** 2 + 200 * abs(B - 3)", "50")
    kernel.write_text(text)
    sys.path.insert(0, str(folder))
    os.environ["AUTOTUNE_LOCKS"] = str(folder)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), str(ROOT)])


def _rate(problem: Problem, address: cluster.Address | None, folder: str, trials: int, turn: int) -> float:
    database = f"{folder}/{'local' if address is None else 'cluster'}-{turn}.db"
    request = Request(problem, database=database, sampler="random", seed=turn, budget=Budget(trials=trials))
    ended: list[float] = []

    def note(_: object) -> None:
        ended.append(time.monotonic())

    if address is None:
        tuner.run(request, on_progress=note)
    else:
        cluster.run(request, address=address, on_progress=note)
    return (trials - 1) / (ended[trials - 1] - ended[0])
