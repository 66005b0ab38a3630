"""A question asked again: answered from memory, and never stale."""

from __future__ import annotations

import copy
import os
import sqlite3
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from itertools import count, takewhile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import autotune
from autotune.errors import AutotuneError
from autotune.lookup import warm
from autotune.lookup.answer import Launched, best
from autotune.study import YOUNG_NS, Problem, Study, find_study, watched
from autotune.study.library import is_file
from tests.commands import STUDY
from tests.stored import DEVICE, ok, put_in
from tests.studies import SOURCE, study

SLOW, FAST = {"WPT": 1, "WG": 64}, {"WPT": 4, "WG": 32}
Ask = Callable[[], tuple[Any, bool]]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the study and a best, all written a while ago."""
    (tmp_path / "saxpy.toml").write_text(STUDY)
    (tmp_path / "saxpy.cl").write_text(f'#include "more.h"\n{SOURCE}')
    (tmp_path / "more.h").write_text("// more\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AUTOTUNE_DB", "a.db")
    for kept in (warm._studies, warm._answers, warm._here):
        kept.clear()
    store(tmp_path, SLOW, 500)
    return tmp_path


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Ask, and return whether the answer was looked up."""
    asked: list[int] = []
    monkeypatch.setattr(
        "autotune.lookup.warm.best", lambda *words, **options: asked.append(1) or best(*words, **options)
    )

    def once() -> tuple[Any, bool]:
        asked.clear()
        return autotune.best("./saxpy.toml", device=DEVICE.fingerprint), bool(asked)

    return once


def store(folder: Path, configuration: dict[str, Any], ns: int) -> None:
    problem = Problem(Study.load("./saxpy.toml"), device=DEVICE)
    put_in(folder / "a.db", [ok(configuration, *[ns] * 6)], key=problem.key, device=DEVICE)
    age(folder)


def age(folder: Path) -> None:
    """Make everything look written so long ago that its stamp is trusted."""
    then = time.time_ns() - 10 * YOUNG_NS
    for file in (*folder.rglob("*"), folder):
        os.utime(file, ns=(then, then))


def test_a_program_whose_folder_was_removed_is_answered(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_DB", str(folder / "a.db"))
    gone = folder / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    for _ in range(2):
        assert autotune.best(str(folder / "saxpy.toml"), device=DEVICE.fingerprint).configuration == SLOW
    assert autotune.best("matmul", device=DEVICE.fingerprint).match == "default"
    with pytest.raises(AutotuneError, match=r"no such study file: \./saxpy\.toml"):
        autotune.best("./saxpy.toml", device=DEVICE.fingerprint)
    for database in ("a.db", "sqlite:///a.db"):
        with pytest.raises(AutotuneError, match=r"^a\.db: begins in the folder here, which was removed; give "):
            autotune.best(str(folder / "saxpy.toml"), device=DEVICE.fingerprint, database=database)


def test_what_has_not_changed_is_not_looked_up_again(folder: Path, ask: Ask) -> None:
    first, looked_up = ask()
    assert looked_up
    assert first.match == "exact"
    age(folder)
    ask()
    again, looked_up = ask()
    assert not looked_up
    assert again == first
    before = copy.deepcopy(first)
    for table in (again.configuration, again.size, again.choices, again.measured_size):
        table["WPT"] = 99
    assert ask()[0] == before


def test_a_new_best_a_new_kernel_and_a_new_include_are_noticed(folder: Path, ask: Ask) -> None:
    ask()
    assert ask()[1] is False
    store(folder, FAST, 100)
    found, looked_up = ask()
    assert looked_up
    assert found.configuration == FAST
    for name, text in (("more.h", "// other\n"), ("saxpy.cl", SOURCE), ("saxpy.toml", STUDY.replace("2.5", "3.5"))):
        age(folder)
        ask()
        assert ask()[1] is False
        (folder / name).write_text(text)
        found, looked_up = ask()
        assert looked_up, name
        assert found.match == "changed"


def test_what_waits_in_the_log_of_a_linked_database_is_noticed(folder: Path, ask: Ask) -> None:
    (folder / "far").mkdir()
    (folder / "a.db").rename(folder / "far" / "real.db")
    (folder / "a.db").symlink_to("far/real.db")
    with closing(sqlite3.connect("far/real.db")) as reader:  # who reads keeps the log from going into the file
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM trials").fetchall()
        age(folder)
        for _ in range(2):
            assert ask()[0].configuration == SLOW
        problem = Problem(Study.load("./saxpy.toml"), device=DEVICE)
        put_in(folder / "a.db", [ok(FAST, *[100] * 6)], key=problem.key, device=DEVICE)
        assert ask()[0].configuration == FAST


def test_a_study_that_comes_to_hide_another_is_noticed(folder: Path) -> None:
    for _ in range(2):
        assert autotune.best("matmul", device=DEVICE.fingerprint).study == "matmul"
        age(folder)
    (folder / "studies").mkdir()
    (folder / "studies" / "matmul.toml").write_text(STUDY.replace('"saxpy"', '"mine"'))
    (folder / "studies" / "saxpy.cl").write_text(SOURCE)
    assert autotune.best("matmul", device=DEVICE.fingerprint).study == "mine"


def test_what_was_written_this_moment_is_looked_up_until_it_has_settled(folder: Path, ask: Ask) -> None:
    ask()
    os.utime(folder / "a.db")
    assert ask()[1] is True
    assert ask()[1] is True


def test_what_changes_while_it_is_read_is_read_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device, later_ns = DEVICE.fingerprint, [0]

    def change(name: str) -> Any:
        text = find_study(name)
        (folder / "saxpy.cl").write_text(SOURCE)
        later_ns[0] = 10**9  # a machine that was busy
        return text

    with monkeypatch.context() as patched:
        patched.setattr(warm, "time", SimpleNamespace(time_ns=lambda: time.time_ns() + later_ns[0]))
        patched.setattr(warm, "find_study", change)
        assert autotune.best("./saxpy.toml", device=device).match == "exact"
    assert autotune.best("./saxpy.toml", device=device).match == "changed"


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Python tells no instructions")
def test_who_begins_to_watch_is_told_whatever_another_thread_is_at() -> None:
    monitoring: Any = vars(sys)["monitoring"]
    tool = monitoring.OPTIMIZER_ID
    code, event = vars(watched)["__wrapped__"].__code__, monitoring.events.INSTRUCTION

    def names_of_one_begun_at(moment: int) -> set[str] | None:
        """Begin at that instruction of another's end; None where it has fewer."""
        steps, begun, found = count(), ExitStack(), list[set[str]]()

        def meet(*_: object) -> None:
            if next(steps) == moment:
                found.append(begun.enter_context(watched()))

        with begun:
            with watched():
                monitoring.register_callback(tool, event, meet)
            monitoring.register_callback(tool, event, None)
            is_file("a.cl")
        return found[0] if found else None

    monitoring.use_tool_id(tool, "test")
    try:
        monitoring.set_local_events(tool, code, event)
        told = list(takewhile(lambda names: names is not None, map(names_of_one_begun_at, count())))
    finally:
        monitoring.free_tool_id(tool)
    assert len(told) > 1
    assert all(names == {"a.cl"} for names in told)


def test_sizes_choices_and_databases_are_questions_of_their_own(folder: Path) -> None:
    device = DEVICE.fingerprint
    for _ in range(2):
        assert autotune.best("./saxpy.toml", device=device).match == "exact"
        assert autotune.best("./saxpy.toml", device=device, size={"N": 7}).match == "nearest size"
        assert autotune.best("./saxpy.toml", device=device, choices={"T": "double"}).match == "default"
        assert autotune.best("./saxpy.toml", device=device, database="b.db").match == "default"
        with pytest.raises(autotune.AutotuneError):
            autotune.best("./saxpy.toml", device=device, size={"N": [1]})  # type: ignore[dict-item]


def test_a_record_tells_how_the_kernel_is_built_and_launched(folder: Path) -> None:
    found = autotune.best(study(), device=DEVICE.fingerprint, size={"N": 1000})
    assert found.match == "default"
    assert found.defines == {"T": "float", "WPT": "1", "WG": "64", "FAST": "0", "SPAN": "64"}
    assert found.launches == (Launched("saxpy", (1024,), (64,)),)
    known = autotune.best("./saxpy.toml", device=DEVICE.fingerprint)
    assert known.launches == (Launched("saxpy", (1024,), (64,)),)
    assert known.defines["WPT"] == "1"
