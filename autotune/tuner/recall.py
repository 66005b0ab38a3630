"""What is stored of a problem, as a search that resumes sees it."""

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
from autotune.tuner.finale import History

if TYPE_CHECKING:
    from autotune.store import Store

WORKER_DEATHS = 2
"""A configuration that took a worker down this often is left alone."""


def ours(problem: Problem, trials: Sequence[Trial]) -> History:
    """Return those of the stored trials that are of a problem's space and its device's driver, every attempt.

    What passed in a time that no clock gives, as a damaged database tells it, is not known to have passed.
    """
    own = [trial for trial in trials if _is_of(problem.device, trial)]
    rows = problem.space.rows_of([trial.configuration for trial in own])
    valid = (trial for trial, row in zip(own, rows, strict=True) if row >= 0)
    timed = (trial for trial in valid if trial.outcome is not Outcome.OK or _is_timed(trial))
    return History(timed, problem.device.driver)


def recall(
    problem: Problem, history: History, retry_failed: bool = False, tried: Container[Identity] = ()
) -> list[Trial]:
    """Return what counts of `ours`, one trial per configuration: the latest, without those to try again.

    What is the configuration's own fault is never tried again; what may be the machine's is tried once more. What
    was measured under another driver is left out. Where `fix` narrows the space, what was measured outside it is left
    out, and what was stopped early for being slower than the best out there is tried again if it may still be the
    best in here. What is `tried`, by an earlier process of the same search, counts whatever came of it.
    """
    by_configuration: dict[Identity, list[Trial]] = {}
    for trial in history.trials:
        by_configuration.setdefault(identity(trial.configuration), []).append(trial)
    lax = traits(problem.device).understates_limits
    for tries in by_configuration.values() if lax else ():
        # Refused by what the driver had reported, which is not believed any more: as if it had not been tried.
        tries[:] = [t for t in tries if t.outcome is not Outcome.LAUNCH_ERROR or not is_too_large(t.reason)]
    bound = history.best.time_ns if history.best is not None else math.inf
    return [
        tries[-1]
        for name, tries in by_configuration.items()
        if tries and (name in tried or not (_again(tries, retry_failed) or _may_be_best(tries[-1], bound)))
    ]


class Spent(NamedTuple):
    """What earlier processes of a search have tried, and the seconds that they took; `is_begun`: whether any began."""

    tried: frozenset[Identity] = frozenset()
    seconds: float = 0.0
    is_begun: bool = False


def spent(store: Store, submission: str | None) -> Spent:
    """Return what earlier processes of a submission spent, each by itself: the server was away between them."""
    if submission is None:
        return Spent()
    from autotune.store import listing, survey  # not as a search that was typed starts

    parts = listing.searches(store, names=[submission], limit=1000)
    tried, seconds = set[Identity](), 0.0
    for part in parts:
        ended = [one for one in survey.following(store, [part.number], limit=10**6) if one.outcome.ended]
        tried.update(identity(one.configuration) for one in ended)
        begun, ends = datetime.fromisoformat(part.started), [one.finished for one in ended if one.finished]
        seconds += max([0.0, *((datetime.fromisoformat(end) - begun).total_seconds() for end in ends)])
    return Spent(frozenset(tried), seconds, bool(parts))


def donors(problem: Problem, stored: Sequence[Trial], store: Store) -> list[list[Trial]]:
    """Return what other devices, sizes and drivers gave: it says where to look, not how fast it is."""
    others = [trial for trial in stored if not _is_of(problem.device, trial)]
    return [others] * bool(others) + [trials for _, trials in store.related(problem.key)]


IMPORTED_FIRST = 3
"""So many of the fastest that other tools found for a problem are tried before anything is proposed."""


def imported_best(problem: Problem, imported: Sequence[Trial]) -> list[Configuration]:
    """Return the configurations that are the fastest by what other tools tell, of those that are valid here."""
    passed = [one for one in imported if one.outcome is Outcome.OK and one.configuration in problem.space]
    fastest_first = sorted(filter(_is_timed, passed), key=lambda trial: trial.time_ns)  # some lack theirs
    found = {identity(trial.configuration): trial.configuration for trial in fastest_first}
    return list(found.values())[:IMPORTED_FIRST]


def _is_of(device: DeviceInfo, trial: Trial) -> bool:
    return trial.driver == clean(device.driver)  # one that tells none is of another, as for look-ups


def _is_timed(trial: Trial) -> bool:
    return all(0 < ns < math.inf for ns in (trial.paced_ns, trial.standing_ns))


def _may_be_best(trial: Trial, bound: float) -> bool:
    """Say whether a trial was stopped early, and by what is known of its time may beat this one."""
    return trial.outcome is Outcome.STOPPED and not trial.time_ns > bound


def _again(tries: Sequence[Trial], retry_failed: bool) -> bool:
    last = tries[-1]
    if not last.outcome.failed or any(trial.outcome is Outcome.WRONG_RESULT for trial in tries):
        return False  # what was wrong once is not named, whatever comes of it
    failures = sum(trial.outcome.retriable for trial in tries)
    return retry_failed or (last.outcome.retriable and failures < WORKER_DEATHS)
