"""What reports tell of stored problems and searches. What takes long is kept while nothing was added."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any, NamedTuple

from anyio import from_thread

from autotune.errors import AutotuneError
from autotune.identity import Configuration
from autotune.reports import course, learned, single
from autotune.service import submit as submitting
from autotune.service.state import Service
from autotune.store import listing, survey
from autotune.study import StudyText

_KEPT = 32

LIVE_DOTS = 800
"""Trials that the chart of a running search shows: it is sent anew each time something happens."""


class Lesson(NamedTuple):
    """The sample of a problem, what it teaches, and the study's default configuration there, where known."""

    known: learned.Sample
    told: dict[str, Any]
    default: Configuration | None


class _Kept(NamedTuple):
    """A lesson, with what it was made of: it holds while that is the same."""

    text: StudyText | None
    stored: tuple[int, ...]
    lesson: Lesson


class Lessons:
    """What was learned of the problems that were looked at last."""

    def __init__(self) -> None:
        self._kept: OrderedDict[int, _Kept] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, service: Service, problem: listing.Problem, text: StudyText | None) -> Lesson:
        """Return what a problem teaches; `text` is its study as it is now, None where that is not here."""
        stored = _stored(service, problem.number)
        with self._lock:
            kept = self._kept.get(problem.number)
            if kept is not None and kept.text is text and kept.stored == stored:
                self._kept.move_to_end(problem.number)
                return kept.lesson
        lesson = _lesson(service, problem, text)
        with self._lock:
            self._kept[problem.number] = _Kept(text, stored, lesson)
            self._kept.move_to_end(problem.number)
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return lesson


def _lesson(service: Service, problem: listing.Problem, text: StudyText | None) -> Lesson:
    known = learned.sample(service.store, problem.number)
    default = default_of(service, problem, text)
    return Lesson(known, learned.learned(service.store, problem.number, known, default), default)


def _stored(service: Service, problem: int) -> tuple[int, ...]:
    """Return how many trials tell what is best of a problem, how many of their searches have ended, and the first."""
    searches = listing.answering(service.store, problem)
    trials = survey.by_outcome(survey.tally(service.store, [search.number for search in searches])).total()
    return trials, sum(search.ended is not None for search in searches), *(search.number for search in searches[:1])


def default_of(service: Service, problem: listing.Problem, text: StudyText | None) -> Configuration | None:
    """Return the study's default configuration for a problem, moved where it is not valid there; None where unknown.

    To be called from a thread of a request: an uploaded study is looked at in a process of its own.
    """
    if text is None or service.studies.own(text.name) is not None:
        return single.default_of(service.store, problem, text)
    device = listing.device(service.store, problem.key.device)
    if device is None:
        return None
    try:
        return from_thread.run(submitting.default_of, service, problem.key, device)
    except AutotuneError:  # the study is another one today
        return None


def course_of(service: Service, numbers: list[int], *, live: bool) -> dict[str, Any]:
    """Return how these searches went."""
    searches = [one for number in sorted(numbers) if (one := listing.search(service.store, number)) is not None]
    return course.course(service.store, searches, most=LIVE_DOTS if live else course.MOST_DOTS)
