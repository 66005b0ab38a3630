"""What a search is asked for and what it says: its budget, its progress, its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from autotune.errors import AutotuneError
from autotune.model import Outcome, Trial
from autotune.study import Problem

DEFAULT_SECONDS = 40.0
"""The budget where none is given: with start and end the search is over within a minute on two CPU cores."""

GAIN_TRIALS = 20
"""How far ahead the gain expected is looked at."""


@dataclass(frozen=True)
class Budget:
    """When to stop, whichever comes first: new trials, seconds, trials without a better best, expected gain.

    `least_gain` stops once less than that share is expected from the next `GAIN_TRIALS` trials: an estimate
    of the sampler's model, not a promise.
    """

    trials: int | None = None
    seconds: float | None = None
    until_stale: int | None = None
    least_gain: float | None = None


@dataclass(frozen=True)
class Progress:
    """Where a running search stands.

    `rate` is configurations per second since the first was done; 0, as `left_s` None: cannot be said yet.
    """

    done: int
    total: int | None
    failures: Mapping[Outcome, int]
    best: Trial | None
    elapsed_s: float
    rate: float
    left_s: float | None
    phase: str


@dataclass(frozen=True)
class Result:
    """What a search found. `trials` counts the new ones, `reused` those that were stored before it.

    `best` is None where no configuration passed; its `verified_runs` counts the runs that it has stood among the
    finalists. `ties` are trials whose re-timed interval overlaps the winner's. `reason` says why the search ended;
    `usage` where its wall time went, in seconds. `failure` is the error that ended it, where one did: no worker can be
    started any more.
    """

    problem: Problem = field(repr=False)
    best: Trial | None
    default: Trial | None = field(repr=False)
    trials: int
    reused: int
    failures: Mapping[Outcome, int]
    examples: Mapping[Outcome, Trial] = field(repr=False)
    ties: tuple[Trial, ...] = field(repr=False)
    reason: str
    usage: Mapping[str, float]
    elapsed_s: float
    failure: AutotuneError | None = None

    @property
    def why_no_default(self) -> str:
        """Why the study's default configuration has no trial; empty where it has one."""
        if self.default is not None:
            return ""
        return f"it had not come to run when the search ended ({self.reason})"


ProgressCallback = Callable[[Progress], None]
