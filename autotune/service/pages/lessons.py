"""Reports on stored problems and searches. What takes long is kept while nothing is added."""

from __future__ import annotations

import logging
import math
import threading
import time
from typing import Any, NamedTuple

from anyio import from_thread

from autotune.errors import AutotuneError
from autotune.identity import Configuration
from autotune.reports import course, learned, single
from autotune.service import submit as submitting
from autotune.service.answers import for_others
from autotune.service.newest import Newest
from autotune.service.state import Service
from autotune.store import listing, survey
from autotune.study import StudyText

_KEPT = 32

_AGAIN_S = 60.0
"""Seconds before an unknown default is asked for again: its process may have lacked memory or time."""

_ASKING = threading.BoundedSemaphore(4)
"""Held by each request that waits for a default. Such a request occupies a thread, which all other requests need too,
and a study may take half a minute.
"""

BUSY = "the study's default configuration is not known: the server is busy with those of other pages; ask again"
"""Said instead of waiting if more requests than that wait."""

log = logging.getLogger(__name__)

LIVE_DOTS = 800
"""Trials in the chart of a running search, which is sent anew each time something happens."""


class Lesson(NamedTuple):
    """The sample of a problem, what it teaches, and the study's default configuration there, or why it is not known."""

    known: learned.Sample
    told: dict[str, Any]
    default: Configuration | str


class _Kept(NamedTuple):
    """A lesson with what it was made from: it is valid while that stays the same, until an instant at most."""

    text: StudyText | str
    stored: tuple[int, ...]
    lesson: Lesson
    until: float

    def is_of(self, text: StudyText | str, stored: tuple[int, ...]) -> bool:
        """Whether it was made from these."""
        return (self.text is text or (isinstance(text, str) and self.text == text)) and self.stored == stored


class Lessons:
    """The lessons of the problems that were looked at last."""

    def __init__(self) -> None:
        self._kept: Newest[int, _Kept] = Newest(_KEPT)
        self._lock = threading.Lock()

    def of(self, service: Service, problem: listing.Problem, text: StudyText | str) -> Lesson:
        """Return what a problem teaches; `text` is its study as it is now, or why its default is not known."""
        stored = _stored(service, problem.number)
        with self._lock:
            kept = self._kept.get(problem.number)
            if kept is not None and kept.is_of(text, stored) and time.monotonic() < kept.until:
                self._kept.move_to_end(problem.number)
                return kept.lesson
        lesson = _lesson(service, problem, text)
        known = lesson.default == text or not isinstance(lesson.default, str)
        until = math.inf if known else time.monotonic() + (_AGAIN_S if lesson.default != BUSY else 0)
        with self._lock:
            self._kept[problem.number] = _Kept(text, stored, lesson, until)
        return lesson


def _lesson(service: Service, problem: listing.Problem, text: StudyText | str) -> Lesson:
    known = learned.sample(service.store, problem.number)
    default = default_of(service, problem, text)
    return Lesson(known, learned.learned(service.store, problem.number, known, default), default)


def _stored(service: Service, problem: int) -> tuple[int, ...]:
    """Return how many trials decide what is best, how many of their searches have ended, and the first search."""
    searches = listing.answering(service.store, problem)
    trials = survey.by_outcome(survey.tally(service.store, [search.number for search in searches])).total()
    return trials, sum(search.ended is not None for search in searches), *(search.number for search in searches[:1])


def default_of(service: Service, problem: listing.Problem, text: StudyText | str) -> Configuration | str:
    """Return the study's default configuration for a problem, moved if it is not valid there, or the reason why not.

    Call it from a thread of a request: an uploaded study is examined in a process of its own.
    """
    if isinstance(text, str):
        return text
    if service.studies.own(text.name) is not None:
        return single.default_of(service.store, problem, text)
    device = listing.device(service.store, problem.key.device)
    if device is None:
        return "nothing is stored of the device, so that the study's default configuration is not known"
    if not _ASKING.acquire(blocking=False):
        return BUSY
    try:
        return from_thread.run(submitting.default_of, service, problem.key, device)
    except AutotuneError as error:  # the study is a different one now, or its process lacked memory
        log.warning("problem %d: the default of %s is not known: %s", problem.number, text.name, error)
        return single.not_known(for_others(error))
    finally:
        _ASKING.release()


def course_of(service: Service, numbers: list[int], *, live: bool) -> dict[str, Any]:
    """Return how these searches went."""
    searches = [one for number in sorted(numbers) if (one := listing.search(service.store, number)) is not None]
    return course.course(service.store, searches, most=LIVE_DOTS if live else course.MOST_DOTS)
