"""A Gaussian process with a Matern 5/2 kernel: fitting its lengths, and predicting many candidates cheaply.

Rasmussen and Williams, "Gaussian Processes for Machine Learning" (2006), chapters 2, 4 and 5. The prior on
the lengths keeps parameters from being switched on by a handful of trials; its centre, about the diameter
of the scaled space, follows Hvarfner et al., "Vanilla Bayesian Optimization Performs Great in High
Dimensions" (ICML 2024).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.linalg.lapack import dpotrf, dpotri
from scipy.optimize import minimize

Array = NDArray[np.float64]

_JITTER = 1e-8
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

    def centre(self, size: int) -> Array:
        """Means of the logarithms for `size` coordinates: lengths, signal, noise, slope."""
        lengths = np.full(size - self.linear, self.length)
        return np.asarray(np.log(np.r_[lengths, self.signal, self.noise, self.slope]))

    def spread(self, size: int) -> Array:
        """Deviations of the logarithms."""
        lengths = np.full(size - self.linear, self.length_spread)
        return np.asarray(np.r_[lengths, 1.0, self.noise_spread, 1.0])


@dataclass(frozen=True)
class Hyper:
    """Logarithms of the lengths, the variances of the process, the noise and the slopes, as one vector."""

    vector: Array
    linear: int

    @property
    def inverse_lengths(self) -> Array:
        """What to multiply coordinates of the process by."""
        return np.asarray(np.exp(-self.vector[:-3]))

    @property
    def signal(self) -> float:
        """Variance of the process."""
        return float(np.exp(self.vector[-3]))

    @property
    def noise(self) -> float:
        """Variance of an observation around the process."""
        return float(np.exp(self.vector[-2])) + _JITTER

    @property
    def slope(self) -> float:
        """Variance of the linear coefficients."""
        return float(np.exp(self.vector[-1]))


def guess(size: int, prior: Prior) -> Hyper:
    """What to take before there is anything to fit to."""
    return Hyper(prior.centre(size), prior.linear)


def fit(points: Array, targets: Array, prior: Prior) -> Hyper:
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


def _split(points: Array, linear: int) -> tuple[Array, Array]:
    size = points.shape[1] - linear
    return points[:, :size], points[:, size:]


def _loss(
    vector: Array,
    squares: Array,
    products: Array,
    targets: Array,
    centre: Array,
    spread: Array,
) -> tuple[float, Array]:
    """Negative log posterior and its gradient; `squares` (size, n*n) are squared coordinate differences."""
    count = len(targets)
    precision = np.exp(-2.0 * vector[:-3])
    signal, noise, slope = np.exp(vector[-3:])
    root = np.sqrt(5.0 * (precision @ squares)).reshape(count, count)
    decay = np.exp(-root)
    process = signal * (1.0 + root + np.square(root) / 3.0) * decay
    covariance = process + slope * products + CONSTANT + (noise + _JITTER) * np.eye(count)
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


def kernel(first: Array, second: Array, hyper: Hyper) -> Array:
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


def variance(points: Array, hyper: Hyper) -> Array:
    """The diagonal of their kernel, shape (n,)."""
    linear = _split(points, hyper.linear)[1]
    return np.asarray(hyper.signal + CONSTANT + hyper.slope * np.square(linear).sum(axis=1))


def weigh(points: Array, targets: Array, hyper: Hyper) -> Array:
    """Weights (n,) such that covariances (m, n) with the points times them are the means at m candidates."""
    covariance = kernel(points, points, hyper) + hyper.noise * np.eye(len(points))
    return np.asarray(cho_solve((cholesky(covariance, lower=True), True), targets))


class Posterior:
    """Predictions at fixed candidates, kept up to date as points are added.

    Adding a point costs (points so far) x (candidates); new targets for the same points cost as much.
    With L the Cholesky factor of the points' covariance, what is kept is inv(L) times the covariance of
    points and candidates: predictions follow from it without another solve.
    """

    def __init__(self, candidates: Array, points: Array, hyper: Hyper) -> None:
        self._candidates = candidates
        self._hyper = hyper
        count = len(points)
        capacity = count + count // 2 + 16
        covariance = kernel(points, points, hyper) + hyper.noise * np.eye(count)
        self.points = np.zeros((capacity, candidates.shape[1]))
        self.points[:count] = points
        self._lower = np.zeros((capacity, capacity))
        self._lower[:count, :count] = cholesky(covariance, lower=True)
        # Single precision: reading this is what a proposal costs, and noise is far above its rounding.
        self._solved = np.zeros((capacity, len(candidates)), dtype=np.float32)
        solved = solve_triangular(self._lower[:count, :count], kernel(points, candidates, hyper), lower=True)
        self._solved[:count] = solved
        self._variance = variance(candidates, hyper) - np.square(solved).sum(axis=0)
        self.count = count

    @property
    def full(self) -> bool:
        """True where no more points fit: make a new one."""
        return self.count == len(self.points)

    def enlarged(self) -> Posterior:
        """The same with room for more points."""
        return self.moved(self._candidates)

    def moved(self, candidates: Array) -> Posterior:
        """The same points, predicting at other candidates (m, size)."""
        return Posterior(candidates, self.points[: self.count], self._hyper)

    def add(self, point: Array) -> None:
        """Add a point of shape (size,)."""
        n = self.count
        here = kernel(point[None, :], self._candidates, self._hyper)[0]
        there = kernel(point[None, :], self.points[:n], self._hyper)[0]
        row = solve_triangular(self._lower[:n, :n], there, lower=True) if n else there
        rest = variance(point[None, :], self._hyper)[0] + self._hyper.noise - row @ row
        diagonal = np.sqrt(max(float(rest), _JITTER))
        solved = (here - row.astype(np.float32) @ self._solved[:n]) / diagonal
        self.points[n] = point
        self._lower[n, :n], self._lower[n, n] = row, diagonal
        self._solved[n] = solved
        self._variance -= np.square(solved)
        self.count = n + 1

    def predict(self, targets: Array, at: NDArray[np.int64] | None = None) -> tuple[Array, Array]:
        """Means and deviations at candidates (None: all), given the targets (points,)."""
        weights = solve_triangular(self._lower[: self.count, : self.count], targets, lower=True)
        solved = self._solved[: self.count]
        spread = np.maximum(self._variance, 1e-10)
        few = at is not None and 4 * len(at) < len(spread)  # of many, copying costs more than it saves
        mean = (weights.astype(np.float32) @ (solved[:, at] if few else solved)).astype(np.float64)
        if at is None:
            return mean, np.sqrt(spread)
        return mean if few else mean[at], np.sqrt(spread[at])

    def covariance(self, chosen: NDArray[np.int64]) -> Array:
        """Posterior covariance (m, m) of some candidates."""
        solved = self._solved[: self.count, chosen].astype(np.float64)
        points = self._candidates[chosen]
        return np.asarray(kernel(points, points, self._hyper) - solved.T @ solved)

    def impute(self, targets: Array) -> Array:
        """The targets with each NaN replaced by its mean given the others (a kriging believer).

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
