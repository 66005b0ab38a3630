"""Waiting for an effect of another thread or process."""

from __future__ import annotations

import time
from collections.abc import Callable

WAIT_S = 60.0
"""Seconds to wait for another process at most."""


def wait_until(
    condition: Callable[[], object], told: Callable[[], object] = lambda: "waited in vain", pause_s: float = 0.01
) -> None:
    """Return once a condition holds, checked after each pause; after WAIT_S fail with the message from `told`."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, told()
        time.sleep(pause_s)
