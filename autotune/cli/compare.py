"""`autotune compare`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from autotune import devices, text, tuner
from autotune.bench import EndToEnd
from autotune.cli import interrupt, options, progress
from autotune.cli.files import replacing, require_spare
from autotune.cli.output import say, stderr, table, warn, write_json
from autotune.errors import AutotuneError, SetupError, WorkerError
from autotune.model import DeviceInfo
from autotune.pool import Settings
from autotune.reports import baselines, charts, compare, end_to_end, trial_json
from autotune.samplers import DEFAULT_SAMPLER, entry_of
from autotune.store import Store
from autotune.study import Problem, watched
from autotune.text import parse_choices
from autotune.tuner import Budget, Request

Costs = Sequence[tuple[compare.Cell, EndToEnd]]
"""The device end to end, for the fastest cell of each size."""


def compare_values(
    study: options.StudyArgument,
    by: Annotated[str, typer.Option("--by", metavar="PARAMETER|device|size", help="What to compare.")],
    sizes: Annotated[
        list[str] | None,
        typer.Option("--sizes", "--size", metavar="SIZES", help="Default: the study's default size. Repeatable."),
    ] = None,
    device: options.DeviceOption = None,
    choice: options.ChoiceOption = None,
    fix: options.FixOption = None,
    trials: Annotated[int, typer.Option(min=1, metavar="N", help="Trials per value, stored ones included.")] = 20,
    chart: Annotated[
        Path | None, typer.Option(metavar="FILE.png|FILE.svg", help="Draw the comparison into this file.")
    ] = None,
    no_search: Annotated[
        bool, typer.Option("--no-search", help="Measure nothing, show what is stored, of any device.")
    ] = False,
    with_baselines: Annotated[
        bool,
        typer.Option(
            "--baselines",
            help="For matrix products: NumPy's BLAS and Strassen's algorithm on the host; the device end to end in a "
            "new process, and its next use there (transfer, kernel, read back).",
        ),
    ] = False,
    sampler: options.SamplerOption = DEFAULT_SAMPLER,
    seed: options.SeedOption = None,
    run_limit: options.RunLimitOption = options.RUN_LIMIT,
    allow_python: options.PythonOption = False,
    database: options.DatabaseOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Show the best per value of a parameter, size or device.

    Every value gets at least --trials trials; missing ones are measured first, unless --no-search. Stored trials count,
    so a value that was searched before may have more; the column trials says how many. A value that is not possible at
    a size is listed with the reason.

    \b
    Sizes, separated by commas or semicolons:
      1024                     every size of the study is 1024
      M=1600,N=1600,K=1007     these; after it, a semicolon: M=64,N=64;M=128,N=128
      ladder                   a list of sizes that the study names

    \b
    Examples:
      autotune compare matmul --by VARIANT --sizes 1024,2048 --chart variants.png
      autotune compare matmul --by size --sizes 128,256,512,1024,2048 --baselines --chart sizes.svg
      autotune compare matmul_rect --by ASPECT --fix TILE_ELEMENTS=1024 --sizes rect
      autotune compare sgemm --by device --no-search
    """
    with watched() as read:
        tuned = options.load_study(study)
    compare.require_subject(tuned, by)
    if chart is not None:
        require_spare(charts.check_path(chart), database, read)  # before any time is spent
    if with_baselines:
        baselines.require_product(tuned)
    wanted = options.parse_sizes(sizes, tuned)
    choices = parse_choices(choice, tuned.choices)
    chosen = _read_of(device, by, database) if no_search else _devices(device, by)
    settings = options.settings_of(run_limit, allow_python)
    with (Store.to_read if no_search else Store.open)(database) as store:
        search = None if no_search else _searcher(database, settings, sampler, seed)
        cells = compare.compare(
            tuned, by, wanted, choices, chosen, store, trials=trials, search=search, fix=options.parse_fix(fix, tuned)
        )
    extras, costs = _baselines(cells, None if no_search else chosen[0]) if with_baselines else ([], [])
    if as_json:
        write_json({"cells": [_cell_json(cell) for cell in cells], "baselines": [asdict(extra) for extra in extras]})
    else:
        _print(cells, extras, costs, by)
    if chart is not None:
        words = [f"{name}={value}" for name, value in choices.items()]
        subtitle = "; ".join([f"{info.name}, driver {info.driver}" for info in chosen] + words)
        with replacing(chart, database, read) as place:
            charts.draw(place, cells, extras, by=by, title=f"{tuned.name}: best per {by}", subtitle=subtitle)
        say(f"chart written to {chart}")
    if all(cell.best is None for cell in cells):
        hint = "leave out --no-search to measure some" if no_search else "the table above says why"
        raise AutotuneError("no verified configuration", hint=hint)


def _devices(selector: str | None, by: str) -> list[DeviceInfo]:
    """The devices to compare on: those named; else, by device, one of each model here; else the best one."""
    if selector is not None:
        return [devices.find_device(part) for part in selector.split(",")]
    best = devices.find_device(None)
    if by != compare.BY_DEVICE:
        return [best]
    found = {best.fingerprint: best}
    for info in devices.list_devices():
        found.setdefault(info.fingerprint, info)
    return list(found.values())


def _read_of(selector: str | None, by: str, database: str | None) -> list[DeviceInfo]:
    """The same if nothing is measured: stored devices may be named, and a comparison by device includes all of them."""
    if selector is not None:
        return [options.device_to_read(part, database) for part in selector.split(",")]
    if by != compare.BY_DEVICE:
        return [options.device_to_read(None, database)]
    try:
        return _devices(None, by)
    except SetupError:  # none is here
        return []


def _searcher(database: str | None, settings: Settings, sampler: str, seed: int | None) -> compare.Search:
    entry_of(sampler, where="--sampler")

    def search(problem: Problem, trials: int) -> None:
        fixed = [f"{name}={values[0]}" for name, values in problem.values.items() if len(values) == 1]
        what = " ".join([problem.study.name, text.size(problem.size), *fixed])
        say(f"{what}: {text.count(trials, 'trial')} on {problem.device.name}")
        request = Request(
            problem, database=database, sampler=sampler, seed=seed, budget=Budget(trials=trials), settings=settings
        )
        with progress.show(stderr(), problem.flops) as report, interrupt.stopping() as stop:
            result = tuner.run(request, stop, on_progress=report)
        if result.reason == "interrupted":
            raise KeyboardInterrupt

    return search


def _baselines(cells: Sequence[compare.Cell], device: DeviceInfo | None) -> tuple[list[charts.Extra], Costs]:
    """Host baselines and, for the fastest configuration of each size, the device end to end, if one is given."""
    extras: list[charts.Extra] = []
    costs: list[tuple[compare.Cell, EndToEnd]] = []
    for size in compare.sizes_of(cells):
        here = [cell for cell in cells if cell.size == size]
        problem = next((cell.problem for cell in here if cell.problem is not None), None)
        if problem is None:
            continue
        say(f"baselines at {text.size(size)}")
        extras += [charts.Extra(label, size, ns) for label, ns in baselines.host_times(problem).items()]
        if device is None:
            continue
        passed = [cell for cell in here if cell.best is not None and cell.device == device.fingerprint]
        fastest = min(passed, key=lambda cell: cell.best.time_ns if cell.best else 0.0, default=None)
        if fastest is None or fastest.problem is None or fastest.best is None:
            continue
        try:
            cost = end_to_end(fastest.problem.plan(fastest.best.configuration), device)
        except WorkerError as error:
            warn(str(error))
            continue
        costs.append((fastest, cost))
        extras.append(charts.Extra("OpenCL, end to end", size, cost.total * 1e9))
        extras.append(charts.Extra("OpenCL, next use", size, cost.next_use * 1e9))
    return extras, costs


def _print(cells: Sequence[compare.Cell], extras: Sequence[charts.Extra], costs: Costs, by: str) -> None:
    place = () if by == compare.BY_SIZE else ("size",)
    headings = (*place, by, "time", "GFLOPS", "GB/s", "of best", "trials", "configuration")
    rows = list[tuple[str, ...]]()
    for size in compare.sizes_of(cells):
        here = [cell for cell in cells if cell.size == size]
        least = min((cell.best.time_ns for cell in here if cell.best is not None), default=0.0)
        rows += [_row(cell, least, by) for cell in here]
        known = next((cell.problem for cell in here if cell.problem is not None), None)
        rows += [_extra_row(extra, known, least, by) for extra in extras if extra.size == size]
    table(headings, rows, right=("time", "GFLOPS", "GB/s", "of best", "trials"))
    if costs:
        print()
        names = ("size", "set-up", "build", "transfer", "kernel", "read back", "end to end", "next use", "kernel alone")
        table(names, [_cost_row(cell, cost) for cell, cost in costs], right=names[1:])


def _row(cell: compare.Cell, least: float, by: str) -> tuple[str, ...]:
    place = () if by == compare.BY_SIZE else (text.size(cell.size),)
    tried = f"{cell.trials}/{cell.valid}" if cell.valid else str(cell.trials)
    if cell.best is None or cell.problem is None:
        return (*place, str(cell.value), "-", "-", "-", "-", tried, cell.reason)
    configuration, time_ns = cell.best.configuration, cell.best.time_ns
    rates = (_rate(amount(configuration), time_ns) for amount in (cell.problem.flops, cell.problem.bytes))
    chosen = {name: value for name, value in configuration.items() if name != by}
    share = text.share(least, time_ns)
    return (*place, str(cell.value), text.time(time_ns), *rates, share, tried, text.pairs(chosen))


def _rate(amount: float | None, time_ns: float) -> str:
    """GFLOPS or GB/s, or `-` if the study does not give the amount."""
    rate = text.giga_rate(amount, time_ns)
    return "-" if rate is None else text.number(rate)


def _extra_row(extra: charts.Extra, known: Problem | None, least: float, by: str) -> tuple[str, ...]:
    size = text.size(extra.size)
    named = (f"{size} {extra.label}",) if by == compare.BY_SIZE else (size, extra.label)
    rate = _rate(None if known is None else known.flops(known.default), extra.time_ns)
    return (*named, text.time(extra.time_ns), rate, "-", text.share(least, extra.time_ns), "", "")


def _cost_row(cell: compare.Cell, cost: EndToEnd) -> tuple[str, ...]:
    steps = (cost.setup, cost.build, cost.transfer, cost.kernel, cost.read_back, cost.total, cost.next_use)
    alone = cell.best.time_ns if cell.best is not None else float("nan")
    return (text.size(cell.size), *(text.time(s * 1e9) for s in steps), text.time(alone))


def _cell_json(cell: compare.Cell) -> dict[str, Any]:
    return {
        "value": cell.value,
        "size": cell.size,
        "device": cell.device,
        "trials": cell.trials,
        "valid_configurations": cell.valid,
        "reason": cell.reason,
        "best": trial_json(cell.problem, cell.best) if cell.problem is not None else None,
    }
