"""After any mix of simultaneous searches, a look-up, a comparison, a cover and an export name the same best."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from autotune.exchange.gathering import gather
from autotune.identity import ProblemKey, digest
from autotune.lookup import records
from autotune.model import Measurement, Outcome, Trial
from autotune.reports import compare
from autotune.reports.cover import _passed
from autotune.store import Store
from autotune.store.attempts import NoSuchTrialError
from autotune.study import Problem
from tests.stored import DEVICE, newer_driver, ok
from tests.studies import study

STUDY = study()
CHOICES = {"T": "float"}
OTHER = replace(DEVICE, name="other")
CONFIGURATIONS = [{"WPT": wpt, "WG": 64, "FAST": 0} for wpt in (1, 2, 4)]
NUMBERS = itertools.count(1)

Step = tuple[int, int, str, int]
"""The search of a trial, its configuration, its outcome and its time; a `search` begins another search."""

STEPS = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.integers(0, 2),
        st.sampled_from(
            ["ok", "ok", "ok", "search", "fresh", "crash", "wrong_result", "stopped", "finalist", "retime"]
        ),
        st.integers(1, 8),
    ),
    min_size=1,
    max_size=10,
)


@pytest.fixture(name="kept", scope="module")
def _kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with Store.open(str(tmp_path_factory.mktemp("histories") / "a.db")) as store:
        yield store


def happen(store: Store, key: ProblemKey, steps: Sequence[Step]) -> None:
    """Do the steps, in searches of two drivers that all stay at work."""
    at_work: list[int] = []
    for which, configuration, what, time in [(0, 0, "search", 1), *steps]:
        if what in ("search", "fresh"):
            device = newer_driver(str(1 + time % 2))
            at_work.append(store.start_search(key, device, sampler="random", seed=1, fresh=what == "fresh"))
            continue
        search, chosen, measured = at_work[which % len(at_work)], CONFIGURATIONS[configuration], Measurement((time,))
        if what == "retime":
            with suppress(NoSuchTrialError):  # nothing verified to time again
                store.retime(search, [(chosen, measured)])
            continue
        trial = ok(chosen, time) if what in ("ok", "finalist") else Trial(chosen, Outcome(what))
        trial = replace(trial, retimed=Measurement((9 - time,))) if what == "finalist" else trial
        store.finish([(store.begin(search, [chosen])[0], trial)])


def named(trials: Iterable[Trial | None]) -> list[str]:
    return [digest(trial.configuration) for trial in trials if trial is not None]


@pytest.mark.slow
@settings(max_examples=60, derandomize=True, phases=(Phase.explicit, Phase.generate))
@example(steps=[(0, 0, "ok", 6), (0, 1, "fresh", 1), (1, 1, "crash", 1), (0, 1, "ok", 2)])
@example(steps=[(0, 0, "fresh", 2), (1, 0, "ok", 5), (0, 0, "fresh", 1), (2, 1, "ok", 3), (1, 2, "ok", 4)])
@example(steps=[(0, 0, "fresh", 2), (1, 0, "ok", 5), (0, 0, "fresh", 2), (2, 0, "ok", 6), (2, 1, "fresh", 1),
                (3, 1, "ok", 3), (1, 2, "ok", 4)])  # fmt: skip
@given(steps=STEPS)
def test_all_name_the_same_best_of_searches_beside_each_other(kept: Store, steps: list[Step]) -> None:
    size = {"N": next(NUMBERS)}
    key = Problem(STUDY, size, device=DEVICE).key
    happen(kept, key, steps)
    asked = records.of_store(kept)
    number = asked.problem(key)
    assert number is not None
    for driver in ("1", "2", "3"):
        device = newer_driver(driver)
        own = [
            entry.configuration for entry in asked.ranking(number, driver, whole=True).entries if entry.driver == driver
        ]
        cells = compare.compare(STUDY, "size", [size], CHOICES, [device], kept, trials=1, search=None)
        assert named(cell.best for cell in cells) == own[:1]
        assert named(_passed(kept, Problem(STUDY, size, device=device))) == own
    best = [entry.configuration for entry in asked.ranking(number, "").entries[:1]]
    cells = compare.compare(STUDY, "device", [size], CHOICES, [OTHER], kept, trials=1, search=None)
    assert named(cell.best for cell in cells) == best
    for recording in gather(kept, STUDY, size=size)[0] if kept.answering(key) else ():
        told = asked.ranking(number, recording.driver).entries[:1]
        assert named([recording.best]) == [entry.configuration for entry in told]
