"""What each role may do with a server, and by which names the server may be called."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from autotune.errors import StoreError, UsageError
from autotune.store import ROLES, ServerStore, lasting
from tests.serving import SMALL, UPLOAD, Client, serving

from autotune.service import Config  # isort: skip  after tests.serving, which skips where it cannot be imported
from autotune.service import routes, views  # isort: skip
from autotune.service.callers import Caller, Callers  # isort: skip
from autotune.service.config import require_safe  # isort: skip
from autotune.service.feeds import Feeds  # isort: skip

NOBODY = "0" * 32
ROUTES: dict[tuple[str, str], tuple[str, int]] = {
    # method and path: the role it takes ("" for none), and the status for who has it
    ("GET", "/v1/health"): ("", 200),
    ("GET", "/v1/openapi.json"): ("", 200),
    ("GET", "/v1/me"): ("read", 200),
    ("GET", "/v1/home"): ("read", 200),
    ("GET", "/v1/best?study=matmul"): ("read", 200),
    ("GET", "/v1/devices"): ("read", 200),
    ("GET", "/v1/studies"): ("read", 200),
    ("GET", "/v1/studies/matmul"): ("read", 200),
    ("GET", "/v1/searches"): ("read", 200),
    ("GET", f"/v1/searches/{NOBODY}"): ("read", 404),
    ("GET", f"/v1/searches/{NOBODY}/trials"): ("read", 404),
    ("GET", f"/v1/searches/{NOBODY}/events"): ("read", 404),
    ("GET", "/v1/trials"): ("read", 200),
    ("GET", "/v1/trials/1"): ("read", 404),
    ("GET", "/v1/history"): ("read", 200),
    ("GET", "/v1/compare?study=matmul&by=size"): ("read", 200),
    ("GET", "/v1/export"): ("read", 200),
    ("POST", "/v1/import"): ("write", 200),
    ("POST", "/v1/checks"): ("run", 200),
    ("POST", "/v1/searches"): ("run", 202),
    ("DELETE", f"/v1/searches/{NOBODY}"): ("run", 404),
    ("GET", "/v1/tokens"): ("admin", 200),
    ("POST", "/v1/tokens"): ("admin", 201),
    ("DELETE", "/v1/tokens/nobody"): ("admin", 404),
}
BODIES = {
    "/v1/searches": SMALL,
    "/v1/checks": {"study": "matmul"},
    "/v1/tokens": {"name": "new", "role": "read"},
}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with serving(tmp_path_factory.mktemp("server")) as found:
        yield found


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A server that others can reach: without a token it says nothing."""
    folder = tmp_path_factory.mktemp("proxied")
    with ServerStore.open(str(folder / "a.db")) as store:
        store.add_token("first", "admin", None)
    with serving(folder, url="http://tune.example.org", behind_proxy=True) as found:
        yield found


def ask(client: Client, role: str | None, method: str, path: str) -> int:
    body = BODIES.get(path) if method == "POST" else None
    return int(client.ask(role, method, path, json=body).status_code)


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_each_route_takes_its_role_and_no_less(proxied: Client, method: str, path: str) -> None:
    needed, status = ROUTES[method, path]
    assert ask(proxied, None, method, path) == (401 if needed else status)
    for role in ROLES:
        may = not needed or ROLES.index(role) >= ROLES.index(needed)
        if path == "/v1/tokens" and may and method == "POST":
            continue  # the next test's
        assert ask(proxied, role, method, path) == (status if may else 403), role


def test_the_table_has_every_route_of_the_document(client: Client) -> None:
    document = client.ask(None, "GET", "/v1/openapi.json").json()
    known = {(method.upper(), path) for path, entry in document["paths"].items() for method in entry}
    told = {
        (method, re.sub(r"/[0-9a-f]{32}", "/{id}", path.partition("?")[0]))
        for method, path in ROUTES
        if path != "/v1/openapi.json"
    }
    named = {("GET", "/v1/studies/matmul"): "/v1/studies/{name}", ("GET", "/v1/trials/1"): "/v1/trials/{number}"}
    named["DELETE", "/v1/tokens/nobody"] = "/v1/tokens/{name}"
    assert {(method, named.get((method, path), path)) for method, path in told} == known
    schemes = document["components"]["securitySchemes"]  # generated clients send a token by it
    assert [name for one in document["security"] for name in one] == list(schemes)
    assert schemes["token"] == {"type": "http", "scheme": "bearer"}


def test_on_loopback_reading_is_open_and_nothing_else(client: Client) -> None:
    for (method, path), (needed, status) in ROUTES.items():
        assert ask(client, None, method, path) == (status if needed in ("", "read") else 401), path


def test_a_token_is_good_until_it_expires_or_is_revoked(client: Client) -> None:
    store = client.service.store
    gone = store.add_token("gone", "read", timedelta(microseconds=1))
    assert client.http.get("/v1/me", headers={"Authorization": f"Bearer {gone}"}).status_code == 401
    assert client.ask("read", "GET", "/v1/me", name="bob").json() == {"name": "bob", "role": "read"}
    assert client.ask("admin", "DELETE", "/v1/tokens/bob").status_code == 200
    assert client.ask("read", "GET", "/v1/me", name="bob").status_code == 401
    assert "hash" not in client.ask("admin", "GET", "/v1/tokens").text


def test_events_end_when_their_token_is_not_good_any_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "search", lambda service, name: {"state": "running"})
    monkeypatch.setattr("autotune.service.callers._KNOWN_S", 0.0)
    feeds = Feeds()

    async def main(store: ServerStore) -> None:
        known = Callers(store, Config(database=store.where))
        open_: Any = SimpleNamespace(callers=known, feeds=feeds)
        good = store.token_of
        for name, now in (("bob", good), ("ann", lambda token: None)):  # revoked elsewhere; expired
            caller = known.look_up(store.add_token(name, "read", timedelta(days=1)))
            assert caller is not None
            stream = routes.events(open_, caller, NOBODY)
            assert (await anext(stream)).event == "snapshot"
            monkeypatch.setattr(store, "token_of", Mock(side_effect=StoreError("is away")))
            feeds.of(NOBODY).tell("progress", {})
            assert (await anext(stream)).event == "progress"
            store.revoke_token("bob")
            monkeypatch.setattr(store, "token_of", now)
            feeds.of(NOBODY).tell("progress", {})
            with pytest.raises(StopAsyncIteration):
                await anext(stream)
            monkeypatch.setattr(store, "token_of", good)
        anybody = routes.events(open_, known.known(None) or Caller("", None), NOBODY)
        assert (await anext(anybody)).event == "snapshot"

    with ServerStore.open(str(tmp_path / "a.db")) as store:
        asyncio.run(main(store))


@pytest.mark.parametrize(
    ("told", "lasts"),
    [
        ("90d", timedelta(days=90)),
        ("8w", timedelta(weeks=8)),
        ("12h", timedelta(hours=12)),
        ("1h30m", timedelta(hours=1.5)),
    ],
)
def test_how_long_a_token_lasts_is_said_in_one_way(client: Client, told: str, lasts: timedelta) -> None:
    assert lasting(told, "--expires") == lasts
    token = client.headers("admin")
    made = {"name": f"for-{told}", "role": "read", "expires": told}
    found = client.http.post("/admin/tokens", data=made, headers=token | {"Accept": "application/json"})
    assert found.status_code == 200, found.text
    (stored,) = [one for one in client.service.store.tokens() if one.name == f"for-{told}"]
    until = datetime.fromisoformat(str(stored.expires)) - datetime.fromisoformat(stored.created)
    assert abs(until - lasts) < timedelta(minutes=1)


@pytest.mark.parametrize("told", ["90", "soon", "0d", "99999w", ""])
def test_what_no_token_lasts_is_one_line(told: str) -> None:
    with pytest.raises(UsageError, match=r"--expires: .*write 90d, 8w or 12h"):
        lasting(told, "--expires")


def test_a_new_token_is_told_once_and_kept_as_a_hash(client: Client) -> None:
    token = client.ask("admin", "POST", "/v1/tokens", json={"name": "ci", "role": "write", "days": 1}).json()["token"]
    assert client.http.get("/v1/me", headers={"Authorization": f"Bearer {token}"}).json()["role"] == "write"
    assert client.ask("admin", "POST", "/v1/tokens", json={"name": "ci", "role": "read"}).status_code == 422
    database = Path(client.service.store.where)
    files = [database, *database.parent.glob("a.db-wal")]
    assert not any(token.encode() in file.read_bytes() for file in files)


@pytest.mark.parametrize("days", [1e-320, 1e-5, 36500.5, 1e300])
def test_a_token_of_no_time_or_of_more_than_there_is_is_refused(client: Client, days: float) -> None:
    asked = {"name": "ci", "role": "read", "days": days}
    assert client.ask("admin", "POST", "/v1/tokens", json=asked).status_code == 422


@pytest.mark.parametrize("header", ["Bearer x", "Bearer \xe9", "Basic eA==", "Bearer", "bearer at_" + "x" * 5000])
def test_a_token_that_is_none_is_refused_or_not_seen(client: Client, header: str) -> None:
    answer = client.http.get("/v1/me", headers={b"Authorization": header.encode("latin-1")})
    assert answer.status_code == (401 if header.lower().startswith("bearer ") else 200)


def test_a_cookie_reads_and_changes_nothing_without_the_token_of_a_form(client: Client) -> None:
    token = client.headers("run")["Authorization"].partition(" ")[2]
    cookie = {"Cookie": f"autotune={token}"}
    assert client.http.get("/v1/me", headers=cookie).json() == {"name": "run", "role": "run"}
    assert client.http.post("/v1/checks", json={"study": "matmul"}, headers=cookie).status_code == 403
    form = Callers(client.service.store, client.service.config).csrf_token(token)  # of a page from before a restart
    forged = {**cookie, "X-CSRF-Token": client.service.callers.csrf_token("another")}
    assert client.http.post("/v1/checks", json={"study": "matmul"}, headers=forged).status_code == 403
    sent = {**cookie, "X-CSRF-Token": form}
    assert client.http.post("/v1/checks", json={"study": "matmul"}, headers=sent).status_code == 200
    assert client.http.get("/v1/me", headers={"Cookie": "autotune=old"}).json()["role"] == "read"


def test_a_form_to_whom_nothing_is_open_any_more_says_how_it_is_sent_again(proxied: Client) -> None:
    html = {"Accept": "text/html"}
    whole, part = (proxied.http.post("/submit", headers=html | more) for more in ({}, {"HX-Request": "true"}))
    assert (whole.status_code, part.status_code) == (401, 401)  # no way to a page without the form
    assert "reload this page" in whole.text
    assert part.text.strip().startswith('<div class="verdict bad" role="alert">')


NAMES = dict.fromkeys(["evil.example.org", "127.0.0.1.evil.org", "", "localhost.evil", "[::2]"], 421)
NAMES |= dict.fromkeys(["localhost:8080", "127.0.0.1", "[::1]:80"], 200)


@pytest.mark.parametrize("host", NAMES)
def test_a_server_on_loopback_is_reached_by_the_names_of_loopback_alone(client: Client, host: str) -> None:
    assert client.http.get("/v1/health", headers={"Host": host}).status_code == NAMES[host]


@pytest.mark.parametrize(
    "header",
    [
        "X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Port", "X-Forwarded-Server", "Forwarded", "Via",
        "X-Real-IP", "CF-Connecting-IP", "True-Client-IP", "X-Original-Forwarded-For",
    ],
)  # fmt: skip
def test_what_came_through_a_proxy_that_was_not_announced_is_refused(client: Client, header: str) -> None:
    answer = client.http.get("/v1/health", headers={header: "10.0.0.1"})
    assert answer.status_code == 421
    assert "--behind-proxy" in answer.json()["hint"]


def test_what_speaks_as_nginx_does_came_through_one(client: Client, proxied: Client) -> None:
    scope = {"type": "http", "method": "GET", "path": "/v1/health", "query_string": b"", "http_version": "1.0"}
    for of, host, status in ((client, b"127.0.0.1:8080", 421), (proxied, b"tune.example.org", 200)):
        assert asyncio.run(status_of(of.http.app, {**scope, "headers": [(b"host", host)]})) == status


async def status_of(app: Any, scope: dict[str, Any]) -> int:
    """Return the status with which an application answers a request without a body."""
    told: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        told.append(message)

    await app(scope, receive, send)
    return int(told[0]["status"])


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/v1/history?study=%00"), ("GET", "/trials?study=a%00"), ("DELETE", "/v1/tokens/%00"), ("GET", "/%00")],
)
def test_an_address_with_a_nul_is_refused(client: Client, method: str, path: str) -> None:
    answer = client.ask("admin", method, path)
    assert (answer.status_code, answer.json()["error"]) == (400, "the address holds a NUL character")


@pytest.mark.parametrize("path", ["/", "/v1/health", "/v1/devices", "/v1/export", "/v1/trials/1"])
def test_head_is_answered_as_get_without_a_body(client: Client, path: str) -> None:
    asked, bare = client.ask("read", "GET", path), client.ask("read", "HEAD", path)
    assert bare.status_code == asked.status_code
    assert bare.headers["content-type"] == asked.headers["content-type"]
    assert (bare.content, bool(asked.content)) == (b"", path != "/v1/export")


@pytest.mark.parametrize(
    ("method", "path", "takes"),
    [
        ("HEAD", f"/v1/searches/{NOBODY}/events", "GET"),
        ("PUT", "/v1/searches", "GET, POST"),
        ("PATCH", f"/v1/searches/{NOBODY}", "GET, DELETE"),
        ("OPTIONS", "/v1/import", "POST"),
        ("PUT", "/v1/best", "GET"),
        ("OPTIONS", "/", "GET"),
        ("PUT", "/login", "GET, POST"),
    ],
)
def test_what_an_address_takes_is_told_with_a_method_that_it_does_not(
    client: Client, method: str, path: str, takes: str
) -> None:
    answer = client.ask("read", method, path, headers={"Accept": "text/html"})
    assert (answer.status_code, answer.headers["allow"]) == (405, takes)


def test_every_answer_carries_the_headers_of_safety(client: Client, proxied: Client) -> None:
    for path in ("/v1/health", "/v1/nothing", "/v1/best?format=x"):
        headers = client.http.get(path).headers
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert "strict-transport-security" not in headers
    assert "strict-transport-security" in proxied.http.get("/v1/health").headers


@pytest.mark.parametrize(
    ("config", "has_tokens", "said"),
    [
        (Config(host="0.0.0.0"), False, "autotune token add"),
        (Config(host="0.0.0.0"), True, "--tls-cert"),
        (Config(host="::"), True, "clear text"),
        (Config(host="tune.example.org"), True, "clear text"),
        (Config(behind_proxy=True), False, "no token"),
        (Config(root="tune"), True, "--root-path: 'tune' is not a path; write it as in an address"),
        (
            Config(names=("tune.example.org", "https://tune.example.org")),
            True,
            "--host-name: 'https://tune.example.org' is",
        ),
        (Config(names=("tune.example.org:443",)), True, "write what stands between :// and the port"),
        (Config(names=("",)), True, "--host-name: '' is not a host name"),
        (Config(certificate=Path("nothing.pem")), True, "give both"),
        (
            Config(certificate=Path("nothing.pem"), key=Path("nothing.pem")),
            True,
            "--tls-cert nothing.pem: cannot be read: No such file or directory; ls . lists what is there",
        ),
        (Config(certificate=Path(__file__), key=Path("nothing.pem")), True, "--tls-key nothing.pem: cannot be read"),
        (Config(certificate=Path(__file__), key=Path(__file__)), True, "cannot be used together"),
    ],
)
def test_an_open_door_is_refused_in_one_line(config: Config, has_tokens: bool, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)) as error:
        require_safe(config, has_tokens)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "config",
    [
        Config(),
        Config(host="::1"),
        Config(host="localhost"),
        Config(behind_proxy=True),
        Config(names=("a.b-c.example", "10.0.0.1", "[fe80::1]")),
    ],
)
def test_a_closed_door_is_not(config: Config) -> None:
    require_safe(config, has_tokens=True)
    assert replace(config, behind_proxy=False).is_local


def test_a_server_that_only_shows_takes_nothing(tmp_path: Path) -> None:
    with serving(tmp_path, read_only=True) as client:
        assert client.ask("admin", "POST", "/v1/searches", json=SMALL).status_code == 403
        assert client.ask("admin", "POST", "/v1/import", content=b"").status_code == 403
        assert client.ask("admin", "GET", "/v1/me").json()["role"] == "read"
        assert client.ask(None, "GET", "/v1/home").status_code == 200


def test_a_request_that_is_too_large_is_refused_before_it_is_read(client: Client) -> None:
    for size in (3 * 2**20, 7 * 2**20):
        large = {"upload": {"study": "x" * size, "files": {}}}
        assert client.ask("run", "POST", "/v1/checks", json=large).status_code == 413
    many = {"upload": {"study": UPLOAD["study"], "files": {f"{n}.h": "" for n in range(100)}}}
    assert client.ask("run", "POST", "/v1/checks", json=many).status_code == 413


@pytest.mark.parametrize(("packed", "status"), [("gzip", 415), ("ZSTD, identity", 415), ("identity", 200), ("", 200)])
def test_a_body_that_is_packed_is_told_so(client: Client, packed: str, status: int) -> None:
    answer = client.ask("write", "POST", "/v1/import", content=b"\n", headers={"Content-Encoding": packed})
    assert answer.status_code == status
    assert status == 200 or answer.json()["where"] == "Content-Encoding"


@pytest.mark.parametrize(("role", "status"), [(None, 401), ("read", 403)])
@pytest.mark.parametrize("path", ["/v1/checks", "/v1/import"])
def test_what_is_large_is_not_read_of_who_may_not_send_it(
    client: Client, path: str, role: str | None, status: int
) -> None:
    large, kind = b"[" * 100_000, {"content-type": "application/json"}  # which is no JSON, whoever reads it
    assert client.ask(role, "POST", path, content=large, headers=kind).status_code == status
    if path == "/v1/checks":  # an import asks for the role before it reads
        assert client.ask(role, "POST", path, content=iter([large]), headers=kind).status_code == 413


def test_what_may_be_uploaded_fits_however_json_is_written(client: Client) -> None:
    body = json.dumps({"upload": {**UPLOAD, "study": "#" + "\x01" * (2**20 - 2000) + UPLOAD["study"]}})
    assert len(body) > 6_000_000
    headers = {"Content-Type": "application/json"}
    assert client.ask("run", "POST", "/v1/checks", content=body, headers=headers).status_code == 422  # no TOML
