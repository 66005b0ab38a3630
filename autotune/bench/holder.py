"""A kernel that holds the device while work is queued behind it; by it, the session whose launches are quickest.

What a launch takes beside its kernel differs from context to context of one driver, by where in memory the driver
happens to put its queues: on an H200 an empty kernel took 3.3 to 3.7 us and a sum in two launches 10.7 to 11.4. Each
search would meet another.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property, partial

import numpy as np

from autotune.bench.kernels import EMPTY, HOLDER, common_options
from autotune.bench.launcher import noticing_loss
from autotune.bench.report import Fault
from autotune.devices import BackendError, Session, open_session

_OTHERS = 3
"""Sessions opened to choose from: about half of all are quick, and each takes an eighth of a second."""

_LAUNCHES = 200
"""Of a batch: as many as a driver takes ahead."""

_BATCHES = 7

_HOLD_NS = 1_500_000
"""Longer than the host takes to enqueue them."""

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
        self._turn_ns = 1.0
        for _ in range(2):  # the first may compile, and wakes the device
            with noticing_loss(), session.batch(partial(self.hold, _TURNS)) as batch:
                pass
        self._turn_ns = batch.ns / _TURNS

    def hold(self, ns: float) -> None:
        """Enqueue it for about so long."""
        turns = max(1, round(ns / self._turn_ns))
        self._session.set_arguments(self._kernel, (self._word, np.uint32(turns)))
        self._session.launch(self._kernel, (1,), (1,))

    @cached_property
    def launch_ns(self) -> float:
        """Device time of a launch that does nothing, among others in a queue. Raises Fault."""
        # Whatever disturbs the host's clock adds to it.
        full, bare = (min(self._batch(launches) for _ in range(_BATCHES)) for launches in (_LAUNCHES, 0))
        return max(0.0, full - bare) / _LAUNCHES

    def _batch(self, launches: int) -> int:
        with noticing_loss(), self._session.batch(partial(self.hold, _HOLD_NS)) as batch:
            for _ in range(launches):
                self._session.launch(self._empty, (1,), (1,))
        return batch.ns


def can_hold(session: Session) -> bool:
    """Say whether batches on the host's clock tell of the device: one that shares its cores would run that too."""
    return session.traits.checks_on_device and not session.traits.shares_cores


def quickest(session: Session) -> Session:
    """Return this session or another on its device, whichever has the quickest launches of a few. Raises Fault."""
    least_ns = Holder(session).launch_ns
    # A device may be too full for one more.
    with suppress(BackendError, Fault):
        for _ in range(_OTHERS):
            other = open_session(session.info)
            ns = Holder(other).launch_ns
            if ns < least_ns:
                session, least_ns = other, ns
    session.busy_ns()  # what this took is no trial's
    return session
