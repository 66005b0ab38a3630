"""A kernel that holds the device while work is queued behind it; by it, what a launch takes that does nothing."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial

import numpy as np

from autotune.bench.kernels import EMPTY, HOLDER, common_options
from autotune.bench.launcher import noticing_loss
from autotune.devices import Batch, Event, Session

_LAUNCHES = 100
"""Of a batch: half as many as a driver takes ahead."""

_BATCHES = 5

_HOLD_NS = 750_000
"""Longer than a quick host takes to enqueue them."""

_TURNS = 1_000_000
"""Of the holder's loop, to know what one takes: some milliseconds."""


class Holder:
    """A kernel of one work-item that keeps the device busy for as long as is asked for, without touching its caches."""

    def __init__(self, session: Session) -> None:
        self._session = session
        program = session.build(HOLDER + EMPTY, common_options(session))
        self._kernel, self._empty = program.kernel("holder"), program.kernel("empty")
        self._word = session.allocate(4)  # a kernel does not keep its arguments alive
        session.fill(self._word, 1, 0, 4)
        session.set_arguments(self._empty, (self._word,))

    def holding(self, ns: float) -> Callable[[], Event]:
        """Return what launches it for about so long. What a turn takes is measured here, before a batch."""
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
        """Device time of a launch that does nothing, among others in a queue. Raises Fault."""
        slowest_ns = max(self._batch(_LAUNCHES, _HOLD_NS).enqueued_ns for _ in range(2))
        hold_ns = max(_HOLD_NS, 1.5 * slowest_ns)

        def least_ns(launches: int) -> int:  # whatever disturbs the host's clock adds to it
            batches = (self._batch(launches, hold_ns) for _ in range(_BATCHES))
            return min(batch.held_ns + batch.ns for batch in batches)

        return max(0.0, least_ns(_LAUNCHES) - least_ns(0)) / _LAUNCHES

    def _batch(self, launches: int, hold_ns: float) -> Batch:
        with noticing_loss(), self._session.batch(self.holding(hold_ns)) as batch:
            for _ in range(launches):
                self._session.launch(self._empty, (1,), (1,))
        return batch


def can_hold(session: Session) -> bool:
    """Say whether batches on the host's clock tell of the device: one that shares its cores would run that too."""
    return session.traits.checks_on_device and not session.traits.shares_cores
