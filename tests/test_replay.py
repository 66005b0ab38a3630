"""Recorded spaces and the evaluator that answers from recorded trials."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from autotune.errors import UsageError
from autotune.model import Configuration, Measurement, Outcome, Trial
from autotune.pool import Evaluator
from autotune.tuner import ReplayEvaluator
from benchmarks.recording import Recording
from tests.contracts.evaluator import EvaluatorContract


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    """Four configurations of two parameters and a constant, not in order; one fails."""
    path = tmp_path / "blur__GPU.npz"
    np.savez(
        path,
        parameters=np.array(["x", "k", "y"]),
        configs=np.array([[32, 7, 2], [8, 7, 1], [32, 7, 1], [16, 7, 2]], dtype=np.int16),
        time_ms=np.array([0.5, 2.0, np.nan, 1.25]),
        outcome=np.array([0, 0, 2, 0], dtype=np.uint8),
    )
    return Recording.load(path)


def test_a_recording_holds_each_configuration_with_its_time(recording: Recording) -> None:
    found = {tuple(recording.space.configuration(row).values()): recording.time_ns[row] for row in range(4)}
    assert np.isnan(found.pop((32, 7, 1)))
    assert found == {(32, 7, 2): 5e5, (8, 7, 1): 2e6, (16, 7, 2): 1.25e6}
    assert (recording.kernel, recording.best_ns) == ("blur", 5e5)
    assert {"x": 8, "k": 7, "y": 2} not in recording.space


def test_rows_and_configurations_agree(recording: Recording) -> None:
    assert [recording.space.row(recording.space.configuration(row)) for row in range(4)] == [0, 1, 2, 3]


def test_outcomes_become_trials(recording: Recording) -> None:
    trials = {tuple(t.configuration.values()): t for t in map(recording.trial, range(4))}
    assert trials[32, 7, 2].outcome == Outcome.OK
    assert trials[32, 7, 2].time_ns == 5e5
    assert trials[32, 7, 1].outcome == Outcome.LAUNCH_ERROR
    assert trials[32, 7, 1].measurement is None


def test_what_is_no_recording_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_text("no")
    np.savez(tmp_path / "b.npz", parameters=np.array(["x"]))
    for name in ("a.npz", "b.npz", "absent.npz"):
        with pytest.raises(UsageError, match=f"{name}: not a recorded space"):
            Recording.load(tmp_path / name)


def test_the_evaluator_answers_in_the_order_submitted(recording: Recording) -> None:
    with recording.evaluator(capacity=2) as evaluator:
        for x, y in [(16, 2), (32, 1)]:
            evaluator.submit({"y": y, "x": x, "k": 7})
        assert [evaluator.collect().outcome for _ in range(2)] == [Outcome.OK, Outcome.LAUNCH_ERROR]
        assert evaluator.capacity == 2
        with pytest.raises(UsageError, match="no recorded trial"):
            evaluator.submit({"y": 2, "x": 8, "k": 7})


def test_the_evaluator_answers_from_stored_trials() -> None:
    first = Trial({"x": 1}, Outcome.OK, measurement=Measurement((9,)), build_s=2.0, time_s=0.5)
    second = Trial({"x": 2}, Outcome.OK, measurement=Measurement((9,)), retimed=Measurement((7,)))
    evaluator = ReplayEvaluator([first, second])
    evaluator.submit({"x": 1})
    assert evaluator.collect() is first
    assert evaluator.retime([{"x": 2}, {"x": 1}, {"x": 3}]) == [Measurement((7,)), Measurement((9,)), None]
    assert evaluator.usage() == {"build": 2.0, "verify": 0.0, "time": 0.5, "finalists": 0.0, "idle": 0.0}


class TestReplayEvaluator(EvaluatorContract):
    @pytest.fixture
    def evaluator(self, recording: Recording) -> Evaluator:
        return recording.evaluator()

    @pytest.fixture
    def passing(self) -> list[Configuration]:
        return [{"x": 16, "k": 7, "y": 2}, {"x": 32, "k": 7, "y": 2}, {"x": 8, "k": 7, "y": 1}]

    @pytest.fixture
    def failing(self) -> Configuration:
        return {"x": 32, "k": 7, "y": 1}


def test_the_one_submitted_first_and_some_more_are_not_withdrawn(recording: Recording) -> None:
    evaluator = recording.evaluator()
    for x, y in ((16, 2), (32, 1), (32, 2), (8, 1)):
        evaluator.submit({"x": x, "k": 7, "y": y})
    assert evaluator.withdraw(leave=2) == [{"x": 8, "k": 7, "y": 1}]


def test_the_benchmark_runs_on_any_folder_of_recordings(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    configs = np.array([(x, y) for x in range(1, 9) for y in range(4)], dtype=np.int16)
    for name in ("blur__A", "blur__B"):
        time_ms = np.square(configs - [5, 2]).sum(axis=1) + 1 + 0.1 * rng.random(32)
        outcome = np.zeros(32, dtype=np.uint8)
        np.savez(tmp_path / name, parameters=["x", "y"], configs=configs, time_ms=time_ms, outcome=outcome)
    root = Path(__file__).parent.parent
    out = tmp_path / "out.json"
    keep = ["--keep", tmp_path / "kept"]
    command = [sys.executable, root / "benchmarks/search.py", tmp_path, "--json", out, "--seeds", "2", *keep]
    samplers = ["--samplers", "bayes", "bayes+transfer", "random+2"]
    done = subprocess.run([*command, *samplers], env={"PYTHONPATH": str(root)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "loses more than .01 to bayes at 100: nowhere" in done.stdout
    found = json.loads(out.read_text())
    assert found["random+2"]["blur__A"]["at"]["50"] == 1.0  # all 32 tried by then
    assert found["bayes"]["blur__B"]["seeds"] == 2
    assert set(found["aggregate"]["bayes"]["at"]) == {"25", "50", "100", "200"}
    assert len(list((tmp_path / "kept").rglob("*blur__A.*.json"))) == 8  # 2 seeds of 3 samplers, and 2 donors


def test_the_benchmark_chooses_on_the_kernels_that_are_left(tmp_path: Path) -> None:
    def report(by_family: dict[str, int]) -> dict:
        figures = {
            f"{family}__A": {"budget": 60, "by_seed": {"to_5pct": [count] * 3}} for family, count in by_family.items()
        }
        return {"aggregate": {}, "bayes": figures}

    (tmp_path / "old.json").write_text(json.dumps(report({"blur": 20, "gemm": 20, "pnpoly": 10})))
    (tmp_path / "new.json").write_text(json.dumps(report({"blur": 10, "gemm": 10, "pnpoly": 11})))
    root = Path(__file__).parent.parent
    command = [sys.executable, root / "benchmarks/figures.py", "choose", tmp_path / "old.json", tmp_path / "new.json"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    chosen = {line.split()[0]: line.split()[1] for line in done.stdout.splitlines()[1:4]}
    assert chosen == {"blur": "new", "gemm": "new", "pnpoly": "new"}
    assert "x 0.650 evaluations" in done.stdout
