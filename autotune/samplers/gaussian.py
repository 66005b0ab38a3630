"""A Gaussian process with a Matern 5/2 kernel: its prior, its fit, its predictions, and the expected improvement.

Rasmussen and Williams, "Gaussian Processes for Machine Learning" (2006), chapters 2, 4 and 5. The prior on
the lengths prevents that a handful of trials makes a parameter seem important; its centre, about the diameter
of the scaled space, follows Hvarfner et al., "Vanilla Bayesian Optimization Performs Great in High
Dimensions" (ICML 2024).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.linalg.lapack import dpotrf, dpotri
from scipy.optimize import minimize
from scipy.special import erfcx, ndtr

Floats = NDArray[np.float64]

JITTER = 1e-8
SLOPE = 0.1
_BOUND = 4.0  # hyperparameters stay within so many deviations of their prior
_ITERATIONS = 30
_ROOT_2PI = np.sqrt(2.0 * np.pi)
CONSTANT = 10.0
"""Variance of the unknown mean. Tried configurations are better than others, so their mean is a poor estimate of it."""


@dataclass(frozen=True)
class Prior:
    """Normal priors on the logarithms of the hyperparameters, for targets of variance about 1.

    The first coordinates, scaled to 0..1, are those of the process: each has a centre in `lengths`. The coordinates
    after them are linear terms of the mean, with coefficients of variance `SLOPE` around 0.
    """

    lengths: tuple[float, ...]
    signal: float = 1.0

    @property
    def centre(self) -> Floats:
        """The means of the logarithms: lengths, signal, noise, slope."""
        return np.log([*self.lengths, self.signal, 1e-3, SLOPE])

    @property
    def spread(self) -> Floats:
        """The standard deviations of the logarithms."""
        return np.array([*[0.5] * len(self.lengths), 1.0, 1.5, 1.0])


class Scaled(NamedTuple):
    """Points prepared for covariances.

    The coordinates of the process divided by their lengths (n, process), the sums of their squares (n,), and the
    linear coordinates (n, linear).
    """

    process: Floats
    squares: Floats
    linear: Floats


@dataclass(frozen=True)
class Hyper:
    """Logarithms of the lengths, the variances of the process, the noise and the slopes, as one vector."""

    vector: Floats

    def scale(self, points: Floats) -> Scaled:
        """Return points (n, size) prepared for `covariances`."""
        size = len(self.vector) - 3
        process = points[:, :size] * np.exp(-self.vector[:-3])
        return Scaled(process, np.square(process).sum(axis=1), points[:, size:])

    @cached_property
    def signal(self) -> float:
        """Variance of the process."""
        return float(np.exp(self.vector[-3]))

    @cached_property
    def noise(self) -> float:
        """Variance of an observation around the process."""
        return float(np.exp(self.vector[-2])) + JITTER

    @cached_property
    def slope(self) -> float:
        """Variance of the linear coefficients."""
        return float(np.exp(self.vector[-1]))


def fit(points: Floats, targets: Floats, prior: Prior) -> Hyper:
    """Return the most probable hyperparameters given targets (n,) at points (n, size).

    The fit always starts at the prior's centre, so that the result depends only on the data.
    """
    centre, spread = prior.centre, prior.spread
    size = len(prior.lengths)
    process, linear = points[:, :size], points[:, size:]
    squares = np.square(process.T[:, :, None] - process.T[:, None, :]).reshape(size, -1)
    result = minimize(
        _loss,
        centre,
        args=(squares, linear @ linear.T, targets, centre, spread),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": _ITERATIONS},
        bounds=list(zip(centre - _BOUND * spread, centre + _BOUND * spread, strict=True)),
    )
    return Hyper(result.x)


def _loss(
    vector: Floats,
    squares: Floats,
    products: Floats,
    targets: Floats,
    centre: Floats,
    spread: Floats,
) -> tuple[float, Floats]:
    """Return the negative log posterior and its gradient; `squares` (size, n*n): squared coordinate differences."""
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


def covariances(first: Scaled, second: Scaled, hyper: Hyper) -> Floats:
    """Return the covariances (n, m) between n and m points."""
    root = first.process @ second.process.T  # in place from here on: the matrix may be 20,000 x 200
    root *= -2.0
    root += first.squares[:, None]
    root += second.squares[None, :]
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
    if first.linear.shape[1]:
        result += hyper.slope * (first.linear @ second.linear.T)
    return np.asarray(result)


def leave_one_out(points: Floats, targets: Floats, hyper: Hyper) -> tuple[Floats, Floats]:
    """Return mean and variance (n,) of each target given all others (Rasmussen and Williams 2006, section 5.4.2)."""
    precision = weigh(points, np.eye(len(points)), hyper)
    variances = 1.0 / np.diag(precision)
    return targets - (precision @ targets) * variances, variances


def variance(points: Scaled, hyper: Hyper) -> Floats:
    """Return the variances of points, the diagonal of their covariances, shape (n,)."""
    return np.asarray(hyper.signal + CONSTANT + hyper.slope * np.square(points.linear).sum(axis=1))


def weigh(points: Floats, targets: Floats, hyper: Hyper) -> Floats:
    """Return weights: the covariances (m, n) of m candidates with the points, times the weights, are their means.

    They are the inverse of the points' own covariances, with the noise, times the targets.
    """
    scaled = hyper.scale(points)
    covariance = covariances(scaled, scaled, hyper) + hyper.noise * np.eye(len(points))
    return np.asarray(cho_solve((cholesky(covariance, lower=True), True), targets))


class Posterior:
    """Predictions at fixed candidates, updated when points are added.

    Adding a point takes (points so far) x (candidates) operations; new targets for the same points take as many.
    With L the Cholesky factor of the points' covariance, it stores inv(L) times the covariance of points and
    candidates: predictions follow from this without another solve.
    """

    def __init__(self, candidates: Floats, points: Floats, hyper: Hyper) -> None:
        self._candidates = candidates
        self._hyper = hyper
        self._scaled = hyper.scale(candidates)
        self._solve(points)

    def _solve(self, points: Floats) -> None:
        """Start with these points, and room for half as many more."""
        hyper, known = self._hyper, self._hyper.scale(points)
        count = len(points)
        capacity = count + count // 2 + 16
        covariance = covariances(known, known, hyper) + hyper.noise * np.eye(count)
        self.points = np.zeros((capacity, points.shape[1]))
        self.points[:count] = points
        self._lower = np.zeros((capacity, capacity))
        self._lower[:count, :count] = cholesky(covariance, lower=True)
        # Single precision: a proposal takes most time to read this, and the noise is far above its rounding errors.
        self._solved = np.zeros((capacity, len(self._candidates)), dtype=np.float32)
        solved = solve_triangular(self._lower[:count, :count], covariances(known, self._scaled, hyper), lower=True)
        self._solved[:count] = solved
        self._variance = variance(self._scaled, hyper) - np.square(solved).sum(axis=0)
        self.count = count

    def moved(self, candidates: Floats) -> Posterior:
        """Return a Posterior with the same points and other candidates (m, size)."""
        return Posterior(candidates, self.points[: self.count], self._hyper)

    def add(self, point: Floats) -> None:
        """Add a point of shape (size,)."""
        if self.count == len(self.points):
            self._solve(self.points)
        n = self.count
        scaled = self._hyper.scale(point[None, :])
        here = covariances(scaled, self._scaled, self._hyper)[0]
        there = covariances(scaled, self._hyper.scale(self.points[:n]), self._hyper)[0]
        row = solve_triangular(self._lower[:n, :n], there, lower=True) if n else there
        rest = variance(scaled, self._hyper)[0] + self._hyper.noise - row @ row
        diagonal = np.sqrt(max(float(rest), JITTER))
        solved = (here - row.astype(np.float32) @ self._solved[:n]) / diagonal
        self.points[n] = point
        self._lower[n, :n], self._lower[n, n] = row, diagonal
        self._solved[n] = solved
        self._variance -= np.square(solved)
        self.count = n + 1

    def predict(self, targets: Floats, at: NDArray[np.int64] | None = None) -> tuple[Floats, Floats]:
        """Return means and deviations at candidates (None: all), given the targets (points,)."""
        weights = solve_triangular(self._lower[: self.count, : self.count], targets, lower=True)
        solved = self._solved[: self.count]
        spread = np.maximum(self._variance, 1e-10)
        few = at is not None and 4 * len(at) < len(spread)  # to copy many takes longer than it saves
        mean = (weights.astype(np.float32) @ (solved[:, at] if few else solved)).astype(np.float64)
        if at is None:
            return mean, np.sqrt(spread)
        return mean if few else mean[at], np.sqrt(spread[at])

    def covariance(self, chosen: NDArray[np.int64]) -> Floats:
        """Return the posterior covariance (m, m) of some candidates."""
        solved = self._solved[: self.count, chosen].astype(np.float64)
        points = self._hyper.scale(self._candidates[chosen])
        return np.asarray(covariances(points, points, self._hyper) - solved.T @ solved)

    def impute(self, targets: Floats) -> Floats:
        """Return the targets with each NaN replaced by its mean given the others (a kriging believer).

        Ginsbourger et al., "Kriging is well-suited to parallelize optimization" (2010).
        """
        unknown = np.isnan(targets)
        if not unknown.any():
            return targets
        lower = self._lower[: self.count, : self.count]
        covariance = lower @ lower.T
        known = ~unknown
        factor = cholesky(covariance[np.ix_(known, known)], lower=True)
        filled = targets.copy()
        filled[unknown] = covariance[np.ix_(unknown, known)] @ cho_solve((factor, True), targets[known])
        return filled


def log_expected_improvement(mean: Floats, deviation: Floats, best: float) -> Floats:
    """Return the logarithm of the expected improvement below `best` of normal predictions, any shape.

    It orders candidates even if the improvement itself underflows (Ament et al., "Unexpected Improvements
    to Expected Improvement", NeurIPS 2023).
    """
    z = (best - mean) / deviation
    value = np.exp(-0.5 * np.square(z)) / _ROOT_2PI + z * ndtr(z)
    result = np.log(np.maximum(value, 1e-300))
    far = z < -5.0
    z = z[far]  # here log(phi(z) + z Phi(z)) is computed with the scaled complementary error function
    ratio = np.maximum(1.0 + z * np.sqrt(np.pi / 2.0) * erfcx(-z / np.sqrt(2.0)), 1e-300)
    # Beyond -100 the difference above has lost its digits, and its leading term 1/z^2 is exact enough.
    share = np.where(z < -100.0, 1.0 / np.square(z), ratio)
    result[far] = -0.5 * np.square(z) - np.log(_ROOT_2PI) + np.log(share)
    return np.asarray(result + np.log(deviation))
