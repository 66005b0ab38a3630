"""Databases of every version since the first can be opened, and become the same as a new one.

`python -m tests.test_migrations` writes the file of this version: tests/data/version_N.db.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import create_engine, inspect

from autotune import lookup
from autotune.errors import StoreError
from autotune.model import Measurement, Outcome, Trial
from autotune.store import Store
from autotune.store.location import SCHEMA_VERSION
from autotune.store.migrations import MIGRATIONS
from autotune.store.presence import this_process
from autotune.store.schema import metadata
from autotune.study import find_study
from tests.stored import DEVICE, KEY, MADE, columns, ok, put_in

DATA = Path(__file__).parent / "data"


def test_the_version_is_the_number_of_migrations() -> None:
    assert len(MIGRATIONS) == SCHEMA_VERSION


def test_every_version_has_its_old_file(tmp_path: Path) -> None:
    assert {path.name for path in DATA.glob("version_*.db")} == {f"version_{n + 1}.db" for n in range(SCHEMA_VERSION)}
    write(tmp_path / "this.db")
    shutil.copy(DATA / f"version_{SCHEMA_VERSION}.db", tmp_path / "kept.db")
    assert columns(tmp_path / "this.db") == columns(tmp_path / "kept.db")
    this, kept = (held(tmp_path / name) for name in ("this.db", "kept.db"))
    assert this == kept


@pytest.mark.parametrize("version", range(1, SCHEMA_VERSION + 1))
def test_an_old_database_opens_with_everything_in_it(tmp_path: Path, version: int) -> None:
    """The old files hold one search of KEY: A=1 re-timed, A=2 failed, A=3 pending; written by that version."""
    path = tmp_path / "old.db"
    shutil.copy(DATA / f"version_{version}.db", path)
    with Store.open(str(path)) as store:
        one, two = store.trials(KEY)
        assert (one.configuration, one.outcome, one.time_ns) == ({"A": 1, "B": "x"}, Outcome.OK, 90)
        assert one.measurement is not None
        assert one.measurement.samples_ns == (100, 101, 102)
        assert (two.outcome, two.reason) == (Outcome.LAUNCH_ERROR, "CL_INVALID_WORK_GROUP_SIZE")
        assert len(list(store.export_lines())) == 3
    assert columns(path) == columns(new(tmp_path))


@pytest.mark.parametrize("version", range(1, SCHEMA_VERSION + 1))
def test_what_an_old_database_exports_is_the_same_after_an_import(tmp_path: Path, version: int) -> None:
    """Facts of a device that were not yet recorded then stay unknown."""
    shutil.copy(DATA / f"version_{version}.db", tmp_path / "old.db")
    with Store.open(str(tmp_path / "old.db")) as old, Store.open(str(tmp_path / "new.db")) as new:
        lines = list(old.export_lines())
        assert new.import_lines(lines) == old.import_lines(lines) + len(lines)
        assert list(new.export_lines()) == list(old.export_lines()) == lines


def test_the_tables_are_what_the_migrations_made(tmp_path: Path) -> None:
    own, stored = create_engine("sqlite://"), create_engine(f"sqlite:///{new(tmp_path)}")
    metadata.create_all(own)
    made, told = inspect(stored), inspect(own)
    assert set(made.get_table_names()) - {"schema_version"} == set(told.get_table_names())
    for table in metadata.tables:
        assert shape(made, table) == shape(told, table), f"{table}: what a migration adds stands last in its list"
    for engine in (own, stored):
        engine.dispose()


def shape(inspector: object, table: str) -> list[object]:
    """Return columns with their types, and indexes."""
    found = [
        (column["name"], str(column["type"]).replace("BIGINT", "INTEGER").replace("DOUBLE", "REAL"), column["nullable"])
        for column in inspector.get_columns(table)  # type: ignore[attr-defined]
        if column["name"] != "id"
    ]
    indexes = inspector.get_indexes(table)  # type: ignore[attr-defined]
    return [found, sorted((index["name"], index["column_names"]) for index in indexes)]


def new(tmp_path: Path) -> Path:
    Store.open(str(tmp_path / "new.db")).close()
    return tmp_path / "new.db"


def test_a_database_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "newer.db"
    put_in(path, [ok({"A": 1}, 5)])
    connection = sqlite3.connect(path)
    connection.execute("UPDATE schema_version SET version = 99")
    connection.commit()
    connection.close()
    text = find_study("matmul")
    for action in (
        lambda: Store.open(str(path)),
        lambda: lookup.best(text, {"M": 1, "N": 1, "K": 1}, {"T": "float"}, "x-1cu", database=str(path)),
    ):
        with pytest.raises(StoreError, match="is of version 99, newer than this program's") as raised:
            action()
        assert raised.value.exit_code == 2


@pytest.mark.parametrize(
    ("process", "ago", "refused"),
    [
        (this_process(), timedelta(), True),
        (this_process(), timedelta(hours=2), False),
        ("another machine's", timedelta(), True),
        (f"{this_process().rpartition(':')[0]}:0", timedelta(), False),
    ],
    ids=["here", "quiet", "elsewhere", "dead"],
)
def test_nothing_is_changed_under_a_search_of_an_older_version(
    tmp_path: Path, process: str, ago: timedelta, refused: bool
) -> None:
    path = tmp_path / "old.db"
    shutil.copy(DATA / "version_1.db", path)
    then = (datetime.now(UTC) - ago).isoformat()
    with closing(sqlite3.connect(path)) as connection, connection:
        known = {"started": then, "environment": json.dumps({"process": process})}
        connection.execute("UPDATE searches SET ended = NULL, started = :started, environment = :environment", known)
        connection.execute("UPDATE trials SET started = ?", (then,))
    if refused:
        with pytest.raises(StoreError, match="a search of an older autotune is running; type it again once"):
            Store.open(str(path))
        assert "standings" not in columns(path)
    else:
        Store.open(str(path)).close()
        assert "standings" in columns(path)


def test_who_has_it_open_writes_nothing_into_what_a_newer_version_has_changed(tmp_path: Path) -> None:
    put_in(tmp_path / "a.db", [ok({"A": 1}, 5)])
    with Store.open(str(tmp_path / "a.db")) as store:
        with closing(sqlite3.connect(tmp_path / "a.db")) as connection, connection:
            connection.execute("UPDATE schema_version SET version = 99")
        with pytest.raises(StoreError, match="is of version 99, newer than this program's"):
            store.start_search(KEY, DEVICE, sampler="random", seed=1)


def test_a_migration_that_fails_leaves_the_database_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def half(connection: object) -> None:
        MIGRATIONS[0](connection)  # type: ignore[arg-type]
        raise InterruptedError

    monkeypatch.setattr("autotune.store.migrations.MIGRATIONS", (half,))
    with pytest.raises(InterruptedError):
        Store.open(str(tmp_path / "x.db"))
    assert columns(tmp_path / "x.db") == {}
    monkeypatch.undo()
    with Store.open(str(tmp_path / "x.db")) as store:
        assert store.counts() == {}


def write(path: Path) -> None:
    """Write a database of this version with one search of KEY: A=1 re-timed, A=2 failed, A=3 pending."""
    tried = [{"A": value, "B": "x"} for value in (1, 2, 3)]
    timed = Trial(tried[0], Outcome.OK, measurement=Measurement((100, 101, 102)), made=MADE)
    with Store.open(str(path)) as store:
        search = store.start_search(KEY, DEVICE, sampler="random", seed=1)
        one, two, _ = store.begin(search, tried)
        store.finish([(one, timed), (two, Trial(tried[1], Outcome.LAUNCH_ERROR, "CL_INVALID_WORK_GROUP_SIZE"))])
        store.retime(search, [(tried[0], Measurement((90,)))])


def held(path: Path) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        query = "SELECT configuration, outcome, reason, samples_ns, made, driver FROM trials UNION ALL "
        query += "SELECT samples_ns, warmup_ns, cache, time_ns, driver, '' FROM retimings"
        return connection.execute(query).fetchall()


if __name__ == "__main__":
    (DATA / f"version_{SCHEMA_VERSION}.db").unlink(missing_ok=True)
    write(DATA / f"version_{SCHEMA_VERSION}.db")
