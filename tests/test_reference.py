from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune.errors import StudyError
from autotune.study import Problem, check_reference, expected_data, input_data
from tests.studies import study, table


def test_nan_in_an_input_is_told_where_the_reference_gives_nothing_else() -> None:
    arguments = table()["arguments"]
    arguments["x"]["data"] = {"numpy": "log(-ones(N))"}
    problem = Problem(study(arguments=arguments))
    with pytest.raises(StudyError, match="gives only NaN for 'y': the data of 'x' holds NaN"):
        expected_data(problem, input_data(problem))


def test_data_is_seeded_and_in_range() -> None:
    first = input_data(Problem(study()))
    again = input_data(Problem(study()))
    assert set(first) == {"x", "y"}
    assert first["x"].dtype == np.float32
    assert np.array_equal(first["x"], again["x"])
    assert not np.array_equal(first["x"], first["y"])
    assert -1 <= first["x"].min() < first["x"].max() <= 1


@pytest.mark.parametrize(
    ("kind", "data", "low", "high"),
    [
        ("int", {"distribution": "integers", "low": -3, "high": 3}, -3, 3),
        ("uchar", {"high": 255}, 0, 255),
        ("ulong", {"low": 0, "high": 2.0**64}, 0, 2**64 - 1),
        ("half", {"distribution": "constant", "value": 2}, 2, 2),
        ("float", {"distribution": "integers", "low": 1, "high": 2}, 1, 2),
    ],
)
def test_distributions_fit_the_type(kind: str, data: dict[str, Any], low: int, high: int) -> None:
    arguments = table()["arguments"]
    arguments["x"] = {"type": kind, "shape": ["N"], "access": "in", "data": data}
    values = input_data(Problem(study(arguments=arguments)))["x"]
    assert low <= values.min() <= values.max() <= high


def test_ranges_and_vectors() -> None:
    arguments = table()["arguments"]
    arguments["x"] = {"type": "int4", "shape": ["N"], "access": "in", "data": {"distribution": "range"}}
    values = input_data(Problem(study(arguments=arguments), {"N": 3}))["x"]
    assert values.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]


def test_an_impossible_range_is_an_error() -> None:
    arguments = table()["arguments"]
    arguments["x"] = {"type": "uchar", "shape": ["N"], "access": "in", "data": {"low": -5, "high": -1}}
    with pytest.raises(StudyError, match=r"arguments\.x"):
        input_data(Problem(study(arguments=arguments)))


def test_the_expected_output_is_computed_in_float64() -> None:
    problem = Problem(study())
    inputs = input_data(problem)
    found = expected_data(problem, inputs)
    assert found["y"].dtype == np.float64
    assert np.array_equal(found["y"], 2.5 * inputs["x"].astype(np.float64) + inputs["y"])


def test_integers_wrap_as_on_the_device() -> None:
    arguments = table()["arguments"]
    for name in ("x", "y"):
        arguments[name] |= {"type": "int", "data": {"low": 2**30, "high": 2**31 - 1}}
    problem = Problem(study(arguments=arguments, reference={"numpy": {"y": "x * 7 + y"}}))
    inputs = input_data(problem)
    found = expected_data(problem, inputs)
    assert found is not None
    with np.errstate(over="ignore"):
        assert np.array_equal(found["y"], inputs["x"] * np.int32(7) + inputs["y"])


@pytest.mark.parametrize("kind", ["uchar", "ushort", "uint"])
def test_a_difference_of_unsigned_integers_may_be_negative(kind: str) -> None:
    arguments = table()["arguments"]
    for name, low in (("x", 1), ("y", 2)):
        arguments[name] |= {"type": kind, "data": {"distribution": "constant", "value": low}}
    arguments["z"] = {"type": "float", "shape": ["N"], "access": "out"}
    launch = {"entry": "saxpy", "global": ["N"], "arguments": ["N", "alpha", "x", "y", "z"]}
    told = {"numpy": {"y": "x - y", "z": "abs(x - y) / 2"}}
    problem = Problem(study(arguments=arguments, launch=[launch], reference=told))
    found = expected_data(problem, input_data(problem))
    assert set(found["y"]) == {np.iinfo(found["y"].dtype).max}  # wraps to the output's type
    assert set(found["z"]) == {0.5}


def test_a_wrong_shape_is_told() -> None:
    problem = Problem(study(reference={"numpy": {"y": "x[1:]"}}))
    with pytest.raises(StudyError, match=r"^saxpy\.toml: reference of y: has shape \(999,\), the output has \(1000,\)"):
        expected_data(problem, input_data(problem))


def test_an_output_that_a_reference_names_is_told() -> None:
    arguments = table()["arguments"]
    arguments["y"]["access"] = "out"
    with pytest.raises(
        StudyError, match="names 'y', which is an output: only an inout can be read, with its old values"
    ):
        check_reference(Problem(study(arguments=arguments)))
    check_reference(Problem(study()))


def test_an_argument_that_a_reference_names_and_no_launch_takes_is_told() -> None:
    launch = [{**table()["launch"][0], "arguments": ["N", "x", "y"]}]
    with pytest.raises(
        StudyError, match=r"names 'alpha', which no launch takes; put alpha among the arguments of its \[\["
    ):
        check_reference(Problem(study(launch=launch)))


def test_a_reference_may_name_what_only_another_size_passes() -> None:
    launch = table()["launch"][0]
    odd = {**launch, "arguments": ["N", "beta", "x", "y"], "when": "N > 900"}
    arguments = table()["arguments"] | {"beta": {"type": "float", "value": "2.5"}}
    numpy = {"y": "alpha * x + y + where(N > 900, beta * x, 0)"}
    given = study(launch=[launch, odd], arguments=arguments, reference={"numpy": numpy})
    for size, factor in ((1000, 5.0), (100, 2.5)):
        problem = Problem(given, {"N": size})
        check_reference(problem)
        inputs = input_data(problem)
        expected = expected_data(problem, inputs)
        assert expected is not None
        assert np.allclose(expected["y"], factor * inputs["x"].astype(float) + inputs["y"])


def test_a_function_given_in_python_runs() -> None:
    problem = Problem(study(reference=lambda x, y, alpha, N: {"y": alpha * x + y + N}))
    inputs = input_data(problem)
    found = expected_data(problem, inputs)
    assert np.allclose(found["y"], 2.5 * inputs["x"] + inputs["y"] + 1000)


CHOSEN: dict[str, Any] = {"T": ["float"], "R": [1, 3]}


@pytest.mark.parametrize(
    "reference",
    [{"numpy": {"y": "alpha * x + R"}}, lambda x, alpha, R, T: {"y": alpha * x + (R if T == "float" else 0)}],
)
def test_a_reference_is_given_what_the_user_chose(reference: Any) -> None:
    problem = Problem(study(reference=reference, choices=CHOSEN), choices={"R": 3})
    check_reference(problem)
    inputs = input_data(problem)
    found = expected_data(problem, inputs)
    assert np.allclose(found["y"], 2.5 * inputs["x"] + 3)


def test_a_check_is_given_what_the_user_chose() -> None:
    given = {"check": {"s": "y * R"}, "reference": {"numpy": {"s": "x"}}, "choices": CHOSEN}
    problem = Problem(study(**given), choices={"R": 3})
    check_reference(problem)
    assert problem.plan(problem.default).checks["s"].numbers == (("R", 3),)


def test_a_file_with_python_runs_only_when_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ref.py").write_text("def f(x, y, **_):\n    return {'y': x}\n")
    problem = Problem(study(reference={"python": "ref.py:f"}))
    inputs = input_data(problem)
    with pytest.raises(StudyError, match="--allow-python"):
        expected_data(problem, inputs)
    found = expected_data(problem, inputs, python=lambda path, name, names: {"y": names["x"]})
    assert np.array_equal(found["y"], inputs["x"].astype(np.float64))


def fails(**_: Any) -> Any:
    raise ValueError("boo")


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (fails, r"test_reference\.py:\d+: the function failed: ValueError: boo"),
        (lambda **_: 3, "returned int; return a dict"),
        (lambda **_: {}, "returned nothing for it"),
        (
            lambda y, **_: {"y": y * 1j},
            r"holds complex128, not numbers; a complex z is two numbers: np\.stack\(\(z\.real, z\.imag\), -1\)",
        ),
        (lambda x, **_: {"x": x}, "the reference gives x, which nothing is compared with, and lacks y; leave it out"),
        (
            lambda x, y, **_: {"y": y, "x": x, "norm": 1},
            "reference: the reference gives x, norm, which nothing is compared with; leave them out, or give x access",
        ),
    ],
)
def test_a_function_that_does_not_do_is_told_with_its_line(function: Any, message: str) -> None:
    problem = Problem(study(reference=function))
    with pytest.raises(StudyError, match=message):
        expected_data(problem, input_data(problem))


def test_a_wrong_shape_is_told_without_computing() -> None:
    with pytest.raises(StudyError, match=r"reference\.numpy\.y: has shape \(999,\), the output has \(1000,\)"):
        check_reference(Problem(study(reference={"numpy": {"y": "x[1:]"}})))
    check_reference(Problem(study(reference={"numpy": {"y": "alpha * x + y"}}), {"N": 2**30}))


def test_a_reference_that_gives_nothing_but_nan_would_pass_a_kernel_that_writes_nothing() -> None:
    problem = Problem(study(reference=lambda y, **_: {"y": np.full_like(y, np.nan)}))
    with pytest.raises(StudyError, match="only NaN for 'y'"):
        expected_data(problem, input_data(problem))
    some = Problem(study(reference=lambda y, **_: {"y": np.where(y == y[0], np.nan, y)}))
    assert expected_data(some, input_data(some)) is not None


def test_a_scalar_is_what_the_kernel_is_given() -> None:
    arguments = table()["arguments"]
    arguments["alpha"]["value"] = "0.1"
    problem = Problem(study(arguments=arguments, reference={"numpy": {"y": "ones(N) * alpha"}}))
    (found,) = (expected_data(problem, input_data(problem)) or {}).values()
    assert found[0] == float(np.float32(0.1))


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        ("uchar", "x * 0 + 1000", "gives 1000, which uchar cannot hold; a conversion that saturates is clip"),
        ("int", "sqrt(x - 5)", "gives nan, which int cannot hold"),
        ("int", "x * 0 + 1e12", "gives 1e\\+12, which int cannot hold"),
        ("int", "x * 0 - 5.99", ""),  # cut off, as C does it
        ("long", "x * 0 - 2.0 ** 63", ""),
        ("long", "x * 0 + 2.0 ** 63", "which long cannot hold"),
    ],
)
def test_what_a_whole_type_cannot_hold_is_refused(kind: str, text: str, said: str) -> None:
    arguments = table()["arguments"]
    arguments["y"] = {"type": kind, "shape": ["N"], "access": "out"}
    problem = Problem(study(arguments=arguments, reference={"numpy": {"y": text}}))
    if said:
        with pytest.raises(StudyError, match=said):
            expected_data(problem, input_data(problem))
    else:
        least = -5 if kind == "int" else -(2**63)
        assert (expected_data(problem, input_data(problem)) or {})["y"].tolist() == [least] * 1000


def test_an_expression_that_gives_nan_is_not_said_to_read_what_is_unwritten() -> None:
    problem = Problem(study(reference={"numpy": {"y": "log(x - 5)"}}))
    with pytest.raises(StudyError, match="only NaN for 'y': so it does for these inputs"):
        expected_data(problem, input_data(problem))
