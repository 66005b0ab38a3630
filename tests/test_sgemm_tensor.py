"""The tensor cores of the sgemm study: where they are offered, and on an NVIDIA GPU how accurate they are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from autotune.errors import SpaceError
from autotune.model import DeviceInfo, Value
from autotune.opencl import Session, list_devices
from autotune.problem import GENERIC_DEVICE, Problem
from autotune.study import Study
from tests.test_kernels import Runner

Array = NDArray[Any]
Shape = tuple[int, int, int]

STUDY = Study.load("sgemm")
GPU = next((device for device in list_devices() if device.vendor_name == "nvidia"), None)
H200 = replace(
    GENERIC_DEVICE, vendor="NVIDIA Corporation", compute_units=132, local_memory=49152, compute_capability="9.0"
)
AMD = replace(GENERIC_DEVICE, vendor="Advanced Micro Devices, Inc.", compute_units=60)
CPU = replace(GENERIC_DEVICE, kind="cpu", compute_units=2)


def problem(shape: Shape, device: DeviceInfo, choice: str = "ON", **fix: Value) -> Problem:
    fixed = {name: [value] for name, value in fix.items()}
    return Problem(STUDY, dict(zip("MNK", shape, strict=True)), {"TENSOR_CORES": choice}, device, fix=fixed)


def test_tensor_cores_are_off_until_chosen() -> None:
    assert Problem(STUDY, {"M": 64, "N": 64, "K": 64}, device=H200).choices["TENSOR_CORES"] == "OFF"


@pytest.mark.parametrize(("device", "choice"), [(H200, "OFF"), (AMD, "ON"), (CPU, "ON")])
def test_elsewhere_they_are_refused_with_the_reason(device: DeviceInfo, choice: str) -> None:
    with pytest.raises(SpaceError, match="tensor cores need the choice TENSOR_CORES=ON and an NVIDIA GPU"):
        len(problem((64, 64, 64), device, choice, METHOD="TENSOR").space)


@pytest.mark.parametrize("shape", [(1, 1, 1), (7, 6, 14), (1600, 1600, 1007), (2048, 2048, 2048), (8192, 8192, 8192)])
def test_every_size_has_a_space_worth_searching(shape: Shape) -> None:
    space = problem(shape, H200).space
    rows = [space.configuration(row) for row in range(0, len(space), 7)]
    assert len(space) >= 200
    assert {row["METHOD"] for row in rows} == {"TENSOR"}
    assert {row["VECTOR_A"] for row in rows} == {4 if shape[2] % 4 == 0 else 2 if shape[2] % 2 == 0 else 1}


def test_local_memory_beyond_what_the_driver_reports_is_used() -> None:
    largest = problem((4096, 4096, 4096), H200, TILE_M=64, TILE_N=128, TILE_K=32, STAGES=3).default
    stage = largest["TILE_M"] * (largest["TILE_K"] + 4) + largest["TILE_K"] * (largest["TILE_N"] + 8)  # type: ignore[operator]
    assert H200.local_memory < 4 * 3 * stage <= 98304


class Nvidia(Runner):
    """A runner on the NVIDIA GPU, whose compiler warns of what it does to PTX."""

    def __init__(self, device: DeviceInfo) -> None:
        self.device = device
        self._session = Session(device)
        self._kernels = {}


def inputs(kind: str, shape: Shape) -> dict[str, Array]:
    rows, columns, depth = shape
    random = np.random.default_rng([depth, rows])
    a, b = random.standard_normal((rows, depth)), random.standard_normal((depth, columns))
    if kind == "badly scaled":
        a *= 10.0 ** random.uniform(-6, 6, a.shape)
        b *= 10.0 ** random.uniform(-6, 6, b.shape)
    if kind == "cancelling":
        half = depth // 2
        a[:, half : 2 * half] = -a[:, :half] * (1 + 1e-6 * random.standard_normal((rows, half)))
        b[half : 2 * half] = b[:half]
    return {"A": a.astype(np.float32), "B": b.astype(np.float32)}


def error(runner: Runner, shape: Shape, data: dict[str, Array], choice: str, **fix: Value) -> float:
    """The largest |C - C64| / (|A||B|)."""
    case = problem(shape, runner.device, choice, **fix)
    output = runner.run(case.plan(case.default), data)["C"]
    a, b = data["A"].astype(np.float64), data["B"].astype(np.float64)
    worst: Any = (np.abs(output - a @ b) / (np.abs(a) @ np.abs(b))).max()
    return float(worst)


@pytest.fixture(scope="module")
def nvidia() -> Runner:
    assert GPU is not None
    return Nvidia(GPU)


@pytest.mark.skipif(GPU is None, reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("kind", ["random", "badly scaled", "cancelling"])
@pytest.mark.parametrize("tile_k", [16, 32])
def test_they_are_as_accurate_as_fused_multiply_adds(nvidia: Runner, kind: str, tile_k: int) -> None:
    for depth in (1, 2, 3, 5, 8, 16, 31, 64, 100, 255, 256, 257, 512, 1007, 2048):
        shape = (131, 260, depth)
        data = inputs(kind, shape)
        plain = error(nvidia, shape, data, "OFF")
        assert error(nvidia, shape, data, "ON", TILE_K=tile_k) <= 1.5 * plain, depth
