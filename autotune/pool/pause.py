"""Stopping the builders while a trial is on the clock, where they share the hardware: a CPU device."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Pausable(Protocol):
    """A process that can be halted and goes on where it was."""

    def halt(self) -> None: ...

    def go_on(self) -> None: ...


class Pause:
    """Halts its members for as long as anybody holds it; who joins meanwhile is halted too."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._members: set[Pausable] = set()
        self._holders = 0

    def join(self, member: Pausable) -> None:
        """Take in a process."""
        with self._lock:
            self._members.add(member)
            if self._holders:
                member.halt()

    def leave(self, member: Pausable) -> None:
        """Forget a process that has ended."""
        with self._lock:
            self._members.discard(member)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Halt the members until the end of the block."""
        self._hold(1)
        try:
            yield
        finally:
            self._hold(-1)

    def _hold(self, change: int) -> None:
        with self._lock:
            before, self._holders = self._holders, self._holders + change
            for member in self._members if not (before and self._holders) else ():
                if self._holders:
                    member.halt()
                else:
                    member.go_on()
