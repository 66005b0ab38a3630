"""What a search reports: its progress while it runs, its result at the end."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from autotune import text
from autotune.errors import AutotuneError
from autotune.identity import Value
from autotune.model import Outcome, Trial, in_turns
from autotune.ranking import confidence, median_interval, speedup
from autotune.study import Problem
from autotune.tuner.finale import is_ranked, noise
from autotune.tuner.request import Budget

SEARCH = "search"
"""The phase in which the time left can be estimated."""

WAITING = "waiting for another search to leave the device"
"""The phase before the search, if it must wait; the search has no number in the store then."""

_SURE = 20
"""A parameter's values explain wrong results only if chance would do the same in fewer than one of this many cases."""


@dataclass(frozen=True)
class Progress:
    """The state of a running search.

    `rate` is configurations per second since the first was done, 0 if not known yet; `left_s` is None if not known yet.
    `search` is its number in the store, `trial` the trial that has just ended, if any.
    """

    done: int
    total: int | None
    failures: Mapping[Outcome, int]
    best: Trial | None
    elapsed_s: float
    rate: float
    left_s: float | None
    phase: str
    search: int = 0
    trial: Trial | None = None

    def __str__(self) -> str:
        """Return it in a line, for `on_progress=print`."""
        done = text.count(self.done, "trial") if self.total is None else f"{self.done} of {self.total} trials"
        left = "" if self.left_s is None else f"{text.duration(self.left_s)} left"
        best = "" if self.best is None else f"best {standing(self.best)}: {text.pairs(self.best.configuration)}"
        return ", ".join(filter(None, (f"{self.phase}: {done}", best, left)))


def standing(best: Trial) -> str:
    """Return the time by which a running search compares its best, in words; it never rises during a search.

    It begins with `about` if it is an estimate for the machine's usual pace.
    """
    return ("" if best.standing_ns == best.time_ns else "about ") + text.time(best.standing_ns)


ProgressCallback = Callable[[Progress], None]


class Reporter:
    """Calls `tell` with the progress of a search that began at `started`; it has `total` trials at most, if known."""

    def __init__(self, tell: ProgressCallback, budget: Budget, total: int | None, started: float, search: int) -> None:
        self._tell = tell
        self._search = search
        self._budget = budget
        self._total = total
        self._started = started
        self._first: tuple[float, int] | None = None

    def __call__(
        self, phase: str, done: int, failures: Mapping[Outcome, int], best: Trial | None, trial: Trial | None = None
    ) -> None:
        """Report after a `trial`, or when a phase begins; `done` and `failures` count the trials of this search."""
        elapsed = time.monotonic() - self._started
        self._first = first_s, first = self._first or (elapsed, done)
        since_first = elapsed - first_s  # without the start, whose pace does not predict the rest
        rate = (done - first) / since_first if since_first else 0.0
        left_s = self._left_s(done, rate, elapsed) if phase == SEARCH else None
        failed = {outcome: count for outcome, count in failures.items() if count}
        best, trial = _own(best), _own(trial)
        self._tell(
            Progress(done, self._total, failed, best, elapsed, rate, left_s, phase, search=self._search, trial=trial)
        )

    def _left_s(self, done: int, rate: float, elapsed: float) -> float | None:
        """Estimate the seconds left, or return None: if trials are limited too, the time limit alone is no estimate."""
        if self._total is not None and not rate:
            return None
        by_trials = math.inf if self._total is None else (self._total - done) / rate
        by_time = math.inf if self._budget.seconds is None else max(0.0, self._budget.seconds - elapsed)
        left = min(by_trials, by_time)
        return left if left < math.inf else None


def _own(trial: Trial | None) -> Trial | None:
    """Return a copy of a trial for callbacks: changes of its configuration must not affect the search."""
    return None if trial is None else replace(trial, configuration=dict(trial.configuration))


def confidence_of(*compared: Trial | None) -> int:
    """Return the per cent of cases in which the interval of re-timed trials' ratio contains the truth; 0 if none."""
    taken = [one.retimed for one in compared if one is not None and one.retimed is not None]
    return min((confidence(len(one.samples_ns)) for one in taken), default=0)


class Trials(int):
    """The number of a search's new trials. A call returns them as rows: `pandas.DataFrame(result.trials())`."""

    def __new__(cls, trials: Sequence[Trial]) -> Trials:
        """Count these trials, and keep them."""
        return super().__new__(cls, len(trials))

    def __init__(self, trials: Sequence[Trial]) -> None:
        self._trials = tuple(trials)

    def __getnewargs__(self) -> tuple[Any]:
        """Pickle with the trials."""
        return (self._trials,)

    def and_then(self, later: Trials) -> Trials:
        """Return these trials and the later ones."""
        return Trials((*self._trials, *later._trials))

    def __call__(self) -> list[dict[str, Any]]:
        """Return a row per trial in the order they ended: each parameter, then `outcome`, `reason`, `time_ns`, ...

        `time_ns` is the median that ranks it, with the interval `low_ns` to `high_ns`, None if it was not timed;
        `build_s`, `verify_s` and `time_s` are seconds spent on it.
        """
        return [row(trial) for trial in self._trials]


def row(trial: Trial) -> dict[str, Any]:
    """Return a trial as one flat row."""
    samples = trial.latest.samples_ns
    low, high = median_interval(samples) if samples else (None, None)
    return dict(trial.configuration) | {
        "outcome": trial.outcome.value,
        "reason": trial.reason,
        "time_ns": trial.time_ns if samples else None,
        "low_ns": low,
        "high_ns": high,
        "build_s": trial.build_s,
        "verify_s": trial.verify_s,
        "time_s": trial.time_s,
        "started": trial.started,
    }


@dataclass(frozen=True)
class Result:
    """What a search found. `trials` counts the new trials, `reused` those that were stored before it.

    `trials()` returns the new ones as rows. A notebook shows a result as HTML.

    `best` is None if no configuration passed; its `verified_runs` counts its verified runs as a finalist. `ties` are
    trials timed in turns with the winner that may be as fast. `reason` says why the search ended; `usage` where its
    wall time went, in seconds. `failure` is the error that ended it, if no worker can be started any more.
    `reused_wrong` counts the stored trials with a wrong result, which only `fresh` tries again.
    """

    problem: Problem = field(repr=False)
    best: Trial | None
    default: Trial | None = field(repr=False)
    trials: Trials
    reused: int
    failures: Mapping[Outcome, int]
    examples: Mapping[Outcome, Trial] = field(repr=False)
    ties: tuple[Trial, ...] = field(repr=False)
    reason: str
    usage: Mapping[str, float]
    elapsed_s: float
    failure: AutotuneError | None = None
    reused_wrong: int = 0

    def __str__(self) -> str:
        """Return it in a line, for `print`."""
        best = self.best
        found = f"best {text.time(best.time_ns)}: {text.pairs(best.configuration)}" if best else "nothing passed"
        if best is None and (example := next(iter(self.examples.values()), None)) is not None:
            found += text.line(f", {example.outcome.value}: {example.reason}")
        return f"{self.problem.study.name}: {text.count(self.trials, 'new trial')} ({self.reason}), {found}"

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        from autotune.tuner.notebook import shown

        return shown(self)

    @property
    def noise(self) -> float:
        """The width of the re-timed winner's interval as a share of its median; NaN if it was not timed again."""
        return noise(self.best)

    @property
    def is_ranked(self) -> bool:
        """False if, by their times, others may be faster than the winner by more than a twentieth."""
        return is_ranked(self.best, self.ties)

    @property
    def unbuilt(self) -> Trial | None:
        """A trial that did not build, if no configuration builds; else None."""
        if self.best is None and set(self.failures) == {Outcome.COMPILE_ERROR}:
            return self.examples.get(Outcome.COMPILE_ERROR)
        return None

    @property
    def gain(self) -> tuple[float, float, float] | None:
        """How many times as fast as the default the best is, and the interval of that; None if not timed in turns."""
        best, default = self.best, self.default
        if best is None or default is None or not in_turns(best, default):
            return None
        assert best.retimed is not None
        assert default.retimed is not None
        return speedup(default.retimed.samples_ns, best.retimed.samples_ns)

    @property
    def confidence(self) -> int:
        """The per cent of cases in which an interval like that of `gain` contains the gain; few samples lower it."""
        return confidence_of(self.best, self.default)

    @property
    def wrong_with(self) -> dict[str, list[Value]]:
        """The values, by parameter, of all new trials with a wrong result, if no trial with a right result has them.

        Several parameters if each alone separates wrong from right; none that may do so by chance: of all possible
        selections of wrong trials, at most 2 to the number of values have each value on one side only.
        """
        known = self.trials()
        wrong = [row for row in known if row["outcome"] == Outcome.WRONG_RESULT]
        right = [row for row in known if row["outcome"] in (Outcome.OK, Outcome.STOPPED)]
        selections, found = math.comb(len(wrong) + len(right), len(wrong)), {}
        for name, values in self.problem.values.items():
            met, passed = ({row[name] for row in rows} for rows in (wrong, right))
            if not met & passed and _SURE * len(self.problem.values) * 2 ** len(met | passed) < selections:
                found[name] = [value for value in values if value in met]
        return found

    @property
    def why_no_default(self) -> str:
        """Why the study's default configuration has no trial; empty if it has one."""
        if self.default is not None:
            return ""
        return f"it had not run when the search ended ({self.reason})"

    @property
    def against_default(self) -> str:
        """How the best compares with the study's default configuration, in words; empty if nothing passed."""
        best, default, chosen = self.best, self.default, self.problem.study.chose_default
        if best is None:
            return ""
        if default is None:
            return f"not measured: {self.why_no_default}"
        time, values = text.time(default.time_ns), text.pairs(default.configuration)
        called = (
            "the valid one nearest to the study's default"
            if self.problem.moved
            else "the study's default configuration"
        )
        if default.time_ns != default.time_ns:
            return f"{default.outcome.value}: {default.reason}"
        if default.configuration == best.configuration:
            return f"the best is {called}" + ("" if chosen else ", which are its first values")
        if not chosen:
            return f"{time} with the first values ({values}): the study chooses no default, so there is no baseline"
        if default.outcome is Outcome.STOPPED:
            return f"{time}: {default.reason}, as it was then; not timed in turns with the best"
        named = f"{called} ({values})"
        if (found := self.gain) is None:
            return f"{time}: not timed in turns with the best, which may or may not be faster than {named}"
        ratio, low, high = found
        interval = f"{self.confidence} % interval {low:.2f} to {high:.2f}"
        return f"{time}: the best is {ratio:.2f} x as fast as {named}; {interval}, timed in turns"
