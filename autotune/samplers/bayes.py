"""Our own sampler: Bayesian optimisation over the enumerated valid configurations (docs/search.md)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from optuna.study import Study
from optuna.trial import FrozenTrial

from autotune.model import Value
from autotune.ranking import median
from autotune.samplers.base import RowSampler, State, one_thread
from autotune.samplers.features import Features
from autotune.samplers.registry import Donors
from autotune.space import Space

if TYPE_CHECKING:
    from autotune.samplers.gaussian import Floats
    from autotune.samplers.surrogate import Rows, Surrogate

START = 6
"""The number of configurations spread over the space before there is a model."""

BLIND = 64
"""With many in flight, many are chosen before anything is timed: up to so many are spread like the start."""

START_POOL = 400
"""They are chosen among so many random ones: from the whole space, only its corners would be chosen."""

NEAR = 2
"""Every other proposal differs from the best configuration in at most so many parameters."""

NEAR_POOL = 4_000
"""In a large space, at most so many of these are candidates, chosen at random."""

NEAR_WALKED = 40_000
"""Where lists of values are long there are millions of them: so many are looked for, by lot."""

DOUBT, DOUBT_FROM = 4, 8
"""With transfer, every fourth proposal from the eighth on comes from a model without other devices' trials."""

LATE = 24
"""From here on, every other proposal does: by then other devices have no more to tell."""

GROUP = 32
"""Threads run in groups of 32 or 64; memory moves in units of 32 bytes and more."""


class BayesSampler(RowSampler):
    """Maximises the expected improvement over untried rows, with a Gaussian process of the logarithm of the time."""

    def __init__(self, space: Space, seed: int, donors: Donors = ()) -> None:
        super().__init__(space, seed)
        self._features = Features(self.space)
        self._informed = self._of_donors(donors) if donors else None
        self._judged, self._verdict = -1, False  # the fit at which the donors were judged, and the result
        self._start: Rows | None = None
        self._table: NDArray[np.int16] | None = None

    def choose(self, study: Study, trial: FrozenTrial) -> int:
        """Return the next row of the start, later the row with the most expected improvement."""
        found = self._from_start()
        if found is None and (self.history.states == State.TIMED).any():
            model = self._cold  # loads SciPy, whose threads must be limited too
            with one_thread():
                found = self._from_model(model, self.random(trial))
        return self._farthest(trial) if found is None else found

    def prepare(self, trials: float) -> None:
        """Load SciPy, unless the search is so short that it ends before the model is used."""
        if trials > START:
            import_module("autotune.samplers.surrogate")

    @cached_property
    def _cold(self) -> Surrogate:
        """The model that knows only the trials of this search."""
        from autotune.samplers.surrogate import Surrogate, View

        return Surrogate(self.space, View(self._features), self.seed)

    def _of_donors(self, donors: Donors) -> Surrogate | None:
        from autotune.samplers.surrogate import Surrogate
        from autotune.samplers.transfer import transfer_view

        with one_thread():
            view = transfer_view(self.space, self._features, donors)
            return Surrogate(self.space, view, self.seed) if view else None

    def _from_start(self) -> int | None:
        """Return the next row before a model can be used; None if there is a model or the start is used up."""
        in_flight = int((self.history.states == State.RUNNING).sum())
        blind = not (self.history.states == State.TIMED).any()
        if self._informed is not None:
            if not blind:
                return None
            start = self._informed.expected_best(START_POOL)
        elif blind or len(self.history.rows) + in_flight < START:
            # The model does not know the results of trials in flight, so it starts earlier by their number.
            start = self._design()
        else:
            return None
        start = start[self.history.allowed(start)]
        return int(start[0]) if len(start) else None

    def _design(self) -> Rows:
        """Return rows far from each other, among the better aligned of a few hundred random ones."""
        if self._start is None:
            rows = self.space.sample(np.random.default_rng(self.seed), START_POOL)
            rows = rows[aligned(self.space, rows)]
            self._start = rows[maximin(self._features.of_rows(rows), BLIND)]
        return self._start

    def _from_model(self, cold: Surrogate, rng: np.random.Generator) -> int | None:
        """Return the most promising row, every other time one near the best; two models take turns."""
        turn = len(self.history.rows)
        if self._informed is None:
            model, near = cold, turn % 2 == 1
        elif turn >= LATE:
            model, near = (self._informed if turn % 2 else cold), turn // 2 % 2 == 1
        elif turn >= DOUBT_FROM and (turn % DOUBT == 0) != self._misled():
            model, near = cold, turn % DOUBT == 1
        else:
            model, near = self._informed, turn % 2 == 1
        model.update(self.history)
        found = self._near(model, rng) if near else None
        return self._promising(model, model.rows) if found is None else found

    def _misled(self) -> bool:
        """Return whether the model predicts this search's trials worse with the donors' trials than without them."""
        assert self._informed is not None
        self._informed.update(self.history)
        if self._informed.due != self._judged:
            self._cold.update(self.history)
            self._judged = self._informed.due
            self._verdict = self._cold.due > 0 and self._cold.evidence > self._informed.evidence
        return self._verdict

    def _near(self, model: Surrogate, rng: np.random.Generator) -> int | None:
        """Return the most promising row among those that differ little from the best one."""
        history = self.history
        times = np.where(history.states == State.TIMED, history.times, np.inf)
        best = int(history.rows[times.argmin()])
        if len(model.rows) < len(self.space):
            rows = self.space.neighbours(best, NEAR, NEAR_WALKED, rng)
            rows = rng.permutation(rows[self.history.allowed(rows)])[:NEAR_POOL]
        else:
            if self._table is None:
                self._table = self.space.indices()
            rows = np.flatnonzero((self._table != self._table[best]).sum(axis=1) <= NEAR)
        return self._promising(model, rows)

    def _promising(self, model: Surrogate, rows: Rows) -> int | None:
        """Return the allowed row with the most expected improvement; None if none of `rows` is allowed."""
        rows = rows[self.history.allowed(rows)]
        if not len(rows):
            return None
        return int(rows[model.log_improvement(rows, model.to_beat).argmax()])

    def _farthest(self, trial: FrozenTrial) -> int:
        """Return a row as far as possible from those tried, while all of them failed."""
        rng = self.random(trial)
        drawn = self.space.sample(rng, 2 * START_POOL)  # in a large space, most rows are untried
        drawn = drawn[self.history.allowed(drawn)]
        rows = drawn[:START_POOL] if len(drawn) else rng.permutation(self.candidates(rng))[:START_POOL]
        tried = self._features.of_rows(self.history.rows[-START_POOL:])
        points = self._features.of_rows(rows)
        if not len(tried):
            return int(rows[0])
        distance = np.square(points[:, None, :] - tried[None, :, :]).sum(axis=2).min(axis=1)
        return int(rows[distance.argmax()])

    def expected_gain(self, trials: int) -> float | None:
        """Return the share of the best time that the next `trials` are expected to save; None without a model.

        It is the mean over draws from the model's joint prediction at the candidates with the most expected
        improvement. So it is only as good as the model, which knows nothing that no trial has shown.
        """
        if len(self.history.rows) < START or not (self.history.states == State.TIMED).any():
            return None
        model = self._informed or self._cold
        model.update(self.history)
        rows = model.rows[self.history.allowed(model.rows)]
        if not len(rows):
            return 0.0
        chosen = rows[np.argsort(-model.log_improvement(rows, model.best))[:trials]]
        return model.gain(chosen, np.random.default_rng([self.seed, len(self.history.rows)]))


def maximin(points: Floats, count: int) -> list[int]:
    """Return positions of points far from each other: the first, then always the farthest from those chosen.

    The greedy rule of Gonzalez ("Clustering to minimize the maximum intercluster distance", 1985).
    `points` has the shape (n, size); at most n are chosen.
    """
    chosen = [0]
    distance = np.square(points - points[0]).sum(axis=1)
    while len(chosen) < min(count, len(points)):
        chosen.append(int(distance.argmax()))
        distance = np.minimum(distance, np.square(points - points[chosen[-1]]).sum(axis=1))
    return chosen


def aligned(space: Space, rows: Rows) -> Rows:
    """Return the positions of the better aligned half of some rows (more if many are equal).

    Counts that can reach a warp (their values go up to 32 or beyond) fit the hardware best as multiples
    of 32, less well as multiples of 16, 8, ...; other parameters do not count.
    """
    score = np.zeros(len(rows))
    indices = space.indices(rows)
    for column, values in enumerate(space.values):
        if _is_count(values):
            bits = [min((int(value) & -int(value)).bit_length() - 1, 5) for value in values]
            score += np.array(bits, dtype=np.float64)[indices[:, column]]
    return np.flatnonzero(score >= median(score.tolist()))  # NumPy's median would import masked arrays


def _is_count(values: Sequence[Value]) -> bool:
    return all(isinstance(value, int) and value > 0 for value in values) and max(map(float, values)) >= GROUP
