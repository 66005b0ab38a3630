"""How often Python switches between threads while it manages workers."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_TURN_S = 0.0005

_lock = threading.Lock()
_before: list[float] = []
"""The interval before the first of the current searches, once for each: they need not end in the order they began."""


@contextmanager
def quick_turns() -> Iterator[None]:
    """Let threads that wait for Python's lock (GIL) have it within half a millisecond, while any such block lasts.

    The threads that manage workers need the lock for moments, several times for each message. While another thread
    imports or proposes, they would wait 5 ms each time, and a device with them.
    """
    with _lock:
        _before.append(_before[0] if _before else sys.getswitchinterval())
        sys.setswitchinterval(min(_TURN_S, sys.getswitchinterval()))
    try:
        yield
    finally:
        with _lock:
            usual = _before.pop()
            if not _before:
                sys.setswitchinterval(usual)
