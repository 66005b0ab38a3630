"""What is stored stays stored: round trips, kills, two writers, and clear words for databases that will not do."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from autotune.errors import StoreError
from autotune.lookup import asking, stored_devices
from autotune.lookup.records import open_records
from autotune.model import Measurement, Outcome, Trial
from autotune.store import Store, database, location, mounts
from autotune.store.attempts import NoSuchTrialError
from autotune.study import default_choices, default_configuration, default_size, find_study, problem_key, space_hash
from tests.stored import DEVICE, KEY, newer_driver, ok, put, put_in


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.server)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An empty database of each kind."""
    place = str(tmp_path / "own.db")
    if request.param == "postgresql":
        place = request.getfixturevalue("postgres_url")
    with Store.open(place) as opened:
        yield opened


# What is stored comes back --------------------------------------------------------------------------------

MADE = {
    "options": ["-DA=1", "-cl-mad-enable"],
    "launches": [["scale", [64, 32], [8, 8]], ["sum", [64], None]],
    "flops": 2e9,
    "bytes": None,
    "work": {"flops": "2 * M * N"},
}
texts = st.text(max_size=20)
names = st.text("ABCxyz_", min_size=1, max_size=5)
values = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | st.text("abc", max_size=5)
nanoseconds = st.lists(st.integers(1, 10**15), max_size=8).map(tuple)
measurements = st.builds(Measurement, nanoseconds, nanoseconds, st.sampled_from(["warm", "cold"]))
instants = st.datetimes(datetime(2020, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)).map(
    lambda moment: moment.replace(fold=0)
)
trials = st.builds(
    Trial,
    configuration=st.dictionaries(names, values, min_size=1, max_size=4),
    outcome=st.sampled_from([outcome for outcome in Outcome if outcome not in (Outcome.PENDING, Outcome.LOST)]),
    reason=texts,
    measurement=st.none() | measurements,
    max_error=st.none() | st.floats(0),
    build_s=st.floats(0, 1e6),
    verify_s=st.floats(0, 1e6),
    time_s=st.floats(0, 1e6),
    build_log=texts,
    driver=st.text(min_size=1, max_size=10),
    device_index=st.none() | st.integers(0, 7),
    started=instants,
    finished=instants,
    environment=st.dictionaries(names, values, max_size=3),
    made=st.none() | st.just(MADE),
)


def cleaned(trial: Trial) -> Trial:
    """PostgreSQL holds no NUL, and we hold the same text everywhere."""
    texts = {name: getattr(trial, name).replace("\0", "\N{REPLACEMENT CHARACTER}") for name in TEXTS}
    return replace(trial, **texts)


TEXTS = ("reason", "build_log", "driver")


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(trials, max_size=4))
def test_a_trial_comes_back_as_it_was(tmp_path: Path, given_trials: list[Trial]) -> None:
    path = tmp_path / "round.db"
    path.unlink(missing_ok=True)
    with Store.open(str(path)) as store:
        put(store, given_trials)
        stored = store.trials(KEY)
        assert sorted(map(repr, stored)) == sorted(map(repr, map(cleaned, given_trials)))
        order = [list(trial.configuration) for trial in stored]
        assert sorted(order) == sorted(list(trial.configuration) for trial in given_trials)
        lines = list(store.export_lines())
    other = tmp_path / "other.db"
    other.unlink(missing_ok=True)
    with Store.open(str(other)) as copy:
        assert copy.import_lines(lines) == len(given_trials)
        assert list(copy.export_lines()) == lines
        assert copy.import_lines(lines) == 0
        assert list(copy.export_lines()) == lines


def test_what_a_trial_does_not_tell_is_filled_in(store: Store) -> None:
    put(store, [ok({"A": 1}, 5)])
    (trial,) = store.trials(KEY)
    assert trial.driver == DEVICE.driver
    assert trial.started is not None
    assert trial.finished is not None
    assert trial.started <= trial.finished


def test_text_that_no_database_holds_is_replaced(store: Store) -> None:
    put(store, [Trial({"A": 1}, Outcome.COMPILE_ERROR, reason="bad \0 byte", build_log="\udcff")])
    (trial,) = store.trials(KEY)
    assert (trial.reason, trial.build_log) == ("bad \N{REPLACEMENT CHARACTER} byte", "?")


def test_an_error_that_is_no_number_is_without_bound(store: Store) -> None:
    put(store, [Trial({"A": 1}, Outcome.WRONG_RESULT, max_error=float("nan"))])
    assert store.trials(KEY)[0].max_error == float("inf")
    (line,) = store.export_lines()
    assert '"max_error":"inf"' in line


def test_numbers_of_an_environment_that_json_lacks_become_text(store: Store) -> None:
    put(store, [Trial({"A": 1}, Outcome.OK, environment={"clock": float("nan"), "registers": 32})])
    assert store.trials(KEY)[0].environment == {"clock": "nan", "registers": 32}


def test_each_trial_knows_the_device_it_ran_on(store: Store) -> None:
    other = replace(DEVICE, index=1, uuid="u1", driver="551")
    search = store.start_search(KEY, [DEVICE, other], sampler="random", seed=None)
    for index in (0, 1):
        store.finish([(store.begin(search, [{"A": index}])[0], Trial({"A": index}, Outcome.OK, device_index=index))])
    assert [trial.driver for trial in store.trials(KEY)] == ["550.1", "551"]


def test_trials_are_of_exactly_this_problem(store: Store) -> None:
    put(store, [ok({"A": 1}, 5)])
    for name, value in {"kernel_hash": "x", "study_hash": "x", "device": "x", "size": {"M": 1}, "choices": {}}.items():
        assert store.trials(KEY._replace(**{name: value})) == []
    reordered = KEY._replace(size=dict(reversed(KEY.size.items())))
    assert len(store.trials(reordered)) == 1


def test_every_attempt_is_kept_in_order(store: Store) -> None:
    put(store, [Trial({"A": 1}, Outcome.TIMEOUT), ok({"A": 1}, 5)])
    assert [trial.outcome for trial in store.trials(KEY)] == [Outcome.TIMEOUT, Outcome.OK]


def test_a_fresh_search_leaves_older_trials_out_and_deletes_none(store: Store) -> None:
    put(store, [ok({"A": 1}, 5)])
    put(store, [ok({"A": 2}, 6)])
    assert len(store.trials(KEY)) == 2
    put(store, [ok({"A": 3}, 7)], fresh=True)
    put(store, [ok({"A": 4}, 8)])
    assert [trial.configuration["A"] for trial in store.trials(KEY)] == [3, 4]
    assert [row.generation for row in store.history()] == [1, 1, 0, 0]


def test_a_retiming_ranks_and_the_earlier_ones_stay(store: Store) -> None:
    search = put(store, [ok({"A": 1, "B": 2}, 50), ok({"A": 2, "B": 2}, 40)])
    for samples in ((60, 61, 62), (70, 71, 72)):
        store.retime(search, [({"B": 2, "A": 1}, Measurement(samples))])
    retimed = {trial.configuration["A"]: trial for trial in store.trials(KEY)}
    assert retimed[1].retimed == Measurement((70, 71, 72))
    assert retimed[1].time_ns == 71
    assert retimed[2].retimed is None
    assert [line.count('"taken"') for line in store.export_lines()] == [2, 0]


def test_a_retiming_needs_a_verified_trial_and_samples(store: Store) -> None:
    search = put(store, [Trial({"A": 1}, Outcome.CRASH)])
    with pytest.raises(NoSuchTrialError, match="no verified trial"):
        store.retime(search, [({"A": 1}, Measurement((1,)))])
    with pytest.raises(ValueError, match="samples"):
        store.retime(search, [({"A": 1}, Measurement(()))])


def test_what_has_not_come_to_run_is_taken_back_and_a_finished_trial_is_not(store: Store) -> None:
    search = put(store, [])
    waiting, done = store.begin(search, [{"A": 1}])[0], store.begin(search, [{"A": 2}])[0]
    store.finish([(done, ok({"A": 2}, 50))])
    store.withdraw(waiting)
    store.withdraw(done)
    assert [row.trial.configuration for row in store.history()] == [{"A": 2}]


def test_what_ends_together_is_recorded_whole_or_not_at_all(store: Store) -> None:
    search = put(store, [])
    first, second = store.begin(search, [{"A": 1}, {"A": 2}])
    with pytest.raises(NoSuchTrialError, match="trial 77 was not begun"):
        store.finish([(first, ok({"A": 1}, 5)), (77, ok({"A": 3}, 5))])
    assert store.trials(KEY) == []
    store.finish([(second, ok({"A": 2}, 6)), (first, Trial({"A": 1}, Outcome.CRASH, "because"))])
    assert [(trial.configuration["A"], trial.outcome) for trial in store.trials(KEY)] == [
        (1, Outcome.CRASH), (2, Outcome.OK),
    ]  # fmt: skip
    assert store.counts() == {KEY.study: 2}


def test_a_trial_is_finished_once(store: Store) -> None:
    search = put(store, [])
    number = store.begin(search, [{"A": 1}])[0]
    store.finish([(number, ok({"A": 1}, 5))])
    with pytest.raises(NoSuchTrialError, match="finished before"):
        store.finish([(number, ok({"A": 1}, 6))])
    assert store.trials(KEY)[0].time_ns == 5


def test_related_is_the_same_kernel_elsewhere(store: Store) -> None:
    size = KEY._replace(size={"M": 1, "N": 1})
    device = KEY._replace(device="nvidia-a100-108cu-80g")
    for key in (KEY, size, device, KEY._replace(kernel_hash="x"), KEY._replace(choices={"T": "int"})):
        put(store, [ok({"A": 1}, 5)], key=key)
    store.start_search(KEY._replace(size={"M": 2, "N": 2}), DEVICE, sampler="random", seed=1)
    assert [key for key, _ in store.related(KEY)] == [size, device]
    assert all(len(found) == 1 for _, found in store.related(KEY))


def test_history_is_newest_first_with_what_is_pending(store: Store) -> None:
    search = put(store, [ok({"A": 1}, 5), ok({"A": 2}, 5)])
    store.begin(search, [{"A": 3}])
    put(store, [ok({"A": 4}, 5)], key=KEY._replace(study="other"))
    assert [row.trial.configuration["A"] for row in store.history("scale")] == [3, 2, 1]
    assert [row.trial.configuration["A"] for row in store.history(None, 2)] == [4, 3]
    assert [len(store.history(device=device)) for device in (KEY.device, "another")] == [len(store.history()), 0]
    row = store.history("scale")[0]
    assert (row.key, row.device_name, row.sampler, row.trial.outcome) == (KEY, DEVICE.name, "random", Outcome.PENDING)
    assert store.counts() == {"other": 1, "scale": 2}


# Nothing is lost ------------------------------------------------------------------------------------------

WRITER = """
import os, signal, sys
from autotune.store import Store
from tests.stored import DEVICE, KEY, ok
first, count, kill = map(int, sys.argv[2:])
with Store.open(sys.argv[1]) as store:
    search = store.start_search(KEY, DEVICE, sampler="random", seed=first)
    for number in range(first, first + count):
        trial = store.begin(search, [{"A": number}])[0]
        store.finish([(trial, ok({"A": number}, number + 1))])
    if kill:
        store.begin(search, [{"A": -1}])
        os.kill(os.getpid(), signal.SIGKILL)
    store.end_search(search, "done")
"""


def writer(place: str, first: int, count: int, *, kill: bool = False) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-c", WRITER, place, str(first), str(count), str(int(kill))]
    return subprocess.Popen(words, cwd=Path(__file__).parent.parent)


def test_a_killed_search_loses_no_finished_trial(tmp_path: Path) -> None:
    place = str(tmp_path / "killed.db")
    with writer(place, 0, 20, kill=True) as process:
        assert process.wait() == -signal.SIGKILL
    with Store.open(place) as store:
        assert [trial.configuration["A"] for trial in store.trials(KEY)] == list(range(20))
        assert store.history()[0].trial.outcome is Outcome.LOST


def test_two_searches_on_a_new_database_lose_nothing(tmp_path: Path) -> None:
    place = str(tmp_path / "shared.db")
    with writer(place, 0, 100) as one, writer(place, 1000, 100) as two:
        assert (one.wait(), two.wait()) == (0, 0)
    with Store.open(place) as store:
        found = {trial.configuration["A"] for trial in store.trials(KEY)}
    assert found == {*range(100), *range(1000, 1100)}


# Lines of JSON --------------------------------------------------------------------------------------------


def exported(tmp_path: Path) -> list[str]:
    put_in(tmp_path / "from.db", [ok({"A": 1}, 5), ok({"A": 2}, 6)])
    with Store.open(str(tmp_path / "from.db")) as store:
        return list(store.export_lines())


def test_lines_may_be_cut_and_mixed(store: Store, tmp_path: Path) -> None:
    lines = exported(tmp_path)
    assert store.import_lines([lines[1], "\n"]) == 1
    assert store.import_lines([lines[1], lines[0]]) == 1
    assert {trial.configuration["A"] for trial in store.trials(KEY)} == {1, 2}


def test_a_line_without_what_a_trial_was_made_of_is_of_an_older_version(store: Store, tmp_path: Path) -> None:
    line = json.loads(exported(tmp_path)[0])
    del line["made"]
    assert store.import_lines([json.dumps(line)]) == 1
    assert store.trials(KEY)[0].made is None


def spoilt(**changes: Any) -> str:
    return json.dumps(MADE | changes)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda line: line[:40], "line 2: is no JSON"),
        (lambda line: "[1]", "line 2: is no JSON object"),
        (lambda line: line.replace('"format":1', '"format":2'), "line 2: is of format 2, newer than 1"),
        (lambda line: line.replace('"outcome":"ok"', '"outcome":"fine"'), "line 2: outcome:"),
        (lambda line: line.replace('"samples_ns":[6]', '"samples_ns":[6.5]'), "line 2: samples_ns.0:"),
        (lambda line: line.replace('"study":', '"stidy":'), "line 2: study:"),
        (lambda line: line.replace('"driver":"550.1"', '"driver":7'), "line 2: driver:"),
        (lambda line: line.replace('"clock":1980,', ""), "line 2: search.devices: clock is missing"),
        (lambda line: line.replace('"device_number":0', '"device_number":4'), "line 2: device_number:"),
        (lambda line: line.replace('"started":"20', '"started":"x'), "line 2: started:"),
        (lambda line: re.sub('"finished":"[^"]*"', '"finished":7', line), "line 2: finished:"),
        (lambda line: re.sub('"finished":"[^"]*"', '"finished":null', line), "line 2: finished: an instant is missing"),
        (lambda line: line.replace('"made":null', '"made":{}'), "line 2: made: is not options, launches"),
        (
            lambda line: line.replace('"made":null', '"made":' + spoilt(options=[1])),
            "line 2: made: holds what no build",
        ),
        (lambda line: line.replace('"made":null', '"made":' + spoilt(launches=[["x", [1.5], None]])), "line 2: made:"),
        (
            lambda line: line.replace('"made":null', '"made":' + spoilt(flops=10**400)),
            "line 2: made: holds what no build",
        ),
        (lambda line: re.sub('"ended":"[^"]*"', '"ended":"0001-01-01T00:00:00+23:00"', line), "line 2: search.ended:"),
        (lambda line: line.replace('"samples_ns":[6]', f'"samples_ns":[{2**63}]'), "line 2: samples_ns.0:"),
        (lambda line: line.replace('"samples_ns":[6]', '"samples_ns":[0]'), "line 2: samples_ns: no kernel runs"),
        (lambda line: line.replace('"seed":1', f'"seed":{2**63}'), "line 2: search.seed:"),
        (lambda line: line.replace('"seed":1', '"seed":1' + "0" * 5000), "line 2: is no JSON:"),
        (lambda line: line.replace('"generation":0', '"generation":1000001'), "line 2: search.generation:"),
        (lambda line: line.replace('"build_s":0.0', '"build_s":NaN'), "line 2: build_s:"),
        (lambda line: line.replace('"choices":{"T":"float"}', '"choices":' + "[" * 10**5), "line 2: is no JSON:"),
        (lambda line: line.replace('{"A":2}', '{"A=1;touch pwned;B":2}'), "line 2: configuration.A=1;touch pwned;B"),
        (lambda line: line.replace('{"A":2}', '{"PATH":2}'), "line 2: configuration.PATH"),
        (lambda line: line.replace('{"A":2}', '{"A":"1\\n#error"}'), "line 2: configuration.A"),
        (lambda line: line.replace('{"A":2}', '{"A":true}'), "line 2: configuration.A"),
        (lambda line: line.replace('{"A":2}', '{"A":Infinity}'), "line 2: configuration.A"),
        (lambda line: line.replace('"M":64', '"LD_M":64'), "line 2: size.LD_M"),
        (lambda line: line.replace('"M":64', '"M":0'), "line 2: size.M"),
        (lambda line: line.replace('{"T":"float"}', '{"IFS":"float"}'), "line 2: choices.IFS"),
        (lambda line: line.replace('"study":"scale"', '"study":"a b"'), "line 2: study:"),
        (lambda line: line.replace('"device":"nvidia', '"device":"; nvidia'), "line 2: device:"),
        (lambda line: line.replace('"memory":', '"memory":"much","m":'), "line 2: search.devices: memory cannot be"),
        (lambda line: line.replace('"memory":', '"memory":-1,"m":'), "line 2: search.devices: memory cannot be -1"),
        (
            lambda line: line.replace('"max_work_item_sizes":[1024,1024,64]', '"max_work_item_sizes":[1024]'),
            "line 2: search.devices: max_work_item_sizes cannot be",
        ),
        (
            lambda line: line.replace('"compute_capability":"9.0"', '"compute_capability":"x"'),
            "line 2: search.devices: compute_capability cannot be 'x'",
        ),
    ],
)
def test_a_bad_line_is_named(store: Store, tmp_path: Path, damage: Callable[[str], str], message: str) -> None:
    good, line = exported(tmp_path)
    damaged = damage(line)
    assert damaged != line
    with pytest.raises(StoreError) as raised:
        store.import_lines([good, damaged])
    assert str(raised.value).startswith(message)
    assert "nothing was imported" in str(raised.value)
    assert store.counts() == {}


def changed(line: str, **changes: Any) -> str:
    return json.dumps(json.loads(line) | changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kernel_hash": "x"}, "kernel_hash: another than that of the same search in"),
        ({"study_hash": "x"}, "study_hash: another"),
        ({"study": "other"}, "study: another"),
        ({"device": "nvidia-a100-108cu-80g"}, "device: another"),
        ({"size": {"M": 64, "N": 33}}, "size: another"),
        ({"choices": {"T": "int"}}, "choices: another"),
        ({"uuid": "first", "configuration": {"A": 9}}, "uuid: another trial has the same"),
        ({"uuid": "first", "samples_ns": [1]}, "uuid: another trial has the same"),
    ],
)
@pytest.mark.parametrize("apart", [False, True])
def test_a_line_belongs_to_the_problem_it_tells(
    store: Store, tmp_path: Path, apart: bool, changes: dict[str, Any], message: str
) -> None:
    """Whether the other line of its search stands in the same file or was imported before."""
    first, second = exported(tmp_path)
    second = changed(second if "configuration" not in changes else first, **changes)
    first = changed(first, uuid="first")
    if apart:
        store.import_lines([first])
    with pytest.raises(StoreError) as raised:
        store.import_lines([second] if apart else [first, second], "x.jsonl")
    assert str(raised.value).startswith(f"x.jsonl:{1 if apart else 2}: {message}")
    assert store.counts() == ({"scale": 1} if apart else {})


def test_a_trial_of_another_search_gets_no_retiming(store: Store, tmp_path: Path) -> None:
    first, second = exported(tmp_path)
    timing = {"uuid": "r", "driver": "1", "samples_ns": [1], "warmup_ns": [], "cache": "warm"}
    timing["taken"] = "2026-11-22T00:00:00+00:00"
    store.import_lines([changed(first, retimings=[timing])])
    elsewhere = json.loads(first)["search"] | {"uuid": "elsewhere"}
    with pytest.raises(StoreError, match="line 1: uuid: another trial has the same"):
        store.import_lines([changed(first, search=elsewhere, kernel_hash="x", retimings=[timing | {"uuid": "s"}])])
    for lines in ([changed(second, retimings=[timing])], [changed(second, retimings=[timing]), second]):
        with pytest.raises(StoreError, match="line 1: retimings: another trial has the same uuid"):
            store.import_lines(lines)
    assert store.import_lines([changed(first, retimings=[timing, timing | {"uuid": "s"}] * 2), second]) == 1
    assert [line.count('"taken"') for line in store.export_lines()] == [2, 0]


def test_an_import_is_all_or_nothing(store: Store, tmp_path: Path) -> None:
    line = exported(tmp_path)[0]
    lines = [changed(line, uuid=str(number)) for number in range(1100)]
    with pytest.raises(StoreError, match=r"x\.jsonl:1101: is no JSON"):
        store.import_lines([*lines, "{"], "x.jsonl")
    clash = changed(line, uuid="3", configuration={"A": 2})  # found only while storing, after two pages
    with pytest.raises(StoreError, match=r"x\.jsonl:1101: uuid: another trial"):
        store.import_lines([*lines, clash], "x.jsonl")
    assert store.counts() == {}
    assert store.import_lines(lines + lines[:5]) == 1100


def test_a_merge_keeps_the_most_verified_runs_of_each_side(store: Store, tmp_path: Path) -> None:
    """Of a trial that both hold and have timed again by themselves, whichever is told last; and in one file."""
    with Store.open(str(tmp_path / "other.db")) as other, Store.open(str(tmp_path / "both.db")) as both:
        lines = exported(tmp_path)
        for one, runs in ((store, 300), (other, 900)):
            one.import_lines(lines)
            one.retime(put(one, []), [({"A": 1}, Measurement((4,), verified_runs=runs))])
        mixed = [*other.export_lines(), *store.export_lines()]
        assert store.import_lines(other.export_lines()) == other.import_lines(store.export_lines()) == 0
        both.import_lines(mixed)
        told = [
            {trial.configuration["A"]: trial.verified_runs for trial in one.trials(KEY)} for one in (store, other, both)
        ]
        assert told == [{1: 900, 2: 0}] * 3
        assert store.import_lines(mixed) == 0
        assert [trial.verified_runs for trial in store.trials(KEY)] == [900, 0]


def test_one_file_may_tell_a_trial_begun_and_ended(store: Store, tmp_path: Path) -> None:
    line = exported(tmp_path)[0]
    begun = changed(line, outcome="pending", samples_ns=None, warmup_ns=None, cache=None, finished=None)
    assert store.import_lines([begun, line, begun]) == 1
    assert [trial.time_ns for trial in store.trials(KEY)] == [5]


hostile = st.sampled_from(
    [None, True, 0, -1, 2**63, 10**30, 1.5, float("nan"), float("inf"), "", "x", "PATH", "\x1b[2J\n", "\0", "\ud800"]
) | st.recursive(st.just([]), lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=2))


def places(table: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in nested tables and lists, as a path of keys."""
    inside = table.items() if isinstance(table, dict) else enumerate(table) if isinstance(table, list) else ()
    return [path for key, value in inside for path in [(*at, key), *places(value, (*at, key))]]


@pytest.fixture(name="line")
def _line(tmp_path: Path) -> str:
    """One exported trial of a bundled study, re-timed."""
    study = find_study("matmul")
    key = problem_key(study, default_size(study), default_choices(study), DEVICE.fingerprint)
    with Store.open(str(tmp_path / "real.db")) as store:
        search = put(store, [ok(default_configuration(study), 5, 6)], key=key, environment={"space": space_hash(study)})
        store.retime(search, [(default_configuration(study), Measurement((6, 7)))])
        (line,) = store.export_lines()
    return line


def damaged(data: st.DataObject, line: str) -> str:
    """The line with one or two of its entries replaced, removed or added, or cut."""
    table = json.loads(line)
    for _ in range(data.draw(st.integers(1, 2))):
        *parents, last = data.draw(st.sampled_from(places(table)))
        inside = table
        for key in parents:
            inside = inside[key]
        kind = data.draw(st.sampled_from(["replace", "replace", "remove", "add"]))
        if kind == "add" and isinstance(inside, dict):
            inside[data.draw(st.sampled_from(["PATH", "A;B", "\x1b", "x"]))] = data.draw(hostile)
        elif kind == "remove":
            del inside[last]
        else:
            inside[last] = data.draw(hostile)
    text = json.dumps(table)
    return text[: data.draw(st.integers(1, len(text)))] if data.draw(st.integers(0, 9)) == 0 else text


@seed(11)
@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck), database=None)
@given(data=st.data())
def test_no_line_brings_a_traceback_or_leaves_one_behind(
    tmp_path: Path, line: str, capsys: pytest.CaptureFixture[str], data: st.DataObject
) -> None:
    path = tmp_path / "fuzzed.db"
    for file in tmp_path.glob("fuzzed.db*"):
        file.unlink()
    with Store.open(str(path)) as store:
        try:
            store.import_lines([damaged(data, line)])
        except StoreError:
            assert store.counts() == {}
            return
        assert len(store.history()) == sum(store.counts().values())
        assert len(list(store.export_lines())) == 1
    shown = data.draw(st.sampled_from(["json", "table", "shell"]))
    asked = asking.Asked("matmul", DEVICE.fingerprint, database=str(path), format=shown)
    assert asking.run(asked) == 0
    captured = capsys.readouterr()
    assert (captured.out + captured.err).replace("\n", "").isprintable()


# Databases that will not do -------------------------------------------------------------------------------


def refusal(place: object) -> str:
    with pytest.raises(StoreError) as raised:
        Store.open(str(place)).close()
    assert raised.value.exit_code == 2
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_a_directory(tmp_path: Path) -> None:
    assert "is a directory" in refusal(tmp_path)


def test_a_link_into_a_folder_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to("gone/a.db")
    assert f"its directory does not exist; mkdir -p {tmp_path}/gone" in refusal(tmp_path / "link.db")


def test_a_path_through_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert f"{tmp_path}/file is no directory" in refusal(tmp_path / "file" / "folder" / "a.db")


def test_a_link_to_itself(tmp_path: Path) -> None:
    (tmp_path / "loop.db").symlink_to("loop.db")
    assert "loop.db: cannot be opened: Too many levels of symbolic links; give --db" in refusal(tmp_path / "loop.db")


@pytest.mark.parametrize("path", ["/dev/null", "/dev/zero"])
def test_a_device_is_no_database(path: str) -> None:
    assert "is no file" in refusal(Path(path))


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "is no file" in refusal(tmp_path / "pipe")


@pytest.mark.parametrize(("named", "said"), [("", "--db: is empty; "), ("sqlite:///", "sqlite:///: names no file; ")])
def test_what_names_no_database_is_not_the_default(named: str, said: str) -> None:
    with pytest.raises(StoreError, match=f"^{said}"):
        location.locate(named)


def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_DB", "")
    assert not location.locate(None).chosen


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    assert f"mkdir -p {tmp_path / 'no'}" in refusal(tmp_path / "no" / "x.db")
    assert f"; mkdir -p '{tmp_path / 'no  such'}'" in refusal(tmp_path / "no  such" / "x.db")


def test_no_database(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_text("name = 'not a database'\n" * 100)
    assert "is not an SQLite database" in refusal(tmp_path / "x.db")


def test_a_damaged_database(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    put_in(path, [ok({"A": number}, 5) for number in range(50)])
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + os.urandom(len(whole) - 4096))
    assert "is damaged" in refusal(path)


def test_an_empty_file_is_a_new_database(tmp_path: Path) -> None:
    (tmp_path / "x.db").touch()
    with Store.open(str(tmp_path / "x.db")) as store:
        assert store.counts() == {}


def test_who_reads_leaves_an_empty_file_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    path.touch()
    with Store.to_read(str(path)) as store:
        assert store.history() == []
    assert path.stat().st_size == 0
    assert list(tmp_path.iterdir()) == [path]


def test_the_tables_of_another_program(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "x.db")) as connection, connection:
        connection.execute("CREATE TABLE songs (title TEXT)")
    connection.close()
    assert "holds tables of another program" in refusal(tmp_path / "x.db")


def test_a_locked_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "BUSY_S", 0.01)
    put_in(tmp_path / "x.db", [])
    connection = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    assert "is locked by another process" in refusal(tmp_path / "x.db")
    connection.close()


WITHOUT_ROOM = """
import resource, sys
from autotune.cli import run
resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))
run([*sys.argv[2:], "--db", sys.argv[1]])
"""


@pytest.mark.untraced
@pytest.mark.parametrize(
    ("command", "code", "told"),
    [
        ("import", 2, "cannot be read or written; look at the disk and `ulimit -f`; what was stored is kept"),
        ("history", 0, ""),
        (f"best -d {DEVICE.fingerprint}", 0, "nothing in"),
    ],
)
def test_who_has_no_room_reads_and_is_told_so_where_it_has_to_write(
    tmp_path: Path, command: str, code: int, told: str
) -> None:
    put_in(tmp_path / "x.db", [ok({"A": 1}, 50)])
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_ROOM, str(tmp_path / "x.db"), *command.split()],
        cwd=Path(__file__).parent.parent, stdin=subprocess.DEVNULL, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, told in done.stderr, "Traceback" in done.stderr) == (code, True, False)
    assert ("A=1" in done.stdout) is (command == "history")


AS_NOBODY = """
import os, pwd, sys
from autotune.store import Store
with Store.open(sys.argv[2]) as other:  # imports all that nobody else may read
    list(other.export_lines())
if os.geteuid() == 0:  # whom no permission stops
    os.setuid(pwd.getpwnam("nobody").pw_uid)
Store.open(sys.argv[1])
"""


def as_nobody(script: str, path: Path, protect: str) -> subprocess.CompletedProcess[str]:
    """Run a script on a database that is protected, or whose folder is too, and on one that it may write."""
    path.chmod(0o444)
    path.parent.chmod({"file": 0o755, "folder": 0o555, "shared": 0o777}[protect])
    done = subprocess.run(
        [sys.executable, "-c", script, str(path), str(path.parent.parent / "other.db")],
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
    )
    path.parent.chmod(0o755)
    return done


@pytest.mark.untraced
@pytest.mark.parametrize("protect", ["file", "folder", "shared"])
def test_a_database_that_cannot_be_written(open_folder: Path, protect: str) -> None:
    path = open_folder / "own" / "x.db"
    path.parent.mkdir()
    put_in(path, [])
    last = as_nobody(AS_NOBODY, path, protect).stderr.strip().splitlines()[-1]
    assert last.startswith("autotune.errors.StoreError: ")
    assert "read-only" in last
    assert list(path.parent.iterdir()) == [path]  # nothing that keeps who owns it from writing


def test_a_log_of_another_user_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, log = tmp_path / "x.db", tmp_path / "x.db-wal"
    put_in(path, [])
    log.touch()
    monkeypatch.setattr(os, "access", lambda place, mode: str(place) != str(log))
    assert refusal(path).endswith(f"{log} is another user's; when nobody uses it: rm -f {log} {tmp_path}/x.db-shm")
    log.write_bytes(b"x")
    assert refusal(path).endswith(f"{log} is another user's; its owner may change its mode")


READ_AS_NOBODY = AS_NOBODY.replace("Store.open(sys.argv[1])", "print(*Store.to_read(sys.argv[1]).export_lines())")


@pytest.mark.slow
@pytest.mark.untraced
@pytest.mark.parametrize("protect", ["file", "folder", "shared"])
@pytest.mark.parametrize("state", ["whole", "older", "at work", "half a log", "empty"])
def test_a_database_that_cannot_be_written_is_read_as_it_is(open_folder: Path, protect: str, state: str) -> None:
    path = open_folder / "own" / "x y?%.db"
    path.parent.mkdir()
    if state == "empty":
        path.touch()
    else:
        put_in(path, [ok({"A": 1}, 50)])
    if state == "older":
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("UPDATE schema_version SET version = version - 1")
    log = Path(f"{path}-wal")
    if state == "half a log":
        log.touch()
    with Store.open(str(path)) if state == "at work" else nullcontext():
        done = as_nobody(READ_AS_NOBODY, path, protect)
        assert log.exists() == (state in ("at work", "half a log"))
    if state in ("whole", "at work"):
        assert json.loads(done.stdout)["configuration"] == {"A": 1}
    elif state == "empty":
        assert (done.stdout.strip(), done.returncode) == ("", 0)
    else:
        last = done.stderr.strip().splitlines()[-1]
        assert ("may not be written: it would have to become" if state == "older" else "read-only") in last


LOOK_UP_AS_NOBODY = AS_NOBODY.replace("import os", "from autotune.lookup import stored_devices\nimport os").replace(
    "Store.open(sys.argv[1])", "stored_devices(sys.argv[1])"
)


@pytest.mark.untraced
@pytest.mark.parametrize("protect", ["file", "folder", "shared"])
def test_a_look_up_in_an_older_database_that_cannot_be_written_says_of_which_version(
    open_folder: Path, protect: str
) -> None:
    path = open_folder / "own" / "x.db"
    path.parent.mkdir()
    shutil.copy(Path(__file__).parent / "data" / "version_1.db", path)
    last = as_nobody(LOOK_UP_AS_NOBODY, path, protect).stderr.strip().splitlines()[-1]
    assert "is of version 1 and may not be written: it would have to become" in last


def test_a_network_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "mounts"
    far = f"{tmp_path.resolve()}/far\\040away"
    table.write_text(f"/dev/sda / ext4 rw 0 0\nlab:/home {far} nfs4 rw 0 0\nlab:/big {far}/größe nfs rw 0 0\n")
    monkeypatch.setattr(mounts, "MOUNTS", table)
    (tmp_path / "far away").mkdir()
    assert "network file system (nfs4)" in refusal(tmp_path / "far away" / "x.db")
    assert mounts.file_system(str(tmp_path / "far")) == "ext4"
    assert mounts.file_system(str(tmp_path / "far away" / "größe" / "x.db")) == "nfs"
    table.unlink()
    assert mounts.file_system(str(tmp_path)) == ""


@pytest.mark.parametrize(
    ("code", "locks", "said"),
    [
        (sqlite3.SQLITE_BUSY, errno.ENOLCK, "can lock or share no file"),
        (sqlite3.SQLITE_BUSY, errno.EAGAIN, "is locked by another process"),
        (sqlite3.SQLITE_IOERR_LOCK, 0, "can lock or share no file; give --db a path on a local disk, or a postgresql:"),
        (sqlite3.SQLITE_IOERR_SHMMAP, 0, "can lock or share no file"),
        (sqlite3.SQLITE_IOERR_READ, 0, "cannot be read or written"),
    ],
)
def test_a_file_system_without_locks_is_told_from_a_locked_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, locks: int, said: str
) -> None:
    def lock(*_: object) -> None:
        raise OSError(locks, "x")

    monkeypatch.setattr(fcntl, "lockf", lock)
    error = sqlite3.OperationalError("x")
    error.sqlite_errorcode = code
    assert said in str(location.database_error(str(tmp_path / "x.db"), error))


@pytest.mark.parametrize(
    ("url", "message"),
    [
        (":memory:", "keeps nothing"),
        ("a\0b.db", "--db: holds a NUL character, as no path does; give it the path of a file"),
        ("\ud800.db", r"--db: '\ud800.db' is no path; give it the path of a file"),
        ("sqlite://", "keeps nothing"),
        ("mysql://host/name", "'mysql'"),
        ("://x", "no URL of a database"),
        ("postgresql://host:port/x", "no URL of a database"),
    ],
)
def test_urls_that_are_refused(url: str, message: str) -> None:
    assert message in refusal(url)


@pytest.mark.parametrize("url", ["a\0b.db", "mysql://host/name", "postgresql://host:port/x"])
@pytest.mark.parametrize("opened", [Store.open, lambda: stored_devices(None)])
def test_a_database_that_the_environment_names_is_mended_there(
    url: str, opened: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", {"AUTOTUNE_DB": url})  # the real one holds no NUL
    with pytest.raises(StoreError) as raised:
        opened()
    assert raised.value.where == "AUTOTUNE_DB"


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    pytest.importorskip("psycopg")
    line = refusal(f"postgresql://me:secret@/name?host={tmp_path}")
    assert "cannot be used" in line
    assert "secret" not in line


def test_a_password_is_never_shown() -> None:
    for url in ("postgresql://me:s3:cr@t@host:5432/name", "postgresql+psycopg://:s3cr@t@/name?host=/run"):
        shown = str(location.locate(url))
        assert "cr@t" not in shown
        assert shown.startswith(url.partition(":")[0])
    assert str(location.locate("postgresql://me@host:5432/name")) == "postgresql://me@host:5432/name"


def test_a_url_of_sqlite_is_its_path(tmp_path: Path) -> None:
    put_in(tmp_path / "x.db", [ok({"A": 1}, 5)])
    with Store.open(f"sqlite:///{tmp_path / 'x.db'}") as store:
        assert store.counts() == {"scale": 1}


def test_the_default_place_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import platformdirs

    monkeypatch.delenv("AUTOTUNE_DB", raising=False)
    for home in (str(tmp_path / "data"), "relative", ""):
        monkeypatch.setenv("XDG_DATA_HOME", home)
        assert location.default_path() == str(Path(platformdirs.user_data_dir("autotune")) / "autotune.db")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    Store.open(None).close()
    assert (tmp_path / "data" / "autotune" / "autotune.db").is_file()
    monkeypatch.setenv("AUTOTUNE_DB", str(tmp_path / "named.db"))
    Store.open(None).close()
    assert (tmp_path / "named.db").is_file()


def test_a_driver_update_makes_another_device_row(store: Store) -> None:
    put(store, [ok({"A": 1}, 5)])
    put(store, [ok({"A": 2}, 5)], device=newer_driver("560"))
    assert [trial.driver for trial in store.trials(KEY)] == ["550.1", "560"]


def test_looking_up_gives_up_no_lock_of_an_open_store(tmp_path: Path) -> None:
    """Else another process that closes the database takes the log of this one away."""
    path = str(tmp_path / "a.db")
    with Store.open(path) as store:
        number = put(store, [ok({"A": 1}, 5)])
        with open_records(location.locate(path)) as records:
            assert records.devices()
        code = f"from autotune.store import Store; Store.open({path!r}).close()"
        subprocess.run([sys.executable, "-c", code], check=True)
        assert (tmp_path / "a.db-wal").exists()
        store.finish([(store.begin(number, [{"A": 2}])[0], ok({"A": 2}, 4))])
    with Store.open(path) as store:
        assert len(store.history()) == 2
