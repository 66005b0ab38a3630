"""Ctrl-C, a closed terminal, `timeout`: a search ends in order. A second Ctrl-C ends the command at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer

from autotune.cli.output import say
from autotune.errors import Counted, counting_told
from autotune.pool import Stopped

ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The signals that ask a command to end."""


@contextmanager
def stopping(endings: Sequence[signal.Signals] = ENDINGS) -> Iterator[threading.Event]:
    """Yield an event that the first of some signals within the block sets; a second Ctrl-C raises KeyboardInterrupt.

    A second one of the other signals may come by itself, from the shell and from the system. If the block ends by
    Stopped, a line says that the finished trials are stored, and the exit code is 130.
    """
    stop = threading.Event()

    def ask(number: int, _: Any) -> None:
        if number == signal.SIGINT:
            signal.signal(number, signal.default_int_handler)
        stop.set()

    before = {number: signal.getsignal(number) for number in endings}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:  # ignored under `nohup` and in background jobs
            signal.signal(number, ask)

    def end(_: Counted) -> None:
        if stop.is_set():
            raise Stopped

    try:
        with counting_told(end):
            yield stop
    except Stopped:
        say("interrupted; what had finished is stored")
        raise typer.Exit(130) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
