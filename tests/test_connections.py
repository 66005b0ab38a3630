"""Clients that keep a server waiting: connections without a request, requests that do not end, too many of either."""

from __future__ import annotations

import asyncio
import errno
import json
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="pip install '.[serve]'")

from autotune.errors import StoreError, UsageError
from autotune.service import Config, Service, connections, create_app, guard, serving
from autotune.service.config import require_safe
from autotune.service.serving import settings
from autotune.service.transport import ServerAway, Transport

HEAD = b"GET /v1/health HTTP/1.1\r\nHost: 127.0.0.1\r\n"


@contextmanager
def served(app: Any, config: Config | None = None) -> Iterator[Callable[[], socket.socket]]:
    """Yield a function that connects to an application served as by `autotune serve`."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = connections.Listener(settings(config or Config(), app))
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    try:
        yield lambda: socket.create_connection(listening.getsockname(), timeout=60)
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture
def connect(tmp_path: Path) -> Iterator[Callable[[], socket.socket]]:
    with served(create_app(Config(database=str(tmp_path / "a.db"), read_only=True))) as found:
        yield found


def answer_to(connection: socket.socket, sent: bytes) -> bytes:
    """Return everything that arrives until the server ends the connection."""
    connection.sendall(sent)
    return b"".join(iter(lambda: connection.recv(2**16), b""))


def test_what_fails_as_a_server_begins_is_one_line_and_nothing_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    async def fails(_: Service) -> None:
        raise StoreError("is of version 99, newer than this program's")  # since it was looked at

    monkeypatch.setattr(Service, "start", fails)
    begun = list[str]()
    with pytest.raises(StoreError, match="is of version 99"):
        serving.serve(Config(database=str(tmp_path / "a.db"), port=0), lambda url, _: begun.append(url))
    assert begun == []
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("sent", [b"", HEAD, HEAD + b"X: " + b"x" * 100])
def test_a_request_that_does_not_come_ends_its_connection(
    connect: Callable[[], socket.socket], monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(connections, "HEAD_S", 0.05)
    with closing(connect()) as connection:
        assert answer_to(connection, sent) == b""
    with closing(connect()) as connection:
        assert answer_to(connection, HEAD + b"\r\n" + sent).startswith(b"HTTP/1.1 200")


def test_a_body_that_does_not_come_is_refused(
    connect: Callable[[], socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "BODY_S", 0.05)
    monkeypatch.setattr(connections, "HEAD_S", 0.05)
    for path in (b"/login", b"/v1/checks"):
        head = b"POST " + path + b" HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 40\r\n"
        with closing(connect()) as connection:
            told = answer_to(connection, head + b"Content-Type: application/x-www-form-urlencoded\r\n\r\nt")
        assert told.split()[1] == b"408"
        assert b"lists what is allowed there" not in told  # nothing is wrong with the address


@pytest.mark.parametrize("method", [b"POST", b"HEAD"])
@pytest.mark.parametrize("answered", [False, True])
def test_a_body_that_goes_on_as_no_http_ends_its_connection(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str], answered: bool, method: bytes
) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":  # answered before its body has come, as without a token
            await send({"type": "http.response.start", "status": 401, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body"})

    head = method + b" / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nHost: 127.0.0.1\r\n\r\n"
    with served(app) as connect, closing(connect()) as connection:
        if answered:
            connection.sendall(head)
            assert connection.recv(2**16).split()[1] == b"401"
        told = answer_to(connection, (b"" if answered else head) + b"no chunk\r\n")
    assert told.split()[1:2] == ([] if answered else [b"400"])
    assert answered or json.loads(told.partition(b"\r\n\r\n")[2])["error"].startswith("this is not HTTP")
    assert not [record for record in caplog.records if record.exc_info]  # asyncio's
    assert capsys.readouterr().err == "WARNING:  Invalid HTTP request received.\n"  # uvicorn's


@pytest.mark.parametrize("protocol", [b"h2c", b"websocket"])
def test_who_asks_for_another_protocol_is_answered_in_this_one(
    capsys: pytest.CaptureFixture[str], connect: Callable[[], socket.socket], protocol: bytes
) -> None:
    with closing(connect()) as connection:
        told = answer_to(connection, HEAD + b"Connection: close, Upgrade\r\nUpgrade: " + protocol + b"\r\n\r\n")
    assert told.split()[1] == b"200"
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("target", "status"),
    [
        (b"http://127.0.0.1:8080/v1/histor%79?study=x", b"200 "),
        (b"HTTP://localhost/v1/health", b"200 "),
        (b"http://evil.example/v1/health", b"421 "),
        (b"http://127.0.0.1", b"200 "),
    ],
)
def test_a_target_that_is_a_whole_address_is_taken_by_its_path_and_host(
    connect: Callable[[], socket.socket], target: bytes, status: bytes
) -> None:
    """As who takes the server for a proxy sends it; the host in it stands for the header."""
    with connect() as connection:
        said = answer_to(connection, b"GET " + target + b" HTTP/1.1\r\nHost: other\r\nConnection: close\r\n\r\n")
    assert said.startswith(b"HTTP/1.1 " + status)


def test_an_answer_takes_as_long_as_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_S", 0.05)
    go_on = threading.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"connection", b"close")]})
            await asyncio.to_thread(go_on.wait)
            await send({"type": "http.response.body", "body": b"the end"})

    with served(app) as connect, closing(connect()) as patient, closing(connect()) as idle:
        patient.sendall(HEAD + b"\r\n")
        assert answer_to(idle, HEAD) == b""  # its time, which began after the other's, is over
        go_on.set()
        assert b"the end" in answer_to(patient, b"")


def test_the_body_of_an_answer_does_not_wait_for_its_head_to_arrive(
    connect: Callable[[], socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    told, made = [], connections.Connection.connection_made

    def look(self: connections.Connection, transport: asyncio.Transport) -> None:
        made(self, transport)
        told.append(transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    monkeypatch.setattr(connections.Connection, "connection_made", look)
    with closing(connect()) as connection:
        answer_to(connection, HEAD + b"Connection: close\r\n\r\n")
    assert len(told) == 1
    assert told[0]


def test_who_waits_longest_makes_room(connect: Callable[[], socket.socket], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "most_connections", lambda: 3)
    waiting = [connect() for _ in range(12)]
    for connection in waiting:
        connection.sendall(HEAD)
    with closing(connect()) as connection:
        assert answer_to(connection, HEAD + b"Connection: close\r\n\r\n").startswith(b"HTTP/1.1 200")
    for connection in waiting:
        connection.close()


async def at_work(scope: Any, receive: Any, send: Any) -> None:
    """Read a body, send events without end, or give a large answer; answer any other request at once."""
    if scope["type"] != "http":
        return
    while scope["method"] == "POST" and (await receive()).get("more_body"):
        pass
    head = {"type": "http.response.start", "status": 200, "headers": [(b"connection", b"close")]}
    await send(head)
    if scope["path"] == "/large":
        await send({"type": "http.response.body", "body": bytes(2**26), "more_body": True})
    if scope["path"] == "/events":
        await send({"type": "http.response.body", "body": b"data: 1\n\n", "more_body": True})
        await receive()
    await send({"type": "http.response.body"})


BODY = b"POST /body HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 40\r\n\r\n"
EVENTS, LARGE = (b"GET /" + name + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" for name in (b"events", b"large"))


@pytest.mark.parametrize(
    ("first", "second"), [(BODY, BODY), (LARGE, LARGE), (EVENTS, EVENTS), (LARGE, EVENTS), (EVENTS, BODY)]
)
@pytest.mark.parametrize("brisk_s", [0.0, 60.0])
def test_who_stands_still_or_follows_events_makes_room(
    monkeypatch: pytest.MonkeyPatch, first: bytes, second: bytes, brisk_s: float
) -> None:
    """Otherwise a stranger could keep others from being served for as long as they like."""
    monkeypatch.setattr(connections, "most_connections", lambda: 2)
    monkeypatch.setattr(connections, "_BRISK_S", brisk_s)
    halfway, paused = threading.Semaphore(0), connections.Connection.pause_writing
    received = connections.Connection.data_received

    def receive(self: connections.Connection, data: bytes) -> None:
        received(self, data)
        halfway.release()

    def pause(self: connections.Connection) -> None:
        paused(self)
        halfway.release()

    monkeypatch.setattr(connections.Connection, "data_received", receive)
    monkeypatch.setattr(connections.Connection, "pause_writing", pause)
    with served(at_work) as connect:
        others = [connect() for _ in range(2)]
        for connection, sent in zip(others, (first, second), strict=True):
            connection.sendall(sent)
            for _ in range(1 + (b"/large" in sent)):
                assert halfway.acquire(timeout=60)
        with closing(connect()) as connection:
            assert answer_to(connection, HEAD + b"\r\n").startswith(b"HTTP/1.1 200")
        for connection in others:
            connection.close()


@pytest.fixture
def tls(tmp_path: Path) -> tuple[Config, ssl.SSLContext]:
    """A server's context with a certificate, and a client's that trusts it."""
    if shutil.which("openssl") is None:
        pytest.skip("apt-get install openssl")
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*words, *names, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    config = Config(database=str(tmp_path / "a.db"), read_only=True, certificate=certificate, key=key)
    return config, ssl.create_default_context(cafile=str(certificate))


def test_a_key_with_a_pass_phrase_is_refused_and_nobody_is_asked_for_it(tls: tuple[Config, ssl.SSLContext]) -> None:
    config, _ = tls
    assert config.key is not None
    closed = config.key.with_name("closed.pem")
    words = ["openssl", "rsa", "-aes128", "-passout", "pass:secret", "-in", str(config.key), "-out", str(closed)]
    subprocess.run(words, check=True, capture_output=True)
    require_safe(config, has_tokens=True)
    with pytest.raises(UsageError, match="has a pass phrase") as error:
        require_safe(replace(config, key=closed), has_tokens=True)
    assert "\n" not in str(error.value)


def asked(connection: socket.socket, trusts: ssl.SSLContext) -> bytes:
    with trusts.wrap_socket(connection, server_hostname="127.0.0.1") as safe:
        return answer_to(safe, HEAD + b"Connection: close\r\n\r\n")


def test_who_does_not_speak_tls_makes_room(tls: tuple[Config, ssl.SSLContext], monkeypatch: pytest.MonkeyPatch) -> None:
    config, trusts = tls
    monkeypatch.setattr(connections, "most_connections", lambda: 3)
    with served(create_app(config), config) as connect:
        silent = [connect() for _ in range(12)]
        assert asked(connect(), trusts).startswith(b"HTTP/1.1 200")
        assert silent[0].recv(1) == b""  # not after the time that a handshake has
        for connection in silent:
            connection.close()


def test_tls_that_does_not_come_ends_its_connection(
    tls: tuple[Config, ssl.SSLContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    config, trusts = tls
    with served(create_app(config), config) as connect:
        monkeypatch.setattr(connections, "HEAD_S", 0.05)
        with closing(connect()) as connection:
            assert connection.recv(1) == b""
        with closing(connect()) as connection:
            assert answer_to(connection, HEAD + b"\r\n") == b""  # plain HTTP
        monkeypatch.setattr(connections, "HEAD_S", 60.0)
        assert asked(connect(), trusts).startswith(b"HTTP/1.1 200")


def test_a_certificate_of_ones_own_is_trusted_by_who_names_it(
    tls: tuple[Config, ssl.SSLContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    config, _ = tls
    with served(create_app(config), config) as connect, closing(connect()) as connection:
        port = connection.getpeername()[1]
        there, elsewhere = (Transport(f"https://{host}:{port}", "") for host in ("127.0.0.1", "127.1"))
        with pytest.raises(ServerAway, match=r"self-signed certificate; .*export SSL_CERT_FILE=FILE"):
            there.ask("GET", "/v1/health", None, {})
        monkeypatch.setenv("SSL_CERT_FILE", str(config.certificate))
        with pytest.raises(ServerAway, match=r"not valid for '127\.1'; call it by a name that"):
            elsewhere.ask("GET", "/v1/health", None, {})
        untimely = ssl.SSLCertVerificationError(1, "x")
        untimely.verify_code, untimely.verify_message = 9, "certificate is not yet valid"
        assert "is not yet valid; check this machine's clock; " in str(there._away(untimely))
        assert there.ask("GET", "/v1/health", None, {}).status == 200


def test_a_server_that_may_open_no_more_files_takes_connections_again(
    connect: Callable[[], socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    accept, refused = asyncio.SelectorEventLoop.sock_accept, []

    async def instead(self: asyncio.SelectorEventLoop, listening: socket.socket) -> tuple[socket.socket, Any]:
        if len(refused) < 3:
            refused.append(OSError(errno.EMFILE, "too many open files"))
            raise refused[-1]
        return await accept(self, listening)

    monkeypatch.setattr(asyncio.SelectorEventLoop, "sock_accept", instead)
    for _ in range(2):  # the first is waited for already
        with closing(connect()) as connection:
            assert answer_to(connection, HEAD + b"Connection: close\r\n\r\n").startswith(b"HTTP/1.1 200")
    assert len(refused) == 3


def test_a_connection_that_cannot_be_made_does_not_keep_others_from_it(
    connect: Callable[[], socket.socket], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    make, failed = connections.Listener._protocol, []

    def instead(self: connections.Listener) -> asyncio.Protocol:
        if not failed:
            failed.append(ValueError("no protocol"))
            raise failed[0]
        return make(self)

    monkeypatch.setattr(connections.Listener, "_protocol", instead)
    with closing(connect()) as first, closing(connect()) as second:
        assert answer_to(second, HEAD + b"Connection: close\r\n\r\n").startswith(b"HTTP/1.1 200")
        assert "a connection failed" in caplog.text
        first.close()


def test_where_all_are_at_work_one_more_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "most_connections", lambda: 1)
    go_on, begun = threading.Event(), threading.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            begun.set()
            await asyncio.to_thread(go_on.wait)

    with served(app) as connect, closing(connect()) as first:
        first.sendall(HEAD + b"\r\n")
        assert begun.wait(60)
        with closing(connect()) as second:
            told = answer_to(second, b"")
        go_on.set()
    assert told.startswith(b"HTTP/1.1 503")
    assert json.loads(told.partition(b"\r\n\r\n")[2])["error"] == "all connections are in use"
