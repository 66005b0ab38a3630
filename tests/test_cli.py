"""The commands as a user types them: in this process, on the real device, with a database of their own."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import autotune
from autotune.cli import app, interrupt
from autotune.cli.check import _excluded_rows
from autotune.devices import find_device, linker, load_backend
from autotune.pool import sizing
from autotune.samplers import SAMPLERS
from autotune.study import toml
from tests.processes import has_ended
from tests.studies import SOURCE, TABLE

pytestmark = pytest.mark.device

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

PRODUCT = """
name = "product"
kernel = "product.cl"
[sizes]
M = 8
N = 8
K = 8
[parameters.WG]
values = [1, 2]
[arguments.A]
type = "float"
shape = ["M", "K"]
access = "in"
[arguments.B]
type = "float"
shape = ["K", "N"]
access = "in"
[arguments.C]
type = "float"
shape = ["M", "N"]
access = "out"
[[launch]]
entry = "product"
global = ["M * WG"]
local = ["WG"]
arguments = ["N", "K", "A", "B", "C"]
[reference]
numpy = { C = "A @ B" }
[tolerance]
absolute = 1e-4
[work]
flops = "2 * M * N * K"
"""

PRODUCT_SOURCE = """
kernel void product(int N, int K, global const float *A, global const float *B, global float *C)
{
    const int m = get_group_id(0);
    for (int n = get_local_id(0); n < N; n += get_local_size(0)) {
        float sum = 0;
        for (int k = 0; k < K; ++k)
            sum += A[m * K + k] * B[k * N + n];
        C[m * N + n] = sum;
    }
}
"""

ENDLESS = "{ if (get_global_id(0) == 0) while (((volatile global T *)y)[0] < 100);"
VALID = 6  # of 9: no device here takes a work-group of 8192


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AUTOTUNE_DB", str(tmp_path / "own.db"))
    monkeypatch.setenv("AUTOTUNE_LOCKS", str(tmp_path))  # wait for no search outside these tests
    (tmp_path / "saxpy.toml").write_text(STUDY)
    (tmp_path / "saxpy.cl").write_text(SOURCE)


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The database of a search of two trials, and what the search printed as JSON: one search for many tests."""
    folder = tmp_path_factory.mktemp("searched")
    (folder / "saxpy.toml").write_text(STUDY)
    (folder / "saxpy.cl").write_text(SOURCE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("AUTOTUNE_LOCKS", str(folder))
        found = run("search", "./saxpy.toml", "--trials", "2", "--json", "--db", str(folder / "own.db"))
    return folder / "own.db", json.loads(found.stdout)


@pytest.fixture
def stored(searched: tuple[Path, dict[str, Any]], tmp_path: Path) -> dict[str, Any]:
    """What a search of two trials found; its trials are in this test's own database."""
    shutil.copy(searched[0], tmp_path / "own.db")
    return searched[1]


def run(*words: str, code: int = 0, stdin: str | None = None) -> Result:
    result = CliRunner().invoke(app, list(words), input=stdin)
    assert result.exit_code == code, f"{result.exit_code}: {result.output} {result.exception!r}"
    return result


def one_error(result: Result) -> str:
    """The only line that says error; nothing of it is on stdout, and no traceback anywhere."""
    assert "Traceback" not in result.output
    assert not re.search("^error", result.stdout, re.MULTILINE)
    lines = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, result.stderr
    return lines[0]


def change(old: str, new: str) -> None:
    """Edit the study; the edit must take."""
    path = Path("saxpy.toml")
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))


# What a user does ------------------------------------------------------------------------------------------


def test_search_prints_the_best_and_the_next_command_and_goes_on() -> None:
    first = run("search", "./saxpy.toml", "--trials", "2", "--seed", "1")
    for part in (
        "2 new trials",
        "WPT=",
        "95 % interval",
        "verified in",
        "GFLOPS",
        "GB/s",
        "default",
        "build",
        f"of {VALID} valid",
    ):
        assert part in first.stdout
    assert re.search(r"next +autotune best \./saxpy\.toml -d \S+ --format defines", first.stdout)
    assert "trials" in first.stderr
    second = run("search", "./saxpy.toml", "--trials", "50")
    assert f"{VALID - 2} new trials and 2 stored" in second.stdout
    assert "nothing left" in second.stdout
    assert "space exhausted" in second.stdout


def test_what_is_fixed_is_told_of_beside_the_command_and_not_within_it() -> None:
    said = run("search", "./saxpy.toml", "--trials", "1", "--seed", "1", "--fix", "WG=32")
    assert re.search(r"next +autotune best \./saxpy\.toml -d \S+ --format defines\n +which answers of all", said.stdout)
    assert (
        "the study's default is left out by --fix; the nearest valid one stands in: WG=32 instead of 64" in said.stderr
    )
    assert "the best is what stands in for the study's default" in said.stdout


@pytest.mark.doubles
def test_best_gives_what_the_search_found_in_every_format(stored: dict[str, Any]) -> None:
    best = json.loads(run("best", "./saxpy.toml", "--format", "json").stdout)
    assert best["configuration"] == stored["best"]["configuration"]
    defines = run("best", "./saxpy.toml", "--format", "defines").stdout
    assert all(f"-D{name}={value}" in defines for name, value in best["configuration"].items())
    assert "exact" in run("best", "./saxpy.toml").stdout
    assert "default" in run("best", "./saxpy.toml", "--choice", "T=double").stderr


def test_search_as_json_has_numbers_and_nothing_else_on_stdout() -> None:
    found = json.loads(run("search", "./saxpy.toml", "--trials", "3", "--json", "--size", "N=500").stdout)
    assert found["size"] == {"N": 500}
    assert found["trials"] == 3
    assert set(found["best"]["configuration"]) == {"WPT", "WG"}
    assert found["best"]["time_ns"] > 0
    assert found["best"]["gflops"] == pytest.approx(2 * 500 / found["best"]["time_ns"])
    assert found["valid_configurations"] == VALID
    assert set(found["usage_s"]) >= {"build", "verify", "time"}


@pytest.mark.doubles
def test_fix_and_start_and_choice() -> None:
    words = ("--fix", "WG=32,64", "--fix", "WPT=4", "--start", "WG=32", "--choice", "T=double", "--json")
    found = json.loads(run("search", "./saxpy.toml", *words).stdout)
    assert found["trials"] == 2
    assert found["choices"] == {"T": "double"}
    assert found["best"]["configuration"]["WPT"] == 4


def test_a_search_in_which_nothing_passes_ends_with_1_and_the_reasons() -> None:
    change('"alpha * x + y"', '"alpha * x - y"')
    result = run("search", "./saxpy.toml", "--trials", "2", code=1)
    assert "no configuration passed" in one_error(result)
    assert re.search(r"wrong_result +2 x; e\.g\. WPT=", result.stdout)
    only = ("search", "./saxpy.toml", "--fix", ",".join(re.findall(r"e\.g\. (WPT=\d+) (WG=\d+)", result.stdout)[0]))
    again = one_error(run(*only, "--allow-python", code=1))  # an option that `history` has not
    assert "autotune history ./saxpy.toml says why those stored failed; --fresh tries them again" in again


def test_a_first_run_that_takes_too_long_ends_with_1_and_the_option_that_allows_more() -> None:
    kernel = Path("saxpy.cl")
    kernel.write_text(kernel.read_text().replace("{", ENDLESS, 1))
    result = run("search", "./saxpy.toml", "--trials", "1", "--run-limit", "1s", code=1)
    assert "no configuration passed; --run-limit 5m gives a run more time" in one_error(result)
    assert "no answer within 1 s" in result.stdout
    assert "--run-limit" in one_error(run("search", "./saxpy.toml", "--run-limit", "soon", code=2))


def test_a_reference_that_ends_the_worker_is_the_studys_error() -> None:
    """With what the machine's memory has nothing to do: the kernel writes where nothing is."""
    kernel = Path("saxpy.cl")
    kernel.write_text(re.sub(r"\{", "{ *(volatile global int *)(size_t)(N + 8) = 1;", kernel.read_text(), count=1))
    change('numpy = { y = "alpha * x + y" }', "configuration = { WPT = 1, WG = 32 }")
    for command in (["check", "./saxpy.toml"], ["search", "./saxpy.toml", "--trials", "2"]):
        said = one_error(run(*command, code=2))
        assert "saxpy.toml: reference: its kernel ended the worker: the worker died while it" in said
        assert "(SIGSEGV); where it uses places outside its buffers, mend their shape" in said


def test_a_reference_that_takes_too_long_says_what_to_give_it() -> None:
    kernel = Path("saxpy.cl")
    kernel.write_text(kernel.read_text().replace("{", ENDLESS, 1))
    change('numpy = { y = "alpha * x + y" }', "configuration = { WPT = 1, WG = 32 }")
    result = run("check", "./saxpy.toml", "--run-limit", "1s", code=4)
    assert "the reference does not come to an end: no answer within 1 s" in one_error(result)
    assert one_error(result).endswith("; ask for a smaller --size, or give a run more time by --run-limit")


def test_the_log_is_of_a_level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_LOG", "all")
    assert one_error(run("devices", code=2)) == "error: AUTOTUNE_LOG: 'ALL' is no level; set it to debug"


def test_what_search_and_workers_say_can_be_read_and_their_files_kept(tmp_path: Path) -> None:
    words = [
        sys.executable,
        "-m",
        "autotune",
        "search",
        "./saxpy.toml",
        "--trials",
        "1",
        "--db",
        str(tmp_path / "l.db"),
    ]
    paths = {"PYTHONPATH": str(Path(autotune.__file__).parent.parent), "AUTOTUNE_LOG": "debug", "AUTOTUNE_KEEP": "1"}
    done = subprocess.run(words, text=True, capture_output=True, env=os.environ | paths | {"TMPDIR": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    assert re.search(r"autotune\.pool\.process: to worker \d+: Job\(", done.stderr)
    assert re.search(r"autotune\.pool\.process: worker \d+: Report\(", done.stderr)
    assert re.search(r"autotune\.tuner\.loop: submitted ", done.stderr)
    kept = re.search("the workers' files are in (.*)", done.stderr)
    assert kept is not None
    assert {file.suffix for file in Path(kept[1]).iterdir()} >= {".log", ".npy"}


def descendants(pid: str) -> Iterator[str]:
    for thread in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in thread.read_text().split():
            yield child
            yield from descendants(child)


@pytest.mark.parametrize("number", interrupt.ENDINGS)
def test_what_asks_a_search_to_end_is_told_what_was_found(number: signal.Signals, tmp_path: Path) -> None:
    change("[1, 2, 4]", str(list(range(1, 1000))))
    words = [sys.executable, "-m", "autotune", "search", "./saxpy.toml", "--timeout", "60s"]
    paths = {"PYTHONPATH": str(Path(autotune.__file__).parent.parent)}
    # Whoever runs the tests in the background of a script ignores Ctrl-C, and so would what they start.
    heard = {"preexec_fn": lambda: signal.signal(number, signal.SIG_DFL)}
    own = os.environ | paths | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(words, text=True, stdout=PIPE, stderr=PIPE, env=own, **heard) as search:
        assert search.stderr is not None
        while not re.search("trials?, best", line := search.stderr.readline()):
            assert line, "the search ended by itself"
        children = list(descendants(str(search.pid)))
        search.send_signal(number)
        out, errors = search.communicate(timeout=30)
    assert search.returncode == 130, errors
    assert "ended: interrupted" in out
    assert "autotune best ./saxpy.toml" in out
    assert "Traceback" not in errors
    assert children
    assert all(has_ended(int(child)) for child in children)
    assert not list(tmp_path.glob("autotune-run-*"))
    assert run("history", "saxpy").stdout.count(" ok ") >= 1


def test_a_second_ctrl_c_ends_at_once() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a script's background ignores
    with interrupt.stopping() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.is_set()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_missing_linker_is_named_before_anything_is_tried(links: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linker, "_tcc", lambda: None)
    monkeypatch.setenv("PATH", "/nowhere")
    assert "`apt-get install gcc`" in one_error(run("search", "./saxpy.toml", code=3))
    assert "`apt-get install gcc`" in run("devices").stderr
    assert run("history", "--json").stdout == "[]\n"


@pytest.mark.usefixtures("stored")
def test_history_lists_trials_with_reasons_and_spread() -> None:
    change('"alpha * x + y"', '"alpha * x - y"')
    run("search", "./saxpy.toml", "--trials", "1", code=1)
    shown = run("history", "./saxpy.toml").stdout
    assert re.search(r" ok +\S+ [µmn]?s +± [\d.]+ %", shown)
    assert len(re.findall("^20", shown, re.MULTILINE)) == 3
    assert "wrong_result" in shown
    rows = json.loads(run("history", "--json", "--failed").stdout)
    assert [row["outcome"] for row in rows] == ["wrong_result"]
    assert rows[0]["configuration"] == {"WPT": 1, "WG": 64}
    assert len(json.loads(run("history", "--json", "--limit", "1").stdout)) == 1
    assert run("history", "--json", "-d", rows[0]["device"]).stdout == run("history", "--json").stdout


def test_history_of_nothing_says_so() -> None:
    assert "no trial is stored" in run("history").stderr
    said = run("history", "-d", "arm-mali-4cu-2g").stderr
    assert said == "no trial is stored on arm-mali-4cu-2g; autotune search STUDY -d arm-mali-4cu-2g makes some\n"
    assert run("history", "--json").stdout == "[]\n"


@pytest.mark.usefixtures("stored")
def test_export_and_import_lose_nothing_and_add_nothing_twice() -> None:
    lines = run("export").stdout
    assert len(lines.splitlines()) == 2
    run("export", "trials.jsonl")
    assert Path("trials.jsonl").read_text() == lines
    assert "2 new trials" in run("import", "trials.jsonl", "--db", "other.db").stderr
    assert "0 new trials" in run("import", "--db", "other.db", stdin=lines).stderr
    assert run("export", "--db", "other.db").stdout == lines


def test_devices_says_which_of_several_drivers_of_a_model_its_name_means(monkeypatch: pytest.MonkeyPatch) -> None:
    here = find_device(None)
    other = replace(here, index=here.index + 1, platform="Other OpenCL, OpenCL 3.0", driver="0.1")
    monkeypatch.setattr(load_backend("opencl"), "devices", lambda: [here, other])
    model, first = here.fingerprint, f"-d {here.index}"
    assert re.search(
        rf"^{model} has several drivers here: {first} \(.*\), -d {other.index} \(Other OpenCL 0.1\); -d {model} means "
        rf"{here.index}$",
        run("devices").stderr, re.MULTILINE,
    )  # fmt: skip


def test_devices_as_a_table_and_as_json() -> None:
    found = json.loads(run("devices", "--json").stdout)
    assert found
    assert {"fingerprint", "index", "name", "driver", "local_memory"} <= set(found[0])
    assert found[0]["fingerprint"] in run("devices").stdout


@pytest.mark.usefixtures("stored")
def test_studies_lists_bundled_and_own_ones_with_their_counts() -> None:
    Path("studies").mkdir()
    Path("studies/saxpy.toml").write_text(STUDY.replace("saxpy.cl", "../saxpy.cl"))
    Path("studies/broken.toml").write_text("name = ")
    rows = {row["study"]: row for row in json.loads(run("studies", "--json").stdout)}
    assert {"sgemm", "matmul", "matmul_rect", "product_sum", "element_mult", "saxpy", "broken"} <= set(rows)
    assert (rows["saxpy"]["valid"], rows["saxpy"]["trials"]) == (VALID, 2)
    assert rows["sgemm"]["trials"] == 0
    assert rows["sgemm"]["valid"] >= 10_000
    assert "not valid TOML" in rows["broken"]["error"]
    shown = run("studies").stdout
    assert f"{VALID} valid configurations, 2 trials stored" in shown
    assert "not valid TOML" in shown


def test_a_study_that_hides_a_bundled_one_is_announced() -> None:
    Path("studies").mkdir()
    Path("studies/matmul.toml").write_text(STUDY.replace('"saxpy"', '"matmul"', 1).replace("saxpy.cl", "../saxpy.cl"))
    assert "not the bundled study" in run("check", "matmul", "--no-run").stderr


# check -----------------------------------------------------------------------------------------------------


def test_check_without_running_counts_and_explains() -> None:
    shown = run("check", "./saxpy.toml", "--no-run").stdout
    for part in ("y = alpha * x + y", "elements per work-item", f"{VALID} of 9 combinations", "WG=8192: "):
        assert part in shown


def test_check_groups_excluded_values_by_reason() -> None:
    change("values = [1, 2, 4]", f"values = [1, 2, 4, {', '.join(map(str, range(5, 40)))}]")
    change("[arguments.x]", '[[constraints]]\nrequire = "WPT < 5"\n\n[arguments.x]')
    shown = run("check", "./saxpy.toml", "--no-run").stdout
    assert shown.count("WPT < 5") == 2  # the constraint, and why
    assert "WPT=5, 6, 7," in shown
    assert "20 and more: WPT < 5\n" in shown


def test_check_says_the_first_reasons() -> None:
    many = [{"name": "A", "value": value, "reason": f"too {value}"} for value in range(12)]
    rows = _excluded_rows([*many, {"name": "B", "value": 1, "reason": "too 0"}])
    assert rows[0] == "A=0; B=1: too 0"
    assert rows[10:] == ["and for 2 more reasons: --json has them all"]


def test_check_builds_and_verifies_and_saves(tmp_path: Path) -> None:
    result = run("check", "./saxpy.toml", "--set", "WPT=2,WG=32", "--save-build", "build", "--size", "65")
    assert "verified" in result.stdout
    assert "WPT=2 WG=32" in result.stdout
    saved = list(Path("build").iterdir())
    assert any(file.suffix == ".cl" and "saxpy" in file.read_text() for file in saved)
    assert len(saved) >= 2


def test_check_as_json() -> None:
    found = json.loads(run("check", "./saxpy.toml", "--json").stdout)
    assert found["outcome"] == "ok"
    assert found["valid_configurations"] == VALID
    assert {k: found["exclusions"][0][k] for k in ("name", "value")} == {"name": "WG", "value": 8192}


def test_check_of_a_wrong_kernel_ends_with_1() -> None:
    change('"alpha * x + y"', '"alpha * x - y"')
    assert "wrong_result" in one_error(run("check", "./saxpy.toml", code=1))


def test_what_the_reference_leaves_unwritten_is_a_warning_of_check_and_search() -> None:
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
    assert said in run("search", "./part.toml", "--trials", "2").stderr
    assert "unwritten" not in run("check", "./saxpy.toml").stderr


def test_a_reference_that_leaves_outputs_as_they_were_is_told_and_refused_where_nothing_else_is_compared() -> None:
    said = "the reference leaves y as it was: so does a kernel that writes nothing; "
    Path("saxpy.cl").write_text(Path("saxpy.cl").read_text().replace("y[i] =", "if (alpha < 0) y[i] ="))
    change('numpy = { y = "alpha * x + y" }', 'numpy = { y = "y" }')
    assert f"warning: {said}" in run("check", "./saxpy.toml").stderr
    change('numpy = { y = "y" }', "configuration = { WPT = 1, WG = 64 }")
    assert said in one_error(run("search", "./saxpy.toml", "--trials", "1", code=2))


def test_an_output_of_which_zeros_are_right_everywhere_is_a_warning() -> None:
    said = "warning: zeros are right for all of y, within the tolerance: "
    assert said not in run("check", "./saxpy.toml").stderr
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
    said = "warning: the configuration that is the reference gives another result when it runs again: compare what "
    assert said in run("check", "./once.toml", code=1).stderr
    assert said in run("search", "./once.toml", "--trials", "1", code=1).stderr
    change('"alpha * x + y"', '"alpha * x - y"')
    assert "runs again" not in run("check", "./saxpy.toml", code=1).stderr


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
    ("body", "said"),
    [
        ("if (alpha < 0) y[0] = x[0];", "the reference writes nothing to y"),
        ("y[0] = missing;", "undeclared identifier"),
        ("local float large[1 << 24]; large[get_local_id(0)] = 1; y[0] = large[1];", "local memory"),
    ],
)
def test_a_fault_of_the_reference_kernel_is_the_studys(body: str, said: str) -> None:
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
        assert "give another reference" in error or "ended the worker" in error  # as PoCL 5 and 6 end it


def test_no_run_runs_nothing_of_the_files() -> None:
    Path("evil.py").write_text("import pathlib\npathlib.Path('run').touch()\ndef f(**k): return {}\n")
    change('numpy = { y = "alpha * x + y" }', 'python = "evil.py:f"')
    run("check", "./saxpy.toml", "--no-run")
    assert not Path("run").exists()
    assert "--allow-python" in one_error(run("check", "./saxpy.toml", code=2))
    assert not Path("run").exists()


# compare ---------------------------------------------------------------------------------------------------


def test_compare_by_parameter_spends_equal_trials_and_draws() -> None:
    result = run("compare", "./saxpy.toml", "--by", "WG", "--trials", "2", "--chart", "wg.svg", "--json")
    cells = json.loads(result.stdout)["cells"]
    assert [(cell["value"], cell["trials"]) for cell in cells] == [("32", 2), ("64", 2), ("8192", 0)]
    assert cells[0]["best"]["configuration"]["WG"] == 32
    assert "not possible" in cells[2]["reason"]
    picture = Path("wg.svg").read_text()
    assert "saxpy: best per WG" in picture
    assert "GFLOPS" in picture
    again = run("compare", "./saxpy.toml", "--by", "WG", "--trials", "2")
    assert "trials on" not in again.stderr
    assert "not possible" in again.stdout


@pytest.mark.usefixtures("stored")
def test_compare_by_size_over_a_list_of_the_study() -> None:
    run("compare", "./saxpy.toml", "--by", "size", "--sizes", "ladder", "--trials", "1", "--chart", "sizes.png")
    assert Path("sizes.png").read_bytes().startswith(b"\x89PNG")
    shown = run("compare", "./saxpy.toml", "--by", "size", "--sizes", "100,1000", "--no-search").stdout
    assert re.search(r"^N=100 .*WPT=", shown, re.MULTILINE)


@pytest.mark.usefixtures("stored")
def test_compare_by_device_shows_the_devices_here() -> None:
    fingerprint = find_device(None).fingerprint
    cells = json.loads(run("compare", "./saxpy.toml", "--by", "device", "--trials", "1", "--json").stdout)["cells"]
    assert cells[0]["value"] == fingerprint
    assert cells[0]["best"]["outcome"] == "ok"
    named = run("compare", "./saxpy.toml", "--by", "device", "-d", fingerprint, "--no-search").stdout
    assert fingerprint in named


def test_compare_a_product_with_host_baselines_and_end_to_end() -> None:
    Path("product.toml").write_text(PRODUCT)
    Path("product.cl").write_text(PRODUCT_SOURCE)
    words = ("--by", "size", "--sizes", "8", "--trials", "1", "--baselines", "--chart", "product.svg")
    result = run("compare", "./product.toml", *words)
    for part in (
        "NumPy BLAS (host)",
        "Strassen (host)",
        "OpenCL, end to end",
        "OpenCL, next use",
        "set-up",
        "kernel alone",
    ):
        assert part in result.stdout, result.stderr
    picture = Path("product.svg").read_text()
    for part in ("NumPy BLAS (host)", "OpenCL, kernel alone", "OpenCL, end to end", "M = N = K"):
        assert f">{part}<" in picture


@pytest.mark.parametrize(
    ("words", "sizes"),
    [
        (["--sizes", "100,200"], [100, 200]),
        (["--size", "100,200"], [100, 200]),
        (["--size", "N=300"], [300]),
        (["--size", "100", "--sizes", "ladder"], [100, 1000]),
    ],
)
def test_compare_takes_size_as_well_as_sizes(words: list[str], sizes: list[int]) -> None:
    result = run("compare", "./saxpy.toml", "--by", "WG", "--no-search", "--json", *words, code=1)
    found = [cell["size"]["N"] for cell in json.loads(result.stdout)["cells"]]
    assert list(dict.fromkeys(found)) == sizes


def test_several_named_sizes_are_one_size_as_elsewhere() -> None:
    Path("product.toml").write_text(PRODUCT)
    Path("product.cl").write_text(PRODUCT_SOURCE)
    words = ("--by", "size", "--size", "M=64", "--size", "N=32", "--no-search", "--json")
    (cell,) = json.loads(run("compare", "./product.toml", *words, code=1).stdout)["cells"]
    assert (cell["size"]["M"], cell["size"]["N"]) == (64, 32)


def test_compare_with_nothing_stored_ends_with_1() -> None:
    assert "no verified configuration" in one_error(run("compare", "./saxpy.toml", "--by", "WG", "--no-search", code=1))


# Bad input: one line, exit code 2 --------------------------------------------------------------------------

BROKEN_STUDIES = {
    "malformed TOML": ("[sizes]", "[sizes", "not valid TOML"),
    "unknown key": ("about =", "abuot =", r"abuot: unknown key .did you mean 'about'"),
    "no parameter": ("WPT * WG <= 8192", "WPT * WGG <= 8192", r"names 'WGG'.*did you mean 'WG'"),
    "nothing valid": ("WPT * WG <= 8192", "WPT * WG <= 8", "no configuration is valid"),
    "kernel missing": ('"saxpy.cl"', '"nowhere.cl"', "no file 'nowhere.cl'"),
    "reference": ('"alpha * x + y"', '"alpha * z + y"', "unknown name 'z'"),
    "no reference": (
        '[reference]\nnumpy = { y = "alpha * x + y" }\n',
        "",
        r"reference: missing.*; write \[reference\] with one of numpy =",
    ),
    "words in the reference": (
        "[choices]",
        '[choices]\nSCALE = ["1", "2"]',
        r"'SCALE' is a choice of words; write its values as numbers, \[1, \.\.\.\]",
    ),
}


@pytest.mark.parametrize("command", ["check --no-run", "search --trials 1"])
@pytest.mark.parametrize("name", BROKEN_STUDIES)
def test_a_broken_study_is_one_line(name: str, command: str) -> None:
    old, new, message = BROKEN_STUDIES[name]
    change(old, new)
    if name == "words in the reference":
        change('"alpha * x + y"', '"SCALE * x + y"')
    verb, *options = command.split()
    assert re.search(message, one_error(run(verb, "./saxpy.toml", *options, code=2)))


@pytest.mark.parametrize("command", ["check", "search --trials 2"])
def test_a_syntax_error_in_the_kernel_is_one_line_and_the_log(command: str) -> None:
    Path("saxpy.cl").write_text(SOURCE.replace("int i", "int i i"))
    verb, *options = command.split()
    result = run(verb, "./saxpy.toml", *options, code=2)
    assert "saxpy.cl" in one_error(result)
    log = result.stderr.split("error: ", 1)[1]
    assert "expected" in log
    assert command != "check" or log.startswith("saxpy.cl: does not build; its log:\n")


BAD_WORDS = {
    "search nosuch": "no study named 'nosuch'",
    "search mtmul": "did you mean 'matmul'",
    "search ./nosuch.toml": "no such study file",
    "search ./saxpy.toml --size M=4": "no size named 'M'",
    "search ./saxpy.toml --size N=0": "not a size",
    "search ./saxpy.toml --size N=1.5": "not a size",
    "search ./saxpy.toml -d 99": "no device '99'",
    "search ./saxpy.toml -d nosuch": "no device 'nosuch'",
    "search ./saxpy.toml --choice T=int": "it can be float, double",
    "search ./saxpy.toml --choice U=int": "no choice",
    "search ./saxpy.toml --fix WG=33": "it can be 32, 64, 8192",
    "search ./saxpy.toml --fix WGG=32": "did you mean 'WG'",
    "search ./saxpy.toml --fix WG": "--fix NAME=VALUE",
    "search ./saxpy.toml --start WG=8192": "not a valid configuration",
    "search ./saxpy.toml --fix WPT=1 --start WG=32 --start WPT=2": "--start WPT=2: ",
    "search ./saxpy.toml --start WG=32,64": "2 values",
    "search ./saxpy.toml --start WG=32,WG=64": "WG is given twice",
    "search ./saxpy.toml --fix WG=32,,64": "--fix: 'WG=32,,64' has an empty item; write --fix NAME=VALUE",
    "best ./saxpy.toml --size N=64,": "--size: 'N=64,' has an empty item; write --size NAME=VALUE",
    "search ./saxpy.toml --sampler magic": "known: .*random",
    "search ./saxpy.toml --until-gain much": "no percentage",
    "search ./saxpy.toml --until-gain 0%": "no percentage",
    "search ./saxpy.toml --until-gain 1% --sampler random": "random estimates no gain",
    "search ./saxpy.toml --timeout soon": "5m",
    "search ./saxpy.toml --at-most 2": "name it with --on",
    "best nosuch": "no study named",
    "best ./saxpy.toml --format yaml": "known: .*json",
    "best ./saxpy.toml --size N=x": "not a size",
    "best ./saxpy.toml --size ,": "no size given",
    "search ./saxpy.toml --size=": "no size given",
    "best ./saxpy.toml --format header --json": "--json and --format header exclude each other",
    "best ./saxpy.toml -d 99": "no device '99'",
    "check nosuch": "no study named",
    "check ./saxpy.toml --set WG=1": "it can be",
    "check ./saxpy.toml --no-run --size X=1": "no size named",
    "history nosuch": "no study named",
    "compare ./saxpy.toml --by WGG": "did you mean 'WG'",
    "compare ./saxpy.toml --by WG --sizes big": "no list of sizes named 'big'",
    "compare ./saxpy.toml --by WG --sizes 0": "not a size",
    "compare ./saxpy.toml --by WG --chart a.pdf": "png or .svg",
    "compare ./saxpy.toml --by WG --chart no/a.png": "mkdir",
    "compare ./saxpy.toml --by WG --baselines": "no matrix product",
    "import nowhere.jsonl": "cannot be opened",
    "history --db mysql://here/x": "mysql",
}


@pytest.mark.parametrize("words", BAD_WORDS)
def test_bad_words_are_one_line(words: str) -> None:
    assert re.search(BAD_WORDS[words], one_error(run(*words.split(), code=2)))


@pytest.mark.parametrize("command", ["search", "check"])
def test_data_that_this_machine_cannot_hold_is_refused(monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setattr(sizing, "available", lambda: 1000.0)
    assert "of host memory" in one_error(run(command, "./saxpy.toml", code=2))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("search --no-such-option", "no such option: --no-such-option; autotune search --help"),
        (
            "search --trails 3",
            "no such option: --trails (did you mean --retry-failed, --trials?); autotune search --help",
        ),
        ("search --trials 1e9", "--trials: '1e9' is not a whole number of at least 1; autotune search --help"),
        ("search --trials 0", "--trials: '0' is not a whole number of at least 1; autotune search --help"),
        ("serve --port 65536", "--port: '65536' is not a whole number from 0 to 65535; autotune serve --help"),
        ("searh", "no such command 'searh' (did you mean 'search', 'serve'?); autotune --help"),
        ("--nosuch", "no such option: --nosuch; autotune --help"),
        ("compare matmul", "missing option '--by'; autotune compare --help"),
        ("token add", "missing argument 'NAME'; autotune token add --help"),
    ],
)
def test_what_the_parser_refuses_is_one_line_and_ends_with_2(words: str, said: str) -> None:
    result = run(*words.split(), code=2)
    assert result.stderr == f"error: {said}\n"
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.EMFILE, "x"), "no more files may be open in this process; allow more with ulimit -n"),
        (OSError(errno.ENOSPC, "x", "/tmp/y"), "/tmp/y: the disk is full; free some space"),
        (OSError(errno.EFBIG, "x"), "a file may not grow any further; allow more with ulimit -f"),
        (BlockingIOError(errno.EAGAIN, "x"), "no more processes may be started; allow more with ulimit -u"),
        (MemoryError(), "there is no memory left; "),
        (RuntimeError("can't start new thread"), "no more threads may be started; "),
    ],
)
def test_what_the_machine_has_run_out_of_ends_with_3(
    monkeypatch: pytest.MonkeyPatch, error: Exception, said: str
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("autotune.cli.history.Store.to_read", fail)
    assert one_error(run("history", code=3)).startswith(f"error: {said}")


def test_a_line_without_an_end_is_not_read_to_its_end() -> None:
    said = one_error(run("import", "/dev/zero", code=2))
    assert said.startswith("error: /dev/zero:1: is longer than 16,777,216 characters, so no line of autotune export; ")


def test_a_fault_of_the_program_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.cli.history.Store.to_read", lambda *_: 1 // 0)
    assert isinstance(CliRunner().invoke(app, ["history"]).exception, ZeroDivisionError)


DATABASE_COMMANDS = ["search ./saxpy.toml --trials 1", "best ./saxpy.toml", "history", "studies", "export"]


@pytest.mark.parametrize("command", DATABASE_COMMANDS)
def test_a_database_that_cannot_be_used_is_one_line(command: str) -> None:
    Path("text.db").write_text("no database " * 100)
    with closing(sqlite3.connect("newer.db")) as connection, connection:
        connection.execute("CREATE TABLE old (a)")
        connection.execute("PRAGMA user_version = 999")
    connection.close()
    messages = {"text.db": "not an SQLite database", ".": "is a directory", "newer.db": "newer.db"}
    if not command.startswith("best"):  # which answers where there is no folder either
        messages |= {"no/own.db": "mkdir -p no"}
    if command.startswith("search"):  # the others write nothing
        messages |= {"/proc/own.db": "/proc/own.db"}
    for place, message in messages.items():
        assert message in one_error(run(*command.split(), "--db", place, code=2))


def test_a_line_that_is_no_trial_names_its_number() -> None:
    assert "stdin:1: " in one_error(run("import", code=2, stdin="{}\n"))


def test_a_sampler_that_lacks_its_package_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(SAMPLERS, "gp", raising=False)
    assert "no sampler named 'gp'; pip install torch, which it needs" in one_error(
        run("search", "--sampler=gp", code=2)
    )
    assert "no sampler named 'annealing'; known: bayes" in one_error(run("search", "--sampler=annealing", code=2))


# Help ------------------------------------------------------------------------------------------------------


def commands() -> dict[str, Any]:
    import typer.main

    group: Any = typer.main.get_command(app)
    return dict(group.commands)


def test_the_version_is_printed() -> None:
    assert run("--version").stdout == f"autotune {autotune.__version__}\n"


@pytest.mark.parametrize(
    "name", ["search", "best", "devices", "studies", "check", "history", "compare", "export", "import"]
)
def test_help_has_an_example(name: str) -> None:
    shown = run(name, "--help").stdout
    assert re.search(rf"Examples?:\n  +autotune {name}", shown) or f"| autotune {name}" in shown


def test_help_tells_of_several_devices_where_several_are_taken() -> None:
    helped = {name: " ".join(run(name, "--help").stdout.split()) for name in commands() if name != "token"}
    assert {name for name, shown in helped.items() if "several: 0,1 or all" in shown} == {"search", "worker"}
