"""A server for tests: the application in this process, with an invented device and without child processes."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="pip install '.[serve]'")
pytest.importorskip("httpx", reason="pip install httpx")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Starlette recommends another client
    from starlette.testclient import TestClient

from autotune.service import Config, Service, create_app, runner, state
from autotune.service.asked import check, default, outline
from autotune.store import Submission
from tests.stored import DEVICE

TOLD = {
    "devices": [{"queue": "u0", "facts": asdict(DEVICE)}],
    "amiss": [],
}
UPLOAD: dict[str, Any] = {
    "study": """
name = "blur"
kernel = "blur.cl"
[sizes]
N = 1000
[parameters.WG]
values = [32, 64]
[arguments.x]
type = "float"
shape = ["N"]
access = "inout"
[[launch]]
entry = "blur"
global = ["round_up(N, WG)"]
local = ["WG"]
arguments = ["N", "x"]
[reference]
numpy = { x = "2 * x" }
""",
    "files": {"blur.cl": "kernel void blur(const int N, global float *x) { x[get_global_id(0)] *= 2; } // WG"},
}
SMALL = {"study": "matmul", "size": {"M": 64, "N": 64, "K": 64}, "budget": {"trials": 4}}


class Work:
    """Replaces the processes of searches: each search runs until `ends` is set, or until it is stopped."""

    def __init__(self) -> None:
        self.begun: list[Submission] = []
        self.asked: list[Mapping[str, Any]] = []
        self.ends = False

    async def child(self, of: runner.Runner, submission: Submission) -> runner.Ending:
        """Do what `Runner._child` does."""
        self.begun.append(submission)
        self.asked.append(of._asked(submission))
        while not self.ends:
            now = of._store.submission(submission.uuid)
            if now is not None and now.state == "stopping":
                return runner.Ending("stopped", "stopped")
            if of._closing:
                return runner.Ending("queued", "the server ended")
            await asyncio.sleep(0.01)
        return runner.Ending("done", "4 trials done", {"best": None})


class Client:
    """Asks the server with a role: `ask("run", "POST", ...)`; the role None sends no token."""

    def __init__(self, http: TestClient, service: Service, work: Work) -> None:
        self.http = http
        self.service = service
        self.work = work
        self.tokens: dict[str, str] = {}

    def headers(self, role: str | None, name: str = "") -> dict[str, str]:
        """Return the headers of somebody with that role; without a role, none."""
        if role is None:
            return {}
        who = name or role
        if who not in self.tokens:
            self.tokens[who] = self.service.store.add_token(who, role, None)
        return {"Authorization": f"Bearer {self.tokens[who]}"}

    def ask(self, role: str | None, method: str, path: str, *, name: str = "", **more: Any) -> Any:
        """Ask as somebody with a role."""
        headers = {**self.headers(role, name), **more.pop("headers", {})}
        return self.http.request(method, path, headers=headers, **more)


async def told(name: str, asked: Mapping[str, Any], seconds: float) -> Mapping[str, Any]:
    """Do what `process.work` does, in this process."""
    if name == "devices":
        return TOLD
    return await asyncio.to_thread({"outline": outline, "check": check, "default": default}[name], asked)


@contextmanager
def serving(folder: Path, *, url: str = "http://127.0.0.1", **config: Any) -> Iterator[Client]:
    """Yield a client of a server with a database in the folder."""
    done = Work()

    async def child(self: runner.Runner, submission: Submission) -> Any:
        return await done.child(self, submission)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state, "work", told)
        patch.setattr("autotune.service.submit.work", told)
        patch.setattr(runner.Runner, "_child", child)
        app = create_app(Config(database=str(folder / "a.db"), name="here", **config))
        with TestClient(app, base_url=url, raise_server_exceptions=True) as http:
            yield Client(http, app.state.service, done)
