"""The rules that benchmarks/sizes.py compares: each names a configuration for a size, from trials at others."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from autotune.model import Configuration, Outcome, Trial
from autotune.study import Study

Place = tuple[int, ...]


class Stored(NamedTuple):
    """The trials of one size."""

    size: Place
    trials: list[Trial]


def nearest(_: Study, others: Sequence[Stored], size: Place) -> Configuration:
    """What a look-up serves: the best of the size that is nearest."""
    return _best(min(others, key=lambda other: distance(other.size, size)))


def default(study: Study, others: Sequence[Stored], size: Place) -> Configuration:
    """The study's default."""
    return {name: parameter.default for name, parameter in study.parameters.items()}


def weighted(_: Study, others: Sequence[Stored], size: Place) -> Configuration:
    """The least expected log loss: each configuration's at the sizes it was measured at, the nearer the more."""
    expected: dict[tuple[tuple[str, object], ...], list[tuple[float, float]]] = {}
    known = {}
    for other in others:
        ok = [trial for trial in other.trials if trial.outcome is Outcome.OK]
        best = min(trial.time_ns for trial in ok)
        weight = 1 / (0.5 + distance(other.size, size)) ** 2
        for trial in ok:
            name = tuple(sorted(trial.configuration.items()))
            known[name] = trial.configuration
            expected.setdefault(name, []).append((weight, math.log(trial.time_ns / best)))
    whole = sum(1 / (0.5 + distance(other.size, size)) ** 2 for other in others)
    prior = 0.5  # the log loss where a configuration was not measured, or failed

    def loss(name: tuple[tuple[str, object], ...]) -> float:
        told = expected[name]
        weight = sum(one for one, _ in told)
        return (sum(one * lost for one, lost in told) + (whole - weight) * prior) / whole

    return known[min(expected, key=loss)]


def distance(here: Place, asked: Place) -> float:
    """The sum of the doublings in each dimension, as lookup/nearest.py has it."""
    return sum(abs(math.log2(a / b)) for a, b in zip(here, asked, strict=True))


def _best(stored: Stored) -> Configuration:
    return min((t for t in stored.trials if t.outcome is Outcome.OK), key=lambda trial: trial.time_ns).configuration


RULES: dict[str, Callable[[Study, Sequence[Stored], Place], Configuration]] = {
    "nearest": nearest,
    "weighted": weighted,
    "default": default,
}
