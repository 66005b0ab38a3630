"""Numbers as people write and read them; text of others stays within its line, string or comment."""

from __future__ import annotations

import json
import math
import os
import subprocess
import tomllib
import unicodedata
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from autotune import text as words
from autotune.errors import UsageError
from autotune.identity import is_c_value
from autotune.text import c_comment, in_quotes, line, lines

NASTY = "a\x1b[31mred\x07 b\r\nwarning: forged\x9b2J \u202egnp.exe \u2028x\0\x7f\ud800é µs"


def acts_on_a_terminal(char: str) -> bool:
    return unicodedata.category(char) in {"Cc", "Cf", "Cs", "Zl", "Zp"}


def test_what_acts_is_spelt_out_and_the_rest_stays() -> None:
    assert line("plain é µs ± 3 %") == "plain é µs ± 3 %"
    shown = r"a\x1b[31mred\x07 b warning: forged\x9b2J \u202egnp.exe x\x00\x7f\ud800é µs"
    assert line(NASTY) == shown
    assert lines("a\x1b\n\tb\r\nc") == "a\\x1b\n\tb\nc"


@given(st.text())
def test_no_character_acts_on_a_terminal(text: str) -> None:
    assert not any(map(acts_on_a_terminal, line(text)))
    assert not any(char not in "\n\t" and acts_on_a_terminal(char) for char in lines(text))


@given(st.text(st.characters(codec="utf-8")))
def test_quoted_text_is_read_back_and_acts_on_nothing(text: str) -> None:
    as_json = in_quotes(json.dumps(text, ensure_ascii=False), pairs=True)
    as_toml = in_quotes(f"x = {json.dumps(text, ensure_ascii=False)}", pairs=False)
    assert json.loads(as_json) == tomllib.loads(as_toml)["x"] == text
    assert not any(map(acts_on_a_terminal, as_json + as_toml))


@given(st.text("*/\\?\n \r\u2028ax"))
def test_no_text_leaves_a_comment(text: str) -> None:
    """After what a compiler does first: trigraphs, then spliced lines."""
    spliced = f"/* {c_comment(text)} */".replace("??/", "\\").replace("\\\n", "")
    assert "*/" not in spliced[2:-2]
    assert "/*" not in spliced[2:]
    assert "\n" not in spliced


@pytest.mark.parametrize("value", ["", "float4", "(1 << 4)", '"a b"', "x \\ y", "unsigned int", "a // b"])
@pytest.mark.parametrize("bad", ["", "\n#include <x>", " /*", "*/", "\\", "??/", "\x1b", "\u202e", "a\u2028b"])
def test_values_of_a_define_stay_within_their_line(value: str, bad: str) -> None:
    assert is_c_value(value + bad) is (not bad)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90), ("5m", 300), ("1h30m", 5400), ("45", 45), ("1.5h", 5400), ("1h 2m 3s", 3723),
        ("90d", 90 * 86400), ("8w", 56 * 86400), ("1w2d3h", 9 * 86400 + 3 * 3600),
    ],
)  # fmt: skip
def test_durations(text, seconds):
    assert words.parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    ["", "m", "5 apples", "5m5m", "30m1h", "-5s", "0s", "2d1w", "1y", "9" * 320, "9" * 99 + "d", "soon", "1s1h"],
)
def test_durations_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--timeout: .{5,90}; write 90s, 5m or 1h30m$"):
        words.parse_duration(text)


@pytest.mark.parametrize(
    ("ns", "text"),
    [(5.0, "5.000 ns"), (1234.0, "1.234 µs"), (41_250_400, "41.25 ms"), (2.5e9, "2.500 s"), (math.nan, "-")],
)
def test_run_times(ns, text):
    assert words.time(ns) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(4.23, "4.2 s"), (5, "5 s"), (42.4, "42 s"), (185, "3 min 05 s"), (7800, "2 h 10 min"), (5.5e6, "63 days")],
)
def test_wall_times(seconds, text):
    assert words.duration(seconds) == text


def test_rates():
    assert words.rate(2e9, 1e6) == "2000 GFLOPS"
    assert words.rate(None, 1e6) == ""
    assert words.rate(1.0, math.nan) == ""
    assert words.number(0.0012345) == "0.001234"
    assert words.number(0.0) == "0"


def test_sizes_are_read_over_the_known() -> None:
    known = {"N": 8, "M": 16}
    assert words.parse_size("N=4", known) == {"N": 4, "M": 16}
    assert words.parse_size(["N=4", "M = 2"], known) == {"N": 4, "M": 2}
    assert words.parse_size("32", known) == {"N": 32, "M": 32}
    assert words.parse_size([], known) == known


def test_a_size_of_what_has_none_is_refused() -> None:
    assert words.parse_size(None, {}) == {}
    with pytest.raises(UsageError, match="'4': the study has no sizes; leave it out"):
        words.parse_size("4", {})


@pytest.mark.parametrize("size", ["N=0", "N=-1", "N=1.5", "N=x", "K=3", "x", "N=99999999999", "=5", "N=1,N=2", "1,2"])
def test_bad_sizes_are_one_clear_line(size: str) -> None:
    with pytest.raises(UsageError, match=r"^--size: "):
        words.parse_size(size, {"N": 8})


def test_what_is_given_twice_is_refused() -> None:
    with pytest.raises(UsageError, match=r"^--size: N is given twice; leave one of them out$"):
        words.parse_size(["N=1", "N=1"], {"N": 8})
    with pytest.raises(UsageError, match=r"^--size: a plain number is given twice"):
        words.parse_size(["1", "2"], {"N": 8})
    with pytest.raises(UsageError, match=r"^--size: '=5' names nothing; write --size NAME=VALUE$"):
        words.parse_size("=5", {"N": 8})
    assert words.parse_size("16,N=4", {"N": 8, "M": 8}) == {"N": 4, "M": 16}


def test_choices_are_read_over_the_first() -> None:
    assert words.parse_choices("T=int", {"T": ["float", "int"], "U": [1]}) == {"T": "int", "U": 1}
    assert words.parse_choices("U = 2", {"U": [1, 2]}) == {"U": 2}
    for typed in ("1e-7", "1e-07", "0.0000001"):
        assert words.parse_choices(f"U={typed}", {"U": [0.5, 1e-7]}) == {"U": 1e-7}
    with pytest.raises(UsageError, match=r"U cannot be '1\.0'"):
        words.parse_choices("U=1.0", {"U": [1, "1e0"]})


@pytest.mark.parametrize("choice", ["T=half", "U=1", "T", "=float", "T=int,T=float"])
def test_bad_choices_are_one_clear_line(choice: str) -> None:
    with pytest.raises(UsageError, match=r"^--choice: "):
        words.parse_choices(choice, {"T": ["float", "int"]})


def test_sizes_and_configurations() -> None:
    assert words.size({"M": 8, "N": 8}) == "M=N=8"
    assert words.size({"M": 8, "N": 9}) == "M=8 N=9"
    assert words.size({"N": 9}) == "N=9"
    assert words.pairs({"M": 8, "N": 8}, ",") == "M=8,N=8"
    assert words.pairs({"TS": 16, "KIND": "a\n\x1b"}) == "TS=16 KIND=a \\x1b"


def test_what_json_holds() -> None:
    given = {1: (math.nan, 2.5, True, None), "t\ud800": [Path("x")]}
    assert words.plain(given) == {"1": ["nan", 2.5, True, None], "t?": [Path("x")]}
    assert words.plain(given["t\ud800"] + [math.inf], nulls=True) == [Path("x"), None]


def test_a_command_to_type_again_is_quoted_for_a_shell() -> None:
    typed = words.command("best", "a b", device="d-1cu", size={"M": 2, "N": 3}, choices={"T": "float"}, database="x.db")
    assert typed == "autotune best 'a b' -d d-1cu --size M=2,N=3 --choice T=float --db x.db"
    assert words.command("search", "sgemm") == "autotune search sgemm"


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), min_size=1))
@settings(max_examples=20)
@example(["a b", "x\ny'\\", "\u202e", "-n", os.fsdecode(b"\xff\n")])
def test_a_line_to_type_is_one_line_and_means_the_words(given_words: list[str]) -> None:
    typed = words.typed(given_words)
    assert typed.isprintable()
    told = subprocess.run(["bash", "-c", f"printf '%s\\0' {typed}"], stdout=subprocess.PIPE, check=True).stdout
    assert told == b"".join(os.fsencode(word) + b"\0" for word in given_words)


def test_a_name_in_another_case_is_nearest() -> None:
    assert words.did_you_mean("tile", ["file", "TILE"]) == " (did you mean 'TILE'?)"
    assert words.did_you_mean("flaot", ["float", "int"]) == " (did you mean 'float'?)"
    assert words.did_you_mean("zz", ["float", "int"]) == ""
