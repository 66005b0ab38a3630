"""`autotune history`: what is stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

import typer

from autotune import text
from autotune.cli.options import DatabaseOption, JsonOption, ServerOption, StoredDeviceOption
from autotune.cli.output import say, write, write_json
from autotune.errors import AutotuneError, shortened
from autotune.identity import in_order
from autotune.lookup import device_meant
from autotune.model import Outcome
from autotune.ranking import median_interval
from autotune.reports import row_json
from autotune.store import Store, StoredTrial, shown
from autotune.study import default_size, find_study
from autotune.text import line


def history(
    study: Annotated[str | None, typer.Argument(metavar="STUDY", help="Only trials of this study.")] = None,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="At most N trials.")] = 30,
    failed: Annotated[bool, typer.Option("--failed", help="Only failures.")] = False,
    device: StoredDeviceOption = None,
    database: DatabaseOption = None,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """List stored trials, newest first.

    Shows configuration, outcome with its reason, median, spread, time, device and driver.

    \b
    Examples:
      autotune history sgemm
      autotune history sgemm --failed --limit 100
      autotune history -d h200
      autotune history --json > trials.json
    """
    if server is not None:
        from autotune.cli import remote

        asked = remote.server_at(server, database)
        if limit > remote.MOST_TRIALS:
            say(f"note: a server lists the newest {remote.MOST_TRIALS:,} at most; GET /v1/export has all")
        told = asked.history(study, limit=limit, failed=failed, device=device)
        if as_json:
            write_json(told)
            return
        name, rows = study, remote.history(asked, told)
    else:
        name, rows = _stored(study, limit, failed, device, database)
    if as_json:
        write_json([row_json(row) for row in rows])
        return
    if not rows:
        place = None if database is None else shown(database)
        search = text.command("search", study or "STUDY", device=device, server=server, database=place)
        of = (f" of {name}" if name else "") + (f" on {device}" if device else "")
        say(f"no {'failed ' if failed else ''}trial is stored{of}" + f"; {search} makes some" * (not failed))
        return
    _print(rows, {name: _order_of(study or name) for name in {row.key.study for row in rows}})


def _print(rows: Sequence[StoredTrial], orders: Mapping[str, Iterable[str]]) -> None:
    """Print some trials; `orders` gives the names of each study's sizes in its order."""
    heads = [tuple(map(line, _history_head(row, orders[row.key.study]))) for row in rows]
    widths = [max(map(len, column)) for column in zip(*heads, strict=True)]
    for row, head in zip(rows, heads, strict=True):
        write("  ".join(cell.ljust(width) for cell, width in zip(head, widths, strict=True)).rstrip())
        write(f"    {text.pairs(row.trial.configuration)}")
        if row.trial.outcome.failed:
            # An import may bring a reason of any length; --json has all of it.
            write(f"    {shortened(line(' '.join(row.trial.reason.split())))}")


def _stored(
    study: str | None, limit: int, failed: bool, selector: str | None, database: str | None
) -> tuple[str | None, list[StoredTrial]]:
    """Return the study's name and its newest trials from a local database."""
    device = None if selector is None else device_meant(selector, database).fingerprint
    with Store.to_read(database) as store:
        # Trials are listed even if the file of their study is not here.
        name = study if study is None or study in store.counts() else find_study(study).name
        return name, store.history(name, limit, failed=failed, device=device)


def _history_head(row: StoredTrial, order: Iterable[str]) -> tuple[str, ...]:
    """One stored trial except its configuration and reason, which are long and have lines of their own."""
    trial = row.trial
    return (
        f"{trial.started:%Y-%m-%d %H:%M:%S} UTC" if trial.started else "",
        row.key.study,
        text.size(in_order(row.key.size, order)),
        trial.outcome.value,
        text.time(trial.time_ns) if trial.outcome is Outcome.OK else _bound(row),
        _spread(row),
        row.key.device,
        f"driver {trial.driver}" if trial.origin is None else f"imported from {trial.origin['format']}",
    )


def _order_of(study: str) -> Iterable[str]:
    """The names of a study's sizes in its order; none if its file is missing or wrong."""
    try:
        return default_size(find_study(study))
    except AutotuneError:
        return ()


def _bound(row: StoredTrial) -> str:
    """A stopped trial is known to be about this slow, not measured."""
    known = text.time(row.trial.time_ns)
    return f"~ {known}" if row.trial.outcome is Outcome.STOPPED and known != "-" else ""


def _spread(row: StoredTrial) -> str:
    """Half the width of the median's 95 % interval, as a share of the median; an empty string for a single time."""
    trial = row.trial
    if not trial.time_ns > 0 or trial.outcome is not Outcome.OK or len(trial.latest.samples_ns) < 2:
        return ""
    low, high = median_interval(trial.latest.samples_ns)
    return f"± {50 * (high - low) / trial.time_ns:.1f} %"
