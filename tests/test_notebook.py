"""A result in a notebook: rows that a data frame takes, and HTML that runs nothing."""

from __future__ import annotations

import pickle
from dataclasses import replace
from xml.etree import ElementTree

from autotune.model import Outcome
from autotune.store import Store
from autotune.study import GENERIC_DEVICE, Problem
from autotune.tuner import ReplayEvaluator, Result
from tests.studies import TABLE, study
from tests.test_loop import recorded, run


def test_the_trials_of_a_result_are_their_number_and_their_rows(problem: Problem, store: Store) -> None:
    result = run(problem, store, ReplayEvaluator(recorded(problem, [Outcome.COMPILE_ERROR])))
    rows = result.trials()
    assert len(rows) == result.trials == len(problem.space)
    assert {"WPT", "WG", "FAST", "outcome", "reason", "time_ns", "low_ns", "high_ns"} <= rows[0].keys()
    assert {frozenset(row) for row in rows} == {frozenset(rows[0])}
    failed = next(row for row in rows if row["outcome"] == "compile_error")
    assert (failed["time_ns"], failed["reason"]) == (None, "because compile_error")
    assert all(row["low_ns"] <= row["time_ns"] <= row["high_ns"] for row in rows if row["outcome"] == "ok")
    assert pickle.loads(pickle.dumps(result.trials))() == rows


def test_a_result_shows_itself(problem: Problem, store: Store) -> None:
    result = run(problem, store)
    shown = ElementTree.fromstring(result._repr_html_())
    told = " ".join(shown.itertext())
    for word in (
        "saxpy N=1000 T=float",
        "WPT=4 WG=32 FAST=0",
        "1.320 µs",
        "x as fast as the study's default configuration (WPT=1 WG=64 FAST=0); 95 % interval",
        "space exhausted",
    ):
        assert word in told
    dots = shown.findall(".//circle")
    assert len(dots) == len(problem.space)
    assert {2.0, 418.0} <= {float(dot.attrib["cx"]) for dot in dots}  # the first and the last are whole
    assert shown.find(".//script") is None


def told_of(result: Result) -> str:
    return " ".join(ElementTree.fromstring(result._repr_html_()).itertext())


def test_no_baseline_is_told_that_its_author_did_not_choose(store: Store) -> None:
    parameters = {**TABLE["parameters"], "WG": {"values": [32, 64, 128, 256]}}
    told = told_of(run(Problem(study(parameters=parameters), device=GENERIC_DEVICE), store))
    assert "with the first values (WPT=1 WG=32 FAST=0): the study chooses no default, so there is no baseline" in told
    assert "x as fast" not in told


def test_why_a_default_has_no_time_is_told(problem: Problem, store: Store) -> None:
    trials = [
        replace(one, outcome=Outcome.CRASH, reason="it fell", measurement=None)
        if one.configuration == problem.default
        else one
        for one in recorded(problem)
    ]
    assert "crash: it fell" in told_of(run(problem, store, ReplayEvaluator(trials)))


def test_what_others_wrote_stays_text(problem: Problem, store: Store) -> None:
    result = run(problem, store)
    nasty = replace(result, reason="<script>\x1b[31m", best=None)
    shown = ElementTree.fromstring(nasty._repr_html_())
    assert "<script>\\x1b[31m" in " ".join(shown.itertext())
    assert "no configuration passed" in " ".join(shown.itertext())
