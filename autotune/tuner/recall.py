"""The stored trials of a problem, as a resumed search uses them."""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from autotune.bench import is_too_large
from autotune.devices import traits
from autotune.model import Configuration, DeviceInfo, Identity, Outcome, Trial, identity
from autotune.study import Problem
from autotune.text import clean
from autotune.tuner.finale import Ranked

if TYPE_CHECKING:
    from autotune.store import Store

WORKER_DEATHS = 2
"""A configuration that took a worker down this often is not tried again."""


def ours(problem: Problem, trials: Sequence[Trial]) -> Ranked:
    """Return the stored trials of a problem's space and its device's driver, every attempt.

    A trial that passed with an impossible time, as from a damaged database, is left out.
    """
    own = [trial for trial in trials if _is_of(problem.device, trial)]
    rows = problem.space.rows_of([trial.configuration for trial in own])
    valid = (trial for trial, row in zip(own, rows, strict=True) if row >= 0)
    timed = (trial for trial in valid if trial.outcome is not Outcome.OK or _is_timed(trial))
    return Ranked(timed, problem.device.driver)


def recall(
    problem: Problem, history: Ranked, retry_failed: bool = False, tried: Container[Identity] = ()
) -> list[Trial]:
    """Return the trials of `ours` that count: the latest of each configuration, without those to be tried again.

    A failure by the configuration's own fault is not tried again; one that may be the machine's fault is tried once
    more. Trials under another driver, or outside a space that `fix` narrows, are left out. A trial inside that was
    stopped early, for being slower than a best outside, is tried again if it may be the best inside. Configurations
    that an earlier process of the same search has `tried` count, whatever their outcome.
    """
    by_configuration: dict[Identity, list[Trial]] = {}
    for trial in history:
        by_configuration.setdefault(identity(trial.configuration), []).append(trial)
    lax = traits(problem.device).understates_limits
    for tries in by_configuration.values() if lax else ():
        # Leave out trials that were refused for a limit that the driver reports: such limits are no longer trusted.
        tries[:] = [t for t in tries if t.outcome is not Outcome.LAUNCH_ERROR or not is_too_large(t.reason)]
    bound = history.best.time_ns if history.best is not None else math.inf
    return [
        tries[-1]
        for name, tries in by_configuration.items()
        if tries and (name in tried or not (_again(tries, retry_failed) or _may_be_best(tries[-1], bound)))
    ]


class Spent(NamedTuple):
    """What earlier processes of a search tried, and the seconds that they took. `is_begun`: there were any."""

    tried: frozenset[Identity] = frozenset()
    seconds: float = 0.0
    is_begun: bool = False


def spent(store: Store, submission: str | None) -> Spent:
    """Return what earlier processes of a submission spent. The time between processes does not count."""
    if submission is None:
        return Spent()
    from autotune.store import listing, survey  # not for a search from the command line

    parts = listing.searches(store, names=[submission], limit=1000)
    tried, seconds = set[Identity](), 0.0
    for part in parts:
        ended = [one for one in survey.following(store, [part.number], limit=10**6) if one.outcome.ended]
        tried.update(identity(one.configuration) for one in ended)
        begun, ends = datetime.fromisoformat(part.started), [one.finished for one in ended if one.finished]
        seconds += max([0.0, *((datetime.fromisoformat(end) - begun).total_seconds() for end in ends)])
    return Spent(frozenset(tried), seconds, bool(parts))


def donors(problem: Problem, stored: Sequence[Trial], store: Store) -> list[list[Trial]]:
    """Return trials of other devices, sizes and drivers: they show where to search, not how fast it is here."""
    others = [trial for trial in stored if not _is_of(problem.device, trial)]
    return [others] * bool(others) + [trials for _, trials in store.related(problem.key)]


IMPORTED_FIRST = 3
"""How many of the fastest configurations from other tools are tried before anything is proposed."""


def imported_best(problem: Problem, imported: Sequence[Trial]) -> list[Configuration]:
    """Return the few configurations valid here that are the fastest by the times of other tools."""
    passed = [one for one in imported if one.outcome is Outcome.OK and one.configuration in problem.space]
    fastest_first = sorted(filter(_is_timed, passed), key=lambda trial: trial.time_ns)  # some lack a time
    found = {identity(trial.configuration): trial.configuration for trial in fastest_first}
    return list(found.values())[:IMPORTED_FIRST]


def _is_of(device: DeviceInfo, trial: Trial) -> bool:
    return trial.driver == clean(device.driver)  # a trial without a driver counts as another's, as for look-ups


def _is_timed(trial: Trial) -> bool:
    return all(0 < ns < math.inf for ns in (trial.paced_ns, trial.standing_ns))


def _may_be_best(trial: Trial, bound: float) -> bool:
    """Say whether a trial was stopped early but may, by the times that were taken, beat `bound` nanoseconds."""
    return trial.outcome is Outcome.STOPPED and not trial.time_ns > bound


def _again(tries: Sequence[Trial], retry_failed: bool) -> bool:
    last = tries[-1]
    if not last.outcome.failed or any(trial.outcome is Outcome.WRONG_RESULT for trial in tries):
        return False  # a configuration that was wrong once is never named
    failures = sum(trial.outcome.retriable for trial in tries)
    return retry_failed or (last.outcome.retriable and failures < WORKER_DEATHS)
