"""Helpers for processes in tests: whether one has ended, and one that stays stopped."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from contextlib import suppress
from threading import Event

import pytest


def has_ended(pid: int, within_s: float = 60.0) -> bool:
    """Return whether a process ends in time; after SIGKILL it still exists for a moment, longer on a busy machine."""
    with suppress(ProcessLookupError):
        descriptor = os.pidfd_open(pid)
        try:
            return bool(select.select([descriptor], [], [], within_s)[0])
        finally:
            os.close(descriptor)
    return True


def deafen(process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch) -> Event:
    """Keep a stopped process from continuing; return an event that is set once it is told to continue."""
    told, send_signal = Event(), process.send_signal

    def send(number: int) -> None:
        told.set()
        if number == signal.SIGKILL:
            send_signal(number)

    monkeypatch.setattr(process, "send_signal", send)
    return told
