"""Searches of a recorded space: the trials of one search, its curve, and disturbances."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from recording import Recording

from autotune.model import ProblemKey, Trial
from autotune.samplers import Proposer
from autotune.tuner.finale import MOST_FINALISTS

_LAUNCH_ERROR = 2  # of a recording


@dataclass(frozen=True)
class Disturbance:
    """What makes a device harder to search: a share of configurations that fail, and the deviation of the noise."""

    failures: float = 0.0
    noise: float = 0.0

    def of(self, recording: Recording, seed: int) -> Recording:
        """The recording, disturbed by a seed; a configuration always fails or always has the same noise."""
        if not self.failures and not self.noise:
            return recording
        rng = np.random.default_rng([seed, len(recording.space)])
        fails = rng.random(len(recording.space)) < self.failures
        times = recording.time_ns * np.exp(self.noise * rng.standard_normal(len(fails)))
        times[fails] = np.nan
        outcome = np.where(fails & (recording.outcome == 0), _LAUNCH_ERROR, recording.outcome).astype(np.uint8)
        return replace(recording, time_ns=times, outcome=outcome)


CALM = Disturbance()


class Retiming:
    """The end of a search with the same noise: the fastest are timed again, and the least median is named."""

    SAMPLES = 9
    """Samples of each."""

    def __init__(self, noise: float, seed: int) -> None:
        self._noise = noise
        self._rng = np.random.default_rng(seed)

    def named(self, times: Sequence[tuple[float, float]]) -> float:
        """Return the true time of the configuration that is named, from (first measured, true) times."""
        fastest = sorted(times)[:MOST_FINALISTS]
        true = np.array([time for first, time in fastest if first <= fastest[0][0] * np.exp(4 * self._noise)])
        again = true[:, None] * np.exp(self._noise * self._rng.standard_normal((len(true), self.SAMPLES)))
        return float(true[np.median(again, axis=1).argmin()])


def search(
    recording: Recording,
    sampler: str,
    seed: int,
    budget: int,
    prior: Sequence[tuple[ProblemKey, list[Trial]]] = (),
    in_flight: int = 1,
    whole: bool = False,
) -> tuple[list[Trial], float]:
    """The trials of one search in the order they ended, and its CPU milliseconds per proposal.

    Unless `whole`, it ends with the optimum: afterwards no figure changes.
    """
    began = time.process_time()
    proposer = Proposer(recording.space, sampler, seed, prior)
    flying: deque[Trial] = deque()
    done: list[Trial] = []
    while len(done) < budget:
        while len(flying) < in_flight and (configuration := proposer.ask()) is not None:
            row = recording.space.row(configuration)
            assert row is not None, f"{sampler} proposed what is not valid: {configuration}"
            flying.append(recording.trial(row))
        if not flying:
            break
        done.append(flying.popleft())
        proposer.tell(done[-1])
        if not whole and done[-1].time_ns <= recording.best_ns + 1:
            break
    return done, (time.process_time() - began) / len(done) * 1000


def curve(
    searched: Recording, true: Recording, trials: Iterable[Trial], budget: int, finals: Retiming | None = None
) -> NDArray[np.float64]:
    """Optimum / best so far after 1, 2, ... `budget` evaluations; 0 before the first that worked.

    The best is the fastest as measured in `searched`, or the one that `finals` names; its time is the one in `true`.
    The optimum is also a time in `true`, of the configurations that work in `searched`.
    """
    optimum = float(np.nanmin(np.where(np.isnan(searched.time_ns), np.nan, true.time_ns)))
    best, seen, reached = np.inf, np.inf, []
    times: list[tuple[float, float]] = []
    for trial in trials:
        if not np.isnan(trial.time_ns):
            row = true.space.row(trial.configuration)
            assert row is not None
            times.append((trial.time_ns, float(true.time_ns[row])))
            if finals is not None:
                best = finals.named(times)
            elif trial.time_ns < seen:
                seen, best = times[-1]
        reached.append(optimum / best)
    reached += [reached[-1]] * (budget - len(reached))  # a space smaller than the budget
    return np.minimum(np.array(reached[:budget]), 1.0)
