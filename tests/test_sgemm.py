"""The sgemm study against NumPy in float64, at sizes that nothing divides; guards and poison as in test_kernels."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.model import DeviceInfo, Value
from autotune.study import GENERIC_DEVICE, Problem, Study, input_data
from tests.test_kernels import Runner

pytestmark = pytest.mark.device

Config = dict[str, Value]
Shape = tuple[int, int, int]

STUDY = Study.load("sgemm")
ANY: list[Shape] = [(1, 1, 1), (7, 7, 7), (63, 65, 129), (65, 63, 7), (129, 1, 63), (1, 129, 65), (131, 127, 101)]
EVEN: list[Shape] = [(1, 2, 2), (7, 6, 14), (63, 66, 130), (131, 126, 22)]
FOURS: list[Shape] = [(1, 4, 4), (7, 8, 12), (63, 68, 132), (131, 124, 20)]
DEEP: list[Shape] = [(1, 1, 259), (63, 31, 257), (65, 31, 1031)]
SMALL: Config = {"TILE_K": 8, "WPT_M": 4, "WPT_N": 4}  # builds fast: the main loop of a GPU is unrolled
CASES: dict[str, tuple[str, Config, list[Shape]]] = {
    "default": ("here", {}, ANY),
    "fours": ("here", {"VECTOR_A": 4, "VECTOR_B": 4, "FMA_ORDER": "COLUMN", "LANES_M": 8, "VECTOR_N": 8}, FOURS),
    "wide": ("here", {"TILE_K": 32, "WPT_M": 4, "WPT_N": 16, "VECTOR_N": 16, "PAD_A": 0, "GROUP_M": 8}, ANY),
    "two stages": ("gpu", {**SMALL, "TILE_M": 32}, ANY),
    "single multiplications": ("gpu", {**SMALL, "FMA_WIDTH": 1, "FMA_ORDER": "COLUMN", "GROUP_M": 8}, ANY),
    "pairs": ("gpu", {**SMALL, "VECTOR_A": 2, "VECTOR_B": 2, "FMA_ORDER": "SERPENTINE", "WPT_N": 8}, EVEN),
    "split K": ("gpu", {**SMALL, "SPLIT_K": 4, "TILE_N": 32}, DEEP),
}


def gpu(vendor: str, units: int, local_memory: int) -> DeviceInfo:
    return replace(GENERIC_DEVICE, kind="gpu", vendor=vendor, compute_units=units, local_memory=local_memory)


NVIDIA = replace(gpu("NVIDIA Corporation", 132, 49152), compute_capability="9.0")
AMD = gpu("Advanced Micro Devices, Inc.", 60, 65536)


@pytest.fixture(scope="module")
def runner() -> Runner:
    return Runner()


def error_in_tolerances(runner: Runner, shape: Shape, configuration: Config, device: DeviceInfo | None = None) -> float:
    """Return the largest |C - C64| in units of the study's tolerance, for a configuration of `device` run on PoCL."""
    problem = problem_of(shape, device or runner.device)
    assert configuration in problem.space
    plan = problem.plan(configuration)
    data = input_data(problem)
    output = runner.run(plan, data)["C"]
    wanted = data["A"].astype(np.float64) @ data["B"].astype(np.float64)
    assert output.shape == wanted.shape
    assert plan.outputs["C"].relative == 0
    worst: Any = (np.abs(output - wanted) / plan.outputs["C"].absolute).max()
    assert np.isfinite(worst)
    return float(worst)


@cache
def problem_of(shape: Shape, device: DeviceInfo) -> Problem:
    """Return one problem for all configurations: building its space takes longer than running them."""
    return Problem(STUDY, dict(zip("MNK", shape, strict=True)), device=device)


def completed(partial: Config, shape: Shape, device: DeviceInfo) -> Config:
    """Return the configuration with these values that is nearest to the default."""
    if not partial:
        return problem_of(shape, device).default
    fix = {name: [value] for name, value in partial.items()}
    return Problem(STUDY, dict(zip("MNK", shape, strict=True)), device=device, fix=fix).default


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.processor] * (case in ("fours", "wide"))) for case in CASES]
)
def test_each_feature_is_right_at_every_size(runner: Runner, case: str) -> None:
    kind, partial, shapes = CASES[case]
    device = runner.device if kind == "here" else AMD
    configuration = completed(partial, shapes[0], device)
    for shape in shapes:
        assert error_in_tolerances(runner, shape, configuration, device) <= 1, shape


@settings(max_examples=10, derandomize=True)
@given(shape=st.tuples(*[st.integers(1, 200)] * 3))
def test_the_default_is_right_at_any_size(runner: Runner, shape: Shape) -> None:
    assert error_in_tolerances(runner, shape, completed({}, shape, runner.device)) <= 1


def test_the_tolerance_is_tight(runner: Runner) -> None:
    """Rounding uses a good part of it: an error of a few units in the last place of every product would not pass."""
    assert error_in_tolerances(runner, (131, 127, 1031), completed({}, (131, 127, 1031), runner.device)) > 0.05


@pytest.mark.parametrize("device", [NVIDIA, AMD])
@pytest.mark.parametrize("shape", [(1024, 1024, 1024), (4096, 4096, 4096), (1600, 1600, 1007), (1, 1, 1)])
def test_gpus_have_ten_thousand_valid_configurations(device: DeviceInfo, shape: Shape) -> None:
    problem = problem_of(shape, device)
    asynchronous = problem.space.indices()[:, problem.space.names.index("COPY_B")]
    assert problem.default in problem.space
    if device is NVIDIA:
        assert len(problem.space) >= 10_000
        assert asynchronous.any()
    else:
        assert len(problem.space) >= 200
        assert not asynchronous.any()


def test_cpus_have_ten_thousand_valid_configurations() -> None:
    cpu = replace(GENERIC_DEVICE, kind="cpu", compute_units=2)
    problem = Problem(STUDY, {"M": 512, "N": 512, "K": 512}, device=cpu)
    assert len(problem.space) >= 10_000
