"""The client of a server: which answers it accepts, which it keeps, what it does while the server is away."""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import autotune
from autotune.api import binaries
from autotune.cli import app, remote
from autotune.errors import AutotuneError, UsageError
from autotune.service import transport
from autotune.service.client import Server, ServerAway, ServerRefuses
from autotune.service.kept import Kept, KeptAnswers
from autotune.service.sending import upload_of
from autotune.store import BUSY_S, access
from tests.studies import SOURCE

BEST: dict[str, Any] = {
    "study": "blur", "match": "exact", "configuration": {"WG": 64, "MODE": "FAST"},
    "options": ["-DWG=64", "-DMODE=FAST"], "time_ns": 1000.0, "interval_ns": [990, 1010], "notes": [],
    "launches": [{"kernel": "blur", "global": [64], "local": [64], "offset": None}],
    "device": "nvidia-h200-132cu-140g", "size": {"N": 64},
    "choices": {"T": "float"}, "measured_on": "nvidia-h200-132cu-140g", "device_name": "NVIDIA H200",
    "measured_size": {"N": 64}, "driver": "550.1", "measured": "2026-01-01T00:00:00+00:00", "ties": 0, "trials": 9,
    "database": "the server's database",
}  # fmt: skip

EVENTS = (
    b'event: snapshot\ndata: {"state": "running"}\nid: e:0\n\n: ping\n\nevent: progress\ndata: {"done": 1}\nid: e:1\n\n'
)
HTML = b"<html>"
LOCKED = {"error": "is locked by another process", "where": "the server's database", "hint": "wait", "detail": ""}
END = b'event: end\ndata: {"state": "done", "reason": "done", "result": null}\nid: e:2\n\n'

Answers = list[tuple[int, Mapping[str, str], Any]]


class Fake:
    """A server that gives prepared answers, and records the requests."""

    def __init__(self, answers: Answers) -> None:
        self.answers = answers
        self.asked: list[tuple[str, str, Mapping[str, str], bytes]] = []
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                fake.asked.append((self.command, self.path, dict(self.headers), body))
                status, headers, told = fake.answers[min(len(fake.asked), len(fake.answers)) - 1]
                data = told if isinstance(told, bytes) else json.dumps(told).encode()
                self.send_response(status)
                for name, value in {"Content-Length": str(len(data)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data if status != 304 else b"")

            do_GET = do_POST = do_DELETE = answer

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"


@contextmanager
def server(*answers: tuple[int, Mapping[str, str], Any]) -> Iterator[Fake]:
    fake = Fake(list(answers))
    thread = threading.Thread(target=fake.http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield fake
    finally:
        fake.http.shutdown()
        fake.http.server_close()
        thread.join()


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("AUTOTUNE_TOKEN", raising=False)


def best(**changes: Any) -> dict[str, Any]:
    return {**BEST, **changes}


def test_the_best_of_a_server_is_as_that_of_a_database() -> None:
    told = BEST | {"ties": 2, "runs": 65}
    with server((200, {"Autotune-Flops": "128000"}, told)) as fake:
        found = autotune.connect(fake.url, "at_x").best("blur", size={"N": 64}, choices={"T": "float"})
        plain = json.loads(json.dumps(found._asdict()))
        assert {**plain, **told} == {**plain, "database": told["database"], "launches": told["launches"]}
        assert (found.match, found.flops, found.database) == ("exact", 128000.0, fake.url)
        assert found.launches == (("blur", (64,), (64,), None),)
        ((method, path, headers, _),) = fake.asked
        assert (method, path) == ("GET", "/v1/best?study=blur&size=N%3D64&choice=T%3Dfloat")
        assert headers["Authorization"] == "Bearer at_x"


def test_an_answer_is_not_asked_for_again_while_it_is_fresh() -> None:
    with server((200, {"Cache-Control": "private, max-age=60"}, BEST)) as fake:
        for _ in range(3):
            assert Server(fake.url).best("blur").trials == 9
        Server(fake.url, cache=False).best("blur")
        Server(fake.url, "at_other").best("blur")  # another's answers are not mine
        assert len(fake.asked) == 3


def test_an_answer_that_is_no_longer_fresh_is_asked_for_by_its_tag() -> None:
    fresh = {"ETag": '"a"', "Cache-Control": "max-age=0"}
    with server((200, fresh, BEST), (304, {"ETag": '"a"', "Cache-Control": "max-age=60"}, {})) as fake:
        assert [Server(fake.url).best("blur").trials for _ in range(3)] == [9, 9, 9]
        assert [entry[2].get("If-None-Match") for entry in fake.asked] == [None, '"a"']


@pytest.mark.parametrize(("away", "body"), [(502, HTML), (503, HTML), (503, LOCKED), (504, HTML), (None, HTML)])
def test_the_last_good_answer_stands_in_for_a_server_that_is_away(away: int | None, body: Any) -> None:
    said: list[str] = []
    with server((200, {"Cache-Control": "max-age=0"}, BEST), (away or 502, {}, body)) as fake:
        client = Server(fake.url, tell=said.append)
        first = client.best("blur")
        if away is not None:
            assert client.best("blur") == first
    if away is None:
        assert client.best("blur") == first
    assert "warning" in said[0]
    assert "its answer from 20" in said[0]
    with pytest.raises(ServerAway):
        Server(fake.url, tell=said.append).best("another")


def test_what_a_server_refuses_is_not_answered_from_the_cache() -> None:
    problem = {"error": "no study\x1b[2J named 'x'", "where": "study", "hint": "known: blur", "detail": ""}
    with server((200, {"Cache-Control": "max-age=0"}, BEST), (404, {}, problem)) as fake:
        Server(fake.url).best("blur")
        with pytest.raises(ServerRefuses, match=r"no study\\x1b\[2J named") as error:
            Server(fake.url).best("blur")
        assert error.value.status == 404


@pytest.mark.parametrize(
    "told",
    [
        b"<html>", b"[]", b"null", b"{}", b"\xff", b"[" * 100_000,
        best(configuration={"LD_PRELOAD": "x.so"}),
        best(configuration={"A": "1\nexit"}),
        best(configuration={"A": "*/ system()"}),
        best(configuration={"A": [1]}),
        best(configuration="WG=1"),
        best(options=["-DPATH=1"]),
        best(options=["-DA=1\n-DB=2"]),
        best(options=[5]),
        best(options=["-DA=*/"]),
        best(options=["-I\x1b[2J"]),
        best(options=["x" * 5000]),
        best(time_ns=True),
        best(size={"N": -1}),
        best(size={"N": 1.5}),
        best(time_ns="fast"),
        best(time_ns=-1),
        best(match="perfect"),
        best(study="../x"),
        best(device="$(reboot)"),
        best(notes=5),
        best(launches=[5]),
        best(launches=[BEST["launches"][0] | {"kernel": "x;"}]),
        best(launches=[BEST["launches"][0] | {"global": [0]}]),
        json.dumps(BEST).replace("1000.0", "NaN").encode(),
        json.dumps(BEST).replace("1000.0", "1e999").encode(),
    ],
)  # fmt: skip
def test_what_no_server_of_autotune_says_is_not_believed(told: Any) -> None:
    with server((200, {"Cache-Control": "max-age=60"}, told)) as fake:
        for _ in range(2):  # nor kept
            with pytest.raises(UsageError, match="its answer is invalid"):
                Server(fake.url).best("blur")


@pytest.mark.parametrize(
    "told", [{}, [], [1], {"id": 1}, {"id": "\ud800"}, {"sizes": [1]}, {"sizes": {"a": "b"}}, b'{"sizes":{"a":1e400}}']
)
def test_what_is_answered_to_no_question_is_one_line(told: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.service.client._PAUSE_S", 0)
    with server((200, {}, told)) as fake:
        asked = Server(fake.url)
        for ask in (asked.search, lambda: asked.sizes("blur")):
            with pytest.raises(AutotuneError, match="is it an autotune server of this version"):
                ask()


@pytest.mark.parametrize("ask", [Server.home, Server.devices, Server.studies, Server.history])
def test_a_list_is_no_table_and_a_table_no_list(ask: Callable[[Server], Any]) -> None:
    for told in ([5], {"a": 5}) if ask in (Server.studies, Server.history) else ([5],):
        with server((200, {}, told)) as fake, pytest.raises(ServerAway, match="its answer is invalid"):
            ask(Server(fake.url))


def test_what_a_proxy_does_not_pass_on_is_told_as_its_doing() -> None:
    with (
        server((413, {}, b"<html>")) as fake,
        pytest.raises(ServerRefuses, match="answers 413; a proxy in front of it"),
    ):
        Server(fake.url).home()


def test_an_error_of_any_depth_is_one_line() -> None:
    with server((400, {}, b'{"a":' + b"[" * 100_000)) as fake, pytest.raises(ServerRefuses, match="answers 400"):
        Server(fake.url).home()


@pytest.mark.parametrize("size", [b"-1", b"-5"])
def test_a_chunk_of_less_than_nothing_is_not_read_without_end(size: bytes) -> None:
    with server((200, {"Transfer-Encoding": "chunked"}, size + b"\r\n" + END)) as fake:
        for ask in (Server.home, lambda asked: list(asked._http.stream("/", ""))):
            with pytest.raises(ServerAway, match="does not answer: its answer has no length"):
                ask(Server(fake.url))


def test_an_answer_that_drips_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "ANSWER_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def drip() -> None:
            peer, _ = listening.accept()
            with peer, suppress(OSError):
                peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
                while True:
                    peer.sendall(b" ")

        thread = threading.Thread(target=drip)
        thread.start()
        with pytest.raises(ServerAway, match="does not answer: its answer took longer than"):
            Server(f"http://127.0.0.1:{listening.getsockname()[1]}").home()
        thread.join()


def test_a_status_of_any_length_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def says(*_: object) -> None:
        raise http.client.BadStatusLine("\x1b" * 60_000)

    monkeypatch.setattr(transport.Transport, "_sent", says)
    with pytest.raises(ServerAway) as error:
        Server("http://127.0.0.1:1").home()
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 400


def test_of_an_event_nothing_is_kept_but_what_is_read() -> None:
    sent = b"".join(b"field-%d: x\n" % number for number in range(50_000))
    with server((200, {}, sent + b"retry: 5\n" + END.replace(b"id: ", b"retry: 5\nid: "))) as fake:
        tracemalloc.start()
        try:
            assert [event[:2] for event in Server(fake.url)._http.stream("/", "")] == [("e:2", "end")]
            assert tracemalloc.get_traced_memory()[1] < 3 * 2**20
        finally:
            tracemalloc.stop()


def test_events_that_never_begin_are_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.service.client._PAUSE_S", 0)
    monkeypatch.setattr("autotune.service.client.PATIENCE_S", 0)
    with server((200, {}, b"")) as fake, pytest.raises(ServerAway, match="before the first one"):
        Server(fake.url).wait("x")


ROW: dict[str, Any] = {
    "study": "blur", "size": {"N": 64}, "choices": {}, "device": "d", "device_name": "D", "driver": "1",
    "sampler": "random", "configuration": {"WG": 64}, "outcome": "ok", "reason": "", "time_ns": 10.0,
    "interval_ns": [9, 11], "samples_ns": [9, 10, 11], "started": "2026-01-01T00:00:00+00:00", "finished": None,
    "kernel_hash": "k", "study_hash": "s",
}  # fmt: skip


@pytest.mark.parametrize(
    "changed",
    [
        {"samples_ns": ["x"]}, {"samples_ns": 5}, {"samples_ns": [10**400]}, {"samples_ns": [-1]}, {"outcome": "fine"},
        {"started": "yesterday"}, {"size": [1]}, {"configuration": "x"},
    ],
)  # fmt: skip
def test_a_history_that_is_none_is_one_line(changed: dict[str, Any]) -> None:
    with server((200, {}, [ROW | changed])) as fake:
        told = CliRunner().invoke(app, ["history", "--server", fake.url])
    assert told.exit_code == 2
    assert "its answer is invalid" in told.stderr


def test_a_history_is_asked_for_by_the_name_in_a_file_and_says_what_it_lacks(tmp_path: Path) -> None:
    study_file = tmp_path / "mine.toml"
    study_file.write_text('name = "blur"\nkernel = "mine.cl"\n[parameters.WPT]\nvalues = [1]\n')
    (tmp_path / "mine.cl").write_text(SOURCE)
    with server((200, {}, []), (200, {}, [])) as fake:
        told = CliRunner().invoke(
            app, ["history", str(study_file), "--server", fake.url, "--limit", "2000", "-d", "h200"]
        )
        assert fake.asked[0][1] == "/v1/history?limit=1000&failed=false&study=blur&device=h200"
        assert "the newest 1,000 at most" in told.stderr
        assert f"autotune search {study_file} -d h200 --server {fake.url} makes some" in told.stderr
        failures = CliRunner().invoke(app, ["history", "blur", "--failed", "--server", fake.url])
    assert failures.stderr == "no failed trial is stored of blur\n"


@pytest.mark.parametrize("events", [b"event: progress\ndata: {}\n\n" + END, b"event: end\ndata: {}\n\n"])
def test_a_search_that_tells_nothing_known_is_one_line(events: bytes) -> None:
    queued = {"id": "x", "study": "blur", "device": "d", "place": 1}
    with server((202, {}, queued), (200, {}, events)) as fake:
        told = CliRunner().invoke(app, ["search", "blur", "--server", fake.url])
    assert told.exit_code == 2
    assert "its answer is invalid: no '" in told.stderr


@pytest.mark.parametrize(("told", "code"), [(2, 2), (3, 3), (4, 4), (1, 1), (None, 1), (0, 1), ("2", 1), ([], 2)])
def test_a_search_that_failed_there_ends_the_command_as_one_here(told: Any, code: int) -> None:
    queued = {"id": "x", "study": "blur", "device": "d"}
    end = {"state": "failed", "reason": "no configuration is valid", "result": None, "exit_code": told}
    with server((202, {}, queued), (200, {}, b"event: end\ndata: %s\n\n" % json.dumps(end).encode())) as fake:
        found = CliRunner().invoke(app, ["search", "blur", "--server", fake.url])
    assert found.exit_code == code, found.exception
    assert found.stderr.splitlines()[-1].startswith(f"error: {fake.url}: ")


def test_a_search_that_is_not_followed_to_its_end_is_said_to_go_on() -> None:
    """For example if the token is revoked meanwhile."""
    queued = {"id": "x", "study": "blur", "device": "d"}
    with server((202, {}, queued), (401, {}, {"error": "the token was revoked", "where": "", "hint": ""})) as fake:
        found = CliRunner().invoke(app, ["search", "blur", "--server", fake.url])
    assert found.exit_code == 2
    assert f"this does not stop search x: {fake.url}/searches/x shows" in found.stderr
    assert "the token was revoked" in found.stderr.splitlines()[-1]


@pytest.mark.parametrize(("what", "told"), [("left_s", "1e999"), ("rate", "NaN"), ("time_ns", "1" + "0" * 400)])
def test_a_progress_without_end_is_one_line(what: str, told: str) -> None:
    trial = {"configuration": {"WG": 32}, "time_ns": 1}
    tell = {"done": 1, "total": 3, "elapsed_s": 1, "rate": 1, "left_s": 1, "phase": "search", "best": trial}
    events = b"event: progress\ndata: " + json.dumps(tell).replace(f'"{what}": 1', f'"{what}": {told}').encode()
    queued = {"id": "x", "study": "blur", "device": "d", "place": 1}
    with server((202, {}, queued), (200, {}, events + b"\n\n" + END)) as fake:
        found = CliRunner().invoke(app, ["search", "blur", "--server", fake.url])
    assert found.exit_code == 2, found.exception
    assert "its answer is invalid" in found.stderr


def test_a_search_that_cannot_be_stopped_is_said_to_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    with server() as fake:
        away = Server(fake.url)
    with pytest.raises(ServerAway):
        remote._stop(away, "abc")
    assert "search abc was not stopped: it goes on once the server is back" in capsys.readouterr().err


def test_notes_are_lines_of_visible_characters() -> None:
    notes = {"Autotune-Notes": json.dumps(["a\x1b]0;x\x07", "b\nerror: c"])}
    with server((200, notes, BEST)) as fake:
        assert Server(fake.url).best_and_notes("blur")[1] == ["a\\x1b]0;x\\x07", "b error: c"]


@pytest.mark.parametrize(
    "url",
    [
        *("tune", "ftp://x", "http://", "https://x?y=1", "https://x/#y", "https://u:p@x", "http://[::1"),
        *("http://x:99999", "http://a..b", f"http://{'a' * 70}.org", "http://x\udcff", "http://x/ü", "http://x/a b"),
        *("http://a b", "http://a\x7fb", "http://x\n:80"),
    ],
)
def test_what_is_no_server_is_said_so(url: str) -> None:
    with pytest.raises(UsageError, match="is not a server"):
        Server(url)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"url": None}, "url: NoneType is not text; write autotune.connect"),
        ({"url": b"http://x"}, "url: bytes is not text"),
        ({"url": "http://127.0.0.1:1", "token": 5}, "token: int is not text"),
        ({"url": "tune"}, "url: 'tune' is not a server"),
        ({"url": "http://127.0.0.1:1", "token": "a\nb"}, "token: holds characters that a token cannot have"),
    ],
)
def test_a_program_is_told_of_its_arguments(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=f"^{said}"):
        autotune.connect(**given)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (lambda server: server.best(None), "study: NoneType is neither the name of a study nor a path"),
        (
            lambda server: server.best("matmul", size=5),
            'size: int is not a mapping of names to values; write size={"NAME',
        ),
        (lambda server: server.best("matmul", size="64"), "size: str is not a mapping"),
        (lambda server: server.best("matmul", choices=5), "choices: int is not a mapping"),
        (lambda server: server.search("matmul", size=["M=5"]), "size: list is not a mapping"),
        (lambda server: server.search("matmul", on_progress=5), "on_progress: int is not a function; write print"),
        (lambda server: server.submit("matmul", size={"M": object()}), "object cannot be sent to a serv"),
        (lambda server: server.submit("matmul", size={("M",): 1}), "cannot be sent to a server: keys must be str"),
        (lambda server: server.submit("matmul", once="a\nb"), "once: is not a key of plain characters; leave it out"),
        (lambda server: server.search("matmul", budget=5), "budget: int is not a mapping"),
        (lambda server: server.history(limit=None), "limit: NoneType is not a whole number; write limit=30"),
    ],
)
def test_what_cannot_be_asked_is_one_line_before_it_is(asked: Callable[[Server], object], said: str) -> None:
    with server() as fake, pytest.raises(UsageError, match=f"^{re.escape(said)}"):
        asked(Server(fake.url, cache=False))


def test_blanks_around_a_server_are_none_of_its_name() -> None:
    assert Server("\thttps://x/\n").url == "https://x"


def test_numbers_of_numpy_are_sent_as_plain_ones() -> None:
    with server((202, {}, {"id": "x"})) as fake:
        Server(fake.url).submit("matmul", size={"M": np.int64(64)}, run_limit=np.float32(0.5))
        assert json.loads(fake.asked[0][3]) == {"study": "matmul", "size": {"M": 64}, "run_limit": 0.5}


def test_words_that_are_no_text_are_for_the_server_to_refuse() -> None:
    asks: list[Callable[[Server, str], Any]] = [
        lambda server, word: server.best(word),
        lambda server, word: server.best("matmul", device=word),
        lambda server, word: server.best("matmul", size=[f"M={word}"]),
        lambda server, word: server.history(word),
        lambda server, word: server.sizes(word),
        lambda server, word: server.find(word),
        lambda server, word: server.stop(word),
        lambda server, word: next(server.events(word)),
        lambda server, word: server.submit(word),
    ]
    refusal = {"error": "the question cannot be read", "where": "", "hint": ""}
    with server(*[(400, {}, refusal)] * len(asks)) as fake:
        for ask in asks:
            with pytest.raises(ServerRefuses, match="the question cannot be read"):
                ask(Server(fake.url, cache=False), "\udcff")


def test_a_server_refuses_before_nobody_waits_for_it_any_more() -> None:
    assert max(access.PATIENCE_S, BUSY_S) < transport.STORES_S


def test_a_token_does_not_travel_in_clear_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_TOKEN", "at_x")
    with pytest.raises(UsageError, match="unencrypted"):
        Server("http://tune.example.org")
    with pytest.raises(UsageError, match="a token cannot have"):
        Server("https://tune.example.org", "at\nx")
    Server("http://localhost:1")
    Server("https://tune.example.org")


def test_a_server_that_sends_elsewhere_is_not_followed() -> None:
    with server((302, {"Location": "http://127.0.0.1:1/"}, {})) as fake, pytest.raises(ServerRefuses, match="302"):
        Server(fake.url, "at_x").devices()


def test_a_study_goes_along_with_all_that_it_reads(tmp_path: Path) -> None:
    (tmp_path / "studies").mkdir()
    (tmp_path / "kernels").mkdir()
    study = tmp_path / "studies" / "saxpy.toml"
    study.write_text('name = "saxpy"\nkernel = "saxpy.cl"\n[parameters.WPT]\nvalues = [1]\n')
    (tmp_path / "kernels" / "saxpy.cl").write_text('#include "inc/a.h"\n' + SOURCE)
    (tmp_path / "kernels" / "inc").mkdir()
    (tmp_path / "kernels" / "inc" / "a.h").write_text("#define A\n")
    (tmp_path / "kernels" / "other.h").write_text("not of it\n")
    with server((202, {}, {"id": "x"})) as fake:
        Server(fake.url).submit(study, budget={"trials": 3}, device=None)
        body = json.loads(fake.asked[0][3])
    assert set(body) == {"upload", "budget"}
    assert set(body["upload"]["files"]) == {"../kernels/saxpy.cl", "../kernels/inc/a.h"}
    assert body["upload"]["study"] == study.read_text()


@pytest.mark.parametrize(
    ("kernel", "said"),
    [
        ("real.cl", ""),
        ("out.cl", ": it is a link to "),
        ("folder/secret", ": it is a link to "),
        ("../secret", "$"),
        ("{0}/secret", "$"),
    ],
)
def test_nothing_but_what_lies_in_the_study_s_folder_goes_to_a_server(tmp_path: Path, kernel: str, said: str) -> None:
    (tmp_path / "own" / "kernels").mkdir(parents=True)
    study = tmp_path / "own" / "saxpy.toml"
    kernel = kernel.format(tmp_path)
    study.write_text(f'name = "saxpy"\nkernel = "{kernel}"\n[parameters.WPT]\nvalues = [1]\n')
    (tmp_path / "secret").write_text(SOURCE)
    (tmp_path / "own" / "kernels" / "there.cl").write_text(SOURCE)
    (tmp_path / "own" / "real.cl").symlink_to("kernels/there.cl")
    (tmp_path / "own" / "out.cl").symlink_to(tmp_path / "secret")
    (tmp_path / "own" / "folder").symlink_to(tmp_path)
    if said:
        with pytest.raises(UsageError) as raised:
            upload_of(study)
        assert re.search(f"lies outside of the study's folder{said}", raised.value.what)
        assert raised.value.hint == "a server takes what lies beside the study, or in ../kernels/: copy it there"
    else:
        assert upload_of(study)["upload"]["files"] == {"real.cl": SOURCE}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"1,2\n3,4\xfc\n", r"x\.csv:2: byte 0xfc is not .*; if it is Latin-1, what `iconv .* \S+/x\.csv` prints"),
        (b"\x93NUMPY\x01\0", r"x\.csv: is not text; a server takes text alone"),
    ],
)
def test_data_of_another_encoding_is_not_sent(data: bytes, said: str, tmp_path: Path) -> None:
    study = tmp_path / "saxpy.toml"
    study.write_text(
        'name = "saxpy"\nkernel = "saxpy.cl"\n[parameters.WPT]\nvalues = [1]\n[arguments.x]\ndata.file = "x.csv"\n'
    )
    (tmp_path / "saxpy.cl").write_text(SOURCE)
    (tmp_path / "x.csv").write_bytes(data)
    with pytest.raises(UsageError, match=said):
        upload_of(study)


def test_a_search_is_sent_again_under_the_same_key_where_no_answer_came(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.service.client._PAUSE_S", 0)
    with server((502, {}, b""), (202, {}, {"id": "x"})) as fake:
        assert Server(fake.url).submit("blur") == {"id": "x"}
        keys = [entry[2]["Idempotency-Key"] for entry in fake.asked]
        assert keys[0] == keys[1]


def test_events_go_on_where_they_broke_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.service.client._PAUSE_S", 0)
    with server((200, {}, EVENTS), (502, {}, b""), (503, {}, LOCKED), (200, {}, END)) as fake:
        seen: list[Any] = []
        ended = Server(fake.url, tell=lambda _: None).wait("x", seen.append)
        assert [entry[2].get("Last-Event-ID") for entry in fake.asked][1:] == ["e:1"] * (len(fake.asked) - 1)
    assert seen == [{"done": 1}]
    assert ended["state"] == "done"


@pytest.mark.parametrize(
    ("named", "kept"),
    [("AUTOTUNE_CACHE", "servers"), ("XDG_CACHE_HOME", "autotune/servers"), ("HOME", ".cache/autotune/servers")],
)
def test_answers_are_kept_where_built_kernels_are(
    named: str, kept: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AUTOTUNE_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(named, str(tmp_path))
    KeptAnswers("https://server").keep("q", Kept.of({}, b"body"))
    assert len(list((tmp_path / kept).glob("*/*"))) == 1
    assert binaries.folder().parent == (tmp_path / kept).parent


def test_what_is_kept_is_checked_when_it_is_read(tmp_path: Path) -> None:
    answers = KeptAnswers("s")
    answers.keep("q", Kept.of({"cache-control": "max-age=60", "etag": "e"}, b"body"))
    assert answers.find("q").body == b"body"
    (file,) = (path for path in (tmp_path / "cache").rglob("*") if path.is_file())
    for damaged in (file.read_bytes()[:-1], b"", b"{}\nbody", b"[]\n", b"\xff"):
        file.write_bytes(damaged)
        assert answers.find("q") is None


def test_the_commands_ask_a_server() -> None:
    runner = CliRunner()
    with server((200, {"Autotune-Notes": '["note: x"]'}, BEST)) as fake:
        found = runner.invoke(app, ["best", "blur", "--server", fake.url, "--format", "defines"])
        assert (found.exit_code, found.stdout) == (0, "-DWG=64 -DMODE=FAST\n")
        assert "note: x" in found.stderr
    with server((200, {}, [ROW, ROW | {"origin": "ktt"}])) as fake:
        told = runner.invoke(app, ["history", "blur", "--server", fake.url])
        assert re.search("driver 1\n    WG=64\n.*imported from ktt\n    WG=64\n$", told.stdout)
    with server((200, {}, [ROW | {"outcome": "crash", "reason": "no " * 5000, "samples_ns": []}])) as fake:
        told = runner.invoke(app, ["history", "blur", "--server", fake.url])
        assert told.stdout.endswith(f"    {'no ' * 100} ... {'no ' * 66}no\n")
    refused = runner.invoke(app, ["best", "--server", fake.url, "--db", "x.db"])
    assert refused.exit_code == 2
    with server((503, {}, {"error": "gp takes torch", "where": "sampler", "hint": "pip install torch"})) as fake:
        lacking = runner.invoke(app, ["best", "blur", "--server", fake.url])
        assert (lacking.exit_code, lacking.stderr) == (
            3,
            f"error: {fake.url}: sampler: gp takes torch; pip install torch\n",
        )
    away = runner.invoke(app, ["best", "other", "--server", fake.url])
    assert away.exit_code == 3
    assert "does not answer" in away.stderr


def test_a_best_that_is_none_says_what_to_type(tmp_path: Path) -> None:
    (tmp_path / "my blur.cl").write_text(SOURCE)
    path = tmp_path / "my blur.toml"
    path.write_text('name = "blur"\nkernel = "my blur.cl"\n')
    told = {**BEST, "match": "nearest size", "size": {"N": 77, "M": 9}, "choices": {"T": "int"}}
    with server((200, {}, told)) as fake:
        for study, words, command in (
            ("blur", "-d 0 --size 77 --choice T=int", "blur -d 0 --size N=77,M=9 --choice T=int"),
            ("blur", "", "blur"),
            (str(path), "", f"'{path}'"),
        ):
            found = CliRunner().invoke(app, ["best", study, "--server", fake.url, *words.split()])
            last = found.stderr.splitlines()[-1]
            assert last == f"to measure it: autotune search {command} --server {fake.url}"


def test_a_search_on_a_server_from_the_command_line() -> None:
    queued = {"id": "x", "study": "blur", "device": "d", "place": 1}
    best = {"configuration": {"WG": 32}, "time_ns": 10.0, "interval_ns": [9.0, 11.0], "runs": 5, "gflops": 2.0}
    failed = {"count": 2, "example": {"configuration": {"WG": 64}, "reason": "no\nroom", "unsteady": True}}
    result = {"trials": 30, "elapsed_s": 60.0, "reason": "30 trials done", "reused": 2, "valid_configurations": 62}
    result |= {
        "best": {**best, "unverified": "y is not compared", "at_power_limit": True},
        "ranked": False,
        "noise": 0.05,
        "against_default": "20 ns:\nthe best is 2.00 x as fast",
    }
    result |= {"failures": {"crash": failed}, "ties": [{"WG": 128}]}
    result |= {"usage_s": {"build": 3.0, "finalists": 4.0, "idle": 1.0, "device": 2.0}}
    end = END.replace(b"null", json.dumps(result).encode())
    with server((202, {}, queued), (200, {}, EVENTS.replace(b'"done": 1', PROGRESS) + end)) as fake:
        words = ["search", "blur", "--server", fake.url, "--size", "N=64", "--trials", "3", "--fix", "WG=32,64"]
        words += ["--until-gain", "1%"]
        found = CliRunner().invoke(app, words)
        assert found.exit_code == 0, found.output
    assert "warning: y is not compared\n" in found.stderr
    assert "search: 1/3 trials, best about 5.000 ns, failed: 1 crash" in found.stderr
    told = [re.sub(" {2,}", ": ", row.strip()) for row in found.stdout.splitlines()]
    assert told[0] == "search: 30 new trials and 2 stored in 1 min 00 s; ended: 30 trials done"
    for row in (
        "default: 20 ns: the best is 2.00 x as fast",
        "tie: as fast within the intervals: WG=128",
        "noise: the device, at its power limit, varied its clock too much to rank the fastest: the interval of the "
        "winner's time is 5 % of it wide. Fix its clock below that, and search again: the stored finalists are timed "
        "anew",
        "crash: 2 x; e.g. WG=64: no room",
        "time spent: build 3 s (38 %), finalists 4 s (50 %), idle 1 s (12 %), device busy 50 % before the finalists",
        "longer: 32 of 62 valid configurations are tried, 30 a minute: all would take 1 min 00 s",
        f"autotune search blur --size N=64 --server {fake.url} --fix WG=32,64 --timeout 5m",
        f"next: autotune best blur --size N=64 --server {fake.url} --format defines",
    ):
        assert row in told, found.stdout
    assert "race: a kernel that is right at one time" in "\n".join(told)
    body = json.loads(fake.asked[0][3])
    assert (body["study"], body["size"], body["fix"]) == ("blur", {"N": 64}, {"WG": [32, 64]})
    assert body["budget"] == {"trials": 3, "least_gain": 0.01}


def test_who_is_ended_but_by_ctrl_c_says_that_the_search_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.cli.remote._listen", lambda _server, _name, news: news.put(KeyboardInterrupt()))
    with server((202, {}, {"id": "x", "study": "blur", "device": "d", "place": None})) as fake:
        found = CliRunner().invoke(app, ["search", "blur", "--server", fake.url])
    assert found.exit_code == 130
    told = f"search x goes on at the server: {fake.url}/searches/x stops it\ninterrupted\n"
    assert found.stderr.endswith(told)


def test_a_search_by_name_says_whose_text_it_is_of() -> None:
    study_from = {"asked_by": "bob\x1b[2J", "search": "f" * 32, "created": "2026-11-20T08:00:00+00:00"}
    queued = {"id": "x", "study": "blur", "device": "d", "place": None, "study_from": study_from}
    with server((202, {}, queued), (200, {}, EVENTS.replace(b'"done": 1', PROGRESS) + END)) as fake:
        found = CliRunner().invoke(app, ["search", "blur", "--server", fake.url])
    told = f"the text that bob\\x1b[2J sent on 2026-11-20 (search {'f' * 32})"
    assert f"note: blur is not a study of the server; this is {told}" in found.stderr
    with server((202, {}, {**queued, "study_from": "bob"})) as fake:
        found = CliRunner().invoke(app, ["search", "blur", "--server", fake.url])
    assert found.exit_code == 2
    assert "its answer is invalid" in found.stderr


@pytest.mark.parametrize("words", ["--sizes 64,128", "--on tcp://x:1", "--at-most 2", "--allow-python"])
def test_what_a_server_cannot_be_asked_for_is_refused(words: str) -> None:
    with server((500, {}, {})) as fake:
        found = CliRunner().invoke(app, ["search", "blur", "--server", fake.url, *words.split()])
        assert (found.exit_code, fake.asked) == (2, [])
    assert f"--server and {words.split()[0]} exclude each other" in found.stderr


@pytest.mark.parametrize(
    ("throttled", "warning"),
    [
        ("", ""),
        ("hw_slowdown", "warning: the best was timed while the device was throttled (hw_slowdown): let it cool"),
        ("busy_cores", "warning: the best was timed while other programs used the cores, or a container's CPU quota"),
    ],
)
def test_a_search_on_a_server_warns_of_a_best_timed_on_a_throttled_device(throttled: str, warning: str) -> None:
    best = {"configuration": {"WG": 32}, "time_ns": 10.0, "interval_ns": [9.0, 11.0], "runs": 5, "gflops": None}
    result = {"trials": 3, "elapsed_s": 1.0, "reason": "3 trials", "best": {**best, "throttled": throttled}}
    end = END.replace(b"null", json.dumps(result).encode())
    queued = {"id": "x", "study": "blur", "device": "d", "place": 1}
    with server((202, {}, queued), (200, {}, EVENTS.replace(b'"done": 1', PROGRESS) + end)) as fake:
        found = CliRunner().invoke(app, ["search", "blur", "--server", fake.url, "--size", "N=64"])
    assert found.exit_code == 0, found.output
    assert warning in found.stderr
    assert ("warning: the best" in found.stderr) is bool(throttled)


PROGRESS = (
    b'"done": 1, "total": 3, "failures": {"crash": 1}, "elapsed_s": 1, "rate": 1, "left_s": null, "phase": "search",'
    b' "best": {"configuration": {"WG": 32}, "outcome": "ok", "time_ns": 10.0, "standing_ns": 5.0, "reason": ""}'
)
