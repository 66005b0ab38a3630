"""What is stored stays stored: round trips, kills, two writers."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from shutil import copyfile

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autotune.model import Measurement, Outcome, StoredSamples, Trial
from autotune.store import Store
from autotune.store.attempts import NoSuchTrialError
from autotune.store.fields import _nanoseconds
from autotune.store.location import UNSOUND
from tests.stored import DEVICE, KEY, MADE, newer_driver, ok, put


@pytest.fixture
def store(place: str) -> Iterator[Store]:
    """An empty database of each kind."""
    with Store.open(place) as opened:
        yield opened


# What is stored comes back --------------------------------------------------------------------------------

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
    """PostgreSQL cannot store NUL, and we store the same text everywhere."""
    texts = {name: getattr(trial, name).replace("\0", "\N{REPLACEMENT CHARACTER}") for name in TEXTS}
    return replace(trial, **texts)


TEXTS = ("reason", "build_log", "driver")


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(trials, max_size=4))
def test_a_trial_comes_back_as_it_was(tmp_path: Path, given_trials: list[Trial]) -> None:
    path, other, empty = (tmp_path / f"{name}.db" for name in ("round", "other", "empty"))
    if not empty.exists():  # to make one takes longer than to copy two
        Store.open(str(empty)).close()
    copyfile(empty, path)
    copyfile(empty, other)
    with Store.open(str(path)) as store:
        put(store, given_trials)
        stored = store.trials(KEY)
        assert sorted(map(repr, stored)) == sorted(map(repr, map(cleaned, given_trials)))
        order = [list(trial.configuration) for trial in stored]
        assert sorted(order) == sorted(list(trial.configuration) for trial in given_trials)
        lines = list(store.export_lines())
    with Store.open(str(other)) as copy:
        assert copy.import_lines(lines) == len(given_trials)
        assert list(copy.export_lines()) == lines
        assert copy.import_lines(lines) == 0
        assert list(copy.export_lines()) == lines


def test_the_samples_of_a_trial_are_read_when_they_are_asked_for(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search resumes with all trials of a problem and looks at the samples of a few: the median is known without."""
    put(store, [ok({"A": 1}, 5, 40, 7), ok({"A": 2}, 0, 3)])
    with monkeypatch.context() as unread:
        unread.setattr(StoredSamples, "read", lambda _: pytest.fail("reads them"))
        first, second = store.trials(KEY)
        assert (first.time_ns, first.standing_ns, second.time_ns) == (7, 7, 1.5)
    assert first.measurement == Measurement((5, 40, 7))
    assert Measurement((5, 40, 7)) == first.measurement
    samples = first.measurement.samples_ns
    assert (samples[1], samples[:2], len(samples), [*samples], repr(samples)) == (
        40,
        (5, 40),
        3,
        [5, 40, 7],
        "(5, 40, 7)",
    )
    assert len({first.measurement, Measurement((5, 40, 7))}) == 1


@pytest.mark.parametrize("text", ["[1,,2]", "[01]", "[-1]", "[1.0]", f"[{2**63}]", "[1", "1", "[1,2]x", '["1"]', "{}"])
def test_what_no_samples_are_is_told_before_they_are_asked_for(text: str) -> None:
    with pytest.raises(UNSOUND):
        _nanoseconds(text)
    assert [tuple(_nanoseconds(one)) for one in ("[1,20]", "[1, 20]", "[]", "[0]")] == [(1, 20), (1, 20), (), (0,)]


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


def test_a_driver_update_makes_another_device_row(store: Store) -> None:
    put(store, [ok({"A": 1}, 5)])
    put(store, [ok({"A": 2}, 5)], device=newer_driver("560"))
    assert [trial.driver for trial in store.trials(KEY)] == ["550.1", "560"]


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
    with pytest.raises(NoSuchTrialError, match="no verified trial of A=1;") as gone:
        store.retime(search, [({"A": 1}, Measurement((1,)))])
    assert (gone.value.where, gone.value.exit_code) == (store.where, 2)  # its row may have been deleted meanwhile
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
    with pytest.raises(NoSuchTrialError, match="trial 77 was not begun") as gone:
        store.finish([(first, ok({"A": 1}, 5)), (77, ok({"A": 3}, 5))])
    assert (gone.value.where, gone.value.exit_code) == (store.where, 2)
    assert store.trials(KEY) == []
    with pytest.raises(NoSuchTrialError, match=r"standby .*type it again"):  # which has given its number anew
        store.finish([(second, ok({"A": 3}, 6))])
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


def test_related_are_the_fastest_and_some_that_stand_for_the_rest(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autotune.store.store.RELATED", 1)
    monkeypatch.setattr("autotune.store.store.OF_EACH", 4)
    few, many = KEY._replace(device="few"), KEY._replace(device="many")
    put(store, [ok({"A": 1}, 5)], key=few)
    put(store, [Trial({"A": 9}, Outcome.CRASH), *(ok({"A": n}, 90 - n) for n in range(9))], key=many)
    ((key, found),) = store.related(KEY)
    assert key == many
    assert [trial.configuration["A"] for trial in found] == [2, 6, 7, 8]  # as they began


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


def test_a_search_that_has_ended_leaves_nothing_pending(store: Store) -> None:
    search = store.start_search(KEY, DEVICE, sampler="random", seed=1)
    first, _ = store.begin(search, [{"A": 1}, {"A": 2}])
    store.finish([(first, ok({"A": 1}, 5))])
    store.end_search(search, "error")
    assert [row.trial.outcome for row in store.history()] == [Outcome.OK]


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
