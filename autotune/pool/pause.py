"""Halts the builders while a trial is timed, on devices that share the hardware with them (CPUs)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Pausable(Protocol):
    """A process that can be halted and continued."""

    def halt(self) -> None: ...

    def go_on(self) -> None: ...


class Pause:
    """Halts its members as long as at least one thread holds it. A member that joins meanwhile is halted too."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._members: set[Pausable] = set()
        self._holders = 0

    def join(self, member: Pausable) -> None:
        """Add a process."""
        with self._lock:
            self._members.add(member)
            if self._holders:
                member.halt()

    def leave(self, member: Pausable) -> None:
        """Remove a process that has ended."""
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
