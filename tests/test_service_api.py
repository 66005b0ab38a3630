"""What a server answers: look-ups, searches from the queue to their end, errors in one shape."""

from __future__ import annotations

import asyncio
import errno
import json
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.errors import StoreError
from autotune.samplers import SAMPLERS
from autotune.study import Study, StudyText, find_study, problem_key, space_hash
from autotune.text import in_quotes
from tests.serving import SMALL, TOLD, UPLOAD, Client, serving
from tests.stored import DEVICE, ok, put

from autotune.lookup.formats import FORMATS  # isort: skip
from autotune.service import routes, runner, uploads, views  # isort: skip
from autotune.service.trust import NOTES  # isort: skip
from autotune.store import queries  # isort: skip
from autotune.service.lookups import Answer, Lookups  # isort: skip
from autotune.service.studies import Studies  # isort: skip

CONFIGURATION = {
    "VARIANT": "WPT", "TILE": 32, "TILE_K": 16, "WPT_M": 4, "WPT_N": 4, "VECTOR_WIDTH": 1, "PAD": 0, "UNROLL": 4,
}  # fmt: skip
CHILD = runner.Runner._child
"""The original function, which tests replace."""

SHARED = ("state", "reason", "outcomes", "number", "searches")
"""The keys of a search that the list of searches and its own answer share."""

SIZE = {"M": 64, "N": 64, "K": 64}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with serving(tmp_path, best_age_s=0.0) as found:
        yield found


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """One server for the tests that leave nothing behind."""
    with serving(tmp_path_factory.mktemp("server")) as found:
        yield found


def store_one(client: Client, *samples: int, **more: Any) -> int:
    """Store a trial of matmul as `autotune search` would store it."""
    text = find_study("matmul")
    key = problem_key(text, SIZE, {"T": "float"}, DEVICE.fingerprint)
    trial = ok({**CONFIGURATION, **more}, *samples)
    return put(client.service.store, [trial], key=key, environment={"space": space_hash(text)})


def submit(client: Client, role: str = "run", **more: Any) -> Any:
    return client.ask(role, "POST", "/v1/searches", json={**SMALL, **more.pop("body", {})}, **more)


def ended(client: Client, search: str) -> Any:
    """Follow the events of a search to its end; return their kinds and the data of the last one."""
    kinds = []
    with client.http.stream("GET", f"/v1/searches/{search}/events", headers=client.headers("read")) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        for line in stream.iter_lines():
            if line.startswith("event: "):
                kinds.append(line.removeprefix("event: "))
            elif line.startswith("data: "):
                last = json.loads(line.removeprefix("data: "))
    return kinds, last


# Look-ups --------------------------------------------------------------------------------------------------


def test_the_best_in_every_format_and_how_it_matches(client: Client) -> None:
    store_one(client, 1000, 1010, 1020)
    asked = "/v1/best?study=matmul&size=64"
    for format in FORMATS:
        answer = client.ask(None, "GET", f"{asked}&format={format}")
        assert answer.status_code == 200
        assert answer.headers["autotune-match"] == "exact"
        assert "max-age=60" in answer.headers["cache-control"]
        assert "TILE" in answer.text
    told = client.ask(None, "GET", asked).json()
    assert told["configuration"] == CONFIGURATION
    assert told["database"] == "the server's database"
    assert [sorted(launch) for launch in told["launches"]] == [["global", "kernel", "local", "offset"]]
    assert client.ask(None, "GET", "/v1/best?study=matmul&size=128").headers["autotune-match"] == "nearest size"


def test_who_has_the_answer_is_told_so_until_it_is_another(client: Client) -> None:
    store_one(client, 1000, 1010, 1020)
    asked = "/v1/best?study=matmul&size=64&device=" + DEVICE.fingerprint
    tag = client.ask(None, "GET", asked).headers["etag"]
    for given in (tag, f"W/{tag}", f'"x", {tag}', "*"):
        again = client.ask(None, "GET", asked, headers={"If-None-Match": given})
        assert (again.status_code, again.content) == (304, b"")
    store_one(client, 500, 510, 520, PAD=1)
    answer = client.ask(None, "GET", asked, headers={"If-None-Match": tag})
    assert answer.status_code == 200
    assert answer.json()["configuration"]["PAD"] == 1


def test_an_answer_stands_for_as_long_as_it_may(tmp_path: Path) -> None:
    with serving(tmp_path, best_age_s=1e6) as client:
        first = client.ask(None, "GET", "/v1/best?study=matmul&size=64").json()
        store_one(client, 1000, 1010, 1020)
        assert client.ask(None, "GET", "/v1/best?study=matmul&size=64").json() == first
        assert client.ask(None, "GET", "/v1/best?study=matmul&size=M=64,N=64,K=64").json()["match"] == "exact"


def test_an_answer_stands_while_nobody_writes_to_the_database(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    store_one(client, 1000, 1010, 1020)
    asked, looked_up = "/v1/best?study=matmul&size=64", list[str]()
    look_up = Lookups._look_up

    def noted(lookups: Lookups, query: str) -> Answer:
        looked_up.append(query)
        return look_up(lookups, query)

    monkeypatch.setattr(Lookups, "_look_up", noted)
    monkeypatch.setattr("autotune.service.lookups._TICK_NS", -(10**12))  # as if it had been written long ago
    first = client.ask(None, "GET", asked).json()
    assert client.ask(None, "GET", asked).json() == first
    assert len(looked_up) == 1
    store_one(client, 500, 510, 520, PAD=1)
    assert client.ask(None, "GET", asked).json()["configuration"]["PAD"] == 1
    monkeypatch.setattr("autotune.service.lookups._TICK_NS", 10**18)  # it may just be written again
    for _ in range(2):
        client.ask(None, "GET", asked)
    assert len(looked_up) == 4


def test_an_answer_of_a_linked_database_stands_no_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.db").symlink_to("far.db")
    monkeypatch.setattr("autotune.service.lookups._TICK_NS", -(10**12))
    with serving(tmp_path, best_age_s=0.0) as client:
        store_one(client, 1000, 1010, 1020)
        for pad in (0, 1):
            found = client.ask(None, "GET", "/v1/best?study=matmul&size=64").json()
            assert found["configuration"]["PAD"] == pad
            store_one(client, 500, 510, 520, PAD=1)


@pytest.mark.parametrize(
    ("query", "status", "said"),
    [
        ("study=nope", 404, "no study named"),
        ("study=../matmul", 422, "is not a name of a study"),
        ("study=./matmul.toml", 422, "is not a name of a study"),
        ("study=matmul.toml", 422, "is not a name of a study"),
        ("study=matmul&size=X=1", 422, "no size named"),
        ("study=matmul&size=", 422, "nothing to ask"),
        ("study=matmul&choice=T=half", 422, "cannot be"),
        ("study=matmul&device=nothing", 422, "no device"),
        ("study=matmul&format=exe", 422, "no format"),
        ("study=matmul&stduy=x", 422, "did you mean"),
        ("study=matmul&kernel_hash=" + "0" * 32, 404, "another text"),
        ("study", 400, "cannot be read"),
        ("study=%ff", 400, "cannot be read"),
        ("study=matmul&device=%1b", 422, "nothing to ask"),
        ("x" * 5000, 422, "more than"),
    ],
)
def test_a_wrong_question_is_told_what_is_wrong(shared: Client, query: str, status: int, said: str) -> None:
    answer = shared.ask(None, "GET", f"/v1/best?{query}")
    assert answer.status_code == status, answer.text
    assert said in answer.json()["error"]
    assert str(Path.cwd()) not in answer.text


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("trials?stduy=matmul", "known: study, device, search, outcome, before, limit"),
        ("compare?study=matmul&by=PAD&siz=64", "known: by, study, size, choice, device"),
        ("export?study=matmul", "this takes none; leave it out"),
    ],
)
def test_what_a_route_does_not_take_is_refused_and_not_left_out(shared: Client, path: str, hint: str) -> None:
    answer = shared.ask(None, "GET", f"/v1/{path}")
    assert (answer.status_code, answer.json()["hint"]) == (422, hint)


# Searches --------------------------------------------------------------------------------------------------


def test_a_search_from_the_queue_to_its_end(client: Client) -> None:
    answer = submit(client)
    assert answer.status_code == 202
    told = answer.json()
    assert answer.headers["location"] == f"/v1/searches/{told['id']}"
    assert (told["asked_by"], told["device"]) == ("run", DEVICE.fingerprint)
    client.work.ends = True
    kinds, last = ended(client, told["id"])
    assert kinds[0] == "snapshot"
    assert kinds[-1] == "end"
    assert (last["state"], last["reason"]) == ("done", "4 trials done")
    assert client.work.begun[0].asked_by == "run"


def test_what_is_asked_reaches_the_process_of_the_search(client: Client) -> None:
    body = {"seed": 7, "fix": {"TILE": [16, 32]}, "start": [{"PAD": 1}], "choices": {"T": "int"}, "fresh": True}
    client.work.ends = True
    search = submit(client, body=body).json()["id"]
    ended(client, search)
    (asked,) = client.work.asked
    assert {name: asked[name] for name in body} == body
    assert asked["budget"] == {"trials": 4, "seconds": 4 * 3600.0, "until_stale": None, "least_gain": None}
    assert (asked["submission"], asked["asked_by"]) == (search, "run")
    assert asked["allow_python"] is False


def test_a_search_may_end_by_its_gain(client: Client) -> None:
    client.work.ends = True
    ended(client, submit(client, body={"budget": {"least_gain": 0.01}}).json()["id"])
    (asked,) = client.work.asked
    assert (asked["budget"]["least_gain"], asked["budget"]["seconds"]) == (0.01, 4 * 3600.0)


def test_what_events_tell_is_not_read_where_all_requests_are_answered(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading an uploaded study may take seconds, and a database may hang."""
    search, held_up = views.search, list[bool]()

    def noted(*given: Any) -> Any:
        held_up.append(asyncio._get_running_loop() is not None)
        return search(*given)

    monkeypatch.setattr(views, "search", noted)
    client.work.ends = True
    for _ in range(2):
        ended(client, submit(client).json()["id"])
    first, second = (submit(client).json()["id"] for _ in range(2))
    for one in (second, first):
        client.ask("run", "DELETE", f"/v1/searches/{one}")
    assert len(held_up) > 4
    assert not any(held_up)


def test_one_search_at_a_time_and_the_rest_know_their_place(client: Client) -> None:
    searches = [submit(client, name=name).json()["id"] for name in ("ann", "ann", "bob")]
    places = [client.ask("read", "GET", f"/v1/searches/{one}").json()["place"] for one in searches[1:]]
    assert sorted(places) in ([0, 1], [1, 2])  # the first may have begun or not
    home = client.ask("read", "GET", "/v1/home").json()
    assert len(home["running"]) + sum(map(len, home["queued"].values())) == 3
    client.work.ends = True
    for search in searches:
        assert ended(client, search)[1]["state"] == "done"
    assert {one.uuid for one in client.work.begun} == set(searches)


def test_what_joins_a_cluster_is_found_and_its_queue_worked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.service.state._LATELY_S", 0.0)
    here = TOLD["devices"]
    monkeypatch.setitem(TOLD, "devices", [])
    with serving(tmp_path, on="tcp://127.0.0.1:8786") as client:
        assert submit(client).json()["error"] == "the server has no device to search on"
        monkeypatch.setitem(TOLD, "devices", here)
        client.work.ends = True
        assert ended(client, submit(client).json()["id"])[1]["state"] == "done"
        assert client.work.asked[0]["on"] == "tcp://127.0.0.1:8786"


def test_stopping_what_waits_and_what_runs(client: Client) -> None:
    first, second = (submit(client).json()["id"] for _ in range(2))
    for search in (second, first):
        assert client.ask("run", "DELETE", f"/v1/searches/{search}").status_code == 202
        assert ended(client, search)[1]["state"] == "stopped"
        assert client.ask("run", "DELETE", f"/v1/searches/{search}").status_code == 409


def test_a_search_is_stopped_by_who_asked_for_it_or_by_an_admin(client: Client) -> None:
    first, second = (submit(client, name="ann").json()["id"] for _ in range(2))
    address = f"/v1/searches/{first}"
    refused = client.ask("run", "DELETE", address, name="bob")
    assert refused.status_code == 403
    assert refused.json()["error"] == "ann asked for this search"
    assert refused.json()["hint"] == "have ann stop it, or use a token of the role admin"
    for name, role in (("ann", "run"), ("bob", "run"), ("cid", "read"), ("eve", "admin")):
        for page in ("/searches", f"/searches/{first}", "/"):
            has_button = "Stop the search" in client.ask(role, "GET", page, name=name).text
            assert has_button == (name in ("ann", "eve")), (name, page)
    assert client.ask("run", "DELETE", address, name="ann").status_code == 202
    assert client.ask("admin", "DELETE", f"/v1/searches/{second}", name="eve").status_code == 202
    assert client.ask("run", "DELETE", f"/v1/searches/{'0' * 32}", name="bob").status_code == 404
    ended(client, first)
    assert client.ask("run", "DELETE", address, name="bob").status_code == 409


def test_the_same_key_is_the_same_search(client: Client) -> None:
    one, two = (submit(client, headers={"Idempotency-Key": "k"}).json()["id"] for _ in range(2))
    assert one == two
    assert submit(client, body={"seed": 1}, headers={"Idempotency-Key": "k"}).status_code == 409
    assert submit(client, name="bob", headers={"Idempotency-Key": "k"}).json()["id"] != one
    unset = submit(client, headers={"Idempotency-Key": ""})  # of a variable that is not set: each would be the first
    assert (unset.status_code, unset.json()["where"]) == (422, "header.idempotency-key")


def test_a_whole_number_may_be_written_as_some_languages_write_all(client: Client) -> None:
    told = submit(client, body={"size": {"M": 64.0}, "budget": {"trials": 4.0}, "seed": 1.0}).json()
    assert (repr(told["budget"]["trials"]), repr(told["size"]["M"])) == ("4", "64")


def test_ten_at_once_are_all_taken(client: Client) -> None:
    found = [submit(client, name=f"user{number}").json()["id"] for number in range(10)]
    client.work.ends = True
    assert {ended(client, search)[1]["state"] for search in found} == {"done"}


def test_who_has_seen_the_end_is_told_to_come_no_more(client: Client) -> None:
    client.work.ends = True
    search = submit(client).json()["id"]
    ended(client, search)
    path = f"/v1/searches/{search}/events"
    with client.http.stream("GET", path, headers=client.headers("read")) as stream:
        last = [line.removeprefix("id: ") for line in stream.iter_lines() if line.startswith("id: ")][-1]
    assert client.ask("read", "GET", path, headers={"Last-Event-ID": last}).status_code == 204


@pytest.mark.parametrize(
    ("body", "status", "where"),
    [
        ({"study": "nope"}, 404, "study"),
        ({"study": "../x"}, 422, "study"),
        ({"study": None}, 422, "study, upload"),
        ({"upload": UPLOAD}, 422, "study, upload"),
        ({"device": "0,1"}, 422, "device"),
        ({"device": "nothing"}, 422, ""),
        ({"size": {"X": 1}}, 422, "size"),
        ({"size": {"M": 0}}, 422, "size.M"),
        ({"size": {"M": 1.5}}, 422, "size.M"),
        ({"choices": {"T": "half"}}, 422, "choices"),
        ({"fix": {"TILE": 3}}, 422, "fix"),
        ({"fix": {"TILE": []}}, 422, "fix"),
        ({"fix": {"TIEL": 32}}, 422, "fix"),
        ({"start": [{"PAD": 99}]}, 422, "start"),
        ({"budget": {"trials": 10**8}}, 422, "budget.trials"),
        ({"budget": {"seconds": 1e8}}, 422, "budget.seconds"),
        ({"budget": {"seconds": -1}}, 422, "budget.seconds"),
        ({"budget": {"least_gain": 1.5}}, 422, "budget.least_gain"),
        ({"budget": {"least_gain": 0.01}, "sampler": "random"}, 422, "budget.least_gain"),
        ({"sampler": "magic"}, 422, "sampler"),
        ({"allow_python": True}, 422, "allow_python"),
        ({"seed": -1}, 422, "seed"),
    ],
)
def test_a_wrong_search_is_told_what_is_wrong(shared: Client, body: dict[str, Any], status: int, where: str) -> None:
    answer = submit(shared, body=body)
    assert answer.status_code == status, answer.text
    assert answer.json()["where"].startswith(where)
    assert shared.work.begun == []


MANY = {f"a{number}": 1 for number in range(10_001)}


@pytest.mark.parametrize(
    "body",
    [MANY, {"size": MANY}, {"fix": {"TILE": [[]] * 10_001}}, {"study": None, "upload": UPLOAD | {"files": MANY}}],
)
def test_a_request_of_too_many_values_is_one_error(shared: Client, body: dict[str, Any]) -> None:
    """Reporting half a million errors would block the whole server for half a minute."""
    answer = submit(shared, body=body)
    assert (answer.status_code, answer.json()["error"]) == (422, "a request may hold 10,000 values")


def test_an_uploaded_study_is_searched_looked_up_and_searched_again(client: Client) -> None:
    client.work.ends = True
    first = submit(client, body={"study": None, "upload": UPLOAD, "size": {}}).json()
    assert (first["study"], first["uploaded"]) == ("blur", True)
    ended(client, first["id"])
    assert client.ask(None, "GET", "/v1/best?study=blur").json()["match"] == "default"
    again = submit(client, body={"study": "blur", "size": {"N": 500}}).json()
    ended(client, again["id"])
    assert [one["upload"] for one in client.work.asked] == [UPLOAD, UPLOAD]


def test_what_is_uploaded_is_checked_by_a_process_of_its_own_and_once(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check may take as much of the server's time as the author of the study wants."""
    checked = []

    async def work(name: str, asked: Mapping[str, Any], seconds: float) -> Mapping[str, Any]:
        checked.append(asked["upload"])
        return {"study": "blur", "stated": {"N": 1000}}

    monkeypatch.setattr("autotune.service.submit.work", work)
    monkeypatch.setattr(Study, "from_text", None)
    sent = submit(client, body={"study": None, "upload": UPLOAD, "size": {}}).json()
    assert (sent["study"], sent["size"]) == ("blur", {"N": 1000})
    assert checked == [UPLOAD]
    assert client.service.studies.text("blur").source == UPLOAD["files"]["blur.cl"]


def test_a_search_of_an_upload_is_told_what_is_wrong_as_one_of_the_servers(shared: Client) -> None:
    for wrong, where in (({"size": {"X": 1}}, "size"), ({"fix": {"WG": 3}}, "fix"), ({"start": [{"W": 1}]}, "start")):
        answer = submit(shared, body={"study": None, "upload": UPLOAD, "size": {}, **wrong})
        assert (answer.status_code, answer.json()["where"]) == (422, where)


OTHER = UPLOAD | {"files": {"blur.cl": UPLOAD["files"]["blur.cl"] + " // another"}}


def test_a_name_means_ones_own_text_and_it_is_told_whose_it_is(client: Client) -> None:
    sent = {}
    for who, upload in (("ann", UPLOAD), ("bob", OTHER)):
        sent[who] = submit(client, name=who, body={"study": None, "upload": upload, "size": {}}).json()
        assert sent[who]["study_from"] is None
    by_name = {"study": "blur", "size": {}}
    for who, whose in (("ann", "ann"), ("bob", "bob"), ("cid", "bob")):
        told = submit(client, name=who, body=by_name).json()
        assert (told["study_from"]["asked_by"], told["study_from"]["search"]) == (whose, sent[whose]["id"])
        assert client.service.store.submission(told["id"]).upload == (UPLOAD if whose == "ann" else OTHER)
    assert "sent it</a>" in client.ask(None, "GET", f"/searches/{told['id']}").text
    answer = client.ask(None, "GET", "/v1/best?study=blur")
    assert (
        f"the text that bob sent on {sent['bob']['created'][:10]} (search {sent['bob']['id']})" in answer.headers[NOTES]
    )
    text = client.service.studies.text("blur")
    asked = f"/v1/best?study=blur&kernel_hash={text.kernel_hash}&study_hash={text.study_hash}"
    assert "bob" not in client.ask(None, "GET", asked).headers[NOTES]
    assert client.ask(None, "GET", "/v1/studies/blur").json()["study_from"]["asked_by"] == "bob"


def test_an_upload_that_is_read_twice_at_once_is_written_where_nobody_reads(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise half a kernel could be read, and would be the text of that upload from then on."""
    submit(client, body={"study": None, "upload": UPLOAD, "size": {}})
    studies, unpack, folders = Studies(client.service.store, client.service.config), uploads.unpack, list[Path]()

    def meanwhile(upload: Mapping[str, Any], folder: Path) -> Path:
        folders.append(folder)
        if len(folders) == 1:
            with ThreadPoolExecutor(1) as other:
                assert other.submit(studies.text, "blur").result().study.name == "blur"
        return unpack(upload, folder)

    monkeypatch.setattr(uploads, "unpack", meanwhile)
    assert studies.text("blur").source == UPLOAD["files"]["blur.cl"]
    assert len(set(folders)) == 2
    studies.close()


def test_what_is_sent_again_by_name_keeps_its_text_whatever_came_since(client: Client) -> None:
    submit(client, name="ann", body={"study": None, "upload": UPLOAD, "size": {}})
    body, headers = {"study": "blur", "size": {}}, {"Idempotency-Key": "k"}
    first = submit(client, name="bob", body=body, headers=headers).json()
    submit(client, name="bob", body={"study": None, "upload": OTHER, "size": {}})
    again = submit(client, name="bob", body=body, headers=headers)
    assert (again.status_code, again.json()["id"]) == (202, first["id"])
    assert submit(client, name="bob", body={**body, "seed": 1}, headers=headers).status_code == 409
    assert client.service.store.submission(first["id"]).upload == UPLOAD


def test_a_problem_is_shown_with_its_own_text_whatever_was_uploaded_since(client: Client) -> None:
    submit(client, name="ann", body={"study": None, "upload": UPLOAD, "size": {}})
    key = problem_key(client.service.studies.text("blur"), {"N": 1000}, {}, DEVICE.fingerprint)
    put(client.service.store, [ok({"WG": 32}, 1000, 1010, 1020)], key=key, device=DEVICE)
    submit(client, name="bob", body={"study": None, "upload": OTHER, "size": {}})
    assert client.ask(None, "GET", "/v1/home").json()["latest"][0]["best"]["match"] == "exact"
    assert "WG=32" in client.ask(None, "GET", "/problems/1").text


def test_a_study_that_changes_while_it_is_read_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    kernel = tmp_path / "studies" / "blur.cl"
    kernel.parent.mkdir()
    kernel.with_suffix(".toml").write_text(UPLOAD["study"])
    kernel.write_text(UPLOAD["files"]["blur.cl"])

    def read(name: str) -> StudyText:
        text = find_study(name)
        kernel.write_text("// another\n")
        return text

    monkeypatch.setattr("autotune.service.studies.find_study", read)
    with serving(tmp_path, best_age_s=0.0) as client:
        assert [client.service.studies.own("blur").source.count("// another") for _ in range(2)] == [0, 1]


def test_that_a_name_is_none_of_the_servers_is_found_out_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr("autotune.service.studies.study_file", lambda name: asked.append(name))
    with serving(tmp_path, best_age_s=3600.0) as client:
        studies = client.service.studies
        assert [studies.own("nowhere") for _ in range(3)] == [None] * 3
        assert asked == ["nowhere"]
        names = [f"n{number}" for number in range(1000)]
        assert not any(map(studies.own, [*names, "nowhere"]))
        assert asked == ["nowhere", *names, "nowhere"]  # of names without end a few are kept
    with serving(tmp_path, best_age_s=0.0) as client:
        asked.clear()
        assert [client.service.studies.own("nowhere") for _ in range(2)] == [None] * 2
        assert len(asked) == 2


def test_an_uploaded_study_never_stands_for_one_of_the_servers(client: Client) -> None:
    client.work.ends = True
    upload = {**UPLOAD, "study": UPLOAD["study"].replace('"blur"', '"matmul"', 1)}
    ended(client, submit(client, body={"study": None, "upload": upload, "size": {}}).json()["id"])
    told = client.ask(None, "GET", "/v1/studies/matmul").json()
    assert told["sizes"] == {"M": 256, "N": 256, "K": 256}
    assert told["constraints"][1]["require"] == "VARIANT != 'WPT' or WPT_M * WPT_N > 1"
    assert client.ask(None, "GET", "/v1/best?study=matmul").json()["size"] == {"M": 256, "N": 256, "K": 256}


def test_a_study_of_the_servers_answers_to_the_name_it_calls_itself_by(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that names a file, `autotune best ./my.toml --server`, asks by that name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "studies").mkdir()
    (tmp_path / "studies" / "file.toml").write_text(UPLOAD["study"])
    (tmp_path / "studies" / "blur.cl").write_text(UPLOAD["files"]["blur.cl"])
    text = find_study("blur")
    put(client.service.store, [ok({"WG": 64}, 1000, 1010)], key=problem_key(text, {"N": 1000}, {}, DEVICE.fingerprint))
    for name in ("blur", "file"):
        asked = f"/v1/best?study={name}&kernel_hash={text.kernel_hash}&study_hash={text.study_hash}"
        assert client.ask(None, "GET", asked).json()["configuration"] == {"WG": 64}
        assert client.ask("read", "GET", f"/v1/history?study={name}").json()[0]["study"] == "blur"
        assert submit(client, body={"study": name, "size": {}}).status_code == 202
    listed = {one["study"]: one["trials"] for one in client.ask(None, "GET", "/v1/studies").json()}
    assert listed["file"] == 1
    assert "blur" not in listed


def test_a_check_tells_what_a_study_is_and_what_is_wrong_with_it(shared: Client) -> None:
    told = shared.ask("run", "POST", "/v1/checks", json={"upload": UPLOAD}).json()
    assert (told["study"], told["valid_configurations"], told["default"]) == ("blur", 2, {"WG": 32})
    wrong = {**UPLOAD, "study": UPLOAD["study"] + '[[constraints]]\nrequire = "WG > 64"\n'}
    answer = shared.ask("run", "POST", "/v1/checks", json={"upload": wrong})
    assert answer.status_code == 422
    assert "WG > 64" in answer.text


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('"2 * x"', '"2 * zz"', "unknown name 'zz'"),
        ('"2 * x"', '"2 *"', "reference.numpy.x"),
        ('entry = "blur"', 'entry = "blue"', "blue"),
        ('shape = ["N"]', 'shape = ["N * 1000000000"]', "buffers take"),
        ('shape = ["N"]', 'shape = ["N * 1000000000"]', '"hint":"give a smaller size"'),
        (
            "[sizes]",
            "".join(f"[parameters.P{n}]\nvalues = {[*range(64)]}\n" for n in range(12)) + "[sizes]",
            "study.toml",
        ),
    ],
)
def test_a_check_finds_what_would_end_a_search(shared: Client, old: str, new: str, told: str) -> None:
    wrong = {**UPLOAD, "study": UPLOAD["study"].replace(old, new)}
    answer = shared.ask("run", "POST", "/v1/checks", json={"upload": wrong})
    assert answer.status_code == 422
    assert told in answer.text
    assert "autotune-run" not in answer.text


@pytest.mark.parametrize(
    ("on", "told"), [(None, "0.0 GiB are available"), ("tcp://127.0.0.1:1", '"valid_configurations":2')]
)
def test_a_check_for_a_cluster_does_not_ask_for_room_on_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on: str | None, told: str
) -> None:
    monkeypatch.setattr("autotune.pool.sizing.available", lambda: 0.0)
    large = {**UPLOAD, "study": UPLOAD["study"].replace('shape = ["N"]', 'shape = ["N * 1000000000"]')}
    with serving(tmp_path, on=on) as client:
        assert told in client.ask("run", "POST", "/v1/checks", json={"upload": UPLOAD}).text
        assert "buffers take" in client.ask("run", "POST", "/v1/checks", json={"upload": large}).text


def test_a_process_that_says_too_much_has_failed_and_the_queue_goes_on(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def talks(name: str) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        words = (sys.executable, "-c", "print('x' * 100_000, flush=True); import time; time.sleep(600)")
        return await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe, stderr=pipe, limit=2**12)

    with monkeypatch.context() as patch:
        patch.setattr(runner, "started", talks)
        patch.setattr(runner.Runner, "_child", CHILD)
        _, last = ended(client, submit(client).json()["id"])
        assert last["state"] == "failed"
        assert "in one line" in last["reason"]
        patch.setattr(runner.Runner, "_child", None)  # what nobody has thought of
        _, last = ended(client, submit(client).json()["id"])
        assert last["state"] == "failed"
        assert "could not follow it" in last["reason"]
    client.work.ends = True
    _, last = ended(client, submit(client).json()["id"])
    assert last["state"] == "done"


def test_each_search_is_listed_once_as_it_ended(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    store = client.service.store

    async def fails(self: runner.Runner, submission: Any) -> runner.Ending:
        return runner.Ending("failed", "buffer x takes 8.0 GiB")

    with monkeypatch.context() as patch:
        patch.setattr(runner.Runner, "_child", fails)
        early = submit(client).json()["id"]
        assert ended(client, early)[1]["state"] == "failed"
    killed = submit(client).json()["id"]  # twice: the server was killed, and went on
    for reason in ("lost", "interrupted"):
        text = find_study("matmul")
        key = problem_key(text, SIZE, {"T": "float"}, DEVICE.fingerprint)
        store.end_search(store.start_search(key, DEVICE, sampler="random", seed=1, submission=killed), reason)
    alone = store_one(client, 1000, 1010, 1020)
    at_work = client.ask(None, "GET", "/v1/searches").json()
    assert [one["id"] for one in at_work["open"]] == [killed]
    assert killed not in [one["id"] for one in at_work["searches"]]
    client.work.ends = True
    assert ended(client, killed)[1]["state"] == "done"
    listed = client.ask(None, "GET", "/v1/searches").json()
    assert listed["open"] == []
    assert [one["id"] for one in listed["searches"]].count(killed) == 1
    assert {one["id"]: one["state"] for one in listed["searches"]}.items() >= {early: "failed", killed: "done"}.items()
    for one in listed["searches"]:
        told = client.ask(None, "GET", f"/v1/searches/{one['id']}").json()
        assert [told[name] for name in SHARED] == [one[name] for name in SHARED]
    pages, before = [], ""
    while before is not None:
        page = client.ask(None, "GET", f"/v1/searches?limit=1{before and f'&before={before}'}").json()
        pages += [one["id"] for one in page["searches"]]
        before = page["next"]
    assert sorted(pages) == sorted(one["id"] for one in listed["searches"])
    assert alone


def test_what_a_server_left_that_is_not_at_work_runs_nowhere_and_can_be_stopped(client: Client) -> None:
    store = client.service.store
    request = {"budget": {"seconds": 40.0}, "fingerprint": DEVICE.fingerprint, "device_name": DEVICE.name}
    sent = [store.submit("gone", "gpu", "matmul", request, "ann")[0].uuid for _ in range(3)]  # type: ignore[union-attr]
    for _ in sent[:2]:
        store.claim("gone", "gpu")
    store.ask_to_stop(sent[1])

    def told() -> list[tuple[str, int | None]]:
        rows = [client.ask(None, "GET", f"/v1/searches/{name}").json() for name in sent]
        return [(row["state"], row["place"]) for row in rows]

    assert told() == [("queued", None), ("stopped", None), ("queued", None)]
    row = client.ask(None, "GET", "/v1/searches").json()["open"][-1]
    assert row["reason"] == "its server gone is not at work; it goes on once that is: autotune serve --name gone"
    assert "its server gone is not at work" in client.ask(None, "GET", "/searches").text
    assert client.ask(None, "GET", "/v1/home").json()["running"] == []
    held = store.hold("gone")
    held.keep()  # it is back, or was away for a moment: nothing was taken from it
    assert told() == [("running", None), ("stopping", None), ("queued", 0)]
    held.close()
    assert [client.ask("admin", "DELETE", f"/v1/searches/{name}").status_code for name in sent] == [202, 202, 202]
    assert [one.state for one in store.named(sent).values()] == ["stopped"] * 3


def test_a_search_that_was_killed_is_not_shown_as_running(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    key = problem_key(find_study("matmul"), SIZE, {"T": "float"}, DEVICE.fingerprint)
    store = client.service.store
    store.start_search(key, DEVICE, sampler="random", seed=1)

    def told() -> list[tuple[str, str]]:
        rows = client.ask(None, "GET", "/v1/searches").json()["searches"]
        return [(row["state"], row["reason"]) for row in rows]

    assert told() == [("running", "")]
    monkeypatch.setattr(queries, "is_dead", lambda *_: True)
    assert told() == [("stopped", "lost")]


# What is stored --------------------------------------------------------------------------------------------


def test_what_is_stored_page_by_page(client: Client) -> None:
    for number in range(5):
        store_one(client, 1000 + number, 1010 + number, 1020 + number, PAD=number % 2)
    page = client.ask(None, "GET", "/v1/trials?limit=2").json()
    assert [one["number"] for one in page["trials"]] == [5, 4]
    rest = client.ask(None, "GET", f"/v1/trials?limit=9&before={page['next']}").json()
    assert [one["number"] for one in rest["trials"]] == [3, 2, 1]
    assert rest["next"] is None
    assert client.ask(None, "GET", "/v1/trials?outcome=crash").json()["trials"] == []
    one = client.ask(None, "GET", "/v1/trials/3").json()
    assert (one["time_ns"], one["samples_ns"]) == (1012, [1002, 1012, 1022])
    search = client.ask(None, "GET", f"/v1/searches/{one['search']}").json()
    assert (search["state"], search["outcomes"], search["asked_by"]) == ("done", {"ok": 1}, "")
    points = client.ask(None, "GET", f"/v1/searches/{one['search']}/trials").json()
    assert points["trials"][0][:3] == [3, "ok", 1012.0]
    assert len(client.ask(None, "GET", "/v1/searches?limit=3").json()["searches"]) == 3
    assert len(client.ask(None, "GET", "/v1/history").json()) == 5
    assert len(client.ask(None, "GET", f"/v1/history?device={one['device']}").json()) == 5
    assert client.ask(None, "GET", "/v1/history?device=nvidia-h100-132cu-80g").json() == []
    refused = client.ask(None, "GET", "/v1/history?device=nope")
    assert (refused.status_code, refused.json()["hint"].partition(" 0 ")[0]) == (422, "choose with device:")
    assert client.ask(None, "GET", "/v1/home").json()["latest"][0]["best"]["match"] == "exact"
    cells = client.ask(None, "GET", "/v1/compare?study=matmul&by=PAD&size=64").json()["cells"]
    assert {str(cell["value"]) for cell in cells} >= {"0", "1"}


def test_what_is_exported_can_be_imported_elsewhere(client: Client, tmp_path: Path) -> None:
    store_one(client, 1000, 1010, 1020)
    lines = client.ask(None, "GET", "/v1/export").content
    with serving(tmp_path / "other" if (tmp_path / "other").mkdir() is None else tmp_path) as other:
        assert other.ask("write", "POST", "/v1/import", content=lines).json() == {"imported": 1}
        assert other.ask("write", "POST", "/v1/import", content=b"\xef\xbb\xbf" + lines).json() == {"imported": 0}
        wrong = other.ask("write", "POST", "/v1/import", content=b"{}\n")
        assert (wrong.status_code, wrong.json()["where"]) == (422, "body:1")


def test_who_exports_slowly_holds_nothing(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.store.interchange.PAGE", 2)
    for step in range(5):
        store_one(client, 1000 + step, TILE=16 + step)
    pool = client.service.store._reader.pool
    held = list[int]()

    def looked(text: str, **options: Any) -> str:
        held.append(pool.checkedout())  # type: ignore[attr-defined]
        return in_quotes(text, **options)

    monkeypatch.setattr(routes, "in_quotes", looked)
    whole = client.ask(None, "GET", "/v1/export").text
    assert whole.splitlines() == list(client.service.store.export_lines())
    assert held == [0] * 5


def test_an_export_whose_database_goes_away_breaks_off_in_one_line(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store_one(client, 1000)
    page = client.service.store.export_page

    def lost(after: int) -> Any:
        if after:
            raise StoreError("cannot be used: the connection is lost")
        return page(after)

    monkeypatch.setattr(client.service.store, "export_page", lost)
    assert client.ask(None, "GET", "/v1/export").text.count("\n") == 1
    assert caplog.messages == ["an answer to /v1/export breaks off: cannot be used: the connection is lost"]


def test_lines_that_break_off_are_no_fault_of_the_server(client: Client) -> None:
    parts = iter([{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}])
    headers = {"Host": "127.0.0.1", **client.headers("write")}
    told = list[Any]()

    async def receive() -> Any:
        return next(parts)

    async def send(message: Any) -> None:
        told.append(message)

    scope = {
        "type": "http", "http_version": "1.1", "method": "POST", "path": "/v1/import", "query_string": b"",
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
    }  # fmt: skip
    assert client.http.portal is not None
    client.http.portal.call(client.http.app, scope, receive, send)  # raises what a server would log
    assert told[0]["status"] == 400


def test_a_line_of_an_import_is_not_read_to_its_end(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.store.importing.MOST_LINE", 1000)
    told = client.ask("write", "POST", "/v1/import", content=b"[" + b"{}," * 1000)
    assert (told.status_code, told.json()["where"]) == (422, "body:1")
    assert "longer than 1,000 characters" in told.json()["error"]


def test_an_error_of_the_database_does_not_tell_where_that_is(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    where = client.service.store.where

    def fail(*_: Any, **__: Any) -> Any:
        raise StoreError('cannot be used: connection to server at "db.lan" failed', where=where, hint="cp /tmp/kept.db")

    for name in ("history", "token_of", "rows"):
        monkeypatch.setattr(client.service.store, name, fail)
    for path, asks in (("/v1/history", {}), ("/searches", {}), ("/v1/home", {"Authorization": "Bearer at_unknown"})):
        caplog.clear()
        told = client.ask(None, "GET", path, headers=asks)
        assert told.status_code == 503
        assert not [secret for secret in (where, "db.lan", "kept.db") if secret in told.text]
        assert "the server&#39;s database" in told.text or told.json()["where"] == "the server's database"
        assert len(caplog.messages) == 1
        assert f"{where}: cannot be used: connection to server at" in caplog.messages[0]


def test_a_sampler_whose_package_the_server_lacks_is_told_as_the_machines_fault(
    shared: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SAMPLERS, "gp", replace(SAMPLERS["gp"], needs="no_such_torch"))
    told = submit(shared, body={"sampler": "gp"})
    assert (told.status_code, told.json()["where"], told.json()["hint"]) == (
        503,
        "sampler",
        "pip install no_such_torch",
    )
    assert ">gp<" not in shared.ask("run", "GET", "/submit").text


def test_an_error_nobody_expected_has_the_shape_of_all(shared: Client) -> None:
    for path, status in (("/v1/nothing", 404), ("/v1/trials/x", 404), ("/v1/trials?limit=0", 422)):
        answer = shared.ask(None, "GET", path)
        assert answer.status_code == status
        assert set(answer.json()) == {"error", "where", "hint", "detail"}
        assert answer.json()["hint"] == "GET /v1/openapi.json tells what may stand there"
    for body in (b"{", b"[" * 5000, b"\xff"):
        answer = shared.ask("run", "POST", "/v1/searches", content=body, headers={"Content-Type": "application/json"})
        assert (answer.status_code in (400, 422), answer.json()["where"]) == (True, "body")
    form = shared.ask("run", "POST", "/v1/searches", content=b"{}", headers={"Content-Type": "text/plain"})  # curl -d
    assert (form.status_code, form.json()["hint"]) == (422, "send it with Content-Type: application/json")
    assert shared.ask(None, "PUT", "/v1/trials").status_code == 405


def test_a_full_disk_under_an_upload_or_an_import_is_one_line(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device", "/secret/tmp")

    monkeypatch.setattr("autotune.service.uploads.unpack", fail)
    monkeypatch.setattr("autotune.service.takein.tempfile.TemporaryFile", fail)
    asked = {"upload": UPLOAD}, client.headers("run")
    sent = client.http.post("/v1/checks", json=asked[0], headers=asked[1])
    taken = client.http.post("/v1/import", content=b"", headers=client.headers("run"))
    for answer in (sent, taken):
        assert (answer.status_code, answer.json()["error"]) == (503, "the disk is full")
        assert "/secret" not in answer.text


def test_a_fault_of_the_server_has_the_shape_of_all(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError("/secret")

    monkeypatch.setattr(client.service.store, "history", fail)
    http = type(client.http)(client.http.app, base_url=client.http.base_url, raise_server_exceptions=False)
    answer = http.get("/v1/history", headers=client.headers("read"))
    assert (answer.status_code, set(answer.json())) == (500, {"error", "where", "hint", "detail"})
    assert "/secret" not in answer.text
