"""Two GPUs of one machine: one alone, both in one process, and one cluster worker for each; the same trials."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autotune import cluster, devices, tuner
from autotune.study import Problem, Study
from autotune.tuner import Budget, Request
from tests.machines import ROOT, Machines

SIZES: dict[str, int | None] = {"sgemm": 4096}
"""The sizes of studies that are not run at their default size."""


def compare(studies: Sequence[str], numbers: Sequence[str], trials: int) -> list[tuple[str, str, int, str, str, str]]:
    """Return a row for each study and way: study, devices, trials, seconds, trials a second, times one GPU's rate.

    Only the middle four fifths of the trials count: at the start caches fill, at the end one GPU waits for the other.
    """
    rows = []
    with tempfile.TemporaryDirectory() as folder, Machines(Path(folder), apart=False) as machines:
        machines.scheduler()
        # All share a folder of locks: searches and workers here take turns on a device.
        places = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        locks = {"AUTOTUNE_LOCKS": folder, "PYTHONPATH": places}
        os.environ.update(locks)
        for place, number in enumerate(numbers, 1):
            machines.worker(place, number, env=locks)
        for place in range(1, len(numbers) + 1):
            machines.wait_for(lambda place=place: "serves" in machines.said(place))
        address = cluster.Address.parse(machines.address)
        for name in studies:
            one_rate = 0.0
            for way in ("one", "one process", "cluster"):
                took_s, done = _search(name, way, numbers, address, folder, trials)
                rate = done / took_s
                one_rate = one_rate or rate
                row = name, way, done, f"{took_s:.2f}", f"{rate:.1f}", f"{rate / one_rate:.2f}"
                print(*row, file=sys.stderr, flush=True)
                rows.append(row)
    return rows


def _search(
    name: str, way: str, numbers: Sequence[str], address: cluster.Address, folder: str, trials: int
) -> tuple[float, int]:
    """Return the seconds of the middle four fifths of the trials, and how many these are."""
    study = Study.load(name)
    size = SIZES.get(name)
    sizes: Any = dict.fromkeys(study.sizes, size) if size else None
    chosen = [devices.find_device(number) for number in numbers][: 1 if way == "one" else None]
    device = cluster.choose(address, chosen[0].fingerprint)[0] if way == "cluster" else chosen[0]
    problem = Problem(study, sizes, device=device)
    most = min(trials, len(problem.space))
    request = Request(
        problem,
        () if way == "cluster" else chosen,
        database=f"{folder}/{name}-{way.replace(' ', '-')}.db",
        sampler="random",
        seed=1,
        budget=Budget(trials=most),
    )
    ended: list[float] = []

    def note(_: object) -> None:
        ended.append(time.monotonic())

    if way == "cluster":
        with cluster.ClusterEvaluator(problem, address) as evaluator:
            while evaluator.devices < len(numbers):
                time.sleep(0.01)
            tuner.run(request, on_progress=note, evaluator=evaluator)
    else:
        tuner.run(request, on_progress=note)
    first, last = most // 10, most - 1 - most // 10
    return ended[last] - ended[first], last - first
