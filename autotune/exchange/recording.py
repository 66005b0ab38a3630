"""What is stored of one problem, as it is written for other tools."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from autotune.model import DeviceInfo, Identity, Outcome, ProblemKey, Trial, Value, identity
from autotune.tuner import fastest

MS_NS = 1e6
"""Nanoseconds in a millisecond."""


@dataclass(frozen=True)
class Recording:
    """A problem with its trials: `own` in the order in which they began, and those of other tools.

    `parameters` are the study's with their values; `entry` is the kernel function's name, or the study's if there are
    several functions; `element` the OpenCL type of the first output; `headers` what the imported files said, each with
    its format. `driver` is the one whose times decide what is best (ranking.answering).
    """

    key: ProblemKey
    device: DeviceInfo | None
    driver: str
    parameters: Mapping[str, Sequence[Value]]
    entry: str
    element: str
    own: Sequence[Trial]
    imported: Sequence[Trial] = ()
    headers: Sequence[tuple[str, Mapping[str, Any]]] = ()

    @property
    def device_name(self) -> str:
        """The device's name, or its model if OpenCL has not described it here."""
        return self.key.device if self.device is None else self.device.name

    @cached_property
    def best(self) -> Trial | None:
        """The fastest of our own trials by the one rule, or None if nothing passed."""
        return fastest(self.own, self.driver)

    def under(self, own: Mapping[str, Any], format: str) -> dict[str, Any]:
        """Return the head of a file: `own` fields, and fields that only imported files of this format had.

        If all trials come from such files, their fields replace ours.
        """
        foreign: dict[str, Any] = {}
        for origin, header in self.headers:
            foreign |= header if origin == format else {}
        alone = not self.own and {origin for origin, _ in self.headers} == {format}
        return {**own, **foreign} if alone else {**foreign, **own}


def settled(recording: Recording) -> tuple[list[Trial], Counter[str]]:
    """Return one trial per configuration: ours before another tool's, the latest of each. Also count what is left out.

    A configuration that was ever wrong stays wrong. A trial that was stopped early has a bound and no time; an imported
    trial may have passed without a time.
    """
    found: dict[Identity, Trial] = {}
    for trial in (*recording.imported, *recording.own):
        name = identity(trial.configuration)
        before = found.get(name)
        if before is None or trial.origin is None or before.origin is not None:
            wrong = before is not None and before.origin is None and before.outcome is Outcome.WRONG_RESULT
            found[name] = before if wrong and before is not None else trial
    left_out = Counter(filter(None, map(_untold, found.values())))
    left_out["of a configuration that another one tells"] = len(recording.imported) + len(recording.own) - len(found)
    return [trial for trial in found.values() if not _untold(trial)], left_out


def _untold(trial: Trial) -> str:
    """Return why a trial that has not failed has no time for other tools, or an empty string if it has one."""
    if trial.outcome is Outcome.STOPPED:
        return "stopped early, which gives no time"
    return "that passed, without a time" if trial.outcome is Outcome.OK and math.isnan(first_ns(trial)) else ""


def verbatim(trial: Trial, format: str) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Return what an imported trial's file of this format said of it, and parameters that the study cannot give.

    These are not in the study, or the file writes them in another way, such as `true` for 1. None for a trial of
    another origin, or if the database holds no such text.
    """
    if trial.origin is None or trial.origin["format"] != format:
        return None
    try:
        told = json.loads(trial.origin["entry"])
        rest, parameters = told["rest"], told["parameters"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    return (rest, parameters) if isinstance(rest, dict) and isinstance(parameters, dict) else None


def first_ns(trial: Trial) -> float:
    """Return the median of a trial's first measurement in nanoseconds, NaN if it has none.

    Readers of a file take the shortest time for the best. All first measurements are taken alike. Later ones of
    finalists are taken in turns on a warm device, and cannot be compared with those of the others.
    """
    return trial.measurement.median_ns if trial.measurement is not None else math.nan


def instant(trial: Trial) -> str:
    """Return when a trial ended, in ISO 8601, or "" if that is unknown."""
    return trial.finished.isoformat() if trial.finished is not None else ""
