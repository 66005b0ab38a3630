"""A search as a function, by the same steps as on the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, SupportsIndex

from autotune import cluster, devices, tuner
from autotune.api import asked
from autotune.bench import BUILD_S, FIRST_S, Limits
from autotune.errors import UsageError
from autotune.lookup import DEFAULT_STUDY
from autotune.pool import Settings, prepared
from autotune.samplers import DEFAULT_SAMPLER, entry_of
from autotune.study import Problem, Study
from autotune.tuner import DEFAULT_SECONDS, Budget, ProgressCallback, Request, Result


@asked.told_as_arguments()
def search(
    study: str | Path | Study = DEFAULT_STUDY,
    *,
    device: str | None = None,
    size: asked.AnySize | None = None,
    choices: asked.AnyValues | None = None,
    trials: SupportsIndex | None = None,
    seconds: float | None = None,
    sampler: str = DEFAULT_SAMPLER,
    seed: SupportsIndex | None = None,
    fix: Mapping[str, asked.AnyValue | Iterable[asked.AnyValue]] | None = None,
    start: Iterable[asked.AnyValues] = (),
    budget: Budget | None = None,
    retry_failed: bool = False,
    fresh: bool = False,
    cold: bool = False,
    run_limit: float | None = None,
    build_limit: float | None = None,
    allow_python: bool = False,
    on: str | None = None,
    database: str | PathLike[str] | None = None,
    on_progress: ProgressCallback | None = None,
) -> Result:
    """Search a study's parameters on a device, store every trial, and return what was found.

    `study` is a name, a path or a `Study`; `device` an index, a part of a name, a fingerprint, several
    indices (`"0,1"`) or `"all"`, by default the best one here; `size` and `choices` override the study's
    defaults; `fix` keeps one value of a parameter, or several; `start` lists configurations to try early, in which
    parameters left out have their default. `sampler`, `seed`, `retry_failed`, `fresh` and `cold` are as for
    `autotune search`. Without `trials`, `seconds` or a `budget` it runs for about `tuner.DEFAULT_SECONDS`. `run_limit`
    is how many seconds a run may take while no best is known, `build_limit` how many a build may take: by default
    `bench.FIRST_S` and `bench.BUILD_S`. `allow_python` permits a reference that is Python code of the study's author; a
    function given to `Study` needs no permission. `on` is the scheduler of a cluster, such as `"tcp://head:8786"`: its
    devices of the model that `device` selects, by default its best, run the trials. `database` is a path or a URL.
    `on_progress` is called after each trial, and while another search uses the device. Ctrl-C ends the search in order,
    without a KeyboardInterrupt: the result's `reason` is then `interrupted`.

    Raises AutotuneError (for its kinds see errors.py) for bad input and for a machine without a device.
    """
    device, size, choices = asked.selector(device), asked.sizes(size), asked.choices(choices)
    database = asked.database(database)
    kept, given = asked.fixed(fix), asked.starts(start)
    seed = asked.whole("seed", seed, least=0, most=2**32 - 1, example=1)
    asked.of_kind("sampler", sampler, isinstance(sampler, str), "name of a sampler", f'"{DEFAULT_SAMPLER}"')
    retry_failed, fresh = asked.flag("retry_failed", retry_failed), asked.flag("fresh", fresh)
    cold, allow_python = asked.flag("cold", cold), asked.flag("allow_python", allow_python)
    asked.of_kind("on", on, on is None or isinstance(on, str), "address of a cluster", '"tcp://head:8786"')
    told = on_progress is None or callable(on_progress)
    asked.of_kind("on_progress", on_progress, told, "function", "print")
    budget = _budget(budget, trials, seconds)
    if budget.least_gain is not None and not entry_of(sampler, "sampler").has_model:
        raise UsageError(f"{sampler} cannot estimate the gain", where="least_gain", hint="leave sampler= out")
    run_limit, build_limit = asked.seconds("run_limit", run_limit), asked.seconds("build_limit", build_limit)
    with ExitStack() as opened:
        run: Callable[..., Result] = tuner.run
        if on is not None:
            address = cluster.Address.parse(on)
            chosen, run = [cluster.choose_one(address, device)], partial(cluster.run, address=address)
        else:
            opened.enter_context(prepared())  # meanwhile, the process from which workers are forked imports
            chosen = devices.find_devices(device) if device is not None else [devices.find_device(None)]
        loaded = study if isinstance(study, Study) else Study.load(asked.named(study))
        problem = Problem(loaded, size, choices, chosen[0], fix=kept)
        limits = Limits(
            build_s=BUILD_S if build_limit is None else build_limit, first_s=FIRST_S if run_limit is None else run_limit
        )
        settings = Settings(limits=limits, allow_python=allow_python or callable(loaded.reference.function))
        request = Request(
            problem,
            chosen,
            database,
            sampler,
            seed,
            budget,
            given,
            retry_failed=retry_failed,
            fresh=fresh,
            cold=cold,
            settings=settings,
        )
        return run(request, on_progress=on_progress)


def _budget(budget: object, trials: Any, seconds: float | None) -> Budget:
    """Return the budget, or one made of trials and seconds. Raises UsageError."""
    if budget is None:
        given = seconds is not None or trials is not None
        return asked.budget(Budget(trials, seconds if given else DEFAULT_SECONDS))
    if trials is not None or seconds is not None:
        hint = "leave trials= and seconds= out: autotune.Budget(trials=..., seconds=...)"
        raise UsageError("sets when to stop, and so do trials= and seconds=", where="budget", hint=hint)
    return asked.budget(budget)
