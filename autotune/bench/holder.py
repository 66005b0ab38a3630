"""A kernel that keeps the device busy while work is queued behind it; with it, the time of an empty launch."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial

import numpy as np

from autotune.bench.kernels import EMPTY, HOLDER, common_options
from autotune.bench.launcher import noticing_loss
from autotune.devices import Batch, Event, Session

_LAUNCHES = 100
"""Launches of a batch: half as many as a driver accepts ahead."""

_BATCHES = 5

_HOLD_NS = 750_000
"""Nanoseconds of a hold: longer than a quick host takes to enqueue these launches."""

_TURNS = 1_000_000
"""Turns of the holder's loop that are timed to know how long one takes: some milliseconds in all."""


class Holder:
    """A kernel of one work-item that keeps the device busy for a given time, without touching its caches."""

    def __init__(self, session: Session) -> None:
        self._session = session
        program = session.build(HOLDER + EMPTY, common_options(session))
        self._kernel, self._empty = program.kernel("holder"), program.kernel("empty")
        self._word = session.allocate(4)  # a kernel does not keep its arguments alive
        session.fill(self._word, 1, 0, 4)
        session.set_arguments(self._empty, (self._word,))

    def holding(self, ns: float) -> Callable[[], Event]:
        """Return a function that launches it for about `ns`. The first call measures how long a turn takes."""
        return partial(self._launch, max(1, round(ns / self._turn_ns)))

    def _launch(self, turns: int) -> Event:
        self._session.set_arguments(self._kernel, (self._word, np.uint32(turns)))
        return self._session.launch(self._kernel, (1,), (1,))

    @cached_property
    def _turn_ns(self) -> float:
        for _ in range(2):  # the first may compile, and wakes the device
            with noticing_loss(), self._session.batch() as batch:
                self._launch(_TURNS)
        return batch.ns / _TURNS

    @cached_property
    def launch_ns(self) -> float:
        """Nanoseconds of the device for an empty launch among others in a queue. Raises Fault."""
        slowest_ns = max(self._batch(_LAUNCHES, _HOLD_NS).enqueued_ns for _ in range(2))
        hold_ns = max(_HOLD_NS, 1.5 * slowest_ns)

        def least_ns(launches: int) -> int:  # disturbances only make times longer
            batches = (self._batch(launches, hold_ns) for _ in range(_BATCHES))
            return min(batch.held_ns + batch.ns for batch in batches)

        return max(0.0, least_ns(_LAUNCHES) - least_ns(0)) / _LAUNCHES

    def _batch(self, launches: int, hold_ns: float) -> Batch:
        with noticing_loss(), self._session.batch(self.holding(hold_ns)) as batch:
            for _ in range(launches):
                self._session.launch(self._empty, (1,), (1,))
        return batch


def can_hold(session: Session) -> bool:
    """Say whether batches can be timed by the host's clock: not on a device that shares the host's cores."""
    return session.traits.checks_on_device and not session.traits.shares_cores
