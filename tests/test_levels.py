"""How sessions differ: whether their middle is known, and samples that show it."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.bench import levels
from autotune.bench.levels import Visits, share_out
from autotune.ranking import median, speedup

VISITS = st.lists(st.lists(st.integers(1, 10**9), min_size=1, max_size=4).map(tuple), min_size=1, max_size=40)


def samples(visits: Visits) -> list[int]:
    return [ns for visit in visits for ns in visit]


@given(visits=VISITS, factor=st.integers(2, 10))
def test_samples_are_means_over_sessions_alike_for_all_finalists(visits: list[tuple[int, ...]], factor: int) -> None:
    slower = [tuple(factor * ns for ns in visit) for visit in visits]
    found = share_out([visits, slower])
    if len(visits) < levels.SAMPLES:
        assert found == [visits, slower]
        return
    one, other = map(samples, found)
    assert len(one) == len(other) == levels.SAMPLES
    times = list(map(median, visits))
    assert 1 <= median(one) <= max(times) + 1
    if min(one) > 1 < min(other):
        assert other == pytest.approx([factor * ns for ns in one], abs=factor)  # pairs


def test_the_median_of_the_samples_is_half_way_between_quick_and_slow_sessions() -> None:
    times = [10_000, 10_000, 12_010, 10_000, 10_020, 10_000, 10_000, 12_000, 10_000, 10_010, 10_000, 10_000, 12_000]
    (found,) = share_out([[(ns, ns, 500) for ns in times]])
    assert median(samples(found)) == pytest.approx(11_000, abs=10)
    assert len(set(samples(found))) > 1  # and tell how sure that is


def test_finalists_are_compared_by_their_means_over_the_same_sessions() -> None:
    """One finalist differs in sessions in which the others are slow, which the median of all does not show."""
    common = [10_000, 10_100, 10_200, 10_300] * 3
    others = [[(ns,) for ns in common] for _ in range(5)]
    *found, one = share_out([*others, [(ns + 12 * (ns > 10_150),) for ns in common]])
    assert median(samples(one)) - median(samples(found[0])) == pytest.approx(6, abs=1)


@pytest.mark.parametrize("disturbed", [(0,), (0, 1, 2)])
def test_a_bench_that_was_disturbed_hardly_counts(disturbed: Sequence[int]) -> None:
    """Disturbed for one finalist or for all of them."""
    times = [10_000, 10_030, 10_010, 10_050, 10_040, 10_020, 10_030] * 2
    quiet = [[(ns + place + ns * place % 7,) for ns in times] for place in range(3)]
    spoilt = [list(visits) for visits in quiet]
    for place in disturbed:
        spoilt[place][-1] = (20_000,)
    for one, other in zip(share_out(quiet), share_out(spoilt), strict=True):
        assert median(samples(other)) == pytest.approx(median(samples(one)), abs=15)


def test_sessions_alike_make_samples_alike() -> None:
    (found,) = share_out([[(100, 102, 110)] * (2 * levels.SAMPLES + 1)])
    assert samples(found) == [102] * levels.SAMPLES


@given(visits=VISITS, factor=st.integers(2, 10))
def test_how_well_the_mean_is_known_goes_by_what_is_common_to_all_finalists(
    visits: list[tuple[int, ...]], factor: int
) -> None:
    slower = [tuple(factor * ns for ns in visit) for visit in visits]
    alone, together = levels.width([visits]), levels.width([visits, slower])
    assert alone == (pytest.approx(together, abs=1e-9) if len(visits) >= levels.VISITS else math.inf)
    assert levels.width([visits[:1] * levels.VISITS]) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(
    ("finalists", "apart"),
    [
        ([[(1000,), (1010,), (1004, 1012, 1013)], [(500,), (503,), (505,)]], False),
        ([[(1000,), (1020,), (1000,)], [(500,), (510,), (500,)]], True),
        ([[(1000,), (1014,)], [(500,), (510,), (700,)]], True),  # of what all have met
        ([[(1000,), (1001,), (990, 2000, 1001)], [(500,), (500,)]], False),
        ([[(0,), (0,)]], False),
        ([[], [(5,)]], False),
        ([], False),
    ],
)
def test_sessions_are_apart_where_one_is_slower_than_another_for_the_finalists(
    finalists: list[list[tuple[int, ...]]], apart: bool
) -> None:
    assert levels.are_apart(finalists) is apart


@pytest.mark.parametrize("far_ns", [10_010, 10_200])
def test_sessions_are_met_until_their_middle_is_known_or_they_are_many(far_ns: int) -> None:
    """Eight that begin together may all be slow, and then do not show how far sessions are apart."""
    visits = [(10_000,), (far_ns,)] * levels.MOST_VISITS
    settled = [count for count in range(levels.MOST_VISITS + 2) if levels.is_settled([visits[:count]], 0.0025)]
    first = levels.VISITS if far_ns == 10_010 else levels.MOST_VISITS
    assert settled == list(range(first, levels.MOST_VISITS + 2))
    assert levels.is_settled([], 0.0025)  # there is nothing to know


@pytest.mark.parametrize("apart", [(1.0,), (1.0, 1.02, 1.05, 1.08)])
@pytest.mark.parametrize("sessions", [8, 32])
def test_the_interval_of_a_gain_holds_it_in_about_95_of_100_searches(sessions: int, apart: tuple[float, ...]) -> None:
    drawn, held, searches = random.Random(1), 0, 500
    for _ in range(searches):
        met = [drawn.choice(apart) for _ in range(sessions)]
        found = share_out([
            [(round(1e6 * times * level * drawn.gauss(1, 0.003)),) for level in met] for times in (1.0, 1.01, 1.3)
        ])  # fmt: skip
        _, low, high = speedup(samples(found[2]), samples(found[0]))
        held += low <= 1.3 <= high
    assert 0.9 <= held / searches <= 0.99
