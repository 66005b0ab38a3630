"""What is stored of a problem, as a search that resumes sees it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from autotune.bench import is_too_large
from autotune.devices import traits
from autotune.model import Configuration, DeviceInfo, Identity, Outcome, Trial, identity
from autotune.study import Problem
from autotune.text import clean
from autotune.tuner.finale import fastest

if TYPE_CHECKING:
    from autotune.store import Store

WORKER_DEATHS = 2
"""A configuration that took a worker down this often is left alone."""


def ours(problem: Problem, trials: Sequence[Trial]) -> list[Trial]:
    """Return those of the stored trials that are of a problem's space and its device's driver, every attempt.

    What passed in a time that no clock gives, as a damaged database tells it, is not known to have passed.
    """
    own = (trial for trial in trials if _is_of(problem.device, trial) and trial.configuration in problem.space)
    return [trial for trial in own if trial.outcome is not Outcome.OK or _is_timed(trial)]


def recall(problem: Problem, trials: Sequence[Trial], retry_failed: bool = False) -> list[Trial]:
    """Return the stored trials that count here, one per configuration: the latest, without those to try again.

    What is the configuration's own fault is never tried again; what may be the machine's is tried once more. What
    was measured under another driver is left out. Where `fix` narrows the space, what was measured outside it is left
    out, and what was stopped early for being slower than the best out there is tried again if it may still be the
    best in here.
    """
    by_configuration: dict[Identity, list[Trial]] = {}
    for trial in (own := ours(problem, trials)):
        by_configuration.setdefault(identity(trial.configuration), []).append(trial)
    lax = traits(problem.device).understates_limits
    for tries in by_configuration.values() if lax else ():
        # Refused by what the driver had reported, which is not believed any more: as if it had not been tried.
        tries[:] = [t for t in tries if t.outcome is not Outcome.LAUNCH_ERROR or not is_too_large(t.reason)]
    known = [tries[-1] for tries in by_configuration.values() if tries and not _again(tries, retry_failed)]
    best = fastest(own, problem.device.driver)
    bound = best.time_ns if best is not None else math.inf
    return [trial for trial in known if trial.outcome is not Outcome.STOPPED or trial.time_ns > bound]


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


def _again(tries: Sequence[Trial], retry_failed: bool) -> bool:
    last = tries[-1]
    if not last.outcome.failed or any(trial.outcome is Outcome.WRONG_RESULT for trial in tries):
        return False  # what was wrong once is not named, whatever comes of it
    failures = sum(trial.outcome.retriable for trial in tries)
    return retry_failed or (last.outcome.retriable and failures < WORKER_DEATHS)
