"""The tensor cores of the sgemm study: where they are offered, what they multiply, and how accurate they are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from autotune.devices import list_devices, open_session
from autotune.errors import SpaceError
from autotune.model import DeviceInfo, Value
from autotune.study import GENERIC_DEVICE, Problem, Study, input_data
from benchmarks.kernels.accuracy import product
from benchmarks.kernels.families import FAMILIES, inputs
from tests.test_kernels import Runner

pytestmark = pytest.mark.device

Array = NDArray[Any]
Shape = tuple[int, int, int]

STUDY = Study.load("sgemm")
GPU = next((device for device in list_devices() if device.vendor_name == "nvidia"), None)
H200 = replace(
    GENERIC_DEVICE, vendor="NVIDIA Corporation", compute_units=132, local_memory=49152, compute_capability="9.0"
)
A100 = replace(H200, compute_units=108, compute_capability="8.0")
AMD = replace(GENERIC_DEVICE, vendor="Advanced Micro Devices, Inc.", compute_units=60)
CPU = replace(GENERIC_DEVICE, kind="cpu", compute_units=2)
METHODS = ("MMA", "WGMMA")


def problem(shape: Shape, device: DeviceInfo, choice: str = "ON", **fix: Value) -> Problem:
    fixed = {name: [value] for name, value in fix.items()}
    return Problem(STUDY, dict(zip("MNK", shape, strict=True)), {"TENSOR_CORES": choice}, device, fix=fixed)


def methods(case: Problem) -> set[Value]:
    return {case.space.configuration(row)["METHOD"] for row in range(0, len(case.space), 7)}


# --- where they are offered ---------------------------------------------------------------------------


def test_tensor_cores_are_off_until_chosen() -> None:
    assert Problem(STUDY, {"M": 64, "N": 64, "K": 64}, device=H200).choices["TENSOR_CORES"] == "OFF"


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("device", "choice"), [(H200, "OFF"), (AMD, "ON"), (CPU, "ON")])
def test_elsewhere_they_are_refused_with_the_reason(device: DeviceInfo, choice: str, method: str) -> None:
    with pytest.raises(SpaceError, match="tensor cores need the choice TENSOR_CORES=ON, an NVIDIA GPU"):
        len(problem((64, 64, 64), device, choice, METHOD=method).space)


def test_wgmma_needs_hopper() -> None:
    assert methods(problem((4096, 4096, 4096), H200)) == {"MMA", "WGMMA"}
    assert methods(problem((4096, 4096, 4096), A100)) == {"MMA"}
    with pytest.raises(SpaceError, match="compute capability 9"):
        len(problem((4096, 4096, 4096), A100, METHOD="WGMMA").space)


@pytest.mark.parametrize("shape", [(131, 260, 8), (1600, 1600, 1007), (2048, 2048, 2048), (8192, 8192, 8192)])
def test_every_size_has_a_space_worth_searching(shape: Shape) -> None:
    case = problem(shape, H200)
    assert len(case.space) >= 500
    assert methods(case) == {"MMA", "WGMMA"}
    assert case.default["METHOD"] == "MMA"  # what every device of capability 8.0 runs


def test_a_small_depth_goes_by_fused_multiply_adds() -> None:
    assert methods(problem((2048, 2048, 7), H200)) == {"FMA"}


def test_local_memory_beyond_what_the_driver_reports_is_used() -> None:
    largest = problem((4096, 4096, 4096), H200, METHOD="WGMMA", TILE_M=128, TILE_N=128, TILE_K=32, STAGES=4).default
    stage = 6 * largest["TILE_K"] * (largest["TILE_M"] + largest["TILE_N"])  # type: ignore[operator]
    assert H200.local_memory < 4 * stage <= 221 * 1024


# --- what they multiply -------------------------------------------------------------------------------

HEAD = "#define UNROLL\n"
EXTREMES = np.array([0, 1, -1, 3.4028234e38, -3.4e38, 1e-30, 1 / 3, 255.99998, 1.0039062, 1 + 2**-23], np.float32)


def parts_of(matrix: Array, tile: int, tile_k: int) -> Array:
    """Return the parts of A's rows in the kernel's layout: [tile, panel, part, row of the tile, k of the panel]."""
    rows, depth = matrix.shape
    tiles, panels = -(-rows // tile), -(-depth // tile_k) * tile_k // 8
    source = HEAD + (STUDY.text.kernel_path.parent / "sgemm_parts.cl").read_text()
    options = (f"-DTILE_M={tile}", f"-DTILE_N={tile}", f"-DTILE_K={tile_k}")
    session = open_session(list_devices()[0])
    kernel = session.build(source, [*options, "-cl-std=CL1.2", "-Werror"]).kernel("decompose")
    out = np.full((2, tiles, panels, 3, tile, 8), 0xFFFF, np.uint16)
    data = [np.ascontiguousarray(matrix), np.ascontiguousarray(matrix.T), out[0], out[1]]  # B is A's transpose
    buffers = [session.allocate(one.nbytes) for one in data]
    for buffer, one in zip(buffers, data, strict=True):
        session.write(buffer, one)
    session.set_arguments(kernel, [np.int32(rows), np.int32(rows), np.int32(depth), *buffers])
    session.launch(kernel, (-(-4 * tiles * tile // 256) * 256, panels // 2), (256, 1))
    session.finish()
    session.read(buffers[2], out[0])
    session.read(buffers[3], out[1])
    assert np.array_equal(out[0], out[1])
    return (out[0].astype(np.uint32) << 16).view(np.float32)


@pytest.mark.parametrize(("rows", "depth"), [(1, 1), (37, 31), (65, 44), (129, 32)])
def test_the_parts_of_a_float_add_up_to_it(rows: int, depth: int) -> None:
    matrix = np.random.default_rng(rows).uniform(-1, 1, (rows, depth)).astype(np.float32)
    matrix.flat[: len(EXTREMES)] = EXTREMES[: matrix.size]
    parts = parts_of(matrix, 64, 16).astype(np.float64)
    tiles, panels = parts.shape[:2]
    whole = np.zeros((tiles * 64, panels * 8))
    whole[:rows, :depth] = matrix
    assert np.array_equal(parts.sum(axis=2).transpose(0, 2, 1, 3).reshape(whole.shape), whole)
    high, middle, low = (np.abs(parts[:, :, part]) for part in range(3))
    assert (middle <= 2.0**-7 * high).all()
    assert (low <= 2.0**-15 * high).all()


def test_what_is_not_finite_becomes_nan() -> None:
    matrix = np.array([[np.inf, -np.inf, np.nan, 1]], np.float32)
    matrix.view(np.uint32)[0, 2] = 0x7FFFFFFF  # NVIDIA's, whose upper half overflows where it is rounded
    parts = parts_of(matrix, 64, 16)[0, 0, :, 0, :4]
    assert np.isnan(parts.sum(axis=0)).tolist() == [True, True, True, False]


# --- how accurate they are ----------------------------------------------------------------------------


class Nvidia(Runner):
    """A runner on the NVIDIA GPU, whose compiler warns about its treatment of PTX."""

    def __init__(self, device: DeviceInfo) -> None:
        self.device = device
        self._session = open_session(device)
        self._kernels = {}


def error(runner: Runner, shape: Shape, data: dict[str, Array], choice: str, **fix: Value) -> float:
    """Return the largest |C - C64| / (|A||B|)."""
    case = problem(shape, runner.device, choice, **fix)
    return product(data, runner.run(case.plan(case.default), data)["C"])


@pytest.fixture(scope="module")
def nvidia() -> Runner:
    if GPU is None:
        pytest.skip("needs an NVIDIA GPU")
    return Nvidia(GPU)


def skip_unless_offered(method: str, device: DeviceInfo) -> None:
    if method not in methods(problem((512, 512, 512), device)):
        pytest.skip(f"{device.name} has no {method}")


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("tile_k", [16, 32])
@pytest.mark.parametrize("method", METHODS)
def test_they_are_as_accurate_as_fused_multiply_adds(nvidia: Runner, method: str, tile_k: int, family: str) -> None:
    skip_unless_offered(method, nvidia.device)
    for depth in (8, 31, 64, 255, 512, 1007, 2048):
        data = inputs(family, 131, 260, depth)
        plain = error(nvidia, (131, 260, depth), data, "OFF")
        assert error(nvidia, (131, 260, depth), data, "ON", METHOD=method, TILE_K=tile_k) <= 1.5 * plain, depth


@pytest.mark.parametrize("method", METHODS)
def test_they_are_right_at_every_size(nvidia: Runner, method: str) -> None:
    skip_unless_offered(method, nvidia.device)
    for shape in ((1, 1, 8), (63, 65, 129), (65, 63, 130), (129, 1, 67), (1, 129, 65), (131, 127, 1031)):
        for fix in ({}, {"STAGES": 3, "GROUP_M": 8}, {"SPLIT_K": 2} if shape[2] > 1000 else {"STAGES": 4}):
            case = problem(shape, nvidia.device, METHOD=method, **fix)
            data = input_data(case)
            assert product(data, nvidia.run(case.plan(case.default), data)["C"]) < 2e-7, (shape, fix)
