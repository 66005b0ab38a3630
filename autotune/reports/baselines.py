"""Multiplying on the host, for comparison with a device: NumPy's BLAS and Strassen's algorithm."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import UsageError
from autotune.ranking import median
from autotune.study import Problem, Study, numpy_type

Array = NDArray[Any]

EXTENTS = ("M", "N", "K")
"""A study with these sizes multiplies an `(M, K)` by a `(K, N)` matrix."""

CUTOFF = 512
"""Below this extent Strassen's additions cost more than the multiplication they save."""

_EXACT = 2**53  # integers up to here are exact in float64


def blas(a: Array, b: Array) -> Array:
    """Return `a @ b` for `(m, k)` and `(k, n)`.

    BLAS has no integers, and NumPy's own integer loop is some hundred times slower. So integers are multiplied in
    float64 if every partial sum is exact there, and by NumPy's loop otherwise.
    """
    if a.dtype.kind in "iu" and _bound(a, b) < _EXACT:
        return _wrap(a.astype(np.float64) @ b.astype(np.float64), a.dtype)
    plain: Array = a @ b
    return plain


def strassen(a: Array, b: Array, cutoff: int = CUTOFF) -> Array:
    """Return `a @ b` for `(m, k)` and `(k, n)` of any extents, by seven products instead of eight.

    Strassen, "Gaussian elimination is not optimal", Numer. Math. 13 (1969), in Winograd's form with 15
    additions. Recurs while every extent is above `cutoff`, then multiplies with BLAS. An odd last row, column
    or inner index is peeled off and added by ordinary products (Huss-Lederman et al., SC '96), so nothing is
    padded. Float rounding grows with the depth; integers are exact.
    """
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
        raise ValueError(f"cannot multiply shapes {a.shape} and {b.shape}")
    if a.dtype.kind in "iu":
        depth = max(0, min(*a.shape, b.shape[1]) // max(1, cutoff)).bit_length()
        if _bound(a, b) * 16**depth < _EXACT:  # sums of up to four entries on each side, at each level
            return _wrap(_strassen(a.astype(np.float64), b.astype(np.float64), cutoff), a.dtype)
    return _strassen(a, b, cutoff)


def _strassen(a: Array, b: Array, cutoff: int) -> Array:
    (m, k), n = a.shape, b.shape[1]
    if min(m, k, n) <= max(1, cutoff):
        leaf: Array = a @ b
        return leaf
    m2, k2, n2 = m // 2 * 2, k // 2 * 2, n // 2 * 2
    c = np.empty((m, n), dtype=np.result_type(a, b))
    c[:m2, :n2] = _even(a[:m2, :k2], b[:k2, :n2], cutoff)
    if k2 < k:
        c[:m2, :n2] += np.outer(a[:m2, k2], b[k2, :n2])
    if n2 < n:
        c[:m2, n2:] = a[:m2] @ b[:, n2:]
    if m2 < m:
        c[m2:] = a[m2:] @ b
    return c


def _even(a: Array, b: Array, cutoff: int) -> Array:
    m, k, n = a.shape[0] // 2, a.shape[1] // 2, b.shape[1] // 2
    a11, a12, a21, a22 = a[:m, :k], a[:m, k:], a[m:, :k], a[m:, k:]
    b11, b12, b21, b22 = b[:k, :n], b[:k, n:], b[k:, :n], b[k:, n:]
    s1 = a21 + a22
    s2 = s1 - a11
    t1 = b12 - b11
    t2 = b22 - t1
    p1 = _strassen(a11, b11, cutoff)
    u1 = p1 + _strassen(s2, t2, cutoff)
    u2 = u1 + _strassen(a11 - a21, b22 - b12, cutoff)
    p5 = _strassen(s1, t1, cutoff)
    c = np.empty((2 * m, 2 * n), dtype=p1.dtype)
    c[:m, :n] = p1 + _strassen(a12, b21, cutoff)
    c[:m, n:] = u1 + p5 + _strassen(a12 - s2, b22, cutoff)
    c[m:, :n] = u2 - _strassen(a22, t2 - b21, cutoff)
    c[m:, n:] = u2 + p5
    return c


def _bound(a: Array, b: Array) -> int:
    """An upper bound of every partial sum of the integer product `a @ b`."""
    if not a.size or not b.size:
        return 0
    largest = [max(abs(int(x.min())), abs(int(x.max()))) for x in (a, b)]
    return int(a.shape[1]) * largest[0] * largest[1]


def _wrap(exact: Array, dtype: np.dtype[Any]) -> Array:
    """Convert exact integers in float64 to `dtype`, wrapped around as integer arithmetic does."""
    wrapped: Array = exact.astype(np.int64).astype(dtype)
    return wrapped


def time_host(
    multiply: Callable[[Array, Array], Array],
    a: Array,
    b: Array,
    *,
    budget_s: float = 1.0,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> tuple[int, ...]:
    """Nanoseconds of runs of `multiply(a, b)` after one warm-up: at least 3 runs, more while the budget lasts."""
    multiply(a, b)
    samples: list[int] = []
    while len(samples) < 3 or (sum(samples) + median(samples) < budget_s * 1e9 and len(samples) < 1000):
        begun = clock()
        multiply(a, b)
        samples.append(clock() - begun)
    return tuple(samples)


def require_product(study: Study) -> None:
    """Raise UsageError if a study, by its sizes, is not a matrix product."""
    if not set(EXTENTS) <= set(study.sizes):
        raise UsageError(
            f"{study.name} is not a matrix product (sizes M, N and K)",
            where="--baselines",
            hint="leave --baselines out",
        )


def host_times(problem: Problem, *, budget_s: float = 1.0) -> dict[str, float]:
    """Multiply on the host at a problem's size, in the type of its `T` choice if it has one, else float32.

    Return the median nanoseconds of each way.
    """
    m, n, k = (problem.size[name] for name in EXTENTS)
    dtype, _ = numpy_type(str(problem.choices.get("T", "float")))
    if dtype == np.float16:  # BLAS does not support it
        dtype = np.dtype(np.float32)
    rng = np.random.default_rng(1)
    if dtype.kind == "f":
        a, b = rng.random((m, k)).astype(dtype), rng.random((k, n)).astype(dtype)
    else:
        a, b = rng.integers(0, 8, (m, k)).astype(dtype), rng.integers(0, 8, (k, n)).astype(dtype)
    found = {"NumPy BLAS (host)": blas, "Strassen (host)": strassen}
    return {label: median(time_host(f, a, b, budget_s=budget_s)) for label, f in found.items()}
