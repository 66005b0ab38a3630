"""`check`, as the author of a study types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import Result

from autotune.cli.check import _excluded_rows
from tests.commands import VALID, change, one_error, own_place, run, write_study

pytestmark = pytest.mark.device

__all__ = ["own_place"]  # a fixture


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """Return what `check --json` says of a study without an error."""
    folder = tmp_path_factory.mktemp("sound")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_study(folder)
        return run("check", "./saxpy.toml", "--json")


def test_check_without_running_counts_and_explains() -> None:
    shown = run("check", "./saxpy.toml", "--no-run").stdout
    for part in ("y = alpha * x + y", "elements per work-item", f"{VALID} of 9 combinations", "WG=8192: "):
        assert part in shown


def test_check_groups_excluded_values_by_reason() -> None:
    change("values = [1, 2, 4]", f"values = [1, 2, 4, {', '.join(map(str, range(5, 40)))}]")
    idle = "".join(f"[parameters.P{number}]\nvalues = [0, 1]\n" for number in range(18))
    change("[arguments.x]", f'{idle}[[constraints]]\nrequire = "WPT < 5"\n\n[arguments.x]')
    result = run("check", "./saxpy.toml", "--no-run")
    shown = result.stdout
    assert result.stderr.count("nothing uses") == 1
    assert "P0, P1, P2, " in result.stderr
    assert "P15 and 2 more:" in result.stderr
    assert shown.count("WPT < 5") == 2  # the constraint, and why
    assert "WPT=5, 6, 7," in shown
    assert "20 and more: WPT < 5\n" in shown
    assert " 16 17 ... 39 (38 values)  " in shown  # of a long list its two ends


def test_check_says_the_first_reasons() -> None:
    many = [{"name": "A", "value": value, "reason": f"too {value}"} for value in range(12)]
    rows = _excluded_rows([*many, {"name": "B", "value": 1, "reason": "too 0"}])
    assert rows[0] == "A=0; B=1: too 0"
    assert rows[10:] == ["and for 2 more reasons: --json has them all"]


def test_check_builds_and_verifies_and_saves() -> None:
    result = run("check", "./saxpy.toml", "--set", "WPT=2,WG=32", "--save-build", "build", "--size", "65")
    assert "verified" in result.stdout
    assert "WPT=2 WG=32" in result.stdout
    saved = list(Path("build").iterdir())
    assert any(file.suffix == ".cl" and "saxpy" in file.read_text() for file in saved)
    assert len(saved) >= 2


def test_check_as_json(sound: Result) -> None:
    found = json.loads(sound.stdout)
    assert found["outcome"] == "ok"
    assert found["valid_configurations"] == VALID
    assert "launch 1 (saxpy): the work-group fits the device" in found["constraints"]
    assert found["build_s"] > 0
    assert {k: found["exclusions"][0][k] for k in ("name", "value")} == {"name": "WG", "value": 8192}


def test_check_of_a_wrong_kernel_ends_with_1() -> None:
    change('"alpha * x + y"', '"alpha * x - y"')
    result = run("check", "./saxpy.toml", code=1)
    assert "wrong_result" in one_error(result)
    assert "runs again" not in result.stderr, "no reference that is wrong against itself"


def test_what_the_reference_leaves_unwritten_is_a_warning_of_check_and_search(sound: Result) -> None:
    source = "kernel void part(const int N, global float *y) { int i = get_global_id(0); if (i < N / 2) y[i] = 1; }"
    Path("part.cl").write_text(source)
    Path("part.toml").write_text(
        'name = "part"\nkernel = "part.cl"\nsizes = { N = 10000 }\nparameters.WG.values = [32, 64]\n'
        'reference.configuration = { WG = 32 }\narguments.y = { type = "float", shape = ["N"], access = "out" }\n'
        '[[launch]]\nentry = "part"\nglobal = ["round_up(N, WG)"]\nlocal = ["WG"]\narguments = ["N", "y"]\n'
    )
    said = "warning: the reference leaves 5,000 of 10,000 values of y unwritten, first y[5000]: they are not verified; "
    checked = run("check", "./part.toml")
    assert said in checked.stderr
    assert "unverified" not in checked.stdout
    assert said in run("search", "./part.toml", "--trials", "1").stderr
    assert "unwritten" not in sound.stderr


def test_a_reference_that_leaves_outputs_as_they_were_is_told_and_refused_where_nothing_else_is_compared() -> None:
    said = "the reference leaves y as it was: so does a kernel that writes nothing; "
    Path("saxpy.cl").write_text(Path("saxpy.cl").read_text().replace("y[i] =", "if (alpha < 0) y[i] ="))
    change('numpy = { y = "alpha * x + y" }', 'numpy = { y = "y" }')
    assert f"warning: {said}" in run("check", "./saxpy.toml").stderr
    change('numpy = { y = "y" }', "configuration = { WPT = 1, WG = 64 }")
    assert said in one_error(run("search", "./saxpy.toml", "--trials", "1", code=2))


def test_an_output_of_which_zeros_are_right_everywhere_is_a_warning(sound: Result) -> None:
    said = "warning: zeros are right for all of y, within the tolerance: "
    assert said not in sound.stderr
    change("absolute = 1e-06", "absolute = 4")
    assert said in run("check", "./saxpy.toml").stderr


def test_a_reference_that_is_wrong_against_itself_is_a_warning_of_check_and_search() -> None:
    Path("once.cl").write_text(  # it spoils its input: the next run finds another, as if it ran a race
        "kernel void once(const int N, global const float *x, global float *y)\n"
        "{ int i = get_global_id(0); if (i < N) { y[i] = x[i]; ((global float *)x)[i] = 0; } }"
    )
    Path("once.toml").write_text(
        'name = "once"\nkernel = "once.cl"\nsizes = { N = 4096 }\nparameters.WG.values = [32]\n'
        'reference.configuration = { WG = 32 }\narguments.x = { type = "float", shape = ["N"], access = "in" }\n'
        'arguments.y = { type = "float", shape = ["N"], access = "out" }\n'
        '[[launch]]\nentry = "once"\nglobal = ["N"]\nlocal = ["WG"]\narguments = ["N", "x", "y"]\n'
    )
    said = "warning: the reference is a configuration of the kernel, and gave another result when it ran again"
    assert said in run("check", "./once.toml", code=1).stderr
    assert said in run("search", "./once.toml", "--trials", "1", code=1).stderr


def test_values_of_which_the_reference_gives_nan_are_a_warning_and_have_to_be_written() -> None:
    source = (
        "kernel void root(const int N, global const float *x, global float *y)\n"
        "{ int i = get_global_id(0); if (i < N) y[i] = sqrt(x[i]); }"
    )
    Path("root.cl").write_text(source)
    Path("root.toml").write_text(
        'name = "root"\nkernel = "root.cl"\nsizes = { N = 100 }\nreference.numpy = { y = "sqrt(x)" }\n'
        'arguments.x = { type = "float", shape = ["N"], access = "in", data = { numpy = "arange(N) - 40" } }\n'
        'arguments.y = { type = "float", shape = ["N"], access = "out" }\nparameters.WG.values = [32, 64]\n'
        '[tolerance]\nrelative = 1e-5\n[[launch]]\nentry = "root"\nglobal = ["round_up(N, WG)"]\nlocal = ["WG"]\n'
        'arguments = ["N", "x", "y"]\n'
    )
    said = "warning: the reference gives NaN for 40 of 100 values of y, first y[0]: each NaN is right there; "
    assert said in run("check", "./root.toml").stderr
    assert said in run("search", "./root.toml", "--trials", "1").stderr
    Path("root.cl").write_text(source.replace("if (i < N)", "if (i < N && x[i] >= 0)"))
    assert "never written?" in run("check", "./root.toml", code=1).stderr


@pytest.mark.parametrize(
    ("body", "said", "hint"),
    [
        ("if (alpha < 0) y[0] = x[0];", "the reference writes nothing to y", "give another reference"),
        ("y[0] = missing;", "right.cl:1:", "those of [defines] that no parameter decides"),
        pytest.param(
            "local float large[1 << 24]; large[get_local_id(0)] = 1; y[0] = large[1];",
            "local memory",
            "reference",
            marks=pytest.mark.processor,
        ),
    ],
)
def test_a_fault_of_the_reference_kernel_is_the_studys(body: str, said: str, hint: str) -> None:
    change('access = "inout"', 'access = "out"')
    change('numpy = { y = "alpha * x + y" }', 'kernel = "right.cl"')
    kernel = "kernel void right(const int N, const float alpha, global const float *x, global float *y)"
    Path("right.cl").write_text(f"{kernel} {{ {body} }}")
    with Path("saxpy.toml").open("a") as file:
        launch = 'entry = "right"\nglobal = ["N"]\nlocal = ["1"]\narguments = ["N", "alpha", "x", "y"]\n'
        file.write(f"\n[[reference.launch]]\n{launch}")
    for command in ("check", "search"):
        error = one_error(run(command, "./saxpy.toml", code=2))
        assert error.startswith("error: ./saxpy.toml: reference: ")
        assert said in error
        assert hint in error or "ended the worker" in error  # as PoCL 5 and 6 end it


def test_no_run_runs_nothing_of_the_files() -> None:
    Path("evil.py").write_text("import pathlib\npathlib.Path('run').touch()\ndef f(**k): return {}\n")
    change('numpy = { y = "alpha * x + y" }', 'python = "evil.py:f"')
    run("check", "./saxpy.toml", "--no-run")
    assert not Path("run").exists()
    assert "--allow-python" in one_error(run("check", "./saxpy.toml", code=2))
    assert not Path("run").exists()
