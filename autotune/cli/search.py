"""`autotune search`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Annotated

import typer

from autotune import cluster, devices, text, tuner
from autotune.cli import interrupt, options, progress
from autotune.cli import sizes as sizes_command
from autotune.cli.output import announce, stderr, warn, write_json
from autotune.cli.result import hint_of_build, print_result, warn_of_throttling, warn_of_unverified
from autotune.errors import AutotuneError, SpaceError, StudyError, UsageError, placed
from autotune.lookup import DEFAULT_STUDY
from autotune.model import DeviceInfo, Outcome
from autotune.reports import result_json
from autotune.samplers import DEFAULT_SAMPLER, SAMPLERS, entry_of
from autotune.store import shown
from autotune.study import Problem, Study
from autotune.text import parse_choices, parse_size, typed
from autotune.tuner import DEFAULT_SECONDS, GAIN_TRIALS, Budget, Request, Result

HELP = f"""
Search the parameters of a study, and print the best.

Every trial is stored, and a search continues from what is stored: repeat the command to search longer. Ctrl-C ends it
in order and prints the best so far. It stops at the first of --trials, --timeout, --until-stale and --until-gain, or
after about {DEFAULT_SECONDS:g} seconds if none is given.

With --sizes it searches several sizes, each helped by the results of the others. --trials and --timeout are then for
all sizes together ({DEFAULT_SECONDS:g} seconds for each if nothing is given), and every size has a second turn if they
allow it. SIZES as for compare: 1024,2048; M=64,N=64;M=128,N=128; or the name of one of the study's size lists.

Several studies are searched one after another within one budget. With --on and -d all, all models of the cluster
are searched at the same time, each in searches of its own with a budget of its own.

\b
Examples:
  autotune search
  autotune search sgemm -d 0 --size M=4096,N=4096,K=4096 --trials 100
  autotune search ./blur.toml --timeout 5m --fix WG=64,128 --start WG=64,VW=4
  autotune search sgemm --sizes 1024,2048,4096 --timeout 10m
  autotune search sgemm --size 4096 --on tcp://head:8786 -d h200
  autotune search matmul matmul_rect --sizes ladder --on tcp://head:8786 -d all
"""


def search(
    studies: Annotated[
        list[str] | None,
        typer.Argument(metavar="STUDY...", help=f"Names, or paths of files; {DEFAULT_STUDY} by default."),
    ] = None,
    device: options.DevicesOption = None,
    size: options.SizeOption = None,
    sizes_: Annotated[
        list[str] | None,
        typer.Option("--sizes", metavar="SIZES", help="Several sizes, within one budget: 1024,2048. Repeatable."),
    ] = None,
    choice: options.ChoiceOption = None,
    trials: Annotated[int | None, typer.Option(min=1, metavar="N", help="Stop after N new trials.")] = None,
    timeout: Annotated[str | None, typer.Option(metavar="5m", help="Stop after this time: 90s, 5m, 1h30m.")] = None,
    until_stale: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Stop after N trials without a better one.")
    ] = None,
    until_gain: Annotated[
        str | None,
        typer.Option(
            metavar="1%", help=f"Stop when the expected gain of the next {GAIN_TRIALS} trials is less (an estimate)."
        ),
    ] = None,
    sampler: options.SamplerOption = DEFAULT_SAMPLER,
    seed: options.SeedOption = None,
    fix: options.FixOption = None,
    start: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=V,...", help="A configuration to try early; the rest as by default. Repeatable."),
    ] = None,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Try stored failures again, except wrong results.")
    ] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start over without stored results; they are kept.")] = False,
    cold: Annotated[bool, typer.Option("--cold", help="Do not learn from other devices and sizes.")] = False,
    run_limit: options.RunLimitOption = options.RUN_LIMIT,
    build_limit: Annotated[str, typer.Option(metavar="1m", help="How long a build may take.")] = options.BUILD_LIMIT,
    allow_python: options.PythonOption = False,
    on: options.OnOption = None,
    at_most: Annotated[int | None, typer.Option(min=1, metavar="N", help="With --on: use at most N devices.")] = None,
    database: options.DatabaseOption = None,
    server: options.ServerOption = None,
    as_json_: options.JsonOption = False,
) -> None:
    """Search here, on a cluster or at a server."""
    studies = list(dict.fromkeys(studies or [DEFAULT_STUDY]))
    study = studies[0]
    if size and sizes_:
        raise UsageError("--size and --sizes exclude each other", hint="leave one of them out")
    seconds = None if timeout is None else text.parse_duration(timeout)
    budget = asked_budget = Budget(trials, seconds, until_stale, _gain(until_gain, sampler))
    if asked_budget == Budget():
        budget = Budget(seconds=DEFAULT_SECONDS)
    limits = {"--run-limit": run_limit, "--build-limit": build_limit}
    as_here = options.kept(
        {"--fix": fix, "--sampler": sampler, "--cold": cold, **limits, "--allow-python": allow_python},
        {"--sampler": DEFAULT_SAMPLER, "--run-limit": options.RUN_LIMIT, "--build-limit": options.BUILD_LIMIT},
    )
    if server is not None:
        if len(studies) > 1:
            raise UsageError("a server takes one study at a time", where="STUDY", hint=f"search {study} first")
        kept_here = {"--sizes": sizes_, "--on": on, "--at-most": at_most, "--allow-python": allow_python}
        asked = {
            "device": device,
            "size": size,
            "choices": choice,
            "budget": {name: value for name, value in asdict(budget).items() if value is not None},
            "sampler": sampler,
            "seed": seed,
            "fix": fix,
            "start": start,
            "retry_failed": retry_failed,
            "fresh": fresh,
            "cold": cold,
            "run_limit": text.parse_duration(run_limit, where="--run-limit"),
            "build_limit": text.parse_duration(build_limit, where="--build-limit"),
        }
        from autotune.cli import remote

        remote.search(server, database, study, asked, kept_here, as_json_, as_here)
        return
    entry_of(sampler, where="--sampler")
    settings = options.settings_of(run_limit, allow_python, build_limit)
    tuned = [options.load_study(one) for one in studies]
    models, run = _place(on, at_most, device)
    again = as_here + options.kept({"--on": on, "--at-most": None if at_most is None else str(at_most)})

    def part(of: Study, name: str, chosen: Sequence[DeviceInfo]) -> sizes_command.Part:
        choices, fixed = parse_choices(choice, of.choices), options.parse_fix(fix, of)
        wanted = options.parse_sizes(sizes_, of) if sizes_ else [parse_size(size, of.sizes)]
        problems = [Problem(of, one, choices, chosen[0], fix=fixed) for one in wanted]
        starts = [options.parse_configuration([text], of, problems[0].default, "--start") for text in start or ()]
        for given_as, configuration in zip(start or (), starts, strict=True):
            with placed(f"--start {given_as}", SpaceError):  # names the constraint that it breaks
                problems[0].plan(configuration)
        request = Request(
            problems[0], chosen, database, sampler, seed, budget, starts,
            retry_failed=retry_failed, fresh=fresh, cold=cold, settings=settings,
        )  # fmt: skip
        return sizes_command.Part(name, [replace(request, problem=one) for one in problems])

    parts = [[part(of, name, chosen) for of, name in zip(tuned, studies, strict=True)] for chosen in models]
    if sizes_ or len(studies) > 1 or len(models) > 1:
        if asked_budget == Budget():
            budget = Budget(seconds=DEFAULT_SECONDS * sum(len(one.requests) for one in parts[0]))
        place = None if database is None else shown(database)
        of_all = {"-d": device, "--sizes": sizes_, "--size": size, "--choice": choice, "--db": place}
        whole = typed(["autotune", "search", *studies]) + options.kept(of_all) + again
        sizes_command.search(parts, budget, database, as_json=as_json_, run=run, on=again, again=whole)
        return
    (request,) = parts[0][0].requests
    problem = request.problem
    _announce(problem, len(models[0]))
    with progress.show(stderr(), problem.flops) as report, interrupt.stopping() as stop:
        result = run(request, stop, on_progress=report)
    warn_of_throttling(result.best.throttled if result.best is not None else "")
    warn_of_unverified(result.best)
    if as_json_:
        write_json(result_json(result))
    else:
        print_result(result, study, database, again)
    if result.reason == "interrupted":
        raise typer.Exit(130)
    if result.failure is not None:
        raise result.failure
    if result.best is None:
        raise _nothing_passed(result, typed([study]), options.kept({"--allow-python": allow_python}))


def _nothing_passed(result: Result, named: str, run_as: str) -> AutotuneError:
    """The error of a search without a verified configuration: if nothing builds, the kernel is wrong.

    `named` is the study as a command takes it, `run_as` the options needed to run one.
    """
    hint = f"autotune check {named}{run_as} builds one and shows its log"
    if result.reused and not result.trials:
        again = "--fresh" if result.reused_wrong == result.reused else "--retry-failed"
        hint = f"autotune history {named} says why those stored failed; {again} tries them again"
    if not result.trials + result.reused:
        hint = "no build ended in time: give a longer --timeout"
    if set(result.failures) == {Outcome.TIMEOUT}:
        hint = "--run-limit 5m gives a run more time, --build-limit 5m a build"
    if (example := result.unbuilt) is None:
        return AutotuneError("no configuration passed", hint=hint)
    kernel = str(result.problem.study.text.kernel_path)
    hint = hint_of_build(result.problem, example.build_log) or hint
    return StudyError(f"no configuration builds: {example.reason}", where=kernel, hint=hint, detail=example.build_log)


def _place(
    on: str | None, at_most: int | None, selector: str | None
) -> tuple[list[list[DeviceInfo]], Callable[..., Result]]:
    """Return the devices of each model to search on, here or of a cluster, and the function that searches there."""
    if on is not None:
        address = cluster.Address.parse(on)
        return [[one] for one in _models(address, selector)], partial(cluster.run, address=address, most=at_most)
    if at_most is not None:
        what, hint = "--at-most leaves devices of a cluster to others", "name it with --on, or leave it out"
        raise UsageError(what, hint=hint)
    return [_devices(selector)], tuner.run


def _models(address: cluster.Address, selector: str | None) -> list[DeviceInfo]:
    """The models of a cluster to search on; every model for `all`."""
    if selector is not None and selector.strip().lower() == "all":
        return cluster.choose(address, selector)
    return [cluster.choose_one(address, selector)]


def _devices(selector: str | None) -> list[DeviceInfo]:
    """The devices to search on. If none was named, says what keeps a GPU from being used."""
    if selector is not None:
        return devices.find_devices(selector)
    chosen = devices.find_device(None)
    devices.require_usable(chosen)
    for line in devices.diagnose() if chosen.kind == "cpu" else ():
        warn(line)
    return [chosen]


def _gain(text: str | None, sampler: str) -> float | None:
    """The share in `1%` or `1`. Raises UsageError, also if the sampler has no model to estimate it with."""
    if text is None:
        return None
    if not SAMPLERS[sampler].has_model:
        raise UsageError(f"{sampler} cannot estimate the gain", where="--until-gain", hint="leave --sampler out")
    gain = options.percent(text, "--until-gain", "1%")
    if not 0 < gain < 1:
        raise UsageError(
            f"{text!r} is not a percentage between 0 and 100", where="--until-gain", hint="write --until-gain 1%"
        )
    return gain


def _announce(problem: Problem, count: int) -> None:
    several = f"{count} x " if count > 1 else ""
    place = f" at {text.pairs(problem.size, ',')}" if problem.size else ""
    announce(
        f"{problem.study.name}{place} on {several}{problem.device.name} ({problem.device.fingerprint}): "
        f"{len(problem.space):,} valid configurations"
    )
    options.warn_of_idle(problem)
