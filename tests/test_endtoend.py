"""One use of a kernel on the real device, in a new process, step by step."""

from __future__ import annotations

import pytest

from autotune.devices import find_device
from autotune.errors import WorkerError
from autotune.reports.fresh import end_to_end
from autotune.study import Buffer, Launch, Plan, Problem, Scalar, Tolerance
from tests.studies import study

pytestmark = pytest.mark.device


def test_every_step_takes_time_on_the_device() -> None:
    device = find_device(None)
    problem = Problem(study(), device=device)
    cost = end_to_end(problem.plan(problem.default), device)
    steps = (cost.setup, cost.build, cost.transfer, cost.kernel, cost.read_back)
    assert all(step > 0 for step in (*steps, cost.next_use))
    assert cost.total == sum(steps)
    assert cost.build > cost.read_back  # no cache answers


def test_a_kernel_that_does_not_build_is_one_line() -> None:
    device = find_device(None)
    problem = Problem(study(source="kernel void saxpy( {"), device=device)
    with pytest.raises(WorkerError, match=r"end to end: .*CL_BUILD_PROGRAM_FAILURE"):
        end_to_end(problem.plan(problem.default), device)


SLOW = """
kernel void slow(global float *y, float4 z) {
    float x = y[0];
    for (int i = 0; i < 100000000; i++)
        x = x * z.x + z.w; // each needs the one before: no machine does it in less than 20 ms
    y[get_global_id(0)] = x;
}
"""


def test_the_run_is_the_kernels_share_and_not_the_builds() -> None:
    plan = Plan(
        source=SLOW,
        options=(),
        launches=(Launch("slow", (1,), (1,), ("y", "z")),),
        arguments={"y": Buffer("y", "float", (1,), (1,), "inout"), "z": Scalar("z", "float4", 0.5)},
        outputs={"y": Tolerance()},
    )
    cost = end_to_end(plan, find_device(None))
    assert cost.kernel > 0.02
    assert cost.next_use > 0.02
