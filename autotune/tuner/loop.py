"""The loop of a search: ask, begin, submit, collect, finish, tell."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Sequence, Set
from contextlib import suppress
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING

from autotune.errors import AutotuneError
from autotune.model import Configuration, Identity, Measurement, Outcome, Trial, identity, with_retiming
from autotune.pool import Evaluator, Stopped
from autotune.study import Problem
from autotune.text import count, duration
from autotune.tuner.finale import ANOTHER_DAY, Finale, Ranked, ties
from autotune.tuner.request import GAIN_TRIALS, Budget
from autotune.tuner.result import SEARCH, ProgressCallback, Reporter, Result, Trials

if TYPE_CHECKING:
    from autotune.samplers import Proposer
    from autotune.store import Store

RETIME_SHARE = 0.1
"""Share of a time budget that is reserved for the finalists. They also get the time that the trials do not use."""

GRACE_S = 0.5
"""Seconds for which a build may go on when the time is over. A kernel that runs then has its own time limit."""

RETIME_S = 8.0
"""Seconds for a round of finalists; two finalists are timed again even if that takes longer."""

POLL_S = 0.2
"""How often a waiting search checks whether it should stop."""

RESUMED_S = 5.0
"""Seconds that a resumed search has left at least, so that its finalists can be timed again."""

AT_ONCE = 64
"""Trials that are recorded in one transaction at most."""

_PROPOSE_S = 0.05
"""Seconds for which configurations are proposed before the first of them is begun."""

log = logging.getLogger(__name__)


class Ledger:
    """Every attempt of one search, on record in the store before anything can go wrong.

    `trials` are the trials that count, one per configuration. The first `reused` of them were stored before this
    search, the next `resumed` by earlier processes of it, which tried the configurations in `begun`. `history` has
    every attempt in the order of arrival. `in_flight` gives the numbers of attempts that have not ended, `failures`
    counts the new trials that failed, and `number` is the search's number.
    """

    def __init__(
        self,
        store: Store,
        search: int,
        problem: Problem,
        known: list[Trial],
        history: Ranked,
        begun: Set[Identity] = frozenset(),
    ) -> None:
        self.problem = problem
        named = {identity(trial.configuration): trial for trial in known}
        order = sorted(named, key=begun.__contains__)
        self.trials = [named[name] for name in order]
        self.history = history
        self.resumed = len(named.keys() & begun)
        self.reused = len(known) - self.resumed
        self.in_flight: dict[Identity, int] = {}
        self.failures = Counter(trial.outcome for trial in self.new if trial.outcome.failed)
        self.number = search
        self._store = store
        self._places = {name: place for place, name in enumerate(order)}

    @property
    def new(self) -> list[Trial]:
        """The trials of this search."""
        return self.trials[self.reused :]

    @property
    def done(self) -> int:
        """How many trials are new."""
        return len(self.trials) - self.reused

    def begin(self, *configurations: Configuration) -> None:
        """Put attempts on record."""
        numbers = self._store.begin(self.number, configurations)
        self.in_flight.update(zip(map(identity, configurations), numbers, strict=True))

    def end(self, *trials: Trial) -> None:
        """Record how attempts ended. These trials replace earlier ones of the same configurations."""
        named = [(identity(trial.configuration), trial) for trial in trials]
        self._store.finish([(self.in_flight[name], trial) for name, trial in named])
        for name, trial in named:
            del self.in_flight[name]
            self._note(name, trial)

    def retime(self, chosen: Sequence[Trial], answers: Sequence[Measurement | Trial | None]) -> None:
        """Record the answers for trials timed again in turns: times, a failed trial, or None for one not timed."""
        answered = list(zip(chosen, answers, strict=True))
        for trial, answer in answered:
            if isinstance(answer, Trial):
                self.begin(trial.configuration)
                self.end(answer)
        timed = [(trial, answer) for trial, answer in answered if isinstance(answer, Measurement)]
        taken = self._store.retime(self.number, [(trial.configuration, again) for trial, again in timed])
        for trial, again in timed:
            stood = with_retiming(trial.environment, again)
            known = replace(trial, retimed=replace(again, taken=taken), environment=stood)
            self._note(identity(trial.configuration), known)

    def withdraw(self, configurations: Sequence[Configuration]) -> None:
        """Remove attempts from the record that have not run."""
        self._store.withdraw(*(self.in_flight.pop(identity(configuration)) for configuration in configurations))

    def abandon(self, evaluator: Evaluator) -> None:
        """Record the attempts that have ended, and remove the others in flight from the record."""
        ended = list[Trial]()
        for _ in range(evaluator.ready):
            with suppress(AutotuneError, TimeoutError):  # an evaluator that has failed raises its error here again
                ended.append(evaluator.collect(0))
        if ended:
            self.end(*ended)
        self._store.withdraw(*self.in_flight.values())
        self.in_flight.clear()

    def best(self) -> Trial | None:
        """Return the fastest verified trial by the ranking, or None if nothing passed."""
        return self.history.best

    def passed(self) -> Sequence[Trial]:
        """Return the verified trials, best first."""
        return self.history.passed

    def _note(self, name: Identity, trial: Trial) -> None:
        self.history.append(trial)
        place = self._places.setdefault(name, len(self.trials))
        if place >= self.reused:
            self.failures.subtract(one.outcome for one in self.trials[place : place + 1] if one.outcome.failed)
            self.failures.update([trial.outcome] if trial.outcome.failed else [])
        self.trials[place : place + 1] = [trial]


class Search:
    """A running search: keeps an evaluator busy with a proposer's configurations until there is a reason to stop.

    `spent_s`: the seconds that earlier processes of this search took; they count as this search's own.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        ledger: Ledger,
        budget: Budget,
        stop: threading.Event,
        on_progress: ProgressCallback | None,
        spent_s: float = 0.0,
    ) -> None:
        self._evaluator = evaluator
        self._ledger = ledger
        self._budget = budget
        self._stop = stop
        most_s = math.inf if budget.seconds is None else max(0.0, budget.seconds - RESUMED_S)
        self._started = time.monotonic() - min(spent_s, most_s)
        most = math.inf if budget.trials is None else budget.trials
        self._most = min(most, len(ledger.problem.space) - ledger.reused)
        total = None if budget.trials is None else int(self._most)
        self._reporter = (
            Reporter(on_progress, budget, total, self._started, ledger.number) if on_progress is not None else None
        )
        self.best = ledger.best()
        self._since_best = self._resumed_since(self.best)
        evaluator.best_ns = ANOTHER_DAY * self.best.standing_ns if self.best else None

    def begin_with(self, configuration: Configuration) -> None:
        """Begin a configuration before there is a proposer, if there is time. The proposer must propose it first."""
        if not self._stop.is_set() and self._left_s() != 0:
            self._begin([configuration])

    def run_trials(self, proposer: Proposer) -> str:
        """Run trials until there is a reason to stop, and return it. Withdraw trials that no device has begun.

        Raises Stopped if `stop` is set.
        """
        self._proposer = proposer
        for _ in self._ledger.in_flight:
            proposer.ask()
        ending = ""
        while True:
            if self._stop.is_set():
                raise Stopped
            if not ending and (ending := self._ending()):
                self._withdraw()
            while not ending and (proposed := self._proposed()):
                self._begin(proposed)
            if not self._ledger.in_flight:
                return ending or "space exhausted"
            if self._ledger.done == self._ledger.resumed:
                proposer.prepare(self._most)
            try:
                trials = [self._collect(self._patience_s()) if ending else self._collect(self._left_s(), filling=True)]
            except TimeoutError:
                if ending:
                    self._ledger.withdraw(self._evaluator.withdraw(building=True))
                continue
            try:
                while self._evaluator.ready and len(trials) < AT_ONCE:
                    trials.append(self._evaluator.collect(0))
            finally:  # ended trials are kept, whatever happens
                self._take(trials)

    def settle(self) -> None:
        """Let the finale time the fastest again and choose the best. Raises Stopped."""
        given_s = self._budget.seconds or math.inf
        budget_s = min(RETIME_S, max(RETIME_SHARE * given_s, given_s - self._elapsed()))

        def report(phase: str) -> None:
            if self._reporter is not None:
                self._reporter(phase, self._ledger.done, self._ledger.failures, self.best)

        self.best = Finale(self._evaluator, self._ledger, self._collect, report, self._stop, budget_s).settle()

    def abandon(self) -> None:
        """Record ended trials, remove the others from the record, and choose the best from what is known now."""
        self._ledger.abandon(self._evaluator)
        self.best = self._ledger.best()

    def result(self, reason: str) -> Result:
        """Return what the search found so far."""
        ledger = self._ledger
        default = identity(ledger.problem.default)
        return Result(
            problem=ledger.problem,
            best=self.best,
            default=next((one for one in reversed(ledger.trials) if identity(one.configuration) == default), None),
            trials=Trials(ledger.new),
            reused=ledger.reused,
            failures=dict(+ledger.failures),
            examples={
                each.outcome: each for each in sorted(ledger.new, key=attrgetter("unsteady")) if each.outcome.failed
            },
            ties=ties(self.best, ledger.passed()),
            reason=reason,
            usage={} if ledger.resumed else self._evaluator.usage(),  # the usage of earlier processes is not known
            elapsed_s=self._elapsed(),
            reused_wrong=sum(trial.outcome is Outcome.WRONG_RESULT for trial in ledger.trials[: ledger.reused]),
        )

    def _resumed_since(self, best: Trial | None) -> int:
        """Return how many trials of earlier processes came after the best."""
        tried = [identity(trial.configuration) for trial in self._ledger.new]
        named = identity(best.configuration) if best is not None else None
        return len(tried) - tried.index(named) - 1 if named in tried else len(tried)

    def _begin(self, configurations: Sequence[Configuration]) -> None:
        self._ledger.begin(*configurations)
        for configuration in configurations:
            self._evaluator.submit(configuration)
            log.debug("submitted %s", configuration)

    def _proposed(self) -> list[Configuration]:
        """Propose configurations until enough are in flight; if this takes long, fewer, so that devices can begin."""
        wanted = self._wanted()
        until, proposed = time.monotonic() + _PROPOSE_S, list[Configuration]()
        while len(proposed) < min(wanted, AT_ONCE) and (not proposed or time.monotonic() < until):
            configuration = self._proposer.ask()
            if configuration is None:
                break
            proposed.append(configuration)
        return proposed

    def _wanted(self) -> float:
        return min(self._evaluator.capacity, self._most - self._ledger.done) - len(self._ledger.in_flight)

    def _collect(self, timeout_s: float | None = None, *, filling: bool = False) -> Trial:
        """Return the next ended trial. Raises Stopped, TimeoutError (with `filling` also if more can be in flight)."""
        until = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while True:
            if self._stop.is_set():
                raise Stopped
            try:
                return self._evaluator.collect(min(POLL_S, max(0.0, until - time.monotonic())))
            except TimeoutError:
                if time.monotonic() >= until or (filling and self._wanted() > 0):
                    raise
            except AutotuneError:
                if self._stop.is_set():  # a signal to the whole job may also have ended the author's Python
                    raise Stopped from None
                raise

    def _take(self, trials: Sequence[Trial]) -> None:
        """Record trials that have ended, and then report them."""
        ledger = self._ledger
        ledger.end(*trials)
        for done, trial in enumerate(trials, ledger.done - len(trials) + 1):
            log.debug("%s of %s in %.6g ns %s", trial.outcome, trial.configuration, trial.standing_ns, trial.reason)
            self._proposer.tell(trial)
            self._since_best += 1
            if trial.outcome is Outcome.OK and (self.best is None or trial.standing_ns < self.best.standing_ns):
                self.best, self._since_best = trial, 0
            if self._reporter is not None:
                self._reporter(SEARCH, done, ledger.failures, self.best, trial)

    def _withdraw(self) -> None:
        """Withdraw trials that no device has begun, except the first if the search would otherwise end without any."""
        ledger = self._ledger
        ledger.withdraw(self._evaluator.withdraw(leave=1))
        if ledger.trials or len(ledger.in_flight) > 1:
            ledger.withdraw(self._evaluator.withdraw())

    def _ending(self) -> str:
        """Return why nothing more should be tried, or an empty string if more should."""
        budget, ledger = self._budget, self._ledger
        if budget.trials is not None and ledger.done >= budget.trials:
            return f"{count(budget.trials, 'trial')} done"
        if budget.seconds is not None and self._left_s() == 0:
            return f"{duration(budget.seconds)} are over"
        if budget.until_stale is not None and self.best is not None and self._since_best >= budget.until_stale:
            return f"no better configuration in {budget.until_stale} trials"
        if budget.least_gain is not None and self.best is not None:
            gain = self._proposer.expected_gain(GAIN_TRIALS)
            if gain is not None and gain < budget.least_gain:
                return f"about {100 * gain:.1f} % expected from the next {GAIN_TRIALS} trials (an estimate)"
        return ""

    def _left_s(self) -> float | None:
        """Return the seconds that are left for trials, or None without a limit."""
        if self._budget.seconds is None:
            return None
        return max(0.0, self._budget.seconds * (1 - RETIME_SHARE) - self._elapsed())

    def _patience_s(self) -> float | None:
        """Return the seconds after which an ending search no longer waits for builds.

        A search without a best has no finalists: its first trial gets their share of the time, and a little more.
        """
        if self._budget.seconds is None:
            return None
        share = 1 - RETIME_SHARE if self.best else 1.0
        return max(GRACE_S, self._budget.seconds * share + GRACE_S - self._elapsed())

    def _elapsed(self) -> float:
        return time.monotonic() - self._started
