"""What a search needs of whoever runs its trials, and how they are run."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, Self

from autotune.bench import Limits, Rules
from autotune.model import Configuration, Measurement, Trial


@dataclass(frozen=True, slots=True)
class Settings:
    """How trials are run. `builders`: processes that build ahead; None: as many as the machine suggests.

    `trials`: how many to expect; None: not known. `learns`: what is submitted is chosen the better the more trials have
    ended. `stops_slow`: what is slower than the best is not timed to the end.
    """

    rules: Rules = field(default_factory=Rules)
    limits: Limits = field(default_factory=Limits)
    builders: int | None = None
    trials: int | None = None
    learns: bool = True
    allow_python: bool = False
    stops_slow: bool = True


class Evaluator(Protocol):
    """Turns configurations into trials, several at a time; a context manager, which closes it.

    `best_ns` bounds early stop and timeouts, None while unknown: given at the start, and lowered here as trials pass.
    """

    best_ns: float | None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def capacity(self) -> int:
        """How many it wants in flight; it may change."""

    def submit(self, configuration: Configuration) -> None:
        """Begin a trial; returns at once."""

    def collect(self, timeout_s: float | None = None) -> Trial:
        """Return the next finished trial. Only called while some are in flight. Raises TimeoutError."""

    @property
    def ready(self) -> int:
        """How many more `collect` would return at once: what ends together is recorded together."""

    def retime(
        self, configurations: Sequence[Configuration], budget_s: float = 5.0, stop: threading.Event | None = None
    ) -> Sequence[Measurement | Trial | None]:
        """Time configurations interleaved; none may be in flight. Raises Stopped where `stop` is set meanwhile.

        A failed Trial for one that fails, None where there is no saying.
        """

    def withdraw(self, leave: int = 0, *, building: bool = False) -> Sequence[Configuration]:
        """Take back the trials that no device has begun, but for some; return their configurations.

        With `building`, also those whose kernel a device's worker still builds.
        """

    def usage(self) -> Mapping[str, float]:
        """Return where the wall time went, in seconds: build, verify, time, idle."""

    def close(self) -> None:
        """End every process and remove every file."""
