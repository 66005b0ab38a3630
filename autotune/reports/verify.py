"""A looked-up best, measured here and now beside the study's default: the outcome, and how the two compare."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace

from autotune import lookup, text
from autotune.errors import AutotuneError
from autotune.lookup import Best, Match
from autotune.model import Configuration, Trial, identity
from autotune.ranking import speedup
from autotune.store import Store
from autotune.study import Problem
from autotune.tuner import Request, confidence_of, imported_best, measure


@dataclass(frozen=True)
class Verified:
    """The result of verifying a best.

    `configuration` was verified: that of `best`, which was looked up before, or the one of `imported`, which another
    tool found for exactly this problem. `slowdown` is the share by which it is slower than the default (below 0:
    faster) and `interval` its interval, from pairs of samples taken at the same moments; None if one of the two did not
    pass.
    """

    problem: Problem
    best: Best
    configuration: Configuration
    imported: Trial | None
    trial: Trial | None
    default: Trial | None
    slowdown: float | None = None
    interval: tuple[float, float] | None = None

    @property
    def is_default(self) -> bool:
        """Whether the best is the default itself: then there is nothing to compare."""
        return dict(self.configuration) == self.problem.default

    @property
    def confidence(self) -> int:
        """The per cent of cases in which such an interval holds the truth: with few samples it is lower."""
        return confidence_of(self.trial, self.default)

    def exceeds(self, most: float) -> bool:
        """Return whether it is slower than the default by more than a share, even at the lower end of the interval."""
        return self.interval is not None and self.interval[0] > most


def verify(request: Request, stop: threading.Event | None, *, searching: str) -> Verified:
    """Look up a problem's best, run a new trial of it and of the default, and time them in turns.

    If only imported trials are stored of exactly this problem, the fastest of these, by the other tool's times, is
    verified. Everything is stored: a best that gives a wrong result here is not named again. `searching` is the command
    that searches the problem as the user asked for it. Raises AutotuneError if nothing but the default is known, and
    Stopped.
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
    imported = None if best.match is Match.EXACT else _imported(request)
    if best.match is Match.DEFAULT and imported is None:
        raise AutotuneError(
            f"nothing is stored that could be verified at {text.size(problem.size) or 'its only size'}",
            where=problem.study.name,
            hint=f"{searching} finds a best",
        )
    configuration = best.configuration if imported is None else imported.configuration
    measured = measure(request, [configuration, problem.default], stop, anew=True)
    trial, default = (measured.get(identity(one)) for one in (configuration, problem.default))
    return _compared(Verified(problem, best, configuration, imported, trial, default))


def _imported(request: Request) -> Trial | None:
    """Return the fastest trial of another tool for a problem that is valid here."""
    with Store.to_read(request.database) as store:
        trials = store.imported(request.problem.key)
    first = next(iter(imported_best(request.problem, trials)), None)
    return next((trial for trial in reversed(trials) if trial.configuration == first), None)


def _compared(found: Verified) -> Verified:
    passed = [one for one in (found.trial, found.default) if one is not None and not one.outcome.failed]
    times = [one.retimed.samples_ns for one in passed if one.retimed is not None]
    if len(times) < 2 or found.is_default:
        return found
    ratio, low, high = speedup(times[0], times[1])
    return replace(found, slowdown=ratio - 1, interval=(low - 1, high - 1))
