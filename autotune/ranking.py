"""Which configuration is fastest: the one rule of search and look-up, and its medians and intervals.

It imports as little as possible, because every module delays a cold look-up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from operator import attrgetter
from typing import NamedTuple

NAN = float("nan")

_arrival = attrgetter("order")
_latest = attrgetter("latest")
_time = attrgetter("time_ns", "configuration")  # so that the order of equal times is always the same

MEASURED, RETIMED, FAILED, WRONG = "measured", "retimed", "failed", "wrong"
"""Kinds of events: verified and timed for the first time; verified and timed again, as a finalist; ended without a
time; gave a wrong result, at first or when timed again."""

FINALISTS = 5
"""How many of the fastest are timed again, interleaved, before a winner is named."""

FINALIST_MARGIN = 1.05
"""A finalist's first median is within this factor of the lowest."""


CONFIDENCE = 0.98
"""Confidence of the interval of a single configuration. The winner was chosen as the fastest of several, and sampled
until its interval was narrow. So its interval contains the true median less often, in 95 % of cases
(benchmarks/trust/simulated.py)."""


class Event(NamedTuple):
    """One result of one configuration of a problem.

    `configuration` is a key, equal for equal configurations. `generation` counts how often a search has started over.
    `order` is the order of arrival in a database or a search, without clocks: the number of the trial, then that of
    its re-timing, 0 for the trial itself. `time_ns` is a median; only measured events have one.
    """

    kind: str
    configuration: str
    driver: str
    generation: int
    order: tuple[int, int]
    time_ns: float = NAN


class Standing(NamedTuple):
    """What counts for one configuration under one driver in one generation.

    `event` has the time that ranks it: its latest re-timing, else its latest measurement. `first_ns` is the time of its
    latest first measurement, by which re-timed configurations are compared with those that were never re-timed.
    `latest` is the number of the latest trial that counts.
    """

    event: Event
    first_ns: float
    latest: int


def rank(events: Iterable[Event], driver: str = "") -> list[Event]:
    """Return the events whose times count, one per verified configuration, best first.

    - A configuration that gave a wrong result does not count, whatever it gave before or after, until a search starts
      over. One that failed otherwise counts again once it has passed.
    - Only times of one driver and one generation are compared: those of `answering`.
    - For each configuration its latest re-timing counts, else its latest measurement: never a minimum over repeats.
    - Re-timed finalists are compared with each other: they ran interleaved, on a fully warm device. A configuration
      that was never re-timed comes before them only if its first median is below all of their first medians, so that
      it would have been a finalist, and below their re-timings too, because a load that has ended since may have
      slowed all first medians.
    """
    found = standings(events)
    group = answering(found, driver)
    return ordered([one for one in found if (one.event.driver, one.event.generation) == group])


def ordered(own: Sequence[Standing]) -> list[Event]:
    """Return the times of one driver and generation, best first, as `rank` does if there are no others."""
    once, again = ([one for one in own if one.event.kind == kind] for kind in (MEASURED, RETIMED))
    measured, retimed = (sorted((one.event for one in some), key=_time) for some in (once, again))
    return merged(measured, retimed, min((one.first_ns for one in again), default=inf))


def answering(found: Sequence[Standing], driver: str = "") -> tuple[str, int] | None:
    """Return the driver and the generation whose times tell what is best, or None if nothing is verified.

    This is the driver asked for if it has any times, else the one that arrived last. Its newest generation with a
    verified configuration counts: a search that starts over replaces earlier generations once it has a result. Lists
    and counts include the trials from that generation on or, if nothing is verified, those of the newest generation.
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
"""The query for what `answering` returns, on the summary of a problem (store/standings.py); no row for None."""

NEWEST = "SELECT COALESCE(MAX(generation), 0) AS generation FROM searches WHERE problem_id = :problem"


def merged(measured: Sequence[Event], again: Sequence[Event], bar: float) -> list[Event]:
    """Return one ranked list of the `measured` events (never re-timed) and the re-timed ones, each already in order.

    `bar` is the least `first_ns` of the re-timed: a measured event comes before them if it is below that and below
    their times. The first n of each are enough to give the first n of the result.
    """
    bar = min(bar, again[0].time_ns) if again else bar
    before = [event for event in measured if event.time_ns < bar]
    return [*before, *again, *measured[len(before) :]]


def standings(events: Iterable[Event]) -> list[Standing]:
    """Return what counts for each configuration, per driver and generation. Each depends only on its own events."""
    first: dict[tuple[str, str, int], Event] = {}
    again: dict[tuple[str, str, int], Event] = {}
    for event in sorted(_sound(list(events)), key=_arrival):
        (first if event.kind == MEASURED else again)[event.configuration, event.driver, event.generation] = event
    return [
        Standing(event, first.get(place, event).time_ns, max(event.order[0], first.get(place, event).order[0]))
        for place, event in {**first, **again}.items()
    ]


def _sound(events: Sequence[Event]) -> list[Event]:
    """Return the measured events that still count.

    Their configurations have neither failed since, nor been wrong in the same or a later generation.
    """
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
        and event.time_ns > 0  # not NaN, and a possible time
        and (event.generation, event.order[0]) > failed.get((event.configuration, event.driver), never)
    ]


def median(samples: Sequence[float]) -> float:
    """Return the median (for an even number of samples the mean of the middle two), or NaN if there are none."""
    if not samples:
        return NAN
    ordered = sorted(samples)
    half = len(ordered) // 2
    return float(ordered[half]) if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def median_interval(samples: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return the interval between two order statistics that covers the median with at least `confidence`.

    The number of samples below the median is binomial(n, 1/2), whatever the distribution, so the k-th smallest
    and the k-th largest enclose it with probability 1 - 2 * P(B < k). If there are too few samples to reach the
    confidence, their range is returned; NaNs without any sample. Same unit as the samples.

    Source: H. A. David, H. N. Nagaraja, Order Statistics, 3rd ed., section 7.1.
    """
    n = len(samples)
    if n == 0:
        return NAN, NAN
    ordered = sorted(samples)
    rank = interval_rank(n, confidence)
    return float(ordered[rank]), float(ordered[n - 1 - rank])


def confidence(n: int) -> int:
    """Return the per cent of cases, 0 to 95, in which `median_interval` of `n` samples contains the true median."""
    return min(95, int(100 - 200 * 0.5**n)) if n > 0 else 0


def speedup(slow: Sequence[float], fast: Sequence[float]) -> tuple[float, float, float]:
    """Return how many times as fast the second is, and the interval of that, from times that were taken in turns.

    In lists of equal length, times at the same index are pairs, taken at about the same moment: the result is the
    median of their ratios, which does not depend on the state of the machine. Otherwise it is the ratio of the medians,
    with an interval that follows from both medians' intervals. A time below a nanosecond counts as one nanosecond,
    since a database may contain any times.
    """
    slow, fast = ([max(1.0, ns) for ns in times] for times in (slow, fast))
    if len(slow) == len(fast):
        ratios = [mine / other for mine, other in zip(slow, fast, strict=True)]
        return median(ratios), *median_interval(ratios)
    (low, high), (fast_low, fast_high) = median_interval(slow), median_interval(fast)
    return median(slow) / median(fast), low / fast_high, high / fast_low


def may_be_as_fast(rival: Sequence[float], best: Sequence[float], *, in_turns: bool) -> bool:
    """Say whether, by their times, the first of two may be as fast as the second.

    If both were taken in turns, the interval of their ratio decides; else whether their own intervals overlap.
    """
    if in_turns:
        return speedup(rival, best)[1] <= 1.0
    return median_interval(rival)[0] <= median_interval(best)[1]


_MOST_COUNTED = 5000
"""Up to this many samples the binomial is summed exactly, in a time that grows with their square. For more, a normal
distribution approximates it, and the interval is at most one sample wider at each end."""


def interval_rank(n: int, confidence: float) -> int:
    """Return the 0-based rank of the interval's lower end among `n` samples; the upper is `n - 1 - rank`."""
    if n > _MOST_COUNTED:
        from statistics import NormalDist  # a look-up does not need it

        return int((n + NormalDist().inv_cdf((1.0 - confidence) / 2) * n**0.5) / 2) - 1
    # Integers throughout: 2**n exceeds a float from n = 1024 on.
    allowed = round((1.0 - confidence) * 1_000_000) << n
    term, below, rank = 1, 1, 0
    while 2_000_000 * below <= allowed:
        term = term * (n - rank) // (rank + 1)
        below += term
        rank += 1
    return max(0, rank - 1)
