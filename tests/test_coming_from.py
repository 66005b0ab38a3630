"""docs/coming-from.md: its two whole examples are studies, and they run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from autotune.cli import app
from autotune.samplers import SAMPLERS
from autotune.study import Problem, Study, check_entries, check_reference

PAGE = (Path(__file__).parent.parent / "docs" / "coming-from.md").read_text()


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Return the files of the page, each under the name before its block."""
    for name, block in re.findall(r"^`([\w.]+)`:\n\n```\w+\n(.*?)```", PAGE, re.DOTALL | re.MULTILINE):
        (tmp_path / name).write_text(block)
    return tmp_path


@pytest.mark.parametrize(("name", "count"), [("vector_add", 11), ("copy", 15)])
def test_the_examples_are_studies(files: Path, name: str, count: int) -> None:
    study = Study.load(str(files / f"{name}.toml"))
    problem = Problem(study)
    check_entries(study)
    check_reference(problem)
    assert len(problem.space) == count


@pytest.mark.device
@pytest.mark.gallery
@pytest.mark.parametrize("name", ["vector_add", "copy"])
def test_the_examples_pass(files: Path, name: str) -> None:
    result = CliRunner().invoke(app, ["check", str(files / f"{name}.toml")])
    assert result.exit_code == 0, result.output


def test_the_samplers_and_commands_of_the_page_exist() -> None:
    assert set(re.findall(r"--sampler (\w+)", PAGE)) <= set(SAMPLERS)
    commands = {command.name for command in app.registered_commands}
    assert set(re.findall(r"autotune ([a-z-]+)", PAGE)) <= commands
