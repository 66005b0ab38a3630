"""Best per value: equal trials, stored ones count, and a reason for what is not possible."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from autotune import text, tuner
from autotune.errors import UsageError
from autotune.model import DeviceInfo, Measurement, Outcome, Trial
from autotune.reports import compare
from autotune.reports.compare import Cell
from autotune.store import Store
from autotune.study import GENERIC_DEVICE, Problem
from autotune.tuner import Budget, ReplayEvaluator, Request, ours, recall
from tests.studies import study
from tests.test_loop import recorded

OTHER = replace(GENERIC_DEVICE, name="other")


def run(problem: Problem, evaluator: ReplayEvaluator, store: Store, trials: int | None = None) -> None:
    budget = Budget(trials=trials)
    tuner.run(Request(problem, database=store.where, sampler="random", seed=1, budget=budget), evaluator=evaluator)


def searcher(store: Store, spent: list[tuple[int, int]], change=lambda trial: trial) -> compare.Search:
    """Return a search that answers from recorded trials and records (valid configurations, trials) of every call."""

    def search(problem: Problem, trials: int) -> None:
        spent.append((len(problem.space), trials))
        evaluator = ReplayEvaluator([change(trial) for trial in recorded(problem)])
        run(problem, evaluator, store, trials)

    return search


def compared(
    store: Store,
    by: str,
    *,
    trials: int = 3,
    search: compare.Search | None = None,
    devices: list[DeviceInfo] | None = None,
) -> list[Cell]:
    tuned = study()
    return compare.compare(
        tuned, by, [tuned.sizes], {}, devices or [GENERIC_DEVICE], store, trials=trials, search=search
    )


def test_every_value_gets_equal_trials_and_its_own_best(store: Store) -> None:
    spent: list[tuple[int, int]] = []
    cells = compared(store, "WPT", trials=3, search=searcher(store, spent))
    values = study().parameters["WPT"].values
    assert [cell.value for cell in cells] == list(values)
    assert [trials for _, trials in spent] == [3] * len(values)
    for cell, value in zip(cells, values, strict=True):
        assert cell.best.configuration["WPT"] == value
        assert cell.trials == 3


def test_other_parameters_can_be_fixed(store: Store) -> None:
    tuned = study()
    cells = compare.compare(
        tuned, "WPT", [tuned.sizes], {}, [GENERIC_DEVICE], store, trials=2, search=searcher(store, []), fix={"WG": [64]}
    )
    assert [cell.valid for cell in cells] == [2] * len(tuned.parameters["WPT"].values)
    assert {cell.best.configuration["WG"] for cell in cells if cell.best} == {64}


def test_what_is_stored_of_a_size_is_read_once_for_all_values(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    compared(store, "WPT", search=searcher(store, []))
    answering, asked = store.answering, []
    monkeypatch.setattr(store, "answering", lambda *which: asked.append(which) or answering(*which))
    assert all(cell.best for cell in compared(store, "WPT"))
    assert len(asked) == 1


def test_what_is_stored_counts(store: Store) -> None:
    compared(store, "WPT", trials=2, search=searcher(store, []))
    spent: list[tuple[int, int]] = []
    compared(store, "WPT", trials=3, search=searcher(store, spent))
    assert {trials for _, trials in spent} == {1}
    spent.clear()
    compared(store, "WPT", trials=3, search=searcher(store, spent))
    assert spent == []


def test_no_more_trials_than_valid_configurations(store: Store) -> None:
    spent: list[tuple[int, int]] = []
    cells = compared(store, "FAST", trials=10_000, search=searcher(store, spent))
    assert {valid == trials for valid, trials in spent} == {True}
    assert all(cell.trials == cell.valid for cell in cells)


def test_without_a_search_only_what_is_stored_is_shown(store: Store) -> None:
    cells = compared(store, "WPT")
    assert {cell.reason for cell in cells} == {"no trial stored"}
    assert all(cell.best is None for cell in cells)


def test_a_value_that_is_not_possible_says_why(store: Store) -> None:
    small = replace(GENERIC_DEVICE, max_work_group_size=32)
    cells = compared(store, "WG", devices=[small])
    reasons = {cell.value: cell.reason for cell in cells}
    assert reasons[32] == "no trial stored"
    assert reasons[64].startswith("not possible: ")
    assert "work-group" in reasons[64]


def test_failures_of_a_value_are_named(store: Store) -> None:
    def broken(trial: Trial) -> Trial:
        return Trial(trial.configuration, Outcome.COMPILE_ERROR, reason="no such\nthing")

    cells = compared(store, "FAST", trials=2, search=searcher(store, [], broken))
    assert {cell.reason for cell in cells} == {"compile_error in 2 of 2 trials: no such thing"}


def test_a_slow_value_that_a_wider_search_stopped_is_measured_on_its_own(store: Store) -> None:
    whole = Problem(study())
    slow = [
        replace(trial, outcome=Outcome.STOPPED) if trial.configuration["FAST"] else trial for trial in recorded(whole)
    ]
    run(whole, ReplayEvaluator(slow), store)
    without = compared(store, "FAST")
    assert [cell.best is None for cell in without] == [False, True]
    assert without[1].trials == without[1].valid
    assert without[1].reason == f"{without[1].valid} trials stopped for being slower than the best of all"
    spent: list[tuple[int, int]] = []
    cells = compared(store, "FAST", search=searcher(store, spent))
    assert [trials for _, trials in spent] == [3]
    assert cells[1].best is not None


def test_by_size_and_by_device(store: Store) -> None:
    tuned = study()
    sizes = [dict.fromkeys(tuned.sizes, n) for n in (64, 128)]
    search = searcher(store, [])
    cells = compare.compare(tuned, "size", sizes, {}, [GENERIC_DEVICE], store, trials=2, search=search)
    assert [cell.value for cell in cells] == [text.size(size) for size in sizes]
    assert compare.sizes_of(cells) == sizes
    compared(store, "device", trials=2, search=search, devices=[OTHER])
    here = compared(store, "device", devices=[GENERIC_DEVICE])
    assert [cell.device for cell in here] == [GENERIC_DEVICE.fingerprint, OTHER.fingerprint]
    assert here[1].best is not None
    assert here[1].trials == 2


def test_what_cannot_be_compared_by_is_refused(store: Store) -> None:
    with pytest.raises(UsageError, match=r"did you mean 'WPT'.*known: .*device, size"):
        compared(store, "WPTT")


def test_trials_of_another_driver_only_are_told(store: Store) -> None:
    old, new = (replace(GENERIC_DEVICE, driver=driver) for driver in ("1.0", "2.0"))
    problem = Problem(study(), device=old)
    run(problem, ReplayEvaluator(recorded(problem)), store)
    assert {cell.best is None for cell in compared(store, "FAST", devices=[old])} == {False}
    reasons = {cell.reason for cell in compared(store, "FAST", devices=[new])}
    assert reasons == {"no trial stored with this driver, only with 1.0"}


def test_a_stopped_trial_without_a_time_is_tried_again() -> None:
    problem = Problem(study())
    first, second, *_ = recorded(problem)
    stopped = replace(second, outcome=Outcome.STOPPED, measurement=Measurement(()))
    assert math.isnan(stopped.time_ns)
    assert recall(problem, ours(problem, [first, stopped])) == [first]
