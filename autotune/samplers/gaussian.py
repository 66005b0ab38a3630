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


@dataclass(frozen=True)
class Hyper:
    """Logarithms of the lengths (size,), the signal variance and the noise variance, as one vector."""

    vector: Array

    @property
    def inverse_lengths(self) -> Array:
        """What to multiply coordinates by, shape (size,)."""
        return np.exp(-self.vector[:-2])

    @property
    def signal(self) -> float:
        """Variance of the process."""
        return float(np.exp(self.vector[-2]))

    @property
    def noise(self) -> float:
        """Variance of an observation around the process."""
        return float(np.exp(self.vector[-1])) + _JITTER


@dataclass(frozen=True)
class Prior:
    """Normal priors on the logarithms, for targets of variance 1 and coordinates in 0..1."""

    length: float = 2.0
    length_spread: float = 0.5
    signal: float = 1.0
    signal_spread: float = 1.0
    noise: float = 1e-3
    noise_spread: float = 1.5

    def mean(self, size: int) -> Array:
        """Means of the logarithms for a space of `size` coordinates."""
        return np.asarray(np.log(np.r_[np.full(size, self.length), self.signal, self.noise]))

    def spread(self, size: int) -> Array:
        """Deviations of the logarithms."""
        return np.asarray(np.r_[np.full(size, self.length_spread), self.signal_spread, self.noise_spread])


def fit(points: Array, targets: Array, prior: Prior) -> Hyper:
    """The most probable hyperparameters given targets (n,) at points (n, size).

    Always started at the prior's centre, so that the result depends on the data alone.
    """
    size = points.shape[1]
    centre, spread = prior.mean(size), prior.spread(size)
    squares = np.square(points.T[:, :, None] - points.T[:, None, :]).reshape(size, -1)
    result = minimize(
        _loss,
        centre,
        args=(squares, targets, centre, spread),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": _ITERATIONS},
        bounds=list(zip(centre - _BOUND * spread, centre + _BOUND * spread, strict=True)),
    )
    return Hyper(result.x)


def _loss(vector: Array, squares: Array, targets: Array, centre: Array, spread: Array) -> tuple[float, Array]:
    """Negative log posterior and its gradient; `squares` (size, n*n) are squared coordinate differences."""
    count = len(targets)
    precision = np.exp(-2.0 * vector[:-2])
    signal, noise = np.exp(vector[-2]), np.exp(vector[-1])
    root = np.sqrt(5.0 * (precision @ squares)).reshape(count, count)
    decay = np.exp(-root)
    process = signal * (1.0 + root + np.square(root) / 3.0) * decay
    lower, failed = dpotrf(process + (noise + _JITTER) * np.eye(count), lower=1, clean=1)
    if failed:
        return 1e10, np.zeros_like(vector)
    inverse = dpotri(lower, lower=1)[0]
    inverse = np.tril(inverse) + np.tril(inverse, -1).T
    weights = inverse @ targets
    away = (vector - centre) / spread
    loss = 0.5 * targets @ weights + np.log(np.diag(lower)).sum() + 0.5 * away @ away
    slope = inverse - np.outer(weights, weights)
    shared = slope * ((5.0 / 3.0) * signal * (1.0 + root) * decay)
    gradient = away / spread
    gradient[:-2] += 0.5 * (squares @ shared.ravel()) * precision
    gradient[-2] += 0.5 * (slope * process).sum()
    gradient[-1] += 0.5 * noise * np.trace(slope)
    return float(loss), gradient


def kernel(first: Array, second: Array, hyper: Hyper) -> Array:
    """Covariances (n, m) of the process between points (n, size) and (m, size)."""
    a, b = first * hyper.inverse_lengths, second * hyper.inverse_lengths
    squares = np.square(a).sum(axis=1)[:, None] + np.square(b).sum(axis=1)[None, :] - 2.0 * (a @ b.T)
    root = np.sqrt(5.0 * np.maximum(squares, 0.0))
    return np.asarray(hyper.signal * (1.0 + root + np.square(root) / 3.0) * np.exp(-root))


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
        self._solved = np.zeros((capacity, len(candidates)))
        self._solved[:count] = solve_triangular(
            self._lower[:count, :count], kernel(points, candidates, hyper), lower=True
        )
        self._variance = hyper.signal - np.square(self._solved[:count]).sum(axis=0)
        self.count = count

    @property
    def full(self) -> bool:
        """True where no more points fit: make a new one."""
        return self.count == len(self.points)

    def add(self, point: Array) -> None:
        """Add a point of shape (size,)."""
        n = self.count
        here = kernel(point[None, :], self._candidates, self._hyper)[0]
        there = kernel(point[None, :], self.points[:n], self._hyper)[0]
        row = solve_triangular(self._lower[:n, :n], there, lower=True) if n else there
        rest = self._hyper.signal + self._hyper.noise - row @ row
        diagonal = np.sqrt(max(float(rest), _JITTER))
        solved = (here - row @ self._solved[:n]) / diagonal
        self.points[n] = point
        self._lower[n, :n], self._lower[n, n] = row, diagonal
        self._solved[n] = solved
        self._variance -= np.square(solved)
        self.count = n + 1

    def predict(self, targets: Array) -> tuple[Array, Array]:
        """Means and deviations at the candidates, given the targets (points,)."""
        weights = solve_triangular(self._lower[: self.count, : self.count], targets, lower=True)
        return weights @ self._solved[: self.count], np.sqrt(np.maximum(self._variance, 1e-10))

    def covariance(self, chosen: NDArray[np.int64]) -> Array:
        """Posterior covariance (m, m) of some candidates."""
        solved = self._solved[: self.count, chosen]
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
