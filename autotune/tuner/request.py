"""What a search is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from autotune.model import Configuration, DeviceInfo
from autotune.pool import Settings
from autotune.samplers import DEFAULT_SAMPLER
from autotune.study import Problem

DEFAULT_SECONDS = 40.0
"""The budget where none is given: with start and end the search is over within a minute on two CPU cores."""

GAIN_TRIALS = 20
"""How far ahead the gain expected is looked at."""


@dataclass(frozen=True)
class Budget:
    """When to stop, whichever comes first: new trials, seconds, trials without a better best, expected gain.

    `least_gain` stops once less than that share is expected from the next `GAIN_TRIALS` trials: an estimate
    of the sampler's model, not a promise. Nothing at all: when the space is exhausted.
    """

    trials: int | None = None
    seconds: float | None = None
    until_stale: int | None = None
    least_gain: float | None = None


@dataclass(frozen=True)
class Request:
    """A search to run: what is searched, where, how, and for how long.

    `devices`: those to spread the trials over, all of the problem's model; none: the problem's own. `database`: a path
    or URL, None for the default one. `start`: configurations to try early, what one leaves out as by default. What is
    stored for the problem is not measured again, unless `fresh` or the device's driver is another; failures that may
    have been the machine's are tried once more, all but wrong results with `retry_failed`. `cold` ignores what is known
    of other devices, drivers and sizes. `submission`: the one of a server's queue that this is the work of, and goes on
    with where an earlier process of it has ended; `asked_by`: who asked, on record.
    """

    problem: Problem
    devices: Sequence[DeviceInfo] = ()
    database: str | None = None
    sampler: str = DEFAULT_SAMPLER
    seed: int | None = None
    budget: Budget = Budget(seconds=DEFAULT_SECONDS)
    start: Sequence[Configuration] = ()
    retry_failed: bool = False
    fresh: bool = False
    cold: bool = False
    settings: Settings = field(default_factory=Settings)
    submission: str | None = None
    asked_by: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "devices", list(self.devices) or [self.problem.device])
