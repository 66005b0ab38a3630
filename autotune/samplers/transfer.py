"""What trials of the same kernel on other devices or at other sizes (donors) tell about this one.

Each donor's trials get their own Gaussian process. The mean of their predictions is what is expected here.
How much each donor really counts, and how far this device differs from any mixture of them, is learned from
the trials made here: the donors' predictions enter the kernel as linear coordinates beside a process of the
remainder. So a misleading donor loses its influence as soon as the trials contradict it.
(A mean function with explicit basis functions: Rasmussen and Williams 2006, section 2.7.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from autotune.model import Outcome, Trial
from autotune.samplers.features import Features
from autotune.samplers.gaussian import Floats, Hyper, Prior, covariances, fit, weigh
from autotune.samplers.registry import Donors
from autotune.samplers.surrogate import CAP, Rows, View
from autotune.space import Space

LEAST_TRIALS = 10
"""A donor needs so many timed trials to count."""

MOST_TRIALS = 200
"""The most trials of a donor: half of them its fastest, the others spread evenly over the rest."""

FITTED = 128
"""So many of these, chosen likewise, decide the hyperparameters."""

MOST_DONORS = 8
"""The most donors: those with the most trials."""

LEAST_DEVIATION = 0.01
"""The least deviation of a donor's log times: below it, they vary less than measurements do."""

CENTRE_ROWS = 2_000
"""So many rows tell the mean and the deviation of a donor's predictions."""


class Donor:
    """The log time over the best on one other device or size, as predicted from its trials."""

    def __init__(self, features: Features, trials: Sequence[Trial]) -> None:
        order = sorted(range(len(trials)), key=lambda i: (trials[i].outcome != Outcome.OK, trials[i].standing_ns))
        trials = [trials[i] for i in _some(np.array(order), MOST_TRIALS)]
        # A stopped trial's time is a lower bound of a slow time, which is accurate enough.
        times = np.array([np.nan if trial.outcome.failed else trial.standing_ns for trial in trials])
        best = min(trial.standing_ns for trial in trials if trial.outcome == Outcome.OK)
        logs = np.log(times / best)
        self.cap = float(np.nanquantile(logs, CAP))
        values = np.where(np.isnan(logs), self.cap, np.minimum(logs, self.cap))
        self._shift, self.deviation = float(values.mean()), max(float(values.std()), LEAST_DEVIATION)
        points = features.of([trial.configuration for trial in trials])
        targets = (values - self._shift) / self.deviation
        fitted = _some(np.argsort(values, kind="stable"), FITTED)
        self._hyper: Hyper = fit(points[fitted], targets[fitted], Prior(features.lengths))
        self._scaled = self._hyper.scale(points)
        self._weights = weigh(points, targets, self._hyper)

    def predict(self, points: Floats) -> Floats:
        """Return the mean log time over the best at points (n, size)."""
        covariance = covariances(self._hyper.scale(points), self._scaled, self._hyper)
        return np.asarray(covariance @ self._weights * self.deviation + self._shift)


class TransferView(View):
    """The features, the donors' predictions as linear coordinates, and their mean as the expectation."""

    first_fit = 4

    def __init__(self, space: Space, features: Features, donors: Sequence[Donor]) -> None:
        super().__init__(features)
        self._donors = donors
        self.scale = float(np.median([donor.deviation for donor in donors]))
        self.least_cap = float(np.median([donor.cap for donor in donors]))
        self.prior = Prior(features.lengths, signal=0.3)
        rows = space.sample(np.random.default_rng(0), CENTRE_ROWS)
        means = self._means(features.of_rows(rows))
        self._centre = means.mean(axis=0)
        # Beside a flat donor, another one would be hundreds of units wide, and rounding errors would hide the process.
        self._units = np.maximum(means.std(axis=0), self.scale) * np.sqrt(len(donors))

    def _means(self, points: Floats) -> Floats:
        return np.column_stack([donor.predict(points) for donor in self._donors])

    def encode(self, rows: Rows) -> tuple[Floats, Floats]:
        """Return coordinates (n, size + donors) and the donors' mean log time over the best (n,)."""
        points = self._features.of_rows(rows)
        means = self._means(points)
        return np.hstack([points, (means - self._centre) / self._units]), means.mean(axis=1)


def transfer_view(space: Space, features: Features, donors: Donors) -> TransferView | None:
    """Return the view with the donors that can be used here; None if there are none."""
    usable = [_usable(space, trials) for trials in donors]
    worth = [trials for trials in usable if sum(t.outcome == Outcome.OK for t in trials) >= LEAST_TRIALS]
    worth.sort(key=len, reverse=True)
    chosen = [Donor(features, trials) for trials in worth[:MOST_DONORS]]
    return TransferView(space, features, chosen) if chosen and features.size else None


def _usable(space: Space, trials: Sequence[Trial]) -> list[Trial]:
    """Return the finished trials with this space's parameters, values of the same kind, and a time unless failed."""
    kinds = [
        (name, any(isinstance(value, str) for value in values))
        for name, values in zip(space.names, space.values, strict=True)
    ]
    return [
        trial
        for trial in trials
        if trial.outcome.ended
        and (trial.outcome.failed or 0 < trial.standing_ns < math.inf)  # an imported trial may have no time
        and all(
            name in trial.configuration and isinstance(trial.configuration[name], str) == text for name, text in kinds
        )
    ]


def _some(order: Rows, most: int) -> Rows:
    """Return at most `most` entries: the first half of them from the beginning, the others evenly from the rest."""
    if len(order) <= most:
        return order
    half = most // 2
    return np.append(order[:half], order[np.linspace(half, len(order) - 1, most - half).astype(int)])
