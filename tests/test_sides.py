"""Comparisons of stored results: by size, by device, by a parameter's values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autotune.model import Outcome, Trial
from autotune.reports.sides import sides
from autotune.store import Store
from tests.stored import DEVICE, KEY, ok, put


def cells_of(*args: Any, **more: Any) -> list[dict[str, Any]]:
    """Return the cells of a comparison that leaves out no size."""
    cells, left_out = sides(*args, **more)
    assert left_out == 0
    return cells


SIZES = [{"M": n, "N": n} for n in (8, 16, 128)]


@pytest.fixture
def filled(store: Store) -> Store:
    """Two devices at three sizes; A=2 is twice as fast, A=3 fails."""
    for size in SIZES:
        for device, slower in (("a-1cu", 1), ("b-1cu", 3)):
            time = 1000 * size["M"] * slower
            trials = [ok({"A": 1, "B": 1}, 2 * time), ok({"A": 2, "B": 1}, time)]
            put(store, [*trials, Trial({"A": 3, "B": 1}, Outcome.CRASH)], key=KEY._replace(size=size, device=device))
    return store


def test_by_size_on_the_device_searched_last(filled: Store) -> None:
    cells = cells_of(filled, "scale", "size")
    assert [(cell["value"], cell["device"]) for cell in cells] == [(f"M=N={n}", "b-1cu") for n in (8, 16, 128)]
    assert [cell["best"]["time_ns"] for cell in cells] == [24_000, 48_000, 384_000]
    assert {cell["trials"] for cell in cells} == {3}


def test_sizes_come_by_their_numbers_in_the_order_of_the_study(store: Store) -> None:
    sizes = [{"M": m, "N": n} for m, n in ((256, 1), (1024, 64), (64, 1024), (256, 16))]
    for size in sizes:
        put(store, [ok({"A": 1}, 5)], key=KEY._replace(size=size))
    values = [cell["value"] for cell in cells_of(store, "scale", "size")]
    assert values == ["M=64 N=1024", "M=256 N=1", "M=256 N=16", "M=1024 N=64"]
    values = [cell["value"] for cell in cells_of(store, "scale", "size", order=["N", "M"])]
    assert values == ["N=1 M=256", "N=16 M=256", "N=64 M=1024", "N=1024 M=64"]


def test_by_device_at_every_size(filled: Store) -> None:
    cells = cells_of(filled, "scale", "device", sizes=SIZES[:1])
    assert {cell["value"]: cell["best"]["time_ns"] for cell in cells} == {"a-1cu": 8000, "b-1cu": 24_000}


def test_by_the_values_of_a_parameter(filled: Store) -> None:
    cells = cells_of(filled, "scale", "A", sizes=SIZES[:1], device="a-1cu")
    assert [cell["value"] for cell in cells] == [1, 2, 3]
    assert [cell["best"] and cell["best"]["time_ns"] for cell in cells] == [16_000, 8000, None]
    assert cells[2]["reason"] == "1 trial failed: 1 crash"


def test_why_there_is_no_best_is_told_as_it_is(store: Store) -> None:
    slow, crash = (Trial({"A": a, "B": b}, how) for a, b, how in ((1, 1, Outcome.STOPPED), (2, 1, Outcome.CRASH)))
    put(store, [slow, replace(slow, configuration={"A": 1, "B": 2}), crash])
    said = "2 trials stopped early for being slow"
    assert [cell["reason"] for cell in cells_of(store, "scale", "A")] == [said, "1 trial failed: 1 crash"]
    assert [cell["reason"] for cell in cells_of(store, "scale", "size")] == [f"{said}; 1 trial failed: 1 crash"]
    put(
        store,
        [ok({"A": 2, "B": 2}, 5), Trial({"A": 2, "B": 2}, Outcome.WRONG_RESULT)],
        key=KEY._replace(device="b-1cu"),
    )
    (cell,) = cells_of(store, "scale", "device", sizes=[KEY.size], choices=KEY.choices)[:1]
    assert "1 trial failed: 1 wrong_result; 1 trial passed, of configurations that were wrong or" in cell["reason"]


@pytest.mark.parametrize("by", ["size", "device", "A"])
def test_trials_that_are_only_pending_are_told_as_such(store: Store, by: str) -> None:
    store.begin(store.start_search(KEY, DEVICE, sampler="random", seed=1), [{"A": 1}, {"A": 2}])
    assert [cell["reason"] for cell in cells_of(store, "scale", by)] == ["2 trials pending"]


def test_what_is_not_stored_is_said(filled: Store) -> None:
    (cell,) = cells_of(filled, "scale", "size", sizes=[{"M": 5, "N": 5}])
    assert (cell["best"], cell["reason"]) == (None, "no trial stored")
    assert cells_of(filled, "nope", "size") == []
    assert cells_of(filled, "scale", "size", choices={"T": "double"}) == []


def test_sizes_that_are_left_out_are_counted(store: Store) -> None:
    for m in range(70):
        put(store, [ok({"A": 1}, 5)], key=KEY._replace(size={"M": m}))
    for by, count in (("size", 64), ("A", 3)):
        cells, left_out = sides(store, "scale", by)
        assert [cell["size"]["M"] for cell in cells] == list(range(70 - count, 70))
        assert left_out == 70 - count


def test_of_several_texts_of_a_study_the_newest_speaks(filled: Store) -> None:
    put(filled, [ok({"A": 1, "B": 1}, 7)], key=KEY._replace(size=SIZES[0], device="b-1cu", kernel_hash="n" * 32))
    cells = cells_of(filled, "scale", "size", device="b-1cu", sizes=SIZES[:1])
    assert [cell["best"]["time_ns"] for cell in cells] == [7]
