"""`autotune check`: the first command that the author of a study runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from autotune import devices, text
from autotune.bench import first_error
from autotune.cli import options
from autotune.cli.files import require_spare
from autotune.cli.output import MOST_VALUES, facts, say, table, write_json
from autotune.cli.result import (
    enqueuing_text,
    hint_of_build,
    rates_text,
    timing_text,
    warn_of_unsteady,
    warn_of_unverified,
)
from autotune.errors import AutotuneError, StudyError, UsageError
from autotune.identity import Value
from autotune.model import UNVERIFIED, Configuration, Outcome, Trial
from autotune.pool import DeviceEvaluator, Settings
from autotune.reports import BUILD_FILES, save_build, trial_json
from autotune.study import Problem, check_entries, check_inputs, check_reference, watched
from autotune.text import parse_choices, parse_size


def check(
    study: options.StudyArgument,
    device: options.DeviceOption = None,
    size: options.SizeOption = None,
    choice: options.ChoiceOption = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=V", help="Check this value; the rest as by default. Repeatable."),
    ] = None,
    save_build: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Save source, options, build log and binary (PTX on NVIDIA).")
    ] = None,
    no_run: Annotated[
        bool, typer.Option("--no-run", help="Read and check only: no device, nothing in the file is run.")
    ] = False,
    run_limit: options.RunLimitOption = options.RUN_LIMIT,
    allow_python: options.PythonOption = False,
    as_json: options.JsonOption = False,
) -> None:
    """Check a study; run this first on a new one.

    Reads and cross-checks the file, counts the valid configurations and says which values are excluded and why. Then it
    builds one configuration, prints the build log, and verifies it against the reference.
    Exit code 2: the study or its kernel is wrong. Exit code 1: it builds and does not pass.

    \b
    Examples:
      autotune check ./blur.toml --no-run
      autotune check ./blur.toml --set WG=128 --set VW=4 --save-build build
      autotune check matmul --size 65 --choice T=int
    """
    if no_run and save_build is not None:
        raise UsageError("--no-run and --save-build exclude each other", hint="leave one of them out")
    with watched() as read:
        tuned = options.load_study(study)
    if save_build is not None:
        for name in BUILD_FILES:
            require_spare(save_build / name, read=read)
    sizes = parse_size(size, tuned.sizes)
    choices = parse_choices(choice, tuned.choices)
    info = devices.find_device(device) if device is not None or not no_run else None
    settings_ = options.settings_of(run_limit, allow_python)
    problem = Problem(tuned, sizes, choices, info)
    written = _written(problem)
    if not as_json:
        _print_written(problem, written)
    options.warn_of_idle(problem)
    configuration = options.parse_configuration(settings, tuned, problem.default, "--set")
    problem.plan(configuration)
    check_entries(tuned)
    check_inputs(problem)
    check_reference(problem)
    built = {} if no_run else _build(problem, configuration, save_build, settings_, quiet=as_json)
    if as_json:
        write_json(written | built)
    elif no_run:
        say("checked without running anything; leave out --no-run to build and verify one configuration")
    if built and built["outcome"] != Outcome.OK.value:
        raise AutotuneError(
            f"{built['outcome']}: {built['reason']}",
            where=text.pairs(configuration),
            hint="--save-build FOLDER keeps the build",
        )


def _written(problem: Problem) -> dict[str, Any]:
    """What the file says, at this size."""
    study = problem.study
    return {
        "study": study.name,
        "file": str(study.text.path),
        "kernel": str(study.text.kernel_path),
        "size": problem.size,
        "choices": problem.choices,
        "device": problem.device.fingerprint,
        "parameters": {name: list(parameter.values) for name, parameter in study.parameters.items()},
        "default": problem.default,
        "constraints": list(dict.fromkeys(constraint.reason for constraint in problem.constraints)),
        "combinations": problem.space.combinations,
        "valid_configurations": len(problem.space),
        "exclusions": [{"name": e.name, "value": e.value, "reason": e.reason} for e in problem.space.exclusions()],
    }


def _print_written(problem: Problem, written: dict[str, Any]) -> None:
    study = problem.study
    device = "a typical GPU's limits (no device is used)" if not problem.on_device else problem.device.name
    facts(
        [
            ("study", f"{study.name}: {study.about}" if study.about else study.name),
            ("file", written["file"]),
            ("kernel", written["kernel"]),
            ("size", text.pairs(problem.size, ",")),
            ("choices", text.pairs(problem.choices)),
            ("device", device),
        ]
    )
    print()
    rows = [(p.name, _listed(p.values), str(problem.default[p.name]), p.about) for p in study.parameters.values()]
    table(("parameter", "values", "default", "about"), rows)
    print()
    count, combinations = written["valid_configurations"], written["combinations"]
    facts(
        [
            ("constraints", "\n".join(written["constraints"])),
            ("valid", f"{count:,} of {combinations:,} combinations ({text.share(count, combinations)})"),
            ("excluded", "\n".join(_excluded_rows(written["exclusions"]))),
        ]
    )


def _listed(values: Sequence[Value]) -> str:
    """The values of a parameter; of a long list its beginning and its end, and how many there are."""
    if len(values) <= 2 * MOST_VALUES:
        return " ".join(map(str, values))
    return f"{' '.join(map(str, values[:MOST_VALUES]))} ... {values[-1]} ({text.count(len(values), 'value')})"


def _excluded_rows(exclusions: Sequence[Mapping[str, Any]]) -> list[str]:
    """A row for each reason with the values that it excludes, `WG=512, 1024: too many`; the first few of each."""
    reasons: dict[str, dict[str, list[str]]] = {}
    for one in exclusions:
        reasons.setdefault(one["reason"], {}).setdefault(one["name"], []).append(str(one["value"]))
    rows = []
    for reason, names in list(reasons.items())[:_MOST_REASONS]:
        values = [f"{name}={', '.join(listed[:MOST_VALUES])}" for name, listed in names.items()]
        cut = any(len(listed) > MOST_VALUES for listed in names.values())
        rows.append(f"{'; '.join(values)}{' and more' * cut}: {reason}")
    left = len(reasons) - len(rows)
    return rows + [f"and for {text.count(left, 'more reason')}: --json has them all"] * (left > 0)


_MOST_REASONS = 10
"""How many reasons for excluded values are shown: as many as a reader looks at."""


def _build(
    problem: Problem, configuration: Configuration, save: Path | None, settings: Settings, *, quiet: bool
) -> dict[str, Any]:
    """Build and verify one configuration as a search does. Raises StudyError, with the log, if it does not build."""
    # A builder builds it first: only for a first build has NVIDIA's driver a log, with registers and spills.
    with DeviceEvaluator(problem, [problem.device], settings) as evaluator:
        evaluator.submit(configuration)
        trial = evaluator.collect()
    saved = [] if save is None else save_build(problem.plan(configuration), problem.device, save)
    shown_trial = trial_json(problem, trial) or {}
    warn_of_unverified(trial)
    warn_of_unsteady(problem, trial)
    if not quiet:
        print()
        facts(_built_rows(trial, shown_trial, saved))
    if trial.outcome is Outcome.COMPILE_ERROR:
        # An error that no compiler reports is one between the study and the kernel.
        where = str(problem.study.text.kernel_path if trial.build_log else problem.study.path)
        logged = trial.build_log and first_error(trial.build_log) in trial.reason  # say it once
        parts = ("does not build", hint_of_build(problem, trial.build_log), "its log:")
        what = "; ".join(filter(None, parts)) if logged else trial.reason
        raise StudyError(what, where=where, detail=trial.build_log)
    return {
        **shown_trial,
        "max_error": trial.max_error,
        "build_s": trial.build_s,
        "build_log": trial.build_log,
        "environment": trial.environment,
        "saved": [str(path) for path in saved],
    }


def _built_rows(trial: Trial, shown: Mapping[str, Any], saved: Sequence[Path]) -> list[tuple[str, str]]:
    passed = trial.outcome is Outcome.OK
    error = f", largest error {text.number(trial.max_error, 2)} x the tolerance" if trial.max_error else ""
    told = {name: str(value) for name, value in trial.environment.items() if name != UNVERIFIED}
    return [
        ("configuration", text.pairs(trial.configuration)),
        ("outcome", f"ok: verified against the reference{error}" if passed else trial.outcome.value),
        ("time", timing_text(shown) if passed else ""),
        ("rate", rates_text(shown) if passed else ""),
        ("host", enqueuing_text(shown) if passed else ""),
        ("build", text.duration(trial.build_s)),
        ("environment", ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in told.items())),
        ("build log", "" if trial.outcome is Outcome.COMPILE_ERROR else trial.build_log.strip() or "empty"),
        ("saved", "\n".join(map(str, saved))),
    ]
