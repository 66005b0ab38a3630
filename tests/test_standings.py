"""The summary that look-ups read equals what the slow rule says of all trials, after any history."""

from __future__ import annotations

import itertools
import json
import sqlite3
from collections.abc import Collection, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import cast

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from autotune.identity import ProblemKey, digest
from autotune.lookup import records as sql
from autotune.lookup.records import open_records
from autotune.model import Measurement, Outcome, Trial
from autotune.ranking import FAILED, MEASURED, NAN, RETIMED, WRONG, Event, rank
from autotune.store import Store
from autotune.store.attempts import NoSuchTrialError
from autotune.store.location import locate
from tests.stored import DEVICE, KEY, newer_driver, ok, put

KINDS = {"ok": MEASURED, "wrong_result": WRONG}
NUMBERS = itertools.count(1)
FINISHED = """
SELECT COUNT(*) FROM trials t JOIN searches s ON s.id = t.search_id
WHERE s.problem_id = :problem AND s.generation >= :generation AND t.outcome NOT IN ('pending', 'lost')
"""

SUMMARY = ("SELECT * FROM standings", "SELECT * FROM problems", "SELECT id, trials FROM searches")


def slowly(store: Store, problem: int, driver: str) -> list[Event]:
    """Rank everything that is stored of a problem."""
    trials = store.rows(
        "SELECT t.outcome, t.configuration_hash, t.driver, s.generation, t.id, t.time_ns FROM trials t "
        "JOIN searches s ON s.id = t.search_id WHERE s.problem_id = :problem", {"problem": problem},
    )  # fmt: skip
    again = store.rows(
        "SELECT t.configuration_hash, t.driver, s.generation, t.id, r.id, r.time_ns FROM retimings r "
        "JOIN trials t ON t.id = r.trial_id JOIN searches s ON s.id = t.search_id "
        "WHERE s.problem_id = :problem AND t.outcome = 'ok' AND r.driver = t.driver", {"problem": problem},
    )  # fmt: skip
    events = [
        Event(KINDS.get(outcome, FAILED), name, under, generation, (number, 0), NAN if time is None else time)
        for outcome, name, under, generation, number, time in trials
        if outcome not in ("pending", "lost", "stopped")
    ]
    events += [Event(RETIMED, name, under, age, (number, turn), time) for name, under, age, number, turn, time in again]
    return rank(events, driver)


def require_the_slow_rule(store: Store, key: ProblemKey) -> None:
    with open_records(locate(store.where)) as records:
        problem = records.problem(key)
        assert problem is not None
        for driver in ("", "1", "2", "3"):
            expected = slowly(store, problem, driver)
            whole, few = records.ranking(problem, driver, whole=True), records.ranking(problem, driver)
            assert whole.entries == expected
            assert few.entries == expected[: sql.FEW]
            assert few.whole == (len(expected) <= sql.FEW)
            newest = store.rows(
                "SELECT MAX(generation) FROM searches WHERE problem_id = :problem", {"problem": problem}
            )
            assert few.newest == whole.newest == newest[0][0]
            asked = {"problem": problem, "generation": expected[0].generation if expected else few.newest}
            assert few.generation == whole.generation == asked["generation"]
            assert records.trials(problem, few.generation) == store.rows(FINISHED, asked)[0][0]


TIME = st.integers(1, 6)
CONFIGURATION = st.integers(1, 5).map(lambda value: {"A": value})
STEP = st.one_of(
    st.tuples(st.just("ok"), CONFIGURATION, TIME),
    st.tuples(st.just("retime"), CONFIGURATION, TIME),
    st.tuples(st.just("finalist"), CONFIGURATION, TIME),
    st.tuples(
        st.sampled_from(["wrong_result", "crash", "stopped", "pending", "withdrawn", "fresh", "driver"]),
        CONFIGURATION, TIME,
    ),
    st.tuples(st.sampled_from(["ok", "ok", "ok", "moved"]), CONFIGURATION, TIME),
)  # fmt: skip


def happen(store: Store, other: Store, key: ProblemKey, steps: list[tuple[str, dict[str, int], int]]) -> None:
    """Search in `store`; send copies to `other`, and get them back with what was added there."""
    driver, search = "1", put(store, [], key=key, device=newer_driver("1"))
    for kind, configuration, time in steps:
        measured = Measurement((time,))
        if kind in ("fresh", "driver"):
            driver = driver if kind == "fresh" else str(3 - int(driver))
            search = put(store, [], key=key, device=newer_driver(driver), fresh=kind == "fresh")
        elif kind == "retime":
            with suppress(NoSuchTrialError):  # nothing verified to time again
                store.retime(search, [(configuration, measured)])
        elif kind == "moved":
            other.import_lines(list(store.export_lines()))
            put(other, [ok(configuration, time), Trial({"A": 9}, Outcome.CRASH)], key=key, device=newer_driver(driver))
            back = list(other.export_lines())
            store.import_lines(back)
            assert store.import_lines(back) == 0
            assert sorted(store.export_lines()) == sorted(back)
        else:
            number = store.begin(search, [configuration])[0]
            if kind == "withdrawn":
                store.withdraw(number)
            elif kind == "finalist":
                store.finish(
                    [(number, Trial(configuration, Outcome.OK, measurement=Measurement((9,)), retimed=measured))]
                )
            elif kind != "pending":
                store.finish([(number, Trial(configuration, Outcome(kind), measurement=measured))])


@pytest.fixture(name="stores", scope="module")
def _stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, Store]]:
    folder = tmp_path_factory.mktemp("standings")
    with Store.open(str(folder / "one.db")) as one, Store.open(str(folder / "other.db")) as other:
        yield one, other


@settings(max_examples=25, derandomize=True, phases=(Phase.explicit, Phase.generate))
@example(
    steps=[("ok", {"A": 1}, 5), ("fresh", {}, 1), ("crash", {"A": 2}, 1), ("driver", {}, 1), ("ok", {"A": 3}, 2)], few=1
)
@given(steps=st.lists(STEP, min_size=1, max_size=12), few=st.integers(1, 4))
def test_whatever_happens_the_summary_follows(
    stores: tuple[Store, Store], steps: list[tuple[str, dict[str, int], int]], few: int
) -> None:
    key = KEY._replace(study=f"own{next(NUMBERS)}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sql, "FEW", few)
        happen(*stores, key, steps)
        require_the_slow_rule(stores[0], key)


def test_a_step_that_fails_leaves_the_summary_as_it_was(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    search = put(store, [ok({"A": 1}, 50)])
    number = store.begin(search, [{"A": 2}])[0]

    def killed(*_: object, **__: object) -> None:
        raise InterruptedError

    monkeypatch.setattr("autotune.store.standings.standings", killed)
    for step in (
        lambda: store.finish([(number, ok({"A": 2}, 40))]),
        lambda: store.retime(search, [({"A": 1}, Measurement((60,)))]),
        lambda: store.import_lines([line.replace('"uuid":"', '"uuid":"x') for line in store.export_lines()]),
    ):
        with pytest.raises(InterruptedError):
            step()
        require_the_slow_rule(store, KEY)
    monkeypatch.undo()
    store.finish([(number, ok({"A": 2}, 40))])
    require_the_slow_rule(store, KEY)


def test_an_old_database_gets_the_summary_that_a_new_one_has(stores: tuple[Store, Store]) -> None:
    """What the migration makes from all trials at once equals what single steps have made."""
    from autotune.store import standings

    store = stores[0]
    with closing(sqlite3.connect(store.where)) as connection:
        before = [sorted(connection.execute(query)) for query in SUMMARY]
    with store._writing() as connection:
        for statement in ("DELETE FROM standings", "UPDATE problems SET trials = 0", "UPDATE searches SET trials = 0"):
            connection.exec_driver_sql(statement)
        standings.build(connection)
        standings.count_each(connection)
    with closing(sqlite3.connect(store.where)) as connection:
        after = [sorted(connection.execute(query)) for query in SUMMARY]
    assert after == before


def steps_of(store: Store, problem: int, configurations: Collection[str]) -> int:
    """Return how many hundreds of steps SQLite needs for some configurations of a problem."""
    from autotune.store import standings

    counted = itertools.count()
    with store._writing() as connection:
        raw = cast("sqlite3.Connection", connection.connection.driver_connection)
        raw.set_progress_handler(lambda: next(counted) < 0, 100)
        standings.follow(connection, problem, configurations)
        raw.set_progress_handler(None, 0)
    return next(counted)


def shared_by(store: Store, problems: int, configurations: int) -> list[str]:
    """Store trials of the same configurations at this many sizes; return their lines."""
    put(store, [ok({"A": value}, value) for value in range(1, configurations + 1)])
    lines = list(store.export_lines())
    for number in range(1, problems):
        changed = [{**json.loads(line), "size": {"M": 64, "N": 32 + number}} for line in lines]
        for line in changed:
            line.update(uuid=f"{line['uuid']}{number}", search={**line["search"], "uuid": f"s{number}"})
        store.import_lines(map(json.dumps, changed))
    return lines


def test_what_an_import_adds_of_a_problem_costs_no_more_for_other_problems_of_its_configurations(
    tmp_path: Path,
) -> None:
    steps = []
    for problems in (2, 40):
        with Store.open(str(tmp_path / f"{problems}.db")) as store:
            shared_by(store, problems, 30)
            names = [row[0] for row in store.rows("SELECT DISTINCT configuration_hash FROM trials", {})]
            steps.append(steps_of(store, 1, names))
    assert 0 < steps[1] < 2 * steps[0]


def test_what_a_trial_adds_costs_no_more_in_a_large_problem(tmp_path: Path) -> None:
    steps = []
    for count in (20, 2000):
        with Store.open(str(tmp_path / f"{count}.db")) as store:
            lines = shared_by(store, 1, 20)
            copies = [{**json.loads(lines[0]), "uuid": f"t{number}", "configuration": {"A": 100 + number}}
                      for number in range(count)]  # fmt: skip
            store.import_lines(map(json.dumps, copies))
            steps.append(steps_of(store, 1, [digest({"A": 3})]))
    assert steps[1] <= steps[0] + 2


def test_a_server_keeps_it_alike(postgres_url: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    steps = [("ok", {"A": 1}, 5), ("ok", {"A": 2}, 4), ("retime", {"A": 1}, 3), ("moved", {"A": 3}, 1)]
    steps += [("driver", {}, 0), ("finalist", {"A": 2}, 7), ("crash", {"A": 3}, 1), ("ok", {"A": 2}, 2)]
    with Store.open(postgres_url) as store, Store.open(str(tmp_path_factory.mktemp("x") / "a.db")) as other:
        happen(store, other, KEY, steps)
        with open_records(locate(postgres_url)) as records:
            for driver in ("", "1", "2"):
                assert records.ranking(1, driver).entries == slowly(store, 1, driver)
            assert records.trials(1, 0) == store.rows(FINISHED, {"problem": 1, "generation": 0})[0][0]
    assert DEVICE.fingerprint
