"""`autotune cover`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from autotune import devices, text
from autotune.cli import interrupt, options
from autotune.cli.output import announce, facts, say, table, warn, write_json
from autotune.lookup import DEFAULT_STUDY
from autotune.reports import cover as covering
from autotune.study import Problem
from autotune.text import parse_choices
from autotune.tuner import Request


def cover(
    study: options.StudyArgument = DEFAULT_STUDY,
    sizes: Annotated[
        list[str] | None,
        typer.Option("--sizes", metavar="SIZES", help="The sizes to serve, as for compare. Repeatable."),
    ] = None,
    most: Annotated[
        int | None,
        typer.Option("-k", min=1, metavar="K", help="How many. Default: as few as lose 5 % at most."),
    ] = None,
    device: options.DeviceOption = None,
    choice: options.ChoiceOption = None,
    no_search: Annotated[bool, typer.Option("--no-search", help="Measure nothing, use what is stored.")] = False,
    run_limit: options.RunLimitOption = options.RUN_LIMIT,
    allow_python: options.PythonOption = False,
    database: options.DatabaseOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Choose a few configurations for many sizes.

    It chooses the configurations that lose least, and says which size uses which. The candidates are the two fastest
    stored at each size, and the default. Candidates that were not measured at a size are measured there first, in
    turns, unless --no-search. A loss is how much slower a size runs than with its fastest candidate; the chosen
    configurations lose least on average. For sizes without a best, run `autotune search --sizes` first.

    \b
    Examples:
      autotune search sgemm --sizes 512,1024,2048,4096 --timeout 10m
      autotune cover sgemm --sizes 512,1024,2048,4096
      autotune cover sgemm --sizes square -k 2 --no-search --json
    """
    tuned = options.load_study(study)
    wanted, choices = options.parse_sizes(sizes, tuned), parse_choices(choice, tuned.choices)
    chosen = options.device_to_read(device, database) if no_search else devices.find_device(device)
    if not no_search:
        devices.require_usable(chosen)
    settings = options.settings_of(run_limit, allow_python)
    problems = [Problem(tuned, size, choices, chosen) for size in wanted]
    requests = [Request(problem, database=database, settings=settings) for problem in problems]
    announce(f"{tuned.name} at {text.count(len(problems), 'size')} on {chosen.name} ({chosen.fingerprint})")

    def measuring(place: int, count: int) -> None:
        size = text.size(problems[place].size)
        say(f"{place + 1} of {len(problems)}: {size}, {text.count(count, 'configuration')} in turns")

    def searching(problem: Problem) -> str:
        typed, named = tuned.chosen(problem.choices), None if device is None else chosen
        python = options.kept({"--allow-python": allow_python})
        return options.command("search", study, named, problem.size, typed, database) + python

    with interrupt.stopping() as stop:
        found = covering.cover(requests, most, search=not no_search, stop=stop, on_size=measuring, searching=searching)
    if found.missing:
        why = "leave out --no-search to measure them" if no_search else "they did not pass"
        warn(f"{text.count(found.missing, 'pair')} of configuration and size not known; {why}")
    if as_json:
        write_json(_json(found))
    else:
        _print(found)


def _print(found: covering.Cover) -> None:
    numbers = {place: number for number, place in enumerate(found.chosen.places, 1)}
    rows = [
        (str(len(one.places)), _percent(one.worst), _percent(one.mean), "chosen" if one is found.chosen else "")
        for one in found.choices
    ]
    table(("configurations", "worst loss", "mean loss", ""), rows, right=("configurations", "worst loss", "mean loss"))
    print()
    for place, number in numbers.items():
        facts([(f"{number}", text.pairs(found.candidates[place]))])
    print()
    takes = [
        (
            text.size(problem.size),
            str(numbers[place]),
            text.time(float(found.times_ns[place, at])),
            _percent(found.chosen.losses[at]),
        )
        for at, (problem, place) in enumerate(zip(found.problems, found.chosen.takes, strict=True))
    ]
    table(("size", "takes", "time", "loss"), takes, right=("takes", "time", "loss"))
    print()
    facts([("rule", _rule(found, numbers))])


def _rule(found: covering.Cover, numbers: dict[int, int]) -> str:
    rule = found.rule
    if len(numbers) == 1:
        return "every size takes 1"
    if not rule.by:
        return "a size takes what the nearest of these takes (doublings in each dimension added up)"
    parts = [f"{numbers[one]} up to {bound:.4g}" for one, bound in zip(rule.order, rule.bounds, strict=False)]
    return f"by {rule.by}: {', '.join(parts)}, {numbers[rule.order[-1]]} above"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share < float("inf") else "-"


def _json(found: covering.Cover) -> dict[str, Any]:
    first, chosen, rule = found.problems[0], found.chosen, found.rule
    numbers = {place: number for number, place in enumerate(chosen.places)}
    return {
        "study": first.study.name,
        "device": first.device.fingerprint,
        "choices": first.choices,
        "configurations": [found.candidates[place] for place in chosen.places],
        "worst_loss": chosen.worst,
        "mean_loss": chosen.mean,
        "sizes": [
            {
                "size": problem.size,
                "configuration": numbers[chosen.takes[at]],
                "time_ns": float(found.times_ns[chosen.takes[at], at]),
                "loss": chosen.losses[at],
            }
            for at, problem in enumerate(found.problems)
        ],
        "rule": {
            "by": rule.by or "nearest size",
            "bounds": rule.bounds,
            "configurations": [numbers[place] for place in rule.order],
        },
        "by_number": [
            {"configurations": len(c.places), "worst_loss": c.worst, "mean_loss": c.mean} for c in found.choices
        ],
        "missing_pairs": found.missing,
    }
