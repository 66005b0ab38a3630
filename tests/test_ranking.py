"""The median and its interval."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from autotune.ranking import interval_rank, median, median_interval


@given(st.lists(st.integers(1, 10**12), min_size=1))
def test_the_median_is_the_usual_one(samples: list[int]) -> None:
    assert median(samples) == statistics.median(samples)
    low, high = median_interval(samples)
    assert min(samples) <= low <= median(samples) <= high <= max(samples)


def test_no_samples_give_no_number() -> None:
    assert math.isnan(median(()))
    assert all(map(math.isnan, median_interval(())))


@pytest.mark.parametrize("n", [6, 7, 12, 20, 50, 101, 1000, 2500])
@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99])
def test_the_narrowest_pair_that_covers(n: int, confidence: float) -> None:
    rank = interval_rank(n, confidence)
    assert rank == 0 or 1 - 2 * binom.cdf(rank, n, 0.5) >= confidence
    assert 1 - 2 * binom.cdf(rank + 1, n, 0.5) < confidence


def test_few_samples_give_their_range() -> None:
    assert median_interval([3, 1, 2]) == (1, 3)
