"""The file that a command writes: replaced completely or not at all; links stay; no file that was read is replaced."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from autotune.cli import app
from autotune.cli.files import replacing, require_spare, writing
from autotune.errors import UsageError
from autotune.store import Store
from autotune.study import default_size, find_study, problem_key
from tests.stored import DEVICE, ok, put


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AUTOTUNE_DB", str(tmp_path / "own.db"))
    with Store.open() as store:
        put(store, [ok({"A": 1}, 5)])
    return tmp_path


def typed(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def one_line(result: Result) -> str:
    assert result.exit_code == 2, result.output
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    return line


def listed(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("ending", ["", "-wal", "-shm", "-journal"])
def test_the_database_in_use_is_not_written_over(here: Path, ending: str) -> None:
    before = (here / "own.db").read_bytes()
    assert "own.db" + ending + ": is the database in use" in one_line(typed("export", f"own.db{ending}"))
    (here / "link").symlink_to(f"own.db{ending}")
    assert "is the database in use" in one_line(typed("export", "link"))
    assert "is the database in use" in one_line(typed("export", "x.db", "--db", "x.db"))
    assert (here / "own.db").read_bytes() == before
    assert not (here / "x.db").exists()


@pytest.mark.parametrize("ending", ["", "-wal", "-shm", "-journal"])
def test_a_database_in_use_by_a_link_is_not_written_over(here: Path, ending: str) -> None:
    (here / "link.db").symlink_to("own.db")
    assert "is the database in use" in one_line(typed("export", f"own.db{ending}", "--db", "link.db"))


@pytest.mark.parametrize("words", [["export", "other.html"], ["report", "scale", "-o", "other.html"]])
def test_no_other_database_is_written_over(here: Path, words: list[str]) -> None:
    if words[0] == "report":
        pytest.importorskip("jinja2", reason="pages need Jinja2; pip install '.[serve]'")
    with Store.open("other.html") as store:
        put(store, [ok({"A": 1}, 5)])
    before = (here / "other.html").read_bytes()
    assert "is a database, and is not overwritten; name another file" in one_line(typed(*words))
    assert (here / "other.html").read_bytes() == before


STUDY = """
name = "two"
kernel = "two.cl"
sizes = { N = 64 }
parameters.WG.values = [8, 16]
arguments.y = { type = "float", shape = ["N"], access = "out" }
launch = [{ entry = "two", global = ["N"], local = ["WG"], arguments = ["y"] }]
reference.numpy = { y = "zeros(N)" }
"""


@pytest.mark.parametrize("name", ["two.toml", "two.cl", "two.h"])
def test_neither_a_study_nor_its_kernel_is_written_over(here: Path, name: str) -> None:
    (here / "two.toml").write_text(STUDY)
    (here / "two.cl").write_text('#include "two.h"\nkernel void two(global float *y) { y[get_global_id(0)] = 0; }\n')
    (here / "two.h").write_text("// mine\n")
    before = (here / name).read_text()
    text = find_study("./two.toml")
    key = problem_key(text, default_size(text), {}, DEVICE.fingerprint)
    with Store.open() as store:
        put(store, [ok({"WG": 8}, 5)], key=key)
    for format in ("csv", "header"):
        told = one_line(typed("export", name, "--format", format, "--study", "./two.toml"))
        assert told == f"error: {name}: is an input of this command, and is not overwritten; name another file"
    if not name.endswith(".h"):
        assert " and is not overwritten; name another file" in one_line(typed("export", name))
    assert (here / name).read_text() == before


def test_what_a_check_keeps_is_not_its_own_kernel(here: Path) -> None:
    (here / "two.toml").write_text(STUDY.replace("two.cl", "kernel.cl"))
    (here / "kernel.cl").write_text("// mine\nkernel void two(global float *y) { y[get_global_id(0)] = 0; }\n")
    assert "kernel.cl: is an input of this command" in one_line(typed("check", "./two.toml", "--save-build", "."))


def test_a_file_is_whole_or_as_it_was(here: Path) -> None:
    file = here / "out.txt"
    file.write_text("before")
    before = listed(here)
    with pytest.raises(ZeroDivisionError), writing(file) as out:
        out.write("half" + str(1 // out.tell()))
    assert file.read_text() == "before"
    with pytest.raises(UsageError, match="cannot be written: No space left"), replacing(file):
        raise OSError(28, os.strerror(28))
    assert listed(here) == before
    with writing(file) as out:
        out.write("after")
    assert file.read_text() == "after"
    assert listed(here) == before


def test_mode_and_link_stay(here: Path) -> None:
    (here / "out.txt").touch()
    (here / "out.txt").chmod(0o640)
    (here / "link").symlink_to("out.txt")
    with writing(Path("link")) as out:
        out.write("x")
    assert (here / "link").is_symlink()
    assert (here / "out.txt").read_text() == "x"
    assert stat.S_IMODE((here / "out.txt").stat().st_mode) == 0o640
    with writing(Path("new.txt")) as out:
        out.write("x")
    (here / "as_usual.txt").touch()
    assert (here / "new.txt").stat().st_mode == (here / "as_usual.txt").stat().st_mode


def test_a_pipe_is_written_itself(here: Path) -> None:
    os.mkfifo("pipe")
    found: list[str] = []
    reader = threading.Thread(target=lambda: found.append((here / "pipe").read_text()))
    reader.start()
    with writing(Path("pipe")) as out:
        out.write("x")
    reader.join()
    assert found == ["x"]
    with writing(Path("/dev/null")) as out:
        out.write("x")


def test_what_cannot_be_written_is_one_line(here: Path) -> None:
    with (
        pytest.raises(UsageError, match=r"nowhere/out\.txt: cannot be written: No such file .*; mkdir -p nowhere$"),
        writing(Path("nowhere/out.txt")),
    ):
        pass
    with pytest.raises(UsageError, match="cannot be written: Is a directory"), writing(here):
        pass
    require_spare(Path("nowhere/out.txt"))


def test_in_a_folder_that_was_removed_nothing_can_be_written_in_one_line(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "gone").mkdir()
    monkeypatch.chdir(here / "gone")
    (here / "gone").rmdir()
    with (
        pytest.raises(UsageError, match=r"^out\.txt: cannot be written: No such file or directory$"),
        writing(Path("out.txt")),
    ):
        pass
    assert one_line(typed("export", "out.jsonl")).startswith("error: out.jsonl: cannot be written: ")


@pytest.mark.parametrize("command", ["new", "import-study"])
def test_a_pipe_is_not_waited_for(here: Path, command: str) -> None:
    os.mkfifo("pipe.cl")
    assert one_line(typed(command, "pipe.cl")).startswith("error: pipe.cl: is not a file; name one")


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["export", "NAME"],
        ["export", "NAME", "--format", "csv", "--study", "sgemm"],
        ["export", "NAME", "--format", "optuna", "--study", "sgemm"],
        ["check", "matmul", "--no-run", "--save-build", "NAME"],
        ["compare", "sgemm", "--by", "VARIANT", "--no-search", "--chart", "NAME/x.svg"],
        ["report", "sgemm", "-o", "NAME.html"],
        ["import-study", "NAME"],
        ["new", "NAME"],
        ["import", "NAME"],
        ["best", "./NAME.toml"],
    ],
    ids=" ".join,
)
def test_a_path_that_cannot_be_looked_at_is_no_traceback(here: Path, words: list[str]) -> None:
    """For example in another user's folder; a name that is too long cannot be looked at by root either."""
    if words[0] == "report":
        pytest.importorskip("jinja2", reason="pages need Jinja2; pip install '.[serve]'")
    found = typed(*(word.replace("NAME", "n" * 300) for word in words))
    assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
    assert found.exit_code in (0, 2), found.output
