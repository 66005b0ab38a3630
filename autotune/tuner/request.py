"""The request for a search, and its budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from autotune.model import Configuration, DeviceInfo
from autotune.pool import Settings
from autotune.samplers import DEFAULT_SAMPLER
from autotune.study import Problem

DEFAULT_SECONDS = 40.0
"""The default budget: the search, with its start and end, is over within a minute on two CPU cores."""

GAIN_TRIALS = 20
"""For how many trials ahead the expected gain is estimated."""


@dataclass(frozen=True)
class Budget:
    """When to stop, whichever comes first: new trials, seconds, trials without a better best, expected gain.

    `least_gain` stops once the sampler's model expects less than that share from the next `GAIN_TRIALS` trials, which
    is only an estimate. With none of these limits the search stops when the space is exhausted.
    """

    trials: int | None = None
    seconds: float | None = None
    until_stale: int | None = None
    least_gain: float | None = None


@dataclass(frozen=True)
class Request:
    """A search to run: what to search, where, how, and for how long.

    `devices`: the devices to spread the trials over, all of the problem's model; if empty, the problem's own.
    `database`: a path or URL, None for the default one. `start`: configurations to try early; parameters that one
    leaves out have their default. Stored trials of the problem are not measured again, unless `fresh` or the device has
    another driver. Failures that may have been the machine's fault are tried once more; with `retry_failed`, all
    failures except wrong results. `cold` ignores what is known of other devices, drivers and sizes. `submission`: the
    entry of a server's queue that this search works on; it continues after earlier processes of that entry.
    `asked_by`: who asked for it, for the record.
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
