"""Ctrl-C: the first asks a search to end in order, the second ends the command at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

from autotune.cli.output import say
from autotune.pool import Stopped


@contextmanager
def stopping() -> Iterator[threading.Event]:
    """Yield an event that the first Ctrl-C within the block sets; the second raises KeyboardInterrupt.

    Where the block ends by Stopped, what was stored is said, and the exit code is 130.
    """
    stop = threading.Event()

    def first(*_: Any) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        stop.set()

    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN:  # `nohup`, a script's background job
        signal.signal(signal.SIGINT, first)
    try:
        yield stop
    except Stopped:
        say("interrupted; what had ended by then is stored")
        raise typer.Exit(130) from None
    finally:
        signal.signal(signal.SIGINT, before)
