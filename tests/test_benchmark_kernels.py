"""The benchmark of the kernels: its limit kernels compute what they claim, its table shows what was measured."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune.devices import find_device
from autotune.errors import SetupError, UsageError
from autotune.study import Problem, Study
from benchmarks.kernels import accuracy, command, limits, peers, queued, studies, targets
from benchmarks.kernels.contest import Contest, Entrant
from benchmarks.kernels.report import Report, Row

pytestmark = pytest.mark.device

NAN = math.nan


@pytest.fixture(scope="module")
def session() -> queued.QueuedSession:
    return queued.QueuedSession(find_device(None))


def run_limit(session: queued.QueuedSession, options: list[str], entry: str, *arguments: Any, items: int = 1) -> None:
    kernel = session.build(limits.SOURCE.read_text(), options).kernel(entry)
    session.set_arguments(kernel, arguments)
    session.launch(kernel, (items,), (1,))
    session.finish()


def upload(session: queued.QueuedSession, data: np.ndarray) -> Any:
    buffer = session.allocate(data.nbytes)
    session.write(buffer, data)
    return buffer


# --- limits -------------------------------------------------------------------------------------------


def test_the_peak_kernel_executes_every_multiply_add(session: queued.QueuedSession) -> None:
    chains, steps, width, turns = 2, 3, 4, 5
    sums = np.arange(chains * width, dtype=np.float64)
    for _ in range(turns * steps):
        sums = sums * 0.5 + 1  # exact in float32: few bits
    result = upload(session, np.zeros(1, np.float32))
    options = [f"-DCHAINS={chains}", f"-DSTEPS={steps}", f"-DWIDTH={width}"]
    # It writes only the sum that it is told never comes.
    values = (np.int32(turns), np.float32(0.5), np.float32(1), np.float32(sums.sum()))
    run_limit(session, options, "multiply_add", *values, result)
    found = np.empty(1, np.float32)
    session.read(result, found)
    assert found[0] == np.float32(sums.sum())


@pytest.mark.parametrize("contiguous", [0, 1])
def test_the_bandwidth_kernels_touch_every_float(session: queued.QueuedSession, contiguous: int) -> None:
    count, items = 13, 3  # neither the items nor the unrolled steps divide it
    data = np.arange(1, 4 * count + 1, dtype=np.float32)
    options = ["-DUNROLL=2", f"-DCONTIGUOUS={contiguous}"]
    source, target = upload(session, data), upload(session, np.zeros_like(data))
    run_limit(session, options, "copy_all", np.uint64(count), source, target, items=items)
    found = np.empty_like(data)
    session.read(target, found)
    assert np.array_equal(found, data)
    run_limit(session, options, "read_all", np.uint64(count), source, np.float32(data.sum()), target)
    session.read(target, found)
    assert found[0] == data.sum()


def test_a_limit_is_raised_by_what_beats_it_and_never_lowered() -> None:
    limit = limits.Limit("fma", "TFLOPS", "8 chains", 60.0, 120.0, lambda count: None)
    assert limit.raised([1.9, 1.875, 1.8]).rate == 64
    assert limit.raised([3.0]).rate == 60


# --- times and errors ---------------------------------------------------------------------------------


def test_contenders_take_turns() -> None:
    order: list[str] = []
    runs = {name: (lambda count, name=name: order.append(name)) for name in "ab"}
    times = queued.interleave(runs, rounds=3, batch_s=1e-6)
    assert [len(taken) for taken in times.values()] == [3, 3]
    assert order[-6:] == ["a", "b"] * 3


def test_a_ratio_is_the_median_over_rounds() -> None:
    assert queued.ratio([1.0, 2.0, 1.0], [2.0, 6.0, 9.0]) == 3


def test_errors_are_shares_of_the_terms() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.uniform(-1, 1, (700, 9)).astype(np.float32), rng.uniform(-1, 1, (9, 5)).astype(np.float32)
    exact = a.astype(np.float64) @ b
    assert accuracy.product({"A": a, "B": b}, exact) == 0
    exact[-1, 0] += 1e-3 * (np.abs(a[-1]) @ np.abs(b[:, 0]))
    assert accuracy.product({"A": a, "B": b}, exact) == pytest.approx(1e-3, rel=1e-5)


def test_integers_wrap_like_the_device() -> None:
    a = np.full((2, 3), 2**16, np.int32)
    wrapped = np.zeros((2, 2), np.int32)
    assert accuracy.product({"A": a, "B": a.T}, wrapped) == 0
    assert accuracy.product({"A": a, "B": a.T}, wrapped + 1) > 0


@pytest.mark.parametrize("count", [1, 3, accuracy.SAMPLE, 8192])
def test_the_sample_has_both_ends(count: int) -> None:
    rows = accuracy.sample(count)
    assert rows[0] == 0
    assert rows[-1] == count - 1
    assert len(rows) == min(count, accuracy.SAMPLE)


# --- targets and the table ----------------------------------------------------------------------------


def test_four_of_five_seeds_reach_a_target() -> None:
    said = targets.verdicts("sgemm", "4096", "gpu", {"cuBLAS": [0.94, 0.93, 1.0, 1.1, NAN]})
    assert said == ["0.93 x cuBLAS: reached, 4 of 5 seeds", "1 x cuBLAS (wish): missed, 2 of 5 seeds"]
    assert "missed, 3 of 5" in targets.verdicts("sgemm", "4096", "gpu", {"cuBLAS": [0.94, 0.93, 1.0, 0.9, NAN]})[0]
    assert targets.verdicts("sgemm", "512", "gpu", {"cuBLAS": [2.0]}) == []


def test_more_than_a_limit_is_said() -> None:
    row = Row("product_sum", "9x9", "TFLOPS", [60.0, 65.0], "fma", [0.94, 1.02])
    assert row.beyond_limit
    assert "MORE THAN THE LIMIT" in row.markdown()
    assert not Row("product_sum", "9x9", "TFLOPS", [64.0, NAN], "fma", [1.0, NAN]).beyond_limit


def test_a_report_survives_its_file(tmp_path: Path) -> None:
    row = Row("sgemm", "64", "TFLOPS", [1.5], "fma", [0.5], {"cuBLAS": [0.9]}, 1e-7, {"TILE": 8}, "1 x 9", ["said"])
    report = Report("a device", "580", "a command", "today", ["fma: 64"], [row], ["something"])
    report.write(tmp_path / "a.json", tmp_path / "a.md")
    assert Report.read(tmp_path / "a.json") == report
    assert "| sgemm | 64 | 1.5 TFLOPS | 50 % fma | cuBLAS 0.9; said | 1e-07 | 1 x 9 | `TILE=8` |" in report.markdown()
    assert (tmp_path / "a.md").read_text() == report.markdown()


# --- input --------------------------------------------------------------------------------------------


def test_sizes() -> None:
    sgemm = Study.load("sgemm")
    assert studies.parse_size("64", sgemm) == {"M": 64, "N": 64, "K": 64}
    assert studies.parse_size("1600x1601x1007", sgemm) == {"M": 1600, "N": 1601, "K": 1007}
    for wrong in ("", "64x64", "-1", "64x0x64", "M=64"):
        with pytest.raises(UsageError, match="is not a size of sgemm"):
            studies.parse_size(wrong, sgemm)


def test_bad_options_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.parse_seeds("2..4") == [2, 3, 4]
    assert command.main("", ["--seeds", "4..2"]) == 2
    assert command.main("", ["--studies", "sgem"]) == 2
    assert [line.partition(":")[0] for line in capsys.readouterr().err.splitlines()] == ["kernels.py"] * 2


def test_the_fastest_of_clblasts_tuner_is_taken(tmp_path: Path) -> None:
    results = [
        {"kernel": "Xgemm", "time": time, "parameters": {"MWG": wide, "PRECISION": 32}}
        for time, wide in ((2.0, 32), (1.0, 64))
    ]
    for number, some in enumerate((results[:1], results[1:]), 1):
        (tmp_path / f"clblast_xgemm_{number}_32.json").write_text(json.dumps({"results": some}))
    assert peers.tuned(tmp_path) == {"Xgemm": {"MWG": 64}}
    with pytest.raises(SetupError):
        peers.tuned(tmp_path / "nowhere")


# --- a contest ----------------------------------------------------------------------------------------


def test_a_contest_times_checks_and_compares(session: queued.QueuedSession) -> None:
    size = {"M": 33, "N": 17, "K": 9}
    entrants = []
    for step in ("NAIVE", "TILED"):
        problem = Problem(Study.load("matmul"), size, {}, session.info, fix={"VARIANT": (step,), "TILE": (8,)})
        entrants.append(Entrant(f"matmul {step}", step, problem, (problem.default, None), "searched"))
    limit = limits.Limit("fma", "TFLOPS", "", 1e-12, 1e-12, lambda count: None)
    contest = Contest("33x17x9", entrants, "TFLOPS", 1e-9, limit, {"TILED": {"step before": "NAIVE"}})
    naive, tiled, host = contest.run(
        session, lambda inputs: {"NumPy (host)": peers.NumpyBlas(inputs["A"], inputs["B"])}
    )
    assert [row.kernel for row in (naive, tiled, host)] == ["NAIVE", "TILED", "NumPy (host)"]
    assert naive.configuration == entrants[0].problem.default
    assert naive.rates[0] > 0
    assert math.isnan(naive.rates[1])
    assert set(tiled.ratios) == {"step before", "NumPy"}
    assert tiled.ratios["step before"][0] > 0
    assert max(row.error or 0 for row in (naive, tiled, host)) < 1e-6
    assert host.shares == []
