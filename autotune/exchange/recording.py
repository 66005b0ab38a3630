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
"""Nanoseconds of a millisecond."""


@dataclass(frozen=True)
class Recording:
    """A problem with its trials: `own` in the order they began, and those that other tools made.

    `parameters` are the study's with their values; `entry` is the kernel function's name, the study's where there are
    several; `element` the OpenCL type of the first buffer; `headers` what the imported files said, each of its format.
    `driver` is the one whose times tell what is best (ranking.answering).
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
        """The device's name; its model where OpenCL has not described it here."""
        return self.key.device if self.device is None else self.device.name

    @cached_property
    def best(self) -> Trial | None:
        """The fastest of our own trials by the one rule; None where nothing passed."""
        return fastest(self.own, self.driver)

    def under(self, own: Mapping[str, Any], format: str) -> dict[str, Any]:
        """Return the head of a file: `own` fields, and those that imported files of this format had besides.

        Where every trial is of such files, theirs count.
        """
        foreign: dict[str, Any] = {}
        for origin, header in self.headers:
            foreign |= header if origin == format else {}
        alone = not self.own and {origin for origin, _ in self.headers} == {format}
        return {**own, **foreign} if alone else {**foreign, **own}


def settled(recording: Recording) -> tuple[list[Trial], Counter[str]]:
    """Return one trial per configuration: ours before another tool's, the latest of each; and what is left out.

    What was ever wrong stays wrong. What was stopped early has a bound and no time; an import may bring what passed
    without one.
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
    """Return why a trial has no time for other tools, though it has not failed; empty where it has one."""
    if trial.outcome is Outcome.STOPPED:
        return "stopped early, which gives no time"
    return "that passed, without a time" if trial.outcome is Outcome.OK and math.isnan(first_ns(trial)) else ""


def verbatim(trial: Trial, format: str) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Return what an imported trial's file of this format said of it, and its parameters that are not ours, or that are
    written there in another way: `true` for 1.

    None for a trial of another origin; what a database was made to say otherwise counts as nothing said.
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
    """Return the median of a trial's first measurement in nanoseconds, NaN where it has none.

    A file's reader takes the least time for the best. First measurements are taken alike; the finalists' later ones, in
    turns on a device as warm as it gets, are not to be compared with those of the others.
    """
    return trial.measurement.median_ns if trial.measurement is not None else math.nan


def instant(trial: Trial) -> str:
    """Return when a trial ended, in ISO 8601; "" where nobody knows."""
    return trial.finished.isoformat() if trial.finished is not None else ""
