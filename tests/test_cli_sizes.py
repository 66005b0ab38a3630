"""`search --sizes`, `cover` and `verify`, as a user types them."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from autotune import tuner
from autotune.cli import sizes
from autotune.devices import find_device
from autotune.model import Identity, Measurement, Outcome, Trial, identity
from autotune.reports import verify as verifying
from autotune.store import Store
from autotune.study import Problem, Study
from autotune.tuner import ReplayEvaluator, Request, Result
from autotune.tuner import run as real
from tests.commands import STUDY, one_error, own_place, run
from tests.stored import put

pytestmark = pytest.mark.device

__all__ = ["own_place"]  # a fixture

ORIGIN = {"format": "t4", "file": "results.json", "entry": "{}"}
FAST, DEFAULT = {"WPT": 4, "WG": 32}, {"WPT": 1, "WG": 64}


def recorded(one: Problem, failed: Outcome | None = None) -> list[Trial]:
    """Return a trial of every configuration, the last one the fastest."""
    every = [one.space.configuration(row) for row in range(len(one.space))]
    if failed is not None:
        return [Trial(configuration, failed, "because") for configuration in every]
    return [
        Trial(configuration, Outcome.OK, measurement=Measurement((9000 - 100 * row,) * 6))
        for row, configuration in enumerate(every)
    ]


def answer(
    monkeypatch: pytest.MonkeyPatch,
    trials_of: Callable[[Problem], list[Trial]],
    after: Callable[[Any], object] = lambda stop: None,
) -> None:
    """Have searches answer from records; `after` is called with the event that stops them."""

    def search(request: Request, stop: threading.Event | None = None, **options: Any) -> Result:
        result = real(request, stop, evaluator=ReplayEvaluator(trials_of(request.problem)), **options)
        after(stop)
        return result

    monkeypatch.setattr("autotune.tuner.run", search)


@pytest.fixture
def replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have searches answer from records in which everything passes."""
    answer(monkeypatch, recorded)


def problem(n: int = 1000) -> Problem:
    return Problem(Study.load("./saxpy.toml"), {"N": n}, None, find_device(None))


def stored(n: int = 1000, configuration: Any = FAST) -> None:
    one = problem(n)
    with Store.open() as store:
        put(
            store,
            [Trial(configuration, Outcome.OK, measurement=Measurement((5000,) * 6))],
            key=one.key,
            device=one.device,
        )


def test_several_sizes_are_searched_and_covered(replayed: None) -> None:
    words = ("search", "./saxpy.toml", "--sizes", "ladder;300", "--trials", "6", "--sampler", "random", "--seed", "1")
    result = run(*words)
    assert "3 sizes on " in result.stderr
    assert "within 6 trials in all" in result.stderr
    assert "2 of 3: N=1000, " in result.stderr
    assert [line.split()[0] for line in result.stdout.splitlines()[2:5]] == ["N=100", "N=1000", "N=300"]
    assert "6 new trials in " in result.stdout
    assert "autotune cover ./saxpy.toml -d " in result.stdout
    found = json.loads(run(*words, "--json").stdout)
    assert found["interrupted"] is False
    assert [(one["size"], one["reused"]) for one in found["sizes"]] == [({"N": n}, 2) for n in (100, 1000, 300)]
    shown = run("cover", "./saxpy.toml", "--sizes", "ladder;300", "--no-search").stdout
    assert "every size takes 1" in shown or "rule" in shown
    covered = json.loads(run("cover", "./saxpy.toml", "--sizes", "100,1000,300", "--no-search", "--json").stdout)
    assert [one["size"]["N"] for one in covered["sizes"]] == [100, 1000, 300]
    assert covered["worst_loss"] == max(one["loss"] for one in covered["sizes"])
    assert all(covered["configurations"][one["configuration"]] for one in covered["sizes"])
    for nearest in covered["by_number"]:
        assert nearest["mean_loss"] <= nearest["worst_loss"]


def test_several_studies_share_a_budget_and_one_that_fails_stops_no_other(replayed: None) -> None:
    Path("twice.toml").write_text(STUDY.replace('name = "saxpy"', 'name = "twice"'))
    never = STUDY.replace('name = "saxpy"', 'name = "never"')
    Path("never.toml").write_text(never + '[[constraints]]\nrequire = "N < 64"\n')
    words = ("search", "./saxpy.toml", "./never.toml", "./twice.toml", "--sizes", "100,1000", "--trials", "9")
    result = run(*words, code=2)
    assert "N < 64" in one_error(result)
    lines = [line.split() for line in result.stdout.splitlines()[2:8]]
    assert [(line[0], line[1], line[-1] != "searched") for line in lines] == [
        ("saxpy", "N=100", True), ("saxpy", "N=1000", True), ("never", "N=100", False), ("never", "N=1000", False),
        ("twice", "N=100", True), ("twice", "N=1000", True),
    ]  # fmt: skip
    assert "9 new trials in " in result.stdout
    assert "longer" in result.stdout
    assert "autotune search ./saxpy.toml ./never.toml ./twice.toml --sizes 100,1000\n" in result.stdout
    told, one = sizes._json(problem(100), None), problem(100)
    place = {"study": "saxpy", "device": one.device.fingerprint, "size": {"N": 100}, "choices": one.choices}
    assert told == {**place, "reason": "not searched", "trials": 0, "best": None}


def test_the_command_that_goes_on_has_what_the_search_had(replayed: None) -> None:
    options = ("--fix", "WG=32,64", "--sampler", "random", "--cold", "--run-limit", "5m", "--allow-python")
    kept = "--fix WG=32,64 --sampler random --cold --run-limit 5m --allow-python"
    one = run("search", "./saxpy.toml", "--trials", "1", "--seed", "1", "--build-limit", "60s", *options).stdout
    assert re.search(rf"autotune search ./saxpy.toml -d \S+ {kept} --timeout 5m\n", one)
    several = run("search", "./saxpy.toml", "--sizes", "100,1000", "--trials", "2", *options).stdout
    assert re.search(rf"autotune search ./saxpy.toml -d \S+ --sizes 'N=100;N=1000' {kept}\n", several)
    assert re.search(r"autotune cover ./saxpy.toml -d \S+ --sizes 'N=100;N=1000' --allow-python\n", several)


def test_a_default_that_was_stopped_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = "clearly slower than the best: 3 times as long after 6 runs"

    def stopped(one: Problem) -> list[Trial]:
        return [
            replace(trial, outcome=Outcome.STOPPED, reason=slow) if trial.configuration == DEFAULT else trial
            for trial in recorded(one)
        ]

    answer(monkeypatch, stopped)
    said = " ".join(run("search", "./saxpy.toml", "--trials", "2").stdout.split())
    assert f" µs: {slow}, as it was then; not timed in turns with the best " in said


@pytest.mark.doubles
def test_a_bad_list_is_one_error(replayed: None) -> None:
    for words, said in (
        (("search", "./saxpy.toml", "--sizes", "nope"), "no list of sizes named 'nope'"),
        (("search", "./saxpy.toml", "--sizes", "1,2", "--size", "3"), "--size and --sizes exclude each other"),
        (("search", "./saxpy.toml", "--sizes", "1,2,3", "--trials", "2"), "2 trials are fewer than 3 sizes"),
        (("search", "./saxpy.toml", "--sizes", "100,0"), "--sizes"),
        (("search", "./saxpy.toml", "--sizes", "100,,300"), "--sizes: '100,,300' has an empty item; write"),
        (("search", "./saxpy.toml", "--sizes", "N=100;"), "--sizes: 'N=100;' has an empty item"),
        (("cover", "./saxpy.toml", "--sizes", ""), "--sizes: an empty value is given"),
        (("cover", "./saxpy.toml", "--sizes", "N=1,N=2"), "put a semicolon between sizes: --sizes 'N=1;N=2'"),
        (("cover", "./saxpy.toml", "--sizes", "N=1", "--sizes", "N=2"), "--sizes: N is given twice for one size"),
        (("verify", "./saxpy.toml", "--max-slowdown", "much"), "'much' is not a percentage; write --max-slowdown 5%"),
    ):
        assert said in one_error(run(*words, code=2))
    few = run("search", "./saxpy.toml", "--sizes", "1,2", "--trials", "1", code=2)
    assert one_error(few) == "error: 1 trial is fewer than 2 sizes; give each size one at least"
    said = one_error(run("cover", "./saxpy.toml", "--sizes", "7", "--no-search", code=1))
    assert "no best is stored at N=7; autotune search ./saxpy.toml --size N=7 finds one" in said
    Path("my studies").mkdir()
    for name in ("saxpy.toml", "saxpy.cl"):
        Path("my studies", name).write_text(Path(name).read_text())
    typed = ("-d", "0", "--choice", "T=double", "--db", "b.db")
    said = one_error(run("cover", "./my studies/saxpy.toml", "--sizes", "7", *typed, "--no-search", code=1))
    device = find_device("0").fingerprint
    assert f"autotune search './my studies/saxpy.toml' -d {device} --size N=7 --choice T=double --db b.db finds" in said
    told = one_error(run("verify", "./saxpy.toml", code=1))
    assert "nothing is stored that could be verified" in told
    assert "autotune search ./saxpy.toml --size N=" in told


def test_sizes_at_which_nothing_passes_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, lambda one: recorded(one, Outcome.CRASH if one.size["N"] == 7 else None))
    result = run("search", "./saxpy.toml", "--sizes", "7,8", "--trials", "4", code=1)
    assert "no configuration passed at N=7; autotune check ./saxpy.toml" in one_error(result)
    assert "none passed: 2 crash" in result.stdout


def test_a_search_that_is_interrupted_keeps_and_shows_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, recorded, after=threading.Event.set)
    result = run("search", "./saxpy.toml", "--sizes", "7,8", "--trials", "4", code=130)
    assert "not searched" in result.stdout
    with Store.open() as store:
        assert len(store.history()) == 2


def test_a_borrowed_best_is_verified_on_the_device_beside_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifying, "measure", partial(tuner.measure, budget_s=0.2))
    stored(800)
    found = json.loads(run("verify", "./saxpy.toml", "--max-slowdown", "1000%", "--json").stdout)
    assert found["match"] == "nearest size"
    assert found["measured_size"] == {"N": 800}
    assert found["best"]["verified_runs"] > 0
    assert 0 < found["slowdown_confidence"] <= 95
    low, high = found["slowdown_interval"]
    assert low <= found["slowdown"] <= high
    with Store.open() as store:
        trials = store.trials(problem().key)
    assert [dict(trial.configuration) for trial in trials] == [FAST, DEFAULT]
    assert all(trial.retimed is not None for trial in trials)
    assert json.loads(run("best", "./saxpy.toml", "--json").stdout)["match"] == "exact"


def measured(best_ns: tuple[int, ...], default_ns: tuple[int, ...], outcome: Outcome = Outcome.OK) -> Any:
    def measure(*_: object, **__: object) -> dict[Identity, Trial]:
        trials = [
            Trial(FAST, outcome, "off by 3", retimed=Measurement(best_ns)),
            Trial(DEFAULT, Outcome.OK, retimed=Measurement(default_ns)),
        ]
        return {identity(trial.configuration): trial for trial in trials}

    return measure


def test_a_borrowed_best_says_where_its_stored_time_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifying, "measure", measured((100,) * 20, (100,) * 20))
    stored(800)
    assert ", measured at N=800 2" in run("verify", "./saxpy.toml").stdout
    assert ", measured 2" in run("verify", "./saxpy.toml", "--size", "800").stdout


def test_few_runs_are_told_as_what_they_are_worth(monkeypatch: pytest.MonkeyPatch) -> None:
    stored()
    monkeypatch.setattr(verifying, "measure", measured((200,) * 4, (100,) * 3))
    result = run("verify", "./saxpy.toml", "--max-slowdown", "5%", code=1)
    assert "x as fast as the default; 75 % interval" in result.stdout
    assert "(75 % interval 100.0 % to 100.0 %)" in one_error(result)
    assert "(median; 95 % interval" in run("best", "./saxpy.toml").stdout


@pytest.mark.parametrize(
    ("best_ns", "code"),
    [((100,) * 20, 0), ((104,) * 20, 0), ((110,) * 20, 1), ((101, 120) * 10, 0)],
    ids=["as fast", "within", "beyond", "within the interval"],
)
def test_a_slower_best_is_exit_code_1_beyond_the_interval(
    monkeypatch: pytest.MonkeyPatch, best_ns: tuple[int, ...], code: int
) -> None:
    stored()
    monkeypatch.setattr(verifying, "measure", measured(best_ns, (100,) * 20))
    result = run("verify", "./saxpy.toml", "--max-slowdown", "5%", code=code)
    assert "x as fast as the default; 95 % interval" in result.stdout
    if code:
        assert "slower than the default by 10.0 % (95 % interval 10.0 % to 10.0 %), more than the 5.0 %" in one_error(
            result
        )
    run("verify", "./saxpy.toml")


def test_a_best_that_is_wrong_here_is_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    stored()
    monkeypatch.setattr(verifying, "measure", measured((), (100,) * 20, Outcome.WRONG_RESULT))
    result = run("verify", "./saxpy.toml", code=1)
    assert "the best does not pass here: wrong_result: off by 3; autotune search ./saxpy.toml" in one_error(result)


def test_what_another_tool_found_is_verified_where_nothing_else_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    one = problem()
    with Store.open() as store:
        trial = Trial(FAST, Outcome.OK, measurement=Measurement((4000,) * 6), origin=ORIGIN)
        store.adopt(one.key, one.device, [trial], {"format": "t4", "device": one.device.fingerprint, "kernel": "k"})
    monkeypatch.setattr(verifying, "measure", measured((90,) * 20, (100,) * 20))
    shown = run("verify", "./saxpy.toml").stdout
    assert "imported" in shown
    assert "as t4 tells" in shown
    assert "the best is 1.111 x as fast as the default" in shown
    assert json.loads(run("verify", "./saxpy.toml", "--json").stdout)["stored_ns"] == 4000
    stored()
    assert "imported" not in run("verify", "./saxpy.toml").stdout
