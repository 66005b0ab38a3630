"""How often Python's threads take turns while workers are looked after."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

_TURN_S = 0.0005


@contextmanager
def quick_turns() -> Iterator[None]:
    """Have threads that wait for Python get it within half a millisecond, as long as this lasts.

    Those that look after workers need it for moments, several for each message. While another one imports or proposes
    they would wait for 5 ms each time, and a device with them.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, _TURN_S))
    try:
        yield
    finally:
        sys.setswitchinterval(before)
