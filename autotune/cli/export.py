"""`autotune export`: every trial as JSON lines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autotune import text
from autotune.cli.options import DatabaseOption
from autotune.cli.output import opened, say
from autotune.errors import UsageError
from autotune.store import Store
from autotune.text import in_quotes


def export_trials(
    file: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="Default: stdout.")] = None,
    database: DatabaseOption = None,
) -> None:
    """Write every stored trial as one line of JSON each: raw samples, outcomes, what they belong to.

    \b
    Examples:
      autotune export > trials.jsonl
      autotune export trials.jsonl
    """
    count = 0
    with Store.open(database) as store:
        try:
            with opened(file, "w") as out:
                for line in store.export_lines():
                    count += 1
                    out.write(in_quotes(line.rstrip("\n"), pairs=True) + "\n")
        except OSError as error:
            raise UsageError(f"cannot be written: {error.strerror}", where=str(file or "stdout")) from error
    say(f"{text.count(count, 'trial')} exported" + (f" to {file}" if file else ""))
