"""How a search went: best so far, every trial by its outcome, failures with reasons, rate, where the time went.

Plain data for JSON. Times of kernels are in nanoseconds, those of the search in seconds. If there are more trials than
a chart can show, it has every n-th one, and `stride` says so; counts and the best so far are exact nevertheless.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from autotune.model import Outcome
from autotune.store import Store, listing, survey

MOST_DOTS = 1000
"""How many trials a chart shows."""

_LISTED = 200
"""How many failures of each outcome, the latest, are grouped by their reasons."""

_FEW = 50
"""How many if there are more trials than a chart can show."""

_NUMBER = re.compile(r"0x[0-9a-fA-F]+|\d+(?:\.\d+)?")


def course(store: Store, searches: Sequence[listing.Search], *, most: int = MOST_DOTS) -> dict[str, Any]:
    """Return how some searches of one problem went, one after another, as if they had been one.

    `outcomes` counts all trials, `running` those that have begun and not ended. `dots` holds lists of equal length:
    `trial` (its number in the database), `number` (from 1, in the order of beginning), `seconds` (since the beginning,
    without pauses between searches), `outcome`, `time_ns` (None if there is none) and `configuration` (values of its
    `parameters`, in their order). `best` holds such lists of the trials that were the fastest so far, by their first
    median. `rate` is finished trials per second. `spent` sums the seconds of the trials on building, verifying and
    timing; builds overlap, so they may add up to more than `elapsed_s`. With `stride` above 1, `spent` and the places
    in between are estimated from every n-th trial.
    """
    numbers = [search.number for search in searches]
    tally = survey.tally(store, numbers)
    counts = survey.by_outcome(tally)
    sample = survey.sampled(store, numbers, most, counts.total())
    clock = _Clock(searches)
    dots = [row for row in sample.rows if row.outcome.ended]
    places = {row.number: 1 + place * sample.stride for place, row in enumerate(dots)}
    finished = sum(count for outcome, count in counts.items() if outcome.ended)
    return {
        "trials": finished,
        "running": counts[Outcome.PENDING],
        "lost": counts[Outcome.LOST],
        "stride": sample.stride,
        "outcomes": {outcome.value: counts[outcome] for outcome in Outcome if counts[outcome]},
        "dots": _columns(dots, places, clock),
        "best": _best(store, tally, sample.stride, dots, places, clock),
        "failures": failures(survey.failures(store, numbers, _LISTED if sample.stride == 1 else _FEW), counts),
        "elapsed_s": clock.elapsed_s,
        "rate": finished / clock.elapsed_s if clock.elapsed_s > 0 else None,
        "spent": {
            step: sample.stride * sum(getattr(row, f"{step}_s") for row in dots) for step in ("build", "verify", "time")
        },
        "ended": all(search.ended is not None for search in searches),
        "reasons": [search.reason for search in searches if search.reason],
    }


class _Clock:
    """Seconds of searching at an instant: searches of one problem one after another, without the pauses between.

    `elapsed_s` is their total duration, up to now if one is still running.
    """

    def __init__(self, searches: Sequence[listing.Search]) -> None:
        self._now = datetime.now(UTC)
        self._begun: dict[int, datetime] = {}
        self._before: dict[int, float] = {}
        self.elapsed_s = 0.0
        for search in searches:
            begun, ended = moment(search.started), moment(search.ended or "") or self._now
            self._begun[search.number] = begun or ended
            self._before[search.number] = self.elapsed_s
            self.elapsed_s += max(0.0, (ended - (begun or ended)).total_seconds())

    def at(self, row: survey.Row) -> float:
        """Return after how many seconds a trial ended."""
        begun = self._begun[row.search]
        ended = moment(row.finished) or moment(row.started) or begun
        return self._before[row.search] + max(0.0, (ended - begun).total_seconds())


def moment(text: str) -> datetime | None:
    """Return the instant in a stored text, or None if it is not one."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _columns(rows: Sequence[survey.Row], places: dict[int, int], clock: _Clock) -> dict[str, list[Any]]:
    parameters = list(dict.fromkeys(name for row in rows for name in row.configuration))
    return {
        "trial": [row.number for row in rows],
        "number": [places[row.number] for row in rows],
        "seconds": [round(clock.at(row), 3) for row in rows],
        "outcome": [row.outcome.value for row in rows],
        "time_ns": [row.time_ns if row.time_ns and row.time_ns > 0 else None for row in rows],
        "parameters": parameters,
        "configuration": [[row.configuration.get(name) for name in parameters] for row in rows],
    }


def _best(
    store: Store,
    tally: Mapping[int, Mapping[tuple[Outcome, str], int]],
    stride: int,
    dots: Sequence[survey.Row],
    places: dict[int, int],
    clock: _Clock,
) -> dict[str, list[Any]]:
    """Return the columns of the trials that were the fastest so far."""
    if stride == 1:
        return _columns(improvements(dots), places, clock)
    drivers = {
        search: [driver for outcome, driver in counts if outcome is Outcome.OK] for search, counts in tally.items()
    }
    wanted = survey.records(store, sorted(tally), drivers)
    rows = sorted(survey.trials_of(store, wanted).values(), key=lambda row: row.number)
    known = sorted(places)
    placed = {row.number: _place(row.number, known, places, stride) for row in rows}
    return _columns(rows, placed, clock)


def _place(number: int, known: Sequence[int], places: dict[int, int], stride: int) -> int:
    """Return about how many trials began before one: numbers are given in that order."""
    place = bisect_left(known, number)
    if place == len(known):
        return places[known[-1]] + number - known[-1] if known else 1
    return max(1, places[known[place]] - min(stride, known[place] - number))


def improvements(rows: Iterable[survey.Row]) -> list[survey.Row]:
    """Return the verified trials that were faster, by their first median, than all that began before them."""
    found: list[survey.Row] = []
    for row in rows:
        faster = not found or (row.time_ns or 0) < (found[-1].time_ns or 0)
        if row.outcome is Outcome.OK and row.time_ns and row.time_ns > 0 and faster:
            found.append(row)
    return found


def failures(rows: Iterable[survey.Row], counts: Mapping[Outcome, int]) -> list[dict[str, Any]]:
    """Return failures by outcome and message (its numbers ignored), the most frequent first, with the latest example.

    `count` is how many of the listed failures have the message, `of` how many failures of the outcome are listed, `all`
    how many there are.
    """
    groups: dict[tuple[Outcome, str], list[survey.Row]] = {}
    for row in rows:
        first = next(iter(row.reason.strip().splitlines()), "")
        groups.setdefault((row.outcome, _NUMBER.sub("#", first)), []).append(row)
    listed = Counter(outcome for (outcome, _), alike in groups.items() for _ in alike)
    return [
        {
            "outcome": outcome.value,
            "reason": alike[0].reason.strip(),
            "count": len(alike),
            "of": listed[outcome],
            "all": max(counts.get(outcome, 0), listed[outcome]),
            "trial": alike[0].number,
            "configuration": dict(alike[0].configuration),
        }
        for (outcome, _), alike in sorted(groups.items(), key=lambda group: -len(group[1]))
    ]
