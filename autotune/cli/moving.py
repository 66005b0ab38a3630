"""`autotune export` and `import`: every trial as JSON lines, and back."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import IO, Annotated

import typer

from autotune import text
from autotune.cli import app
from autotune.cli.options import DatabaseOption
from autotune.cli.output import say
from autotune.errors import UsageError
from autotune.store import Store
from autotune.text import in_quotes


@app.command(
    name="export",
    help="""
Write every stored trial as one line of JSON each: raw samples, outcomes, what they belong to.

\b
Examples:
  autotune export > trials.jsonl
  autotune export trials.jsonl
""",
)
def export_trials(
    file: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="Default: stdout.")] = None,
    database: DatabaseOption = None,
) -> None:
    """Lines to a file or to stdout."""
    count = 0
    with Store.open(database) as store:
        try:
            with _opened(file, "w") as out:
                for line in store.export_lines():
                    count += 1
                    out.write(in_quotes(line.rstrip("\n"), pairs=True) + "\n")
        except OSError as error:
            raise UsageError(f"cannot be written: {error.strerror}", where=str(file or "stdout")) from error
    say(f"{text.count(count, 'trial')} exported" + (f" to {file}" if file else ""))


@app.command(
    name="import",
    help="""
Add the trials that `autotune export` wrote; those already here are not added again. Where a line does not fit,
nothing is added, and the line is named.

\b
Examples:
  autotune import trials.jsonl
  ssh lab autotune export | autotune import
""",
)
def import_trials(
    file: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="Default: stdin.")] = None,
    database: DatabaseOption = None,
) -> None:
    """Lines from a file or from stdin: all of them, or none where one does not fit."""
    with Store.open(database) as store, _opened(file, "r") as lines:
        try:
            count = store.import_lines(lines, str(file or "stdin"))
        except UnicodeDecodeError as error:
            raise UsageError("is no text in UTF-8", where=str(file or "stdin")) from error
    say(f"{text.count(count, 'new trial')} imported")


def _opened(file: Path | None, mode: str) -> AbstractContextManager[IO[str]]:
    if file is None or str(file) == "-":
        stream = sys.stdout if mode == "w" else sys.stdin
        if stream is None:
            raise UsageError("is closed", where="stdout" if mode == "w" else "stdin", hint="give a FILE")
        return nullcontext(stream)
    try:
        return file.open(mode, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot be opened: {error.strerror}", where=str(file)) from error
