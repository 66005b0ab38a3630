"""`autotune import`: JSON lines as trials."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autotune import text
from autotune.cli.options import DatabaseOption
from autotune.cli.output import opened, say
from autotune.errors import UsageError
from autotune.store import Store


def import_trials(
    file: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="Default: stdin.")] = None,
    database: DatabaseOption = None,
) -> None:
    """Add the trials that `autotune export` wrote; those already here are not added again.

    Where a line does not fit, nothing is added, and the line is named.

    \b
    Examples:
      autotune import trials.jsonl
      ssh lab autotune export | autotune import
    """
    with Store.open(database) as store, opened(file, "r") as lines:
        try:
            count = store.import_lines(lines, str(file or "stdin"))
        except UnicodeDecodeError as error:
            raise UsageError("is no text in UTF-8", where=str(file or "stdin")) from error
    say(f"{text.count(count, 'new trial')} imported")
