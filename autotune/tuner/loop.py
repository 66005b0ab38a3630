"""The loop of a search: ask, begin, submit, collect, finish, tell; resume before it, finalists after it."""

from __future__ import annotations

import math
import platform
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from autotune import __version__
from autotune.bench import is_too_large
from autotune.devices import traits
from autotune.errors import SetupError, WorkerError
from autotune.model import Configuration, DeviceInfo, Identity, Outcome, Trial, identity
from autotune.store import Store
from autotune.study import Problem, space_hash
from autotune.text import clean
from autotune.tuner import finalists
from autotune.tuner.finale import Finale
from autotune.tuner.result import GAIN_TRIALS, Budget, Progress, ProgressCallback, Result

if TYPE_CHECKING:
    from autotune.pool.evaluator import Evaluator
    from autotune.samplers import Proposer

RETIME_SHARE = 0.1
"""Share of a time budget that is kept for the finalists."""

GRACE_S = 0.5
"""Seconds that a build may go on when the time is over; what runs on a device then is bounded by its own limit."""

RETIME_S = 5.0
"""Seconds for a round of finalists; two of them are timed again even where that takes longer."""

SEARCH = "search"
"""The phase in which the time left can be said."""

WORKER_DEATHS = 2
"""A configuration that took a worker down this often is left alone."""


def run(
    problem: Problem,
    evaluator: Evaluator,
    store: Store,
    *,
    sampler: str,
    seed: int | None,
    budget: Budget,
    start: Sequence[Configuration] = (),
    retry_failed: bool = False,
    fresh: bool = False,
    cold: bool = False,
    devices: Sequence[DeviceInfo] = (),
    on_progress: ProgressCallback | None = None,
) -> Result:
    """Search a problem until the budget is spent or the space is exhausted; every trial is stored as it ends.

    The study's default configuration comes first, then those of `start`. What is stored for this problem is
    not measured again, unless `fresh` or the device's driver is another; failures that may have been the machine's
    are tried once more, all but wrong results with `retry_failed`. `cold` ignores what is known of other devices,
    drivers and sizes. `devices` are those the evaluator drives, where they are more than the problem's own. Ctrl-C
    ends the search in order: the result says `interrupted`. So does the loss of all workers, where a best is known:
    the result names the `failure`. Raises WorkerError and SetupError where none is.
    """
    from autotune.samplers import Proposer  # and Optuna, which loads while the evaluator's workers start

    stored = [] if fresh else store.trials(problem.key)
    history = ours(problem, stored)
    known = recall(problem, stored, retry_failed)
    prior = [] if cold else store.related(problem.key)
    if not cold and (others := [trial for trial in stored if not _is_of(problem.device, trial)]):
        prior = [(problem.key, others), *prior]  # what another driver gave says where to look, not how fast it is
    proposer = Proposer(problem.space, sampler, seed, donors=prior)
    proposer.add(known)
    search = _Search(problem, evaluator, store, proposer, budget, known, history, on_progress)
    search.id = store.start_search(
        problem.key,
        devices or [problem.device],
        sampler=sampler,
        seed=proposer.seed,
        environment={**environment(), "space": space_hash(problem.study.text)},
        fresh=fresh,
    )
    done = {identity(trial.configuration) for trial in known}
    for configuration in (problem.default, *start):
        if identity(configuration) not in done:
            proposer.enqueue(configuration)
    reason, failure = "error", None
    try:
        try:
            reason = search.loop()
            search.settle()
        except KeyboardInterrupt:
            reason = "interrupted"
            search.abandon()
        except (WorkerError, SetupError) as error:
            search.abandon()
            if search.best is None:
                raise
            reason, failure = "stopped by an error", error
    finally:
        store.end_search(search.id, reason)
    return replace(search.result(reason), failure=failure)


def environment() -> dict[str, str | int | float]:
    """Return the versions of what could explain a result: this package, its libraries, the host's kernel."""
    found: dict[str, str | int | float] = {"autotune": __version__, "python": platform.python_version()}
    found["system"] = platform.platform()
    for name in ("numpy", "optuna", "pyopencl"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # run from a checkout that is not installed
            continue
    return found


def ours(problem: Problem, trials: Sequence[Trial]) -> list[Trial]:
    """Return those of the stored trials that are of a problem's space and its device's driver, every attempt."""
    return [trial for trial in trials if _is_of(problem.device, trial) and trial.configuration in problem.space]


def _is_of(device: DeviceInfo, trial: Trial) -> bool:
    return trial.driver in ("", clean(device.driver))


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
    best = finalists.fastest(own, problem.device.driver)
    bound = best.time_ns if best is not None else math.inf
    return [trial for trial in known if trial.outcome is not Outcome.STOPPED or trial.time_ns > bound]


def _again(tries: Sequence[Trial], retry_failed: bool) -> bool:
    last = tries[-1]
    if not last.outcome.failed or any(trial.outcome is Outcome.WRONG_RESULT for trial in tries):
        return False  # what was wrong once is not named, whatever comes of it
    failures = sum(trial.outcome.retriable for trial in tries)
    return retry_failed or (last.outcome.retriable and failures < WORKER_DEATHS)


@dataclass
class _Search:
    """The state of one running search.

    `trials` are those that count, one per configuration; `history` is every attempt in the order of arrival.
    """

    problem: Problem
    evaluator: Evaluator
    store: Store
    proposer: Proposer
    budget: Budget
    trials: list[Trial]
    history: list[Trial]
    on_progress: ProgressCallback | None
    id: int = 0
    in_flight: dict[Identity, int] = field(default_factory=dict)
    since_best: int = 0
    first_s: float = 0.0

    def __post_init__(self) -> None:
        self.started = time.monotonic()
        self.reused = len(self.trials)
        self.best = finalists.fastest(self.history, self.problem.device.driver)
        self.evaluator.best_ns = finalists.first_median(self.best) if self.best else None

    def loop(self) -> str:
        """Run trials until something says stop; return what. Those that no device has begun are left for next time."""
        stop = ""
        while True:
            if not stop and (stop := self._stop_reason()):
                self._withdraw()
            if not stop:
                self._fill()
            if not self.in_flight:
                return stop or "space exhausted"
            try:
                trial = self.evaluator.collect(self._patience_s() if stop else self._left_s())
            except TimeoutError:
                if stop:
                    self._forget(self.evaluator.withdraw(building=True))
                continue
            self._take(trial)

    def _fill(self) -> None:
        """Keep as many configurations in flight as the evaluator wants, until the space is exhausted."""
        while len(self.in_flight) < self._wanted():
            configuration = self.proposer.ask()
            if configuration is None:
                return
            self.in_flight[identity(configuration)] = self.store.begin(self.id, configuration)
            self.evaluator.submit(configuration)

    def _withdraw(self) -> None:
        """Take back what no device has begun; a search that would end with nothing at all keeps its first."""
        self._forget(self.evaluator.withdraw(leave=1))
        if self.trials or len(self.in_flight) > 1:
            self._forget(self.evaluator.withdraw())

    def _forget(self, configurations: Sequence[Configuration]) -> None:
        for configuration in configurations:
            self.store.withdraw(self.in_flight.pop(identity(configuration)))

    def abandon(self) -> None:
        """Take off the record what is in flight, which nobody will collect; the best is that of what is known now."""
        for trial_id in self.in_flight.values():
            self.store.withdraw(trial_id)
        self.best = finalists.fastest(self.history, self.problem.device.driver)

    def _wanted(self) -> int:
        if self.budget.trials is None:
            return self.evaluator.capacity
        return min(self.evaluator.capacity, self.budget.trials - len(self._new()))

    def _new(self) -> list[Trial]:
        return self.trials[self.reused :]

    def _take(self, trial: Trial) -> None:
        self.store.finish(self.in_flight.pop(identity(trial.configuration)), trial)
        self.proposer.tell(trial)
        self.trials.append(trial)
        self.history.append(trial)
        self.since_best += 1
        if trial.outcome is Outcome.OK and (
            self.best is None or finalists.first_median(trial) < finalists.first_median(self.best)
        ):
            self.best, self.since_best = trial, 0
        self._report(SEARCH)

    def _stop_reason(self) -> str:
        budget = self.budget
        if budget.trials is not None and len(self._new()) >= budget.trials:
            return f"{budget.trials} trials done"
        if self._left_s() == 0:
            return f"{budget.seconds:g} s are over"
        if budget.until_stale is not None and self.best is not None and self.since_best >= budget.until_stale:
            return f"no better configuration in {budget.until_stale} trials"
        if budget.least_gain is not None and self.best is not None:
            gain = self.proposer.expected_gain(GAIN_TRIALS)
            if gain is not None and gain < budget.least_gain:
                return f"about {gain:.1%} expected from the next {GAIN_TRIALS} trials (an estimate)"
        return ""

    def settle(self) -> None:
        """Have the fastest timed again, and with that name the best."""
        budget_s = min(RETIME_S, RETIME_SHARE * (self.budget.seconds or math.inf))
        finale = Finale(
            self.problem,
            self.evaluator,
            self.store,
            self.id,
            self.trials,
            self.history,
            self.in_flight,
            budget_s,
            self._report,
        )
        self.best = finale.settle()

    def _left_s(self) -> float | None:
        """Return the seconds that are left for trials; None: as many as it takes."""
        if self.budget.seconds is None:
            return None
        return max(0.0, self.budget.seconds * (1 - RETIME_SHARE) - self._elapsed())

    def _patience_s(self) -> float | None:
        """Return the seconds after which what is still being built is given up, once the search is to stop.

        A search that knows nothing has no finalists: their share of the time, and a little more, is its first trial's.
        """
        if self.budget.seconds is None:
            return None
        share = 1 - RETIME_SHARE if self.best else 1.0
        return max(GRACE_S, self.budget.seconds * share + GRACE_S - self._elapsed())

    def _elapsed(self) -> float:
        return time.monotonic() - self.started

    def _report(self, phase: str) -> None:
        if self.on_progress is None:
            return
        done, elapsed = len(self._new()), self._elapsed()
        total, left = self._total(), None
        self.first_s = self.first_s or elapsed
        since_first = elapsed - self.first_s  # without the start, which says nothing of what is to come
        rate = (done - 1) / since_first if done > 1 and since_first else 0.0
        if total is not None and rate:
            left = (total - done) / rate
        if self.budget.seconds is not None:
            left = min(left if left is not None else math.inf, max(0.0, self.budget.seconds - elapsed))
        left = left if phase == SEARCH else None
        self.on_progress(Progress(done, total, self._failures(), self.best, elapsed, rate, left, phase))

    def _total(self) -> int | None:
        if self.budget.trials is None:
            return None
        return min(self.budget.trials, len(self.problem.space) - self.reused)

    def _failures(self) -> dict[Outcome, int]:
        return dict(Counter(trial.outcome for trial in self._new() if trial.outcome.failed))

    def result(self, reason: str) -> Result:
        """Return what the search found so far."""
        default = identity(self.problem.default)
        return Result(
            problem=self.problem,
            best=self.best,
            default=next((trial for trial in reversed(self.trials) if identity(trial.configuration) == default), None),
            trials=len(self._new()),
            reused=self.reused,
            failures=self._failures(),
            examples={trial.outcome: trial for trial in self._new() if trial.outcome.failed},
            ties=finalists.ties(self.best, finalists.ranked(self.history, self.problem.device.driver)),
            reason=reason,
            usage=self.evaluator.usage(),
            elapsed_s=self._elapsed(),
        )
