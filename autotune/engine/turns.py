"""Builders and the device's worker taking turns where they share the hardware: a CPU device."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Closed(Exception):
    """The evaluator is closing; the thread ends."""


class Turns:
    """Lets builders work together on all that waits, then the trials of what they built run, one by one.

    Building whole batches matters: builds differ tenfold in length, and at the end of each batch cores idle.
    Where the turns are not `exclusive` (a GPU), nobody waits.
    """

    def __init__(self, *, exclusive: bool) -> None:
        self._exclusive = exclusive
        self._changed = threading.Condition()
        self._waiting = 0  # submitted, and no builder has begun
        self._building = 0
        self._handed_over = 0  # built, and the trial has not ended
        self._run = False
        self._closed = False

    def submit(self) -> None:
        """Announce something to build."""
        with self._changed:
            self._waiting += 1

    @contextmanager
    def building(self) -> Iterator[None]:
        """Hold a builder's turn: begins once every trial of the last batch has ended. Raises Closed."""
        with self._changed:
            self._await(lambda: not self._run)
            self._waiting -= 1
            self._building += 1
        try:
            yield
        finally:
            with self._changed:
                self._building -= 1
                self._settle()

    def hand_over(self) -> None:
        """Announce a trial to the device's worker; called in a builder's turn."""
        with self._changed:
            self._handed_over += 1

    @contextmanager
    def running(self) -> Iterator[None]:
        """Hold the turn of a trial that was handed over: begins once nothing is left to build. Raises Closed."""
        with self._changed:
            self._await(lambda: self._run)
        try:
            yield
        finally:
            with self._changed:
                self._handed_over -= 1
                self._settle()

    def close(self) -> None:
        """Wake everybody who waits."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _settle(self) -> None:
        if self._run:
            self._run = self._handed_over > 0
        else:
            self._run = self._handed_over > 0 and self._building == 0 and self._waiting == 0
        self._changed.notify_all()

    def _await(self, come: Callable[[], bool]) -> None:
        if not self._exclusive:
            return
        self._changed.wait_for(lambda: self._closed or come())
        if self._closed:
            raise Closed
