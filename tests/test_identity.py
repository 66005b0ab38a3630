"""Names and values are checked as they enter."""

from __future__ import annotations

import pytest

from autotune import identity
from autotune.errors import StudyError


@pytest.mark.parametrize(
    ("names", "fault"),
    [
        (["A", "_x", "TILE_M", "T", "path_length", "PATHS", "x" * 64], ""),
        (["", "9N", "A=1;touch x;B", "A\n", "A-B", "é", "x" * 65, 7, None, ["A"]], "is not a C identifier"),
        (["PATH", "IFS", "ENV", "BASH_ENV", "PROMPT_COMMAND", "PS4", "LD_PRELOAD", "LD_X", "DYLD_X", "PYTHONPATH",
          "path"], "is a name that shells or loaders act on"),
    ],
)  # fmt: skip
def test_names_that_enter_and_those_that_do_not(names: list[object], fault: str) -> None:
    assert {identity.name_fault(name)[: len(fault) or None] for name in names} == {fault}


@pytest.mark.parametrize("value", [0, -(2**63), 2**63 - 1, 0.5, "float", "unsigned int"])
def test_values_that_enter(value: object) -> None:
    assert identity.value_fault(value) == ""


@pytest.mark.parametrize(
    "value", [True, None, [1], 2**63, -(2**63) - 1, float("nan"), float("inf"), "a\nb", "a\\", "/*", "\x1b"]
)
def test_values_that_do_not(value: object) -> None:
    assert identity.value_fault(value)


def test_the_error_shows_no_control_character() -> None:
    with pytest.raises(StudyError) as raised:
        identity.require_names(["A", "B\x1b\n"], "x.toml: sizes")
    assert str(raised.value).startswith("x.toml: sizes: 'B\\x1b\\n' is not a C identifier")
    identity.require_values([1, "x"], "here")
    with pytest.raises(StudyError, match="64 bits"):
        identity.require_values([1, 2**63], "here")


@pytest.mark.parametrize(
    ("configuration", "reason"),
    [
        ({"A": 1, "T": "x"}, ""),
        ({"A": 1, "T": "x", "B": 1}, "no parameter 'B'"),
        ({"A": 1, "T": "x", "A=1;touch x;B": 1}, "no parameter"),
        ({"A": 1}, "no value of T"),
        ({"A": 3, "T": "x"}, "A cannot be 3"),
        ({"A": True, "T": "x"}, "A cannot be True"),
        ({"A": 1.0, "T": "x"}, "A cannot be 1.0"),
        ({"A": [1], "T": "x"}, "A cannot be"),
        ([1], "not a table"),
        (None, "not a table"),
    ],
)
def test_what_fits_a_study(configuration: object, reason: str) -> None:
    found = identity.misfit({"A": [1, 2], "T": ["x"]}, configuration)
    assert reason in found
    assert bool(found) == bool(reason)


def test_sizes_are_sorted_by_their_numbers_in_the_order_of_their_names() -> None:
    sizes = [{"M": 1024, "N": 8}, {"M": 256, "N": 64}, {"M": 256, "N": 8}]
    assert sorted(sizes, key=identity.size_order) == sizes[::-1]
    assert list(identity.in_order({"K": 1, "M": 2, "N": 3}, ["M", "X", "N"]).items()) == [("M", 2), ("N", 3), ("K", 1)]
