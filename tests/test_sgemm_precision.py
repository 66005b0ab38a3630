"""The accuracy mode of benchmarks/kernels.py: what it multiplies, how, and its tables."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autotune.study import GENERIC_DEVICE
from benchmarks.kernels import precision
from benchmarks.kernels.families import APART, FAMILIES, inputs

pytestmark = pytest.mark.device

H200 = replace(GENERIC_DEVICE, vendor="NVIDIA Corporation", compute_units=132, compute_capability="9.0")


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("depth", [1, 2, 7])
def test_a_family_is_finite_and_always_the_same(family: str, depth: int) -> None:
    first, again = inputs(family, 3, 5, depth), inputs(family, 3, 5, depth)
    for name, shape in (("A", (3, depth)), ("B", (depth, 5))):
        assert first[name].shape == shape
        assert first[name].dtype == np.float32
        assert np.isfinite(first[name]).all()
        assert np.array_equal(first[name], again[name])


@pytest.mark.parametrize("family", ["halves cancel", "neighbours cancel"])
def test_products_that_cancel_do(family: str) -> None:
    data = {name: one.astype(np.float64) for name, one in inputs(family, 9, 9, 64).items()}
    left = np.abs(data["A"] @ data["B"]) / (np.abs(data["A"]) @ np.abs(data["B"]))
    assert 0 < left.max() < 3 * APART


def test_every_method_is_measured_where_it_is_offered() -> None:
    def names(depth: int) -> list[str]:
        return [name for name, _ in precision._methods(H200, {"M": 131, "N": 260, "K": depth})]

    assert names(7) == ["FMA"]
    assert names(8) == ["FMA", "MMA, TILE_K=16", "MMA, TILE_K=32", "WGMMA, TILE_K=16", "WGMMA, TILE_K=32"]


def test_a_table_shows_the_worst_over_the_shapes() -> None:
    found = [
        precision.Found("FMA", family, rows, rows, 8, error, 1e-7)
        for family in FAMILIES
        for rows, error in ((1, 1e-7), (2, 3e-7))
    ]
    table = precision.markdown(found)
    assert "the worst is 3.00" in table
    assert "| random | 3.00 |" in table
