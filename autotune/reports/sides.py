"""Comparisons of stored results, by size, device or a parameter's values. Nothing is evaluated, built or searched.

`compare.py`, in contrast, knows which values are possible and searches where trials are missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from autotune import text
from autotune.identity import Choices, Size, Value, in_order, size_order
from autotune.lookup import records
from autotune.model import Outcome
from autotune.reports import learned
from autotune.reports.compare import BY_DEVICE, BY_SIZE
from autotune.store import Store, listing, survey

MOST = 1000
"""How many trials of a problem a comparison of values uses, the fastest among them."""

_SIZES, _PANELS = 64, 3
"""How many sizes a comparison by size shows, and any other: the largest, if no sizes are given."""


def sides(
    store: Store,
    study: str,
    by: str,
    *,
    sizes: Sequence[Size] = (),
    choices: Choices | None = None,
    device: str = "",
    order: Sequence[str] = (),
) -> tuple[list[dict[str, Any]], int]:
    """Return a cell per value, and how many smaller stored sizes are left out.

    A cell has `value` (by size or device its name), `size`, `device`, `problem` (its number), `trials`, `reason` and
    `best`, in the form of `learned.summary`; if `best` is None, `reason` says why. By default: the largest of the
    stored sizes; the choices that were stored last; the device that was searched last.
    `order` has the names of a size in the study's order, if that is known.
    """
    stored = [
        problem._replace(key=problem.key._replace(size=in_order(problem.key.size, order)))
        for problem in listing.latest_texts(listing.problems(store, study=study))
    ]
    if choices is None:
        choices = next((problem.key.choices for problem in stored), {})
    fitting = [problem for problem in stored if problem.key.choices == choices]
    if by != BY_DEVICE:
        latest = listing.last_searched(store, [problem.number for problem in fitting])
        places = {number: place for place, number in enumerate(latest)}
        fitting.sort(key=lambda problem: places.get(problem.number, len(places)))
        device = device or next((problem.key.device for problem in fitting), "")
        fitting = [problem for problem in fitting if problem.key.device == device]
    stored_sizes = _sizes(fitting)
    wanted = [dict(size) for size in sizes] or stored_sizes[-(_SIZES if by == BY_SIZE else _PANELS) :]
    cells: list[dict[str, Any]] = []
    for size in wanted:
        for problem in (problem for problem in fitting if problem.key.size == size):
            cells += _cells(store, problem, by)
        if not any(cell["size"] == size for cell in cells):
            known = next((problem for problem in fitting if problem.key.size == size), None)
            told = Counter[Outcome]() if known is None else survey.outcomes(store, known.number)
            ended = sum(count for outcome, count in told.items() if outcome.ended)
            cells.append(_cell(known, size, device, text.size(size), None, ended, told))
    return cells, 0 if sizes else len(stored_sizes) - len(wanted)


def _sizes(problems: Sequence[listing.Problem]) -> list[dict[str, int]]:
    known = {text.size(problem.key.size): dict(problem.key.size) for problem in problems}
    return sorted(known.values(), key=size_order)


def _cells(store: Store, problem: listing.Problem, by: str) -> list[dict[str, Any]]:
    key = problem.key
    if by in (BY_SIZE, BY_DEVICE):
        with listing.sound(store):
            database = records.of_store(store)
            ranking = database.ranking(problem.number, "")
            trials = database.trials(problem.number, ranking.generation)
        best = learned.summary(store, ranking.entries[0].order[0] if ranking.entries else None)
        label = text.size(key.size) if by == BY_SIZE else key.device
        told = Counter[Outcome]() if best is not None else survey.outcomes(store, problem.number)
        return [_cell(problem, key.size, key.device, label, best, trials, told)]
    known = learned.sample(store, problem.number, most=MOST)
    parameters = learned.parameters_of(known)
    if by not in parameters:
        return []
    cells = []
    for one in learned.per_value(known, {by: parameters[by]})[by]:
        value, best = one["value"], learned.summary(store, one["trial"])
        told = Counter(row.outcome for row in known.others if row.configuration.get(by) == value)
        cells.append(_cell(problem, key.size, key.device, value, best, one["tried"], told))
    return cells


def _cell(
    problem: listing.Problem | None,
    size: Size,
    device: str,
    value: Value,
    best: dict[str, Any] | None,
    trials: int,
    told: Counter[Outcome],
) -> dict[str, Any]:
    return {
        "value": value,
        "size": dict(size),
        "device": device,
        "problem": None if problem is None else problem.number,
        "trials": trials,
        "reason": "" if best is not None else _why_none(told),
        "best": best,
    }


def _why_none(told: Counter[Outcome]) -> str:
    """Return the outcomes of trials of which none is the best."""
    if not told.total():
        return "no trial stored"
    failed = ", ".join(f"{count:,} {outcome.value}" for outcome, count in told.most_common() if outcome.failed)
    said = [
        f"{text.count(count, 'trial')} {what}"
        for what, count in (
            ("stopped early for being slow", told[Outcome.STOPPED]),
            (f"failed: {failed}", sum(count for outcome, count in told.items() if outcome.failed)),
            ("pending", told[Outcome.PENDING]),
            ("lost with its search", told[Outcome.LOST]),
            ("passed, of configurations that were wrong or failed at other times", told[Outcome.OK]),
        )
        if count
    ]
    return "; ".join(said)
