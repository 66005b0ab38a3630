"""The guards around buffers, on a real device: they change where a kernel writes beyond an end."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autotune.bench.arena import Arena, Guarded
from autotune.bench.verify import Checker
from autotune.devices import Session, opencl_objects
from autotune.study import Buffer, Plan

pytestmark = pytest.mark.device

N = 333  # no whole number of words in bytes
OVERRUN = """
kernel void overrun(global const T *x, global T *y, float a, float b) {
    const int i = (int)get_global_id(0) - 32;
    y[i] = (T)(a * x[i] + b * y[i]);
}
"""


def prepared(session: Session, kind: str, access: str) -> tuple[Arena, list[Guarded]]:
    """An input x and an output buffer y of N elements between their guards."""
    arena = Arena(session, {name: np.ones(N) for name in ("x", "y")})
    buffers = {name: Buffer(name, kind, (N,), (N,), way) for name, way in (("x", "in"), ("y", access))}
    return arena, arena.prepare(Plan("", (), (), buffers))


@pytest.mark.parametrize("kind", ["char", "short", "int", "float", pytest.param("double", marks=pytest.mark.doubles)])
@pytest.mark.parametrize(("a", "b"), [(1.0, 0.0), (2.0, 0.0), (2.0, 1.0), (0.0, 2.0)], ids=str)
def test_a_run_over_the_ends_of_input_and_output_alike_shows(session: Session, kind: str, a: float, b: float) -> None:
    _, buffers = prepared(session, kind, "inout")
    kernel = session.build(OVERRUN, [f"-DT={kind}"]).kernel("overrun")
    session.set_arguments(kernel, (buffers[0].view, buffers[1].view, np.float32(a), np.float32(b)))
    session.launch(kernel, (N + 64,), None)
    reason = Checker(session, {}).check(buffers, {}).reason
    for place in ("before its start", "after its end"):
        assert f"kernel wrote outside buffer y (canary {place}: " in reason
    assert "buffer x" not in reason


@pytest.mark.parametrize("kind", ["char", "short", "int"])
@pytest.mark.parametrize("access", ["out", "zeroed", "inout", "scratch"])
def test_what_fills_a_buffer_leaves_its_guards(session: Session, kind: str, access: str) -> None:
    arena, buffers = prepared(session, kind, access)
    arena.poison(buffers[1], 0)
    arena.restore(buffers[1])
    assert Checker(session, {}).check(buffers, {}).reason == ""


@pytest.mark.parametrize(("memory", "kept"), [(2**20, False), (2**30, True)])
def test_buffers_of_other_plans_are_let_go_where_memory_is_short(
    session: Session, monkeypatch: pytest.MonkeyPatch, memory: int, kept: bool
) -> None:
    monkeypatch.setattr(session, "info", replace(session.info, memory=memory))
    arena = Arena(session, {})
    plans = [Plan("", (), (), {"y": Buffer("y", "float", (n,), (n,), "out")}) for n in (N, 2 * N, 3 * N, N)]
    first, *_, again = [arena.prepare(plan)[0] for plan in plans]
    assert (again is first) == kept


def test_a_large_buffer_is_filled_in_parts(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opencl_objects, "MOST_FILLED", 64)
    buffer, found = session.allocate(400), np.zeros(100, np.uint32)
    session.fill(buffer, 1, 0, 400)
    session.fill(buffer, 2, 8, 196)
    session.read(buffer, found)
    assert found.tolist() == [1] * 2 + [2] * 49 + [1] * 49
