"""Lines sent to a server that is told to end: the sender learns whether they were stored."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from autotune.store import importing
from tests.serving import Client, serving
from tests.stored import ok, put_in

from autotune.store import Store  # isort: skip


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with serving(tmp_path) as found:
        yield found


@pytest.mark.parametrize("at", [None, "parsed", "_store_page"], ids=["taking", "checking", "storing"])
def test_an_import_is_given_up_whole_where_the_server_is_told_to_end(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str | None
) -> None:
    put_in(tmp_path / "b.db", [ok({"A": 1}, 5), ok({"A": 2}, 5)])
    with Store.open(str(tmp_path / "b.db")) as other:
        lines = "".join(f"{line}\n" for line in other.export_lines())

    def ends(does: Callable[..., Any]) -> Callable[..., Any]:
        def step(*given: Any) -> Any:
            client.service.end()
            return does(*given)

        return step

    if at is None:
        client.service.end()
    else:
        monkeypatch.setattr(importing, at, ends(getattr(importing, at)))
    told = client.ask("write", "POST", "/v1/import", content=lines)
    assert (told.status_code, told.json()["error"]) == (503, "the server is ending; nothing was imported")
    assert client.service.store.counts() == {}


def cut_off(
    client: Client,
    path: str,
    body: bytes | None = None,
    reached: Callable[[], bool] = lambda: True,
    then: Callable[[], None] = lambda: None,
) -> tuple[int, Any]:
    """Send a request as uvicorn passes it on, and cancel it once `reached`, as uvicorn does at its end.

    Return its answer. `body`: None if it never comes. `then` is called after that.
    """
    told = list[Any]()
    headers = {"Host": "127.0.0.1", "Content-Type": "application/json", **client.headers("run")}
    scope = {
        "type": "http", "http_version": "1.1", "method": "POST", "path": path, "query_string": b"",
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
    }  # fmt: skip
    waits = False

    async def receive() -> Any:
        nonlocal waits
        if body is None:
            waits = True
            await asyncio.Event().wait()
        return {"type": "http.request", "body": body}

    async def send(message: Any) -> None:
        told.append(message)

    async def ask() -> None:
        task = asyncio.ensure_future(client.http.app(scope, receive, send))  # type: ignore[arg-type]
        while not (reached() and (waits or body is not None)):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        then()
        await task

    assert client.http.portal is not None
    client.http.portal.call(ask)
    return told[0]["status"], json.loads(told[1]["body"])


@pytest.mark.parametrize(
    ("path", "what"),
    [
        ("/v1/import", "the server is ending; nothing was imported"),
        ("/v1/searches", "the server is ending, and what was asked may be done or not"),
    ],
)
def test_who_is_cut_off_is_told_in_one_line(client: Client, path: str, what: str) -> None:
    status, told = cut_off(client, path)
    assert (status, told["error"]) == (503, what)


def test_what_a_thread_stores_meanwhile_is_told(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    cancelled = threading.Event()

    def stores(*_: Any) -> int:
        assert cancelled.wait(60)
        return 5

    monkeypatch.setattr(client.service.store, "import_lines", stores)
    assert cut_off(client, "/v1/import", b"{}", lambda: bool(client.service.storing), cancelled.set) == (
        200,
        {"imported": 5},
    )
    assert not client.service.storing
