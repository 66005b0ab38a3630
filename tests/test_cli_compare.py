"""`compare`, as a user types it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from autotune import devices
from autotune.devices import find_device
from autotune.errors import SetupError
from autotune.study import Problem, Study
from tests.commands import one_error, own_place, run, searched, stored
from tests.stored import DEVICE, ok, put_in

pytestmark = pytest.mark.device

__all__ = ["own_place", "searched", "stored"]  # fixtures


PRODUCT = """
name = "product"
kernel = "product.cl"
[sizes]
M = 8
N = 8
K = 8
[parameters]
WG.values = [1, 2]
[arguments]
A = { type = "float", shape = ["M", "K"], access = "in" }
B = { type = "float", shape = ["K", "N"], access = "in" }
C = { type = "float", shape = ["M", "N"], access = "out" }
[[launch]]
entry = "product"
global = ["M * WG"]
local = ["WG"]
arguments = ["N", "K", "A", "B", "C"]
[reference]
numpy = { C = "A @ B" }
[tolerance]
absolute = 1e-4
[work]
flops = "2 * M * N * K"
"""


PRODUCT_SOURCE = """
kernel void product(int N, int K, global const float *A, global const float *B, global float *C)
{
    const int m = get_group_id(0);
    for (int n = get_local_id(0); n < N; n += get_local_size(0)) {
        float sum = 0;
        for (int k = 0; k < K; ++k)
            sum += A[m * K + k] * B[k * N + n];
        C[m * N + n] = sum;
    }
}
"""


def test_compare_by_parameter_spends_equal_trials_and_draws() -> None:
    result = run("compare", "./saxpy.toml", "--by", "WG", "--trials", "2", "--chart", "wg.svg", "--json")
    cells = json.loads(result.stdout)["cells"]
    assert [(cell["value"], cell["trials"]) for cell in cells] == [(32, 2), (64, 2), (8192, 0)]
    assert cells[0]["best"]["configuration"]["WG"] == 32
    assert "not possible" in cells[2]["reason"]
    picture = Path("wg.svg").read_text()
    assert "saxpy: best per WG" in picture
    assert "GFLOPS" in picture
    again = run("compare", "./saxpy.toml", "--by", "WG", "--trials", "2")
    assert "trials on" not in again.stderr
    assert "not possible" in again.stdout


@pytest.mark.usefixtures("stored")
def test_compare_by_size_over_a_list_of_the_study() -> None:
    run("compare", "./saxpy.toml", "--by", "size", "--sizes", "ladder", "--trials", "1", "--chart", "sizes.png")
    assert Path("sizes.png").read_bytes().startswith(b"\x89PNG")
    shown = run("compare", "./saxpy.toml", "--by", "size", "--sizes", "100,1000", "--no-search").stdout
    assert re.search(r"^N=100 .*WPT=", shown, re.MULTILINE)


@pytest.mark.usefixtures("stored")
def test_compare_by_device_shows_the_devices_here() -> None:
    fingerprint = find_device(None).fingerprint
    cells = json.loads(run("compare", "./saxpy.toml", "--by", "device", "--trials", "1", "--json").stdout)["cells"]
    assert cells[0]["value"] == fingerprint
    assert cells[0]["best"]["outcome"] == "ok"
    named = run("compare", "./saxpy.toml", "--by", "device", "-d", fingerprint, "--no-search").stdout
    assert fingerprint in named


ELSEWHERE = replace(DEVICE, name="NVIDIA H999")
"""A device that no machine has, not even the one that runs these tests."""


@pytest.fixture(name="elsewhere")
def _elsewhere() -> None:
    """Results of a device that is not here, at two sizes: the larger work-group is faster at the larger one."""
    study = Study.load("./saxpy.toml")
    for size, slower in ((100, 64), (1000, 32)):
        problem = Problem(study, {"N": size}, device=ELSEWHERE)
        trials = [ok({"WPT": 1, "WG": group}, *[2000 if group == slower else 1000] * 5) for group in (32, 64)]
        put_in(Path("own.db"), trials, key=problem.key, device=ELSEWHERE)


@pytest.mark.usefixtures("elsewhere")
def test_what_is_stored_of_a_device_elsewhere_is_compared_and_covered() -> None:
    words = ("--sizes", "100,1000", "-d", "H999", "--no-search", "--json")
    cells = json.loads(run("compare", "./saxpy.toml", "--by", "WG", *words).stdout)["cells"]
    assert {cell["device"] for cell in cells} == {ELSEWHERE.fingerprint}
    times = {(cell["size"]["N"], cell["value"]): cell["best"] and cell["best"]["time_ns"] for cell in cells}
    assert times == {(100, 32): 1000, (100, 64): 2000, (100, 8192): None} | {
        (1000, 32): 2000, (1000, 64): 1000, (1000, 8192): None
    }  # fmt: skip
    assert len(json.loads(run("cover", "./saxpy.toml", "-k", "2", *words).stdout)["configurations"]) == 2
    assert "H999" in one_error(run("compare", "./saxpy.toml", "--by", "WG", "-d", "H999", code=2))


@pytest.mark.usefixtures("elsewhere")
def test_without_a_device_the_one_that_is_stored_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise SetupError("no OpenCL device was found")

    for name in ("find_device", "list_devices"):
        monkeypatch.setattr(devices, name, none)
    shown = run("compare", "./saxpy.toml", "--by", "device", "--size", "100", "--no-search").stdout
    assert ELSEWHERE.fingerprint in shown
    result = run("compare", "./saxpy.toml", "--by", "WG", "--size", "100", "--no-search")
    assert f"answered for {ELSEWHERE.fingerprint}, the only one stored" in result.stderr


def test_compare_a_product_with_host_baselines_and_end_to_end() -> None:
    Path("product.toml").write_text(PRODUCT)
    Path("product.cl").write_text(PRODUCT_SOURCE)
    words = ("--by", "size", "--sizes", "8", "--trials", "1", "--baselines", "--chart", "product.svg")
    result = run("compare", "./product.toml", *words)
    for part in (
        "NumPy BLAS (host)",
        "Strassen (host)",
        "OpenCL, end to end",
        "OpenCL, next use",
        "set-up",
        "kernel alone",
    ):
        assert part in result.stdout, result.stderr
    picture = Path("product.svg").read_text()
    for part in ("NumPy BLAS (host)", "OpenCL, kernel alone", "OpenCL, end to end", "M = N = K"):
        assert f">{part}<" in picture


@pytest.mark.parametrize(
    ("words", "sizes"),
    [
        (["--sizes", "100,200"], [100, 200]),
        (["--size", "100,200"], [100, 200]),
        (["--size", "N=300"], [300]),
        (["--size", "100", "--sizes", "ladder"], [100, 1000]),
    ],
)
def test_compare_takes_size_as_well_as_sizes(words: list[str], sizes: list[int]) -> None:
    result = run("compare", "./saxpy.toml", "--by", "WG", "--no-search", "--json", *words, code=1)
    found = [cell["size"]["N"] for cell in json.loads(result.stdout)["cells"]]
    assert list(dict.fromkeys(found)) == sizes


def test_several_named_sizes_are_one_size_as_elsewhere() -> None:
    Path("product.toml").write_text(PRODUCT)
    Path("product.cl").write_text(PRODUCT_SOURCE)
    words = ("--by", "size", "--size", "M=64", "--size", "N=32", "--no-search", "--json")
    (cell,) = json.loads(run("compare", "./product.toml", *words, code=1).stdout)["cells"]
    assert (cell["size"]["M"], cell["size"]["N"]) == (64, 32)


def test_compare_with_nothing_stored_ends_with_1() -> None:
    assert "no verified configuration" in one_error(run("compare", "./saxpy.toml", "--by", "WG", "--no-search", code=1))
