"""`autotune search` of several sizes or studies, or on every model of a cluster: one summary of all."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass, field, replace

import typer

from autotune import text
from autotune.cli import interrupt, progress
from autotune.cli.options import command, kept, warn_of_idle
from autotune.cli.output import announce, facts, say, stderr, table, write_json
from autotune.cli.result import warn_of_throttling, warn_of_unverified
from autotune.errors import AutotuneError
from autotune.model import DeviceInfo
from autotune.reports import problem_json, result_json
from autotune.study import Problem
from autotune.tuner import Budget, ProgressCallback, Request, Result, Turn, require_enough, run_sizes

_POLL_S = 0.2


@dataclass
class Part:
    """A study on a device at one size or several, and the result at each; `study` is how it was typed."""

    study: str
    requests: Sequence[Request]
    found: dict[int, Result] = field(default_factory=dict)
    failure: AutotuneError | None = None

    @property
    def problems(self) -> list[Problem]:
        """The study at each size."""
        return [request.problem for request in self.requests]

    @property
    def device(self) -> DeviceInfo:
        """The device, or the representative of its model."""
        return self.requests[0].problem.device

    def rows(self) -> Iterator[tuple[Problem, Result | None]]:
        """Yield each size with its result."""
        for place, problem in enumerate(self.problems):
            yield problem, self.found.get(place)


def search(
    models: Sequence[Sequence[Part]],
    budget: Budget,
    database: str | None,
    *,
    as_json: bool,
    run: Callable[..., Result],
    on: str,
    again: str,
) -> None:
    """Search all parts within a budget for each model, print what was found, and set the exit code.

    Models are searched at the same time, the parts of one after another. `run` searches one problem, `on` are the
    options that the next search to type needs too, `again` is the command that searches several parts longer.
    """
    parts = [part for model in models for part in model]
    require_enough(budget, sum(len(part.requests) for part in models[0]))  # each model has the whole budget
    _announce(models, budget)
    begun = time.monotonic()
    with interrupt.stopping() as stop:
        if len(models) == 1:
            _work(models[0], budget, stop, run, alone=True)
        else:
            workers = [
                threading.Thread(target=_work, args=(model, budget, stop, run), daemon=True, name="autotune-model")
                for model in models
            ]
            for worker in workers:
                worker.start()
            for worker in workers:
                while worker.is_alive():
                    worker.join(_POLL_S)
        interrupted = stop.is_set()
    for problem, result in (row for part in parts for row in part.rows()):
        if result is not None and result.best is not None:
            what = f"{problem.study.name} {text.size(problem.size)}"
            warn_of_throttling(result.best.throttled, f"the best of {what}")
            warn_of_unverified(result.best, f"{what}: ")
    if as_json:
        write_json({"interrupted": interrupted, "sizes": [_json(*row) for part in parts for row in part.rows()]})
    else:
        _print(parts, database, time.monotonic() - begun, on, again)
    if interrupted:
        raise typer.Exit(130)
    _require_found(parts)


def _work(
    parts: Sequence[Part], budget: Budget, stop: threading.Event, run: Callable[..., Result], alone: bool = False
) -> None:
    """Search the parts of one model; what a part leaves of its share of the budget goes to the next ones.

    If a part fails, the parts after it are still searched.
    """
    trials, begun, left = budget.trials, time.monotonic(), sum(len(part.requests) for part in parts)
    for part in parts:
        share = len(part.requests) / left
        left -= len(part.requests)
        seconds = None if budget.seconds is None else max(1.0, budget.seconds - (time.monotonic() - begun)) * share
        own = replace(budget, trials=None if trials is None else round(trials * share), seconds=seconds)
        if not stop.is_set():
            _search(part, own, stop, run, alone, several=len(parts) > 1)
        if trials is not None:
            trials -= sum(result.trials for result in part.found.values())


def _search(
    part: Part, budget: Budget, stop: threading.Event, run: Callable[..., Result], alone: bool, several: bool
) -> None:
    with ExitStack() as shows:

        def turn(of: Turn) -> ProgressCallback | None:
            shows.close()
            name = f"{part.study} " if several or not alone else ""
            place = f" on {part.device.name}" if not alone else ""
            say(f"{name}{_turn(of, len(part.requests))}{place}")
            flops = of.request.problem.flops
            shown: AbstractContextManager[ProgressCallback | None] = (
                progress.show(stderr(), flops) if alone else nullcontext()
            )
            return shows.enter_context(shown)

        try:
            requests = [  # a start is known to be valid only at the first size
                replace(one, budget=budget, start=[start for start in one.start if start in one.problem.space])
                for one in part.requests
            ]
            for place, result in run_sizes(requests, stop, on_turn=turn, search=run):
                part.found[place] = result
                if not alone:
                    say(_ended(part, result))
        except AutotuneError as error:
            part.failure = error
    part.failure = part.failure or next((one.failure for one in part.found.values() if one.failure is not None), None)


def _require_found(parts: Sequence[Part]) -> None:
    """Raise the first error, or that nothing passed somewhere; further errors are printed."""
    failed = [part for part in parts if part.failure is not None]
    for part in failed[1:]:
        say(f"error: {part.study} on {part.device.name}: {part.failure}")
    if failed and failed[0].failure is not None:
        raise failed[0].failure
    for part in parts:
        if without := [text.size(one.size) for one, result in part.rows() if result is None or result.best is None]:
            where = f"{part.study} on {part.device.name}" if len(parts) > 1 else ""
            hint = f"{text.typed(['autotune', 'check', part.study])} builds one and shows its log"
            raise AutotuneError(f"no configuration passed at {', '.join(without)}", where=where, hint=hint)


def _announce(models: Sequence[Sequence[Part]], budget: Budget) -> None:
    first, parts = models[0][0], models[0]
    count = len(first.requests[0].devices)
    limits = [text.count(budget.trials, "trial")] if budget.trials is not None else []
    limits += [f"about {text.duration(budget.seconds)}"] if budget.seconds is not None else []
    each = " for each model" if len(models) > 1 else " in all"
    within = f" within {' and '.join(limits)}{each}" if limits else ""
    what = f"{first.problems[0].study.name} at {text.count(len(first.requests), 'size')}"
    if len(parts) > 1:
        names = ", ".join(part.problems[0].study.name for part in parts)
        what = f"{names} at {text.count(sum(len(part.requests) for part in parts), 'size')}"
    several = f"{count} x " if count > 1 else ""
    places = ", ".join(f"{model[0].device.name} ({model[0].device.fingerprint})" for model in models)
    announce(f"{what} on {several}{places}{within}")
    for part in parts:
        with nullcontext() if len(parts) == 1 else suppress(AutotuneError):  # with several, its search raises this
            warn_of_idle(part.problems[0])


def _turn(of: Turn, sizes: int) -> str:
    again = ", second turn" if of.number >= sizes else ""
    left = f"; about {text.duration(of.left_s)} left for all" if of.left_s is not None else ""
    valid = f"{len(of.request.problem.space):,} valid configurations"
    return f"{of.number + 1} of {of.total}: {text.size(of.request.problem.size)}{again}, {valid}{left}"


def _ended(part: Part, result: Result) -> str:
    best = "nothing passed" if result.best is None else f"best {text.time(result.best.time_ns)}"
    size = text.size(result.problem.size)
    return f"{part.study} {size} on {part.device.name}: {text.count(int(result.trials), 'new trial')}, {best}"


def _print(parts: Sequence[Part], database: str | None, elapsed_s: float, on: str, again: str) -> None:
    columns: list[tuple[str, Callable[[Part], str]]] = []
    if len({part.study for part in parts}) > 1:
        columns.append(("study", lambda part: part.problems[0].study.name))
    if len({part.device.fingerprint for part in parts}) > 1:
        columns.append(("device", lambda part: part.device.name))
    rows = [
        (*(cell(part) for _, cell in columns), *_row(problem, result))
        for part in parts
        for problem, result in part.rows()
    ]
    headings = (*(name for name, _ in columns), "size", "time", "rate", "over default", "new", "stored", "best")
    table(headings, rows, right=("time", "over default", "new", "stored"))
    print()
    new = sum(result.trials for part in parts for result in part.found.values())
    told = [("search", f"{text.count(new, 'new trial')} in {text.duration(elapsed_s)}")]
    if len(parts) > 1:
        told.append(("longer", again))
    else:
        (one,) = parts
        told.append(("longer", several_command("search", one.problems, one.study, database) + on))
        python = kept({"--allow-python": one.requests[0].settings.allow_python})
        told.append(("next", several_command("cover", one.problems, one.study, database) + python))
    facts(told)


def several_command(name: str, problems: Sequence[Problem], study: str, database: str | None) -> str:
    """Return a command line that asks about these sizes."""
    first = problems[0]
    chosen = first.study.chosen(first.choices)
    sizes = ";".join(text.pairs(problem.size, ",") for problem in problems)
    return f"{command(name, study, first.device, {}, chosen, database)} {text.typed(['--sizes', sizes])}"


def _row(problem: Problem, result: Result | None) -> tuple[str, ...]:
    size = text.size(problem.size)
    if result is None:
        return (size, "-", "-", "-", "0", "-", "not searched")
    counts = (f"{result.trials:,}", f"{result.reused:,}")
    best = result.best
    if best is None:
        failed = ", ".join(f"{count} {outcome.value}" for outcome, count in result.failures.items())
        return (size, "-", "-", "-", *counts, f"none passed: {failed or result.reason}")
    rate = text.rate(problem.flops(best.configuration), best.time_ns)
    return (size, text.time(best.time_ns), rate or "-", _gain(result), *counts, text.pairs(best.configuration))


def _gain(result: Result) -> str:
    """`2.31 x`: how many times as fast as the default; `-` if they were not timed in turns."""
    return f"{result.gain[0]:.2f} x" if result.gain is not None else "-"


def _json(problem: Problem, result: Result | None) -> object:
    if result is None:
        return {**problem_json(problem), "reason": "not searched", "trials": 0, "best": None}
    return result_json(result)
