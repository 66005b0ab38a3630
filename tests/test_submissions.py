"""A server's queue and its tokens in the database: SQLite here, PostgreSQL if it is installed."""

from __future__ import annotations

import errno
import fcntl
import os
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection

from autotune.errors import StoreError, UsageError
from autotune.store import ServerStore, Submission, listing, queries, submissions, survey
from autotune.store.access import OVERTAKEN
from autotune.store.database import Overtaken
from autotune.store.submissions import _in_turns
from tests.postgres import clear
from tests.stored import DEVICE, KEY, ok, put

REQUEST = {"budget": {"seconds": 40.0}}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ServerStore]:
    with ServerStore.open(str(tmp_path / "a.db")) as opened:
        yield opened


def send(store: ServerStore, user: str, queue: str = "gpu", **more: object) -> Submission:
    found, _ = store.submit("here", queue, "blur", REQUEST, user, **more)
    assert found is not None
    return found


def claimed(store: ServerStore) -> Submission:
    found = store.claim("here", "gpu")
    assert found is not None
    return found


def test_users_take_turns_and_each_keeps_its_own_order(store: ServerStore) -> None:
    sent = [send(store, user) for user in ("ann", "ann", "ann", "bob", "cid", "bob")]
    order = ["ann0", "bob3", "cid4", "ann1", "bob5", "ann2"]
    names = {one.uuid: f"{one.asked_by}{place}" for place, one in enumerate(sent)}
    assert [names[name] for name in store.waiting("here")["gpu"]] == order
    ran = []
    while (one := store.claim("here", "gpu")) is not None:
        ran.append(names[one.uuid])
        store.end(one.uuid, "done", "")
    assert ran == order


def test_users_take_turns_though_the_clock_was_ahead_and_is_set_back(
    store: ServerStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for user in ("ann", "ann", "ann", "bob", "bob"):
        send(store, user)
    with monkeypatch.context() as patch:
        patch.setattr(submissions, "now", lambda: "2999-01-01T00:00:00.000000+00:00")
        ran = [store.claim("here", "gpu")]
    while (one := store.claim("here", "gpu")) is not None:
        ran.append(one)
    assert [one.asked_by for one in ran if one] == ["ann", "ann", "bob", "ann", "bob"]


def test_who_has_just_had_a_turn_comes_after_who_has_not(store: ServerStore) -> None:
    send(store, "ann")
    store.end(claimed(store).uuid, "done", "")
    late = [send(store, "ann"), send(store, "bob")]
    assert store.waiting("here")["gpu"] == [late[1].uuid, late[0].uuid]


@given(st.lists(st.sampled_from("abcd"), max_size=30))
@settings(max_examples=60)
def test_turns_keep_everything_and_leave_nobody_behind(sent: list[str]) -> None:
    users: dict[str, list[str]] = {}
    for place, user in enumerate(sent):
        users.setdefault(user, []).append(f"{user}{place}")
    order = _in_turns(users, dict.fromkeys(users, ""))
    assert sorted(order) == sorted(name for names in users.values() for name in names)
    for names in users.values():
        assert [name for name in order if name in names] == names
    rounds = [users[name[0]].index(name) for name in order]
    assert rounds == sorted(rounds)  # nobody has a second before everybody had a first


def test_each_queue_and_each_server_has_its_own(store: ServerStore) -> None:
    here, other = send(store, "ann"), send(store, "ann", "gpu2")
    assert store.waiting("here") == {"gpu": [here.uuid], "gpu2": [other.uuid]}
    assert store.waiting("there") == {}
    assert store.claim("there", "gpu") is None


def test_what_is_sent_again_with_its_key_is_the_same(store: ServerStore) -> None:
    first = send(store, "ann", once="k")
    again, is_new = store.submit("here", "gpu", "blur", REQUEST, "ann", once="k")
    assert (again, is_new) == (first, False)
    assert send(store, "bob", once="k").uuid != first.uuid
    assert send(store, "ann").uuid != first.uuid


def test_nobody_fills_the_queue(store: ServerStore) -> None:
    send(store, "ann", most=1)
    assert store.submit("here", "gpu", "blur", REQUEST, "ann", most=1) == (None, False)
    assert send(store, "bob", most=1)


def test_a_restart_keeps_the_queue_and_goes_on_with_what_ran(tmp_path: Path) -> None:
    path = str(tmp_path / "a.db")
    with ServerStore.open(path) as store:
        sent = [send(store, user) for user in ("ann", "bob", "cid")]
        assert claimed(store).uuid == sent[0].uuid
    with ServerStore.open(path) as store:
        assert store.recover("there", 3) == []
        assert store.recover("here", 3) == []
        assert store.waiting("here")["gpu"] == [one.uuid for one in sent]  # first: it had begun
        one = claimed(store)
        assert (one.uuid, one.attempts) == (sent[0].uuid, 2)


def require_one_server_of_a_name(database: str) -> None:
    with ServerStore.open(database) as store, ServerStore.open(database) as other:
        first, again = store.hold("here"), other.hold("here")
        assert not other.is_at_work("here")
        first.keep()
        first.keep()
        assert store.is_at_work("here")
        assert other.is_at_work("here")
        assert not other.is_at_work("there")
        with pytest.raises(UsageError, match="a server called here is at work on this database") as error:
            again.keep()
        assert "--name" in str(error.value)
        elsewhere = other.hold("there")
        elsewhere.keep()
        first.close()
        assert not other.is_at_work("here")
        again.keep()
        for hold in (again, elsewhere):
            hold.close()


@pytest.mark.slow
def test_a_name_is_that_of_one_server_at_work(tmp_path: Path) -> None:
    require_one_server_of_a_name(str(tmp_path / "a.db"))
    (tmp_path / "link.db").symlink_to(tmp_path / "a.db")
    with ServerStore.open(str(tmp_path / "a.db")) as store, ServerStore.open(str(tmp_path / "link.db")) as other:
        held = store.hold("here")
        held.keep()
        with pytest.raises(UsageError):
            other.hold("here").keep()
        held.close()


def test_a_hold_whose_file_was_removed_is_taken_again(tmp_path: Path) -> None:
    with ServerStore.open(str(tmp_path / "a.db")) as store:
        held = store.hold("here")
        held.keep()
        next(tmp_path.glob("a.db-server-*.lock")).unlink()
        held.keep()
        assert store.is_at_work("here")
        with pytest.raises(UsageError):
            store.hold("here").keep()
        held.close()
        assert not store.is_at_work("here")


def test_who_looks_whether_a_server_is_at_work_does_not_keep_it_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ServerStore.open(str(tmp_path / "a.db")) as store:
        held = store.hold("here")
        held.keep()
        held.close()
        file = next(tmp_path.glob("a.db-server-*.lock")).open()
        fcntl.flock(file, fcntl.LOCK_SH)
        monkeypatch.setattr("autotune.store.hold.time.sleep", lambda _: file.close())
        held.keep()
        assert store.is_at_work("here")
        held.close()


@pytest.mark.parametrize(
    ("number", "cure"),
    [
        (errno.ELOOP, r"; remove it: rm -r \S+\.lock"),
        (errno.ENOLCK, "; give --db a path on a local disk, or a postgresql:// URL"),
        (errno.ENOSPC, ""),
    ],
)
def test_a_hold_that_cannot_be_had_says_what_helps(
    number: int, cure: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    with ServerStore.open(str(tmp_path / "a.db")) as store, pytest.raises(StoreError) as error:
        store.hold("here").keep()
    assert re.search(rf"\.lock: cannot be locked: {os.strerror(number)}{cure}$", str(error.value))


def test_a_name_is_that_of_one_server_of_postgresql(postgres_url: str) -> None:
    require_one_server_of_a_name(postgres_url)
    with ServerStore.open(postgres_url) as store:
        held = store.hold("here")
        held.keep()
        psycopg = pytest.importorskip("psycopg")
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'")
        assert not store.is_at_work("here")
        held.keep()
        assert store.is_at_work("here")
        with pytest.raises(UsageError):
            store.hold("here").keep()
        held.close()


def test_what_takes_the_server_down_each_time_is_not_begun_again(store: ServerStore) -> None:
    send(store, "ann")
    for _ in range(2):
        claimed(store)
        assert store.recover("here", 3) == []
    claimed(store)
    (lost,) = store.recover("here", 3)
    told = store.submission(lost.uuid)
    assert told is not None
    assert told.state == "failed"
    assert "3 times" in told.reason


def test_what_comes_on_is_begun_as_often_as_it_takes(store: ServerStore) -> None:
    sent = send(store, "ann")
    for number in range(5):
        claimed(store)
        search = store.start_search(KEY, DEVICE, sampler="random", seed=1, submission=sent.uuid)
        store.finish([(store.begin(search, [{"A": number}])[0], ok({"A": number}, 10, 11, 12))])
        assert store.recover("here", 2) == []
    numbers = [one.number for one in listing.searches(store, names=[sent.uuid])]
    assert len(numbers) == 5
    assert len(survey.following(store, numbers)) == 5


def test_stopping_ends_what_waits_and_asks_what_runs(store: ServerStore) -> None:
    first, second = send(store, "ann"), send(store, "ann")
    claimed(store)
    states = [store.ask_to_stop(one.uuid).state for one in (first, second)]
    assert states == ["stopping", "stopped"]
    assert store.ask_to_stop("0" * 32) is None
    store.recover("here", 3)  # killed meanwhile
    assert store.submission(first.uuid).state == "stopped"
    store.end(first.uuid, "done", "too late")
    assert store.submission(first.uuid).state == "stopped"


def test_the_latest_upload_of_a_name_comes_first_and_each_once(store: ServerStore) -> None:
    one, two = {"study": "1", "files": {}}, {"study": "2", "files": {}}
    for upload in (one, two, one):
        send(store, "ann", upload=upload)
    assert [sent.upload for sent in store.uploads("blur")] == [one, two]
    assert store.uploads("other") == []


def test_a_text_is_of_who_sent_it_first_and_who_searched_it_finds_it(store: ServerStore) -> None:
    one, two = ({"study": f"name = 'blur' # {n}", "files": {}} for n in "12")
    first = send(store, "ann", upload=one)
    send(store, "bob", upload=two)
    send(store, "bob", upload=one)
    assert [(sent.upload, sent.asked_by) for sent in store.uploads("blur")] == [(one, "ann"), (two, "bob")]
    assert [sent.upload for sent in store.uploads("blur", "bob")] == [one, two]
    assert [sent.search for sent in store.uploads("blur", "ann")] == [first.uuid]
    assert store.uploads("blur", "cid") == []


def test_tokens_are_good_for_as_long_as_they_should(store: ServerStore) -> None:
    token, short = store.add_token("ann", "run", timedelta(days=1)), store.add_token("bob", "read", timedelta(0))
    assert store.token_of(token).name == "ann"
    assert store.token_of(short) is None
    assert store.token_of(token + "x") is None
    assert store.revoke_token("ann")
    assert store.token_of(token) is None
    assert not store.revoke_token("nobody")
    assert [one.valid for one in store.tokens()] == [False, False]


@pytest.mark.parametrize(
    ("name", "role"), [("ann", "run"), ("", "run"), ("a b", "run"), ("console", "run"), ("x", "boss")]
)
def test_a_name_is_given_once_and_a_role_is_one_of_four(store: ServerStore, name: str, role: str) -> None:
    store.add_token("ann", "read", None)
    with pytest.raises(UsageError):
        store.add_token(name, role, None)


def test_a_server_of_postgresql_keeps_the_same(postgres_url: str) -> None:
    with ServerStore.open(postgres_url) as store:
        sent = [send(store, user) for user in ("ann", "ann", "bob")]
        assert store.waiting("here")["gpu"] == [sent[0].uuid, sent[2].uuid, sent[1].uuid]
        assert claimed(store).uuid == sent[0].uuid
        assert store.recover("here", 1)
        assert send(store, "ann", once="k") == send(store, "ann", once="k")
        assert store.token_of(store.add_token("ann", "run", None)).role == "run"
        assert listing.searches(store) == []
        assert store.page() == []


def test_who_is_overtaken_finds_what_the_other_stored(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ask for the same at once, and one of them checks whether it is there before the other has stored it."""
    inserted, others = queries.inserted, list[Callable[[], object]]()

    def after_the_other(*given: Any) -> int:
        if others:
            others.pop()()
        return inserted(*given)

    monkeypatch.setattr(queries, "inserted", after_the_other)
    with ServerStore.open(postgres_url) as here, ServerStore.open(postgres_url) as there:
        others.append(lambda: send(there, "ann", once="k"))
        first = send(here, "ann", once="k")
        assert [one.uuid for one in here.submitted()] == [first.uuid]
        put(here, [ok({"A": 1}, 10, 11, 12)])
        lines = list(here.export_lines())
        clear(postgres_url)
    with ServerStore.open(postgres_url) as here, ServerStore.open(postgres_url) as there:
        put(here, [])  # its problem is there: nobody waits for the other's
        others.append(lambda: there.import_lines(lines))
        assert here.import_lines(lines) == 0
        assert list(here.export_lines()) == lines


def test_who_is_overtaken_again_and_again_is_told(store: ServerStore) -> None:
    turns = list[int]()

    def step(_: Connection) -> None:
        turns.append(1)
        raise Overtaken("duplicate key")

    with pytest.raises(StoreError, match="duplicate key"):
        store._written(step)
    assert len(turns) == OVERTAKEN


@pytest.mark.parametrize("server", ["sqlite", "postgresql"])
def test_what_ended_before_anything_was_stored_is_found_and_lists_hold_no_studies(
    store: ServerStore, request: pytest.FixtureRequest, server: str
) -> None:
    with ServerStore.open(request.getfixturevalue("postgres_url")) if server == "postgresql" else store as kept:
        early, begun = send(kept, "ann"), send(kept, "ann")
        number = kept.start_search(KEY, DEVICE, sampler="random", seed=1, submission=begun.uuid)
        for one in (early, begun):
            kept.end(one.uuid, "failed", "too large")
        later, waits = send(kept, "ann", upload={"study": "x", "files": {}}), send(kept, "ann")
        listed = [kept.submitted(states=["queued"])]
        kept.end(later.uuid, "stopped", "stopped")
        listed += [kept.unstored()[:1], [*kept.named([later.uuid]).values()]]
        told = [[(one.uuid, one.uploaded, one.upload) for one in found] for found in listed]
        assert told == [[(waits.uuid, False, None), (later.uuid, True, None)], *2 * [[(later.uuid, True, None)]]]
        assert kept.submission(later.uuid).upload == later.upload == {"study": "x", "files": {}}
        assert [one.uuid for one in kept.unstored()] == [later.uuid, early.uuid]
        assert [one.uuid for one in kept.unstored(after=number)] == [later.uuid]
        assert [one.uuid for one in kept.unstored(before=number)] == [early.uuid]
        assert [one.number for one in listing.searches(kept, latest=True)] == [number]
