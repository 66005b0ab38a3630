"""Every page as HTML and as JSON, for each role; forms with their tokens; hostile text stays text."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from autotune.cli import app
from autotune.errors import AutotuneError
from autotune.lookup import best_alone
from autotune.lookup.formats import FORMATS
from autotune.lookup.records import of_store
from autotune.model import PACE, Measurement, Outcome, Trial
from autotune.store import Store, listing
from autotune.study import (
    default_choices,
    default_configuration,
    default_size,
    find_study,
    parameter_values,
    problem_key,
    space_hash,
)
from autotune.tuner import Progress
from tests.serving import UPLOAD, Client, serving
from tests.stored import DEVICE, KEY, SMALL, ok, put, put_in, put_moved

from starlette.routing import Route  # isort: skip
from autotune.service import Limits  # isort: skip  after tests.serving, which skips without FastAPI
from autotune.service import pages  # isort: skip
from autotune.service.pages.common import templates  # isort: skip
from autotune.service.search import progress_json  # isort: skip
from autotune.service.pages.submit import line_of  # isort: skip
from autotune.service.state import opened  # isort: skip

OWN = str(UPLOAD["study"])
NASTY = "<script>alert(1)</script> \x1b[31m \u202e </pre> ' onload='x"
HTML = {"Accept": "text/html"}
PAGES = {
    "/": "read",
    "/now": "read",
    "/best": "read",
    "/searches": "read",
    "/compare": "read",
    "/compare?study=matmul&by=VARIANT": "read",
    "/compare?study=matmul&by=device": "read",
    "/trials": "read",
    "/trials?outcome=crash&study=matmul": "read",
    "/trials/1": "read",
    "/problems/1": "read",
    "/problems/1/learned": "read",
    "/problems/1/heat?down=TILE&across=UNROLL": "read",
    "/submit": "read",
    "/submit/study?study=matmul": "read",
    "/admin": "admin",
}


PARTS = ("/login", "/now", "/submit/study", "/heat", "/live", "/report.html")
"""Routes that the docs' table of pages leaves out: the login, parts of a page, files."""


def test_the_docs_and_tests_know_every_page() -> None:
    page = (Path(__file__).parent.parent / "docs" / "pages.md").read_text()
    told = {path for row in re.findall(r"^\| (`/.*?) \|", page, re.MULTILINE) for path in re.findall(r"`(.*?)`", row)}
    routes = [route for part in pages.PARTS for route in part.router.routes]
    asked = [route for route in routes if isinstance(route, Route) and "GET" in (route.methods or ())]
    there = {route.path.replace("{number}", "N").replace("{id}", "ID") for route in asked}
    assert told == {path for path in there if not path.startswith(PARTS) and not path.endswith(PARTS)}
    known = {re.sub(r"\d+", "N", path.partition("?")[0]) for path in PAGES}
    assert there - known == {"/login", "/searches/ID", "/searches/ID/live", "/problems/N/report.html"}, "PAGES lacks it"


def test_a_dashboard_of_nothing_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def served(config: Any, begun: Any) -> None:
        with opened(config) as store:
            begun("URL", SimpleNamespace(store=store))

    monkeypatch.setattr("autotune.service.serve", served)
    typo, full = (str(tmp_path / name) for name in ("TYPO.db", "full.db"))
    with Store.open(full) as store:
        put(store, [ok({"A": 1}, 5)])
    runner = CliRunner()
    assert runner.invoke(app, ["dashboard", "--db", typo]).stderr == (
        f"{typo} is shown at URL\nno trial is stored there; autotune search STUDY --db {typo} makes some\n"
    )
    assert runner.invoke(app, ["dashboard", "--db", full]).stderr == f"{full} is shown at URL\n"


def test_below_a_path_of_another_site_all_addresses_are_below_it(tmp_path: Path) -> None:
    """The proxy removes the path from requests; addresses for the browser have it once."""
    text = find_study("matmul")
    key = problem_key(text, default_size(text), default_choices(text), DEVICE.fingerprint)
    put_in(tmp_path / "a.db", [ok(default_configuration(text), 50)], key=key)
    with serving(tmp_path, root="/tune") as client:
        for path in PAGES:
            page = client.ask("admin", "GET", path, headers=HTML).text
            assert not {name for name, _ in re.findall(r'([a-z-]+)="(/(?!tune/)[^"]*)', page)} - {"value"}, path
            assert "/tune/tune" not in page
        told = client.ask(None, "GET", "/admin", headers=HTML, follow_redirects=False)
        assert (told.status_code, told.headers["location"]) == (303, "/tune/login?to=/admin")
        slash = client.ask("admin", "GET", "/trials/?limit=1", headers=HTML, follow_redirects=False)
        assert (slash.status_code, slash.headers["location"]) == (307, "/tune/trials?limit=1")
        token = client.service.callers.console
        signed = client.ask(None, "GET", f"/login?token={token}", headers=HTML, follow_redirects=False)
        assert (signed.headers["location"], "Path=/tune;" in signed.headers["set-cookie"]) == ("/tune/", True)
        assert client.ask("admin", "GET", "/v1/openapi.json").json()["servers"] == [{"url": "/tune"}]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A server with a search of matmul, a search with hostile text, and tokens."""
    with serving(tmp_path_factory.mktemp("server")) as found:
        study = find_study("matmul")
        key = problem_key(study, default_size(study), default_choices(study), DEVICE.fingerprint)
        values = parameter_values(study)
        trials = [
            Trial(
                {name: listed[(place // (at + 1)) % len(listed)] for at, (name, listed) in enumerate(values.items())},
                Outcome.OK,
                measurement=Measurement(tuple(10**6 + 10**4 * place + noise for noise in range(7))),
            )
            for place in range(12)
        ]
        crash = Trial(trials[0].configuration | {"UNROLL": 1}, Outcome.CRASH, reason="signal 11", build_log="warned")
        put(found.service.store, [*trials, crash], key=key, environment={"space": space_hash(study)})
        failed = Trial({"WPT": NASTY}, Outcome.COMPILE_ERROR, reason=NASTY, build_log=NASTY)
        put(found.service.store, [ok({"WPT": 1}, 5), failed], key=KEY, device=DEVICE)
        yield found


@pytest.mark.parametrize("path", PAGES)
def test_every_page_answers_whom_it_may(client: Client, path: str) -> None:
    roles = {None: "read", "read": "read", "run": "run", "admin": "admin"}
    for role, has in roles.items():
        found = client.ask(role, "GET", path, headers=HTML, follow_redirects=False)
        allowed = has == "admin" or PAGES[path] == "read"
        assert found.status_code == (200 if allowed else 303 if role is None else 403), (role, found.text)
        assert found.status_code == 303 or found.headers["content-type"].startswith("text/html")


@pytest.mark.parametrize("path", PAGES)
def test_every_page_is_to_be_had_as_json(client: Client, path: str) -> None:
    found = client.ask("admin", "GET", path, headers={"Accept": "application/json"})
    assert found.status_code == 200
    assert isinstance(found.json(), dict)


@pytest.mark.parametrize("path", PAGES)
def test_pages_hold_nothing_that_the_policy_forbids(client: Client, path: str) -> None:
    text = client.ask("admin", "GET", path, headers=HTML).text
    assert not re.search(r"<[a-z][^>]*\s(style|on\w+)\s*=|<style|=.javascript:", text)
    scripts = re.findall(r"<script(?![^>]*type=.application/json)(?![^>]*\bsrc=)", text)
    assert scripts == []


def test_hostile_text_stays_text(client: Client) -> None:
    for path in (*PAGES, "/trials/15", "/problems/2", "/problems/2/learned", "/problems/2/report.html"):
        text = client.ask("admin", "GET", path, headers=HTML).text
        assert "<script>alert" not in text
        assert "\x1b" not in text
        assert "\u202e" not in text
    for path in ("/trials", "/trials/15", "/v1/trials", "/v1/history", "/v1/trials/15"):
        found = client.ask(None, "GET", path, headers={"Accept": "application/json"})
        assert "alert(1)" in found.text
        assert found.text.isprintable()
        assert "\u202e" in json.dumps(found.json(), ensure_ascii=False)  # spelt out, not lost
    assert "&lt;script&gt;alert(1)" in client.ask(None, "GET", "/trials/15", headers=HTML).text


def test_a_stored_search_is_shown_with_its_course(client: Client) -> None:
    first = client.ask(None, "GET", "/v1/searches").json()["searches"][-1]
    page = client.ask(None, "GET", f"/searches/{first['id']}", headers=HTML).text
    data = json.loads(re.search(r'<script type="application/json" id="course">(.*?)</script>', page)[1])
    assert len(data["dots"]["trial"]) == 13
    assert data["best"]["time_ns"] == [1_000_003.0]
    assert "signal 11" in page
    assert "sse-connect" not in page  # it has ended: nothing to follow
    told = client.ask(None, "GET", f"/searches/{first['id']}", headers={"Accept": "application/json"}).json()
    assert told["course"]["outcomes"] == {"ok": 12, "crash": 1}
    assert told["problem"] == 1


def test_a_best_is_taken_along_in_every_form(client: Client) -> None:
    told = client.ask(None, "GET", "/problems/1", headers={"Accept": "application/json"}).json()
    forms = {form["name"]: form["text"] for form in told["forms"]}
    assert {"command", "python", *FORMATS} - {"table"} == set(forms)
    assert "#define" in forms["header"]
    assert "autotune best matmul -d nvidia-h200-132cu-140g" in forms["command"]
    compile(forms["python"], "form", "exec")
    address = re.search(r"'(http://[^']+)'", forms["command"])[1]
    answer = client.ask(None, "GET", address.removeprefix("http://127.0.0.1")).text
    assert answer.partition("#ifndef")[2] == forms["header"].partition("#ifndef")[2]


def test_the_report_is_one_file(client: Client) -> None:
    found = client.ask(None, "GET", "/problems/1/report.html", headers=HTML)
    assert "attachment" in found.headers["content-disposition"]
    assert not re.search(r"(src|href)=\"(?!#)", found.text)


def test_a_file_that_may_only_be_read_is_shown_and_what_its_owner_adds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_in(tmp_path / "a.db", [ok({"WPT": 1}, 5)])
    with monkeypatch.context() as reader:
        reader.setattr(os, "access", lambda place, mode: mode != os.W_OK or str(place) != str(tmp_path / "a.db"))
        with serving(tmp_path, read_only=True) as client:
            for path, role in PAGES.items():
                if role == "read" and "compare?" not in path and not path.startswith("/submit"):
                    assert client.ask(None, "GET", path, headers=HTML).status_code in (200, 404), path
            assert [*tmp_path.iterdir()] == [tmp_path / "a.db"]
            assert len(client.ask(None, "GET", "/v1/history").json()) == 1
            reader.undo()
            put_in(tmp_path / "a.db", [ok({"WPT": 2}, 4)])
            assert len(client.ask(None, "GET", "/v1/history").json()) == 2


def test_a_report_is_a_file_whatever_a_database_calls_its_study(tmp_path: Path) -> None:
    """A database from others may hold any name; a header holds only one line of Latin-1."""
    with serving(tmp_path, read_only=True) as client:
        put(client.service.store, [ok({"WPT": 1}, 5)], key=KEY._replace(study="漢\r\nX: y" + "z" * 5000))
        named = client.ask(None, "GET", "/problems/1/report.html", headers=HTML).headers["content-disposition"]
        assert re.fullmatch(r'attachment; filename="___X__yz{1,120}\.html"', named)


@pytest.mark.parametrize("read_only", [False, True])
def test_a_default_that_is_moved_on_the_device_is_compared_with_the_best(tmp_path: Path, read_only: bool) -> None:
    with serving(tmp_path, read_only=read_only) as client:
        put_moved(client.service.store)
        for path in ("/problems/1/learned", "/problems/1/report.html"):
            assert "× as fast" in client.ask(None, "GET", path, headers=HTML).text, path


def test_two_servers_in_one_process_keep_lessons_apart(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with serving(tmp_path) as first, serving(tmp_path / "other") as second:
        for client, value in ((first, 11), (second, 22)):
            put(client.service.store, [ok({"WPT": value}, 5)], key=KEY)
        for client, value in ((first, 11), (second, 22)):
            told = client.ask(None, "GET", "/problems/1/learned", headers={"Accept": "application/json"}).json()
            assert told["learned"]["parameters"] == {"WPT": [value]}


def put_uploaded(client: Client) -> None:
    """Store a search of an uploaded study on SMALL, where its default is moved."""
    moved = "values = [32, 64, 128]\ndefault = 128\n[[constraints]]\nrequire = 'WG <= compute_units * 32'\n"
    upload = UPLOAD | {"study": OWN.replace("values = [32, 64]\n", moved)}
    request = {"fingerprint": SMALL.fingerprint, "device_name": SMALL.name, "budget": {}}
    store = client.service.store
    store.submit("here", "u0", "blur", request, "ann", upload=upload)
    text = client.service.studies.text("blur")
    key = problem_key(text, default_size(text), {}, SMALL.fingerprint)
    put(store, [ok({"WG": 32}, 5, 5, 5), ok({"WG": 64}, 9, 9, 9)], key=key, device=SMALL)


def test_the_default_of_an_uploaded_study_is_compared_with_the_best_where_it_has_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A study that runs elsewhere may be larger than the free memory here."""
    monkeypatch.setattr("autotune.pool.sizing.available", lambda: 0.0)
    with serving(tmp_path) as client:
        put_uploaded(client)
        page = get(client, "/problems/1/learned")
        assert "the study's default" in page
        assert "Nothing to compare" not in page


@pytest.mark.parametrize(("again_s", "asked"), [(1e6, 1), (0.0, 2)])
def test_why_a_default_is_not_known_is_said_and_asked_again_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, again_s: float, asked: int
) -> None:
    monkeypatch.setattr("autotune.service.pages.lessons._AGAIN_S", again_s)
    with serving(tmp_path, limits=Limits(space=1)) as client:
        put_uploaded(client)
        for path in ("learned", "report.html"):
            page = get(client, f"/problems/1/{path}")
            assert "is not known: parameters: 2 configurations are valid, at most 1 may be" in page
    assert caplog.text.count("the default of blur is not known") == asked


def test_a_page_does_not_wait_behind_many_for_a_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waiting request has a thread: if all of them waited, no other page would be answered."""
    asking = threading.BoundedSemaphore(1)
    monkeypatch.setattr("autotune.service.pages.lessons._ASKING", asking)
    with serving(tmp_path) as client:
        put_uploaded(client)
        with asking:
            assert "busy with those of other pages; ask again" in get(client, "/problems/1/learned")
        for _ in range(2):
            assert "Nothing to compare" not in get(client, "/problems/1/learned")


def test_a_study_that_cannot_be_read_is_not_said_to_be_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "studies").mkdir()
    (tmp_path / "studies" / "scale.toml").write_text("x = ")
    with serving(tmp_path) as client:
        put(client.service.store, [ok({"WPT": 1}, 5000)])
        assert "is not known: studies/scale.toml: not valid TOML" in get(client, "/problems/1/learned")
        (tmp_path / "studies" / "scale.toml").unlink()
        client.service.studies._own.clear()
        assert "the study is not here" in get(client, "/problems/1/learned")


def test_sizes_stand_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    study = find_study("matmul")
    configuration = {name: listed[0] for name, listed in parameter_values(study).items()}
    with serving(tmp_path) as client:
        for n in (1024, 64, 256):
            key = problem_key(study, dict.fromkeys("KMN", n), default_choices(study), DEVICE.fingerprint)
            put(client.service.store, [ok(configuration, n)], key=key, environment={"space": space_hash(study)})
        for path, cell in (
            ("best", "td[^>]*"),
            ("compare", "td[^>]*"),
            ("compare?by=TILE", "h2"),
            ("compare?by=device", "h2"),
        ):
            page = client.ask(None, "GET", f"/{path}", headers=HTML).text
            assert re.findall(rf"<{cell}>M=N=K=(\d+)", page) == ["64", "256", "1024"], path


RULES = {"space": "0" * 32}
"""What a local search stores of the study's rules."""


def get(client: Client, path: str) -> str:
    return str(client.ask("admin", "GET", path, headers=HTML).text)


def told_of(client: Client, path: str) -> tuple[str, dict[str, Any]]:
    """Return a page with one problem, and what it says of the problem as JSON."""
    told = client.ask(None, "GET", path, headers={"Accept": "application/json"}).json()
    return client.ask(None, "GET", path, headers=HTML).text, (told.get("rows") or told.get("latest") or [told])[0]


@pytest.mark.parametrize("path", ["/", "/best", "/problems/1"])
@pytest.mark.parametrize("read_only", [False, True])
def test_a_best_is_told_where_its_study_is_not_here(tmp_path: Path, path: str, read_only: bool) -> None:
    with serving(tmp_path, read_only=read_only) as client:
        put(client.service.store, [ok({"WPT": 1}, 5000), ok({"WPT": 2}, 7000)], environment=RULES)
        page, told = told_of(client, path)
        assert (told["best"]["configuration"], told["best"]["time_ns"]) == ({"WPT": 1}, 5000)
        assert (told["best"]["match"], told["best"]["options"], told["error"]) == (None, None, "")
        assert "5.000 µs" in page
        assert "without its study" in page
        assert "Use it" not in page


@pytest.mark.parametrize("path", ["/", "/best", "/problems/1"])
@pytest.mark.parametrize("how", ["broken", "without the choice"])
def test_a_best_is_told_where_its_study_can_say_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, how: str
) -> None:
    monkeypatch.chdir(tmp_path)
    study = find_study("matmul")
    choices = {"T": "quad"} if how == "without the choice" else default_choices(study)
    key = problem_key(study, dict.fromkeys("KMN", 64), choices, DEVICE.fingerprint)
    configuration = {name: listed[0] for name, listed in parameter_values(study).items()}
    if how == "broken":
        (tmp_path / "studies").mkdir()
        (tmp_path / "studies" / "matmul.toml").write_text("x = ")
    with serving(tmp_path) as client:
        put(client.service.store, [ok(configuration, 5000)], key=key, environment=RULES)
        page, told = told_of(client, path)
        assert (told["error"], told["best"]["time_ns"], told["best"]["match"]) == ("", 5000, None)
        assert "5.000 µs" in page
        assert told["best"]["notes"][-1].startswith("shown without its study: ")


def test_sizes_of_an_uploaded_study_are_in_its_order_everywhere(tmp_path: Path) -> None:
    upload = {**UPLOAD, "study": OWN.replace("N = 1000\n", "N = 1000\nA = 5\n")}
    with serving(tmp_path) as client:
        store = client.service.store
        request = {"fingerprint": SMALL.fingerprint, "device_name": SMALL.name, "budget": {}}
        store.submit("here", "u0", "blur", request, "ann", upload=upload)
        text = client.service.studies.text("blur")
        key = problem_key(text, {"N": 64, "A": 5}, {}, DEVICE.fingerprint)
        put(store, [ok({"WG": 32}, 5)], key=key, environment={"space": space_hash(text)})
        for path in ("/", "/best", "/problems/1", "/trials"):
            page = get(client, path)
            assert "N=64 A=5" in page, path
            assert "A=5 N=64" not in page, path


def test_a_study_that_is_not_here_is_looked_for_once_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    with serving(tmp_path, best_age_s=1e6) as client:
        studies = client.service.studies
        monkeypatch.setattr(studies, "own", asked.append)
        assert [studies.in_order("away", {"A": 5, "N": 64}) for _ in range(3)] == [{"A": 5, "N": 64}] * 3
    assert asked == ["away"]


def test_a_page_of_many_says_what_is_in_order(tmp_path: Path) -> None:
    with serving(tmp_path) as client:
        for n in range(1, 22):
            put(client.service.store, [ok({"WPT": 1}, n)], key=KEY._replace(size={"N": n}), environment=RULES)
            assert ("sizes are in order within a page" in get(client, "/best")) == (n > 20 - 1)


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/", "/best", "/problems/1"])
@pytest.mark.parametrize("how", ["imported", "imported as the fastest", "without rules", "hostile", "failed"])
def test_what_only_a_study_could_check_is_not_told_without_it(tmp_path: Path, path: str, how: str) -> None:
    stored = {"hostile": [ok({"A-B": 1}, 5)], "failed": [Trial({"WPT": 1}, Outcome.CRASH)]}.get(
        how, [ok({"WPT": 1}, 5)]
    )
    with serving(tmp_path) as client, Store.open(str(tmp_path / "other.db")) as other:
        place = other if how.startswith("imported") else client.service.store
        put(place, stored, environment=None if how == "without rules" else RULES)
        if how.startswith("imported"):
            if how != "imported":
                put(client.service.store, [ok({"WPT": 2}, 7)], environment=RULES)
            client.service.store.import_lines(other.export_lines())
        page, told = told_of(client, path)
        assert told["best"] is None
        said = "no configuration has passed" if how == "failed" else "was not searched and timed here"
        assert said in told["error"]
        assert said in page


def test_a_time_that_an_import_brought_to_a_trial_of_here_is_not_told_without_the_study(store: Store) -> None:
    search = put(store, [ok({"WPT": 1}, 5000)], environment=RULES)
    told = json.loads(next(store.export_lines()))
    again = {"driver": DEVICE.driver, "warmup_ns": [], "cache": "warm", "taken": "2026-01-01T00:00:00.000000+00:00"}
    told["retimings"] = [{**again, "uuid": f"of {time}", "samples_ns": [time] * 3} for time in (2, 1)]
    store.import_lines([json.dumps(told)])
    store.import_lines([json.dumps(told)])

    def alone() -> float | None:
        return best_alone(of_store(store), 1, KEY, "").time_ns

    with pytest.raises(AutotuneError, match="was not searched and timed here"):
        alone()
    assert "elsewhere" not in next(store.export_lines())
    store.retime(search, [({"WPT": 1}, Measurement((4000,)))])
    assert alone() == 4000


def test_the_best_of_a_running_search_is_said_to_be_about_what_it_is_compared_by() -> None:
    slow = Trial({"WG": 32}, Outcome.OK, measurement=Measurement((3000,)), environment={PACE: 2.0})
    told = progress_json(Progress(3, 4, {}, slow, 1.0, 1.0, 1.0, "search"))
    parts: Any = templates().get_template("parts.html").module
    assert "left; best about 1.500 µs<" in parts.progress({"progress": told})


def test_what_is_not_known_is_not_claimed(tmp_path: Path) -> None:
    study = find_study("matmul")
    key = problem_key(study, dict.fromkeys("KMN", 64), default_choices(study), DEVICE.fingerprint)
    configuration = {name: listed[0] for name, listed in parameter_values(study).items()}
    with serving(tmp_path) as client:
        assert "<select" not in get(client, "/compare")
        assert "Nothing is stored yet." in get(client, "/compare")
        assert "/trials lists them" in get(client, "/trials/1")
        store = client.service.store
        put(store, [Trial(configuration, Outcome.CRASH)], key=key)
        store.begin(store.start_search(key, DEVICE, sampler="random", seed=1), [configuration])
        search = listing.searches(store)[-1].uuid
        assert "improvements as a table" not in get(client, f"/searches/{search}")
        assert 'data-label="match"' not in get(client, "/")  # the study's default is no best
        assert "The compiler said nothing" in get(client, "/trials/1")
        assert "Not known: the trial did not end." in get(client, "/trials/2")
        paths = ("/", "/trials", "/trials/1", "/searches", f"/searches/{search}", "/problems/1", "/problems/1/learned")
        for path in (*paths, "/compare", "/problems/1/report.html"):
            assert "M=N=K=64" in get(client, path), path  # as the study orders them
            assert "K=M=N" not in get(client, path), path


def test_a_comparison_begins_with_a_study_that_is_here(client: Client) -> None:
    assert client.service.store.counts().keys() == {"matmul", "scale"}
    put(client.service.store, [ok({"WPT": 1}, 5)], key=KEY._replace(study="a"))
    assert "<option selected>matmul</option>" in get(client, "/compare")


def test_a_comparison_says_which_sizes_it_leaves_out(tmp_path: Path) -> None:
    with serving(tmp_path) as client:
        study = find_study("matmul")
        for n in (8, 16, 32, 64, 128):
            key = problem_key(study, dict.fromkeys("KMN", n), default_choices(study), DEVICE.fingerprint)
            put(client.service.store, [ok({"TILE": 8}, n)], key=key)
        assert "2 smaller sizes left out" in get(client, "/compare?by=TILE")
        assert "left out" not in get(client, "/compare?by=size")


def test_what_is_not_there_is_a_page_that_says_so(client: Client) -> None:
    for path in ("/nowhere", "/trials/999", "/problems/999", f"/searches/{'0' * 32}"):
        found = client.ask(None, "GET", path, headers=HTML)
        assert found.status_code == 404
        assert "<h1>" in found.text
    assert (
        client.ask(None, "GET", "/trials/999", headers={"Accept": "application/json"}).json()["error"] == "no trial 999"
    )
    for path in ("/trials/x", "/searches/1", "/problems/0"):
        unknown = client.ask(None, "GET", path, headers=HTML)
        assert (unknown.status_code, "Nothing here is called" in unknown.text) == (404, True)
    assert client.ask(None, "GET", "/compare?study=matmul&by=nope", headers=HTML).text.count("cannot compare by") == 1


def test_static_files_are_kept_for_good(client: Client) -> None:
    page = client.ask(None, "GET", "/", headers=HTML).text
    addresses = set(re.findall(r'(?:src|href)="(/static/[^"]+)"', page))
    assert len(addresses) >= 8
    for address in addresses:
        found = client.ask(None, "GET", address)
        assert found.status_code == 200
        assert "immutable" in found.headers["cache-control"]
    assert client.ask(None, "GET", "/static/old/style.css").headers["cache-control"] == "no-cache"
    assert client.ask(None, "GET", "/static/x/../../pages/common.py").status_code == 404
    assert client.ask(None, "GET", "/static/x/vendor/htmx.LICENSE").status_code == 404


# Forms ----------------------------------------------------------------------------------------------------


@pytest.fixture
def signed_in(client: Client) -> Iterator[Client]:
    """The same client with the cookie of an admin."""
    client.headers("admin")
    found = client.http.post("/login", data={"token": client.tokens["admin"], "to": "/best"}, follow_redirects=False)
    assert (found.status_code, found.headers["location"]) == (303, "/best")
    cookie = found.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    yield client
    client.http.cookies.clear()


def csrf(client: Client) -> str:
    return re.search(r'name="csrf" value="([0-9a-f]+)"', client.ask(None, "GET", "/submit", headers=HTML).text)[1]


def test_a_token_that_is_not_known_signs_nobody_in(client: Client) -> None:
    found = client.http.post("/login", data={"token": "at_nope"})
    assert found.status_code == 401
    assert "set-cookie" not in found.headers
    for address in ("//evil.example", "https://evil.example", "/\\evil"):
        page = client.ask(None, "GET", "/login", params={"to": address}, headers=HTML).text
        assert 'name="to" value="/"' in page


@pytest.mark.parametrize(
    ("token", "status", "said"), [(None, 401, "sign in in another tab"), ("run", 403, "of another")]
)
def test_what_was_typed_is_not_lost_where_who_sent_it_is_signed_in_no_more(
    client: Client, token: str | None, status: int, said: str
) -> None:
    cookie = client.headers(token).get("Authorization", "").replace("Bearer ", "autotune=")
    headers = HTML | {"Cookie": cookie}
    back = client.http.post("/submit", data=own(csrf="0" * 64), headers=headers)
    assert back.status_code == status
    assert said in back.text
    assert UPLOAD["files"]["blur.cl"].split("(")[0] in back.text
    part = client.http.post("/submit", data=own(csrf="0" * 64), headers=headers | {"HX-Request": "true"})
    assert part.text.strip().startswith('<div class="verdict bad" role="alert">')


def test_a_form_of_another_site_changes_nothing(signed_in: Client) -> None:
    for path in ("/submit", "/admin/tokens", "/admin/tokens/admin/revoke", f"/searches/{'0' * 32}/stop"):
        assert signed_in.http.post(path, data={"csrf": "0" * 64, "name": "x"}, headers=HTML).status_code == 403


@pytest.mark.parametrize("expires", ["99999999999999h", "9999999999999999999d", "9" * 19 + "h", "40000d", "59s"])
def test_a_token_lasts_a_minute_to_a_hundred_years(signed_in: Client, expires: str) -> None:
    form = {"csrf": csrf(signed_in), "name": "lasting", "role": "read", "expires": expires}
    refused = signed_in.http.post("/admin/tokens", data=form, headers=HTML)
    assert refused.status_code == 422
    assert "a token lasts for " in refused.text


def test_tokens_are_made_shown_once_and_revoked(signed_in: Client) -> None:
    made = signed_in.http.post(
        "/admin/tokens", data={"csrf": csrf(signed_in), "name": "bo", "role": "run"}, headers=HTML
    )
    token = re.search(r"at_[\w-]+", made.text)[0]
    assert token not in signed_in.ask(None, "GET", "/admin", headers=HTML).text
    assert signed_in.http.get("/v1/me", headers={"Authorization": f"Bearer {token}"}).json()["role"] == "run"
    signed_in.http.post("/admin/tokens/bo/revoke", data={"csrf": csrf(signed_in)}, headers=HTML)
    assert signed_in.http.get("/v1/me", headers={"Authorization": f"Bearer {token}"}).status_code == 401
    again = signed_in.http.post(
        "/admin/tokens", data={"csrf": csrf(signed_in), "name": "bo", "role": "run"}, headers=HTML
    )
    assert again.status_code == 422
    assert "a token named bo is there" in again.text


def own(**changes: str) -> dict[str, str]:
    """Return a form with a study of one's own, as a browser sends it."""
    files = UPLOAD["files"]
    text = OWN.replace("\n", "\r\n")
    return {"study": "own", "toml": text, "kernel": files["blur.cl"], "kernel_name": "blur.cl"} | changes


def test_a_study_of_ones_own_is_checked(signed_in: Client) -> None:
    form = own(csrf=csrf(signed_in), do="check", size="N=500")
    page = signed_in.http.post("/submit", data=form, headers=HTML).text
    assert "2 valid configurations" in page
    part = signed_in.http.post("/submit", data=form, headers=HTML | {"HX-Request": "true"}).text
    assert "2 valid configurations" in part
    assert "<html" not in part


@pytest.mark.parametrize("kernel", ["blur.cl", "../kernels/blur.cl", "src/blur.cl"])
def test_a_kernel_has_the_name_that_the_study_gives_it(signed_in: Client, kernel: str) -> None:
    form = own(csrf=csrf(signed_in), do="check", kernel_name="", toml=OWN.replace("blur.cl", kernel))
    assert "2 valid configurations" in signed_in.http.post("/submit", data=form, headers=HTML).text


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"toml": OWN.replace("values = [32, 64]", "values = [32,, 64]")}, '<span class="here">   7'),
        ({"toml": OWN.replace("values = [32, 64]", "values = []")}, '<span class="here">   7'),
        ({"toml": OWN.replace('"round_up(N, WG)"', '"round_up(M, WG)"')}, '<span class="here">  14'),
        ({"size": "Q=5"}, "has no &#39;Q&#39;"),
        ({"size": "N=x"}, "is not a size"),
        ({"timeout": "soon"}, "is not a duration"),
        ({"trials": "-3"}, "is not a whole number"),
        ({"toml": ""}, "name"),
    ],
)
def test_what_is_wrong_is_said_at_its_line(signed_in: Client, changes: dict[str, str], said: str) -> None:
    found = signed_in.http.post("/submit", data=own(csrf=csrf(signed_in), do="check") | changes, headers=HTML)
    assert found.status_code in (422, 404)
    assert said in found.text
    assert "blur.cl" in found.text  # what was filled in stands there still


def test_a_form_is_submitted_watched_and_stopped(signed_in: Client) -> None:
    form = {"csrf": csrf(signed_in), "do": "search", "study": "matmul", "size": "64", "trials": "5", "once": "a" * 32}
    found = signed_in.http.post("/submit", data=form, follow_redirects=False)
    assert found.status_code == 303
    assert signed_in.http.post("/submit", data=form, follow_redirects=False).headers == found.headers
    page = signed_in.ask(None, "GET", found.headers["location"], headers=HTML).text
    assert "sse-connect" in page
    stopped = signed_in.http.post(f"{found.headers['location']}/stop", data={"csrf": csrf(signed_in)}, headers=HTML)
    assert stopped.status_code == 200
    assert signed_in.work.begun or "stopped before it began" in stopped.text


def test_a_search_at_the_default_size_says_which(signed_in: Client) -> None:
    for given in ({}, {"size": "M=64"}):
        form = {"csrf": csrf(signed_in), "do": "search", "study": "matmul_rect"} | given
        address = signed_in.http.post("/submit", data=form, follow_redirects=False).headers["location"]
        told = signed_in.ask(None, "GET", address, headers={"Accept": "application/json"}).json()
        whole = default_size(find_study("matmul_rect"))
        assert told["search"]["size"] == (whole | {"M": 64} if given else whole)
        signed_in.http.post(f"{address}/stop", data={"csrf": csrf(signed_in)}, headers=HTML)


def test_who_may_not_run_is_told_so_before_filling_in(client: Client) -> None:
    page = client.ask("read", "GET", "/submit", headers=HTML).text
    assert "needs a token with the role run" in page
    assert page.count(" disabled") >= 2


def test_a_server_that_only_shows_has_no_forms(tmp_path: Path) -> None:
    with serving(tmp_path, read_only=True) as shown:
        page = shown.ask(None, "GET", "/", headers=HTML).text
        assert "read only" in page
        assert "/submit" not in page
        form = shown.ask(None, "GET", "/submit", headers=HTML).text
        assert "only shows what is stored" in form
        assert "token with the role" not in form


def test_the_line_of_a_key_is_found() -> None:
    text = 'name = "a"\n[parameters.A]\nvalues = [1]\n[parameters.B]\nvalues = [2]\n[[launch]]\nentry = "x"\n'
    at = {"error": "is wrong", "hint": "", "detail": ""}
    assert line_of(text, at | {"where": "study.toml: parameters.B.values"}) == 5
    assert line_of(text, at | {"where": "study.toml: launch[0].entry"}) == 7
    assert line_of(text, at | {"where": "study.toml", "error": "not valid TOML: x (at line 3, column 1)"}) == 3
    assert line_of(text, at | {"where": "study.toml", "error": "parameters.A.values.0: is none"}) == 3
    assert line_of(text, at | {"where": "budget.trials"}) is None
    assert line_of("", at | {"where": "study.toml"}) is None
    assert line_of("# [B]\n[A] # B\n[[x.B]] # y\n", at | {"where": "study.toml: B"}) == 3


@pytest.mark.parametrize("part", ["[", "[B", "[B ", "B "])
def test_a_long_line_without_an_end_is_no_heading(part: str) -> None:
    """In time quadratic in its length, this would block the server for hours; the test's time limit would end it."""
    assert line_of(part * 10**6, {"where": "study.toml: parameters.B", "error": ""}) is None
