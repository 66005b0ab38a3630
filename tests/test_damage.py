"""Databases with any content: every command ends with an exit code that the README lists."""

from __future__ import annotations

import os
import random
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import pytest
from typer.testing import CliRunner

from autotune.cli import app
from autotune.errors import StoreError
from autotune.lookup.records import open_records
from autotune.model import Measurement, Outcome, Trial
from autotune.store import Location, Store, listing
from autotune.study import default_choices, default_configuration, default_size, find_study, problem_key
from tests.stored import DEVICE, columns, ok, put

STUDY = "element_mult"
CODES = {0, 1, 2}
VALUES = (
    None,
    -1,
    2**62,
    1.5,
    float("inf"),
    "",
    "x",
    "[]",
    "{}",
    "[[]]",
    '{"A":[1]}',
    '["1"]',
    "7",
    "1e999",
    b"\xff\0",
    "[" * 3000,
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database in one file with something in every table."""
    path = tmp_path_factory.mktemp("whole") / "whole.db"
    text = find_study(STUDY)
    key = problem_key(text, default_size(text), default_choices(text), DEVICE.fingerprint)
    default = default_configuration(text)
    with Store.open(str(path)) as store:
        search = put(store, [ok(default, 5, 6, 7), Trial(default, Outcome.CRASH, reason="it fell")], key=key)
        store.retime(search, [(default, Measurement((5, 6), (9,)))])
        put(store, [ok({"A": number}, number + 1) for number in range(12)])
        store.begin(search, [default])
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode=DELETE")
    connection.close()
    return path


def answers(path: Path) -> list[str]:
    """Run the commands that read; return what went wrong."""
    wrong = []
    words = [["history", "--limit", "50"], ["history", "--json"], ["export"]]
    words += [["export", "--study", STUDY, "--format", "csv"]]
    words += [["best", STUDY, "-d", DEVICE.fingerprint, *more] for more in ([], ["--format", "json"])]
    for line in words:
        result = CliRunner().invoke(app, [*line, "--db", str(path)])
        unexpected = result.exception is not None and not isinstance(result.exception, SystemExit)
        if unexpected or result.exit_code not in CODES or (result.exit_code and "error: " not in result.stderr):
            wrong.append(f"{line[0]}: {result.exit_code} {result.exception!r} {result.stderr[-300:]}")
    return wrong


def test_a_whole_database_is_answered_from(whole: Path) -> None:
    assert answers(whole) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_bytes_that_changed(whole: Path, tmp_path: Path, seed: int) -> None:
    drawn = random.Random(seed)
    data = bytearray(whole.read_bytes())
    for _ in range(drawn.choice((1, 3, 10, 100))):
        data[drawn.randrange(len(data))] = drawn.randrange(256)
    (tmp_path / "x.db").write_bytes(data[: drawn.choice((len(data), len(data), drawn.randrange(len(data))))])
    assert answers(tmp_path / "x.db") == []


def test_what_another_user_writes_may_not_be_damaged_when_it_is_read_again(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.db"
    path.write_bytes(whole.read_bytes()[:4096])
    access = os.access
    monkeypatch.setattr(os, "access", lambda name, mode: mode != os.W_OK and access(name, mode))
    with (
        pytest.raises(StoreError, match="type it again, as its owner may just have"),
        open_records(Location(str(path))),
    ):
        pass
    with pytest.raises(StoreError, match="type it again, as its owner may just have"):
        Store.to_read(str(path))


def test_who_looks_up_in_a_damaged_database_leaves_no_file_beside_it(whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    path.write_bytes(whole.read_bytes())
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
    path.write_bytes(path.read_bytes()[:4096])
    with pytest.raises(StoreError, match="is damaged") as kept, open_records(Location(str(path))):
        pass
    assert list(tmp_path.iterdir()) == [path], kept.value


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_values_that_no_version_wrote(whole: Path, tmp_path: Path, seed: int) -> None:
    drawn = random.Random(seed)
    (tmp_path / "x.db").write_bytes(whole.read_bytes())
    connection = sqlite3.connect(tmp_path / "x.db")
    for _ in range(3):
        table, column = drawn.choice([(table, name) for table, names in columns(whole).items() for name in names])
        with suppress(sqlite3.IntegrityError):  # an id is a number even here
            connection.execute(f"UPDATE OR IGNORE {table} SET {column} = ?", (drawn.choice(VALUES),))
    connection.commit()
    connection.close()
    assert answers(tmp_path / "x.db") == []


@pytest.mark.parametrize("facts", ["x", "[]", "7", "[" * 3000])
def test_a_device_that_is_none_is_one_line(whole: Path, tmp_path: Path, facts: str) -> None:
    (tmp_path / "x.db").write_bytes(whole.read_bytes())
    with closing(sqlite3.connect(tmp_path / "x.db")) as connection, connection:
        connection.execute("UPDATE devices SET facts = ?", (facts,))
    assert answers(tmp_path / "x.db") == []


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE trials SET outcome = 'crash'",
        "UPDATE trials SET driver = 'another'",
        "UPDATE searches SET problem_id = problem_id + 1",
        "UPDATE retimings SET trial_id = trial_id + 1",
        "UPDATE standings SET time_ns = 1",
        "UPDATE retimings SET samples_ns = '[1]'",
        """UPDATE trials SET configuration = replace(configuration, '"GROUP_SIZE":64', '"GROUP_SIZE":128')""",
    ],
)
def test_a_time_is_served_only_with_its_samples_and_its_configuration(tmp_path: Path, change: str) -> None:
    path = tmp_path / "x.db"
    text = find_study(STUDY)
    key = problem_key(text, default_size(text), default_choices(text), DEVICE.fingerprint)
    default = default_configuration(text)
    with Store.open(str(path)) as store:
        store.retime(put(store, [ok(default, 5, 6, 7)], key=key), [(default, Measurement((5, 6), (9,)))])
    ask = ["best", STUDY, "-d", DEVICE.fingerprint, "--json", "--db", str(path)]
    assert CliRunner().invoke(app, ask).exit_code == 0
    connection = sqlite3.connect(path)
    assert connection.execute(change).rowcount
    connection.commit()
    connection.close()
    result = CliRunner().invoke(app, ask)
    assert result.exit_code == 2, result.output
    assert "damaged" in result.stderr


def test_what_is_damaged_is_said_by_who_writes_too(tmp_path: Path) -> None:
    path, default = tmp_path / "x.db", {"WPT": 1}
    again = [(default, Measurement((9,), verified_runs=1))]
    with Store.open(str(path)) as store:
        search = put(store, [ok(default, 5, 6, 7)])
        store.retime(search, again)
        lines = list(store.export_lines())
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE trials SET environment = 'oops'")
    with Store.open(str(path)) as store:
        with pytest.raises(StoreError, match="damaged"):
            store.retime(search, again)
        with pytest.raises(StoreError, match="damaged"):
            store.import_lines(lines)


def test_a_time_that_is_none_ranks_nothing_and_a_study_that_is_none_is_one_line(tmp_path: Path) -> None:
    path, default = tmp_path / "x.db", {"WPT": 1}
    with Store.open(str(path)) as store:
        search = put(store, [ok(default, 5, 6, 7)])
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE trials SET time_ns = 'x'")
    with Store.open(str(path)) as store:
        store.finish([(store.begin(search, [default])[0], ok(default, 8))])
        store.retime(search, [(default, Measurement((9,)))])
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute("SELECT time_ns FROM standings").fetchall() == [(9.0,)]
        connection.execute("UPDATE problems SET study = x'ff'")
        connection.execute(
            "INSERT INTO problems SELECT 99, 'a', 'b', study_hash, device, size, choices, 1 FROM problems"
        )
    with Store.open(str(path)) as store, pytest.raises(StoreError, match="damaged"):
        store.counts()


def test_what_is_no_text_is_damage_to_reports_too(whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "started.db"
    path.write_bytes(whole.read_bytes())
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE searches SET started = x'00'")
    with Store.open(str(path)) as store, pytest.raises(StoreError, match="is damaged"):
        listing.search(store, 1)


@pytest.mark.parametrize("words", [["export"], ["history"]])
@pytest.mark.parametrize(
    "change", ["UPDATE trials SET search_id = 99 WHERE id = 1", "DELETE FROM problems WHERE id = 1"]
)
def test_trials_of_no_search_are_not_left_out_in_silence(
    whole: Path, tmp_path: Path, words: list[str], change: str
) -> None:
    (tmp_path / "x.db").write_bytes(whole.read_bytes())
    with closing(sqlite3.connect(tmp_path / "x.db")) as connection, connection:
        connection.execute(change)
    result = CliRunner().invoke(app, [*words, "--db", str(tmp_path / "x.db")])
    assert result.exit_code == 2
    assert "trial" in result.stderr
    assert "of no search that is stored" in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    "script",
    [
        "CREATE VIEW mine AS SELECT 1",
        "CREATE TRIGGER mine AFTER UPDATE ON searches BEGIN DELETE FROM trials; END",
        "DROP TABLE standings; CREATE VIEW standings AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x FROM n) "
        "SELECT x FROM n",
        "CREATE VIRTUAL TABLE mine USING fts5(x)",
    ],
)
def test_what_would_run_in_a_database_is_refused(whole: Path, tmp_path: Path, script: str) -> None:
    (tmp_path / "x.db").write_bytes(whole.read_bytes())
    with closing(sqlite3.connect(tmp_path / "x.db")) as connection, connection:
        connection.executescript(script)
    before = (tmp_path / "x.db").read_bytes()
    for words in (["history"], ["best", STUDY, "-d", DEVICE.fingerprint], ["export"]):
        result = CliRunner().invoke(app, [*words, "--db", str(tmp_path / "x.db")])
        assert result.exit_code == 2
        assert "holds a view or a trigger, '" in result.stderr
    assert (tmp_path / "x.db").read_bytes() == before


def test_what_sqlite_itself_keeps_is_none_of_it(whole: Path, tmp_path: Path) -> None:
    (tmp_path / "x.db").write_bytes(whole.read_bytes())
    with closing(sqlite3.connect(tmp_path / "x.db")) as connection, connection:
        connection.executescript("ANALYZE; CREATE TABLE notes (x PRIMARY KEY, y UNIQUE); CREATE INDEX own ON notes (x)")
    assert answers(tmp_path / "x.db") == []
    assert CliRunner().invoke(app, ["history", "--db", str(tmp_path / "x.db")]).exit_code == 0


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ("UPDATE standings SET trial_id = -9", 2),
        ("UPDATE standings SET first_ns = 'x'", 2),
        ("UPDATE standings SET time_ns = -1.0", 2),
        ("UPDATE standings SET time_ns = 9e999", 2),
        ("UPDATE standings SET time_ns = x'00'", 2),
        ("UPDATE retimings SET taken = '0001-01-01T00:00:00+23:59'", 0),
        ("UPDATE trials SET finished = '9999-12-31T23:59:59-23:59'", 0),
        ("UPDATE retimings SET samples_ns = '[0]'", 0),
    ],
)
def test_a_report_of_what_nobody_stored_is_one_line(tmp_path: Path, change: str, code: int) -> None:
    pytest.importorskip("jinja2")
    with Store.open(str(tmp_path / "x.db")) as store:
        search = put(store, [ok({"A": number}, number + 1) for number in range(3)])
        store.retime(search, [({"A": 1}, Measurement((5, 6), (9,))), ({"A": 2}, Measurement((7, 6), (9,)))])
    with closing(sqlite3.connect(tmp_path / "x.db")) as connection, connection:
        connection.execute(change)
    result = CliRunner().invoke(
        app, ["report", "scale", "--db", str(tmp_path / "x.db"), "-o", str(tmp_path / "r.html")]
    )
    assert result.exit_code == code, result.output
    assert isinstance(result.exception, SystemExit | None)
    assert ("error: " in result.stderr) == bool(code)
