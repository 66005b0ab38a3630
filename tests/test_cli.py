"""The commands as a user types them: in this process, on the real device, with a database of their own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from subprocess import PIPE
from typing import Any
from unittest.mock import Mock

import pytest

import autotune
from autotune import cli
from autotune.cli import app, interrupt
from autotune.devices import find_device, linker, load_backend, select
from autotune.ranking import confidence
from tests.commands import STUDY, VALID, change, one_error, own_place, run, searched, stored
from tests.processes import has_ended
from tests.stored import KEY, ok, put_in

pytestmark = pytest.mark.device

__all__ = ["own_place", "searched", "stored"]  # fixtures


ENDLESS = "{ if (get_global_id(0) == 0) while (((volatile global T *)y)[0] < 100);"


# What a user does ------------------------------------------------------------------------------------------


def test_search_prints_the_best_and_the_next_command_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    change("[1, 2, 4]", "[1, 2]")
    valid = 4  # as VALID
    with monkeypatch.context() as patch:
        patch.setattr("autotune.tuner.loop.RETIME_S", 3.0)  # time for the turns of a 95 % interval on a busy machine
        first = run("search", "./saxpy.toml", "--trials", "1")  # a single finalist: it takes no longer than that
    for part in (
        "1 new trial ",
        "WPT=",
        " % interval",
        "verified in",
        "GFLOPS",
        "GB/s",
        "default",
        "build",
        f"of {valid} valid configurations are tried\n",
    ):
        assert part in first.stdout
    assert re.search(r"next +autotune best \./saxpy\.toml -d \S+ --format defines", first.stdout)
    assert "search: 1/1 trial, best " in first.stderr
    second = run("search", "./saxpy.toml", "--trials", "50")
    assert f"{valid - 1} new trials and 1 stored" in second.stdout
    assert "nothing left" in second.stdout
    assert "space exhausted" in second.stdout


def test_what_is_fixed_is_told_of_beside_the_command_and_not_within_it() -> None:
    said = run("search", "./saxpy.toml", "--trials", "1", "--seed", "1", "--fix", "WG=32")
    assert re.search(r"next +autotune best \./saxpy\.toml -d \S+ --format defines\n +which considers", said.stdout)
    assert "the study's default is left out by --fix; the nearest valid one is used: WG=32 instead of 64" in said.stderr
    assert "the best is the valid one nearest to the study's default" in said.stdout


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
    assert found["best"]["confidence"] == confidence(found["best"]["runs"])
    assert found["default_moved"] == {}


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
    result = run("search", "./saxpy.toml", "--trials", "1", "--run-limit", "0.3s", code=1)
    assert "no configuration passed; --run-limit 5m gives a run more time" in one_error(result)
    assert "no answer within 0.3 s" in result.stdout
    assert "--run-limit" in one_error(run("search", "./saxpy.toml", "--run-limit", "soon", code=2))


@pytest.mark.processor
def test_a_reference_that_ends_the_worker_is_the_studys_error() -> None:
    """The machine's memory is not the cause: the kernel writes to an invalid address."""
    kernel = Path("saxpy.cl")
    kernel.write_text(re.sub(r"\{", "{ *(volatile global int *)(size_t)(N + 8) = 1;", kernel.read_text(), count=1))
    change('numpy = { y = "alpha * x + y" }', "configuration = { WPT = 1, WG = 32 }")
    for command in (["check", "./saxpy.toml"], ["search", "./saxpy.toml", "--trials", "2"]):
        said = one_error(run(*command, code=2))
        assert "saxpy.toml: reference: its kernel ended the worker: the worker died while it" in said
        assert "(SIGSEGV); if it accesses memory outside its buffers, fix their shape" in said


def test_a_reference_that_takes_too_long_says_what_to_give_it() -> None:
    kernel = Path("saxpy.cl")
    kernel.write_text(kernel.read_text().replace("{", ENDLESS, 1))
    change('numpy = { y = "alpha * x + y" }', "configuration = { WPT = 1, WG = 32 }")
    result = run("check", "./saxpy.toml", "--run-limit", "0.3s", code=4)
    assert "the reference does not finish: no answer within 0.3 s" in one_error(result)
    assert one_error(result).endswith("; ask for a smaller --size, or give a run more time by --run-limit")


def test_the_log_is_of_a_level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_LOG", "all")
    assert one_error(run("devices", code=2)) == "error: AUTOTUNE_LOG: 'all' is not a level; set it to debug"


def test_what_search_and_workers_say_can_be_read_and_their_files_kept(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "tests.brief", "search", "./saxpy.toml", "--trials", "1"]
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
    words = [sys.executable, "-m", "tests.brief", "search", "./saxpy.toml", "--timeout", "60s", "--seed", "1"]
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
    assert len(re.findall(r"^20\S+ [\d:]{8} UTC  saxpy ", shown, re.MULTILINE)) == 3
    assert "wrong_result" in shown
    rows = json.loads(run("history", "--json", "--failed").stdout)
    assert [row["outcome"] for row in rows] == ["wrong_result"]
    assert rows[0]["configuration"] == {"WPT": 1, "WG": 64}
    assert len(json.loads(run("history", "--json", "--limit", "1").stdout)) == 1
    assert run("history", "--json", "--limit", "9" * 30).stdout == run("history", "--json").stdout
    assert run("history", "--json", "-d", rows[0]["device"]).stdout == run("history", "--json").stdout


def test_history_has_sizes_as_the_study_orders_them_and_no_spread_of_a_single_time(tmp_path: Path) -> None:
    key = KEY._replace(study="matmul", size={"M": 3, "N": 2, "K": 1})
    put_in(tmp_path / "a.db", [ok({"PAD": 1}, 5), ok({"PAD": 2}, 5, 5)], key=key)
    shown = run("history", "--db", str(tmp_path / "a.db")).stdout
    assert (shown.count("M=3 N=2 K=1"), shown.count("±")) == (2, 1)
    change('name = "saxpy"', 'name = "mine"')  # found by its file alone
    change("[sizes]", "[sizes]\nZ = 1")
    put_in(tmp_path / "b.db", [ok({"WPT": 1}, 5)], key=KEY._replace(study="mine", size={"Z": 1, "N": 2}))
    assert "Z=1 N=2" in run("history", "./saxpy.toml", "--db", str(tmp_path / "b.db")).stdout


def test_when_a_token_expires_is_told_with_its_zone() -> None:
    run("token", "add", "ann", "--expires", "1d")
    assert re.search(r"^ann +read .* \d\d:\d\d UTC +good$", run("token", "list").stdout, re.MULTILINE)


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
    monkeypatch.setattr(select, "_listing", [])  # a search in this process has another one list its devices
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
    Path("studies/mine.toml").write_text(STUDY.replace("saxpy.cl", "../saxpy.cl"))
    Path("studies/broken.toml").write_text("name = ")
    rows = {row["study"]: row for row in json.loads(run("studies", "--json").stdout)}
    assert {"sgemm", "matmul", "matmul_rect", "product_sum", "element_mult", "saxpy", "broken"} <= set(rows)
    assert (rows["saxpy"]["valid"], rows["saxpy"]["trials"]) == (VALID, 2)
    assert rows["mine"]["trials"] == 2, "results go by what the study calls itself"
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
    assert run(name, "-h").stdout == shown


def test_the_list_of_commands_cuts_no_sentence_short() -> None:
    for group in ((), ("token",)):
        shown = run(*group, "--help").stdout.partition("Commands:")[2]
        assert " " in shown.strip()
        assert "..." not in shown


@pytest.mark.parametrize("words", [[], ["--help"], ["--nonsense"], ["serch"], ["--", "serch"]], ids=" ".join)
def test_commands_are_listed_without_being_loaded_as_they_say(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = run(*words, code=0 if words == ["--help"] else 2)
    monkeypatch.setattr(cli, "_app", cli._app.__wrapped__)
    monkeypatch.setattr(cli, "import_module", Mock(side_effect=AssertionError("is loaded")))
    monkeypatch.setattr(sys, "argv", ["root"])  # as the runner calls it
    monkeypatch.setattr(sys.modules["__main__"], "__package__", None)  # `python -m pytest` sets it
    with pytest.raises(SystemExit) as ended:
        cli.run(words)
    assert ended.value.code == said.exit_code
    assert capsys.readouterr() == (said.stdout, said.stderr)


def test_help_tells_of_several_devices_where_several_are_taken() -> None:
    helped = {name: " ".join(run(name, "--help").stdout.split()) for name in commands() if name != "token"}
    assert {name for name, shown in helped.items() if "several: 0,1 or all" in shown} == {"search", "worker"}
    for name, shown in helped.items():
        assert cli._COMMANDS[name][1] in shown, "its line in cli/__init__.py is how its docstring begins"


def test_help_tells_which_device_and_size_stand_for_none_given() -> None:
    for name in set(commands()) - {"token"}:
        options = " ".join(run(name, "--help").stdout.partition("Options:")[2].split())
        for option in ("--device DEVICE", "--size M=1024,N=512"):
            told = re.search(rf"{option} (.*?)(?: -\S+ |$)", options)
            assert told is None or "Default: " in told[1], (name, option)
