"""The own sampler: Bayesian optimisation over the enumerated valid configurations (docs/search.md)."""

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
"""Configurations spread over the space before there is a model."""

BLIND = 64
"""Many in flight are chosen before anything is timed: up to so many are spread like the start."""

START_POOL = 400
"""They are chosen among so many random ones: of a whole space only its corners would be."""

NEAR = 2
"""Every other proposal differs from the best configuration in at most so many parameters."""

NEAR_POOL = 4_000
"""Of a large space at most so many of those, by lot."""

NEAR_WALKED = 40_000
"""Where lists of values are long there are millions of them: so many are looked for, by lot."""

DOUBT, DOUBT_FROM = 4, 8
"""With transfer, every fourth proposal comes from a model that never heard of other devices, from the eighth on."""

LATE = 24
"""From here on every other one does: what other devices could tell has been told."""

GROUP = 32
"""Threads run in groups of 32 or 64, memory moves in units of 32 bytes and more."""


class BayesSampler(RowSampler):
    """Expected improvement under a Gaussian process of the logarithm of the time, on every untried row."""

    def __init__(self, space: Space, seed: int, donors: Donors = ()) -> None:
        super().__init__(space, seed)
        self._features = Features(self.space)
        self._informed = self._of_donors(donors) if donors else None
        self._judged, self._verdict = -1, False  # the fit at which the donors were judged, and how
        self._start: Rows | None = None
        self._table: NDArray[np.int16] | None = None

    def choose(self, study: Study, trial: FrozenTrial) -> int:
        """The next row of the start, then the one with the most expected improvement."""
        found = self._from_start()
        if found is None and (self.history.states == State.TIMED).any():
            model = self._cold  # loads SciPy, whose threads are to be few as well
            with one_thread():
                found = self._from_model(model, self.random(trial))
        return self._farthest(trial) if found is None else found

    def prepare(self, trials: float) -> None:
        """Load SciPy. A short search ends before the model is asked."""
        if trials > START:
            import_module("autotune.samplers.surrogate")

    @cached_property
    def _cold(self) -> Surrogate:
        """The model that knows of nothing but the trials here."""
        from autotune.samplers.surrogate import Surrogate, View

        return Surrogate(self.space, View(self._features), self.seed)

    def _of_donors(self, donors: Donors) -> Surrogate | None:
        from autotune.samplers.surrogate import Surrogate
        from autotune.samplers.transfer import transfer_view

        with one_thread():
            view = transfer_view(self.space, self._features, donors)
            return Surrogate(self.space, view, self.seed) if view else None

    def _from_start(self) -> int | None:
        """What to try before a model can be asked: None where there is one or the start is used up."""
        in_flight = int((self.history.states == State.RUNNING).sum())
        blind = not (self.history.states == State.TIMED).any()
        if self._informed is not None:
            if not blind:
                return None
            start = self._informed.expected_best(START_POOL)
        elif blind or len(self.history.rows) + in_flight < START:
            # What is in flight leaves the model behind: it starts so much earlier, not to be late.
            start = self._design()
        else:
            return None
        start = start[self.history.allowed(start)]
        return int(start[0]) if len(start) else None

    def _design(self) -> Rows:
        """Rows far from each other, among the better aligned of a random few hundred."""
        if self._start is None:
            rows = self.space.sample(np.random.default_rng(self.seed), START_POOL)
            rows = rows[aligned(self.space, rows)]
            self._start = rows[maximin(self._features.of_rows(rows), BLIND)]
        return self._start

    def _from_model(self, cold: Surrogate, rng: np.random.Generator) -> int | None:
        """The most promising row, every other time one near the best; of two models, by the one whose turn it is."""
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
        """True where the donors' trials make the model foretell the trials here worse than without them."""
        assert self._informed is not None
        self._informed.update(self.history)
        if self._informed.due != self._judged:
            self._cold.update(self.history)
            self._judged = self._informed.due
            self._verdict = self._cold.due > 0 and self._cold.evidence > self._informed.evidence
        return self._verdict

    def _near(self, model: Surrogate, rng: np.random.Generator) -> int | None:
        """The most promising row among those that differ little from the best one."""
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
        """Of these rows the allowed one with the most expected improvement; None where none is allowed."""
        rows = rows[self.history.allowed(rows)]
        if not len(rows):
            return None
        return int(rows[model.log_improvement(rows, model.to_beat).argmax()])

    def _farthest(self, trial: FrozenTrial) -> int:
        """While everything fails: as far as can be from what has failed."""
        rng = self.random(trial)
        drawn = self.space.sample(rng, 2 * START_POOL)  # of a large space hardly any has been tried
        drawn = drawn[self.history.allowed(drawn)]
        rows = drawn[:START_POOL] if len(drawn) else rng.permutation(self.candidates(rng))[:START_POOL]
        tried = self._features.of_rows(self.history.rows[-START_POOL:])
        points = self._features.of_rows(rows)
        if not len(tried):
            return int(rows[0])
        distance = np.square(points[:, None, :] - tried[None, :, :]).sum(axis=2).min(axis=1)
        return int(rows[distance.argmax()])

    def expected_gain(self, trials: int) -> float | None:
        """Share of the best time that the next `trials` are expected to save; None without a model.

        The mean over draws from the model's joint prediction at the candidates with the most expected
        improvement: as good as the model, which knows of nothing that it has seen no sign of.
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
    """Positions of points far from each other: the first, then always the farthest from those chosen.

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
    """Positions of the better aligned half of some rows (more where many are equal).

    Counts that reach a warp (the list of values goes to 32 or beyond) fit the hardware when they are
    multiples of 32, less so as multiples of 16, 8, ...; other parameters have no say.
    """
    score = np.zeros(len(rows))
    indices = space.indices(rows)
    for column, values in enumerate(space.values):
        if _is_count(values):
            bits = [min((int(value) & -int(value)).bit_length() - 1, 5) for value in values]
            score += np.array(bits, dtype=np.float64)[indices[:, column]]
    return np.flatnonzero(score >= median(score.tolist()))  # NumPy's own imports masked arrays


def _is_count(values: Sequence[Value]) -> bool:
    return all(isinstance(value, int) and value > 0 for value in values) and max(map(float, values)) >= GROUP
