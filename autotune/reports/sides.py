"""Comparisons of what is stored, by size, device or a parameter's values. Nothing is evaluated, built or searched.

`compare.py` is the one that knows which values are possible and searches where trials are missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autotune import text
from autotune.identity import Choices, Size
from autotune.lookup import records
from autotune.reports import learned
from autotune.store import Store, listing

BY_SIZE, BY_DEVICE = "size", "device"

MOST = 1000
"""Trials of a problem that a comparison of values looks at, the fastest among them."""

_SIZES = 16
_PANELS = 3


def sides(
    store: Store,
    study: str,
    by: str,
    *,
    sizes: Sequence[Size] = (),
    choices: Choices | None = None,
    device: str = "",
    order: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Return a cell per value: `value`, `size`, `device`, `problem` (its number), `trials`, `reason`, `best`.

    `best` has what `learned.summary` tells, None where `reason` says why. By default the sizes that are stored: all of
    them by size, the largest three else; the choices of what was stored last; the device that was searched last.
    `order` has the names of a size as the study orders them, where it is known.
    """
    stored = [_ordered(problem, order) for problem in _newest(listing.problems(store, study=study))]
    if choices is None:
        choices = next((problem.key.choices for problem in stored), {})
    fitting = [problem for problem in stored if problem.key.choices == choices]
    if by != BY_DEVICE:
        latest = listing.last_searched(store, [problem.number for problem in fitting])
        places = {number: place for place, number in enumerate(latest)}
        fitting.sort(key=lambda problem: places.get(problem.number, len(places)))
        device = device or next((problem.key.device for problem in fitting), "")
        fitting = [problem for problem in fitting if problem.key.device == device]
    wanted = [dict(size) for size in sizes] or _sizes(fitting, _SIZES if by == BY_SIZE else _PANELS)
    cells: list[dict[str, Any]] = []
    for size in wanted:
        for problem in (problem for problem in fitting if problem.key.size == size):
            cells += _cells(store, problem, by)
        if not any(cell["size"] == size for cell in cells):
            cells.append(_cell(None, size, device, text.size(size), None, 0, "no trial stored"))
    return cells


def _newest(problems: Sequence[listing.Problem]) -> list[listing.Problem]:
    """Return the problems of the latest text of a study for each device, size and choices."""
    found: dict[str, listing.Problem] = {}
    for problem in problems:  # newest first
        found.setdefault(f"{problem.key._replace(kernel_hash='', study_hash='')}", problem)
    return list(found.values())


def _ordered(problem: listing.Problem, order: Sequence[str]) -> listing.Problem:
    """Return a problem with its size in an order of names: a database has them by the alphabet."""
    size = {name: problem.key.size[name] for name in (*order, *problem.key.size) if name in problem.key.size}
    return problem._replace(key=problem.key._replace(size=size))


def _sizes(problems: Sequence[listing.Problem], most: int) -> list[dict[str, int]]:
    known = {text.size(problem.key.size): dict(problem.key.size) for problem in problems}
    return sorted(known.values(), key=text.size_order)[-most:]


def _cells(store: Store, problem: listing.Problem, by: str) -> list[dict[str, Any]]:
    key = problem.key
    if by in (BY_SIZE, BY_DEVICE):
        with listing.sound(store):
            ranking = records.of_store(store).ranking(problem.number, "")
        best = learned.summary(store, ranking.entries[0].order[0] if ranking.entries else None)
        label = text.size(key.size) if by == BY_SIZE else key.device
        return [_cell(problem, key.size, key.device, label, best, ranking.trials)]
    known = learned.sample(store, problem.number, most=MOST)
    parameters = learned.parameters_of(known)
    if by not in parameters:
        return []
    values = learned.per_value(known, {by: parameters[by]})[by]
    return [
        _cell(problem, key.size, key.device, str(one["value"]), learned.summary(store, one["trial"]), one["tried"])
        for one in values
    ]


def _cell(
    problem: listing.Problem | None,
    size: Size,
    device: str,
    value: str,
    best: dict[str, Any] | None,
    trials: int,
    reason: str = "no trial passed",
) -> dict[str, Any]:
    return {
        "value": value,
        "size": dict(size),
        "device": device,
        "problem": None if problem is None else problem.number,
        "trials": trials,
        "reason": "" if best is not None else reason,
        "best": best,
    }
