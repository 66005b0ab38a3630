"""Which stored size's best to take at another size: the one that is expected to lose least there.

benchmarks/sizes.py compares the rules; select.c.in has this one in C.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from autotune.identity import Size, apart, ratio, size_order
from autotune.lookup.records import Ranking, Records

MOST_SIZES = 8
"""Of the stored sizes so many, the nearest, say what an answer may lose."""

UNKNOWN = 5_000
"""The loss of what has not passed at a size: not tried there, or stopped for being slow. A loss is the logarithm of how
many times slower it is, in ten thousandths: whole, as a header has it."""


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

    def lost(self, name: str) -> int:
        """Return the loss of a configuration here."""
        if name not in self.times:
            return UNKNOWN
        return round(1e4 * (math.log(self.times[name]) - math.log(self.times[self.best])))


def known_sizes(
    records: Records, stored: Iterable[tuple[int, Size]], driver: str, most: int | None = None
) -> list[Known]:
    """Return what is known of these problems of a device at what their bests take: of the first so many with a best."""
    known: list[Known] = []
    for number, size in stored:
        if len(known) == most:
            break
        ranking = records.ranking(number, driver)
        times = {event.configuration: event.time_ns for event in ranking.entries if _is_time(event.time_ns)}
        known += [Known(number, size, ranking, times)] if times else []
    for one in known:  # where the others' bests are not among the fastest there: what they lose
        for name in () if one.ranking.whole else {other.best for other in known} - one.times.keys():
            time_ns = records.time_ns(one.number, name, one.ranking.entries[0])
            if time_ns is not None and _is_time(time_ns):
                one.times[name] = time_ns
    return known


def _is_time(time_ns: float) -> bool:
    """False for what a database says that has no logarithm, or none that C can write."""
    return 0 < time_ns < math.inf


def by_loss(known: Sequence[Known], asked: Size) -> list[Known]:
    """Return stored sizes by the log loss that their bests are expected to have at another size, the least first.

    It is the mean of what is lost at the stored sizes, the nearer the more.
    """
    weights = [(0.5 + apart(one.size, asked)) ** -2 for one in known]

    def loss(name: str) -> int:
        # Rounded, so that what is equal stays so in whatever order it is added up, here and in select.c.in.
        return round(1e5 * sum(weight * at.lost(name) for weight, at in zip(weights, known, strict=True)))

    return sorted(known, key=lambda one: (loss(one.best), *nearness(one.size, asked)))


def nearness(size: Size, asked: Size) -> tuple[float, tuple[int, ...]]:
    """Return what sizes are ordered by, the nearest first, the smaller of two that are as near."""
    return ratio(size, asked), size_order(size)
