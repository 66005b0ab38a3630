"""A looked-up best measured here and now, beside the study's default: what came of it, and what it is worth."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from autotune import lookup, text
from autotune.errors import AutotuneError
from autotune.lookup import Best, Match
from autotune.model import Trial
from autotune.ranking import speedup
from autotune.study import Problem
from autotune.tuner import Request, measure


@dataclass(frozen=True)
class Verified:
    """What verifying a best gave. `best` is the answer that was verified, as it was looked up before.

    `slowdown` is the share by which it is slower than the default (below 0: faster) and `interval` the 95 % interval of
    that, from pairs of samples taken within the same moments; None where one of the two did not pass.
    """

    problem: Problem
    best: Best
    trial: Trial | None
    default: Trial | None
    slowdown: float | None = None
    interval: tuple[float, float] | None = None

    @property
    def is_default(self) -> bool:
        """Whether the best is the default itself: then there is nothing to compare."""
        return dict(self.best.configuration) == self.problem.default

    def exceeds(self, most: float) -> bool:
        """Say whether it is slower than the default by more than a share, beyond what the interval allows."""
        return self.interval is not None and self.interval[0] > most


def verify(request: Request, stop: threading.Event | None = None) -> Verified:
    """Look a problem's best up, put it and the default through a new trial each, and time them in turns.

    All is stored: a best that gives a wrong result here is not named again. Raises AutotuneError where nothing but
    the default is known, and Stopped.
    """
    problem = request.problem
    best = lookup.best(
        problem.study.text,
        problem.size,
        problem.choices,
        problem.device.fingerprint,
        database=request.database,
        device=problem.device,
    )
    if best.match is Match.DEFAULT:
        raise AutotuneError(
            f"nothing is stored that could be verified at {text.size(problem.size)}",
            where=problem.study.name,
            hint="autotune search finds a best",
        )
    measured = measure(request, [best.configuration, problem.default], stop, anew=True)
    trial, default = measured.of(best.configuration), measured.of(problem.default)
    return _compared(Verified(problem, best, trial, default))


def _compared(found: Verified) -> Verified:
    trial, default = found.trial, found.default
    times = [
        one.retimed.samples_ns for one in (trial, default) if one is not None and one.retimed and not one.outcome.failed
    ]
    if len(times) < 2 or found.is_default:
        return found
    ratio, low, high = speedup(times[0], times[1])
    return Verified(found.problem, found.best, trial, default, ratio - 1, (low - 1, high - 1))
