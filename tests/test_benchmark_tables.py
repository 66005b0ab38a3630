"""The numbers of docs/benchmarks.md are those of the result files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import tables


@pytest.mark.parametrize("page", tables.PAGES, ids=lambda page: page.stem)
def test_a_page_says_what_the_files_say(page: Path) -> None:
    assert tables.rendered(page.read_text()) == page.read_text(), "run: python benchmarks/tables.py"


def test_the_pages_show_every_result() -> None:
    shown = {match[1] for page in tables.PAGES for match in tables._TABLE.findall(page.read_text())}
    assert shown == {path.stem for path in tables.RESULTS.glob("*.json")}


def test_a_result_is_saved_with_machine_and_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    path = tables.save("x", question="How fast?", command="x.py", columns=["a", "b"], rows=[[1, "2|3"]])
    found = json.loads(path.read_text())
    assert found["machine"]
    assert found["date"]
    assert bool(found["commit"]) == (tables.ROOT / ".git").exists()
    assert "| 1 | 2\\|3 |" in tables.rendered("<!-- table x -->\nold\n<!-- end -->")
