"""What is printed: words stay whole, commands on one line, and no text of others acts on a terminal."""

from __future__ import annotations

import json

import pytest
from rich.console import Console

from autotune.cli import output
from autotune.errors import UsageError
from autotune.text import say_error

COMMAND = "autotune best ./some/where/blur.toml -d amd-epyc-2cu --format defines"


def test_commands_are_not_wrapped_and_words_not_cut(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "stdout", lambda: Console(width=40, highlight=False))
    output.facts([("longer", f"12 of 40,000 valid configurations are tried\n{COMMAND}"), ("none", ""), ("x", "[b]")])
    assert capsys.readouterr().out.splitlines() == [
        "longer  12 of 40,000 valid",
        "        configurations are tried",
        f"        {COMMAND}",
        "x       [b]",
    ]


NASTY = "x\x1b[31m\x07\x9b2J\u202e"
SHOWN = r"x\x1b[31m\x07\x9b2J\u202e"


def test_a_table_breaks_no_word_and_is_paragraphs_where_it_would(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def shown(columns: int) -> list[str]:
        monkeypatch.setattr(output, "WIDE", columns)
        rows = [("pthread-AMD EPYC", "amd-epyc-2cu", "one two three"), ("H200", "nvidia-h200", "four")]
        output.table(("device", "fingerprint", "about"), rows)
        return capsys.readouterr().out.splitlines()

    wide = "pthread-AMD EPYC   amd-epyc-2cu   one two three"
    assert shown(len(wide))[2] == wide
    assert shown(40)[2:5] == [
        "pthread-AMD      amd-epyc-2cu   one two",
        "EPYC                            three",
        "H200             nvidia-h200    four",
    ]
    assert shown(33) == [
        "device       pthread-AMD EPYC",
        "fingerprint  amd-epyc-2cu",
        "about        one two three",
        "",
        "device       H200",
        "fingerprint  nvidia-h200",
        "about        four",
    ]


def test_of_a_long_log_the_beginning_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    for number, last in ((50, "  49"), (51, "  ... 1 line more"), (1050, "  ... 1,000 lines more")):
        say_error(UsageError("does not build", detail="\n".join(map(str, range(number)))))
        told = capsys.readouterr().err.splitlines()
        assert (told[0], told[50], told[-1]) == ("error: does not build", "  49", last)


def test_nothing_printed_acts_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    output.say(f"{NASTY}\nerror: forged")
    output.warn(f"{NASTY}\nerror: forged")
    output.announce(f"{NASTY}\nerror: forged")
    say_error(UsageError(NASTY, where="a\nb", hint="c  d", detail=f"one\ntwo {NASTY}\r"))
    output.write(f"{NASTY}\nline 2")
    output.table([NASTY], [[f"{NASTY}\nrow"]])
    output.facts([(NASTY, f"{NASTY}\nline 2")])
    captured = capsys.readouterr()
    assert captured.err.splitlines() == [
        f"{SHOWN} error: forged",
        f"warning: {SHOWN} error: forged",
        f"{SHOWN} error: forged",
        f"error: 'a\\nb': {SHOWN}; c  d",
        "  one",
        f"  two {SHOWN}",
    ]
    shown = captured.out.splitlines()
    assert shown[:2] == [SHOWN, "line 2"]
    assert f"{SHOWN} row" in shown
    assert shown[-2:] == [f"{SHOWN}  {SHOWN}", " " * (len(SHOWN) + 2) + "line 2"]
    assert not any(char in captured.out + captured.err for char in "\x1b\x07\x9b\u202e")


def test_json_keeps_what_it_spells_out(capsys: pytest.CaptureFixture[str]) -> None:
    output.write_json({"name": NASTY + "\U000e0001"})
    shown = capsys.readouterr().out
    assert json.loads(shown) == {"name": NASTY + "\U000e0001"}
    assert shown.replace("\n", "").isprintable()
