"""`autotune best`, `devices`, `studies`, `history`: what is here and what is stored."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from autotune import devices, text
from autotune.cli import app
from autotune.cli.options import ChoiceOption, DatabaseOption, DeviceOption, JsonOption, SizeOption, StudyArgument
from autotune.cli.output import facts, say, table, write, write_json
from autotune.cli.progress import configuration
from autotune.errors import AutotuneError, SetupError, UsageError
from autotune.lookup import asking
from autotune.lookup.formats import FORMATS
from autotune.model import DeviceInfo, Outcome
from autotune.ranking import median_interval
from autotune.reports.compare import size_label
from autotune.store import Row, Store
from autotune.study import Problem, Study, find_study, study_paths
from autotune.text import line


@app.command(
    help=f"""
Print the best stored configuration for a device and a size, and how it matches the question.

Formats: {", ".join(FORMATS)}. Where nothing is stored that could answer, the study's default configuration is printed
and the match says so. What the answer falls short of is said on stderr.

\b
Examples:
  autotune best
  autotune best sgemm --size M=4096,N=4096,K=4096 --format defines
  autotune best ./blur.toml -d 0 --format header > blur_tuned.h
"""
)
def best(
    study: StudyArgument = asking.DEFAULT_STUDY,
    device: DeviceOption = None,
    size: SizeOption = None,
    choice: ChoiceOption = None,
    output: Annotated[
        str | None, typer.Option("--format", metavar="FORMAT", help="How to print it. Default: table.")
    ] = None,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Answer as `python -m autotune best` does, which takes a shorter way for all but --help and mistakes."""
    if as_json and output not in (None, "json"):
        raise UsageError(f"--json and --format {output} exclude each other", hint="leave one of them out")
    shown = "json" if as_json else output or "table"
    asked = asking.Asked(study, device, tuple(size or ()), tuple(choice or ()), database, shown)
    raise typer.Exit(asking.run(asked))


@app.command(
    name="devices",
    help="""
List every OpenCL device: index, fingerprint, driver, limits; say what is amiss and the command that mends it.

\b
Examples:
  autotune devices
  autotune devices --json
""",
)
def list_devices(as_json: JsonOption = False) -> None:
    """Devices on stdout, diagnosis on stderr; exit code 3 where there is no device."""
    found = devices.list_devices()
    if as_json:
        write_json([{"fingerprint": info.fingerprint, **asdict(info)} for info in found])
    elif found:
        headings = ("", "device", "fingerprint", "kind", "units", "memory", "local", "group", "driver")
        table(headings, map(_device_row, found), right=("units", "memory", "local", "group"))
    for said in devices.diagnose():
        say(said)
    if not found:
        raise SetupError("no OpenCL device", hint="the lines above say how to get one")


def _device_row(info: DeviceInfo) -> tuple[str, ...]:
    return (
        str(info.index),
        info.name,
        info.fingerprint,
        info.kind,
        str(info.compute_units),
        f"{info.memory / 2**30:.1f} GiB",
        f"{info.local_memory / 2**10:.0f} KiB",
        str(info.max_work_group_size),
        f"{info.platform.partition(',')[0].replace('Portable Computing Language', 'PoCL')} {info.driver}",
    )


@app.command(
    help="""
List the bundled studies and those in ./studies: kernel, parameters, valid configurations, trials stored.

Valid configurations are counted at the default size on the default device, or on a typical GPU where there is none.

\b
Examples:
  autotune studies
  autotune studies --json
""",
)
def studies(database: DatabaseOption = None, as_json: JsonOption = False) -> None:
    """One row per study; a study that cannot be read is listed with its error."""
    info = _any_device()
    with Store.open(database) as store:
        counts = store.counts()
    rows = [_study(name, info, counts) for name in sorted(study_paths())]
    if as_json:
        write_json(rows)
        return
    facts((row["study"], _study_text(row)) for row in rows)


def _any_device() -> DeviceInfo | None:
    try:
        return devices.find_device(None)
    except AutotuneError:
        return None


def _study(name: str, info: DeviceInfo | None, counts: dict[str, int]) -> dict[str, Any]:
    row: dict[str, Any] = {"study": name, "about": "", "kernel": "", "parameters": [], "valid": None, "error": ""}
    row["trials"] = counts.get(name, 0)
    try:
        study = Study.load(name)
        row |= {"kernel": str(study.text.kernel_path), "parameters": list(study.parameters), "about": study.about}
        row["valid"] = len(Problem(study, device=info).space)
    except AutotuneError as error:
        row["error"] = f"error: {error}"
    return row


def _study_text(row: dict[str, Any]) -> str:
    if row["valid"] is None:
        return f"{line(row['error'])}\n"
    counts = f"{row['valid']:,} valid configurations, {row['trials']:,} trials stored"
    told = (row["about"], row["kernel"], " ".join(row["parameters"]), counts)
    return "".join(f"{line(text)}\n" for text in told)


@app.command(
    help="""
List stored trials, newest first: configuration, outcome with its reason, median and spread, when, device, driver.

\b
Examples:
  autotune history sgemm
  autotune history sgemm --failed --limit 100
  autotune history --json > trials.json
""",
)
def history(
    study: Annotated[str | None, typer.Argument(metavar="[STUDY]", help="Only trials of this study.")] = None,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="At most N trials.")] = 30,
    failed: Annotated[bool, typer.Option("--failed", help="Only failures.")] = False,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Rows of the store as a table or as JSON."""
    with Store.open(database) as store:
        # A study whose file is not here, but whose trials are, has a history all the same.
        name = study if study is None or study in store.counts() else find_study(study).name
        rows = store.history(name, None if failed else limit)
    rows = [row for row in rows if row.trial.outcome.failed or not failed][:limit]
    if as_json:
        write_json([_history_json(row) for row in rows])
        return
    if not rows:
        say("no trial is stored" + (f" of {name}; autotune search {study} makes some" if name else ""))
        return
    heads = [tuple(map(line, _history_head(row))) for row in rows]
    widths = [max(map(len, column)) for column in zip(*heads, strict=True)]
    for row, head in zip(rows, heads, strict=True):
        write("  ".join(cell.ljust(width) for cell, width in zip(head, widths, strict=True)).rstrip())
        write(f"    {configuration(row.trial.configuration)}")
        if row.trial.outcome.failed:
            write(f"    {line(' '.join(row.trial.reason.split()))}")


def _history_head(row: Row) -> tuple[str, ...]:
    """One stored trial but for its configuration and reason, which have lines of their own: they are long."""
    trial = row.trial
    return (
        f"{trial.started:%Y-%m-%d %H:%M:%S}" if trial.started else "",
        row.key.study,
        size_label(row.key.size),
        trial.outcome.value,
        text.time(trial.time_ns) if trial.outcome is Outcome.OK else _bound(row),
        _spread(row),
        row.key.device,
        f"driver {trial.driver}",
    )


def _bound(row: Row) -> str:
    """A stopped trial is known to be about this slow, not measured."""
    known = text.time(row.trial.time_ns)
    return f"~ {known}" if row.trial.outcome is Outcome.STOPPED and known != "-" else ""


def _spread(row: Row) -> str:
    """Half the width of the median's 95 % interval, as a share of the median."""
    measurement = row.trial.retimed or row.trial.measurement
    if measurement is None or not measurement.median_ns > 0 or row.trial.outcome is not Outcome.OK:
        return ""
    low, high = median_interval(measurement.samples_ns)
    return f"± {50 * (high - low) / measurement.median_ns:.1f} %"


def _history_json(row: Row) -> dict[str, Any]:
    trial = row.trial
    measurement = trial.retimed or trial.measurement
    return {
        "study": row.key.study,
        "size": row.key.size,
        "choices": row.key.choices,
        "device": row.key.device,
        "device_name": row.device_name,
        "driver": trial.driver,
        "sampler": row.sampler,
        "configuration": trial.configuration,
        "outcome": trial.outcome.value,
        "reason": trial.reason,
        "time_ns": trial.time_ns,
        "interval_ns": median_interval(measurement.samples_ns) if measurement else None,
        "samples_ns": measurement.samples_ns if measurement else (),
        "started": trial.started.isoformat() if trial.started else None,
        "finished": trial.finished.isoformat() if trial.finished else None,
        "kernel_hash": row.key.kernel_hash,
        "study_hash": row.key.study_hash,
    }
