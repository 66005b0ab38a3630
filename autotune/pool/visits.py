"""Times finalists of short launches in one process after another, each on a session on which nothing has run.

The builders have such sessions, and nothing to build any more. They prepare the finalists at the same time and time
them in turn, because creating a context and the first runs on it take milliseconds of the device.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Condition

from autotune.bench import (
    SAMPLES,
    TOGETHER,
    VERIFIED_S,
    Onward,
    Report,
    Retime,
    Setup,
    Visit,
    Visited,
    are_apart,
    is_settled,
    verifying_s,
)
from autotune.errors import AutotuneError
from autotune.pool.blame import is_from_outside
from autotune.pool.keeper import Keeper
from autotune.pool.process import IDLE, WorkerDied, WorkerOverran
from autotune.study import Plan

log = logging.getLogger(__name__)

_SHARE = 4
"""Visits at the same time may take one part in so many of the device's memory."""

_FIRST = 2
"""Finalists that show whether sessions differ. A single one would be timed for longer."""

_NO_PLANS = ("start", IDLE)
"""The phases of a worker in which a failure is no plan's fault."""


class Turns:
    """Lets visitors time one after another, once all of them are prepared or lost."""

    def __init__(self, count: int, until: float) -> None:
        self._changed = Condition()
        self._preparing = count
        self._timing = False
        self._until = until

    @contextmanager
    def visitor(self) -> Iterator[Callable[[], float]]:
        """Be one visitor. Yield a function that waits for its turn and returns the seconds left, or 0 if it is late."""
        has_turn = False

        def take() -> float:
            nonlocal has_turn
            if not has_turn:  # it is called again if its worker was ended from outside
                self._take()
                has_turn = True
            return max(0.0, self._until - time.monotonic())

        try:
            yield take
        finally:
            with self._changed:
                self._preparing -= not has_turn
                self._timing = False  # if one is timing, it is this one: all wait until no other prepares
                self._changed.notify_all()

    def _take(self) -> None:
        with self._changed:
            self._preparing -= 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._preparing and not self._timing)
            self._timing = True


@dataclass
class Tour:
    """Has finalists visited until it is known how sessions differ, or time is up.

    `asked` is the request, `home` what the device's worker knows of its plans. `limit_s` is how long a worker may take
    before its first message.
    """

    asked: Retime
    home: Onward
    setup: Setup
    limit_s: float
    _until: float = 0.0
    _met: list[Sequence[Visited]] = field(default_factory=list)
    _failed: dict[int, Report] = field(default_factory=dict)

    def visited(self, keepers: Sequence[Keeper]) -> tuple[Visited, ...]:
        """Return what is known of each finalist after workers have visited, in turn, again and again.

        If it is doubted that sessions differ, the first finalists are tried; if sessions do not differ, there are no
        visits.
        """
        budget_s = self.asked.budget_s
        self._until = time.monotonic() + budget_s - min(VERIFIED_S, verifying_s(budget_s))
        queue = list(keepers)
        self._failed = _failures(self.home.visited)
        if self.home.doubted and not self._are_apart(queue[:TOGETHER]):
            return tuple(replace(one, visits=()) for one in self.home.visited)
        while not self._is_over():
            some = queue[: 1 if len(self.home.visited) == 1 else TOGETHER]
            queue = [*queue[len(some) :], *some]
            log.debug("%d of %d workers visit %d finalists", len(some), len(queue), len(self.home.visited))
            if not all(self._round(some)):
                break  # mostly because there is no room
        return self._told_all()

    def _are_apart(self, keepers: Sequence[Keeper]) -> bool:
        """Have each worker time the first finalists; say whether times differ, the device worker's included."""
        some = replace(self.home, visited=self.home.visited[:_FIRST])
        first = Tour(replace(self.asked, plans=self.asked.plans[:_FIRST]), some, self.setup, self.limit_s)
        first._until, first._failed = self._until, _failures(some.visited)
        failed = len(first._failed)
        first._round(keepers)
        sound = [one.visits for place, one in enumerate(first._told_all()) if place not in first._failed]
        return len(first._failed) > failed or are_apart(sound)

    def _is_over(self) -> bool:
        if len(self._failed) == len(self.home.visited) or time.monotonic() >= self._until:
            return True
        if len(self.home.visited) == 1:
            return bool(self._met)
        # Half the precision is enough for long launches, whose visits take seconds: few of them depend on the session.
        target = self.setup.rules.target
        return is_settled(self._sound(), target if self.home.doubted else target / 2)

    def _sound(self) -> list[list[Sequence[int]]]:
        """Return the visits of the finalists that have not failed."""
        places = [place for place in range(len(self.home.visited)) if place not in self._failed]
        return [[met[place].visits[0] for met in self._met] for place in places]

    def _round(self, keepers: Sequence[Keeper]) -> list[bool]:
        """Have each worker visit once, and say for each whether its visit was useful."""
        turns = Turns(len(keepers), self._until)
        with ThreadPoolExecutor(len(keepers), "autotune-visit") as threads:
            found = list(threads.map(partial(self._visit, turns), keepers))
        failures = [_failures(visited) for visited in found]
        new = [bool(some.keys() - self._failed.keys()) for some in failures]
        for some in failures:
            self._failed |= some
        return [self._count(visited) or fails for visited, fails in zip(found, new, strict=True)]

    def _count(self, visited: Sequence[Visited]) -> bool:
        """Count a visit if it has a time for each finalist that has not failed; return whether it counts."""
        sound = [one for place, one in enumerate(visited) if place not in self._failed]
        counts = bool(sound) and all(one.visits for one in sound)
        if counts:
            self._met.append(visited)
        return counts

    def _visit(self, turns: Turns, keeper: Keeper) -> Sequence[Visited]:
        known = [
            replace(one, visits=(), verified=0, failure=self._failed.get(place))
            for place, one in enumerate(self.home.visited)
        ]
        asked = Visit(self.setup, self.asked.plans, self.asked.best_ns, tuple(known))
        with turns.visitor() as take_turn:
            try:
                answer = keeper.ask(asked, self.limit_s, take_turn)
            except (WorkerOverran, WorkerDied) as end:
                if end.phase in _NO_PLANS or (isinstance(end, WorkerDied) and is_from_outside(end)):
                    return ()
                known[end.place] = replace(known[end.place], failure=Report(end.outcome, str(end), phase=end.phase))
                return known
            except AutotuneError as error:  # no worker can be started, for example: the device's may still be fine
                log.info("a finalists' visitor is lost: %s", error)
                return ()
        return answer.visited if isinstance(answer, Onward) else ()

    def _told_all(self) -> tuple[Visited, ...]:
        return tuple(self._told(place, one) for place, one in enumerate(self.home.visited))

    def _told(self, place: int, home: Visited) -> Visited:
        """Return what is known of a finalist. The worker's own session counts only if there were few visits."""
        if place in self._failed:
            return replace(home, failure=self._failed[place])
        met = [one[place] for one in self._met]
        visits = [one.visits[0] for one in met]
        if len(self._met) < SAMPLES:
            visits += home.visits
        throttled = next((one.throttled for one in (*met, home) if one.throttled), "")
        return replace(
            home, visits=tuple(visits), verified=home.verified + sum(one.verified for one in met), throttled=throttled
        )


def _failures(visited: Sequence[Visited]) -> dict[int, Report]:
    return {place: one.failure for place, one in enumerate(visited) if one.failure is not None}


def most_visitors(plans: Sequence[Plan], memory: int) -> int:
    """Return how many workers, one at least, may visit at the same time on a device with `memory` bytes."""
    buffers = {buffer for plan in plans for buffer in plan.buffers}
    return max(1, memory // _SHARE // max(1, sum(buffer.nbytes for buffer in buffers)))
