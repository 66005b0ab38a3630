"""Which stored size's best to take at another size: the one that is expected to lose least there.

benchmarks/sizes.py compares such rules; select.c.in has this rule in C.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from autotune.identity import Size, apart, ratio, size_order
from autotune.lookup.records import Ranking, Records

MOST_SIZES = 8
"""How many of the stored sizes, the nearest ones, are used to estimate what an answer may lose."""

UNKNOWN = 5_000
"""The loss of a configuration that has not passed at a size: not tried there, or stopped because it was slow. A loss is
1e4 times the logarithm of how many times slower it is, as a whole number, which a header needs.
"""


class Known(NamedTuple):
    """A stored size and times by the digest of a configuration.

    The times are those of its own fastest, best first, then those of the other sizes' bests.
    """

    number: int
    size: Size
    ranking: Ranking
    times: dict[str, float]

    @property
    def best(self) -> str:
        return next(iter(self.times))

    def lost(self, name: str) -> int:
        """Return the loss of a configuration at this size."""
        if name not in self.times:
            return UNKNOWN
        return round(1e4 * (math.log(self.times[name]) - math.log(self.times[self.best])))


def known_sizes(
    records: Records, stored: Iterable[tuple[int, Size]], driver: str, most: int | None = None
) -> list[Known]:
    """Return what is known of these problems of a device: the times of their own bests and of each other's.

    Only the first `most` problems that have a best are returned.
    """
    known: list[Known] = []
    for number, size in stored:
        if len(known) == most:
            break
        ranking = records.ranking(number, driver)
        times = {event.configuration: event.time_ns for event in ranking.entries if _is_time(event.time_ns)}
        known += [Known(number, size, ranking, times)] if times else []
    for one in known:  # add the times of the others' bests that are not among the fastest here
        for name in () if one.ranking.whole else {other.best for other in known} - one.times.keys():
            time_ns = records.time_ns(one.number, name, one.ranking.entries[0])
            if time_ns is not None and _is_time(time_ns):
                one.times[name] = time_ns
    return known


def _is_time(time_ns: float) -> bool:
    """Return False for a time in a database that has no logarithm, or none that C can write."""
    return 0 < time_ns < math.inf


def by_loss(known: Sequence[Known], asked: Size) -> list[Known]:
    """Return the stored sizes by the loss that their bests are expected to have at the size `asked`, the least first.

    It is the mean of the losses at the stored sizes, in which nearer sizes count more.
    """
    weights = [(0.5 + apart(one.size, asked)) ** -2 for one in known]

    def loss(name: str) -> int:
        # Rounded, so that equal losses stay equal in any order of addition, here and in select.c.in.
        return round(1e5 * sum(weight * at.lost(name) for weight, at in zip(weights, known, strict=True)))

    return sorted(known, key=lambda one: (loss(one.best), *nearness(one.size, asked)))


def nearness(size: Size, asked: Size) -> tuple[float, tuple[int, ...]]:
    """Return a sort key for sizes: the nearest first, and the smaller of two that are equally near."""
    return ratio(size, asked), size_order(size)
