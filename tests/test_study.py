from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autotune.errors import ExpressionError, StudyError
from autotune.study.study import Study
from tests.studies import SOURCE, study, table


def test_a_study_holds_what_its_tables_say() -> None:
    found = study()
    assert found.parameters["WG"].default == 64
    assert found.parameters["WPT"].default == 1
    assert found.choices == {"T": ("float", "double")}
    assert found.launches[0].arguments == ("N", "alpha", "x", "y")
    assert found.arguments["x"].type == "{T}"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"parameters": {"WPT": {"values": [1]}}}, "constraints.1.require: names 'WG'"),
        ({"constraints": [{"require": "WPTT > 1"}]}, "constraints.1.require: names 'WPTT'.*did you mean 'WPT'"),
        ({"sizes": {"N": 1, "WG": 1}}, "parameters: 'WG' is already in .sizes."),
        ({"sizes": {"N": 1, "vendor": 1}}, "sizes: 'vendor' is already a device fact"),
        ({"sizes": {"N": 1, "min": 1}}, "sizes: 'min' is already a function"),
        ({"size_lists": {"a": [{"Q": 1}]}}, "size_lists.a: no size named 'Q'"),
        ({"tolerance": {"absolute": "WG * 1e-6"}}, "tolerance.absolute: names 'WG'"),
        ({"options": [{"flag": "-D{NOPE}"}]}, "options.1.flag: names 'NOPE'"),
        ({"device": {"local_mem": 1}}, "device: no device fact 'local_mem'.*did you mean 'local_memory'"),
        ({"reference": {"numpy": {"x": "y"}}}, "reference.numpy: must give every output"),
    ],
)
def test_what_does_not_fit_together_is_told_with_its_place(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(StudyError, match=rf"^saxpy\.toml: {message}"):
        study(**changes)


@pytest.mark.parametrize(
    ("parameter", "message"),
    [({"values": [1, 1]}, "has a value twice"), ({"values": [1], "default": 2}, "2 is none of the values")],
)
def test_bad_values(parameter: dict[str, Any], message: str) -> None:
    parameters = {**table()["parameters"], "X": parameter}
    with pytest.raises(StudyError, match=rf"parameters\.X\.\w+: {message}"):
        study(parameters=parameters)


def test_a_parameter_cannot_shape_data() -> None:
    arguments = table()["arguments"]
    arguments["x"]["shape"] = ["N + WG"]
    with pytest.raises(StudyError, match=r"arguments\.x\.shape: WG is a parameter, which .*; pad with allocate"):
        study(arguments=arguments)
    for type_ in ("WG", "float{WG}"):
        arguments = table()["arguments"]
        arguments["x"]["type"] = type_
        with pytest.raises(StudyError, match=r"arguments\.x\.type: WG is a parameter, which .*; make it a choice"):
            study(arguments=arguments)


def test_an_output_that_no_launch_takes_is_told() -> None:
    arguments = {**table()["arguments"], "z": {"type": "float", "shape": ["N"], "access": "out"}}
    with pytest.raises(StudyError, match=r"arguments\.z: is an output that no launch takes"):
        study(arguments=arguments, reference={"numpy": {"y": "x", "z": "x"}})


def test_a_function_that_reads_a_file_given_as_source_is_followed(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "inc").mkdir()
    (tmp_path / "inc" / "fac.h").write_text("#define FAC 1\n")
    given = {"source": f"#include <fac.h>\n{SOURCE}", "options": [{"flag": "-Iinc"}]}
    before = study(**given).text.kernel_hash
    (tmp_path / "inc" / "fac.h").write_text("#define FAC 2\n")
    assert study(**given).text.kernel_hash != before


def test_a_launch_names_its_arguments() -> None:
    launch = table()["launch"]
    launch[0]["arguments"].append("z")
    with pytest.raises(StudyError, match=r"launch\.1\.arguments: no argument or size named 'z'"):
        study(launch=launch)
    launch = table()["launch"]
    launch[0]["local"] = ["WG", "1"]
    with pytest.raises(StudyError, match="equally many dimensions"):
        study(launch=launch)


def test_a_type_that_is_none_is_told_with_its_place() -> None:
    arguments = table()["arguments"]
    arguments["alpha"]["type"] = "flaot"
    with pytest.raises(
        StudyError, match=r"^saxpy\.toml: arguments\.alpha\.type: unknown type 'flaot' .did you mean 'float'"
    ):
        study(arguments=arguments)


def test_a_parameter_cannot_be_named_like_a_type() -> None:
    with pytest.raises(StudyError, match=r"parameters: 'float' is already an OpenCL type"):
        study(parameters={**table()["parameters"], "float": {"values": [1]}})


def test_a_bad_expression_is_told_with_its_place() -> None:
    with pytest.raises(ExpressionError, match=r"^saxpy\.toml: work\.flops"):
        study(work={"flops": "9**9**9"})


def test_without_an_output_nothing_can_be_verified() -> None:
    arguments = table()["arguments"]
    arguments["y"]["access"] = "in"
    with pytest.raises(StudyError, match="no argument has access"):
        study(arguments=arguments)


def test_a_parameter_that_nothing_uses_is_known() -> None:
    assert study().unused == []
    idle = {"values": [1, 2]}
    assert study(parameters={**table()["parameters"], "IDLE": idle}).unused == ["IDLE"]


def test_a_function_can_be_the_reference_and_enters_the_hash() -> None:
    one = study(reference=lambda x, y, **_: {"y": 2.5 * x + y})
    two = study(reference=lambda x, y, **_: {"y": 2.0 * x + y})
    assert callable(one.reference.function)
    assert one.text.study_hash != two.text.study_hash


def test_a_file_cannot_smuggle_a_function() -> None:
    with pytest.raises(StudyError, match="cannot hold a function"):
        study(reference={"function": "0" * 32})


def test_a_kernel_can_be_the_reference(tmp_path: Path) -> None:
    (tmp_path / "ref.cl").write_text(SOURCE)
    launch = {"entry": "saxpy", "global": ["N"], "arguments": ["N", "alpha", "x", "y"]}
    found = study(reference={"kernel": str(tmp_path / "ref.cl"), "launch": [launch]})
    assert found.reference.source == SOURCE
    assert found.reference.launches[0].entry == "saxpy"


@pytest.mark.parametrize("name", ["sgemm", "matmul", "matmul_rect", "product_sum", "element_mult"])
def test_the_bundled_studies_are_sound(name: str) -> None:
    found = Study.load(name)
    assert found.name == name
    assert found.about
    assert all(parameter.about for parameter in found.parameters.values())
