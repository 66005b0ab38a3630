"""A looked-up best measured here and now, beside the study's default: what came of it, and what it is worth."""

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
    """What verifying a best gave. `configuration` was verified: that of `best`, as it was looked up before, or what
    another tool found for this very problem, `imported`.

    `slowdown` is the share by which it is slower than the default (below 0: faster) and `interval` what that lies in,
    from pairs of samples taken within the same moments; None where one of the two did not pass.
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
        """The per cent of cases in which an interval like this one holds the truth: few samples tell less."""
        return confidence_of(self.trial, self.default)

    def exceeds(self, most: float) -> bool:
        """Say whether it is slower than the default by more than a share, beyond what the interval allows."""
        return self.interval is not None and self.interval[0] > most


def verify(request: Request, stop: threading.Event | None, *, searching: str) -> Verified:
    """Look a problem's best up, put it and the default through a new trial each, and time them in turns.

    Where nothing is stored of this very problem but what was imported, that is verified: the fastest by what the
    other tool tells. All is stored: a best that gives a wrong result here is not named again. `searching` is the
    command that searches the problem as the user asked for it. Raises AutotuneError where nothing but the default is
    known, and Stopped.
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
    """Return the fastest that another tool found for a problem and that is valid here."""
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
