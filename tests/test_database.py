"""Clear messages for what cannot be used as a database, and for what cannot be the name of one."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import resource
import shutil
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.errors import StoreError
from autotune.lookup import stored_devices
from autotune.lookup.records import open_records
from autotune.store import Store, database, location, mounts
from tests.covered import COVERED_BY
from tests.stored import KEY, ok, put, put_in


def refusal(place: object) -> str:
    with pytest.raises(StoreError) as raised:
        Store.open(str(place)).close()
    assert raised.value.exit_code == 2
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (Path.mkdir, "is a directory"),
        (lambda path: path.symlink_to("gone/a.db"), "its directory does not exist; mkdir -p {folder}/gone"),
        (lambda path: path.symlink_to("x.db"), "x.db: cannot be opened: Too many levels of symbolic links; give --db"),
        (os.mkfifo, "is not a file"),  # and is not waited for
        (lambda path: path.write_text("name = 'not a database'\n" * 100), "is not an SQLite database"),
    ],
)
def test_what_is_there_and_no_database(tmp_path: Path, make: Callable[[Path], object], said: str) -> None:
    make(tmp_path / "x.db")
    assert said.format(folder=tmp_path) in refusal(tmp_path / "x.db")


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/dev/null", "is not a file"),
        ("/dev/zero", "is not a file"),
        ("file/folder/x.db", "{folder}/file is not a directory"),
        ("no/x.db", "; mkdir -p {folder}/no"),
        ("no  such/x.db", "; mkdir -p '{folder}/no  such'"),
    ],
)
def test_where_no_database_can_be(tmp_path: Path, path: str, said: str) -> None:
    (tmp_path / "file").touch()
    assert said.format(folder=tmp_path) in refusal(tmp_path / path)


@pytest.mark.parametrize(("named", "said"), [("", "--db: is empty; "), ("sqlite:///", "sqlite:///: names no file; ")])
def test_what_names_no_database_is_not_the_default(named: str, said: str) -> None:
    with pytest.raises(StoreError, match=f"^{said}"):
        location.locate(named)


def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_DB", "")
    assert not location.locate(None).chosen


def test_where_nobody_knows_a_home_no_folder_named_for_it_is_made_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AUTOTUNE_DB", "XDG_DATA_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 7)  # as a container is run by a number
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreError, match=r"HOME is not set.*; give --db"):
        Store.open(None)
    assert not list(tmp_path.iterdir())


def test_a_damaged_database(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    put_in(path, [ok({"A": number}, 5) for number in range(50)])
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + os.urandom(len(whole) - 4096))
    assert "is damaged" in refusal(path)


def test_an_empty_file_is_a_new_database(tmp_path: Path) -> None:
    (tmp_path / "x.db").touch()
    with Store.open(str(tmp_path / "x.db")) as store:
        assert store.counts() == {}


def test_who_reads_leaves_an_empty_file_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    path.touch()
    with Store.to_read(str(path)) as store:
        assert store.history() == []
    assert path.stat().st_size == 0
    assert list(tmp_path.iterdir()) == [path]


def test_the_tables_of_another_program(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "x.db")) as connection, connection:
        connection.execute("CREATE TABLE songs (title TEXT)")
    connection.close()
    assert "holds tables of another program" in refusal(tmp_path / "x.db")


def test_a_locked_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "BUSY_S", 0.01)
    put_in(tmp_path / "x.db", [ok({"A": 1}, 5)])
    connection = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    assert "is locked by another process" in refusal(tmp_path / "x.db")
    connection.execute("DELETE FROM trials")
    with Store.to_read(str(tmp_path / "x.db")) as store:  # as it was before that
        assert len(store.history(None, 9)) == 1
    connection.close()


PREPARED = """
import json, os, pwd, socket, sys
import autotune.cli
from autotune.lookup import stored_devices
from autotune.store import Store

with Store.open(sys.argv[2]) as other:  # imports all that nobody else may read
    list(other.export_lines())
channel = socket.socket(fileno=int(sys.argv[1]))
while True:
    asked, streams, _, _ = socket.recv_fds(channel, 2**16, 2)
    if not asked:
        break
    child = os.fork()
    if not child:
        script, *sys.argv[1:] = json.loads(asked)
        for number, stream in enumerate((os.open(os.devnull, os.O_RDONLY), *streams)):
            os.dup2(stream, number)
        code = 1
        try:
            exec(script, {})
            code = 0
        except SystemExit as end:
            code = end.code or 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    for stream in streams:
        os.close(stream)
    channel.send(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])).encode())
"""


class Prepared:
    """Runs scripts, each in a fork of one process that has imported what a store and the command line need."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel

    def run(self, script: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a script whose output fits into a pipe; its words are in `sys.argv` from the second on."""
        (out, to_out), (err, to_err) = os.pipe(), os.pipe()
        socket.send_fds(self._channel, [json.dumps([script, *words]).encode()], [to_out, to_err])
        os.close(to_out)
        os.close(to_err)
        code = int(self._channel.recv(2**16))
        with os.fdopen(out, encoding="utf-8") as said, os.fdopen(err, encoding="utf-8") as told:
            return subprocess.CompletedProcess(script, code, said.read(), told.read())


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prepared]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    bare = {name: value for name, value in os.environ.items() if name not in COVERED_BY}
    with ours, theirs:
        process = subprocess.Popen(
            [sys.executable, "-c", PREPARED, str(theirs.fileno()), str(tmp_path_factory.mktemp("other") / "other.db")],
            cwd=Path(__file__).parent.parent,
            env=bare,
            pass_fds=[theirs.fileno()],
        )
        theirs.close()
        yield Prepared(ours)
        ours.close()
        assert process.wait() == 0


WITHOUT_ROOM = """
import resource, sys
from autotune.cli import run
resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))
sys.dont_write_bytecode = True  # Python would keep the first 1024 bytes of what it compiles, for every later process
run([*sys.argv[2:], "--db", sys.argv[1]])
"""


@pytest.mark.parametrize(
    ("command", "code", "told"),
    [
        ("token add ann", 2, "cannot be read or written; look at the disk and `ulimit -f`; what was stored is kept"),
        ("history", 0, ""),
        ("best -d cpu-2cu", 0, "nothing in"),
    ],
)
def test_who_has_no_room_reads_and_is_told_so_where_it_has_to_write(
    prepared: Prepared, tmp_path: Path, command: str, code: int, told: str
) -> None:
    put_in(tmp_path / "x.db", [ok({"A": 1}, 50)])
    done = prepared.run(WITHOUT_ROOM, str(tmp_path / "x.db"), *command.split())
    assert (done.returncode, told in done.stderr, "Traceback" in done.stderr) == (code, True, False)
    assert ("A=1" in done.stdout) is (command == "history")


AS_NOBODY = """
import os, pwd, sys
from autotune.store import Store
if os.geteuid() == 0:  # whom no permission stops
    os.setuid(pwd.getpwnam("nobody").pw_uid)
Store.open(sys.argv[1])
"""


def as_nobody(prepared: Prepared, script: str, path: Path, protect: str) -> subprocess.CompletedProcess[str]:
    """Run a script on a database that is protected, perhaps with its folder."""
    path.chmod(0o444)
    path.parent.chmod({"file": 0o755, "folder": 0o555, "shared": 0o777}[protect])
    done = prepared.run(script, str(path))
    path.parent.chmod(0o755)
    return done


@pytest.mark.parametrize("protect", ["file", "folder", "shared"])
def test_a_database_that_cannot_be_written(prepared: Prepared, open_folder: Path, protect: str) -> None:
    path = open_folder / "own" / "x.db"
    path.parent.mkdir()
    put_in(path, [])
    last = as_nobody(prepared, AS_NOBODY, path, protect).stderr.strip().splitlines()[-1]
    assert last.startswith("autotune.errors.StoreError: ")
    assert "read-only" in last
    assert list(path.parent.iterdir()) == [path]  # nothing that keeps who owns it from writing


def test_a_log_of_another_user_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, log = tmp_path / "x.db", tmp_path / "x.db-wal"
    put_in(path, [])
    log.touch()
    monkeypatch.setattr(os, "access", lambda place, mode: str(place) != str(log))
    assert refusal(path).endswith(f"{log} is another user's; when nobody uses it: rm -f {log} {tmp_path}/x.db-shm")
    log.write_bytes(b"x")
    assert refusal(path).endswith(f"{log} is another user's; its owner may change its mode")


def test_trials_are_read_in_order_where_the_disk_for_temporary_files_is_full(tmp_path: Path) -> None:
    put_in(tmp_path / "x.db", [replace(ok({"A": a}, 50), build_log="x" * 2**18) for a in range(16)])
    with Store.to_read(str(tmp_path / "x.db")) as store:
        known = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, known[1]))
        try:
            found = store.trials(KEY)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, known)
    assert [trial.configuration["A"] for trial in found] == list(range(16))


def test_a_database_for_which_no_more_files_may_be_open_says_so(tmp_path: Path) -> None:
    put_in(tmp_path / "x.db", [])
    refusal(tmp_path)  # imports what that takes
    free = os.dup(0)
    os.close(free)
    known = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + 1, known[1]))
    try:
        said = refusal(tmp_path / "x.db")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, known)
    assert said == f"{tmp_path}/x.db: cannot be opened: Too many open files; allow more with ulimit -n"


READ_AS_NOBODY = AS_NOBODY.replace("Store.open(sys.argv[1])", "print(*Store.to_read(sys.argv[1]).export_lines())")


@pytest.mark.slow
@pytest.mark.parametrize("protect", ["file", "folder", "shared"])
@pytest.mark.parametrize("state", ["whole", "older", "at work", "half a log", "empty"])
def test_a_database_that_cannot_be_written_is_read_as_it_is(
    prepared: Prepared, open_folder: Path, protect: str, state: str
) -> None:
    path = open_folder / "own" / "x y?%.db"
    path.parent.mkdir()
    if state == "empty":
        path.touch()
    else:
        put_in(path, [ok({"A": 1}, 50)])
    if state == "older":
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("UPDATE schema_version SET version = version - 1")
    log = Path(f"{path}-wal")
    if state == "half a log":
        log.touch()
    with Store.open(str(path)) if state == "at work" else nullcontext():
        done = as_nobody(prepared, READ_AS_NOBODY, path, protect)
        assert log.exists() == (state in ("at work", "half a log"))
    if state in ("whole", "at work"):
        assert json.loads(done.stdout)["configuration"] == {"A": 1}
    elif state == "empty":
        assert (done.stdout.strip(), done.returncode) == ("", 0)
    else:
        last = done.stderr.strip().splitlines()[-1]
        assert ("may not be written: it would have to become" if state == "older" else "read-only") in last


LOOK_UP_AS_NOBODY = AS_NOBODY.replace("import os", "from autotune.lookup import stored_devices\nimport os").replace(
    "Store.open(sys.argv[1])", "stored_devices(sys.argv[1])"
)


@pytest.mark.parametrize("protect", ["file", "folder", "shared"])
def test_a_look_up_in_an_older_database_that_cannot_be_written_says_of_which_version(
    prepared: Prepared, open_folder: Path, protect: str
) -> None:
    path = open_folder / "own" / "x.db"
    path.parent.mkdir()
    shutil.copy(Path(__file__).parent / "data" / "version_1.db", path)
    last = as_nobody(prepared, LOOK_UP_AS_NOBODY, path, protect).stderr.strip().splitlines()[-1]
    assert "is of version 1 and may not be written: it would have to become" in last


def test_a_file_with_two_names_is_only_read_where_nobody_may_write(prepared: Prepared, open_folder: Path) -> None:
    path = open_folder / "own" / "x.db"
    path.parent.mkdir()
    put_in(path, [ok({"A": 1}, 50)])
    (open_folder / "y.db").hardlink_to(path)
    assert "has a second name (a hard link)" in refusal(path)
    assert refusal(path).endswith(f"remove one: find / -xdev -samefile {path}")
    assert json.loads(as_nobody(prepared, READ_AS_NOBODY, path, "file").stdout)["configuration"] == {"A": 1}


def test_a_network_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "mounts"
    far = f"{tmp_path.resolve()}/far\\040away"
    table.write_text(f"/dev/sda / ext4 rw 0 0\nlab:/home {far} nfs4 rw 0 0\nlab:/big {far}/größe nfs rw 0 0\n")
    monkeypatch.setattr(mounts, "MOUNTS", table)
    (tmp_path / "far away").mkdir()
    assert "network file system (nfs4)" in refusal(tmp_path / "far away" / "x.db")
    assert mounts.file_system(str(tmp_path / "far")) == "ext4"
    assert mounts.file_system(str(tmp_path / "far away" / "größe" / "x.db")) == "nfs"
    table.write_text(f"/dev/sda / ext4 rw 0 0\n/dev/sda {tmp_path.resolve()}/x.db ext4 rw 0 0\n")
    (tmp_path / "link.db").symlink_to("x.db")
    for name in ("x.db", "link.db"):
        assert "is mounted by itself" in refusal(tmp_path / name)
    table.unlink()
    assert mounts.file_system(str(tmp_path)) == ""


@pytest.mark.parametrize(
    ("code", "locks", "said"),
    [
        (sqlite3.SQLITE_BUSY, errno.ENOLCK, "can lock or share no file"),
        (sqlite3.SQLITE_BUSY, errno.EAGAIN, "is locked by another process"),
        (sqlite3.SQLITE_IOERR_LOCK, 0, "can lock or share no file; give --db a path on a local disk, or a postgresql:"),
        (sqlite3.SQLITE_IOERR_SHMMAP, 0, "can lock or share no file"),
        (sqlite3.SQLITE_IOERR_READ, 0, "cannot be read or written"),
    ],
)
def test_a_file_system_without_locks_is_told_from_a_locked_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, locks: int, said: str
) -> None:
    def lock(*_: object) -> None:
        raise OSError(locks, "x")

    monkeypatch.setattr(fcntl, "lockf", lock)
    error = sqlite3.OperationalError("x")
    error.sqlite_errorcode = code
    assert said in str(location.database_error(str(tmp_path / "x.db"), error))


@pytest.mark.parametrize(
    ("url", "message"),
    [
        (":memory:", "keeps nothing"),
        ("a\0b.db", "--db: holds a NUL character; give it the path of a file"),
        ("\ud800.db", r"--db: '\ud800.db' is not a path; give it the path of a file"),
        ("sqlite://", "keeps nothing"),
        ("mysql://host/name", "'mysql'"),
        ("://x", "is not a URL of a database"),
        ("postgresql://host:port/x", "is not a URL of a database"),
    ],
)
def test_urls_that_are_refused(url: str, message: str) -> None:
    assert message in refusal(url)


@pytest.mark.parametrize("url", ["a\0b.db", "mysql://host/name", "postgresql://host:port/x"])
@pytest.mark.parametrize("opened", [Store.open, lambda: stored_devices(None)])
def test_a_database_that_the_environment_names_is_mended_there(
    url: str, opened: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", {"AUTOTUNE_DB": url})  # the real one holds no NUL
    with pytest.raises(StoreError) as raised:
        opened()
    assert raised.value.where == "AUTOTUNE_DB"


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    pytest.importorskip("psycopg")
    line = refusal(f"postgresql://me:secret@/name?host={tmp_path}")
    assert "cannot be used" in line
    assert "secret" not in line


def test_a_password_is_never_shown() -> None:
    for url in ("postgresql://me:s3:cr@t@host:5432/name", "postgresql+psycopg://:s3cr@t@/name?host=/run"):
        shown = str(location.locate(url))
        assert "cr@t" not in shown
        assert shown.startswith(url.partition(":")[0])
    assert str(location.locate("postgresql://me@host:5432/name")) == "postgresql://me@host:5432/name"


def test_a_url_of_sqlite_is_its_path(tmp_path: Path) -> None:
    put_in(tmp_path / "x.db", [ok({"A": 1}, 5)])
    with Store.open(f"sqlite:///{tmp_path / 'x.db'}") as store:
        assert store.counts() == {"scale": 1}


def test_the_default_place_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import platformdirs

    monkeypatch.delenv("AUTOTUNE_DB", raising=False)
    for home in (str(tmp_path / "data"), "relative", ""):
        monkeypatch.setenv("XDG_DATA_HOME", home)
        assert location.default_path() == str(Path(platformdirs.user_data_dir("autotune")) / "autotune.db")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    Store.open(None).close()
    assert (tmp_path / "data" / "autotune" / "autotune.db").is_file()
    monkeypatch.setenv("AUTOTUNE_DB", str(tmp_path / "named.db"))
    Store.open(None).close()
    assert (tmp_path / "named.db").is_file()


def test_looking_up_gives_up_no_lock_of_an_open_store(tmp_path: Path) -> None:
    """Otherwise another process that closes the database would remove the log of this one."""
    path = str(tmp_path / "a.db")
    with Store.open(path) as store:
        number = put(store, [ok({"A": 1}, 5)])
        with open_records(location.locate(path)) as records:
            assert records.devices()
        code = f"from autotune.store import Store; Store.open({path!r}).close()"
        subprocess.run([sys.executable, "-c", code], check=True)
        assert (tmp_path / "a.db-wal").exists()
        store.finish([(store.begin(number, [{"A": 2}])[0], ok({"A": 2}, 4))])
    with Store.open(path) as store:
        assert len(store.history()) == 2
