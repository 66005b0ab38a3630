"""The answers about stored results: bests, trials, comparisons."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from autotune.model import Outcome
from autotune.service.answered.words import Instant, Interval, Size, Value, Values


class Launch(BaseModel):
    """One launch of a kernel. A null `local`: the driver decides; a null `offset`: none."""

    kernel: str
    global_: list[int] = Field(alias="global")
    local: list[int] | None
    offset: list[int] | None


class Measured(BaseModel):
    """A configuration and its time, null if it was never measured."""

    configuration: Values
    time_ns: float | None = Field(description="The median.")
    interval_ns: Interval | None = Field(description="What holds the median.")
    runs: int


class _Best(Measured):
    study: str
    notes: list[str]
    device: str = Field(description="That was asked for; `measured_on` is where it was measured.")
    size: Size
    choices: Values
    measured_size: Size | None
    ties: int = Field(description="Others that cannot be told from it.")
    trials: int = Field(description="Of which it is the best.")
    database: str


class Best(_Best):
    """The best for a device and size, as `autotune best --format json` prints it."""

    match: str
    options: list[str] = Field(description="All build options.")
    launches: list[Launch]
    confidence: int | None = Field(description="Per cent of cases in which the interval holds the median.")
    gflops: float | None
    measured_on: str | None
    device_name: str | None
    driver: str | None
    measured: Instant | None


class StoredBest(_Best):
    """A stored best; match, options and launches are null if its study is not here."""

    match: str | None
    options: list[str] | None
    launches: list[Launch] | None
    flops: float | None = Field(description="Operations of one run.")
    measured_on: str
    device_name: str
    driver: str
    measured: str


class StoredProblem(BaseModel):
    """A study at a size on a device, with its best, or why there is none in `error`."""

    problem: int
    study: str
    device: str
    size: Size
    choices: Values
    best: StoredBest | None
    error: str
    searched: Instant | None


class _Of(BaseModel):
    configuration: Values
    time_ns: float | None = Field(description="The median; null where it has no time.")
    interval_ns: Interval | None
    study: str
    size: Size
    choices: Values
    device: str
    device_name: str
    driver: str
    sampler: str
    outcome: Outcome
    reason: str
    started: Instant | None
    finished: Instant | None


class Trial(_Of):
    """A stored trial."""

    number: int
    search: str
    runs: int


class Trials(BaseModel):
    """`next` is the `before` of the next page, or null if there is none."""

    trials: list[Trial]
    next: int | None


class WholeTrial(Trial):
    """A stored trial with its samples, its build log, what it was built and launched as, its environment."""

    samples_ns: list[int]
    warmup_ns: list[int]
    retimed_ns: list[int]
    cache: str | None
    build_log: str
    made: dict[str, Any] | None
    environment: dict[str, Any]
    kernel_hash: str
    study_hash: str


class HistoryRow(_Of):
    """A stored trial, as `autotune history --json` prints it."""

    origin: str | None = Field(description="The format of the file of another tool that it was in.")
    samples_ns: list[int]
    kernel_hash: str
    study_hash: str


class CellBest(Measured):
    """The best of a cell of a comparison."""

    trial: int
    cache: str | None
    verified_runs: int
    gflops: float | None
    gbytes_per_s: float | None
    options: list[str]
    driver: str
    taken: str


class Cell(BaseModel):
    """The best of a value at a size, or why there is none in `reason`."""

    value: Value
    size: Size
    device: str
    problem: int | None
    trials: int
    reason: str
    best: CellBest | None


class Comparison(BaseModel):
    """The best per value; `left_out` counts smaller stored sizes."""

    study: str
    by: str
    cells: list[Cell]
    left_out: int
