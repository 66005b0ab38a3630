"""The input and output of a build, on disk, on the real device."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.devices import find_device
from autotune.errors import UsageError
from autotune.reports.fresh import save_build
from autotune.study import Problem
from tests.studies import study

pytestmark = pytest.mark.device


def test_source_options_log_and_binary_are_kept(tmp_path: Path) -> None:
    problem = Problem(study(), device=find_device(None))
    plan = problem.plan(problem.default)
    written = save_build(plan, problem.device, tmp_path / "a" / "b")
    source, options, log, binary = written
    assert [path.name for path in (source, options, log)] == ["kernel.cl", "options.txt", "build.log"]
    assert binary.name in ("kernel.bin", "kernel.ptx")
    assert source.read_text() == plan.source
    assert options.read_text().splitlines() == list(plan.options)
    assert binary.stat().st_size > 0


def test_what_does_not_build_leaves_its_log_and_no_binary(tmp_path: Path) -> None:
    problem = Problem(study(source="kernel void saxpy( {"), device=find_device(None))
    written = save_build(problem.plan(problem.default), problem.device, tmp_path)
    assert [path.name for path in written] == ["kernel.cl", "options.txt", "build.log"]
    assert "expected" in written[-1].read_text()


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    problem = Problem(study(), device=find_device(None))
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot be written"):
        save_build(problem.plan(problem.default), problem.device, tmp_path / "file")
