"""`autotune import-study`: a tuning problem that another tool describes, as a study."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from autotune import text
from autotune.cli.output import opened_bytes, say, write
from autotune.errors import AutotuneError, StudyError, UsageError
from autotune.exchange import MOST_BYTES_T1, read_t1
from autotune.study import Problem, Study, toml, write_new


def import_study(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A T1 description (JSON).")],
    target: Annotated[
        Path | None, typer.Argument(metavar="STUDY", help="The file to write. Default: NAME.toml here.")
    ] = None,
) -> None:
    """Write a study from a T1 file of another tuner.

    T1 is the AutoTuningAssociation's input schema. Parameters, conditions, launch and arguments are converted; stderr
    lists what is not. No code of the file is run, and no file is overwritten.

    \b
    Examples:
      autotune import-study convolution_milo.json
      autotune import-study gemm.json studies/gemm.toml
    """
    if os.path.exists(file) and not os.path.isfile(file):  # to open a pipe waits for who writes to it
        raise UsageError("is not a file", where=str(file), hint="name one, or - for stdin")
    with opened_bytes(file) as stream:
        found = read_t1(stream.read(MOST_BYTES_T1 + 1), str(file))
    path = target or Path(f"{found.tables['name']}.toml")
    if os.path.lexists(path):
        raise StudyError("exists already", where=str(path), hint="name another file")
    counted = _counted(found.tables)
    head = text.clean(f"# From {file.name}, a T1 description. What it does not say stands as TODO.").replace("\n", "")
    head += "\n# Every key: docs/studies-reference.md.\n"
    write_new(path, head + toml(found.tables, f"{path}: "))
    write(str(path))
    for lost in found.lost:
        say(f"not carried: {lost}")
    say(counted)


def _counted(tables: dict[str, object]) -> str:
    """Say how many configurations are valid on a typical GPU."""
    try:
        problem = Problem(Study(source="", **tables))  # type: ignore[arg-type]
        return f"{len(problem.space):,} valid configurations on a typical GPU"
    except AutotuneError as error:
        return f"its configurations cannot be counted yet: {error}"
