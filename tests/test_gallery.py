"""The studies of examples/studies: right as they are, wrong when spoilt; loops and checks on a device."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from autotune.bench import Limits, Report, Rules
from autotune.bench.reference import ReferenceBench
from autotune.bench.trial import Bench
from autotune.cli import app
from autotune.devices import Session
from autotune.errors import DeviceError
from autotune.model import Configuration, Outcome
from autotune.study import Problem, Study, check_entries, check_inputs, check_reference, expected_data, input_data

pytestmark = pytest.mark.device

FOLDER = Path(__file__).parent.parent / "examples" / "studies"
PAGE = FOLDER.parent.parent / "docs" / "studies.md"
NAMES = sorted(path.stem for path in FOLDER.glob("*.toml"))
OTHERS: dict[str, dict[str, Any]] = {
    "jacobi": {"WG_X": 64, "ROWS_PER_ITEM": 4}, "stencil_3d": {"PLANES": 16}, "prefix_sum": {"PER_ITEM": 16},
    "histogram": {"COPIES": 4}, "reduction": {"GROUPS": 8}, "csr_spmv": {"LANES": 32},
}  # fmt: skip
"""Configurations that are launched in another way than the default, which the example itself shows."""

RULES = Rules(minimum=1, maximum=1, least_s=0.0, warmup=1)


def run(session: Session, study: Study, *configurations: Configuration, size: Any = None) -> list[Report]:
    """Put configurations through compile, verify and time, in this process."""
    problem = Problem(study, size, device=session.info)
    inputs = input_data(problem)
    expected, reference = expected_data(problem, inputs), problem.reference_plan()
    if expected is None and reference is not None:
        expected = ReferenceBench(session, inputs, Limits(), lambda *_: None).reference(reference)
    bench = Bench(session, inputs, expected or {}, RULES, Limits(), lambda *_: None)
    return [bench.run(problem.plan({**problem.default, **changes}), None) for changes in configurations]


def spoilt(name: str, old: str, new: str, **tables: Any) -> Study:
    """Return a study of the gallery whose kernel has a replaced text in one place."""
    text = Study.load(FOLDER / f"{name}.toml").text
    source = (FOLDER / f"{name}.cl").read_text()
    assert source.count(old) >= 1
    changed = source.replace(old, new)
    return Study.from_text(text._replace(source=changed, table={**text.table, **tables}))


@pytest.mark.parametrize("name", NAMES)
def test_a_study_of_the_gallery_is_right(session: Session, name: str) -> None:
    study = Study.load(FOLDER / f"{name}.toml")
    problem = Problem(study, device=session.info)
    check_entries(study)
    check_inputs(problem)
    check_reference(problem)
    assert (FOLDER.parent / "README.md").read_text().count(f"](studies/{name}.toml)") == 1
    (report,) = run(session, study, OTHERS.get(name, {}))
    assert (report.outcome, report.reason) == (Outcome.OK, "")


@pytest.mark.gallery
@pytest.mark.parametrize("name", NAMES)
def test_a_study_of_the_gallery_is_searched(name: str, tmp_path: Path) -> None:
    words = ["search", str(FOLDER / f"{name}.toml"), "--trials", "3", "--db", str(tmp_path / "a.db"), "--json"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["trials"] == 3
    assert found["best"]["time_ns"] > 0
    assert found["failures"] == {}


# -- wrong -----------------------------------------------------------------------------------------------


def test_a_part_that_is_missing_shows_in_the_check(session: Session) -> None:
    wrong = spoilt("reduction", "*result = mine[0]", "*result = mine[0] * (get_global_size(0) > WG ? 2 : .5f)")
    (report,) = run(session, wrong, {})
    assert report.outcome is Outcome.WRONG_RESULT
    assert report.reason.startswith("check parts: sum(part) = ")
    unwritten = spoilt("reduction", "if (item == 0)", "if (item == 0 && get_group_id(0) != 3)")
    (report,) = run(session, unwritten, {})
    assert "check parts: sum(part) = -inf, expected" in report.reason


@pytest.mark.parametrize("turns", [1, 2])
def test_the_name_goes_with_the_buffer(session: Session, turns: int) -> None:
    right = Study.load(str(FOLDER / "jacobi.toml"))
    size = {"WIDTH": 9, "HEIGHT": 7, "TURNS": turns}
    assert run(session, right, {}, size=size)[0].reason == ""
    lazy = spoilt("jacobi", "continue;", "continue; if (y == 3) continue;")  # a row is never written
    assert "values of now are wrong" in run(session, lazy, {}, size=size)[0].reason


# -- loops that count, offsets, several files ------------------------------------------------------------

SCAN = """
kernel void add(const int reach, global const int *now, global int *next)
{
    const int i = get_global_id(0);
    next[i] = now[i] + (i >= reach ? now[i - reach] : 0);
}
"""


def scan(**changes: Any) -> Study:
    """Prefix sums in log2(N) turns (Hillis and Steele), with a scalar that changes with the turn, as on the page."""
    (block,) = re.findall(r"```toml\n([^`]*^step = [^`]*)```", PAGE.read_text(), re.MULTILINE)
    shown = tomllib.loads(block)
    tables: dict[str, Any] = {
        "name": "scan", "sizes": {"N": 64}, "parameters": {"WG": {"values": [16, 32]}},
        "arguments": {
            **shown["arguments"],
            "now": {"type": "int", "shape": ["N"], "access": "inout", "data": {"low": 0, "high": 9}},
            "next": {"type": "int", "shape": ["N"], "access": "scratch"},
        },
        "launch": shown["launch"], "reference": {"numpy": {"now": "cumsum(now)"}}, "source": SCAN,
    }  # fmt: skip
    return Study(**{**tables, **changes})


def test_scalars_count_with_their_loop(session: Session) -> None:
    for n in (32, 64):  # an odd and an even number of turns
        assert run(session, scan(), {}, size={"N": n})[0].reason == ""
    (report,) = run(session, scan(launch=[{**scan().text.table["launch"][0], "repeat": "log2(N) - 1"}]), {})
    assert "values of now are wrong" in report.reason


def test_turns_of_several_launches_at_an_offset(session: Session) -> None:
    source = """
    kernel void odd_even(const int side, global int *x) {
        const int i = 2 * (get_global_id(0) - 1) + side;
        const int low = min(x[i], x[i + 1]), high = max(x[i], x[i + 1]);
        x[i] = low; x[i + 1] = high;
    }"""
    turn = {"entry": "odd_even", "offset": [1], "local": [1]}
    turns = [
        {**turn, "global": ["N // 2"], "arguments": ["even", "x"]},
        {**turn, "global": ["N // 2 - 1"], "arguments": ["odd", "x"]},
    ]
    study = Study(
        name="sort", source=source, sizes={"N": 16}, parameters={"P": {"values": [0]}},
        arguments={
            "even": {"type": "int", "value": 0}, "odd": {"type": "int", "value": 1},
            "x": {"type": "int", "shape": ["N"], "access": "inout", "data": {"distribution": "permutation"}},
        },
        launch=[{"repeat": "N // 2", "turn": turns}],
        reference={"numpy": {"x": "sort(x)"}},
    )  # fmt: skip
    assert run(session, study, {})[0].reason == ""


def test_several_files_are_one_program(session: Session, tmp_path: Path) -> None:
    (tmp_path / "a.cl").write_text("int twice(int x) { return 2 * x; }")
    (tmp_path / "b.cl").write_text("kernel void f(global int *y) { y[get_global_id(0)] = twice(get_global_id(0)); }")
    toml = 'name = "f"\nkernel = ["a.cl", "b.cl"]\nsizes.N = 8\nparameters.P.values = [1]\n'
    toml += 'arguments.y = { type = "int", shape = ["N"], access = "out" }\n'
    toml += '[[launch]]\nentry = "f"\nglobal = ["N"]\narguments = ["y"]\n[reference]\nnumpy.y = "2 * arange(N)"\n'
    (tmp_path / "f.toml").write_text(toml)
    assert run(session, Study.load(str(tmp_path / "f.toml")), {})[0].reason == ""
    (tmp_path / "b.cl").write_text("kernel void f(global int *y) { oops }")
    assert "b.cl:1" in run(session, Study.load(str(tmp_path / "f.toml")), {})[0].build_log


def test_a_reference_kernel_gives_what_checks_compare(session: Session, tmp_path: Path) -> None:
    (tmp_path / "reduction.cl").write_text((FOLDER / "reduction.cl").read_text())
    table = Study.load(str(FOLDER / "reduction.toml")).text.table
    reference = {"kernel": str(tmp_path / "reduction.cl"), "launch": table["launch"]}
    fixed = [
        {**launch, "global": [64 * 128] if n == 0 else [128], "local": [128]}
        for n, launch in enumerate(table["launch"])
    ]
    study = spoilt("reduction", "float sum = 0.0f;", "float sum = 0.0f;", reference={**reference, "launch": fixed})
    assert run(session, study, {"GROUPS": 8})[0].reason == ""


def test_half_is_refused_in_one_line_where_the_device_has_none(session: Session) -> None:
    if "cl_khr_fp16" in session.info.extensions:
        pytest.skip("this device calculates in half")
    source = "kernel void f(const half a, global half *y) { vstore_half(1.0f, get_global_id(0), y); }"
    tables: dict[str, Any] = {
        "name": "f", "sizes": {"N": 8}, "parameters": {"P": {"values": [1]}},
        "arguments": {"y": {"type": "half", "shape": ["N"], "access": "out"}},
        "launch": [{"entry": "f", "global": ["N"], "arguments": ["y"]}], "reference": {"numpy": {"y": "ones(N)"}},
    }  # fmt: skip
    stored = Study(**tables, source=source.replace("const half a, ", ""))
    assert run(session, stored, {})[0].reason == ""
    by_value = {**tables["arguments"], "a": {"type": "half", "value": 1}}
    with pytest.raises(DeviceError, match="lacks cl_khr_fp16, which half needs"):
        Problem(Study(**{**tables, "arguments": by_value}, source=source), device=session.info)


def test_expected_outputs_are_arrays_of_python_too(session: Session) -> None:
    source = "kernel void f(global const float *x, global float *y) { int i = get_global_id(0); y[i] = 2 * x[i]; }"
    x = np.linspace(0, 1, 8, dtype=np.float32)
    study = Study(
        name="f", source=source, sizes={"N": 8}, parameters={"P": {"values": [1]}},
        arguments={
            "x": {"type": "float", "shape": ["N"], "access": "in", "data": x},
            "y": {"type": "float", "shape": ["N"], "access": "out"},
        },
        launch=[{"entry": "f", "global": ["N"], "arguments": ["x", "y"]}],
        reference=lambda x: 2 * x,
    )  # fmt: skip
    assert run(session, study, {})[0].reason == ""
