"""Text of others stays within the line, the string or the comment it is put in."""

from __future__ import annotations

import json
import tomllib
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.text import c_comment, in_quotes, is_c_value, line, lines

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
def test_values_of_a_define(value: str) -> None:
    assert is_c_value(value)


@pytest.mark.parametrize("value", ["1\n#include <x>", "1 /*", "*/", "1\\", "1??/", "\x1b", "\u202e", "a\u2028b"])
def test_what_would_leave_its_define(value: str) -> None:
    assert not is_c_value(value)
