"""The only interface to the samplers: ask for a configuration, tell its result."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable

import optuna
from optuna.trial import TrialState

from autotune.errors import SpaceError
from autotune.model import Configuration, Identity, Outcome, Trial, Value, identity
from autotune.samplers.base import State, Told, one_thread, quiet_optuna
from autotune.samplers.registry import Donors, entry_of
from autotune.space import Space


class Proposer:
    """Proposes untried valid configurations of a space, and learns from the trials it is told.

    Several proposals may be in flight; the sampler sees them. The Optuna study is only in memory: a
    search is resumed by adding the stored trials, after which the same seed gives the same proposals.
    """

    def __init__(self, space: Space, sampler: str, seed: int, donors: Donors = ()) -> None:
        self._space = space
        self._sampler = entry_of(sampler).make(space, seed, donors)
        with quiet_optuna():
            self._study = optuna.create_study(direction="minimize", sampler=self._sampler)
        self._queue: deque[int] = deque()
        self._in_flight: dict[Identity, optuna.Trial] = {}
        self._seen: set[int] = set()
        self._gains: deque[tuple[int, float]] = deque()  # trials finished, and the gain estimated then

    def enqueue(self, configuration: Configuration) -> None:
        """Propose this configuration next, after those enqueued before. Raises SpaceError if it is not valid."""
        row = self._space.row(configuration)
        if row is None:
            raise SpaceError(f"not a valid configuration: {dict(configuration)}")
        self._queue.append(row)

    def ask(self) -> dict[str, Value] | None:
        """Return the next configuration: valid, never tried, not in flight; None when the space is exhausted."""
        while self._queue and self._queue[0] in self._seen:
            self._queue.popleft()
        if len(self._seen) == len(self._space):
            return None
        if self._queue:
            self._study.enqueue_trial(self._sampler.codec.params(self._queue.popleft()))
        with one_thread():
            trial = self._study.ask(self._sampler.codec.distributions)
        row = self._sampler.codec.row_of(trial.params)
        self._seen.add(row)
        configuration = self._space.configuration(row)
        self._in_flight[identity(configuration)] = trial
        return configuration

    def prepare(self, trials: float) -> None:
        """Load now the modules that so many trials will need: while the first are built, nobody waits for it."""
        self._sampler.prepare(trials)

    def tell(self, trial: Trial) -> None:
        """Take the result of a proposal, whether it was asked for here or elsewhere."""
        asked = self._in_flight.pop(identity(trial.configuration), None)
        if asked is None:
            self.add([trial])
        elif trial.outcome == Outcome.OK:
            self._study.tell(asked, _time(trial))
        else:
            if (bound := _bound(trial)) is not None:
                asked.report(bound, step=0)
            self._study.tell(asked, state=TrialState.PRUNED)

    def add(self, trials: Iterable[Trial]) -> None:
        """Add these finished trials, in this order. Trials that are not valid here, or known already, are skipped."""
        ended = [trial for trial in trials if trial.outcome.ended]
        rows = self._space.rows_of([trial.configuration for trial in ended]).tolist()
        new: dict[int, Trial] = {}
        for row, trial in zip(rows, ended, strict=True):
            if row >= 0 and row not in self._seen:
                new.setdefault(row, trial)
        self._seen.update(new)
        self._sampler.know(self._study, [_told(row, trial) for row, trial in new.items()])

    def expected_gain(self, trials: int) -> float | None:
        """Return the estimated share of the best time that the next `trials` will save, 0..1; None if unknown (yet).

        It is the highest of the estimates during as many past trials: call this after each. A single low estimate
        proves little, and at worst it ended searches 18 % short of the optimum (docs/search.md).
        """
        self._sampler.history.update(self._study)
        with one_thread():
            gain = self._sampler.expected_gain(trials)
        if gain is None or len(self._seen) == len(self._space):  # the last trials are in flight, and end the search
            return None
        finished = len(self._seen) - len(self._in_flight)
        self._gains.append((finished, gain))
        while len(self._gains) > 1 and self._gains[1][0] <= finished - trials:
            self._gains.popleft()
        return max(gain for _, gain in self._gains) if self._gains[0][0] <= finished - trials else None


def _told(row: int, trial: Trial) -> Told:
    if trial.outcome == Outcome.OK:
        return Told(row, State.TIMED, _time(trial))
    bound = _bound(trial)
    return Told(row, State.FAILED, math.nan) if bound is None else Told(row, State.BOUNDED, bound)


def _time(trial: Trial) -> float:
    if not 0 < trial.standing_ns < math.inf:
        raise ValueError(f"an ok trial needs a positive time, not {trial.standing_ns}")
    return trial.standing_ns


def _bound(trial: Trial) -> float | None:
    """Return the lower bound of a stopped trial's time, in nanoseconds; None for other trials."""
    if trial.outcome == Outcome.STOPPED and 0 < trial.standing_ns < math.inf:
        return trial.standing_ns
    return None
