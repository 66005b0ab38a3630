"""Few configurations for many sizes: which lose least, which size takes which, and by what rule."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from autotune.errors import AutotuneError
from autotune.model import Configuration, Identity, Size, Trial, identity
from autotune.store import Store
from autotune.study import Problem
from autotune.text import pairs
from autotune.tuner import Request, measure, ours

PER_SIZE = 2
"""How many of the fastest at each size are candidates, besides the default."""

ENOUGH = 0.05
"""If no number is given, the fewest configurations are chosen with which no size loses more than this share."""

MOST_SETS = 50_000
"""Up to this many sets are compared one by one; beyond, one set is improved by exchanges."""

Losses = NDArray[np.float64]
"""By candidate and size: the share by which a candidate is slower than the fastest; infinite if not known."""


@dataclass(frozen=True)
class Chosen:
    """A set of configurations: their places among the candidates, the place that each size takes, and the loss there.

    Losses are shares of the time of each size's fastest: 0.02 is 2 % slower. `mean` is over the sizes.
    """

    places: tuple[int, ...]
    takes: tuple[int, ...]
    losses: tuple[float, ...]

    @property
    def worst(self) -> float:
        return max(self.losses)

    @property
    def mean(self) -> float:
        return sum(self.losses) / len(self.losses)


@dataclass(frozen=True)
class Rule:
    """Which configuration a size takes: that of the nearest listed size, and bounds of one number if they say the same.

    `by` names the number: a size, or the product of all (`M*N*K`). Up to `bounds[0]` the first of `order` is taken,
    then the next. Empty if no single number tells the sizes apart.
    """

    by: str = ""
    bounds: tuple[float, ...] = ()
    order: tuple[int, ...] = ()


@dataclass(frozen=True)
class Cover:
    """The candidates, their times at each size in nanoseconds (NaN: not known), and the choices by their number."""

    problems: Sequence[Problem]
    candidates: Sequence[Configuration]
    times_ns: Losses
    choices: Sequence[Chosen]
    chosen: Chosen
    rule: Rule

    @property
    def missing(self) -> int:
        """How many pairs of candidate and size are valid and not known."""
        valid = [[one in problem.space for problem in self.problems] for one in self.candidates]
        return int((np.isnan(self.times_ns) & np.array(valid)).sum())


def cover(
    requests: Sequence[Request],
    most: int | None = None,
    *,
    searching: Callable[[Problem], str],
    search: bool = True,
    stop: threading.Event | None = None,
    on_size: Callable[[int, int], None] | None = None,
) -> Cover:
    """Choose the configurations that lose least over the sizes of some requests: `most` of them, or as few as enough.

    If a candidate has not been measured at a size, all candidates are measured there in turns, unless `search` is
    False: then stored times count as far as they can be compared.
    `on_size` is called with a size's place and how many configurations are measured there. `searching` gives the
    command that searches one of the problems as the user asked for it, for hints. Raises AutotuneError if a size has no
    best, or if none of the chosen is known to serve it; Stopped.
    """
    problems = [request.problem for request in requests]
    with Store.to_read(requests[0].database) as store:
        stored = [_passed(store, problem) for problem in problems]
    for problem, known in zip(problems, stored, strict=True):
        if not known:
            what, hint = f"no best is stored at {pairs(problem.size, ',')}", f"{searching(problem)} finds one"
            raise AutotuneError(what, where=problem.study.name, hint=hint)
    candidates = _candidates(problems, stored)
    times = []
    for place, request in enumerate(requests):
        # A trial faster than the best was timed once, at another moment: it ranks behind those timed in turns.
        known = [trial for trial in stored[place] if trial.time_ns >= stored[place][0].time_ns]
        there = {identity(trial.configuration): trial for trial in known}
        if search:
            valid = [one for one in candidates if one in request.problem.space]
            if on_size is not None:
                on_size(place, len(valid))
            there |= measure(request, valid, stop)
        times.append([_time(there, one) for one in candidates])
    return chosen_of(problems, candidates, np.array(times).T, most)


def chosen_of(
    problems: Sequence[Problem], candidates: Sequence[Configuration], times_ns: Losses, most: int | None
) -> Cover:
    """Return the choice among candidates by their times (by candidate and size), of which some may be unknown."""
    losses = np.nan_to_num(times_ns / np.nanmin(times_ns, axis=0) - 1, nan=math.inf)
    limit = min(len(problems) if most is None else most, len(candidates))
    by_number = {len(one.places): one for one in (choose(losses, count) for count in range(1, limit + 1))}
    choices = list(by_number.values())
    enough = (one for one in choices if one.worst <= ENOUGH)
    chosen = choices[-1] if most is not None else next(enough, choices[-1])
    if math.isinf(chosen.worst):
        at = problems[chosen.losses.index(math.inf)]
        hint, size = "give a larger -k, or leave out --no-search", pairs(at.size, ",")
        raise AutotuneError(f"none of the chosen is known to run at {size}", where=at.study.name, hint=hint)
    return Cover(problems, candidates, times_ns, choices, chosen, rule([one.size for one in problems], chosen.takes))


def choose(losses: Losses, count: int) -> Chosen:
    """Return the set of `count` candidates with the least mean loss; of equal sets, the one with the least worst loss.

    If not every size can be served, it is one of the sets that serve the most sizes.
    Each size takes the candidate of the set that loses least there. Exact if there are few sets, else the best of a
    greedy choice improved by single exchanges (k-medoids: Kaufman and Rousseeuw 1990, PAM).
    """
    total, cost = len(losses), partial(_cost, losses)
    if math.comb(total, count) <= MOST_SETS:
        return _set(losses, min(combinations(range(total), count), key=cost))
    places: tuple[int, ...] = ()
    while len(places) < count:
        places = min(((*places, one) for one in range(total) if one not in places), key=cost)
    while True:
        better = min(_exchanges(places, total), key=cost)
        if cost(better) >= cost(places):
            return _set(losses, tuple(sorted(places)))
        places = better


def rule(sizes: Sequence[Size], takes: Sequence[int]) -> Rule:
    """Return the bounds of one number that give each size what it takes; an empty rule if no number does so.

    There must be only one range for each configuration. A bound is the geometric mean of the sizes on both sides of it.
    """
    names = list(sizes[0])
    features = [(name, [size[name] for size in sizes]) for name in names]
    if len(names) > 1:
        features.insert(0, ("*".join(names), [math.prod(size.values()) for size in sizes]))
    for by, values in features:
        ordered = sorted(zip(values, takes, strict=True))
        parts = [0, *(at for at in range(1, len(ordered)) if ordered[at][1] != ordered[at - 1][1])]
        apart_there = all(ordered[at][0] > ordered[at - 1][0] for at in parts[1:])
        if len(parts) == len(set(takes)) and apart_there:
            bounds = tuple(math.sqrt(ordered[at - 1][0] * ordered[at][0]) for at in parts[1:])
            return Rule(by, bounds, tuple(ordered[at][1] for at in parts))
    return Rule()


def _cost(losses: Losses, places: Sequence[int]) -> tuple[int, float, float]:
    """Return how many sizes a set is not known to serve, then its mean and worst loss at the others."""
    least = losses[list(places)].min(axis=0)
    served = least[np.isfinite(least)]
    return len(least) - len(served), float(served.sum()) / max(1, len(served)), float(served.max(initial=0.0))


def _set(losses: Losses, places: tuple[int, ...]) -> Chosen:
    some = losses[list(places)]
    takes = tuple(places[at] for at in some.argmin(axis=0))
    used = tuple(place for place in places if place in takes)
    return Chosen(used, takes, tuple(float(loss) for loss in some.min(axis=0)))


def _exchanges(places: tuple[int, ...], total: int) -> Iterator[tuple[int, ...]]:
    for at in range(len(places)):
        for one in range(total):
            if one not in places:
                yield (*places[:at], one, *places[at + 1 :])


def _passed(store: Store, problem: Problem) -> Sequence[Trial]:
    """The verified trials of a problem on this device and driver, best first."""
    return ours(problem, store.answering(problem.key, problem.device.driver)).passed


def _candidates(problems: Sequence[Problem], stored: Sequence[Sequence[Trial]]) -> list[Configuration]:
    found: dict[Identity, Configuration] = {}
    for problem, trials in zip(problems, stored, strict=True):
        best = [trial.configuration for trial in trials[:PER_SIZE]]
        for configuration in (*best, problem.default):
            found.setdefault(identity(configuration), configuration)
    return list(found.values())


def _time(known: Mapping[Identity, Trial], configuration: Configuration) -> float:
    trial = known.get(identity(configuration))
    return math.nan if trial is None or trial.outcome.failed else trial.time_ns
