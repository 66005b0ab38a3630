"""How often Python's threads take turns while workers are looked after."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_TURN_S = 0.0005

_lock = threading.Lock()
_before: list[float] = []
"""What was set before the first of those at work, for each: searches in threads do not end in the order they began."""


@contextmanager
def quick_turns() -> Iterator[None]:
    """Have threads that wait for Python get it within half a millisecond, as long as this lasts anywhere.

    Those that look after workers need it for moments, several for each message. While another one imports or proposes
    they would wait for 5 ms each time, and a device with them.
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
