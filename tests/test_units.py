"""Numbers as people write and read them."""

import math

import pytest

from autotune import units
from autotune.errors import UsageError


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("5m", 300), ("1h30m", 5400), ("45", 45), ("1.5h", 5400), ("1h 2m 3s", 3723)]
)
def test_durations(text, seconds):
    assert units.parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "m", "5 apples", "5m5m", "30m1h", "-5s", "0s", "1d"])
def test_durations_that_are_none(text):
    with pytest.raises(UsageError, match="write 90s, 5m or 1h30m"):
        units.parse_duration(text)


@pytest.mark.parametrize(
    ("ns", "text"),
    [(5.0, "5.000 ns"), (1234.0, "1.234 µs"), (41_250_400, "41.25 ms"), (2.5e9, "2.500 s"), (math.nan, "-")],
)
def test_run_times(ns, text):
    assert units.time(ns) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(4.23, "4.2 s"), (5, "5 s"), (42.4, "42 s"), (185, "3 min 05 s"), (7800, "2 h 10 min"), (5.5e6, "63 days")],
)
def test_wall_times(seconds, text):
    assert units.duration(seconds) == text


def test_rates():
    assert units.rate(2e9, 1e6, "GFLOPS") == "2000 GFLOPS"
    assert units.rate(None, 1e6, "GFLOPS") == ""
    assert units.rate(1.0, math.nan, "GB/s") == ""
    assert units.number(0.0012345) == "0.001234"
    assert units.number(0.0) == "0"
