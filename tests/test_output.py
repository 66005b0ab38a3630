"""Two columns on a narrow terminal: words stay whole, and commands stay on one line."""

from __future__ import annotations

import pytest
from rich.console import Console

from autotune.cli import output

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
