"""The model of one search: what was tried, turned into targets, and the predictions that follow."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autotune.samplers.gaussian import Hyper, Posterior, Prior, fit
from autotune.samplers.history import History, State

Array = NDArray[np.float64]
Positions = NDArray[np.int64]

CAP = 0.8
"""Times above this quantile of those seen count as that quantile: how slow the slow are teaches nothing."""

GROWTH, GROWTH_STEP = 1.3, 50
"""The model is fitted anew when the finished trials have grown by this factor, or by this number."""

FIRST_FIT = 8
"""The number of finished trials at the first fit, or fewer where fewer are finished."""

GAIN_DRAWS = 256

LEARNED = 250
"""At most so many trials are learned from at a fit: beyond it the fastest half, and others by lot."""


def fits_at(finished: int) -> int:
    """The number of finished trials at the last fit that is due by now: the same however one got here."""
    due = FIRST_FIT
    while (after := min(int(np.ceil(due * GROWTH)), due + GROWTH_STEP)) <= finished:
        due = after
    return min(due, finished)


@dataclass(frozen=True)
class Targets:
    """Scaled log times of some trials: `values` (n,), NaN for those in flight; `best` the lowest that is timed.

    A value is (log time - `shift`) / `scale`, so that a difference of d means a factor of exp(d * scale).
    """

    values: Array
    best: float
    shift: float
    scale: float
    cap: float


def targets(history: History, positions: Positions) -> Targets:
    """The targets of the trials at these positions of the history, at least one of them timed.

    Failures count as the cap. A lower bound stands for the time: a trial is stopped only where it is clearly
    slower than the best, and of what is slow no more needs to be known.
    """
    states = history.states[positions]
    logs = np.log(history.times[positions])
    timed = states == State.TIMED
    cap = float(np.quantile(logs[timed | (states == State.BOUNDED)], CAP))
    values = np.where(states == State.FAILED, cap, np.minimum(logs, cap))
    known = values[states != State.RUNNING]
    shift, scale = float(known.mean()), max(float(known.std()), 1e-6)
    best = float(logs[timed].min())
    return Targets((values - shift) / scale, (best - shift) / scale, shift, scale, (cap - shift) / scale)


class Model:
    """A Gaussian process of the trials of a history, and its predictions at fixed candidates."""

    def __init__(self, history: History, points: Array, candidates: Array, finished: int, seed: int) -> None:
        """`points` (k, size) are the history's; `finished` the number of them to fit to."""
        self.finished = finished
        considered = np.flatnonzero(history.states != State.RUNNING)[:finished]
        learned = _learned(history, considered, np.random.default_rng([seed, finished]))
        self._passed_over = set(considered.tolist()) - set(learned.tolist())
        self._positions = learned.tolist()
        self.hyper: Hyper = fit(points[learned], targets(history, learned).values, Prior())
        self._candidates = candidates
        self._posterior = Posterior(candidates, points[learned], self.hyper)
        self.update(history, points)

    def update(self, history: History, points: Array) -> None:
        """Take in the trials that are new, in flight or done, and what has come of those in flight."""
        here = set(self._positions) | self._passed_over
        for position in range(len(history)):
            if position not in here:
                if self._posterior.full:
                    self._posterior = Posterior(self._candidates, self._posterior.points, self.hyper)
                self._posterior.add(points[position])
                self._positions.append(position)
        self.targets = targets(history, np.array(self._positions))
        self._filled = self._posterior.impute(self.targets.values)

    def predict(self) -> tuple[Array, Array]:
        """Means and deviations of the scaled log time at the candidates."""
        return self._posterior.predict(self._filled)

    def predict_at(self, candidates: Array) -> tuple[Array, Array]:
        """The same at other candidates, shape (m, size)."""
        points = self._posterior.points[: self._posterior.count]
        return Posterior(candidates, points, self.hyper).predict(self._filled)

    def gain(self, chosen: Positions, rng: np.random.Generator) -> float:
        """The share of the best time, 0..1, that trying the chosen candidates is expected to save."""
        if not len(chosen):
            return 0.0
        mean = self.predict()[0][chosen]
        covariance = self._posterior.covariance(chosen) + 1e-8 * np.eye(len(chosen))
        values, vectors = np.linalg.eigh(covariance)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        draws = mean + rng.standard_normal((GAIN_DRAWS, len(chosen))) @ root.T
        saved = np.maximum(self.targets.best - draws.min(axis=1), 0.0) * self.targets.scale
        return float(np.mean(1.0 - np.exp(-saved)))


def _learned(history: History, considered: Positions, rng: np.random.Generator) -> Positions:
    if len(considered) <= LEARNED:
        return considered
    times = np.where(history.states[considered] == State.TIMED, history.times[considered], np.inf)
    order = np.argsort(times, kind="stable")
    others = rng.permutation(order[LEARNED // 2 :])[: LEARNED - LEARNED // 2]
    return np.sort(considered[np.concatenate([order[: LEARNED // 2], others])])
