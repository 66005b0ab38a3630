"""A small study in a folder of its own, and the commands as a user types them, in this process."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from autotune.cli import app
from autotune.study import toml
from tests.studies import SOURCE, TABLE

STUDY = (
    toml(
        {
            **{name: part for name, part in TABLE.items() if name not in ("defines", "options")},
            "about": "y = alpha * x + y",
            "parameters": {
                "WPT": {"values": [1, 2, 4], "about": "elements per work-item"},
                "WG": {"values": [32, 64, 8192], "default": 64},
            },
            "constraints": [{"require": "WPT * WG <= 8192", "reason": "a work-group covers at most 8192 elements"}],
        },
        "",
    )
    + '[reference]\nnumpy = { y = "alpha * x + y" }\n'
)


VALID = 6  # of 9: no device here takes a work-group of 8192


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AUTOTUNE_DB", str(tmp_path / "own.db"))
    monkeypatch.setenv("AUTOTUNE_LOCKS", str(tmp_path))  # wait for no search outside these tests
    write_study(tmp_path)


def write_study(folder: Path) -> None:
    (folder / "saxpy.toml").write_text(STUDY)
    (folder / "saxpy.cl").write_text(SOURCE)


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Return the database and the JSON output of a search of two trials: one search for many tests."""
    folder = tmp_path_factory.mktemp("searched")
    write_study(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("AUTOTUNE_LOCKS", str(folder))
        found = run("search", "./saxpy.toml", "--trials", "2", "--json", "--db", str(folder / "own.db"))
    return folder / "own.db", json.loads(found.stdout)


@pytest.fixture
def stored(searched: tuple[Path, dict[str, Any]], tmp_path: Path) -> dict[str, Any]:
    """Return the result of a search of two trials, with its trials in this test's own database."""
    shutil.copy(searched[0], tmp_path / "own.db")
    return searched[1]


def run(*words: str, code: int = 0, stdin: str | None = None) -> Result:
    result = CliRunner().invoke(app, list(words), input=stdin)
    assert result.exit_code == code, f"{result.exit_code}: {result.output} {result.exception!r}"
    return result


def one_error(result: Result) -> str:
    """Return the only line that says error. Nothing of it may be on stdout, and no traceback anywhere."""
    assert "Traceback" not in result.output
    assert not re.search("^error", result.stdout, re.MULTILINE)
    lines = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, result.stderr
    return lines[0]


def change(old: str, new: str) -> None:
    """Edit the study; the old text must be there."""
    path = Path("saxpy.toml")
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
