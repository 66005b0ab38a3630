"""The answers about searches."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from autotune.model import Outcome
from autotune.service.answered.results import Measured, StoredProblem
from autotune.service.answered.server import Device
from autotune.service.answered.studies import StudyFrom
from autotune.service.answered.words import Instant, Interval, Size, Value, Values


class GivenBudget(BaseModel):
    """When a search stops, whichever comes first, within the limits of the server."""

    trials: int | None
    seconds: float | None
    until_stale: int | None
    least_gain: float | None


class ShortTrial(BaseModel):
    """A trial in an event of the kind `progress`."""

    configuration: Values
    outcome: Outcome
    time_ns: float | None
    reason: str


class BestSoFar(ShortTrial):
    """The best of a running search; `standing_ns` is what it is compared by."""

    standing_ns: float | None


class Progress(BaseModel):
    """The progress of a search, as in its events of the kind `progress`."""

    search: int
    phase: str
    done: int = Field(description="Trials that have ended.")
    total: int | None
    failures: dict[str, int]
    elapsed_s: float
    rate: float = Field(description="Configurations per second.")
    left_s: float | None
    best: BestSoFar | None
    trial: ShortTrial | None


class Finalist(Measured):
    """A trial in the result of a search."""

    outcome: Outcome
    reason: str
    confidence: int = Field(default=95, description="Per cent of cases in which the interval holds the median.")
    cache: str
    verified_runs: int
    enqueue_run_ns: float | None = Field(default=None, description="Time that Python took to enqueue a run.")
    throttled: str = ""
    at_power_limit: bool = Field(default=False, description="The device lowered its clock.")
    unverified: str = ""
    gflops: float | None
    gbytes_per_s: float | None


class Example(BaseModel):
    """A configuration that failed; `unsteady` if it was right at another time."""

    configuration: Values
    reason: str
    unsteady: bool = False


class Failures(BaseModel):
    """How many trials ended in this way, and one of them."""

    count: int
    example: Example | None


class Result(BaseModel):
    """What a search found, as `autotune search --json` prints it; one that ended before an update may lack some."""

    study: str = ""
    device: str = ""
    size: Size = {}
    choices: Values = {}
    reason: str = ""
    trials: int = 0
    reused: int = Field(default=0, description="Configurations that were tried before; `reused_wrong` were wrong.")
    reused_wrong: int = 0
    valid_configurations: int = 0
    elapsed_s: float = 0.0
    best: Finalist | None
    default: Finalist | None = None
    default_chosen: bool = False
    default_moved: dict[str, list[Value]] = Field(
        default={}, description="The study's own value, and the one used if that is not valid."
    )
    why_no_default: str = ""
    speedup: float | None = Field(default=None, description="Time of the default divided by that of the best.")
    speedup_interval: Interval | None = None
    speedup_confidence: int | None = None
    against_default: str = ""
    noise: float | None = Field(default=None, description="The width of the best's interval as a share of its median.")
    ranked: bool = False
    ties: list[Values] = []
    failures: dict[str, Failures] = Field(default={}, description="By outcome.")
    wrong_with: dict[str, list[Value]] = Field(
        default={}, description="Values with which all results were wrong, and only those."
    )
    usage_s: dict[str, float] = {}
    failure: str | None = None


class Search(BaseModel):
    """A search: its state, its place in the queue, its progress, its result."""

    id: str
    number: int
    state: str = Field(description="queued, running, stopping, done, failed or stopped")
    study: str
    uploaded: bool
    study_from: StudyFrom | None = Field(description="Set if an uploaded study was asked for by its name.")
    device: str
    device_name: str
    size: Size
    choices: Values
    budget: GivenBudget | None
    asked_by: str
    server: str | None
    queue: str | None
    place: int | None = Field(description="0: the next in its queue.")
    attempts: int
    created: Instant
    started: Instant | None
    ended: Instant | None
    reason: str
    exit_code: int | None = Field(description="The exit code of a failed search, as of the command line.")
    progress: Progress | None
    result: Result | None
    outcomes: dict[str, int]
    searches: list[int] = Field(description="Numbers of the stored searches that did its work.")


class Searches(BaseModel):
    """`next` is the `before` of the next page, or null if there is none."""

    open: list[Search]
    searches: list[Search]
    next: int | None


class Points(BaseModel):
    """Each of `trials` is [number, outcome, time_ns, finished, configuration]; `next` is the `after` for the rest."""

    trials: list[list[Any]]
    next: int | None


class Home(BaseModel):
    """What is here, what runs, what waits and what was found last."""

    version: str
    read_only: bool
    devices: list[Device]
    running: list[Search]
    queued: dict[str, list[Search]]
    latest: list[StoredProblem]
