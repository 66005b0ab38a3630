"""The server as it is started: a search on this machine, killed in between and continued."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

uvicorn = pytest.importorskip("uvicorn", reason="pip install '.[serve]'")

from autotune.errors import UsageError  # noqa: E402
from autotune.service import serving  # noqa: E402
from autotune.service.client import Server  # noqa: E402
from autotune.store import ServerStore, Store, listing, survey  # noqa: E402
from tests.processes import has_ended  # noqa: E402
from tests.serving import UPLOAD  # noqa: E402
from tests.stored import ok, put  # noqa: E402

pytestmark = [pytest.mark.server, pytest.mark.device, pytest.mark.timeout(400)]


@contextmanager
def started(folder: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """Yield a server's process, its URL and the token of the person who started it."""
    command = [sys.executable, "-m", "autotune", "serve", "--port=0", f"--db={folder / 'a.db'}", *words]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "AUTOTUNE_TOKEN": ""})
    assert server.stderr is not None
    said = ""
    for line in server.stderr:
        said += line
        if "token=" in line:
            break
    drain = threading.Thread(target=server.stderr.read)
    drain.start()
    try:
        found = re.search(r" at (http://\S+)\n[\s\S]*token=(\S+)", said)
        assert found is not None, said
        yield server, found[1], found[2]
    finally:
        server.kill()
        server.wait()
        drain.join()
        server.stderr.close()


def autotune(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return subprocess.run([sys.executable, "-m", "autotune", *words], capture_output=True, text=True, timeout=120)


def children(pid: int) -> list[int]:
    """Return the processes that a process has started and that still exist."""
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(number) for number in listed]


def test_a_folder_of_locks_that_is_missing_is_said_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOTUNE_LOCKS", str(tmp_path / "none"))
    found = autotune("serve", "--port=0", f"--db={tmp_path / 'a.db'}")
    assert (found.returncode, found.stderr.count("\n")) == (3, 1)
    assert f"AUTOTUNE_LOCKS={tmp_path / 'none'}: is not a folder" in found.stderr


@pytest.mark.parametrize("host", ["999.0.0.1", "no such name"])
def test_what_is_no_address_is_said_before_a_token_is_asked_for(tmp_path: Path, host: str) -> None:
    found = autotune("serve", "--host", host, "--port=0", f"--db={tmp_path / 'a.db'}")
    assert (found.returncode, found.stderr.count("\n")) == (2, 1)
    assert f"--host {host}: is not an address" in found.stderr


def test_a_reader_that_is_left_when_the_server_stops_is_one_line(tmp_path: Path) -> None:
    database = tmp_path / "a.db"
    with Store.open(str(database)) as store:
        put(store, [replace(ok({"A": number}, 5), build_log="x" * 20_000) for number in range(1000)])
    command = [sys.executable, "-m", "autotune", "serve", "--port=0", f"--db={database}"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "AUTOTUNE_TOKEN": ""})
    assert process.stderr is not None
    said = ""
    while "token=" not in said:
        said += process.stderr.readline()
    port = int(re.findall(r" at http://127.0.0.1:(\d+)", said)[0])
    with socket.create_connection(("127.0.0.1", port)) as reader:
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        reader.sendall(b"GET /v1/export HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert reader.recv(16)
        process.terminate()
        _, said = process.communicate(timeout=120)
    assert "Traceback" not in said, said


def test_a_search_goes_on_after_the_server_was_killed(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(UPLOAD["study"].replace("[32, 64]", "[1, 2, 4, 8, 16, 32, 64, 128]"))
    (tmp_path / "blur.cl").write_text(
        "kernel void blur(const int N, global float *x) { if (get_global_id(0) < N) x[get_global_id(0)] *= 2; } // WG\n"
    )
    with started(tmp_path) as (server, url, token):
        second = autotune("serve", "--port=0", f"--db={tmp_path / 'a.db'}")
        assert second.returncode == 2
        assert "is at work on this database" in second.stderr
        client = Server(url, token, cache=False)
        asked = {"budget": {"trials": 8}, "sampler": "random", "seed": 1}
        once = client.submit(tmp_path / "study.toml", once="k", **asked)
        assert client.submit(tmp_path / "study.toml", once="k", **asked)["id"] == once["id"]
        waiting = client.submit("matmul", size={"M": 16, "N": 16, "K": 16}, budget={"trials": 1})["id"]
        for kind, told in client.events(once["id"]):
            if kind == "progress" and told["done"] >= 2:
                break
        (child, *_) = children(server.pid)
        server.send_signal(signal.SIGKILL)
        server.wait()
        assert has_ended(child)
    with ServerStore.open(str(tmp_path / "a.db")) as store:
        before = len(survey.following(store, [one.number for one in listing.searches(store, names=[once["id"]])]))
        assert [one.state for one in store.submitted()] == ["queued", "running"]
    with started(tmp_path) as (server, url, token):
        client = Server(url, token, cache=False, tell=lambda _: None)
        ended = client.wait(once["id"])
        assert (ended["state"], ended["reason"]) == ("done", "8 trials done")
        assert (ended["result"]["trials"], ended["result"]["reused"]) == (8, 0)
        assert sum(ended["outcomes"].values()) >= max(8, before)
        assert client.stop(waiting)["state"] in ("stopping", "stopped")
        assert client.wait(waiting)["state"] == "stopped"
        server.send_signal(signal.SIGHUP)
        assert server.wait() == 130


def test_a_token_with_every_right_stands_in_no_log_of_a_server_for_others(tmp_path: Path) -> None:
    database = f"--db={tmp_path / 'a.db'}"
    assert autotune("token", "add", "ann", database).returncode == 0
    command = [sys.executable, "-m", "autotune", "serve", "--port=0", "--behind-proxy", database]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        said = next(line for line in server.stderr if "sign in" in line)
        server.terminate()
        rest = server.stderr.read()
    assert f"autotune token add NAME --role admin --db {tmp_path / 'a.db'}" in said
    assert "login" not in said + rest


def test_a_search_that_cannot_be_is_told_why(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(UPLOAD["study"] + '[[constraints]]\nrequire = "WG > 64"\n')
    (tmp_path / "blur.cl").write_text(UPLOAD["files"]["blur.cl"])
    with started(tmp_path) as (_, url, token):
        client = Server(url, token, cache=False)
        with pytest.raises(UsageError, match="WG > 64"):
            client.search(tmp_path / "study.toml")
        (tmp_path / "study.toml").write_text(UPLOAD["study"])
        (tmp_path / "blur.cl").write_text(UPLOAD["files"]["blur.cl"].replace("*= 2", "*= two"))
        with pytest.raises(UsageError, match="no configuration builds: "):
            client.search(tmp_path / "study.toml")


def test_who_is_asked_to_end_twice_ends_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """For example if a database hangs and would be waited for in vain; pressing a key once may send a signal twice."""
    ended: list[int] = []
    app: Any = SimpleNamespace(state=SimpleNamespace())
    server = serving._Server(uvicorn.Config(app), app, lambda _: None)
    monkeypatch.setattr(os, "_exit", ended.append)
    for now, codes in ((10.0, []), (10.1, []), (12.0, [128 + signal.SIGTERM])):
        monkeypatch.setattr("time.monotonic", lambda now=now: now)
        server.handle_exit(signal.SIGTERM, None)
        assert ended == codes
    assert capsys.readouterr().err == "autotune: ends at once; what ran is queued again\n"
