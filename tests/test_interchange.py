"""Lines of JSON: each is checked, and an import stores all of its lines or none."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from autotune.errors import StoreError
from autotune.lookup import asking
from autotune.model import Measurement
from autotune.store import Store, interchange, listing
from autotune.store.fields import FIELDS, MOST_SAMPLES
from autotune.study import default_choices, default_configuration, default_size, find_study, problem_key, space_hash
from tests.contracts.exchange import places
from tests.stored import DEVICE, KEY, MADE, columns, ok, put

DATA = Path(__file__).parent / "data"


@pytest.fixture
def store(place: str) -> Iterator[Store]:
    """An empty database of each kind."""
    with Store.open(place) as opened:
        yield opened


names = st.text("ABCxyz_", min_size=1, max_size=5)


@cache
def _exported() -> tuple[str, ...]:
    with TemporaryDirectory(prefix="autotune-test-") as folder, Store.open(str(Path(folder) / "from.db")) as store:
        put(store, [ok({"A": 1}, 5), ok({"A": 2}, 6)])
        return tuple(store.export_lines())


def exported() -> list[str]:
    """Two trials as lines, the same for all tests."""
    return [*_exported()]


def test_lines_may_be_cut_and_mixed(store: Store) -> None:
    lines = exported()
    assert store.import_lines([lines[1], "\n"]) == 1
    assert store.import_lines([lines[1], lines[0]]) == 1
    assert {trial.configuration["A"] for trial in store.trials(KEY)} == {1, 2}


def test_a_line_of_the_first_version_lacks_what_was_added_since(store: Store) -> None:
    """What is added has `added=True` in FIELDS."""
    line, first = json.loads(exported()[0]), columns(DATA / "version_1.db")["trials"]
    added = {field.name for field in FIELDS if field.derived is None} - set(first)
    for name in added:
        del line[name]
    assert "made" in added
    launches = [["x", [64], None], ["x", [64, 2], [8, 1]]]  # None: the driver chooses
    made = json.loads(exported()[1]) | {"made": MADE | {"launches": launches}}
    assert store.import_lines(map(json.dumps, [line, made])) == 2
    assert [trial.made for trial in store.trials(KEY)] == [None, MADE | {"launches": launches}]


def spoilt(**changes: Any) -> str:
    return json.dumps(MADE | changes)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda line: line[:40], "line 2: is not JSON"),
        (lambda line: "[1]", "line 2: is not a JSON object"),
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
            "line 2: made: holds values that a build",
        ),
        (lambda line: line.replace('"made":null', '"made":' + spoilt(launches=[["x", [1.5], None]])), "line 2: made:"),
        (
            lambda line: line.replace('"made":null', '"made":' + spoilt(flops=10**400)),
            "line 2: made: holds values that a build",
        ),
        (lambda line: re.sub('"ended":"[^"]*"', '"ended":"0001-01-01T00:00:00+23:00"', line), "line 2: search.ended:"),
        (lambda line: line.replace('"samples_ns":[6]', f'"samples_ns":[{2**63}]'), "line 2: samples_ns.0:"),
        (
            lambda line: line.replace('"samples_ns":[6]', '"samples_ns":[0]'),
            "line 2: samples_ns: a time must be above 0",
        ),
        (lambda line: line.replace('"seed":1', f'"seed":{2**63}'), "line 2: search.seed:"),
        (lambda line: line.replace('"seed":1', '"seed":1' + "0" * 5000), "line 2: is not JSON:"),
        (lambda line: line.replace('"generation":0', '"generation":1000001'), "line 2: search.generation:"),
        (lambda line: line.replace('"build_s":0.0', '"build_s":NaN'), "line 2: build_s:"),
        (lambda line: line.replace('"choices":{"T":"float"}', '"choices":' + "[" * 10**5), "line 2: is not JSON:"),
        (
            lambda line: re.sub('"retimings":.*?],"', f'"retimings":[{"{},{}," * 10000}{{}}],"', line),
            "line 2: holds more",
        ),
        (lambda line: "{" + '"a":0,' * 200_000 + line[1:], "line 2: holds more than 200,000 names"),
        (lambda line: line.replace("[6]", f"[{'6,' * MOST_SAMPLES}6]"), "line 2: samples_ns: List should have at most"),
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
def test_a_bad_line_is_named(store: Store, damage: Callable[[str], str], message: str) -> None:
    good, line = exported()
    damaged = damage(line)
    assert damaged != line
    with pytest.raises(StoreError) as raised:
        store.import_lines([good, damaged])
    assert str(raised.value).startswith(message)
    assert "nothing was imported" in str(raised.value)
    assert store.counts() == {}


@pytest.mark.parametrize("entry", ["samples_ns", "warmup_ns", "retimings"])
def test_what_is_wrong_many_times_is_told_once(entry: str) -> None:
    """With millions of errors, one line would take minutes and gigabytes."""
    line = json.loads(exported()[1]) | {entry: ["x"] * 100}
    with pytest.raises(ValidationError) as caught:
        interchange._Whole.model_validate(line)
    assert caught.value.error_count() == 1


def changed(line: str, **changes: Any) -> str:
    return json.dumps(json.loads(line) | changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kernel_hash": "x"}, "kernel_hash: not that of the same search in"),
        ({"study_hash": "x"}, "study_hash: not that of"),
        ({"study": "other"}, "study: not that of"),
        ({"device": "nvidia-a100-108cu-80g"}, "device: not that of"),
        ({"size": {"M": 64, "N": 33}}, "size: not that of"),
        ({"choices": {"T": "int"}}, "choices: not that of"),
        ({"uuid": "first", "configuration": {"A": 9}}, "uuid: another trial has the same"),
        ({"uuid": "first", "samples_ns": [1]}, "uuid: another trial has the same"),
    ],
)
@pytest.mark.parametrize("apart", [False, True])
def test_a_line_belongs_to_the_problem_it_tells(
    store: Store, apart: bool, changes: dict[str, Any], message: str
) -> None:
    """Whether the other line of its search is in the same file or was imported before."""
    first, second = exported()
    second = changed(first if "uuid" in changes else second, **changes)
    first = changed(first, uuid="first")
    if apart:
        store.import_lines([first])
    with pytest.raises(StoreError) as raised:
        store.import_lines([second] if apart else [first, second], "x.jsonl")
    assert str(raised.value).startswith(f"x.jsonl:{1 if apart else 2}: {message}")
    assert store.counts() == ({"scale": 1} if apart else {})


def test_a_trial_of_another_search_gets_no_retiming(store: Store) -> None:
    first, second = exported()
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


def test_an_import_is_all_or_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.store.records.PAGE", 50)
    line = exported()[0]
    lines = [changed(line, uuid=str(number)) for number in range(110)]
    with pytest.raises(StoreError, match=r"x\.jsonl:111: is not JSON"):
        store.import_lines([*lines, "{"], "x.jsonl")
    clash = changed(line, uuid="3", configuration={"A": 2})  # found only while storing, after two pages
    with pytest.raises(StoreError, match=r"x\.jsonl:111: uuid: another trial"):
        store.import_lines([*lines, clash], "x.jsonl")
    assert store.counts() == {}
    assert store.import_lines(lines + lines[:5]) == 110


def test_more_retimings_than_a_page_come_in_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.store.records.PAGE", 2)
    timing = {"driver": "1", "samples_ns": [1], "warmup_ns": [], "cache": "warm", "taken": "2026-11-22T00:00:00+00:00"}
    line = changed(exported()[0], retimings=[timing | {"uuid": str(number)} for number in range(5)])
    assert [store.import_lines([line]), store.import_lines([line])] == [1, 0]
    assert [line.count('"taken"') for line in store.export_lines()] == [5]


def test_a_merge_keeps_the_most_verified_runs_of_each_side(store: Store, tmp_path: Path) -> None:
    """For a trial that both sides have and have timed again separately, in any order; and in one file."""
    with Store.open(str(tmp_path / "other.db")) as other, Store.open(str(tmp_path / "both.db")) as both:
        lines = exported()
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


def test_one_file_may_tell_a_trial_begun_and_ended(store: Store) -> None:
    line = exported()[0]
    begun = changed(line, outcome="pending", samples_ns=None, warmup_ns=None, cache=None, finished=None)
    assert store.import_lines([begun, line, begun]) == 1
    assert [trial.time_ns for trial in store.trials(KEY)] == [5]


def test_what_later_imports_tell_of_a_trial_counts(store: Store) -> None:
    line = exported()[0]
    begun = changed(line, outcome="pending", samples_ns=None, warmup_ns=None, cache=None, finished=None)
    timing = {"uuid": "r", "driver": json.loads(line)["driver"], "samples_ns": [4], "warmup_ns": [], "cache": "warm"}
    again = changed(line, retimings=[timing | {"taken": "2026-11-22T00:00:00+00:00"}])
    for told, counts, times in ((begun, {}, []), (line, {"scale": 1}, [5]), (again, {"scale": 1}, [4])):
        store.import_lines([told])
        assert store.counts() == counts
        assert [row.time_ns for row in store.rows("SELECT time_ns FROM standings", {})] == times


@pytest.mark.parametrize("apart", [False, True])
def test_how_a_search_ended_is_taken_from_whoever_tells_of_it(store: Store, apart: bool) -> None:
    first, second = exported()
    at_work = json.loads(first)["search"] | {"ended": None, "reason": ""}
    lines = [changed(first, search=at_work), second]
    for some in [[line] for line in lines] if apart else [lines]:
        store.import_lines(some)
    assert [search.ended for search in listing.searches(store)] == [json.loads(second)["search"]["ended"]]


hostile = st.sampled_from(
    [None, True, 0, -1, 2**63, 10**30, 1.5, float("nan"), float("inf"), "", "x", "PATH", "\x1b[2J\n", "\0", "\ud800"]
) | st.recursive(st.just([]), lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=2))


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
    """Return the line with one or two of its entries replaced, removed or added, or the line cut off."""
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


numbers = count(1)


@pytest.fixture
def empties() -> Iterator[list[Store]]:
    """Empty databases, made once: making one takes longer than everything else that is asked of it."""
    kept: list[Store] = []
    yield kept
    for store in kept:
        store.close()


@seed(11)
@settings(max_examples=80, suppress_health_check=list(HealthCheck), database=None)
@given(data=st.data())
def test_no_line_brings_a_traceback_or_leaves_one_behind(
    tmp_path: Path,
    empties: list[Store],
    line: str,
    capsys: pytest.CaptureFixture[str],
    data: st.DataObject,
) -> None:
    if not empties:
        empties.append(Store.open(str(tmp_path / f"{next(numbers)}.db")))
    try:
        empties[0].import_lines([damaged(data, line)])
    except StoreError:
        assert empties[0].counts() == {}
        return
    with empties.pop() as store:
        assert len(store.history()) == sum(store.counts().values())
        assert len(list(store.export_lines())) == 1
    shown = data.draw(st.sampled_from(["json", "table", "shell"]))
    asked = asking.Asked("matmul", DEVICE.fingerprint, database=store.where, format=shown)
    assert asking.run(asked) == 0
    captured = capsys.readouterr()
    assert (captured.out + captured.err).replace("\n", "").isprintable()
