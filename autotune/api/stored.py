"""A look-up as a function. It does not import what a search or a kernel needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotune.api import asked
from autotune.lookup import DEFAULT_STUDY, Best, warm

if TYPE_CHECKING:
    from os import PathLike
    from pathlib import Path

    from autotune.study import Study


@asked.told_as_arguments()
def best(
    study: str | Path | Study = DEFAULT_STUDY,
    *,
    device: str | None = None,
    size: asked.AnySize | None = None,
    choices: asked.AnyValues | None = None,
    database: str | PathLike[str] | None = None,
) -> Best:
    """Return the best stored configuration of a study for a device and size, and how it matches the question.

    Arguments as for `search`, except that the fingerprint of a stored device, or a part of its name, needs no OpenCL.
    Nothing is compiled or run. If nothing is stored, the study's default configuration is returned, and its match is
    `default`. The record also has `options`, `defines` and `launches`. A repeated question is answered from memory
    unless the files of the study or the database have changed. Raises AutotuneError for bad input.
    """
    device, size, choices = asked.selector(device), asked.sizes(size), asked.choices(choices)
    database = asked.database(database)
    text = study.text if hasattr(study, "text") else asked.named(study)
    return warm.best_again(text, device, size, choices, database)
