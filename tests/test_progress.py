"""The live display and the plain lines of a running search."""

import re
from dataclasses import replace
from functools import partial
from io import StringIO
from itertools import repeat

import pytest
import typer
from rich.console import Console

from autotune import tuner
from autotune.cli.counting import Lines
from autotune.cli.interrupt import stopping
from autotune.cli.progress import show
from autotune.errors import Counted
from autotune.model import PACE, Measurement, Outcome, Trial
from autotune.space import Space

Progress = partial(
    tuner.Progress, done=0, total=40, failures={}, best=None, elapsed_s=1.0, rate=4.25, left_s=75.0, phase="searching"
)


def trial(ns):
    return Trial({"TS": 16, "WPT": 4}, Outcome.OK, measurement=Measurement((ns,)))


def shown(reports, *, terminal, times=None, width=100):
    written = StringIO()
    console = Console(file=written, force_terminal=terminal, width=width)
    clock = iter(times) if times else repeat(0.0)
    with show(console, lambda configuration: 2e6, clock=lambda: next(clock)) as report:
        for progress in reports:
            report(progress)
    return written.getvalue()


def test_a_terminal_shows_counts_best_failures_rate_and_time_left():
    failures = {Outcome.COMPILE_ERROR: 2, Outcome.WRONG_RESULT: 1, Outcome.CRASH: 0}
    text = shown([Progress(done=12, best=trial(1_000_000), failures=failures)], terminal=True)
    for part in (
        "12/40 trials",
        "best 1.000 ms (2.000 GFLOPS)",
        "TS=16 WPT=4",
        "4.2 configurations/s",
        "1 min 15 s left",
    ):
        assert part in text
    assert "failed: 2 compile_error, 1 wrong_result" in text
    assert "crash" not in text


def test_a_better_best_never_seems_slower_where_the_machine_is():
    slow = replace(trial(1_500_000), environment={PACE: 2.0})
    for terminal in (True, False):
        assert "best about 750.0 µs (2.667 GFLOPS)" in shown([Progress(best=slow)], terminal=terminal)
    assert str(Progress(best=slow)) == "searching: 0 of 40 trials, best about 750.0 µs: TS=16 WPT=4, 1 min 15 s left"


def test_a_narrow_terminal_cuts_lines_rather_than_wrapping():
    text = shown([Progress(best=trial(1_000_000))], terminal=True, width=40)
    lines = re.sub(r"\x1b\[[?0-9;]*[A-Za-z]", "", text).replace("\r", "\n").splitlines()
    assert max(map(len, lines)) <= 40
    assert "best 1.000 ms (2.000 GFLOPS)" in lines


def test_before_the_first_trial_a_terminal_shows_that_it_starts():
    assert "starting" in shown([], terminal=True)


def test_the_time_left_runs_on_between_two_reports():
    now = [0.0]
    written = StringIO()
    console = Console(file=written, force_terminal=True, width=100)
    with show(console, lambda configuration: 2e6, clock=lambda: now[0]) as report:
        report(Progress(left_s=75.0))
        now[0] = 15.0
        console.print(report)
        now[0] = 99.0
        console.print(report)
    text = written.getvalue()
    assert "1 min 00 s left" in text
    assert " 0 s left" in text


def test_plain_lines_carry_the_same_without_control_codes():
    text = shown([Progress(done=3, total=None, best=trial(500), left_s=None)], terminal=False)
    assert text == "searching: 3 trials, best 500.0 ns (4000 GFLOPS), 4.2 configurations/s\n"


def test_plain_lines_are_sparse():
    best, better = trial(2000), trial(1000)
    reports = [
        Progress(done=1),  # at 0 s: the first
        Progress(done=2, best=best),  # at 1 s: a new best, too soon
        Progress(done=3, best=best),  # at 6 s: 5 s after the last line, and the best is still untold
        Progress(done=4, best=best),  # at 12 s: nothing new
        Progress(done=5, best=better),  # at 12.5 s: a new best
        Progress(done=6, best=better, phase="re-timing"),  # at 13 s: a new phase
        Progress(done=7, best=better, phase="re-timing"),  # at 27 s
        Progress(done=8, best=better, phase="re-timing"),  # at 28.5 s: 15 s have passed
    ]
    lines = shown(reports, terminal=False, times=[0, 1, 6, 12, 12.5, 13, 27, 28.5]).splitlines()
    assert [line.split(" trials")[0] for line in lines] == [
        "searching: 1/40", "searching: 3/40", "searching: 5/40", "re-timing: 6/40", "re-timing: 8/40",
    ]  # fmt: skip


def test_before_any_result_it_says_so():
    assert "no verified configuration yet" in shown([Progress()], terminal=False)


def test_what_takes_long_to_count_says_how_far_it_is(capsys) -> None:
    clock = iter([100.0, 104.0, 106.0, 110.0, 111.0, 300.0])
    lines = Lines(lambda: next(clock))
    for place, share in ((1, 0.0), (3, 0.0), (3, 0.5), (4, 0.0), (4, 0.5), (1, 0.0)):
        lines(Counted("TILE", place, 6, share))
    counting = "counting the valid configurations: parameter"
    assert capsys.readouterr().err.splitlines() == [
        f"{counting} 3 of 6 (TILE), 6 s so far, about 14 s left if each of the others takes as long as this",
        f"{counting} 4 of 6 (TILE), 11 s so far, about 5 s left if each of the others takes as long as this",
    ]


def test_counting_ends_where_a_search_is_to_end(capsys) -> None:
    def search() -> None:
        with stopping() as stop:
            Space.build({"a": [1, 2]}, [])
            stop.set()
            Space.build({"a": [1, 2]}, [])

    with pytest.raises(typer.Exit) as ended:
        search()
    assert ended.value.exit_code == 130
    assert capsys.readouterr().err.startswith("interrupted")
