"""Builders and the device's worker taking turns where they share the hardware: a CPU device."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Closed(Exception):
    """The evaluator is closing; the thread ends."""


class Turns:
    """Lets builders work together, then the trials of what they built run, one by one, with no builder at work.

    Where the turns are not `exclusive` (a GPU), nobody waits.
    """

    def __init__(self, *, exclusive: bool) -> None:
        self._exclusive = exclusive
        self._changed = threading.Condition()
        self._building = 0
        self._handed_over = 0
        self._closed = False

    @contextmanager
    def building(self) -> Iterator[None]:
        """Hold a builder's turn: begins once every trial handed over has ended. Raises Closed."""
        with self._changed:
            self._await(lambda: self._handed_over == 0)
            self._building += 1
        try:
            yield
        finally:
            with self._changed:
                self._building -= 1
                self._changed.notify_all()

    def hand_over(self) -> None:
        """Announce a trial to the device's worker; called in a builder's turn."""
        with self._changed:
            self._handed_over += 1

    @contextmanager
    def running(self) -> Iterator[None]:
        """Hold the turn of a trial that was handed over: begins once no builder is at work. Raises Closed."""
        with self._changed:
            self._await(lambda: self._building == 0)
        try:
            yield
        finally:
            with self._changed:
                self._handed_over = max(0, self._handed_over - 1)
                self._changed.notify_all()

    def close(self) -> None:
        """Wake everybody who waits."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _await(self, come: Callable[[], bool]) -> None:
        if not self._exclusive:
            return
        self._changed.wait_for(lambda: self._closed or come())
        if self._closed:
            raise Closed
