"""Who is fastest: the one rule of search and look-up, with the medians and intervals that it goes by.

Hardly anything is imported: a cold look-up pays for every module.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from operator import attrgetter
from typing import NamedTuple

NAN = float("nan")

_arrival = attrgetter("order")
_latest = attrgetter("latest")
_time = attrgetter("time_ns", "configuration")  # equal times are ranked alike wherever they are known from

MEASURED, RETIMED, FAILED, WRONG = "measured", "retimed", "failed", "wrong"
"""Kinds of events: verified and timed for the first time; verified and timed again, among the finalists; ended
without a time; gave a wrong result, at first or when timed again."""

FINALISTS = 5
"""How many of the fastest are timed again, interleaved, before a winner is named."""

FINALIST_MARGIN = 1.05
"""A finalist's first median is within this factor of the lowest."""


CONFIDENCE = 0.98
"""Of the interval of one configuration alone. The interval of the one that is named, for being the fastest of several,
and sampled until it was narrow, holds the truth less often: in 95 % of cases then (benchmarks/trust/simulated.py)."""


class Event(NamedTuple):
    """What became of one configuration of a problem, once.

    `configuration` stands for it, equal for equal ones. `generation` counts how often a search has started over.
    `order` says which arrived first within a database or a search, clocks aside: the number of the trial, then that
    of its re-timing, 0 for the trial itself. `time_ns` is a median; only what was measured has one.
    """

    kind: str
    configuration: str
    driver: str
    generation: int
    order: tuple[int, int]
    time_ns: float = NAN


class Standing(NamedTuple):
    """What counts of one configuration under one driver in one generation.

    `event` is the time that ranks it: its latest re-timing, else its latest measurement. `first_ns` is its latest first
    measurement, by which a re-timed one is compared with those that never were. `latest` is the number of the latest
    trial that counts.
    """

    event: Event
    first_ns: float
    latest: int


def rank(events: Iterable[Event], driver: str = "") -> list[Event]:
    """Return the events whose times count, one per verified configuration, best first.

    - What gave a wrong result counts no more, whatever it gave before or after, until a search starts over; what
      failed otherwise counts again once it has passed.
    - Times of one driver and one generation are compared: those of `answering`.
    - For each configuration its latest re-timing counts, else its latest measurement: never a minimum over repeats.
    - Re-timed finalists are compared with each other: they ran interleaved, on a device as warm as it gets. A
      configuration that was never re-timed comes before them only where its first median is below all of theirs, so
      that it would have been a finalist had it been known, and below their re-timings: a load that has gone meanwhile
      slowed the first medians of all.
    """
    found = standings(events)
    group = answering(found, driver)
    return ordered([one for one in found if (one.event.driver, one.event.generation) == group])


def ordered(own: Sequence[Standing]) -> list[Event]:
    """Return the times of one driver and generation, best first, as `rank` does: as if there were no others."""
    once, again = ([one for one in own if one.event.kind == kind] for kind in (MEASURED, RETIMED))
    measured, retimed = (sorted((one.event for one in some), key=_time) for some in (once, again))
    return merged(measured, retimed, min((one.first_ns for one in again), default=inf))


def answering(found: Sequence[Standing], driver: str = "") -> tuple[str, int] | None:
    """Return the driver and the generation whose times tell what is best; None where nothing is verified.

    The driver asked for where it has any times, else the one that arrived last; of that the newest generation in which
    a configuration is verified: who starts over wants the earlier ones forgotten, once there is something instead. What
    lists or counts trials has those from that generation on or, where nothing is verified, of the newest.
    """
    if not any(one.event.driver == driver for one in found):
        driver = max(found, key=_latest).event.driver if found else ""
    return max(((driver, one.event.generation) for one in found if one.event.driver == driver), default=None)


ANSWERING = """
SELECT driver, generation FROM standings WHERE problem_id = :problem AND driver = COALESCE(
    (SELECT driver FROM standings WHERE problem_id = :problem AND driver = :driver LIMIT 1),
    (SELECT driver FROM standings WHERE problem_id = :problem ORDER BY latest_id DESC LIMIT 1)
) ORDER BY generation DESC LIMIT 1
"""
"""What `answering` says, asked of the summary of a problem (store/standings.py); no row for None."""

NEWEST = "SELECT COALESCE(MAX(generation), 0) AS generation FROM searches WHERE problem_id = :problem"


def merged(measured: Sequence[Event], again: Sequence[Event], bar: float) -> list[Event]:
    """Return what was measured once and what was re-timed, each in its order, in one.

    `bar` is the least `first_ns` of the re-timed: what comes before them is below it and below their times. The first
    so many of each give the first so many of all.
    """
    bar = min(bar, again[0].time_ns) if again else bar
    before = [event for event in measured if event.time_ns < bar]
    return [*before, *again, *measured[len(before) :]]


def standings(events: Iterable[Event]) -> list[Standing]:
    """Return what counts of each configuration, per driver and generation. Each depends on its own events alone."""
    first: dict[tuple[str, str, int], Event] = {}
    again: dict[tuple[str, str, int], Event] = {}
    for event in sorted(_sound(list(events)), key=_arrival):
        (first if event.kind == MEASURED else again)[event.configuration, event.driver, event.generation] = event
    return [
        Standing(event, first.get(place, event).time_ns, max(event.order[0], first.get(place, event).order[0]))
        for place, event in {**first, **again}.items()
    ]


def _sound(events: Sequence[Event]) -> list[Event]:
    """Return what was measured and has neither failed since nor been wrong in its generation or a later one."""
    failed: dict[tuple[str, str], tuple[int, float]] = {}
    for event in events:
        if event.kind in (FAILED, WRONG):
            name = event.configuration, event.driver
            until = event.generation, inf if event.kind == WRONG else event.order[0]
            failed[name] = max(until, failed.get(name, until))
    never = (-1, -1.0)
    return [
        event
        for event in events
        if event.kind in (MEASURED, RETIMED)
        and event.time_ns > 0  # neither a NaN nor what no clock gives
        and (event.generation, event.order[0]) > failed.get((event.configuration, event.driver), never)
    ]


def median(samples: Sequence[float]) -> float:
    """Return the median, the mean of the middle two for an even number of samples; NaN where there is none."""
    if not samples:
        return NAN
    ordered = sorted(samples)
    half = len(ordered) // 2
    return float(ordered[half]) if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def median_interval(samples: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return the interval between two order statistics that covers the median with at least `confidence`.

    The number of samples below the median is binomial(n, 1/2), whatever the distribution, so the k-th smallest
    and the k-th largest enclose it with probability 1 - 2 * P(B < k). Few samples cannot reach that:
    their range is returned. NaNs where there is no sample. Same unit as the samples.

    Source: H. A. David, H. N. Nagaraja, Order Statistics, 3rd ed., section 7.1.
    """
    n = len(samples)
    if n == 0:
        return NAN, NAN
    ordered = sorted(samples)
    rank = interval_rank(n, confidence)
    return float(ordered[rank]), float(ordered[n - 1 - rank])


def confidence(n: int) -> int:
    """Return the per cent of cases, 0 to 95, in which `median_interval` of `n` samples holds the median."""
    return min(95, int(100 - 200 * 0.5**n)) if n > 0 else 0


def speedup(slow: Sequence[float], fast: Sequence[float]) -> tuple[float, float, float]:
    """Return how many times as fast the second is, and the interval of that: times of two that were taken in turns.

    Lists of one length hold pairs, taken within the same moments: the median of their ratios, whatever the machine did
    meanwhile. Else the medians are compared, and the interval is what theirs allow. A database may hold any times: none
    counts as less than a nanosecond.
    """
    slow, fast = ([max(1.0, ns) for ns in times] for times in (slow, fast))
    if len(slow) == len(fast):
        ratios = [mine / other for mine, other in zip(slow, fast, strict=True)]
        return median(ratios), *median_interval(ratios)
    (low, high), (fast_low, fast_high) = median_interval(slow), median_interval(fast)
    return median(slow) / median(fast), low / fast_high, high / fast_low


def may_be_as_fast(rival: Sequence[float], best: Sequence[float], *, in_turns: bool) -> bool:
    """Say whether times leave open that the first of two is as fast as the second.

    Where both were taken in turns, by how many times as fast the second is; else by whether their intervals meet.
    """
    if in_turns:
        return speedup(rival, best)[1] <= 1.0
    return median_interval(rival)[0] <= median_interval(best)[1]


_MOST_COUNTED = 5000
"""Samples whose binomial is summed up exactly, in a time that grows with their square. Of more it is taken for a normal
distribution, and the interval is wider by one sample at each end at most."""


def interval_rank(n: int, confidence: float) -> int:
    """Return the 0-based rank of the interval's lower end among `n` samples; the upper is `n - 1 - rank`."""
    if n > _MOST_COUNTED:
        from statistics import NormalDist  # which a look-up does without

        return int((n + NormalDist().inv_cdf((1.0 - confidence) / 2) * n**0.5) / 2) - 1
    # Integers throughout: 2**n leaves the floats at n = 1024.
    allowed = round((1.0 - confidence) * 1_000_000) << n
    term, below, rank = 1, 1, 0
    while 2_000_000 * below <= allowed:
        term = term * (n - rank) // (rank + 1)
        below += term
        rank += 1
    return max(0, rank - 1)
