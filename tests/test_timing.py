"""Warm-up, stopping rules and early stop, on made-up and recorded run times."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from autotune.bench.timing import Limits, Rules, Source, is_drifting, measure, relative_width

MS = 1_000_000
RAMP = [5793, 3989, 3020, 1450, 1556, 1463, 1462, 1465, 1464, 1461, 1462, 1463]
"""Microseconds of the best configuration of a recorded space, while the device's clock ramped up."""


def replay(times_ns: list[int]) -> Source:
    left = iter(times_ns)
    return lambda count: list(islice(left, count))


def test_the_warm_up_outlasts_a_clock_ramp() -> None:
    timed = measure(replay([us * 1000 for us in RAMP]), Rules(), bound_ns=1.5 * MS)
    assert not timed.stopped
    assert timed.measurement.warmup_ns == (5793000, 3989000, 3020000, 1450000)
    assert timed.measurement.median_ns == pytest.approx(1463000, rel=0.01)


@pytest.mark.parametrize(
    ("times", "bound", "taken"),
    [
        ([3 * MS] * 50, 1.5 * MS, 3),  # a slow one after few runs
        ([60 * MS] * 50, 1.5 * MS, 1),  # a hopeless one at once
        ([60 * MS] * 50, None, 0),
        ([4 * MS, *[10_000] * 100], 10_000.0, 0),  # one long run of a short kernel
        ([1000 * MS, *[600 * MS] * 50], 590.0 * MS, 0),  # a long run that met a busy machine
        ([2 * MS] * 8 + [MS] * 100, 1.6 * MS, 0),  # as a disturbance lasts
        ([15_000] * 20 + [10_000] * 400, 10_000.0, 0),  # as one of short runs does
    ],
)
def test_what_is_clearly_slower_is_stopped_and_nothing_else(times: list[int], bound: float | None, taken: int) -> None:
    timed = measure(replay(times), Rules(), bound)
    assert (len(timed.measurement.samples_ns) if timed.stopped else 0) == taken
    assert not timed.stopped or f"{times[0] / bound:.2f} times" in timed.reason


BOOST = [8 * MS] * 5 + [9 * MS] * 100
"""A device that lowers its clock to stay within its power limit."""


def test_runs_before_a_device_at_its_power_limit_has_settled_do_not_count() -> None:
    timed = measure(replay(BOOST), Rules(settle_s=0.1), bound_ns=8.8 * MS)
    assert (set(timed.measurement.samples_ns), timed.stopped) == ({9 * MS}, False)
    assert timed.measurement.warmup_ns[:5] == (8 * MS,) * 5
    assert 0.1 <= sum(timed.measurement.warmup_ns) * 1e-9 < 0.12
    assert set(measure(replay(BOOST), Rules(), 8.8 * MS).measurement.samples_ns) == {8 * MS, 9 * MS}


@pytest.mark.parametrize(("bound", "least", "most"), [(6.0, 3, 5), (8.5, 15, 20)])
def test_what_is_slower_is_stopped_before_the_device_has_settled_or_after(bound: float, least: int, most: int) -> None:
    timed = measure(replay(BOOST), Rules(settle_s=0.1), bound * MS)
    runs = timed.measurement.warmup_ns + timed.measurement.samples_ns
    assert timed.stopped
    assert least <= len(runs) <= most


def test_settling_ends_with_a_recording() -> None:
    assert measure(replay(BOOST[:5]), Rules(settle_s=0.1)).measurement.samples_ns == ()


def test_samples_of_several_runs_are_told_of_one() -> None:
    timed = measure(replay([30 * MS] * 50), Rules(), bound_ns=1.5 * MS, runs=10)
    assert (timed.measurement.samples_ns, timed.stopped) == ((3 * MS,) * 3, True)
    assert "2.00 times as long after 30 runs" in timed.reason
    assert not measure(replay([30 * MS] * 50), Rules(), bound_ns=3.1 * MS, runs=10).stopped


@pytest.mark.parametrize(
    ("times", "first", "taken"),
    [
        ([1.15] * 50, 1.2, 3),  # no ramp is waited out
        ([2.5] * 50, 2.5, 1),  # the first run was hopeless as well
        ([2.5, *[1.0] * 50], 1.2, 0),  # a batch that met something else rules nothing out
        ([2.5, *[1.0] * 50], 2.5, 1),
        ([1.05] * 50, 1.0, 0),  # so close it takes as long as ever
    ],
)
def test_on_a_device_that_is_awake_few_batches_tell_what_is_slower(
    times: list[float], first: float, taken: int
) -> None:
    rules = replace(Rules(), least_s=1.0).awake(2 * first, 2.0)
    timed = measure(replay([round(one * 2 * MS) for one in times]), rules, bound_ns=2.0 * MS)
    assert (len(timed.measurement.samples_ns) if timed.stopped else 0) == taken


@pytest.mark.parametrize(("times", "stopped"), [(1.045, False), (1.06, True)])
def test_on_a_device_that_is_awake_what_may_be_a_finalist_is_not_stopped(times: float, stopped: bool) -> None:
    timed = measure(replay([round(times * 2 * MS)] * 50), Rules().awake(times, 1.0), bound_ns=2.0 * MS)
    assert timed.stopped is stopped
    assert Rules().awake(times, None).sure == Rules().sure


def test_a_run_may_take_many_times_as_long_as_the_best_one_and_two_seconds() -> None:
    assert [Limits(first_s=7.0).run_s(best_ns) for best_ns in (None, 1e6, 1e9)] == [7.0, 2.0, 20.0]


@pytest.mark.parametrize(("factor", "runs"), [(2.0, 1), (1.6, 2), (1.35, 3)])
def test_a_long_run_is_steady_and_the_fewer_the_wider_the_margin(factor: float, runs: int) -> None:
    timed = measure(replay([600 * MS] * 50), Rules(), bound_ns=600 * MS / factor)
    assert timed.stopped
    assert len(timed.measurement.warmup_ns) + len(timed.measurement.samples_ns) <= runs + (runs > 1)


def test_long_runs_are_asked_for_one_by_one() -> None:
    asked = []

    def source(count: int) -> list[int]:
        asked.append(count)
        return [400 * MS] * count

    measure(source, Rules())
    assert set(asked) == {1}


def test_noise_takes_more_samples_than_quiet() -> None:
    quiet = measure(replay([5 * MS] * 100), Rules()).measurement
    noisy = measure(replay([5 * MS + (i * 7919 % 13) * 100_000 for i in range(100)]), Rules()).measurement
    assert len(quiet.samples_ns) == Rules().minimum
    assert len(noisy.samples_ns) > 2 * len(quiet.samples_ns)


def test_short_runs_are_sampled_for_as_long_as_a_disturbance_lasts() -> None:
    short = measure(replay([MS // 4] * 500), Rules()).measurement.samples_ns
    assert Rules().least_s <= sum(short) * 1e-9 < 2 * Rules().least_s
    shortest = measure(replay([10_000] * 500), Rules()).measurement.samples_ns
    assert len(shortest) == 4 * Rules().maximum


def test_seconds_bound_the_samples_but_three_are_taken() -> None:
    slow = measure(replay([1500 * MS, 1600 * MS, 1700 * MS] * 10), Rules(budget_s=2.0)).measurement
    assert len(slow.samples_ns) <= Rules().minimum
    assert [Rules(budget_s=2.0).is_precise([5000 * MS] * count) for count in (2, 3)] == [False, True]
    assert [Rules().left([ns] * 50) for ns in (1000, MS)] == [150, 0]


def test_a_recording_that_runs_dry_ends_the_measurement() -> None:
    assert measure(replay([]), Rules()).measurement.samples_ns == ()
    assert len(measure(replay([2 * MS] * 5), Rules()).measurement.samples_ns) == 4


@example([int(MS * 0.98**run) for run in range(20)], 1e9)  # a ramp without an end
@given(st.lists(st.integers(1000, 10**9), min_size=1, max_size=80), st.floats(1e3, 1e9))
def test_every_run_is_kept_once_and_the_rules_bound_their_number(times: list[int], bound: float) -> None:
    rules = Rules()
    timed = measure(replay(times), rules, bound)
    seen = [*timed.measurement.warmup_ns, *timed.measurement.samples_ns]
    assert seen == times[: len(seen)]
    assert len(timed.measurement.warmup_ns) <= rules.warmup
    assert len(timed.measurement.samples_ns) <= 4 * rules.maximum
    if timed.stopped:
        assert min(timed.measurement.samples_ns) > bound or len(timed.measurement.samples_ns) >= rules.minimum


@given(st.lists(st.integers(10**5, 10**9), min_size=1, max_size=60))
def test_what_is_not_slower_than_the_bound_is_never_stopped(times: list[int]) -> None:
    assert not measure(replay(times), Rules(), bound_ns=float(max(times))).stopped


def test_steady_needs_runs_without_a_new_minimum_and_a_millisecond() -> None:
    runs = [3 * MS, 2 * MS, MS, MS, MS]
    assert [Rules().is_steady(runs[:count]) for count in range(6)] == [False] * 5 + [True]
    assert not Rules().is_steady([1000] * 9)


def test_slower_waits_for_steady_runs() -> None:
    assert [Rules().is_slower([2 * MS] * count, 1.0 * MS) for count in (2, 3)] == [False, True]


def test_drift_is_a_later_half_of_another_distribution() -> None:
    wave = [100, 101, 102, 101, 100, 99]
    assert not is_drifting(wave * 4)
    assert is_drifting(wave * 2 + [int(value * 1.2) for value in wave * 2])
    assert not is_drifting([100] * 10 + [101] * 10)
    assert not is_drifting([100, 200])
    assert is_drifting([0] * 6 + [100] * 6)
    assert is_drifting([120] * 6 + [100] * 6)
    assert not is_drifting([90, 100, 110] * 4 + [95, 104, 115] * 4)


def test_width_is_relative_and_infinite_for_one_sample() -> None:
    assert relative_width([100]) == float("inf")
    assert relative_width([99, 100, 100, 100, 101]) == pytest.approx(0.02)
