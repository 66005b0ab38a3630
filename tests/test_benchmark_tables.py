"""The numbers of docs/benchmarks.md are those of the result files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import tables


def test_the_page_says_what_the_files_say() -> None:
    page = tables.PAGE.read_text()
    assert tables.rendered(page) == page, "run: python benchmarks/tables.py"


def test_the_page_shows_every_result() -> None:
    shown = {match[1] for match in tables._TABLE.findall(tables.PAGE.read_text())}
    assert shown == {path.stem for path in tables.RESULTS.glob("*.json")}


def test_a_result_is_saved_with_machine_and_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    path = tables.save("x", question="How fast?", command="x.py", columns=["a", "b"], rows=[[1, "2|3"]])
    found = json.loads(path.read_text())
    assert found["machine"]
    assert found["date"]
    assert bool(found["commit"]) == (tables.ROOT / ".git").exists()
    assert "| 1 | 2\\|3 |" in tables.rendered("<!-- table x -->\nold\n<!-- end -->")
