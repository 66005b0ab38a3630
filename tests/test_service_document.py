"""The API keeps to its document: schemathesis asks every route in every role, for what is there and what is not."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from autotune.store import ROLES, listing
from tests.serving import SMALL, UPLOAD, Work, told
from tests.stored import ok, put

schemathesis = pytest.importorskip("schemathesis", reason="pip install '.[dev]'")

import httpx  # noqa: E402
import uvicorn  # noqa: E402
from schemathesis.checks import not_a_server_error  # noqa: E402
from schemathesis.specs.openapi.checks import (  # noqa: E402
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from autotune.service import Config, create_app, runner, state  # noqa: E402

pytestmark = [pytest.mark.server, pytest.mark.filterwarnings("ignore")]

EXAMPLES = 12
"""The number of requests per route and role."""

CHECKS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
)


class Server:
    """A server on a socket in this process, with some trials, searches and tokens."""

    def __init__(self, folder: Path) -> None:
        self.app = create_app(Config(database=str(folder / "a.db"), name="here", best_age_s=0.0))
        listening = socket.socket()
        listening.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        self.uvicorn = uvicorn.Server(uvicorn.Config(self.app, log_level="critical"))
        self.thread = threading.Thread(target=self.uvicorn.run, kwargs={"sockets": [listening]})
        self.thread.start()
        while not self.uvicorn.started:
            self.thread.join(0.01)
            assert self.thread.is_alive()
        store = self.app.state.service.store
        put(store, [ok({"A": 1}, 10, 11), ok({"A": 2}, 12, 13)])
        self.tokens: dict[str | None, str] = {role: store.add_token(role, role, None) for role in ROLES}
        self.seeds: dict[str, list[Any]] = {
            "id": [listing.searches(store)[0].uuid],
            "number": [1, 2, 3],
            "name": ["matmul", "read", "nobody"],
        }

    def close(self) -> None:
        self.uvicorn.should_exit = True
        self.thread.join()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    work = Work()
    work.ends = True

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state, "work", told)
        patch.setattr("autotune.service.submit.work", told)
        patch.setattr(runner.Runner, "_child", lambda self, submission: work.child(self, submission))
        found = Server(tmp_path_factory.mktemp("server"))
        try:
            yield found
        finally:
            found.close()


@pytest.fixture(scope="module")
def document(server: Server) -> Any:
    """The document made strict: an answer with more than what is described does not fit it."""
    told = httpx.get(f"{server.url}/v1/openapi.json").json()
    for schema in told["components"]["schemas"].values():
        if "properties" in schema:
            schema["additionalProperties"] = False
    found = schemathesis.openapi.from_dict(told)
    found.config.update(base_url=server.url)
    return found


def test_the_document_is_one_that_generators_of_clients_take(document: Any) -> None:
    document.validate()
    for path, operations in document.raw_schema["paths"].items():
        for method, operation in operations.items():
            for status, answer in operation["responses"].items():
                schemas = [kind.get("schema") for kind in answer.get("content", {}).values()]
                assert all(schemas), (method, path, status)
    kinds = document.raw_schema["components"]["schemas"]
    assert kinds["Device"]["properties"]["memory"]["format"] == "int64"  # else Go's has 32 bits
    size = kinds["Submit"]["properties"]["size"]
    assert size["additionalProperties"]["type"] == "integer"  # of patternProperties Java makes an Object
    assert "pattern" in size["propertyNames"]
    assert "default" not in kinds["Submit"]["properties"]["budget"]  # of which Go makes `var budget Budget = {}`
    assert not {f"New{name}" for name in kinds} & set(kinds)  # as Go names what makes one


def test_the_study_that_the_document_shows_is_one(server: Server, document: Any) -> None:
    fields = document.raw_schema["components"]["schemas"]["Upload"]["properties"]
    upload = {name: field["examples"][0] for name, field in fields.items()}
    headers = {"Authorization": f"Bearer {server.tokens['run']}"}
    told = httpx.post(f"{server.url}/v1/checks", json={"upload": upload}, headers=headers).json()
    assert told.get("valid_configurations") == 2, told


@pytest.mark.parametrize("role", [None, *ROLES])
def test_every_route_answers_as_its_document_says(server: Server, document: Any, role: str | None) -> None:
    draw = random.Random(str(role))
    headers = {} if role is None else {"Authorization": f"Bearer {server.tokens[role]}"}
    asked = 0
    for found in document.get_all_operations():
        operation = found.ok()

        @given(case=operation.as_strategy())
        @seed(15)
        @settings(
            max_examples=EXAMPLES,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        def ask(case: Any) -> None:
            nonlocal asked
            asked += 1
            for name, known in server.seeds.items():
                if name in (case.path_parameters or {}) and draw.random() < 0.5:
                    case.path_parameters[name] = draw.choice(known)
            if case.path == "/v1/searches" and case.method == "POST" and draw.random() < 0.3:
                case.body = draw.choice([SMALL, {"upload": UPLOAD}])
            whole = not case.path.endswith("/events")  # of a stream schemathesis holds each event against the schema
            checks = CHECKS if whole else CHECKS[:-1]
            case.validate_response(case.call(headers=headers), checks=checks)

        ask()
    assert asked > 100
