"""After `--fresh`, everything that names a best uses one generation: the newest with a verified configuration."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune import lookup
from autotune.identity import Value
from autotune.lookup import asking, collect, records
from autotune.lookup.answer import LEFT_ASIDE
from autotune.model import Outcome, Trial
from autotune.reports import compare, learned, sides
from autotune.reports.cover import cover
from autotune.store import Store, listing, survey
from autotune.study import Problem, default_choices, default_configuration, default_size, find_study, problem_key
from autotune.tuner import Request
from tests.stored import DEVICE, newer_driver, ok, put
from tests.studies import study

FIRST, SECOND, THIRD = ({"WPT": wpt, "WG": 64, "FAST": 0} for wpt in (1, 2, 4))
OTHER = replace(DEVICE, name="other")
CHOICES = {"T": "float"}
PROBLEM = Problem(study(), {"N": 100}, device=DEVICE)


def search(store: Store, *trials: Trial, fresh: bool = False) -> None:
    put(store, trials, key=PROBLEM.key, device=DEVICE, fresh=fresh)


def bests(store: Store) -> list[dict[str, Value] | None]:
    """Return the best that each of these names: a look-up, comparisons, a cover, a report, pages, a header."""
    tuned, size = PROBLEM.study, PROBLEM.size
    found = lookup.best(tuned.text, size, CHOICES, DEVICE.fingerprint, database=store.where)
    cells = compare.compare(tuned, "size", [size], CHOICES, [DEVICE], store, trials=1, search=None)
    elsewhere = compare.compare(tuned, "device", [size], CHOICES, [OTHER], store, trials=1, search=None)
    covered = cover([Request(PROBLEM, database=store.where)], searching=str, search=False)
    known = learned.sample(store, 1)
    (side,) = sides.sides(store, tuned.name, "size")[0]
    entry = collect(tuned.text, CHOICES, database=store.where).entries[0]
    return [
        dict(found.configuration),
        *(one.best and dict(one.best.configuration) for one in (*cells, elsewhere[-1])),
        dict(covered.candidates[covered.chosen.places[0]]),
        dict(known.measured[0].configuration),
        side["best"]["configuration"],
        dict(entry.best.configuration),
    ]


def test_all_answer_of_the_newest_generation_in_which_something_is_verified(store: Store) -> None:
    search(store, ok(FIRST, 50), ok(SECOND, 60))
    assert bests(store) == [FIRST] * 7
    search(store, Trial(FIRST, Outcome.WRONG_RESULT), fresh=True)
    assert bests(store) == [SECOND] * 7, "what is wrong is not named of an older generation either"
    assert [one.number for one in listing.answering(store, 1)] == [1, 2]
    search(store, Trial(THIRD, Outcome.CRASH))
    assert [trial.configuration for trial in store.trials(PROBLEM.key)] == [FIRST, THIRD], "a search goes on there"
    search(store, ok(THIRD, 90))
    assert bests(store) == [THIRD] * 7
    assert [one.number for one in listing.answering(store, 1)] == [2, 3, 4]


def test_where_nothing_is_verified_the_newest_is_told(store: Store) -> None:
    search(store, Trial(FIRST, Outcome.CRASH))
    search(store, Trial(SECOND, Outcome.COMPILE_ERROR), fresh=True)
    assert [trial.configuration for trial in store.answering(PROBLEM.key)] == [SECOND]
    assert [one.number for one in listing.answering(store, 1)] == [2]
    (cell,) = compare.compare(PROBLEM.study, "size", [PROBLEM.size], CHOICES, [DEVICE], store, trials=1, search=None)
    assert (cell.best, cell.trials, cell.reason) == (None, 1, "compile_error in 1 of 1 trials: ")


def test_each_driver_has_its_generation(store: Store) -> None:
    for driver, fresh, configuration in (("1", False, FIRST), ("2", True, SECOND)):
        put(store, [ok(configuration, 50)], key=PROBLEM.key, device=newer_driver(driver), fresh=fresh)
    told = {
        driver: [one.configuration for one in store.answering(PROBLEM.key, driver)] for driver in ("1", "2", "3", "")
    }
    assert told == {"1": [FIRST, SECOND], "2": [SECOND], "3": [SECOND], "": [SECOND]}


def test_trials_are_counted_from_the_generation_that_answers_on(store: Store) -> None:
    def trials() -> int:
        """Return the number that all of them give."""
        asked = (PROBLEM.study.text, PROBLEM.size, CHOICES, DEVICE.fingerprint)
        (side,) = sides.sides(store, PROBLEM.study.name, "size")[0]
        told = {
            lookup.best(*asked, database=store.where).trials,
            len(store.answering(PROBLEM.key)),
            learned.sample(store, 1).trials,
            survey.by_outcome(survey.tally(store, [one.number for one in listing.answering(store, 1)])).total(),
            survey.outcomes(store, 1).total(),
            side["trials"],
        }
        assert len(told) == 1, told
        return told.pop()

    search(store, ok(FIRST, 50), Trial(SECOND, Outcome.CRASH))
    search(store, Trial(THIRD, Outcome.CRASH), fresh=True)
    assert trials() == 3, "nothing has passed since: what came before answers, with all that came after it"
    search(store, ok(FIRST, 50))
    assert trials() == 2
    search(store, ok(SECOND, 50))
    assert trials() == 3


def test_what_another_tool_made_is_not_counted(store: Store) -> None:
    told = {"format": "t4", "file": "a.json", "device": "", "kernel": ""}
    entry = {"format": "t4", "file": "a.json", "entry": "{}"}
    store.adopt(PROBLEM.key, DEVICE, [replace(ok(FIRST, 5), origin=entry)], told)
    search(store, ok(SECOND, 50))
    assert [one.number for one in listing.answering(store, 1)] == [2]
    cells = compare.compare(PROBLEM.study, "device", [PROBLEM.size], CHOICES, [OTHER], store, trials=1, search=None)
    assert [cell.best.configuration for cell in cells if cell.best is not None] == [SECOND], "nor is it a best"
    assert (
        learned.sample(store, 1).trials == survey.outcomes(store, 1).total() == len(store.answering(PROBLEM.key)) == 1
    )


def test_why_a_side_has_no_best_is_told_of_the_trials_that_it_counts(store: Store) -> None:
    search(store, Trial(FIRST, Outcome.CRASH), Trial(SECOND, Outcome.CRASH))
    search(store, Trial(THIRD, Outcome.COMPILE_ERROR), fresh=True)
    (side,) = sides.sides(store, PROBLEM.study.name, "size")[0]
    assert (side["trials"], side["reason"]) == (1, "1 trial failed: 1 compile_error")


def test_a_look_up_counts_no_trials(store: Store) -> None:
    """The searches keep all counts: since somebody started over, a problem may have got a million trials."""
    search(store, ok(FIRST, 50))
    search(store, ok(FIRST, 50), fresh=True)
    assert [row[3] for row in store.rows(f"EXPLAIN QUERY PLAN {records.TRIALS}", {"problem": 1, "generation": 1})] == [
        "SEARCH searches USING INDEX searches_by_problem (problem_id=?)"
    ]


def test_best_says_that_it_answers_of_what_was_left_aside(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    text = find_study("matmul")
    key = problem_key(text, default_size(text), default_choices(text), DEVICE.fingerprint)
    put(store, [ok(default_configuration(text), 50)], key=key, device=DEVICE)
    asked = asking.Asked("matmul", DEVICE.fingerprint, database=store.where)
    assert asking.run(asked) == 0
    assert LEFT_ASIDE not in capsys.readouterr().err
    put(store, [], key=key, device=DEVICE, fresh=True)
    assert asking.run(asked) == 0
    command = f"autotune search matmul -d {DEVICE.fingerprint} --db {store.where}"
    said = f"note: {LEFT_ASIDE}; {command} goes on\n"
    assert said in capsys.readouterr().err
    _, told = asking.best_of(asked, text, None, "a server's database")
    assert told[-1] == f"note: {LEFT_ASIDE}", "a command of the server's would name its database"
