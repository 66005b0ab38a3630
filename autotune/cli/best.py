"""`autotune best`, for --help and mistakes; correct questions take the shorter way of `lookup.asking`."""

from __future__ import annotations

from typing import Annotated

import typer

from autotune.cli import options
from autotune.errors import UsageError
from autotune.lookup import FORMATS, asking

HELP = f"""
Print the best stored configuration for a device and size.

Formats: {", ".join(FORMATS)}. The answer says how well it matches the question; stderr says in what it differs. If
nothing stored fits, the answer is the study's default configuration.

\b
Examples:
  autotune best
  autotune best sgemm --size M=4096,N=4096,K=4096 --format defines
  autotune best ./blur.toml -d 0 --format header > blur_tuned.h
  autotune best sgemm --server https://tune.example.org
"""


def best(
    study: options.StudyArgument = asking.DEFAULT_STUDY,
    device: options.DeviceOption = None,
    size: options.SizeOption = None,
    choice: options.ChoiceOption = None,
    output: Annotated[
        str | None, typer.Option("--format", metavar="FORMAT", help="How to print it. Default: table.")
    ] = None,
    database: options.DatabaseOption = None,
    server: options.ServerOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Answer as `python -m autotune best` does, which takes a shorter way for all but --help and mistakes."""
    if as_json and output not in (None, "json"):
        raise UsageError(f"--json and --format {output} exclude each other", hint="leave one of them out")
    shown = "json" if as_json else output or "table"
    if server is not None:
        from autotune.cli import remote

        remote.print_best(remote.server_at(server, database), study, device, size or (), choice or (), shown)
        return
    asked = asking.Asked(study, device, tuple(size or ()), tuple(choice or ()), database, shown)
    raise typer.Exit(asking.run(asked))
