"""`autotune verify`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from autotune import devices, text
from autotune.cli import interrupt, options
from autotune.cli.output import announce, facts, write_json
from autotune.cli.result import timing_text
from autotune.errors import AutotuneError
from autotune.lookup import DEFAULT_STUDY
from autotune.model import Trial
from autotune.reports import trial_json
from autotune.reports import verify as verifying
from autotune.study import Problem
from autotune.text import parse_choices, parse_size
from autotune.tuner import Request


def verify(
    study: options.StudyArgument = DEFAULT_STUDY,
    device: options.DeviceOption = None,
    size: options.SizeOption = None,
    choice: options.ChoiceOption = None,
    max_slowdown: Annotated[
        str | None,
        typer.Option(
            metavar="5%", help="Exit code 1 where it is slower than the default by more, beyond the interval."
        ),
    ] = None,
    run_limit: options.RunLimitOption = options.RUN_LIMIT,
    allow_python: options.PythonOption = False,
    database: options.DatabaseOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Measure again what `autotune best` names.

    The configuration may be stored, imported, or of another size or device. It is built, verified against the reference
    and timed in turns with the default; the result is stored. Exit code 1: it does not pass or, with --max-slowdown, is
    surely slower than the default by more than that.

    \b
    Examples:
      autotune verify sgemm --size 4096
      autotune verify ./blur.toml -d 0 --max-slowdown 5%
    """
    most = None if max_slowdown is None else options.percent(max_slowdown, "--max-slowdown", "5%")
    tuned = options.load_study(study)
    sizes = parse_size(size, tuned.sizes)
    chosen = devices.find_device(device)
    devices.require_usable(chosen)
    problem = Problem(tuned, sizes, parse_choices(choice, tuned.choices), chosen)
    settings = options.settings_of(run_limit, allow_python)
    announce(f"{tuned.name} at {text.size(problem.size) or 'its only size'} on {chosen.name} ({chosen.fingerprint})")
    named, python = None if device is None else chosen, options.kept({"--allow-python": allow_python})
    searching = options.command("search", study, named, sizes, tuned.chosen(problem.choices), database) + python
    with interrupt.stopping() as stop:
        found = verifying.verify(Request(problem, database=database, settings=settings), stop, searching=searching)
    if as_json:
        write_json(_json(found))
    else:
        facts(_rows(found))
    _require(found, most, f"{searching} finds another")


def _require(found: verifying.Verified, most: float | None, hint: str) -> None:
    """Raise AutotuneError if the best does not pass, or is slower than allowed."""
    trial = found.trial
    if trial is None or trial.outcome.failed:
        why = "was not measured" if trial is None else f"{trial.outcome.value}: {trial.reason}"
        what = f"the best does not pass here: {' '.join(why.split())}"
        raise AutotuneError(what, hint=hint)
    if most is not None and found.exceeds(most) and found.interval is not None:
        low, high = found.interval
        raise AutotuneError(
            f"the best is slower than the default by {_percent(found.slowdown)} ({found.confidence} % interval "
            f"{_percent(low)} to {_percent(high)}), more than the {_percent(most)} allowed",
            hint=hint,
        )


def _rows(found: verifying.Verified) -> list[tuple[str, str]]:
    best = found.best
    return [
        ("best", text.pairs(found.configuration)),
        ("match", "\n".join([best.match.value, *best.notes]) if found.imported is None else "imported"),
        ("stored", _stored(found)),
        ("here", _told(found, found.trial)),
        ("default", _told(found, found.default) if not found.is_default else "is the best itself"),
        ("compared", _compared(found)),
    ]


def _stored(found: verifying.Verified) -> str:
    best = found.best
    if found.imported is not None:
        origin = found.imported.origin or {}
        return f"{text.time(found.imported.time_ns)}, as {origin.get('format', 'another tool')} tells"
    if best.time_ns is None:
        return ""
    where = f" on {best.measured_on}" if best.measured_on != best.device else ""
    if best.measured_size is not None and best.measured_size != best.size:
        where += f" at {text.size(best.measured_size)}"
    return f"{text.time(best.time_ns)}, measured{where} {best.measured[:10]} with driver {best.driver}"


def _told(found: verifying.Verified, trial: Trial | None) -> str:
    told = trial_json(found.problem, trial)
    if told is None or trial is None:
        return "not measured"
    return timing_text(told) if not trial.outcome.failed else f"{trial.outcome.value}: {' '.join(trial.reason.split())}"


def _compared(found: verifying.Verified) -> str:
    if found.slowdown is None or found.interval is None:
        return ""
    ratios = [1 / (1 + share) for share in (found.slowdown, found.interval[1], found.interval[0])]
    return (
        f"the best is {ratios[0]:.3f} x as fast as the default; {found.confidence} % interval {ratios[1]:.3f} to "
        f"{ratios[2]:.3f}, timed in turns"
    )


def _percent(share: float | None) -> str:
    return f"{100 * (share or 0.0):.1f} %"


def _json(found: verifying.Verified) -> dict[str, Any]:
    best = found.best
    stored = best if found.imported is None and best.time_ns is not None else None
    return {
        "study": best.study,
        "device": best.device,
        "size": best.size,
        "choices": best.choices,
        "configuration": found.configuration,
        "match": best.match if found.imported is None else "imported",
        "notes": best.notes if found.imported is None else [],
        "stored_ns": best.time_ns if found.imported is None else found.imported.time_ns,
        "measured_on": stored.measured_on if stored else None,
        "measured_size": stored.measured_size if stored else None,
        "driver": stored.driver if stored else None,
        "measured": stored.measured if stored else None,
        "best": trial_json(found.problem, found.trial),
        "default": trial_json(found.problem, found.default),
        "is_default": found.is_default,
        "slowdown": found.slowdown,
        "slowdown_interval": found.interval,
        "slowdown_confidence": None if found.interval is None else found.confidence,
    }
