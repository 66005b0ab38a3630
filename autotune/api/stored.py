"""A look-up as a function, which imports nothing of what a search or a kernel needs."""

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

    Arguments as for `search`, but that a stored device's fingerprint or part of its name needs no OpenCL. Nothing
    is compiled or run. Where nothing is stored, the study's default configuration is returned and its match says
    `default`. The record also tells `options`, `defines` and `launches`. Asked again, it is answered from memory while
    neither the study's files nor the database's have changed. Raises AutotuneError for bad input.
    """
    device, size, choices = asked.selector(device), asked.sizes(size), asked.choices(choices)
    database = asked.database(database)
    text = study.text if hasattr(study, "text") else str(study)
    return warm.best_again(text, device, size, choices, database)
