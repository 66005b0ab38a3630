"""Ctrl-C: the first asks a search to end in order, the second ends the command at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def stopping() -> Iterator[threading.Event]:
    """Yield an event that the first Ctrl-C within the block sets; the second raises KeyboardInterrupt."""
    stop = threading.Event()

    def first(*_: Any) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        stop.set()

    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN:  # `nohup`, a script's background job
        signal.signal(signal.SIGINT, first)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)
