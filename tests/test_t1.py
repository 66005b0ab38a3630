"""Tuning problems of the AutoTuningAssociation's input schema as studies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from autotune.cli import app
from autotune.errors import AutotuneError, UsageError
from autotune.exchange import read_t1
from autotune.study import Problem, Study

ROWS = (
    "[32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120, 128, 136, 144, 152, 160, 168, 176, 184, 192, 200, 208, 216, "
)
CONVOLUTION = {
    "block_size_x": ("[16 * i for i in range(1, 17)]", 16),
    "block_size_y": ("[1, 2, 4, 8, 16]", 16),
    "tile_size_x": ("[1, 2, 3, 4]", 1),
    "tile_size_y": ("list(range(1, 5))", 1),
    "read_only": ("[0, 1]", 0),
    "use_padding": ("[0, 1]", 1),
    "use_shmem": ("[0] + [1]", 1),
    "filter_height": ("[15]", 15),
    "filter_width": ("[15]", 15),
}
CONVOLUTION_CONDITIONS = [
    "use_padding==0 or block_size_x % 32 != 0",
    "block_size_x*block_size_y<=1024",
    "use_padding==0 or use_shmem != 0",
    "use_shmem == 0 or (((block_size_x*tile_size_x+(filter_width-1)))*((block_size_y*tile_size_y+(filter_height-1))))"
    " < 12*1024",
]
DEDISPERSION = {
    "block_size_x": ("[2**i for i in range(6)]", 16),
    "block_size_y": (ROWS + "224, 232, 240, 248, 256]", 32),
    "tile_size_x": ("[1, 2, 3, 4]", 1),
    "tile_size_y": ("[i for i in range(1, 20) if i < 9]", 1),
    "tile_stride_x": ("[0, 1]", 1),
    "tile_stride_y": ("[0, 1]", 1),
}
DEDISPERSION_CONDITIONS = [
    "32 <= block_size_x * block_size_y <= 1024",
    "tile_size_x > 1 or tile_stride_x == 0",
    "tile_size_y > 1 or tile_stride_y == 0",
]


def described(
    parameters: dict[str, tuple[Any, Any]], conditions: list[str], size: Any = (4096, 4096), **kernel: Any
) -> dict[str, Any]:
    """Return a description by the schema, like the published ones."""
    return {
        "General": {"BenchmarkName": "described", "OutputFormat": "JSON"},
        "ConfigurationSpace": {
            "TuningParameters": [
                {"Name": name, "Type": "int", "Values": values, "Default": default}
                for name, (values, default) in parameters.items()
            ],
            "Conditions": [{"Expression": text, "Parameters": []} for text in conditions],
        },
        "KernelSpecification": {
            "Language": "OpenCL",
            "KernelName": "f",
            "KernelFile": "f.cl",
            "GlobalSizeType": "CUDA",
            "LocalSize": {"X": "block_size_x", "Y": "block_size_y", "Z": "1"},
            "GridDivX": ["block_size_x", "tile_size_x"],
            "GridDivY": ["block_size_y", "tile_size_y"],
            "ProblemSize": list(size),
            "Arguments": [
                {"Name": "out", "Type": "float", "MemoryType": "Vector", "AccessType": "WriteOnly", "Size": 16},
                {"Name": "n", "Type": "int32", "MemoryType": "Scalar", "FillValue": 3},
            ],
            **kernel,
        },
    }


def imported(document: Any) -> Any:
    return read_t1(json.dumps(document).encode(), "a.json")


@pytest.mark.parametrize(
    ("parameters", "conditions", "count"),
    [(CONVOLUTION, CONVOLUTION_CONDITIONS, 4_362), (DEDISPERSION, DEDISPERSION_CONDITIONS, 11_130)],
)
def test_two_published_spaces_have_as_many_configurations_as_published(
    parameters: dict[str, tuple[str, int]], conditions: list[str], count: int
) -> None:
    found = imported(described(parameters, conditions))
    problem = Problem(Study(source="", **found.tables))
    assert len(problem.space) == count
    assert problem.study.chose_default
    (launch,) = problem.plan(problem.default).launches
    assert len(launch.global_size) == 2


FIVE = {
    "block_size_x": ("[8, 16]", 16),
    "block_size_y": ("[1, 2]", 2),
    "tile_size_x": ("[1]", 1),
    "tile_size_y": ("[1]", 1),
}


def test_arguments_launch_and_tolerance_are_carried() -> None:
    arguments = [
        {"Name": "a", "Type": "half4", "MemoryType": "Vector", "AccessType": "ReadOnly", "Size": "ProblemSize[0] * 2",
         "FillType": "Random", "FillValue": 5, "RandomSeed": 7},
        {"Name": "b", "Type": "uint8", "MemoryType": "Vector", "AccessType": "ReadWrite", "Size": "max(block_size_x)",
         "FillType": "Constant", "FillValue": 0},
        {"Name": "l", "Type": "float", "MemoryType": "Local", "Size": "block_size_x"},
        {"Name": "s", "Type": "double", "MemoryType": "Scalar", "FillValue": 0.5},
    ]  # fmt: skip
    reference = [
        {"Name": "r", "FillType": "Script", "ValidationMethod": "AbsoluteDifference", "ValidationThreshold": 0.1}
    ]
    extra = {
        "Arguments": arguments,
        "ReferenceArguments": reference,
        "CompilerOptions": ["-cl-fast-relaxed-math", "-O3", ""],
    }
    found = imported(described(FIVE, ["block_size_x & 8"], size=[100, 50], **extra))
    tables = found.tables
    assert tables["sizes"] == {"SIZE_X": 100, "SIZE_Y": 50}
    assert tables["arguments"] == {
        "a": {"type": "half4", "shape": ["SIZE_X * 2"], "access": "in", "data": {"low": 0.0, "high": 5, "seed": 7}},
        "b": {"type": "uchar", "shape": ["16"], "access": "inout", "data": {"distribution": "constant", "value": 0}},
        "l": {"type": "float", "local": "block_size_x"},
        "s": {"type": "double", "value": 0.5},
    }
    assert tables["options"] == [{"flag": "-cl-fast-relaxed-math"}]
    assert tables["tolerance"] == {"absolute": 0.1}
    assert "constraints" not in tables
    assert [line.partition(":")[0] for line in found.lost] == [
        "Conditions.1", "CompilerOptions", "ReferenceArguments", "reference.numpy.b",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "expected"), [("CUDA", ["(SIZE_X // 4) * (block_size_x)"]), ("OpenCL", ["SIZE_X // 4"])]
)
def test_a_global_size_counts_groups_or_items(kind: str, expected: list[str]) -> None:
    kernel = {"GlobalSizeType": kind, "GridDivX": None, "GridDivY": None, "GlobalSize": {"X": "ProblemSize[0] // 4"},
              "LocalSize": {"X": "block_size_x"}}  # fmt: skip
    assert imported(described(FIVE, [], size=[64], **kernel)).tables["launch"][0]["global"] == expected


def test_a_global_size_that_is_not_there_is_not_lost() -> None:
    lost = {bool(size): imported(described(FIVE, [], size=[64], GlobalSize=size)).lost for size in ({}, {"X": "64"})}
    assert {given for given, lines in lost.items() if any("GlobalSize" in line for line in lines)} == {True}


def test_first_values_are_no_default() -> None:
    first = {name: (values, json.loads(values)[0]) for name, (values, _) in FIVE.items()}
    found = imported(described(first, []))
    assert any("nobody chose one" in line for line in found.lost)
    assert not Study(source="", **found.tables).chose_default
    assert Study(source="", **imported(described(FIVE, [])).tables).chose_default


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"a": ("[i for i in range(10**9)]", 1)}, "more than 4096 values"),
        ({"a": ("__import__('os').system('id')", 1)}, "is not a list"),
        ({"a": ("[9**9**9]", 1)}, "a.json: TuningParameters.1"),
        ({"a": ("[[i for i in range(4000)] for j in range(4000)]", 1)}, "a.json: TuningParameters.1"),
        ({"a": ("[x for x in [1] for y in [2]]", 1)}, "is not a list"),
        ({"a": ("[]", 1)}, "has no value"),
        ({"a": ("['a\\nb']", 1)}, "a.json: TuningParameters.1"),
        ({"a": ("['unsigned int']", 1)}, "'unsigned int' has a space, which build options cannot carry; write uint"),
        ({"a": (7, 1)}, "7 is not a list of values"),
        ({"a": ([[1], [2]], 1)}, "is neither a number nor text"),
        ({"a": ([{}], 1)}, "is neither a number nor text"),
        ({"a": ("[1", 1)}, "a.json: TuningParameters.1"),
        ({"a b": ("[1]", 1)}, "a.json: TuningParameters.1.Name"),
        ({"PATH": ("[1]", 1)}, "a.json: TuningParameters.1.Name"),
        ({}, "has no parameter"),
    ],
)
def test_hostile_parameters_are_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        imported(described(changes, []))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_who_gives_a_study_is_told_what_takes_it() -> None:
    with pytest.raises(UsageError) as caught:
        read_t1(b'name = "saxpy"', "saxpy.toml")
    assert "autotune check takes it" in caught.value.hint


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b"[" * 100_000, "is nested too deeply"),
        (b"[]", "is not a JSON object"),
        (b"{}", "it is no T1 description"),
        (b" " * (2**22 + 1), "is larger than 4 MiB"),
        (b'{"ConfigurationSpace": [], "KernelSpecification": {}}', "is not a JSON object"),
        (b'{"ConfigurationSpace": {"TuningParameters": 3}, "KernelSpecification": {}}', "is not a JSON array"),
        (b'{"ConfigurationSpace": {"TuningParameters": [3]}, "KernelSpecification": {}}', "is not a JSON object"),
    ],
)
def test_what_is_no_description_is_one_line(data: bytes, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        read_t1(data, "a.json")
    assert "\n" not in str(caught.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def require_study_or_one_line(document: dict[str, Any]) -> None:
    try:
        Study(source="", **imported(document).tables)
        said = ""
    except AutotuneError as error:
        said = str(error)
    assert "\n" not in said


@settings(max_examples=60)
@given(st.sampled_from(["Arguments", "GridDivX", "LocalSize", "ProblemSize", "CompilerOptions", "KernelName", "Misc",
                        "ReferenceArguments", "GlobalSize", "SharedMemory", "KernelFile"]), JSON)  # fmt: skip
def test_anything_in_a_description_is_carried_or_told(key: str, value: Any) -> None:
    require_study_or_one_line(described(FIVE, [], **{key: value}))


@settings(max_examples=60)
@given(st.sampled_from(["Name", "Type", "Values", "Default"]), JSON)
@example("Default", [])
@example("Default", [[1]])
@example("Values", [1, [2]])
def test_anything_in_a_parameter_is_carried_or_told(key: str, value: Any) -> None:
    document = described(FIVE, [])
    document["ConfigurationSpace"]["TuningParameters"][0][key] = value
    require_study_or_one_line(document)


@pytest.mark.parametrize(
    "fill", [10**400, float("nan"), float("inf"), None], ids=["beyond floats", "nan", "inf", "none"]
)
def test_a_fill_that_is_no_number_is_told(fill: Any) -> None:
    entry = {"Name": "n", "Type": "int32", "MemoryType": "Scalar", "FillValue": fill}
    assert "arguments.n.value: the file has none" in imported(described(FIVE, [], Arguments=[entry])).lost


def test_the_command_writes_a_study_and_says_what_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    document = described(CONVOLUTION, CONVOLUTION_CONDITIONS, Language="CUDA", KernelFile="convolution.cu.hip")
    Path("a.json").write_text(json.dumps(document))
    result = CliRunner().invoke(app, ["import-study", "a.json"])
    assert result.exit_code == 0, result.output
    assert "4,362 valid configurations" in result.stderr
    assert "convolution.cu.hip: is CUDA: port it to OpenCL C and save it as convolution.cl" in result.stderr
    assert result.stdout == "described.toml\n"
    early = CliRunner().invoke(app, ["check", "./described.toml", "--no-run"])
    assert "no file 'convolution.cl'" in early.stderr
    Path("convolution.cl").write_text("kernel void f(global float *out, int n) {}")
    study = Study.load("./described.toml")
    assert len(Problem(study).space) == 4_362
    stopped = CliRunner().invoke(app, ["check", "./described.toml", "--no-run"])
    assert "has a TODO" in stopped.stderr
    again = CliRunner().invoke(app, ["import-study", "a.json"])
    assert again.exit_code == 2
    assert "exists already" in again.stderr
