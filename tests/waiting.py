"""Waiting for what another thread or process brings about."""

from __future__ import annotations

import time
from collections.abc import Callable

WAIT_S = 60.0
"""How long a process may take to come to what it is waited for."""


def wait_until(
    condition: Callable[[], object], told: Callable[[], object] = lambda: "waited in vain", pause_s: float = 0.01
) -> None:
    """Return once a condition holds, looking again after each pause; after WAIT_S fail with what is `told` then."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, told()
        time.sleep(pause_s)
