"""What a look-up answers with: a configuration and how it matches the question."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from autotune.identity import Choices, Size, Value


class Match(StrEnum):
    """How a looked-up best relates to the question, nearest first."""

    EXACT = "exact"
    OTHER_DRIVER = "other driver"
    CHANGED = "changed"  # the kernel or the study is not the text that was measured
    NEAREST_SIZE = "nearest size"
    SAME_ARCHITECTURE = "same architecture"
    SAME_VENDOR = "same vendor"
    DEFAULT = "default"  # nothing stored: the study's default configuration


class Best(NamedTuple):
    """The answer: a configuration, how it matches, and where it comes from.

    `device`, `size` and `choices` are those asked for; `measured_on`, `measured_size`, `driver` and `measured`
    (an ISO instant) tell of the measurement. Times are nanoseconds per run: the median and its 95 % interval.
    `ties` counts others that cannot be told from it, `trials` the finished trials of the problem it was found in.
    `options` are the build options: a `-D` for each choice, parameter and computed define, then the study's flags.
    `flops` (operations per run) is filled where it was asked for.
    """

    study: str
    configuration: Mapping[str, Value]
    match: Match
    notes: tuple[str, ...]
    device: str
    size: Size
    choices: Choices
    time_ns: float | None = None
    interval_ns: tuple[float, float] | None = None
    measured_on: str = ""
    device_name: str = ""
    measured_size: Size | None = None
    driver: str = ""
    measured: str = ""
    ties: int = 0
    trials: int = 0
    database: str = ""
    options: tuple[str, ...] = ()
    flops: float | None = None
