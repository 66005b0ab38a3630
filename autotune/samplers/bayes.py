"""The own sampler: Bayesian optimisation over the enumerated valid configurations (docs/search.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna.study import Study
from optuna.trial import FrozenTrial

from autotune.samplers.acquisition import log_expected_improvement
from autotune.samplers.codec import Codec
from autotune.samplers.design import aligned, maximin
from autotune.samplers.features import Features
from autotune.samplers.history import State
from autotune.samplers.model import Model, fits_at
from autotune.samplers.rows import RowSampler

Array = NDArray[np.float64]
Rows = NDArray[np.int64]

START = 8
"""Configurations spread over the space before there is a model."""

START_POOL = 400
"""They are chosen among so many random ones: of a whole space only its corners would be."""

POOL = 20_000
"""Spaces with more rows are scored on a random sample of this many, and around the best row."""

NEAR = 2
"""Every other proposal differs from the best configuration in at most so many parameters."""

NEAR_POOL = 4_000
"""Of a large space at most so many of those, by lot."""


class BayesSampler(RowSampler):
    """Expected improvement under a Gaussian process of the logarithm of the time, on every untried row."""

    def __init__(self, codec: Codec, seed: int) -> None:
        super().__init__(codec, seed)
        self._features = Features(self.space)
        self._whole = len(self.space) <= POOL
        self._rows: Rows = np.arange(len(self.space) if self._whole else 0)
        self._indices = self.space.indices(self._rows)
        self._candidates = self._features.of_indices(self._indices)
        self._points: Array = np.zeros((0, self._features.size))
        self._start: Rows | None = None
        self._model: Model | None = None

    def choose(self, study: Study, trial: FrozenTrial, fixed: Mapping[str, Any]) -> int:
        """The next row of the starting design, then the one with the most expected improvement."""
        if len(self.history) < START:
            design = self._design()
            design = design[self.allowed(design, fixed)]
            if len(design):
                return int(design[0])
        model = self._update()
        if model is None:
            return self._farthest(trial, fixed)
        found = self._near(model, fixed, self.random(trial)) if len(self.history) % 2 else None
        found = self._best(self._rows, *model.predict(), model, fixed) if found is None else found
        # A large space's sample may be used up, or not have what was asked for.
        return self._farthest(trial, fixed) if found is None else found

    def _design(self) -> Rows:
        """Rows far from each other, among the better aligned of a random few hundred."""
        if self._start is None:
            rows = self.space.sample(np.random.default_rng(self.seed), START_POOL)
            rows = rows[aligned(self.space, rows)]
            self._start = rows[maximin(self._features.of_rows(rows), START)]
        return self._start

    def _update(self) -> Model | None:
        """The model of all that is known; None while nothing has a time."""
        history = self.history
        if not (history.states == State.TIMED).any():
            return None
        new = history.rows[len(self._points) :]
        self._points = np.vstack([self._points, self._features.of_rows(new)])
        due = fits_at(int((history.states != State.RUNNING).sum()))
        if self._model is None or self._model.finished != due:
            if not self._whole:
                self._rows = self.space.sample(np.random.default_rng([self.seed, due]), POOL)
                self._candidates = self._features.of_rows(self._rows)
            self._model = Model(history, self._points, self._candidates, due, self.seed)
        else:
            self._model.update(history, self._points)
        return self._model

    def _best(
        self, rows: Rows, mean: Array, deviation: Array, model: Model, fixed: Mapping[str, Any]
    ) -> int | None:
        """Of these rows the allowed one with the most expected improvement; None where none is allowed."""
        allowed = self.allowed(rows, fixed)
        if not allowed.any():
            return None
        score = log_expected_improvement(mean, deviation, model.targets.best)
        return int(rows[np.where(allowed, score, -np.inf).argmax()])

    def _near(self, model: Model, fixed: Mapping[str, Any], rng: np.random.Generator) -> int | None:
        """The same among the rows that differ little from the best one."""
        best = self._fastest()
        mean, deviation = model.predict()
        if self._whole:
            close = (self._indices != self._indices[best]).sum(axis=1) <= NEAR
            return self._best(self._rows[close], mean[close], deviation[close], model, fixed)
        rows = self.space.neighbours(best, NEAR)
        rows = rows[self.allowed(rows, fixed)]
        rows = rng.permutation(rows)[:NEAR_POOL]
        if not len(rows):
            return None
        return self._best(rows, *model.predict_at(self._features.of_rows(rows)), model, fixed)

    def _fastest(self) -> int:
        """The row with the lowest time."""
        history = self.history
        return int(history.rows[np.where(history.states == State.TIMED, history.times, np.inf).argmin()])

    def _farthest(self, trial: FrozenTrial, fixed: Mapping[str, Any]) -> int:
        """While everything fails: as far as can be from what has failed."""
        rng = self.random(trial)
        rows = rng.permutation(self.candidates(rng, fixed))[:START_POOL]
        tried = self._features.of_rows(self.history.rows)[-START_POOL:]
        points = self._features.of_rows(rows)
        if not len(tried):
            return int(rows[0])
        distance = np.square(points[:, None, :] - tried[None, :, :]).sum(axis=2).min(axis=1)
        return int(rows[distance.argmax()])

    def expected_gain(self, trials: int) -> float | None:
        """Share of the best time that the next `trials` are expected to save; None without a model.

        The mean over draws from the model's joint prediction at the candidates with the most expected
        improvement. It is as good as the model: it knows of nothing that the model has not seen a sign of.
        """
        model = self._update()
        if model is None:
            return None
        mean, deviation = model.predict()
        allowed = self.allowed(self._rows, {})
        score = np.where(allowed, log_expected_improvement(mean, deviation, model.targets.best), -np.inf)
        chosen = np.argsort(-score)[: min(trials, int(allowed.sum()))]
        return model.gain(chosen, np.random.default_rng([self.seed, len(self.history)]))
