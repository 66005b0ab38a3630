"""A Gaussian process with a Matern 5/2 kernel: its prior, its covariances, and how it is fitted.

Rasmussen and Williams, "Gaussian Processes for Machine Learning" (2006), chapters 2, 4 and 5. The prior on
the lengths keeps parameters from being switched on by a handful of trials; its centre, about the diameter
of the scaled space, follows Hvarfner et al., "Vanilla Bayesian Optimization Performs Great in High
Dimensions" (ICML 2024).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, cholesky
from scipy.linalg.lapack import dpotrf, dpotri
from scipy.optimize import minimize

Floats = NDArray[np.float64]

JITTER = 1e-8
_BOUND = 4.0  # hyperparameters stay within so many deviations of their prior
_ITERATIONS = 30
CONSTANT = 10.0
"""Variance of the unknown mean. What was tried is better than what was not, so its mean is a poor guess of it."""


@dataclass(frozen=True)
class Prior:
    """Normal priors on the logarithms of the hyperparameters, for targets of variance about 1.

    Of the coordinates the last `linear` are linear terms of the mean, with coefficients of variance `slope`
    around 0; the others, scaled to 0..1, are those of the process.
    """

    length: float = 2.0
    length_spread: float = 0.5
    signal: float = 1.0
    noise: float = 1e-3
    noise_spread: float = 1.5
    slope: float = 0.1
    linear: int = 0

    def centre(self, size: int) -> Floats:
        """Means of the logarithms for `size` coordinates: lengths, signal, noise, slope."""
        lengths = np.full(size - self.linear, self.length)
        return np.asarray(np.log(np.r_[lengths, self.signal, self.noise, self.slope]))

    def spread(self, size: int) -> Floats:
        """Deviations of the logarithms."""
        lengths = np.full(size - self.linear, self.length_spread)
        return np.asarray(np.r_[lengths, 1.0, self.noise_spread, 1.0])


@dataclass(frozen=True)
class Hyper:
    """Logarithms of the lengths, the variances of the process, the noise and the slopes, as one vector."""

    vector: Floats
    linear: int

    @property
    def inverse_lengths(self) -> Floats:
        """What to multiply coordinates of the process by."""
        return np.asarray(np.exp(-self.vector[:-3]))

    @property
    def signal(self) -> float:
        """Variance of the process."""
        return float(np.exp(self.vector[-3]))

    @property
    def noise(self) -> float:
        """Variance of an observation around the process."""
        return float(np.exp(self.vector[-2])) + JITTER

    @property
    def slope(self) -> float:
        """Variance of the linear coefficients."""
        return float(np.exp(self.vector[-1]))


def guess(size: int, prior: Prior) -> Hyper:
    """What to take before there is anything to fit to."""
    return Hyper(prior.centre(size), prior.linear)


def fit(points: Floats, targets: Floats, prior: Prior) -> Hyper:
    """The most probable hyperparameters given targets (n,) at points (n, size).

    Always started at the prior's centre, so that the result depends on the data alone.
    """
    size = points.shape[1]
    centre, spread = prior.centre(size), prior.spread(size)
    process, linear = _split(points, prior.linear)
    squares = np.square(process.T[:, :, None] - process.T[:, None, :]).reshape(process.shape[1], -1)
    result = minimize(
        _loss,
        centre,
        args=(squares, linear @ linear.T, targets, centre, spread),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": _ITERATIONS},
        bounds=list(zip(centre - _BOUND * spread, centre + _BOUND * spread, strict=True)),
    )
    return Hyper(result.x, prior.linear)


def _split(points: Floats, linear: int) -> tuple[Floats, Floats]:
    size = points.shape[1] - linear
    return points[:, :size], points[:, size:]


def _loss(
    vector: Floats,
    squares: Floats,
    products: Floats,
    targets: Floats,
    centre: Floats,
    spread: Floats,
) -> tuple[float, Floats]:
    """Negative log posterior and its gradient; `squares` (size, n*n) are squared coordinate differences."""
    count = len(targets)
    precision = np.exp(-2.0 * vector[:-3])
    signal, noise, slope = np.exp(vector[-3:])
    root = np.sqrt(5.0 * (precision @ squares)).reshape(count, count)
    decay = np.exp(-root)
    process = signal * (1.0 + root + np.square(root) / 3.0) * decay
    covariance = process + slope * products + CONSTANT + (noise + JITTER) * np.eye(count)
    lower, failed = dpotrf(covariance, lower=1, clean=1)
    if failed:
        return 1e10, np.zeros_like(vector)
    inverse = dpotri(lower, lower=1)[0]
    inverse = np.tril(inverse) + np.tril(inverse, -1).T
    weights = inverse @ targets
    away = (vector - centre) / spread
    loss = 0.5 * targets @ weights + np.log(np.diag(lower)).sum() + 0.5 * away @ away
    steep = inverse - np.outer(weights, weights)
    shared = steep * ((5.0 / 3.0) * signal * (1.0 + root) * decay)
    gradient = away / spread
    gradient[:-3] += 0.5 * (squares @ shared.ravel()) * precision
    gradient[-3] += 0.5 * (steep * process).sum()
    gradient[-2] += 0.5 * noise * np.trace(steep)
    gradient[-1] += 0.5 * slope * (steep * products).sum()
    return float(loss), gradient


def covariances(first: Floats, second: Floats, hyper: Hyper) -> Floats:
    """Covariances (n, m) between points (n, size) and (m, size)."""
    (a, p), (b, q) = _split(first, hyper.linear), _split(second, hyper.linear)
    a, b = a * hyper.inverse_lengths, b * hyper.inverse_lengths
    root = a @ b.T  # in place from here on: there may be 20,000 x 200 of them
    root *= -2.0
    root += np.square(a).sum(axis=1)[:, None]
    root += np.square(b).sum(axis=1)[None, :]
    np.maximum(root, 0.0, out=root)
    root *= 5.0
    np.sqrt(root, out=root)
    result = root / 3.0
    result += 1.0
    result *= root
    result += 1.0
    result *= hyper.signal
    np.negative(root, out=root)
    result *= np.exp(root, out=root)
    result += CONSTANT
    if hyper.linear:
        result += hyper.slope * (p @ q.T)
    return np.asarray(result)


def variance(points: Floats, hyper: Hyper) -> Floats:
    """The diagonal of their kernel, shape (n,)."""
    linear = _split(points, hyper.linear)[1]
    return np.asarray(hyper.signal + CONSTANT + hyper.slope * np.square(linear).sum(axis=1))


def weigh(points: Floats, targets: Floats, hyper: Hyper) -> Floats:
    """Weights (n,) such that covariances (m, n) with the points times them are the means at m candidates."""
    covariance = covariances(points, points, hyper) + hyper.noise * np.eye(len(points))
    return np.asarray(cho_solve((cholesky(covariance, lower=True), True), targets))
