"""`autotune report`: one problem's searches as a page in one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autotune import text
from autotune.cli.files import writing
from autotune.cli.options import ChoiceOption, DatabaseOption, StoredDeviceOption, StoredSizeOption, StudyArgument
from autotune.cli.output import say
from autotune.errors import UsageError
from autotune.lookup import asking
from autotune.reports import single
from autotune.store import Store


def report_searches(
    study: StudyArgument,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE.html", help="Where to write it.")] = Path(
        "report.html"
    ),
    device: StoredDeviceOption = None,
    size: StoredSizeOption = None,
    choice: ChoiceOption = None,
    database: DatabaseOption = None,
) -> None:
    """Write the results of a search into one HTML file.

    The file needs no network and no server. It shows the best so far over trials and time, every trial by its outcome,
    failures with reasons, where the time went, which parameters matter, the best per value, a heat map of any two
    parameters, the finalists' times, and the default against the best. If several stored problems fit the options, it
    shows the one that was searched last.

    \b
    Examples:
      autotune report matmul
      autotune report sgemm --size 4096 -d h200 -o sgemm.html
    """
    if output.suffix.lower() not in (".html", ".htm"):
        raise UsageError(
            f"a report is HTML, and {str(output)!r} is not named so", where="--output", hint="name it .html"
        )
    fingerprint = asking.device_meant(device, database).fingerprint if device is not None else None
    with Store.to_read(database) as store:
        written = single.written(store, asking.Asked(study, fingerprint, tuple(size or ()), tuple(choice or ())))
    with writing(output, database) as out:
        out.write(written.html)
    say(f"{text.pairs(written.key.size, ',') or written.key.study} on {written.key.device}: written to {output}")
