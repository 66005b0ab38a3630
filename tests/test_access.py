"""What goes wrong around an open database: its file goes, its server goes, its search is killed. Nothing is lost."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from sqlalchemy import Connection, event, text
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from autotune.cli.options import command
from autotune.errors import StoreError
from autotune.lookup import asking
from autotune.lookup.records import open_records
from autotune.model import Measurement, Outcome, Trial
from autotune.pool.process import state_of
from autotune.store import Store, access, database, location, openfile, presence
from autotune.store.attempts import NoSuchTrialError
from autotune.store.database import ConnectionLost, clear_errors
from autotune.store.location import Location, locate, shown
from tests.postgres import clear
from tests.stored import DEVICE, KEY, ok, put, put_in

SECRET = "s3cret"


def configurations(place: object) -> list[object]:
    with Store.open(str(place)) as store:
        return [trial.configuration["A"] for trial in store.trials(KEY)]


# The file -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rest", [(), ("-wal", "-shm")], ids=["alone", "with its log"])
def test_a_file_that_is_removed_is_written_anew(
    tmp_path: Path, rest: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.db"
    with Store.open(str(path)) as store:
        search = put(store, [ok({"A": 1}, 5)])
        begun = store.begin(search, [{"A": 2}])[0]
        for end in ("", *rest):
            (tmp_path / f"a.db{end}").unlink()
        store.finish([(begun, ok({"A": 2}, 6))])
        path.unlink()
        store.end_search(search, "done")
        assert configurations(path) == [1, 2]
    assert configurations(path) == [1, 2]
    assert capsys.readouterr().err.count("was removed meanwhile; it is written anew") == 2
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()
    assert [file.name for file in tmp_path.iterdir()] == ["a.db"]


@pytest.mark.parametrize("what", ["replaced", "replaced and read", "folder removed", "being restored"])
def test_where_it_cannot_be_written_anew_a_copy_is_kept(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(openfile, "RESTORE_S", 0.0)
    path = tmp_path / "own" / "a.db"
    path.parent.mkdir()
    with Store.open(str(path)) as store:
        search = put(store, [ok({"A": 1}, 5)])
        if what.startswith("replaced"):
            put_in(tmp_path / "other.db", [ok({"A": 7}, 5)])
            (tmp_path / "other.db").replace(path)
            if "read" in what:  # as look-ups of a server do, by a connection of their own
                with open_records(locate(str(path))):
                    pass
        elif what == "being restored":
            path.unlink()
            (path.parent / "a.db.restored").touch()
        else:
            shutil.rmtree(path.parent)
        for _ in range(2):  # the search that is stopped by it says also that it ended
            with pytest.raises(StoreError, match="what was stored is in") as raised:
                store.begin(search, [{"A": 2}])
            assert raised.value.exit_code == 2
    (kept,) = tmp_path.rglob("a-kept-*.db")
    assert str(kept) in str(raised.value)
    assert configurations(kept) == [1]
    if what.startswith("replaced"):
        assert configurations(path) == [7]


@pytest.mark.parametrize("mode", [0o600, 0o664])
def test_who_might_read_and_write_it_may(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "a.db"
    put_in(path, [])
    path.chmod(mode)
    with Store.open(str(path)):
        path.unlink()
    assert stat.S_IMODE(path.stat().st_mode) == mode


@pytest.mark.parametrize("how", ["whole", "without its log", "by another process"])
def test_a_file_that_was_moved_away_and_comes_back_is_brought_up_to_date(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless it holds what was never in the open one."""
    path, away = tmp_path / "a.db", tmp_path / "away.db"
    if how == "whole":
        put_in(path, [])
    if how == "by another process":
        restore = openfile._restore
        monkeypatch.setattr(openfile, "_restore", lambda *given: restore(*given) and len(given) < 5)
    with Store.open(str(path)) as store:
        search = put(store, [ok({"A": 1}, 5)])
        path.rename(away)
        store.finish([(store.begin(search, [{"A": 2}])[0], ok({"A": 2}, 5))])
        away.replace(path)
        assert [trial.configuration["A"] for trial in store.trials(KEY)] == [1, 2]
        assert configurations(path) == [1, 2]
        path.rename(away)
        store.finish([(store.begin(search, [{"A": 3}])[0], ok({"A": 3}, 5))])
        put_in(away, [ok({"A": 7}, 5)])
        away.replace(path)
        with pytest.raises(StoreError, match="what was stored is in"):
            store.end_search(search, "done")
    assert 7 in configurations(path)


def test_who_is_interrupted_as_it_closes_sees_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def interrupted(connection: sqlite3.Connection) -> None:
        connection.close()
        raise KeyboardInterrupt

    with Store.open(str(tmp_path / "a.db")) as store:
        with monkeypatch.context() as closing:
            closing.setattr(store._engine.dialect, "do_close", interrupted)
            with pytest.raises(KeyboardInterrupt):
                store.close()
        assert caplog.text == ""


def test_a_file_that_was_removed_from_who_only_reads_is_there_after_the_end(tmp_path: Path) -> None:
    """A server at which nobody searches."""
    path = tmp_path / "a.db"
    with Store.open(str(path)) as store:
        put(store, [ok({"A": 1}, 5)])
        path.unlink()
        assert [trial.configuration["A"] for trial in store.trials(KEY)] == [1]
    assert configurations(path) == [1]


def test_a_file_that_another_process_has_written_anew_is_gone_on_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A server, and the search that it runs: the first one to write makes the file anew, for both."""
    path = tmp_path / "a.db"
    with Store.open(str(path)) as server, Store.open(str(path)) as search:
        first = put(server, [ok({"A": 1}, 5)])
        second = put(search, [ok({"A": 2}, 6)])
        begun = search.begin(second, [{"A": 3}])[0]
        path.unlink()
        search.finish([(begun, ok({"A": 3}, 7))])
        server.end_search(first, "done")
        search.end_search(second, "done")
        assert configurations(path) == [1, 2, 3]
    assert [file.name for file in tmp_path.iterdir()] == ["a.db"]
    assert capsys.readouterr().err.count("was removed meanwhile; it is written anew") == 1


def test_a_file_is_written_anew_while_other_threads_have_it_open(tmp_path: Path) -> None:
    """A connection that is made then opens the new file."""
    path = tmp_path / "a.db"
    with Store.open(str(path)) as store, ExitStack() as at_work:
        search = put(store, [ok({"A": 1}, 5)])
        for step in (lambda: store.end_search(search, "done"), lambda: store.trials(KEY)):
            at_work.enter_context(store._reading())
            path.unlink()
            with ThreadPoolExecutor(4) as threads:
                for done in [threads.submit(step) for _ in range(4)]:
                    done.result()
            assert configurations(path) == [1]


def test_a_file_in_its_place_that_lacks_something_or_runs_something_is_not(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    for change in ("DELETE FROM trials", "UPDATE trials SET outcome = 'pending'", "CREATE VIEW v AS SELECT 1"):
        with Store.open(str(path)) as store:
            search = put(store, [ok({"A": 1}, 5), ok({"A": 2}, 6)])
            with closing(sqlite3.connect(path)) as connection:
                connection.execute("VACUUM INTO ?", (str(tmp_path / "b.db"),))
            with closing(sqlite3.connect(tmp_path / "b.db")) as connection, connection:
                connection.execute(change)
            (tmp_path / "b.db").replace(path)
            with pytest.raises(StoreError, match="what was stored is in"):
                store.end_search(search, "done")
        path.unlink()


@pytest.mark.parametrize("table", ["songs (title TEXT)", "schema_version (version INTEGER)"])
def test_the_file_of_another_program_stays_as_it_is(tmp_path: Path, table: str) -> None:
    path = tmp_path / "songs.db"
    connection = sqlite3.connect(path)
    connection.execute(f"CREATE TABLE {table}")
    connection.execute(f"INSERT INTO {table.split()[0]} VALUES (0)")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match="tables of another program"):
        Store.open(str(path))
    with pytest.raises(StoreError, match="tables of another program"), open_records(Location(str(path))):
        pass
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["songs.db"]


def test_what_ends_outlasts_the_machine_and_what_begins_the_process(tmp_path: Path) -> None:
    said: list[str] = []
    with Store.open(str(tmp_path / "a.db")) as store:
        search = put(store, [])
        event.listen(store._engine, "before_cursor_execute", lambda *given: said.append(given[2]))
        begun = store.begin(search, [{"A": 1}])[0]
        store.finish([(begun, ok({"A": 1}, 5))])
    told = ("PRAGMA synchronous=", "INSERT INTO trials", "UPDATE trials")
    seen = [line if line.startswith("PRAGMA") else line.split()[0] for line in said if line.startswith(told)]
    assert seen == ["PRAGMA synchronous=NORMAL", "INSERT", "PRAGMA synchronous=FULL", "UPDATE"]


# The search -----------------------------------------------------------------------------------------------

KILLED = """
import os, sys
from autotune.store import Store
from tests.stored import DEVICE, KEY
store = Store.open(sys.argv[1])
search = store.start_search(KEY, DEVICE, sampler="random", seed=1)
store.begin(search, [{"A": 2}])
os.kill(os.getpid(), 9)
"""


def outcomes(store: Store) -> dict[object, Outcome]:
    return {row.trial.configuration["A"]: row.trial.outcome for row in store.history()}


def test_what_a_killed_search_left_is_lost_and_what_a_live_one_is_at_is_not(place: str) -> None:
    with Store.open(place) as live:
        search = put(live, [ok({"A": 1}, 5)])
        at_work = live.begin(live.start_search(KEY, DEVICE, sampler="random", seed=1), [{"A": 3}])[0]
        assert subprocess.run([sys.executable, "-c", KILLED, place], cwd=Path(__file__).parent.parent).returncode == -9
        with Store.open(place) as store:
            assert outcomes(store) == {1: Outcome.OK, 2: Outcome.LOST, 3: Outcome.PENDING}
            assert [trial.configuration["A"] for trial in store.trials(KEY)] == [1]
            assert store.counts() == {"scale": 1}
        live.finish([(at_work, ok({"A": 3}, 5))])
        live.end_search(search, "done")
        assert not Outcome.LOST.failed


def test_a_search_that_was_taken_for_dead_loses_nothing(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.open(place) as store:
        search = store.start_search(KEY, DEVICE, sampler="random", seed=1)
        begun = store.begin(search, [{"A": 1}])[0]
        monkeypatch.setattr("autotune.store.queries.is_dead", lambda *_: True)
        with Store.open(place) as other:
            assert outcomes(other) == {1: Outcome.LOST}
        store.finish([(begun, ok({"A": 1}, 5))])
        store.end_search(search, "done")
        assert [trial.outcome for trial in store.trials(KEY)] == [Outcome.OK]


def test_whether_a_process_is_at_work() -> None:
    now = datetime.now(UTC)
    new, old = (now - presence.PATIENCE / 2).isoformat(), (now - presence.PATIENCE - timedelta(1)).isoformat()
    host, boot, space, number, start = presence.this_process().split(":")
    assert not presence.is_dead(presence.this_process(), old)
    assert presence.is_dead(f"{host}:{boot}:{space}:{number}:1{start}", new)  # its number is another's now
    assert presence.is_dead(f"{host}:{boot}:{space}:{2**40}:1", new)
    assert presence.is_dead(f"{host}:earlier:{space}:{number}:{start}", new)
    for elsewhere in (f"other:{boot}:{space}:{number}:{start}", f"{host}:{boot}:other:{number}:{start}", "", "x:::"):
        assert not presence.is_dead(elsewhere, new)
        assert presence.is_dead(elsewhere, old)
        assert presence.is_dead(elsewhere, "2999-01-01T00:00:00+00:00")  # its clock was wrong
    assert presence.is_dead("", "no instant")


def test_a_process_whose_name_is_no_text_is_looked_at_all_the_same() -> None:
    """Linux cuts a name after 15 bytes, even in the middle of an é."""
    here, name = presence.this_process(), Path("/proc/self/comm")
    before = name.read_bytes()
    name.write_bytes("é".encode()[:1])
    try:
        assert presence.this_process() == here
        assert state_of(os.getpid()) in "RS"
    finally:
        name.write_bytes(before)


# The server -----------------------------------------------------------------------------------------------


def lose_answers(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every transaction succeed, but lose its answer once."""
    monkeypatch.setattr(access, "PAUSE_S", 0)
    whole = store._writing
    turn = iter([True, False] * 100)

    @contextmanager
    def writing(**options: bool) -> Iterator[Connection]:
        with whole(**options) as connection:
            yield connection
        if next(turn):
            raise ConnectionLost("gone")

    monkeypatch.setattr(store, "_writing", writing)


def test_a_transaction_whose_answer_was_lost_is_done_once(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.open(place) as store:
        lose_answers(store, monkeypatch)
        search = store.start_search(KEY, DEVICE, sampler="random", seed=1, fresh=True)
        for number in (1, 2):
            store.finish(
                [(store.begin(search, [{"A": number}])[0], Trial({"A": number}, Outcome.OK, retimed=Measurement((4,))))]
            )
        store.retime(search, [({"A": 1}, Measurement((6,)))])
        store.withdraw(store.begin(search, [{"A": 3}])[0])
        store.end_search(search, "done")
        assert [trial.configuration["A"] for trial in store.trials(KEY)] == [1, 2]
        assert [row.generation for row in store.history()] == [1, 1]
        assert [line.count('"taken"') for line in store.export_lines()] == [2, 1]
        with pytest.raises(NoSuchTrialError, match="finished before"):
            store.finish([(1, ok({"A": 1}, 5))])


def drop_connections(url: str) -> None:
    import psycopg

    with psycopg.connect(url) as connection:
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")


def test_a_dropped_connection_is_made_again(
    postgres_url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "PAUSE_S", 0)
    with Store.open(postgres_url) as store:
        search = put(store, [])
        for number in range(3):
            drop_connections(postgres_url)
            store.finish([(store.begin(search, [{"A": number}])[0], ok({"A": number}, 5))])
        drop_connections(postgres_url)
        assert [trial.configuration["A"] for trial in store.trials(KEY)] == [0, 1, 2]
        turn = iter((drop_connections, drop_connections, str))

        def step(connection: Connection) -> object:
            next(turn)(postgres_url)
            return connection.execute(text("SELECT 1")).scalar()

        assert store._written(step) == 1
    assert capsys.readouterr().err.count("trying again for 60 s") == 1


def test_a_standby_is_waited_for_where_it_takes_over_and_else_refuses_at_once(
    postgres_url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a failover: for a while there is a server that only reads."""
    import psycopg

    def set_writing(writes: bool) -> None:
        with psycopg.connect(postgres_url + "&options=-cdefault_transaction_read_only%3Doff") as connection:
            only = "off" if writes else "on"
            connection.execute(f"ALTER DATABASE postgres SET default_transaction_read_only = {only}")  # of new sessions
        drop_connections(postgres_url)

    monkeypatch.setattr(access, "PAUSE_S", 0)
    try:
        with Store.open(postgres_url) as store, monkeypatch.context() as patch:
            search = put(store, [])
            set_writing(False)
            patch.setattr(access, "say", lambda _: set_writing(True))
            store.finish([(store.begin(search, [{"A": 1}])[0], ok({"A": 1}, 5))])
            assert len(store.trials(KEY)) == 1
        set_writing(False)
        with Store.open(postgres_url) as store, pytest.raises(StoreError, match=r"read-only .*=read-write"):
            store.start_search(KEY, DEVICE, sampler="random", seed=1)
        assert capsys.readouterr().err == ""
    finally:
        set_writing(True)


def test_who_holds_a_lock_for_good_is_told_and_what_was_to_be_stored_is_tried_again(
    postgres_url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    Store.open(postgres_url).close()
    monkeypatch.setattr(database, "BUSY_S", 0.3)  # psycopg looks every tenth whether there is an answer
    monkeypatch.setattr("autotune.store.waits.SILENT_S", 0.01)
    monkeypatch.setattr(access, "PAUSE_S", 0)
    with psycopg.connect(postgres_url) as other, Store.open(postgres_url) as store:
        search = put(store, [])
        other.execute("LOCK TABLE trials IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(ConnectionLost, match=r"is locked by another session, for 0\.3 s"):
            store.trials(KEY)
        assert capsys.readouterr().err == f"autotune: {store.where}: has not answered for 0.01 s; waiting for it\n"

        def unlock(*_: object) -> None:
            other.commit()

        monkeypatch.setattr(access, "say", unlock)
        store.finish([(store.begin(search, [{"A": 1}])[0], ok({"A": 1}, 5))])
        assert len(store.trials(KEY)) == 1
        with Store.open(postgres_url + "&options=-cstatement_timeout%3D100") as hurried:
            other.execute("LOCK TABLE trials IN ACCESS EXCLUSIVE MODE")
            hurried.begin(search, [{"A": 2}])


def test_a_file_that_is_locked_for_long_is_waited_for_as_a_server_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.db"
    Store.open(str(path)).close()
    monkeypatch.setattr(database, "BUSY_S", 0.01)
    with Store.open(str(path)) as store, closing(sqlite3.connect(path, isolation_level=None)) as other:
        begun = store.begin(put(store, []), [{"A": 1}])[0]
        other.execute("BEGIN EXCLUSIVE")
        pauses = iter((lambda: None, lambda: other.execute("ROLLBACK")))
        monkeypatch.setattr(access, "time", SimpleNamespace(monotonic=lambda: 0, sleep=lambda _: next(pauses)()))
        store.finish([(begun, ok({"A": 1}, 5))])
        assert configurations(path) == [1]
    assert capsys.readouterr().err == (
        f"autotune: {path}: is locked by another process; wait for that process, or end it; trying again for 60 s\n"
    )


def test_who_waits_for_a_locked_file_is_interrupted_at_once_and_waits_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.db"
    Store.open(str(path)).close()
    monkeypatch.setattr(database, "BUSY_S", 1e6)
    monkeypatch.setattr(database, "_TURN_MS", 1)
    monkeypatch.setattr(access, "PAUSE_S", 0)
    with Store.open(str(path)) as store, closing(sqlite3.connect(path, isolation_level=None)) as other:
        search = put(store, [])
        other.execute("BEGIN EXCLUSIVE")
        with monkeypatch.context() as patch:
            patch.setattr(database, "is_busy", lambda _: signal.raise_signal(signal.SIGINT))
            with pytest.raises(KeyboardInterrupt):
                store.begin(search, [{"A": 1}])
        with pytest.raises(ConnectionLost, match="is locked by another process"):
            store.end_search(search, "interrupted")


def test_a_server_that_stays_away_ends_the_search_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "PATIENCE_S", 0)
    monkeypatch.setattr(access, "PAUSE_S", 0)
    with Store.open(str(tmp_path / "a.db")) as store, pytest.raises(ConnectionLost, match="gone"):
        store._written(lambda _: (_ for _ in ()).throw(ConnectionLost("gone")))


def test_a_server_that_stayed_away_is_waited_for_once_until_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter(range(0, 10**6, 20))
    monkeypatch.setattr(access, "time", SimpleNamespace(monotonic=lambda: next(clock), sleep=lambda _: None))
    tries = []

    def away(_: Connection) -> None:
        tries.append(1)
        raise ConnectionLost("gone")

    def tried(store: Store) -> int:
        before = len(tries)
        with pytest.raises(ConnectionLost, match="gone") as raised:
            store._written(away)
        assert "finished trials are kept" in raised.value.hint
        return len(tries) - before

    with Store.open(str(tmp_path / "a.db")) as store:
        assert [tried(store), tried(store), tried(store)] == [3, 1, 1]
        assert capsys.readouterr().err.count("trying again") == 1
        put(store, [])  # it is back
        assert tried(store) == 3
        put(store, [])
        with pytest.raises(KeyboardInterrupt):  # while it is waited for
            store._written(lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        assert tried(store) == 1


@pytest.mark.slow
def test_a_server_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("psycopg")
    monkeypatch.setattr(database, "CONNECT_S", 2)  # libpq takes no less
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(StoreError, match="cannot be used") as raised:
        Store.open(f"postgresql://bob:{SECRET}@127.0.0.1:{silent.getsockname()[1]}/x")
    assert SECRET not in str(raised.value)


# Passwords ------------------------------------------------------------------------------------------------

URLS = [
    f"postgresql://bob:{SECRET}@host:5/db",
    f"postgresql://bob:{SECRET}/==@host/db",
    f"postgresql://bob:a@{SECRET}@host/db",
    f"postgresql://bob@host/db?password={SECRET}",
    f"postgresql://host/db?user=bob&p%61ssword={SECRET}&x=1",
    f"postgresql://host/db?password=a@{SECRET}",
    f"postgresql://bob:{SECRET}?a=b@host/db",
    f"postgresql:/bob:{SECRET}@host/db",
    f"postgresql+psycopg://bob:{SECRET}@/db?sslpassword={SECRET}",
]


@pytest.mark.parametrize("url", URLS)
def test_no_line_shows_a_password(url: str) -> None:
    import shlex

    assert SECRET not in shown(url)
    assert SECRET not in str(locate(url))
    assert SECRET not in command("best", "sgemm", None, {}, {}, url)
    assert SECRET not in asking._search_command(asking.Asked(database=url), None)  # type: ignore[arg-type]
    assert shlex.split(command("best", "sgemm", None, {}, {}, url))[-1] == shown(url)


@pytest.mark.parametrize("url", [url for url in URLS if "@host" in url or "?" in url])
def test_no_driver_shows_a_password(url: str) -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(StoreError) as raised:
        Store.open(url.replace("host", "host.invalid"))
    assert SECRET not in str(raised.value)


def test_a_password_in_what_a_driver_says_is_scrubbed() -> None:
    place = Location(url="postgresql://bob:s%40cret@host/db?sslpassword=other")
    assert place.scrubbed("failed for s@cret, s%40cret, other") == "failed for ***, ***, ***"
    short = Location(url="postgresql://ro:ro@host/db")
    assert short.scrubbed("no rights for table problems; password=ro, ro:ro@host") == (
        "no rights for table problems; password=***, ro:***@host"
    )
    assert location.is_ambiguous("postgresql://bob:a@b@host/db")


def test_a_plain_url_or_path_is_shown_as_it_is() -> None:
    for place in ("a.db", "/x/y.db", "postgresql://me@host:5432/name?sslmode=require", "sqlite:///a.db"):
        assert shown(place) == place


def test_a_wrong_user_is_told_without_the_password(postgres_url: str) -> None:
    with pytest.raises(StoreError) as raised:
        Store.open(postgres_url.replace("tester@", f"nobody-here:{SECRET}@"))
    assert "nobody-here" in str(raised.value)
    assert SECRET not in str(raised.value)
    assert os.linesep not in str(raised.value)


def test_what_a_disk_holds_that_failed_under_a_search_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file and what SQLite keeps beside it are there and marked as writable, but nothing can be written."""
    failed = sqlite3.OperationalError("attempt to write a readonly database")
    failed.sqlite_errorcode = sqlite3.SQLITE_READONLY

    def fails(*_: object) -> object:
        raise StoreError("is read-only") from failed

    path = str(tmp_path / "a.db")
    with Store.open(path) as at_work:
        put(at_work, [ok({"A": 1}, 5)])
        monkeypatch.setattr(Store, "open", fails)
        with Store.to_read(path) as store:
            assert [trial.configuration for trial in store.trials(KEY)] == [{"A": 1}]
        Path(f"{path}-shm").rename(tmp_path / "elsewhere")
        with pytest.raises(StoreError, match="is read-only"):
            Store.to_read(path)
        (tmp_path / "elsewhere").rename(f"{path}-shm")


def test_a_file_that_may_not_be_written_asks_for_a_copy(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    Store.open(str(path)).close()
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection, connection:
        with pytest.raises(sqlite3.OperationalError) as caught:
            connection.execute("DELETE FROM trials")
        said = str(location.database_error(str(path), caught.value))
    connection.close()
    assert said == f"{path}: is read-only; give --db a file to write, such as a copy of it"


def test_a_database_that_too_many_ask_is_not_called_damaged() -> None:
    with pytest.raises(StoreError, match="is busy: too many connections at once"), clear_errors(locate("x.db")):
        raise PoolTimeoutError("QueuePool limit of size 5 overflow 10 reached")


def test_a_server_keeps_every_text_or_is_told_how(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its encoding is, and that of who asks: SQL_ASCII is what `initdb` makes where LANG is C."""
    said = Trial({"A": 1}, Outcome.COMPILE_ERROR, "größe \u2192")
    for encoding in ("SQL_ASCII", "latin1"):
        with Store.open(f"{postgres_url}&client_encoding={encoding}") as store:
            put(store, [said])
            assert store.trials(KEY)[0].reason == said.reason
    clear(postgres_url)
    monkeypatch.setattr("autotune.store.migrations._ENCODING", text("SELECT 'LATIN1'"))
    with pytest.raises(StoreError, match=r"is encoded in LATIN1, .*; .* CREATE DATABASE name ENCODING 'UTF8'"):
        Store.open(postgres_url)


def test_what_is_wrong_at_a_server_is_told_with_what_helps_there(postgres_url: str) -> None:
    import psycopg

    Store.open(postgres_url).close()
    for done, said in (
        ("DELETE FROM schema_version", "is damaged: it does not say its version; bring a backup of it back"),
        ("DROP SCHEMA public CASCADE", "no schema has been selected .*; CREATE SCHEMA public, or "),
    ):
        with psycopg.connect(postgres_url) as connection:
            connection.execute(done)
        with pytest.raises(StoreError, match=said):
            Store.to_read(postgres_url)
    with psycopg.connect(postgres_url) as connection:
        connection.execute("CREATE SCHEMA public")


def test_the_rights_of_a_role_are_those_of_the_documents(postgres_url: str) -> None:
    """docs/service.md says which role makes the tables, stores or reads; an error says what helps."""
    import psycopg

    def sql(*statements: str) -> None:
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)

    def store(role: str) -> None:
        with Store.open(postgres_url.replace("tester@", f"{role}@")) as opened:
            search = put(opened, [ok({"A": 1}, 5), Trial({"A": 2}, Outcome.WRONG_RESULT)])
            opened.retime(search, [({"A": 1}, Measurement((7,)))])
            lines = [line.replace('"uuid":"', f'"uuid":"{role}') for line in opened.export_lines()]
            assert opened.import_lines(lines) == len(lines)

    for role in ("tuner", "ann", "guest"):
        sql(f"DROP ROLE IF EXISTS {role}", f"CREATE ROLE {role} LOGIN", f"GRANT USAGE ON SCHEMA public TO {role}")
    with pytest.raises(StoreError, match=r"GRANT CREATE ON SCHEMA public TO the role that is to make the tables"):
        store("tuner")
    sql("GRANT CREATE ON SCHEMA public TO tuner")
    store("tuner")
    with pytest.raises(StoreError, match="GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES"):
        store("ann")
    sql("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO ann")
    store("ann")
    with Store.open(postgres_url) as opened:
        opened.start_search(KEY, DEVICE, sampler="random", seed=1)
    sql(
        "UPDATE searches SET started = '2020-01-01T00:00:00+00:00', environment = '{}' WHERE ended IS NULL",
        "GRANT SELECT ON ALL TABLES IN SCHEMA public TO guest",
    )
    with Store.to_read(postgres_url.replace("tester@", "guest@")) as opened:
        assert opened.counts() == {KEY.study: 12}
        assert opened.rows("SELECT COUNT(*) FROM searches WHERE ended IS NULL", {}) == [(1,)]
    with Store.to_read(postgres_url + "&options=-cdefault_transaction_read_only%3Don") as opened:
        assert opened.counts() == {KEY.study: 12}
    with Store.to_read(postgres_url) as opened:
        assert opened.rows("SELECT COUNT(*) FROM searches WHERE ended IS NULL", {}) == [(0,)]
    sql("ALTER TABLE submissions DROP COLUMN exit_code", "UPDATE schema_version SET version = version - 1")
    standby = postgres_url + "&options=-cdefault_transaction_read_only%3Don"
    for url in (*(postgres_url.replace("tester@", who) for who in ("ann@", "guest@")), standby):
        with pytest.raises(StoreError, match=r"is of version 7, to become 8, .*; have the role that made them open it"):
            Store.to_read(url)
    Store.open(postgres_url.replace("tester@", "tuner@")).close()
    sql("DROP SCHEMA public CASCADE", "CREATE SCHEMA public", "DROP ROLE tuner, ann, guest")
