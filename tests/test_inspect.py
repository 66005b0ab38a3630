"""A compiler inspects texts one after another: in one process, with the same results as in separate processes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from autotune.bench import Inspected
from autotune.cli import app
from autotune.errors import WorkerError
from autotune.model import DeviceInfo
from autotune.pool import WorkerProcess, can_hold
from autotune.pool.process import state_of
from autotune.reports import Inspector
from tests.stored import DEVICE

TEXT = """
#define i get_global_id(0)
#define out y[i]
#define PAIR 1, 2
#ifdef MIRRORED
#define STEP -1
#endif
kernel void f(const int n, global float *y) { if (i < n) out = STEP; }
"""
NAMES = ("i", "NOTHING", "out", "STEP")


@pytest.fixture
def pids(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the processes that were started to compile."""
    found = list[int]()

    def start(*given: Any) -> WorkerProcess:
        worker = WorkerProcess(*given)
        found.append(worker.pid)
        return worker

    monkeypatch.setattr("autotune.reports.fresh.WorkerProcess", start)
    return found


@pytest.mark.device
def test_each_text_is_told_of_by_one_process_and_as_by_its_own(device: DeviceInfo, pids: list[int]) -> None:
    asked = [((), NAMES), (("-DSTEP=1",), ("out", "PAIR")), ((), ()), (("-DMIRRORED",), NAMES)]
    with Inspector(device) as kept:
        said = [told(kept, *each) for each in asked]
    assert [state_of(pid) for pid in pids] == [""]
    assert "use of undeclared identifier 'STEP'" in str(said[0])
    assert said[2] == said[0]
    out = {"out": "y[get_global_id(0)]"}
    for one, macros in ((said[1], out), (said[3], {"i": "get_global_id(0)", "STEP": "-1", **out})):
        assert isinstance(one, Inspected)
        assert one.macros == macros  # a PAIR does not stand in a string
        assert list(one.signatures) == ["f"]
        assert [argument.type_name for argument in one.signatures["f"]] == ["int", "float*"]
    with Inspector(device) as own:
        assert told(own, *asked[-1]) == said[-1]


def told(inspector: Inspector, options: tuple[str, ...] = (), names: tuple[str, ...] = (), text: str = TEXT) -> object:
    try:
        return inspector.inspect(text, options, names)
    except WorkerError as error:
        return str(error)


FAILING = """
import os, sys, time
from autotune.bench import Inspected, Phase, serving
from autotune.devices import BackendError
from autotune.pool import forkserver

broken = []

def once(device, message):
    doing = message.source if not broken else broken[0]
    if doing == "aborts":
        os.abort()
    if doing == "refuses":
        raise BackendError("out of resources")
    if doing == "hangs":
        sys._getframe(1).f_locals["connection"].send(Phase("build", 0.01))
        time.sleep(1000)
    broken[:] = message.source.split()[1:]
    return Inspected({}, {"pid": str(os.getpid())})

serving.once = once
forkserver.main(int(sys.argv[1]), int(sys.argv[2]))
"""
"""A process whose workers do what a text says, `fine` or not, or whose compiler does it at each text after that one."""


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Inspector]:
    if not can_hold():
        pytest.skip("no forks here")
    monkeypatch.setattr(
        "autotune.pool.forkserver.command_of", lambda _, *words: [sys.executable, "-c", FAILING, *words]
    )
    with Inspector(DEVICE) as inspector:
        yield inspector


def test_a_text_that_fails_takes_no_other_along(failing: Inspector) -> None:
    def pid() -> object:
        answer = failing.inspect("fine", (), ())
        return answer.macros["pid"]

    first = pid()
    assert pid() == first
    for fault, said in (("aborts", "SIGABRT"), ("hangs", "no answer within 0.01 s"), ("refuses", "out of resources")):
        kept = pid()
        failing.inspect(f"poisons {fault}", (), ())
        fresh = pid()  # its answer is of a process that the text before has not been in
        assert fresh != kept
        for _ in range(2):  # of the process that answered, and of one in which there was nothing before
            with pytest.raises(WorkerError, match=said):
                failing.inspect(fault, (), ())
        assert pid() not in (kept, fresh)


@pytest.mark.device
def test_a_draft_ends_its_process(tmp_path: Path, pids: list[int]) -> None:
    (tmp_path / "a.cl").write_text(TEXT)
    drafted = CliRunner().invoke(app, ["new", str(tmp_path / "a.cl")])
    assert "give it with -D MIRRORED=1" in drafted.stderr
    assert [state_of(pid) for pid in pids] == [""]
