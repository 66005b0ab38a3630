"""`autotune search --sizes`: several sizes in one go, and one summary."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace

import typer

from autotune import text, tuner
from autotune.cli import interrupt, progress
from autotune.cli.options import command, warn_of_idle
from autotune.cli.output import announce, facts, say, stderr, table, write_json
from autotune.errors import AutotuneError
from autotune.model import Trial
from autotune.ranking import speedup
from autotune.reports import result_json
from autotune.study import Problem
from autotune.tuner import ProgressCallback, Request, Result, Turn, run_sizes


def search(
    request: Request,
    problems: Sequence[Problem],
    study: str,
    database: str | None,
    *,
    as_json: bool,
    run: Callable[..., Result] = tuner.run,
    on: str = "",
) -> None:
    """Search all problems within the request's budget, print what was found for each, and set the exit code.

    `run` is what each is searched by, `on` the option that says so in the commands to type next.
    """
    requests = [replace(request, problem=problem, start=_valid(request, problem)) for problem in problems]
    _announce(request, problems)
    found: dict[int, Result] = {}
    failure: AutotuneError | None = None
    begun = time.monotonic()
    with ExitStack() as shows, interrupt.stopping() as stop:

        def turn(of: Turn) -> ProgressCallback:
            shows.close()
            say(_turn(of, len(problems)))
            return shows.enter_context(progress.show(stderr(), of.request.problem.flops))

        try:
            for place, result in run_sizes(requests, stop, on_turn=turn, search=run):
                found[place] = result
        except AutotuneError as error:
            failure = error
        interrupted = stop.is_set()
    failure = failure or next((result.failure for result in found.values() if result.failure is not None), None)
    if as_json:
        write_json(
            {"interrupted": interrupted, "sizes": [_json(one, found.get(at)) for at, one in enumerate(problems)]}
        )
    else:
        _print(problems, found, study, database, time.monotonic() - begun, on)
    if interrupted:
        raise typer.Exit(130)
    if failure is not None:
        raise failure
    if without := [text.size(one.size) for at, one in enumerate(problems) if at not in found or found[at].best is None]:
        what = f"no configuration passed at {', '.join(without)}"
        raise AutotuneError(what, hint=f"autotune check {shlex.quote(study)} builds one and shows its log")


def _valid(request: Request, problem: Problem) -> list[Mapping[str, int | float | str]]:
    """The configurations to start with, as far as they are valid at a size: they have been for the first."""
    return [configuration for configuration in request.start if configuration in problem.space]


def _announce(request: Request, problems: Sequence[Problem]) -> None:
    first, count = problems[0], len(request.devices)
    several = f"{count} x " if count > 1 else ""
    budget = request.budget
    limits = [text.count(budget.trials, "trial")] if budget.trials is not None else []
    limits += [f"about {text.duration(budget.seconds)}"] if budget.seconds is not None else []
    within = f" within {' and '.join(limits)} in all" if limits else ""
    announce(
        f"{first.study.name} at {text.count(len(problems), 'size')} on {several}{first.device.name} "
        f"({first.device.fingerprint}){within}"
    )
    warn_of_idle(first)


def _turn(of: Turn, sizes: int) -> str:
    again = ", second turn" if of.number >= sizes else ""
    left = f"; about {text.duration(of.left_s)} left for all" if of.left_s is not None else ""
    valid = f"{len(of.request.problem.space):,} valid configurations"
    return f"{of.number + 1} of {of.total}: {text.size(of.request.problem.size)}{again}, {valid}{left}"


def _print(
    problems: Sequence[Problem],
    found: Mapping[int, Result],
    study: str,
    database: str | None,
    elapsed_s: float,
    on: str,
) -> None:
    rows = [_row(problem, found.get(place)) for place, problem in enumerate(problems)]
    headings = ("size", "time", "rate", "over default", "new", "stored", "best")
    table(headings, rows, right=("time", "over default", "new", "stored"))
    print()
    new = sum(result.trials for result in found.values())
    facts([
        ("search", f"{text.count(new, 'new trial')} in {text.duration(elapsed_s)}"),
        ("longer", several_command("search", problems, study, database) + on),
        ("next", several_command("cover", problems, study, database)),
    ])  # fmt: skip


def several_command(name: str, problems: Sequence[Problem], study: str, database: str | None) -> str:
    """Return a command line that asks about these sizes."""
    first = problems[0]
    defaults = {choice: values[0] for choice, values in first.study.choices.items()}
    chosen = {choice: value for choice, value in first.choices.items() if value != defaults[choice]}
    sizes = ";".join(text.pairs(problem.size, ",") for problem in problems)
    return f"{command(name, study, first.device, {}, chosen, database)} --sizes {shlex.quote(sizes)}"


def _row(problem: Problem, result: Result | None) -> tuple[str, ...]:
    size = text.size(problem.size)
    if result is None:
        return (size, "-", "-", "-", "0", "-", "not searched")
    counts = (f"{result.trials:,}", f"{result.reused:,}")
    best = result.best
    if best is None:
        failed = ", ".join(f"{count} {outcome.value}" for outcome, count in result.failures.items())
        return (size, "-", "-", "-", *counts, f"none passed: {failed or result.reason}")
    rate = text.rate(problem.flops(best.configuration), best.time_ns, "GFLOPS")
    return (size, text.time(best.time_ns), rate or "-", _gain(result, best), *counts, text.pairs(best.configuration))


def _gain(result: Result, best: Trial) -> str:
    """`2.31 x`: how many times as fast as the default; `-` where they were not timed in turns."""
    default = result.default
    if default is None or default.retimed is None or best.retimed is None:
        return "-"
    return f"{speedup(default.retimed.samples_ns, best.retimed.samples_ns)[0]:.2f} x"


def _json(problem: Problem, result: Result | None) -> object:
    if result is None:
        return {"study": problem.study.name, "size": problem.size, "reason": "not searched", "best": None}
    return result_json(result)
