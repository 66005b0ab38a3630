"""Starts a search: all searches start here."""

from __future__ import annotations

import math
import platform
import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from autotune import __version__
from autotune.errors import AutotuneError, SetupError, SpaceError, UsageError, WorkerError, placed
from autotune.model import DeviceInfo, Trial, identity
from autotune.pool import DeviceEvaluator, Evaluator, Settings, Stopped, count_builders, lock_key, quick_turns
from autotune.samplers import entry_of
from autotune.store import locate, require_place
from autotune.study import Problem, space_hash
from autotune.text import pairs
from autotune.tuner.loop import RETIME_SHARE, Ledger, Search
from autotune.tuner.recall import donors, imported_best, ours, recall, spent
from autotune.tuner.replay import ReplayEvaluator
from autotune.tuner.request import Budget, Request
from autotune.tuner.result import WAITING, Progress, ProgressCallback, Result

if TYPE_CHECKING:
    from autotune.samplers import Proposer
    from autotune.store import Store

TRIAL_SHARE, LEAST_TRIAL_S = 0.01, 0.2
"""Share of a search's seconds that the samples of one trial may take, and the seconds that they may always take.
Without this limit a kernel of .1 s on a noisy CPU would be sampled for 2 s, in vain: the finalists are timed again."""


QUICK_TRIAL_S = 0.1
"""Seconds of a trial of a small kernel, by which the number of trials in a search's time is estimated."""


def run(
    request: Request,
    stop: threading.Event | None = None,
    *,
    on_progress: ProgressCallback | None = None,
    evaluator: Evaluator | None = None,
) -> Result:
    """Search a problem until the budget is spent or the space is exhausted; every trial is stored as it ends.

    The study's default configuration comes first, then those of `request.start`, and then the fastest that other tools
    found for this problem (imported trials): these count only once measured here. Setting `stop`, from any thread,
    ends the search in order within half a second; the result then says `interrupted`, as after a KeyboardInterrupt. If
    all workers are lost and a best is known, the search ends too, and the result has the `failure`. `on_progress` is
    called after each trial, and while another search uses the device. If an `evaluator` is given, it runs the trials
    and is left open.

    Raises WorkerError and SetupError if no best is known, StoreError, DeviceError, StudyError, SpaceError, and
    UsageError if `on_progress` begins another search on the device.
    """
    stop = stop or threading.Event()
    require_place(locate(request.database))  # report what is wrong before waiting for a device
    with ExitStack() as opened:
        opened.enter_context(quick_turns())
        if evaluator is None:
            opened.enter_context(_not_within(request.devices))
            evaluator = _own_evaluator(request, stop, on_progress)
            opened.callback(evaluator.close)
        from autotune.store import Store  # and SQLAlchemy, which loads while the evaluator's workers start

        store = opened.enter_context(Store.open(request.database))
        return _search(request, store, evaluator, stop, on_progress)


_thread = threading.local()


@contextmanager
def _not_within(devices: Sequence[DeviceInfo]) -> Iterator[None]:
    """Raise UsageError if this thread is inside a search on one of the devices: it would wait for itself for ever."""
    outer: frozenset[str] = getattr(_thread, "used", frozenset())
    for device in devices:
        if lock_key(device) in outer:
            what = "is in use by the search whose on_progress starts this one: neither would end"
            raise UsageError(what, where=device.name, hint="start it once that search has returned")
    _thread.used = outer.union(map(lock_key, devices))
    try:
        yield
    finally:
        _thread.used = outer


def _own_evaluator(request: Request, stop: threading.Event, on_progress: ProgressCallback | None) -> Evaluator:
    def before_waiting() -> None:
        """Raise StoreError if the database cannot be used, before the wait for a device, which may take hours."""
        from autotune.store import Store

        Store.open(request.database).close()
        if on_progress is not None:
            on_progress(Progress(0, request.budget.trials, {}, None, 0.0, 0.0, None, WAITING))

    try:
        return DeviceEvaluator(request.problem, request.devices, within_budget(request), stop, before_waiting)
    except Stopped:  # stopped while another search had the device: the evaluator will not be used
        return ReplayEvaluator(())


def within_budget(request: Request) -> Settings:
    """Return the settings, with as many builders and as much precision as are useful within the budget."""
    settings, budget = request.settings, request.budget
    if budget.trials is not None and settings.builders is None:
        most = count_builders(request.devices, None)
        settings = replace(settings, builders=min(most, budget.trials))
    most = math.prod(map(len, request.problem.values.values()))  # the space is counted while workers start
    in_time = most if budget.seconds is None else math.ceil(min(most, budget.seconds / QUICK_TRIAL_S))
    expected = in_time if budget.trials is None else budget.trials
    settings = replace(settings, trials=min(most, expected), learns=entry_of(request.sampler).learns)
    return afforded(settings, budget)


def afforded(settings: Settings, budget: Budget) -> Settings:
    """Return settings with no more precision than the budget's seconds allow."""
    if budget.seconds is None:
        return settings
    rules, trial_s = settings.rules, max(LEAST_TRIAL_S, TRIAL_SHARE * budget.seconds)
    patience_s = min(rules.patience_s, RETIME_SHARE * budget.seconds)
    return replace(settings, rules=replace(rules, trial_s=min(rules.trial_s, trial_s), patience_s=patience_s))


def _search(
    request: Request, store: Store, evaluator: Evaluator, stop: threading.Event, on_progress: ProgressCallback | None
) -> Result:
    problem = request.problem
    entry_of(request.sampler)  # report a wrong name before anything is on record
    request = replace(request, start=[problem.in_own_values({**problem.default, **one}) for one in request.start])
    for configuration in request.start:
        # With several configurations and fixed parameters, the error must say which configuration is wrong.
        with placed(f"start {pairs(configuration, ',')}", SpaceError):
            problem.plan(configuration)
    before = spent(store, request.submission)
    fresh = request.fresh and not before.is_begun
    stored = [] if fresh else store.trials(problem.key)
    history = ours(problem, stored)
    known = recall(problem, history, request.retry_failed, before.tried)
    seed = secrets.randbits(32) if request.seed is None else request.seed
    number = store.start_search(
        problem.key,
        request.devices,
        sampler=request.sampler,
        seed=seed,
        environment=environment(problem) | ({"asked_by": request.asked_by} if request.asked_by else {}),
        fresh=fresh,
        submission=request.submission,
    )
    reason, failure = "error", None
    try:
        ledger = Ledger(store, number, problem, known, history, before.tried)
        search = Search(evaluator, ledger, request.budget, stop, on_progress, before.seconds)
        try:
            if identity(problem.default) not in {identity(trial.configuration) for trial in known}:
                search.begin_with(problem.default)
            reason = search.run_trials(_proposer(request, seed, store, stored, known))
            search.settle()
        except (KeyboardInterrupt, Stopped):
            reason = "interrupted"
            search.abandon()
        except (WorkerError, SetupError) as error:
            search.abandon()
            if search.best is None:
                raise
            reason, failure = "stopped by an error", error
        except BaseException:
            with suppress(AutotuneError):  # the first error is the one to report
                search.abandon()
            raise
    finally:
        store.end_search(number, reason)
    return replace(search.result(reason), failure=failure)


def _proposer(request: Request, seed: int, store: Store, stored: Sequence[Trial], known: Sequence[Trial]) -> Proposer:
    """Return a proposer: first the default, then the user's and other tools' configurations, then its own choices."""
    from autotune.samplers import Proposer  # and Optuna, which loads while the default is built

    problem = request.problem
    prior = [] if request.cold else donors(problem, stored, store)
    proposer = Proposer(problem.space, request.sampler, seed, prior)
    proposer.add(known)
    done = {identity(trial.configuration) for trial in known}
    foreign = [] if request.cold else imported_best(problem, store.imported(problem.key))
    for configuration in (problem.default, *request.start, *foreign):
        if identity(configuration) not in done:
            proposer.enqueue(configuration)
    return proposer


def environment(problem: Problem) -> dict[str, str | int | float]:
    """Return what could explain a result: versions of this package, its libraries and the system, the space's hash."""
    return {**_versions(), "space": space_hash(problem.study.text)}


@cache
def _versions() -> Mapping[str, str]:
    """Return the versions; cached, so that several searches need not read them again."""
    found = {"autotune": __version__, "python": platform.python_version(), "system": platform.platform()}
    for name in ("numpy", "optuna", "pyopencl"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # run from a checkout that is not installed
            continue
    return found
