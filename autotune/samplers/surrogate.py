"""The model of one search: turn its trials into targets, and predict from them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autotune.samplers.base import History, State
from autotune.samplers.features import Features
from autotune.samplers.gaussian import (
    SLOPE,
    Floats,
    Hyper,
    Posterior,
    Prior,
    fit,
    leave_one_out,
    log_expected_improvement,
)
from autotune.space import Space

Rows = NDArray[np.int64]

CAP = 0.8
"""Times above this quantile of those seen count as that quantile: how slow the slow ones are teaches nothing."""

GROWTH, GROWTH_STEP = 1.3, 50
"""The model is fitted anew when the number of finished trials has grown by this factor, or by this number."""

LEARNED = 200
"""A fit uses at most so many trials: half of them the fastest, the others chosen at random."""

FITTED = 160
"""So many trials, chosen likewise, decide the hyperparameters."""

POOL = 20_000
"""Spaces with more rows are scored on a random sample of this many, drawn anew at each fit."""

LEAST_KNOWN = 3
"""With at least so many failed and so many successful trials, test whether failures depend on the parameters."""

GAIN_DRAWS = 256


class View:
    """The basis of a model: here only the features, without expected times.

    `prior` is that of the model, `first_fit` the number of finished trials from which on there is a model. `scale` is
    the unit of the expected log time (None: the deviation of the seen ones). `least_cap` is the least distance, in log
    time, between the best time and the cap of the targets.
    """

    first_fit = 8
    scale: float | None = None
    least_cap = 0.0

    def __init__(self, features: Features) -> None:
        self.prior = Prior(features.lengths)
        self._features = features

    def encode(self, rows: Rows) -> tuple[Floats, Floats]:
        """Return coordinates (n, size), linear beyond `prior.lengths`, and the expected log time over the best (n,)."""
        return self._features.of_rows(rows), np.zeros(len(rows))


def fits_at(finished: int, first: int) -> int:
    """Return the number of finished trials at the last fit that is due; it depends only on the arguments; 0: none."""
    if finished < first:
        return 0
    due = first
    while (after := min(int(np.ceil(due * GROWTH)), due + GROWTH_STEP)) <= finished:
        due = after
    return due


@dataclass(frozen=True)
class Targets:
    """Scaled log times of some trials minus the expected ones; NaN if unknown.

    `values` has shape (n,); a difference of d means a factor of exp(d * scale). `best` is the lowest time,
    scaled likewise but without the expectation.
    """

    values: Floats
    best: float
    scale: float


def targets(history: History, positions: list[int], expected: Floats, view: View, lot: bool = False) -> Targets:
    """Return the targets of the trials at these positions of the history; at least one must be timed.

    Failures count as the cap or, if they are random (`lot`), as unknown like trials in flight. A lower bound is used
    as the time: a trial is stopped only if it is clearly slower than the best, and no more needs to be known of slow
    ones.
    """
    states = history.states[positions]
    logs = np.log(history.times[positions])
    timed = states == State.TIMED
    logs -= logs[timed].min()
    cap = max(float(np.quantile(logs[timed | (states == State.BOUNDED)], CAP)), view.least_cap)
    values = np.where(states == State.FAILED, np.nan if lot else cap, np.minimum(logs, cap))
    shift, scale = 0.0, view.scale
    if scale is None:
        known = values[~np.isnan(values)]
        shift, scale = float(known.mean()), max(float(known.std()), 1e-6)
    return Targets((values - shift - expected) / scale, -shift / scale, scale)


def by_lot(points: Floats, failed: NDArray[np.bool_], prior: Prior) -> bool:
    """Return whether other trials predict failures (n,) at points (n, size) no better than the share of failures does.

    Then failures are random: they do not tell where to search, and the model is better without them.
    """
    count = len(failed)
    if min(failed.sum(), count - failed.sum()) < LEAST_KNOWN:
        return False
    hyper = Hyper(np.append(prior.centre[:-3], np.log([0.25, 0.05, SLOPE])))  # of 0 and 1
    foretold = leave_one_out(points, failed.astype(np.float64), hyper)[0]
    share = (failed.sum() - failed) / (count - 1)
    return bool(np.square(failed - foretold).sum() > np.square(failed - share).sum())


class Surrogate:
    """A Gaussian process of a search's trials, and its predictions at the candidate `rows`."""

    def __init__(self, space: Space, view: View, seed: int) -> None:
        self._space = space
        self._view = view
        self._seed = seed
        self.due = -1  # finished trials at the last fit
        self.evidence = 0.0  # how well that fit predicts its trials
        self._by_lot = False
        self.rows: Rows = np.arange(0)
        self._drawn = -1  # finished trials when `rows` were drawn
        self._points, self._expected = view.encode(self.rows)  # of all trials, in the order asked
        self._candidates, self._candidates_expected = view.encode(self.rows)
        self._positions: list[int] = []  # of the trials that the model uses, in the order of the posterior
        self._considered = 0  # all positions below are used or skipped
        self._held: set[int] = set()
        self._posterior: Posterior

    def update(self, history: History) -> None:
        """Take in new trials, in flight or done, and the results of those that were in flight."""
        points, expected = self._view.encode(history.rows[len(self._points) :])
        self._points = np.vstack([self._points, points])
        self._expected = np.append(self._expected, expected)
        due = fits_at(int((history.states != State.RUNNING).sum()), self._view.first_fit)
        if due != self.due:
            self._fit(history, due)
        failed = history.states == State.FAILED
        for position in range(self._considered, len(history.rows)):
            if position not in self._held and not (self._by_lot and failed[position]):
                self._posterior.add(self._points[position])
                self._positions.append(position)
        self._considered = len(history.rows)
        expected = self._expected[self._positions]
        found = targets(history, self._positions, expected, self._view, self._by_lot)
        self._filled = self._posterior.impute(found.values)
        self.scale, self.best = found.scale, found.best
        # A trial in flight that is predicted to be better must be beaten too, so that its gain is not sought twice.
        self.to_beat = min(self.best, float((self._filled + expected / self.scale).min()))

    def _fit(self, history: History, due: int) -> None:
        """Fit to the first `due` finished trials and start the posterior with those that the model uses."""
        self._draw(due)
        finished = np.flatnonzero(history.states != State.RUNNING)[:due]
        rng = np.random.default_rng([self._seed, due])
        learned = _learned(history, finished, LEARNED, rng)
        prior = self._view.prior
        self.hyper = Hyper(prior.centre)
        if (history.states[learned] == State.TIMED).any():
            fitted = _learned(history, finished, FITTED, rng)
            failed = history.states[fitted] == State.FAILED
            self._by_lot = by_lot(self._points[fitted], failed, prior)
            if self._by_lot:
                worked = history.states != State.FAILED
                fitted, learned = ([at for at in some if worked[at]] for some in (fitted, learned))
            found = targets(history, fitted, self._expected[fitted], self._view, self._by_lot)
            self.hyper = fit(self._points[fitted], found.values, prior)
            self.evidence = self._foresight(history, fitted, found)
        self._posterior = Posterior(self._candidates, self._points[learned], self.hyper)
        self._positions = learned
        self._held = set(finished.tolist())
        self._considered = 0
        self.due = due

    def _foresight(self, history: History, fitted: list[int], found: Targets) -> float:
        """Return how well the others predict each trial: the summed log density of the faster trials' log times."""
        mean, variances = leave_one_out(self._points[fitted], found.values, self.hyper)
        deviation = np.sqrt(variances)
        density = -0.5 * np.square((found.values - mean) / deviation) - np.log(deviation * found.scale)
        times = np.where(history.states[fitted] == State.TIMED, history.times[fitted], np.inf)
        return float(density[times <= np.quantile(times[np.isfinite(times)], CAP)].sum())

    def predict(self, rows: Rows) -> tuple[Floats, Floats]:
        """Return means and deviations (n,) of the scaled log time at some rows; cheap for rows in `self.rows`."""
        at = self._at(rows)
        if at is not None:
            mean, deviation = self._posterior.predict(self._filled, at)
            return mean + self._candidates_expected[at] / self.scale, deviation
        candidates, expected = self._view.encode(rows)
        mean, deviation = self._posterior.moved(candidates).predict(self._filled)
        return mean + expected / self.scale, deviation

    def log_improvement(self, rows: Rows, below: float) -> Floats:
        """Return the logarithms of the expected improvement of rows (n,) below a scaled log time."""
        return log_expected_improvement(*self.predict(rows), below)

    def _at(self, rows: Rows) -> Rows | None:
        """Return the positions of rows among the candidates; None if one is not among them."""
        if len(self.rows) == len(self._space):
            return rows
        at = np.minimum(np.searchsorted(self.rows, rows), len(self.rows) - 1)
        return at if np.array_equal(self.rows[at], rows) else None

    def gain(self, rows: Rows, rng: np.random.Generator) -> float:
        """Return the share of the best time, 0..1, that trying some candidate rows is expected to save."""
        mean = self.predict(rows)[0]
        covariance = self._posterior.covariance(np.searchsorted(self.rows, rows))
        values, vectors = np.linalg.eigh(covariance)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        draws = mean + rng.standard_normal((GAIN_DRAWS, len(rows))) @ root.T
        saved = np.maximum(self.best - draws.min(axis=1), 0.0) * self.scale
        return float(np.mean(1.0 - np.exp(-saved)))

    def expected_best(self, count: int) -> Rows:
        """Return the rows that are expected to be the fastest before any trial, the fastest first."""
        self._draw(0)
        return self.rows[np.argsort(self._candidates_expected, kind="stable")[:count]]

    def _draw(self, due: int) -> None:
        """Set the candidates: all rows, or a random sample in a large space."""
        few = len(self._space) <= POOL
        if due == self._drawn or (few and len(self.rows)):
            return
        rng = np.random.default_rng([self._seed, due])
        self._drawn = due
        self.rows = np.arange(len(self._space)) if few else np.sort(self._space.sample(rng, POOL))
        self._candidates, self._candidates_expected = self._view.encode(self.rows)


def _learned(history: History, finished: NDArray[np.int64], most: int, rng: np.random.Generator) -> list[int]:
    """Return the positions of the finished trials, at most `most`: half of these the fastest, half random."""
    if len(finished) <= most:
        return [int(position) for position in finished]
    times = np.where(history.states[finished] == State.TIMED, history.times[finished], np.inf)
    order = np.argsort(times, kind="stable")
    others = rng.permutation(order[most // 2 :])[: most - most // 2]
    return sorted(int(position) for position in finished[np.append(order[: most // 2], others)])
