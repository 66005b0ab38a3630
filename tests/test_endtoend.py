"""One use of a kernel on the real device, in a fresh process, step by step."""

from __future__ import annotations

import pytest

from autotune.device import find_device
from autotune.endtoend import end_to_end
from autotune.errors import WorkerError
from autotune.problem import Problem
from tests.studies import study


def test_every_step_takes_time_on_the_device() -> None:
    device = find_device(None)
    problem = Problem(study(), device=device)
    cost = end_to_end(problem.plan(problem.default), device)
    steps = (cost.setup, cost.build, cost.transfer, cost.kernel, cost.read_back)
    assert all(step > 0 for step in steps)
    assert cost.total == sum(steps)
    assert cost.build > cost.read_back  # no cache answers


def test_a_kernel_that_does_not_build_is_one_line() -> None:
    device = find_device(None)
    problem = Problem(study(source="kernel void saxpy( {"), device=device)
    with pytest.raises(WorkerError, match=r"end to end: .*CL_BUILD_PROGRAM_FAILURE"):
        end_to_end(problem.plan(problem.default), device)
