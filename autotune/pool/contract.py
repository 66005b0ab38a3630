"""The interface that a search needs to run its trials, and the settings for them."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, Self

from autotune.bench import Limits, Rules
from autotune.model import Configuration, Measurement, Trial


@dataclass(frozen=True, slots=True)
class Settings:
    """How trials are run. `builders`: processes that build ahead, or None for as many as suit the machine.

    `trials`: how many to expect, or None if not known. `learns`: the more trials have ended, the better the next
    configurations are chosen. `stops_slow`: a configuration that is slower than the best is not timed to the end.
    """

    rules: Rules = field(default_factory=Rules)
    limits: Limits = field(default_factory=Limits)
    builders: int | None = None
    trials: int | None = None
    learns: bool = True
    allow_python: bool = False
    stops_slow: bool = True


class Evaluator(Protocol):
    """Turns configurations into trials, several at a time. A context manager, which closes it.

    `best_ns` decides about early stops and timeouts. It is given at the start (None if unknown), and the evaluator
    lowers it when a trial is faster.
    """

    best_ns: float | None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def capacity(self) -> int:
        """How many trials it wants in flight; it may change."""

    def submit(self, configuration: Configuration) -> None:
        """Begin a trial; returns at once."""

    def collect(self, timeout_s: float | None = None) -> Trial:
        """Return the next finished trial. Call it only while trials are in flight. Raises TimeoutError."""

    @property
    def ready(self) -> int:
        """How many more trials `collect` would return at once: trials that end together are recorded together."""

    def retime(
        self, configurations: Sequence[Configuration], budget_s: float = 5.0, stop: threading.Event | None = None
    ) -> Sequence[Measurement | Trial | None]:
        """Time configurations interleaved; none may be in flight. Raises Stopped if `stop` is set meanwhile.

        Return a Measurement for each, a failed Trial if it failed, or None if nothing is known about it.
        """

    def withdraw(self, leave: int = 0, *, building: bool = False) -> Sequence[Configuration]:
        """Take back the trials that no device has begun, except `leave` of them; return their configurations.

        With `building`, also take back trials whose kernel a device's worker still builds.
        """

    def usage(self) -> Mapping[str, float]:
        """Return where the wall time went, in seconds: build, verify, time, finalists, idle."""

    def close(self) -> None:
        """End every process and remove every file."""
