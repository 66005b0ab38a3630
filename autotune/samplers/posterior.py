"""What a Gaussian process predicts at many candidates, cheaply, and how much a candidate is worth trying."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.special import erfcx, ndtr

from autotune.samplers.gaussian import JITTER, Floats, Hyper, covariances, variance

_ROOT_2PI = np.sqrt(2.0 * np.pi)


class Posterior:
    """Predictions at fixed candidates, kept up to date as points are added.

    Adding a point costs (points so far) x (candidates); new targets for the same points cost as much.
    With L the Cholesky factor of the points' covariance, what is kept is inv(L) times the covariance of
    points and candidates: predictions follow from it without another solve.
    """

    def __init__(self, candidates: Floats, points: Floats, hyper: Hyper) -> None:
        self._candidates = candidates
        self._hyper = hyper
        self._scaled, known = hyper.scale(candidates), hyper.scale(points)
        count = len(points)
        capacity = count + count // 2 + 16
        covariance = covariances(known, known, hyper) + hyper.noise * np.eye(count)
        self.points = np.zeros((capacity, candidates.shape[1]))
        self.points[:count] = points
        self._lower = np.zeros((capacity, capacity))
        self._lower[:count, :count] = cholesky(covariance, lower=True)
        # Single precision: reading this is what a proposal costs, and noise is far above its rounding.
        self._solved = np.zeros((capacity, len(candidates)), dtype=np.float32)
        solved = solve_triangular(self._lower[:count, :count], covariances(known, self._scaled, hyper), lower=True)
        self._solved[:count] = solved
        self._variance = variance(self._scaled, hyper) - np.square(solved).sum(axis=0)
        self.count = count

    @property
    def full(self) -> bool:
        """True where no more points fit: `moved` has room."""
        return self.count == len(self.points)

    def moved(self, candidates: Floats) -> Posterior:
        """The same points, predicting at other candidates (m, size)."""
        return Posterior(candidates, self.points[: self.count], self._hyper)

    def add(self, point: Floats) -> None:
        """Add a point of shape (size,)."""
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
        """Means and deviations at candidates (None: all), given the targets (points,)."""
        weights = solve_triangular(self._lower[: self.count, : self.count], targets, lower=True)
        solved = self._solved[: self.count]
        spread = np.maximum(self._variance, 1e-10)
        few = at is not None and 4 * len(at) < len(spread)  # of many, copying costs more than it saves
        mean = (weights.astype(np.float32) @ (solved[:, at] if few else solved)).astype(np.float64)
        if at is None:
            return mean, np.sqrt(spread)
        return mean if few else mean[at], np.sqrt(spread[at])

    def covariance(self, chosen: NDArray[np.int64]) -> Floats:
        """Posterior covariance (m, m) of some candidates."""
        solved = self._solved[: self.count, chosen].astype(np.float64)
        points = self._hyper.scale(self._candidates[chosen])
        return np.asarray(covariances(points, points, self._hyper) - solved.T @ solved)

    def impute(self, targets: Floats) -> Floats:
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


def log_expected_improvement(mean: Floats, deviation: Floats, best: float) -> Floats:
    """Logarithm of the expected improvement below `best` of normal predictions, any shape.

    Computed so that it orders candidates also where the improvement itself underflows (Ament et al.,
    "Unexpected Improvements to Expected Improvement", NeurIPS 2023).
    """
    z = (best - mean) / deviation
    value = np.exp(-0.5 * np.square(z)) / _ROOT_2PI + z * ndtr(z)
    result = np.log(np.maximum(value, 1e-300))
    far = z < -5.0
    result[far] = _far_tail(z[far])
    return np.asarray(result + np.log(deviation))


def _far_tail(z: Floats) -> Floats:
    """log(phi(z) + z Phi(z)) for z < -5, by the scaled complementary error function."""
    ratio = np.maximum(1.0 + z * np.sqrt(np.pi / 2.0) * erfcx(-z / np.sqrt(2.0)), 1e-300)
    # Beyond -100 the difference above has lost its digits, and its leading term 1/z^2 is exact enough.
    share = np.where(z < -100.0, 1.0 / np.square(z), ratio)
    return np.asarray(-0.5 * np.square(z) - np.log(_ROOT_2PI) + np.log(share))
