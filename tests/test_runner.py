"""Whatever the database does, a search that runs has a process, and a search without one does not run."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from autotune.errors import StoreError
from autotune.store import ConnectionLost, ServerStore, Submission
from tests.serving import Client, serving
from tests.test_service_api import CHILD, ended, submit
from tests.waiting import wait_until

from autotune.service import runner  # isort: skip


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setattr(runner, "AGAIN_S", 0.0)
    with serving(tmp_path) as found:
        yield found


def failing(times: int, does: Callable[..., Any], *, first: bool = False) -> Callable[..., Any]:
    """Return a function that does that, but fails some times; `first`: it acts first, and then its answer is lost."""
    turns = iter([True] * times)

    def fails(*given: Any) -> Any:
        if first:
            found = does(*given)
        if next(turns, False):
            raise StoreError("disk full")
        return found if first else does(*given)

    return fails


def test_an_end_that_cannot_be_stored_is_tried_again_until_it_is(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    client.work.ends = True
    monkeypatch.setattr(client.service.store, "end", failing(3, client.service.store.end))
    assert ended(client, submit(client).json()["id"])[1]["state"] == "done"
    assert [line for line in caplog.messages if "disk full" in line] == [
        line for line in caplog.messages if "tried again until it is stored" in line
    ]
    assert caplog.text.count("tried again until it is stored") == 1


def test_a_server_ends_though_the_end_of_a_search_cannot_be_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(tmp_path) as client:
        search = submit(client).json()["id"]
        monkeypatch.setattr(client.service.store, "end", failing(10**6, client.service.store.end))
    with serving(tmp_path) as client:
        client.work.ends = True
        assert ended(client, search)[1]["state"] == "done"


def test_a_claim_whose_answer_was_lost_is_made_again(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    client.work.ends = True
    monkeypatch.setattr(client.service.store, "claim", failing(1, client.service.store.claim, first=True))
    assert ended(client, submit(client).json()["id"])[1]["state"] == "done"


def test_what_runs_without_a_process_is_stopped_for_whoever_asks(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = client.service.store.claim
    monkeypatch.setattr(client.service.store, "claim", lambda *given: claim(*given) and None)
    search = submit(client).json()["id"]
    wait_until(lambda: client.ask("run", "GET", f"/v1/searches/{search}").json()["state"] == "running")
    assert client.ask("run", "DELETE", f"/v1/searches/{search}").status_code == 202
    last = ended(client, search)[1]
    assert (last["state"], last["reason"]) == ("stopped", "stopped; it had no process any more")


def test_a_search_runs_though_nobody_can_be_told_of_it(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    client.work.ends = True
    of = client.service.runner
    monkeypatch.setattr(of, "_describe", failing(1, of._describe))  # type: ignore[union-attr]
    assert ended(client, submit(client).json()["id"])[1]["state"] == "done"
    assert client.work.begun[0].attempts == 1


DONE = {"result": {"reason": "4 trials done", "failure": None, "best": {"PAD": 0}, "failed": None}}
LOST = {"error": ["the server closed the connection", "", "", "", "ConnectionLost", 2]}


def answering(monkeypatch: pytest.MonkeyPatch, *answers: Any) -> None:
    """Have the processes of a search give these answers one after the other, and then always the last one."""
    left, script = [*map(json.dumps, answers)], "import sys; sys.stdin.read(); print(sys.argv[1])"
    processes(monkeypatch, lambda: (script, left.pop(0) if len(left) > 1 else left[0]))


def processes(monkeypatch: pytest.MonkeyPatch, script: Callable[[], Sequence[str]]) -> None:
    """Have the process of a search run a script, with these words as its arguments."""

    async def started(name: str) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        words = (sys.executable, "-c", *script())
        return await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe, stderr=pipe)

    monkeypatch.setattr(runner, "started", started)
    monkeypatch.setattr(runner.Runner, "_child", CHILD)


WAITS = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
print('{"progress": 1}', flush=True)
signal.pause()
"""


@pytest.mark.parametrize("is_at_work", [True, False], ids=["", "that took this one for dead"])
def test_a_search_ends_where_another_server_is_told_to_stop_it(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_at_work: bool
) -> None:
    monkeypatch.setattr(runner, "LOOK_S", 0.0)
    processes(monkeypatch, lambda: [WAITS])
    search = submit(client).json()["id"]
    wait_until(lambda: client.service.feeds.of(search).latest is not None)
    with ServerStore.open(str(tmp_path / "a.db")) as other:
        other.ask_to_stop(search, is_at_work=is_at_work)
    wait_until(lambda: not client.service.runner._running)  # type: ignore[union-attr]
    last = ended(client, search)[1]
    assert last["state"] == "stopped"
    assert last["reason"].startswith("stopped")


def test_a_hold_that_went_with_its_connection_is_taken_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.service.state.KEEP_S", 0.01)
    with serving(tmp_path) as client:
        search = submit(client).json()["id"]
        wait_until(lambda: client.work.begun)
        with monkeypatch.context() as patch:
            patch.setattr(client.service.store, "is_at_work", lambda _: False)
            assert client.ask("run", "GET", f"/v1/searches/{search}").json()["state"] == "running"  # it knows better
        client.service._hold.close()
        wait_until(lambda: client.service.store.is_at_work("here"))


def test_a_search_goes_on_where_the_database_is_away_when_it_is_looked_at(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Away:
        """A store that cannot be asked for a submission."""

        def __getattr__(self, name: str) -> Any:
            return getattr(client.service.store, name)

        def submission(self, name: str) -> Submission:
            raise ConnectionLost("the server closed the connection")

    monkeypatch.setattr(client.service.runner, "_store", Away())
    answering(monkeypatch, DONE)
    last = ended(client, submit(client).json()["id"])[1]
    assert (last["state"], last["reason"], last["attempts"]) == ("done", "4 trials done", 1)


LEAVES = """
import json, subprocess, sys
left = subprocess.Popen(['sleep', '1000'], stdout=subprocess.DEVNULL)
answer = json.loads(sys.argv[1])
answer['result']['reason'] = str(left.pid)
print(json.dumps(answer))
"""


def test_what_a_search_has_left_behind_holds_up_nobody(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.service.process.LAST_S", 0.0)
    processes(monkeypatch, lambda: [LEAVES, json.dumps(DONE)])
    last = ended(client, submit(client).json()["id"])[1]
    assert last["state"] == "done"
    os.kill(int(last["reason"]), signal.SIGKILL)


def test_a_search_whose_own_database_was_away_is_queued_again(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, LOST, {"error": [*LOST["error"][:4], "ReadsOnly", 2]}, DONE)
    last = ended(client, submit(client).json()["id"])[1]
    assert (last["state"], last["attempts"]) == ("done", 3)


def test_why_a_search_failed_does_not_tell_where_the_database_is(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = client.service.store.where
    answering(monkeypatch, {"error": ["the disk is full", path, f"make room for {path}", "", "StoreError", 2]})
    last = ended(client, submit(client).json()["id"])[1]
    assert last["exit_code"] == 3  # no input of who asked
    assert last["reason"] == "the server's database: the disk is full; make room for the server's database"


@pytest.mark.parametrize("answer", ["error", "failure"])
def test_why_a_search_failed_is_told_in_words_of_a_request(
    client: Client, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    hint = "ask for a smaller --size, or give a run more time by --run-limit"
    told = f"it hangs; {hint}"
    failure = {"reason": "stopped by an error", "failure": told, "best": None, "failed": [told, 4]}
    error = ["it hangs", "", hint, "", "WorkerError", 4]
    answering(monkeypatch, {"error": error} if answer == "error" else {"result": failure})
    last = ended(client, submit(client).json()["id"])[1]
    assert last["reason"] == "it hangs; ask for a smaller size, or give a run more time by run_limit"
    assert last["exit_code"] == 4
    assert (last["result"] or failure).keys() - failure.keys() == set()
    assert "failed" not in (last["result"] or {})


@pytest.mark.parametrize(
    ("last_act", "told"),
    [
        ("os.kill(os.getpid(), 9)", "its process was killed by SIGKILL"),
        ("sys.exit(7)", "its process ended with exit code 7"),
    ],
)
def test_a_search_whose_process_ends_untimely_has_failed(
    client: Client, monkeypatch: pytest.MonkeyPatch, last_act: str, told: str
) -> None:
    processes(monkeypatch, lambda: [f"import os, sys; sys.stdin.read(); {last_act}"])
    last = ended(client, submit(client).json()["id"])[1]
    assert (last["state"], last["reason"], last["exit_code"]) == ("failed", told, 4)


def test_a_search_whose_database_is_always_away_ends(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "ATTEMPTS", 2)
    answering(monkeypatch, LOST)
    last = ended(client, submit(client).json()["id"])[1]
    assert (last["state"], last["attempts"]) == ("failed", 2)
    assert "the server closed the connection" in last["reason"]
