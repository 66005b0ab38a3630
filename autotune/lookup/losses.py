"""Which stored size's best to take at another size: the one that is expected to lose least there.

benchmarks/sizes.py compares the rules; select.c.in has this one in C.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from autotune.identity import Size, apart
from autotune.lookup.records import Ranking, Records

MOST_SIZES = 8
"""Of the stored sizes so many, the nearest, say what an answer may lose."""

UNKNOWN = 0.5
"""The log loss of what has not passed at a size: not tried there, or stopped for being slow."""


class Known(NamedTuple):
    """A stored size: the times of its fastest by the digest of their configuration, best first, then those of others'
    bests.
    """

    number: int
    size: Size
    ranking: Ranking
    times: dict[str, float]

    @property
    def best(self) -> str:
        return next(iter(self.times))

    def lost(self, name: str) -> float:
        """Return the log loss of a configuration here."""
        return math.log(self.times[name] / self.times[self.best]) if name in self.times else UNKNOWN


def known_sizes(records: Records, stored: Sequence[tuple[int, Size]], driver: str) -> list[Known]:
    """Return what is known of these problems of a device at what their bests take, of those with a best."""
    known = []
    for number, size in stored:
        ranking = records.ranking(number, driver)
        times = {event.configuration: event.time_ns for event in ranking.entries}
        known += [Known(number, size, ranking, times)] if times else []
    for one in known:  # where the others' bests are not among the fastest there: what they lose
        for name in () if one.ranking.whole else {other.best for other in known} - one.times.keys():
            time_ns = records.time_ns(one.number, name, one.ranking.entries[0])
            if time_ns is not None:
                one.times[name] = time_ns
    return known


def by_loss(known: Sequence[Known], asked: Size) -> list[Known]:
    """Return stored sizes by the log loss that their bests are expected to have at another size, the least first.

    It is the mean of what is lost at the stored sizes, the nearer the more.
    """
    weights = [(0.5 + apart(one.size, asked)) ** -2 for one in known]

    def loss(name: str) -> float:
        return sum(weight * at.lost(name) for weight, at in zip(weights, known, strict=True))

    return sorted(known, key=lambda one: (loss(one.best), *nearness(one.size, asked)))


def nearness(size: Size, asked: Size) -> tuple[float, list[tuple[str, int]]]:
    """Return what sizes are ordered by, the nearest first, the smaller of two that are as near."""
    return apart(size, asked), sorted(size.items())
