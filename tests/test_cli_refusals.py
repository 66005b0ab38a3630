"""Refusals of commands: one line that says what, where and what to type next, and the exit code."""

from __future__ import annotations

import errno
import re
import sqlite3
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from autotune.cli import app
from autotune.lookup import asking
from autotune.pool import sizing
from autotune.samplers import SAMPLERS
from tests.commands import change, one_error, own_place, run
from tests.studies import SOURCE

pytestmark = pytest.mark.device

__all__ = ["own_place"]  # a fixture


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


def test_a_size_that_a_kernel_takes_for_a_macro_is_named_with_what_makes_it_one() -> None:
    change("[sizes]\n", "[sizes]\nM = 4\n")
    Path("saxpy.cl").write_text(SOURCE.replace("int i", "int k = M, i"))
    cure = 'M is a size, not a macro: [defines] M = "M" makes it one'
    for command in (["check"], ["search", "--trials", "1"]):
        assert cure in one_error(run(*command, "./saxpy.toml", code=2))
    change("[sizes]\n", '[defines]\nM = "M"\n\n[sizes]\n')
    run("check", "./saxpy.toml")


def test_a_macro_that_replaces_what_the_kernel_declares_is_named() -> None:
    change("[sizes]\n", '[defines]\ni = "3"\n\n[sizes]\n')
    cure = "defines.i: -Di replaces what the kernel itself calls i: rename one of them"
    assert cure in one_error(run("check", "./saxpy.toml", code=2))


BAD_WORDS = {
    "search nosuch": "no study named 'nosuch'",
    "search mtmul": "did you mean 'matmul'",
    "search ./nosuch.toml": "no such study file",
    "search saxpy": "no study named 'saxpy'; the file here is ./saxpy.toml",
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
    "search ./saxpy.toml --start WG=32,WG=64": "WG is given 2 values",
    "search ./saxpy.toml --fix WG=32,,64": "--fix: 'WG=32,,64' has an empty item; write --fix NAME=VALUE",
    "best ./saxpy.toml --size N=64,": "--size: 'N=64,' has an empty item; write --size NAME=VALUE",
    "search ./saxpy.toml --sampler magic": "known: .*random",
    "search ./saxpy.toml --until-gain much": "is not a percentage",
    "search ./saxpy.toml --until-gain 0%": "is not a percentage",
    "search ./saxpy.toml --until-gain 1% --sampler random": "random cannot estimate the gain",
    "search ./saxpy.toml --timeout soon": "5m",
    "search ./saxpy.toml --at-most 2": "name it with --on",
    "best nosuch": "no study named",
    "best ./saxpy.toml --format yaml": "known: .*json",
    "best ./saxpy.toml --size N=x": "not a size",
    "best ./saxpy.toml --size ,": "no size given",
    "search ./saxpy.toml --size=": "--size: an empty value is given",
    "best ./saxpy.toml --format header --json": "--json and --format header exclude each other",
    "best ./saxpy.toml -d 99": "no device '99'",
    "check nosuch": "no study named",
    "check ./saxpy.toml --set WG=1": "it can be",
    "check ./saxpy.toml --no-run --size X=1": "no size named",
    "check ./saxpy.toml --no-run --save-build b": "--no-run and --save-build exclude each other",
    "history nosuch": "no study named",
    "compare ./saxpy.toml --by WGG": "did you mean 'WG'",
    "compare ./saxpy.toml --by WG --sizes big": "no list of sizes named 'big'",
    "compare ./saxpy.toml --by WG --sizes 0": "not a size",
    "compare ./saxpy.toml --by WG --chart a.pdf": "png or .svg",
    "compare ./saxpy.toml --by WG --chart no/a.png": "mkdir",
    "compare ./saxpy.toml --by WG --baselines": "is not a matrix product",
    "import nowhere.jsonl": "cannot be opened: .*; ls . lists what is there",
    "import ./": "cannot be opened: .*; name a file in it: ls .",
    "new nosuch.cl": "cannot be read: .*; ls . lists what is there",
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
        ("search --size", "option '--size' requires an argument; autotune search --help"),
        ("searh", "no such command 'searh' (did you mean 'search', 'serve'?); autotune --help"),
        (
            "--db x.db search",
            "no such option: --db; an option goes after its command: autotune COMMAND --db; autotune --help",
        ),
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
        (ImportError("libblas.so: failed to map segment from shared object"), "there is no memory left; "),
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


@pytest.mark.parametrize(
    "words",
    [
        ("check", "./saxpy.toml", "--save-build", ""),
        ("check", "./saxpy.toml", "--save-build="),
        ("search", "./saxpy.toml", "-d", " ", "--trials", "1"),
        ("best", "./saxpy.toml", "--db", ""),
        ("serve", "--name", ""),
        ("token", "add", "ann", "--expires="),
        ("history", "--db="),
    ],
)
def test_an_empty_value_is_refused_whatever_takes_it(words: Sequence[str]) -> None:
    before = set(Path().iterdir())
    option = next(word.rstrip("=") for word in words[1:] if re.match("--?[a-z]", word))
    said = one_error(run(*words, code=2))
    assert said == (
        f"error: {option}: an empty value is given; give it a value, or leave it out: autotune {words[0]} --help"
    )
    assert set(Path().iterdir()) == before


def test_an_empty_argument_is_refused() -> None:
    assert "an empty word is given; give it a value" in one_error(run("check", "", code=2))
    assert asking.parse(["./saxpy.toml", "--db", ""]) is asking.parse(["--db="]) is asking.parse([""]) is None


@pytest.mark.parametrize(
    ("words", "stdin", "code"),
    [
        ("import", '{"schema": 1}', 2),
        ("import", "", 0),
        ("token revoke ann", None, 2),
        ("token list", None, 0),
        ("token add console", None, 2),
        ("token add ann --role king", None, 2),
        ("token add ann --expires never", None, 2),
    ],
)
def test_who_stores_nothing_makes_no_database(words: str, stdin: str | None, code: int, tmp_path: Path) -> None:
    run(*words.split(), code=code, stdin=stdin)
    assert not (tmp_path / "own.db").exists()


def test_a_line_without_an_end_is_not_read_to_its_end() -> None:
    said = one_error(run("import", "/dev/zero", code=2))
    assert said.startswith(
        "error: /dev/zero:1: is longer than 16,777,216 characters, so not a line of autotune export; "
    )


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


def test_a_server_whose_driver_is_missing_is_the_machines_lack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    said = one_error(run("history", "--db", "postgresql://me@nowhere/x", code=3))
    assert "needs a driver for PostgreSQL; pip install" in said


def test_a_line_that_is_no_trial_names_its_number() -> None:
    assert "stdin:1: " in one_error(run("import", code=2, stdin="{}\n"))
    Path("wide.jsonl").write_bytes("{}\n".encode("utf-16"))
    assert "wide.jsonl: is not text in UTF-8; save it as such" in one_error(run("import", "wide.jsonl", code=2))


def test_a_table_of_another_tool_is_told_what_can_be_read() -> None:
    Path("t.csv").write_text("WG,time\n32,1.5\n")
    said = one_error(run("import", "t.csv", "--study", "./saxpy.toml", code=2))
    assert "; import --study reads the JSON of kernel-tuner, t4, " in said


def test_a_sampler_that_lacks_its_package_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SAMPLERS, "gp", replace(SAMPLERS["gp"], needs="no_such_torch"))
    said = one_error(run("search", "--sampler=gp", code=3))
    assert said == "error: --sampler: gp takes no_such_torch; pip install no_such_torch"
    assert "no sampler named 'no_such'; known: bayes" in one_error(run("search", "--sampler=no_such", code=2))
