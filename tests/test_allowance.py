"""The part of its machine that a container or a job may use, as control groups of either version say."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from autotune.cli.refusals import plain
from autotune.pool import allowance
from autotune.pool.blame import machine_fault

Groups = Callable[..., None]

UNIFIED = "0::/jobs/mine\n"
SEVERAL = "4:memory:/jobs/mine\n3:cpu,cpuacct:/jobs/mine\n2:pids:/jobs/mine\n0::/\n"
INSIDE = "4:memory:/docker/0123\n3:cpu:/docker/0123\n2:pids:/docker/0123\n"
"""A container that sees its own folder as the top, under the name that it has outside."""


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Groups:
    """Write what the system says of control groups; 64 cores are visible, and 2 GiB are free."""

    def lay(own: str, files: Mapping[str, str], meminfo: str = "MemAvailable: 2097152 kB\n") -> None:
        (tmp_path / "proc" / "self").mkdir(parents=True)
        (tmp_path / "proc" / "self" / "cgroup").write_text(own)
        (tmp_path / "proc" / "meminfo").write_text(meminfo)
        for name, text in files.items():
            path = tmp_path / "groups" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    monkeypatch.setattr(allowance, "_PROC", str(tmp_path / "proc"))
    monkeypatch.setattr(allowance, "_GROUPS", str(tmp_path / "groups"))
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(64)))
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    return lay


@pytest.mark.parametrize(
    ("own", "files", "cores"),
    [
        (UNIFIED, {"jobs/mine/cpu.max": "max 100000\n"}, 64),
        (UNIFIED, {"jobs/mine/cpu.max": "max 100000\n", "jobs/cpu.max": "150000 100000\n"}, 2),
        (UNIFIED, {"cpu.max": "50000 100000\n"}, 1),
        (SEVERAL, {"cpu/jobs/mine/cpu.cfs_quota_us": "-1\n", "cpu/jobs/mine/cpu.cfs_period_us": "100000\n"}, 64),
        (INSIDE, {"cpu/cpu.cfs_quota_us": "400000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 4),
        (UNIFIED, {"jobs/mine/cpu.max": "nonsense\n"}, 64),
        (UNIFIED, {"cpu.max": f"{'9' * 400} 1\n", "jobs/cpu.max": "1 0\n"}, 64),
        (f"0::{'/deep' * 400}\n", {"cpu.max": "200000 100000\n"}, 2),
        ("nonsense\n", {}, 64),
    ],
)
def test_a_quota_of_time_counts_as_cores(groups: Groups, own: str, files: Mapping[str, str], cores: int) -> None:
    groups(own, files)
    assert allowance.count_cores() == cores
    allowance.bound_threads()
    assert os.environ.pop("OPENBLAS_NUM_THREADS", None) == (None if cores == 64 else str(cores))


MIB = 2**20


@pytest.mark.parametrize(
    ("own", "files", "free"),
    [
        (UNIFIED, {}, 2048),
        (UNIFIED, {"memory.max": "7\n", "memory.current": "7\n", "memory.stat": "\nnonsense\n"}, 2048),
        (
            UNIFIED,
            {
                "jobs/mine/memory.max": "max\n",
                "jobs/mine/memory.current": f"{100 * MIB}\n",
                "jobs/mine/memory.stat": "inactive_file 0\n",
                "jobs/memory.max": f"{1000 * MIB}\n",
                "jobs/memory.current": f"{300 * MIB}\n",
                "jobs/memory.stat": f"anon 7\ninactive_file {50 * MIB}\n",
            },
            750,
        ),
        (
            INSIDE,
            {
                "memory/memory.limit_in_bytes": f"{500 * MIB}\n",
                "memory/memory.usage_in_bytes": f"{300 * MIB}\n",
                "memory/memory.stat": f"total_inactive_file {10 * MIB}\n",
            },
            210,
        ),
    ],
)
def test_the_least_that_any_group_leaves_is_available(
    groups: Groups, own: str, files: Mapping[str, str], free: int
) -> None:
    groups(own, files)
    assert allowance.available() == free * MIB


def test_memory_that_is_free_is_told() -> None:
    assert 2**20 < allowance.available() < 2**50


@pytest.mark.parametrize("own", [UNIFIED, SEVERAL])
def test_where_processes_are_few_the_limit_is_named_and_numpy_has_one_thread(
    groups: Groups, own: str, tmp_path: Path
) -> None:
    where = "jobs/mine" if own == UNIFIED else "pids/jobs/mine"
    groups(own, {f"{where}/pids.max": "100\n", f"{where}/pids.current": "90\n"})
    assert "90 of the 100 processes and threads that may be are at work" in allowance.lacks_processes()
    assert "pids.max" in str(machine_fault("it failed", tmp_path))
    allowance.bound_threads()
    assert os.environ.pop("OPENBLAS_NUM_THREADS") == "1"


def test_where_memory_is_limited_numpy_has_one_thread_and_the_limit_is_named(
    groups: Groups, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups(UNIFIED, {})
    known = resource.getrlimit
    monkeypatch.setattr("resource.getrlimit", lambda which: (1, 1) if which == resource.RLIMIT_AS else known(which))
    allowance.bound_threads()
    assert os.environ.pop("OPENBLAS_NUM_THREADS") == "1"
    for error in (MemoryError(), RuntimeError("can't start new thread")):
        assert "; allow more with ulimit -v" in str(plain(error, None))


def test_the_processes_of_a_user_are_counted_where_they_are_limited(
    groups: Groups, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    groups(UNIFIED, {})
    assert allowance.lacks_processes() == ""
    for thread in range(3):
        (tmp_path / "proc" / "7" / "task" / str(thread)).mkdir(parents=True)
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (10, 20))
    user = tmp_path.stat().st_uid or 4242
    monkeypatch.setattr(os, "geteuid", lambda: user)  # whom the limit binds
    os.chown(tmp_path / "proc" / "7", user, -1)
    assert allowance.lacks_processes().startswith("3 of the 10 processes")


def test_a_folder_from_which_nothing_may_run_is_named(
    groups: Groups, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    groups(UNIFIED, {})
    found = os.statvfs(tmp_path)
    monkeypatch.setattr(os, "statvfs", lambda path: os.statvfs_result((*found[:8], os.ST_NOEXEC, found[9])))
    said = str(machine_fault("it failed", tmp_path))
    assert f"set TMPDIR to a folder from which programs may run ({tmp_path} is mounted noexec)" in said
