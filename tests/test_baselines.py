"""Strassen and BLAS on the host: right for every shape, exact for integers."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.errors import UsageError
from autotune.reports.baselines import blas, host_times, require_product, strassen, time_host
from autotune.study import Problem, Study
from tests.studies import study as saxpy

EXTENT = st.integers(1, 40)


@settings(max_examples=60)
@given(m=EXTENT, k=EXTENT, n=EXTENT, cutoff=st.integers(1, 12), seed=st.integers(0, 99))
def test_strassen_is_exact_for_integers_of_any_shape(m, k, n, cutoff, seed):
    rng = np.random.default_rng(seed)
    a = rng.integers(-1000, 1000, (m, k), dtype=np.int32)
    b = rng.integers(-1000, 1000, (k, n), dtype=np.int32)
    c = strassen(a, b, cutoff)
    assert c.dtype == np.int32
    np.testing.assert_array_equal(c, a @ b)


@pytest.mark.parametrize("shape", [(1, 1, 1), (129, 65, 127), (130, 64, 128), (257, 3, 200)])
def test_strassen_stays_near_float64_in_float32(shape):
    m, k, n = shape
    rng = np.random.default_rng(1)
    a = rng.uniform(-1, 1, (m, k)).astype(np.float32)
    b = rng.uniform(-1, 1, (k, n)).astype(np.float32)
    c = strassen(a, b, cutoff=16)
    assert c.dtype == np.float32
    np.testing.assert_allclose(c, a.astype(np.float64) @ b.astype(np.float64), atol=2e-6 * k + 1e-6)


@pytest.mark.parametrize("multiply", [blas, lambda a, b: strassen(a, b, 4)])
def test_integers_wrap_around_as_numpys_do(multiply):
    a = np.full((9, 9), 2**30 + 3, dtype=np.int32)
    b = np.full((9, 9), 2**30 + 7, dtype=np.int32)
    np.testing.assert_array_equal(multiply(a, b), a @ b)
    np.testing.assert_array_equal(multiply(a, np.full_like(b, 5)), a @ np.full_like(b, 5))


def test_strassen_multiplies_seven_times_per_level(monkeypatch):
    import autotune.reports.baselines as baselines

    leaves = []
    plain = baselines._strassen

    def counted(a, b, cutoff):
        if min(*a.shape, b.shape[1]) <= cutoff:
            leaves.append(a.shape)
        return plain(a, b, cutoff)

    monkeypatch.setattr(baselines, "_strassen", counted)
    strassen(np.ones((32, 32)), np.ones((32, 32)), cutoff=8)
    assert leaves == [(8, 8)] * 49


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"\(2, 3\) and \(2, 3\)"):
        strassen(np.ones((2, 3)), np.ones((2, 3)))


def test_timing_repeats_until_the_budget_is_spent():
    ticks = itertools.count(0, 100_000_000)
    samples = time_host(blas, np.ones((2, 2)), np.ones((2, 2)), budget_s=1.0, clock=lambda: next(ticks))
    assert samples == (100_000_000,) * 9
    ticks = itertools.count(0, 5_000_000_000)
    assert len(time_host(blas, np.ones((2, 2)), np.ones((2, 2)), clock=lambda: next(ticks))) == 3


def product(**choices):
    table = {
        "name": "product", "source": "kernel void f(global float *C) {}", "sizes": {"M": 33, "N": 20, "K": 40},
        "choices": {"T": ["float", "int", "half"]}, "parameters": {"P": {"values": [1]}},
        "arguments": {"C": {"type": "T", "shape": ["M", "N"], "access": "out"}},
        "launch": [{"entry": "f", "global": ["M"], "arguments": ["C"]}], "reference": {"numpy": {"C": "zeros((M, N))"}},
    }  # fmt: skip
    return Problem(Study(**table), choices=choices)


@pytest.mark.parametrize("choice", ["float", "int", "half"])
def test_host_times_have_a_label_and_a_median_for_every_type(choice):
    found = host_times(product(T=choice), budget_s=0.0)
    assert list(found) == ["NumPy BLAS (host)", "Strassen (host)"]
    assert all(ns > 0 for ns in found.values())


def test_only_a_matrix_product_has_host_baselines():
    require_product(product().study)
    with pytest.raises(UsageError, match="saxpy is not a matrix product"):
        require_product(saxpy())
