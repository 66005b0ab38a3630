"""How much a candidate is worth trying."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, ndtr

Array = NDArray[np.float64]

_ROOT_2PI = np.sqrt(2.0 * np.pi)


def log_expected_improvement(mean: Array, deviation: Array, best: float) -> Array:
    """Logarithm of the expected improvement below `best` of normal predictions, any shape.

    Computed so that it orders candidates also where the improvement itself underflows (Ament et al.,
    "Unexpected Improvements to Expected Improvement", NeurIPS 2023).
    """
    z = (best - mean) / deviation
    value = np.exp(-0.5 * np.square(z)) / _ROOT_2PI + z * ndtr(z)
    result = np.log(np.maximum(value, 1e-300))
    far = z < -5.0
    if far.any():
        result[far] = _far_tail(z[far])
    return np.asarray(result + np.log(deviation))


def _far_tail(z: Array) -> Array:
    """log(phi(z) + z Phi(z)) for z < -5, by the scaled complementary error function."""
    ratio = np.maximum(1.0 + z * np.sqrt(np.pi / 2.0) * erfcx(-z / np.sqrt(2.0)), 1e-300)
    # Beyond -100 the difference above has lost its digits, and its leading term 1/z^2 is exact enough.
    share = np.where(z < -100.0, 1.0 / np.square(z), ratio)
    return np.asarray(-0.5 * np.square(z) - np.log(_ROOT_2PI) + np.log(share))
