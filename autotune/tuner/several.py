"""Searches several sizes of one study in one run: one budget for all, and each size uses what the others have found."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from autotune.errors import UsageError
from autotune.identity import apart
from autotune.model import Configuration, identity
from autotune.tuner.request import Budget, Request
from autotune.tuner.result import ProgressCallback, Result
from autotune.tuner.start import run

TWICE_S, TWICE_TRIALS = 40.0, 20
"""With at least this much for each size, a size has two turns: in the second it knows what the later sizes found."""

MOST_STARTS = 3
"""How many bests of other sizes are tried early at a size."""


@dataclass(frozen=True)
class Turn:
    """One size's next turn: its place in the list, how many turns came before and how many there are in all.

    `left_s` is what is left of a budget in seconds for this turn and all later ones; None without such a budget.
    """

    place: int
    number: int
    total: int
    request: Request
    left_s: float | None


Watch = Callable[[Turn], ProgressCallback | None]


def require_enough(budget: Budget, count: int) -> None:
    """Raise UsageError if a budget has fewer trials than there are sizes to search."""
    if budget.trials is not None and budget.trials < count:
        few = "1 trial is" if budget.trials == 1 else f"{budget.trials} trials are"
        raise UsageError(f"{few} fewer than {count} sizes", hint="give each size one at least")


def run_sizes(
    requests: Sequence[Request],
    stop: threading.Event | None = None,
    *,
    on_turn: Watch | None = None,
    clock: Callable[[], float] = time.monotonic,
    search: Callable[..., Result] = run,
) -> Iterator[tuple[int, Result]]:
    """Run requests that differ by their size; after each turn yield its index and all that was found for it so far.

    The budget of the first request is for all sizes: what one size does not use of its share goes to the next ones. A
    size tries the bests of the nearest other sizes early, and has all their trials as donors. Ends if `stop` is set,
    and after a turn whose result says that it lost its workers. `search` runs each request as `run` does. Raises what
    `tuner.run` raises, and UsageError for fewer trials than sizes.
    """
    stop = stop or threading.Event()
    budget, count = requests[0].budget, len(requests)
    require_enough(budget, count)
    waiting = [*range(count)] * _turns(budget, count)
    total, done, found = len(waiting), 0, dict[int, Result]()
    trials, deadline = budget.trials, None if budget.seconds is None else clock() + budget.seconds
    while waiting and not stop.is_set():
        place = waiting.pop(0)
        turns_left = len(waiting) + 1
        left_s = None if deadline is None else max(1.0, deadline - clock())
        share = replace(
            budget,
            trials=None if trials is None else math.ceil(trials / turns_left),
            seconds=None if left_s is None else left_s / turns_left,
        )
        own = requests[place]
        starts = _starts(own, {other: result for other, result in found.items() if other != place})
        request = replace(own, budget=share, start=(*own.start, *starts))
        if place in found:  # its first turn was fresh already, and retried failures
            request = replace(request, fresh=False, retry_failed=False)
        watch = on_turn(Turn(place, done, total, request, left_s)) if on_turn is not None else None
        result = search(request, stop, on_progress=watch)
        done += 1
        trials = None if trials is None else trials - result.trials
        found[place] = _joined(found.get(place), result)
        yield place, found[place]
        if result.reason == "space exhausted":
            waiting = [other for other in waiting if other != place]
        if result.failure is not None:
            return


def _turns(budget: Budget, count: int) -> int:
    """Return how many turns each size has."""
    enough = [
        share >= least
        for share, least in ((budget.seconds, TWICE_S * count), (budget.trials, TWICE_TRIALS * count))
        if share is not None
    ]
    return 2 if count > 1 and enough and all(enough) else 1


def _starts(request: Request, found: Mapping[int, Result]) -> list[Configuration]:
    """Return the bests of the nearest other sizes that are valid at this size, each once."""
    size, chosen = request.problem.size, dict[object, Configuration]()
    for result in sorted(found.values(), key=lambda result: apart(result.problem.size, size)):
        if result.best is not None and result.best.configuration in request.problem.space:
            chosen.setdefault(identity(result.best.configuration), result.best.configuration)
    return list(chosen.values())[:MOST_STARTS]


def _joined(before: Result | None, now: Result) -> Result:
    """Return two turns of one size as one result: the second turn counts trials of the first as stored."""
    if before is None:
        return now
    return replace(
        now,
        trials=before.trials.and_then(now.trials),
        reused=before.reused,
        reused_wrong=before.reused_wrong,
        failures=dict(Counter(before.failures) + Counter(now.failures)),
        examples={**before.examples, **now.examples},
        usage={name: before.usage.get(name, 0.0) + now.usage.get(name, 0.0) for name in {**before.usage, **now.usage}},
        elapsed_s=before.elapsed_s + now.elapsed_s,
    )
