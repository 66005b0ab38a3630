"""Whether devices of one model are alike: each times the same configuration, the anchor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from autotune import text
from autotune.model import Configuration, Measurement
from autotune.ranking import median, median_interval

APART = 0.05
"""By what share of the median of all a device may differ before it is reported: clocks and cooling explain less."""

LEAST = 2
"""Trials per device before a configuration is chosen as the anchor: one of that many is fast."""


@dataclass(frozen=True)
class Timed:
    """The time of the anchor on a device: median, and its interval of 95 %, in nanoseconds."""

    place: str
    median_ns: float
    low_ns: float
    high_ns: float


class Anchors:
    """The times of the anchor on each device; reports each device that differs from the others, once."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.configuration: Configuration | None = None
        self._say = say
        self._times: dict[str, Timed] = {}
        self._named: set[str] = set()

    def __contains__(self, worker: str) -> bool:
        return worker in self._times

    def of(self, worker: str) -> float | None:
        """Return the anchor's time on a device in nanoseconds, or None if it was not timed there."""
        found = self._times.get(worker)
        return None if found is None else found.median_ns

    def add(self, worker: str, place: str, measurement: Measurement) -> None:
        """Take in what a device measured."""
        low, high = median_interval(measurement.samples_ns)
        self._times[worker] = Timed(place, measurement.median_ns, low, high)
        usual = median([timed.median_ns for timed in self._times.values()])
        for name, timed in self._times.items():
            slower = timed.low_ns > usual * (1 + APART)
            faster = timed.high_ns < usual * (1 - APART)
            if len(self._times) > 1 and (slower or faster) and name not in self._named:
                self._named.add(name)
                than = f"{text.share(abs(timed.median_ns - usual), usual)} {'slower' if slower else 'faster'}"
                self._say(
                    f"{timed.place} is {than} than the others of its model "
                    f"({text.time(timed.median_ns)} for the same configuration): clock, cooling, or a guest"
                )
