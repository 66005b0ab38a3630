"""What reports tell of stored problems and searches. What takes long is kept while nothing was added."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

from autotune.identity import Configuration
from autotune.reports import course, learned
from autotune.service.state import Service
from autotune.store import listing, survey
from autotune.study import StudyText, default_configuration

_KEPT = 32
_Lesson = tuple[learned.Sample, dict[str, Any]]

LIVE_DOTS = 800
"""Trials that the chart of a running search shows: it is sent anew each time something happens."""


class Lessons:
    """What was learned of the problems that were looked at last."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[int, int, int, bool], _Lesson] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, service: Service, problem: int, text: StudyText | None) -> _Lesson:
        """Return the sample of a problem and what it teaches."""
        searches = listing.latest_generation(service.store, problem)
        trials = survey.total(survey.tally(service.store, [search.number for search in searches]))
        ended = sum(search.ended is not None for search in searches)
        name = (problem, trials, ended, text is not None)
        with self._lock:
            if name in self._kept:
                self._kept.move_to_end(name)
                return self._kept[name]
        known = learned.sample(service.store, problem)
        found = (known, learned.learned(service.store, problem, known, default_of(text)))
        with self._lock:
            self._kept[name] = found
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return found


def default_of(text: StudyText | None) -> Configuration | None:
    """Return the study's default configuration as its file says; None where the file is not here."""
    return None if text is None else default_configuration(text)


def course_of(service: Service, numbers: list[int], *, live: bool = False) -> dict[str, Any]:
    """Return how these searches went."""
    searches = [one for number in sorted(numbers) if (one := listing.search(service.store, number)) is not None]
    return course.course(service.store, searches, most=LIVE_DOTS if live else course.MOST_DOTS)
