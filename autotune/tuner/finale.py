"""The end of a search: the fastest are timed again, until the one to be named has stood it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from autotune.model import Identity, Outcome, Trial, identity, with_verified
from autotune.ranking import FINALISTS
from autotune.store import Store
from autotune.study import Problem
from autotune.tuner import finalists

if TYPE_CHECKING:
    from autotune.pool.evaluator import Evaluator


@dataclass
class Finale:
    """Finds the best of a search's trials, which it replaces in place by what it learns of them.

    `history` are all attempts of this problem in the order of arrival, those that were stored before included; it
    grows by what is learned. `in_flight` names the attempts on record that have not ended; `report` is called with
    what is done now.
    """

    problem: Problem
    evaluator: Evaluator
    store: Store
    search: int
    trials: list[Trial]
    history: list[Trial]
    in_flight: dict[Identity, int]
    budget_s: float
    report: Callable[[str], None]
    _retimed: set[Identity] = field(default_factory=set)
    _measured: set[Identity] = field(default_factory=set)
    _failed: bool = False

    def settle(self) -> Trial | None:
        """Return the best, None where nothing passed; it was timed again if anything can be said of it."""
        while self._round() or self._measure_overlooked():
            pass
        return self._best()

    def _round(self) -> bool:
        """Time the fastest again, interleaved; False where that is done.

        Where one fails, another comes first that nobody looked at: one more round.
        """
        chosen = self._chosen()
        best = self._best()
        due = chosen if not self._retimed or best is None else [best]
        if all(trial.retimed is not None or identity(trial.configuration) in self._retimed for trial in due):
            return False
        self.report("re-timing the finalists")
        self._retimed.update(identity(trial.configuration) for trial in chosen)
        self.evaluator.best_ns = max(map(finalists.first_median, chosen))
        answers = self.evaluator.retime([trial.configuration for trial in chosen], self.budget_s)
        for trial, answer in zip(chosen, answers, strict=True):
            if isinstance(answer, Trial):
                self._failed = True
                self._measured.clear()  # what it had bounded may have been stopped again
                self.store.finish(self.store.begin(self.search, trial.configuration), answer)
                self._replace(answer)
            elif answer is not None:
                self.store.retime(self.search, trial.configuration, answer)
                stood = with_verified(trial.environment, answer.verified_runs)
                self._replace(replace(trial, retimed=answer, environment=stood))
        return True

    def _chosen(self) -> Sequence[Trial]:
        """The finalists, and the default where there is time for it: its gain is one of times taken together."""
        default = identity(self.problem.default)
        known = [trial for trial in self._passed() if identity(trial.configuration) == default]
        chosen = finalists.finalists(self._passed(), self.budget_s)
        if finalists.retiming_s([*chosen, *known]) > self.budget_s:
            return chosen
        return list({identity(trial.configuration): trial for trial in (*chosen, *known)}.values())

    def _measure_overlooked(self) -> bool:
        """Measure again what was stopped for being slower than a configuration that failed as a finalist."""
        best = self._best()
        bound = finalists.first_median(best) if best is not None else math.inf
        stopped = [trial for trial in self.trials if trial.outcome is Outcome.STOPPED and trial.time_ns < bound]
        due = [trial for trial in stopped if identity(trial.configuration) not in self._measured]
        due = sorted(due, key=lambda trial: trial.time_ns)[:FINALISTS] if self._failed else []
        self.evaluator.best_ns = bound if best is not None else None
        for trial in due:
            name = identity(trial.configuration)
            self._measured.add(name)
            self.in_flight[name] = self.store.begin(self.search, trial.configuration)
            self.evaluator.submit(trial.configuration)
        for _ in due:
            trial = self.evaluator.collect()
            self.store.finish(self.in_flight.pop(identity(trial.configuration)), trial)
            self._replace(trial)
        return bool(due)

    def _replace(self, new: Trial) -> None:
        self.history.append(new)
        name = identity(new.configuration)
        self.trials[:] = [new if identity(trial.configuration) == name else trial for trial in self.trials]

    def _best(self) -> Trial | None:
        return finalists.fastest(self.history, self.problem.device.driver)

    def _passed(self) -> list[Trial]:
        return finalists.ranked(self.history, self.problem.device.driver)
