"""The best per value of one parameter, per size or per device: from stored trials, with new ones if too few."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from autotune import text
from autotune.errors import DeviceError, SpaceError, UsageError, shortened
from autotune.model import Choices, DeviceInfo, Outcome, Size, Trial, Value, identity
from autotune.store import Store, listing
from autotune.study import Problem, Study
from autotune.text import did_you_mean
from autotune.tuner import fastest, ours, recall

BY_DEVICE, BY_SIZE = "device", "size"

Search = Callable[[Problem, int], None]
"""Runs that many new trials of a problem and stores them."""


@dataclass(frozen=True)
class Cell:
    """One value at one size on one device. If `best` is None, `reason` says why.

    By size or device, `value` is its name. `trials` counts the configurations tried, `valid` those that are possible.
    """

    value: Value
    size: Mapping[str, int]
    device: str
    problem: Problem | None
    best: Trial | None
    trials: int
    valid: int
    reason: str = ""


def require_subject(study: Study, by: str) -> None:
    """Raise UsageError unless `by` is `device`, `size` or a parameter of the study."""
    known = [*study.parameters, BY_DEVICE, BY_SIZE]
    if by not in known:
        raise UsageError(
            f"cannot compare by {by!r}{did_you_mean(by, known)}", where="--by", hint=f"known: {', '.join(known)}"
        )


def compare(
    study: Study,
    by: str,
    sizes: Sequence[Size],
    choices: Choices,
    devices: Sequence[DeviceInfo],
    store: Store,
    *,
    trials: int,
    search: Search | None,
    fix: Mapping[str, Sequence[Value]] | None = None,
) -> list[Cell]:
    """Return a cell per value, size and device, in this order: sizes, then devices, then values.

    If fewer than `trials` configurations of a cell are stored, `search` tries the missing ones, unless it is None.
    `fix` keeps only the given values of other parameters. By device, devices that are not here but have stored results
    of the same study come at the end.
    Raises UsageError for a `by` that nothing can be compared by.
    """
    require_subject(study, by)
    cells: list[Cell] = []
    for size in sizes:
        for device in devices:
            stored = _Stored(store)
            for value, one in _values(study, by, size, device):
                try:
                    problem = Problem(study, size, choices, device, fix={**(fix or {}), **one})
                    valid = len(problem.space)
                except (SpaceError, DeviceError) as error:
                    why = error.what.removeprefix("no configuration is valid: ")
                    cells.append(Cell(value, size, device.fingerprint, None, None, 0, 0, f"not possible: {why}"))
                    continue
                if search is not None:
                    _fill(problem, min(trials, valid), stored, search)
                cells.append(_cell(problem, value, stored))
        if by == BY_DEVICE:
            cells += _elsewhere(study, size, choices, devices, store)
    return cells


def _values(
    study: Study, by: str, size: Size, device: DeviceInfo
) -> Iterator[tuple[Value, Mapping[str, Sequence[Value]]]]:
    if by == BY_DEVICE:
        yield device.fingerprint, {}
    elif by == BY_SIZE:
        yield text.size(size), {}
    else:
        for value in study.parameters[by].values:
            yield value, {by: [value]}


@dataclass
class _Stored:
    """What is stored of a problem, whatever its parameters may be: read once, until a search adds to it."""

    store: Store
    answering: list[Trial] | None = None

    def read(self, problem: Problem) -> list[Trial]:
        if self.answering is None:
            self.answering = self.store.answering(problem.key, problem.device.driver)
        return self.answering


def _drivers(problem: Problem, trials: Sequence[Trial]) -> set[str]:
    """The drivers of the trials that are of a problem's space."""
    rows = problem.space.rows_of([trial.configuration for trial in trials])
    return {trial.driver for trial, row in zip(trials, rows, strict=True) if row >= 0}


def _fill(problem: Problem, wanted: int, stored: _Stored, search: Search) -> None:
    """Search until so many trials of a problem are stored."""
    missing = wanted - len(recall(problem, ours(problem, stored.store.trials(problem.key))))
    if missing > 0:
        stored.answering = None
        search(problem, missing)


def _cell(problem: Problem, value: Value, stored: _Stored) -> Cell:
    own = ours(problem, stored.read(problem))
    reason = "" if own.best is not None else _why_none(own, _drivers(problem, stored.read(problem)))
    fingerprint, valid = problem.device.fingerprint, len(problem.space)
    return Cell(value, problem.size, fingerprint, problem, own.best, _count(own), valid, reason)


def _elsewhere(
    study: Study, size: Size, choices: Choices, devices: Sequence[DeviceInfo], store: Store
) -> Iterator[Cell]:
    """Cells of devices that are not here, from stored trials of exactly this study and size."""
    problem = Problem(study, size, choices)
    here = {device.fingerprint for device in devices}
    for _, key in reversed(listing.problems(store, study=study.name)):
        if key.device in here or key != problem.key._replace(device=key.device):
            continue
        driver = store.answering_driver(key)
        stored = store.answering(key, driver)
        own = [trial for trial in stored if trial.driver == driver] or stored
        best = fastest(own, driver)
        reason = "" if best is not None else _why_none(own)
        if own:
            yield Cell(key.device, size, key.device, problem, best, _count(own), 0, reason)


def _count(trials: Iterable[Trial]) -> int:
    """The number of configurations tried."""
    return len({identity(trial.configuration) for trial in trials})


def _why_none(trials: Iterable[Trial], drivers: Iterable[str] = ()) -> str:
    """Why nothing passed in a cell; `drivers` are the drivers with stored trials."""
    latest = list({identity(trial.configuration): trial for trial in trials}.values())
    if not latest:
        others = ", ".join(sorted(drivers))
        return f"no trial stored with this driver, only with {others}" if others else "no trial stored"
    stopped = sum(trial.outcome is Outcome.STOPPED for trial in latest)
    failed = [trial for trial in latest if trial.outcome.failed]
    reasons = [f"{text.count(stopped, 'trial')} stopped for being slower than the best of all"] if stopped else []
    if failed:
        outcome, count = Counter(trial.outcome for trial in failed).most_common(1)[0]
        example = next(trial for trial in failed if trial.outcome is outcome)
        reason = shortened(" ".join(example.reason.split()))
        reasons.append(f"{outcome.value} in {count} of {len(latest)} trials: {reason}")
    return "; ".join(reasons) or "no trial passed"


def sizes_of(cells: Iterable[Cell]) -> list[Size]:
    """The sizes of some cells, each once, in their order."""
    found: list[Size] = []
    for cell in cells:
        if cell.size not in found:
            found.append(cell.size)
    return found
