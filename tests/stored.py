"""Devices, keys and trials to store in tests."""

from __future__ import annotations

import pickle
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from autotune.identity import ProblemKey
from autotune.model import DeviceInfo, Measurement, Outcome, Trial
from autotune.store import Store
from autotune.study import Problem, Study, space_hash

DEVICE = DeviceInfo(
    index=0,
    name="NVIDIA H200",
    vendor="NVIDIA Corporation",
    platform="NVIDIA CUDA",
    driver="550.1",
    kind="gpu",
    opencl_version="3.0",
    compute_units=132,
    memory=140 * 2**30,
    local_memory=48 * 2**10,
    max_work_group_size=1024,
    max_work_item_sizes=(1024, 1024, 64),
    clock=1980,
    extensions=("cl_khr_fp64",),
    uuid="u0",
    pci="0000:0a:00.0",
    compute_capability="9.0",
)
KEY = ProblemKey("scale", "k" * 32, "s" * 32, DEVICE.fingerprint, {"M": 64, "N": 32}, {"T": "float"})


def newer_driver(driver: str) -> DeviceInfo:
    """The same device with another driver."""
    return replace(DEVICE, driver=driver)


def ok(configuration: Mapping[str, int | float | str], *samples_ns: int) -> Trial:
    """A verified trial with these samples."""
    return Trial(configuration, Outcome.OK, measurement=Measurement(samples_ns))


def put(
    store: Store,
    trials: Sequence[Trial],
    *,
    key: ProblemKey = KEY,
    device: DeviceInfo = DEVICE,
    environment: Mapping[str, str] | None = None,
    fresh: bool = False,
) -> int:
    """Store trials as one search that has ended; return its number."""
    search = store.start_search(key, device, sampler="random", seed=1, environment=environment, fresh=fresh)
    begun = store.begin(search, [trial.configuration for trial in trials])
    store.finish(list(zip(begun, trials, strict=True)))
    store.end_search(search, "done")
    return search


def put_in(path: Path, trials: Sequence[Trial], **options: object) -> None:
    """Store trials in the database at a path, as `put` does. Equal new databases are copied from the first one."""
    wanted = None if path.exists() else pickle.dumps((trials, options))
    if wanted in _FILES:
        path.write_bytes(_FILES[wanted])
        return
    with Store.open(str(path)) as store:
        put(store, trials, **options)  # type: ignore[arg-type]
    if wanted is not None:
        _FILES[wanted] = path.read_bytes()


_FILES: dict[bytes | None, bytes] = {}


def columns(path: Path) -> dict[str, list[str]]:
    """Return the names of the columns of each table of a database file."""
    connection = sqlite3.connect(path)
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    found = {name: [row[1] for row in connection.execute(f"PRAGMA table_info({name})")] for name in tables}
    connection.close()
    return found


MADE = {
    "options": ["-DA=1", "-cl-mad-enable"],
    "launches": [["scale", [64, 32], [8, 8]], ["sum", [64], None]],
    "flops": 2e9,
    "bytes": None,
    "work": {"flops": "2 * M * N"},
}
"""An example of what a trial was built and launched as."""

SMALL = replace(DEVICE, name="a small one", kind="cpu", compute_units=2, local_memory=2**15)
"""A device with less local memory than the default configuration of the bundled sgemm needs."""


TURNS = "2026-01-02T03:04:05.000006+00:00"
"""The instant of the trials that were timed again in turns."""


def put_moved(store: Store) -> ProblemKey:
    """Store a search of sgemm on SMALL, where its default is moved: the default first, then others, and a failure."""
    problem = Problem(Study.load("sgemm"), device=SMALL)
    assert problem.moved
    rows = range(0, len(problem.space), len(problem.space) // 12)
    faster = [ok(problem.space.configuration(row), *range(900 - row % 97, 907 - row % 97)) for row in rows]
    timed = [ok(problem.default, *range(2000, 2007)), *faster]
    retimed = [replace(one, retimed=replace(one.measurement, taken=TURNS)) for one in timed if one.measurement]
    reason = "wrong result: the output C is 1.5 at [0, 0], where 2.5 is expected"
    put(store, [*retimed, Trial(problem.space.configuration(1), Outcome.WRONG_RESULT, reason=reason)],
        key=problem.key, device=SMALL, environment={"space": space_hash(problem.study.text)})  # fmt: skip
    return problem.key
