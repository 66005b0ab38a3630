"""What all samplers share: an Optuna study as rows of a space, the choice of an untried row, and one thread."""

from __future__ import annotations

import math
import sys
import threading
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import IntEnum
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState
from threadpoolctl import ThreadpoolController

from autotune.errors import SpaceError
from autotune.samplers.registry import Donors
from autotune.space import Space

MASKED_ROWS = 20_000_000
"""Up to this size of a space, a mask with one byte per row marks the tried rows; beyond it, they are looked up."""

LISTED_ROWS = 1_000_000
"""In a space with more rows than this, candidates are a random sample of this many."""


class Codec:
    """A space as Optuna sees it: one Optuna parameter for each space parameter with more than one value.

    `ordered=False`: a categorical of its values; `ordered=True`: an integer, the index into its ordered list of
    values. Parameters with a single value are left out: there is nothing to choose.
    """

    def __init__(self, space: Space, *, ordered: bool = False) -> None:
        self.space = space
        self.ordered = ordered
        self.columns = [column for column, values in enumerate(space.values) if len(values) > 1]
        values = {space.names[column]: space.values[column] for column in self.columns}
        self.distributions: dict[str, BaseDistribution] = {
            name: IntDistribution(0, len(listed) - 1) if ordered else CategoricalDistribution(listed)
            for name, listed in values.items()
        }
        # Optuna asks for no parameters if the space has one configuration.
        self._rows: dict[tuple[Any, ...], int] = {} if self.columns else {(): 0}

    def params(self, row: int) -> dict[str, Any]:
        """Return the Optuna parameters of one valid configuration; from here on, `row_of` knows their row."""
        names, values = self.space.names, self.space.values
        chosen = self.space.indices(np.array([row], dtype=np.int64))[0].tolist()
        found = {names[at]: chosen[at] if self.ordered else values[at][chosen[at]] for at in self.columns}
        self._rows[tuple(found.values())] = row
        return found

    def indices(self, params: Mapping[str, Any]) -> NDArray[np.int16]:
        """Return the value indices, shape (p,), of a full set of Optuna parameters, valid or not."""
        found = np.zeros(len(self.space.names), dtype=np.int16)
        for column in self.columns:
            name = self.space.names[column]
            found[column] = params[name] if self.ordered else self._position(name, params[name])
        return found

    def row_of(self, params: Mapping[str, Any]) -> int:
        """Return the row for which `params` gave these Optuna parameters; -1 if one is missing."""
        return self._rows.get(tuple(params.get(name) for name in self.distributions), -1)

    def _position(self, name: str, value: Any) -> int:
        return self.space.values[self.space.names.index(name)].index(value)


class State(IntEnum):
    """What is known of a tried row: nothing yet, its time, a lower bound of its time, or that it failed."""

    RUNNING = 0
    TIMED = 1
    BOUNDED = 2
    FAILED = 3


class Told(NamedTuple):
    """A row that was tried before, with its result: a time in nanoseconds, its lower bound, or NaN."""

    row: int
    state: State
    time_ns: float


class History:
    """Rows tried or in flight, with their results; updated from a study step by step.

    A pruned trial with an intermediate value was stopped early (the value is a lower bound of its time,
    in nanoseconds). A pruned trial without one, and a failed one, gave no time.

    Arrays of shape (k,), in the order asked: `rows`; `states`, a `State` each; and `times`, in nanoseconds, a time or
    its lower bound, or NaN if there is neither.
    """

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._seen = 0  # trials of the study
        self._unready: list[int] = []  # numbers of trials without parameters yet: they are just being asked for
        self._open: dict[int, int] = {}  # trial number -> position of a trial that is still running
        self.rows = np.zeros(0, np.int64)
        self.states = np.zeros(0, np.int64)
        self.times = np.zeros(0, np.float64)
        self._tried: set[int] = set()
        small = len(codec.space) <= MASKED_ROWS
        self._mask = np.zeros(len(codec.space), dtype=np.bool_) if small else None
        self._sorted = self.rows  # for a space without a mask

    def update(self, study: Study) -> None:
        """Read what is new in the study; the time is proportional to the number of new trials."""
        trials = study.get_trials(deepcopy=False)
        for number in list(self._open):
            if trials[number].state.is_finished():
                self._close(self._open.pop(number), trials[number])
        unread, self._unready = [*self._unready, *range(self._seen, len(trials))], []
        new: list[tuple[int, FrozenTrial]] = []
        for number in unread:
            trial = trials[number]
            row = self._codec.row_of(trial.params)
            if row < 0:
                self._unready += [] if trial.state.is_finished() else [number]
            elif row not in self._tried:
                self._tried.add(row)
                new.append((row, trial))
        self._seen = len(trials)
        self._append(new)

    def add(self, told: Sequence[Told]) -> None:
        """Append rows that no study has; none of them may be known yet."""
        self._tried.update(one.row for one in told)
        self._extend(*(list(column) for column in zip(*told, strict=True)))

    def _append(self, new: Sequence[tuple[int, FrozenTrial]]) -> None:
        before = len(self.rows)
        self._extend([row for row, _ in new], [State.RUNNING] * len(new), [math.nan] * len(new))
        for position, (_, trial) in enumerate(new, before):
            if trial.state.is_finished():
                self._close(position, trial)
            else:
                self._open[trial.number] = position

    def _extend(self, rows: list[int], states: list[State], times: list[float]) -> None:
        if self._mask is not None:
            self._mask[rows] = True
        self.rows = np.append(self.rows, np.array(rows, np.int64))
        self._sorted = np.sort(self.rows) if self._mask is None else self._sorted
        self.states = np.append(self.states, np.array(states, np.int64))
        self.times = np.append(self.times, np.array(times, np.float64))

    def _close(self, position: int, trial: FrozenTrial) -> None:
        if trial.state == TrialState.COMPLETE:
            assert trial.value is not None
            self.states[position], self.times[position] = State.TIMED, trial.value
        elif trial.state == TrialState.PRUNED and trial.intermediate_values:
            self.states[position] = State.BOUNDED
            self.times[position] = trial.intermediate_values[max(trial.intermediate_values)]
        else:
            self.states[position] = State.FAILED

    def allowed(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return a mask of the rows that may be proposed, same shape as `rows`: neither tried nor in flight."""
        if self._mask is not None:
            return np.asarray(~self._mask[rows])
        if not len(self._sorted):
            return np.ones(len(rows), dtype=np.bool_)
        at = np.searchsorted(self._sorted, rows)
        return np.asarray(self._sorted[np.minimum(at, len(self._sorted) - 1)] != rows)


class RowSampler(BaseSampler):
    """Proposes only valid configurations, and none that was tried or is in flight.

    A proposal is a function of the seed, the number of the trial and the trials before it, so that a
    search that is resumed from stored trials continues exactly like one that was never interrupted. `ordered`
    decides how Optuna sees the space (`Codec`); only samplers with a model use `donors`.
    """

    ordered = False

    def __init__(self, space: Space, seed: int, donors: Donors = ()) -> None:
        self.codec = Codec(space, ordered=self.ordered)
        self.space = space
        self.seed = seed
        self.history = History(self.codec)
        self._told = 0  # the number of trials that are not in the study

    @abstractmethod
    def choose(self, study: Study, trial: FrozenTrial) -> int:
        """Pick an untried row."""

    def know(self, study: Study, told: Sequence[Told]) -> None:
        """Use these trials as if they were in the study; to add them there takes several times as long as a query."""
        if told:
            self.history.update(study)
            self.history.add(told)
            self._told += len(told)

    def prepare(self, trials: float) -> None:
        """Load the modules that so many proposals will need."""

    def expected_gain(self, trials: int) -> float | None:
        """Return the share of the best time that the next `trials` are expected to save; None if unknown."""
        return None

    def random(self, trial: FrozenTrial) -> np.random.Generator:
        """Return the random generator of one proposal."""
        return np.random.default_rng([self.seed, trial.number + self._told])

    def candidates(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return all rows that may be proposed, or a random sample in a large space; never empty."""
        size = len(self.space)
        rows = np.arange(size) if size <= LISTED_ROWS else self.space.sample(rng, LISTED_ROWS)
        found = rows[self.history.allowed(rows)]
        if not len(found):
            raise SpaceError("every valid configuration has been tried")
        return found

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return all parameters: they are chosen together."""
        return self.codec.distributions

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return the parameters of an untried row. Not called for an enqueued trial, which has all parameters."""
        self.history.update(study)
        return self.codec.params(self.choose(study, trial))

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Raise SpaceError: one parameter cannot be chosen alone, since the others decide what is valid."""
        raise SpaceError(f"parameter {param_name!r} is not in the space {list(self.codec.distributions)}")


_verbosity = threading.Lock()


@contextmanager
def quiet_optuna() -> Iterator[None]:
    """Silence Optuna's messages about studies created in the block; restore the program's own verbosity after it."""
    with _verbosity:
        before = optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        try:
            yield
        finally:
            optuna.logging.set_verbosity(before)


@cache
def _controller(scipy: bool) -> ThreadpoolController:
    return ThreadpoolController()


_lock = threading.RLock()


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit BLAS and OpenMP to one thread inside the block, in the loaded libraries: NumPy's, later SciPy's too.

    A proposal multiplies matrices of a few hundred rows: more threads save nothing, and while compilers keep
    the cores busy, they wait for each other (measured on two busy cores: 23 s instead of 2 s). The limit is
    process-wide: searches in several threads propose one at a time, or one would restore the limit of the other.
    """
    with _lock, _controller("scipy.linalg" in sys.modules).limit(limits=1):
        yield
