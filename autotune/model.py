"""The records that the rooms exchange: frozen, plain data, with no behaviour beyond their own fields.

Standard library only. What the cold path of `autotune best` needs is in identity.py instead.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, overload

from autotune.identity import Choices as Choices
from autotune.identity import Configuration as Configuration
from autotune.identity import ProblemKey as ProblemKey
from autotune.identity import Size as Size
from autotune.identity import Value as Value
from autotune.ranking import median

Identity = tuple[tuple[str, Value], ...]
Environment = Mapping[str, str | int | float]


def identity(configuration: Configuration) -> Identity:
    """Return a hashable key that is the same for equal configurations."""
    return tuple(sorted(configuration.items()))


class Outcome(StrEnum):
    """How a trial ended.

    `PENDING` marks a trial that has begun and not finished; `LOST` one whose search was killed meanwhile, which says
    nothing about its configuration.
    """

    PENDING = "pending"
    LOST = "lost"
    OK = "ok"
    STOPPED = "stopped"
    COMPILE_ERROR = "compile_error"
    LAUNCH_ERROR = "launch_error"
    WRONG_RESULT = "wrong_result"
    TIMEOUT = "timeout"
    CRASH = "crash"

    @property
    def ended(self) -> bool:
        """Whether the trial has ended and its end is known."""
        return self not in (Outcome.PENDING, Outcome.LOST)

    @property
    def failed(self) -> bool:
        """Whether the trial gave no usable time."""
        return self not in (Outcome.OK, Outcome.STOPPED, Outcome.PENDING, Outcome.LOST)

    @property
    def retriable(self) -> bool:
        """Whether the machine, not the configuration, may be at fault."""
        return self in (Outcome.TIMEOUT, Outcome.LAUNCH_ERROR, Outcome.CRASH)


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """What OpenCL says of one device. Sizes in bytes, clock in MHz."""

    index: int
    name: str
    vendor: str
    platform: str
    driver: str
    kind: str  # "gpu", "cpu" or "accelerator"
    opencl_version: str
    compute_units: int
    memory: int
    local_memory: int
    max_work_group_size: int
    max_work_item_sizes: tuple[int, ...]
    clock: int
    extensions: tuple[str, ...] = ()
    uuid: str = ""
    pci: str = ""
    max_allocation: int = 0
    compute_capability: str = ""  # NVIDIA's, e.g. "9.0"
    backend: str = "opencl"
    constant_memory: int = 65536  # the minimum that OpenCL requires
    sub_group_size: int = 0  # 0: the driver does not tell
    images: bool = True

    @property
    def number(self) -> str:
        """The device's number on this machine as it is now: its index, or with another backend e.g. `numpy:0`."""
        return str(self.index) if self.backend == "opencl" else f"{self.backend}:{self.index}"

    @property
    def order(self) -> tuple[int, int]:
        """The sort key of devices, best first: GPUs before CPUs, then by their compute units."""
        return {"gpu": 0, "accelerator": 1, "cpu": 2}.get(self.kind, 3), -self.compute_units

    @property
    def fingerprint(self) -> str:
        """The device's *model*, which is the key of results: two equal cards share their results.

        Vendor, normalised name, compute units and, if the memory is the device's and not the host's, memory in GiB:
        `nvidia-h200-132cu-140g`. Index, driver and platform are not part of it.
        """
        parts = [self.vendor_name, _slug(_plain_name(self)), f"{self.compute_units}cu"]
        if self.kind != "cpu":
            parts.append(f"{round(self.memory / 2**30)}g")
        return "-".join(part for part in parts if part)

    @property
    def vendor_name(self) -> str:
        """The vendor in one word: `nvidia`, `amd`, `intel`, `apple`, `arm`, `qualcomm` or its own slug."""
        for word, pattern in _VENDORS.items():
            if re.search(pattern, self.vendor, re.IGNORECASE):
                return word
        return _slug(self.vendor)


_VENDORS = {
    "nvidia": "nvidia",
    "amd": r"amd|advanced micro",
    "intel": "intel",
    "apple": "apple",
    "arm": r"\barm\b",
    "qualcomm": "qualcomm",
}


def _plain_name(device: DeviceInfo) -> str:
    """Return the name without what varies between drivers: PoCL's prefixes, Mesa's versions, trade marks, the vendor.

    PoCL puts the processor that it compiles for before the model, and also at the end of its version.
    """
    name = re.sub(r"^(pthread|basic|cpu(-minimal)?)-", "", device.name)
    words = device.opencl_version.split("-")
    targets = ("-".join(words[at:]) + "-" for at in range(len(words)))
    name = name.removeprefix(next(filter(name.startswith, targets), ""))
    name = re.sub(r"\([^()]*\)", lambda found: "" if re.search("LLVM|DRM", found[0]) else found[0], name)
    name = re.sub(r"\((R|TM|C)\)|\bCPU\b|\bProcessor\b|@.*$", " ", name, flags=re.IGNORECASE)
    return re.sub(rf"\b{re.escape(device.vendor_name)}\b", " ", name, flags=re.IGNORECASE)


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


class StoredSamples(Sequence[int]):
    """Run times in nanoseconds as a database stores them: JSON text, parsed only when a time is needed.

    A resumed search needs few of them, and numbers take eight times as much memory as the text. It compares equal to a
    tuple of the times. `median_ns` is given if it is known without parsing.
    """

    __slots__ = ("_median_ns", "text")

    def __init__(self, text: str, median_ns: float | None = None) -> None:
        self.text = text
        self._median_ns = median_ns

    @property
    def median_ns(self) -> float:
        """The median of the times."""
        return median(self.read()) if self._median_ns is None else self._median_ns

    def read(self) -> tuple[int, ...]:
        """Return all times."""
        return tuple(json.loads(self.text))

    @overload
    def __getitem__(self, at: int) -> int: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[int, ...]: ...
    def __getitem__(self, at: int | slice) -> int | tuple[int, ...]:
        return self.read()[at]

    def __iter__(self) -> Iterator[int]:
        return iter(self.read())

    def __len__(self) -> int:
        return self.text.count(",") + 1

    def __eq__(self, other: object) -> bool:
        return self.read() == (other.read() if isinstance(other, StoredSamples) else other)

    def __hash__(self) -> int:
        return hash(self.read())

    def __repr__(self) -> str:
        return repr(self.read())


@dataclass(frozen=True, slots=True)
class Measurement:
    """Run times of one configuration in nanoseconds, in the order they were taken, with the warm-up separate.

    `verified_runs` counts the runs whose outputs were verified meanwhile, if that was counted; `throttled` names what
    slowed the device down meanwhile, if its sensors said so. `taken` is the time stamp that the store gave a re-timing,
    the same for all that were timed in the same turns.
    """

    samples_ns: Sequence[int]
    warmup_ns: Sequence[int] = ()
    cache: str = "warm"
    verified_runs: int = field(default=0, compare=False)
    throttled: str = field(default="", compare=False)
    taken: str = field(default="", compare=False)

    @property
    def median_ns(self) -> float:
        """The median of the samples; NaN if there are none."""
        samples = self.samples_ns
        return samples.median_ns if isinstance(samples, StoredSamples) else median(samples)


@dataclass(frozen=True, slots=True)
class Trial:
    """One configuration put through compile, verify and time: exactly one outcome, with its reason.

    `retimed` holds the samples of the final, interleaved timing; `*_s` are seconds of wall time; `max_error` is the
    largest error seen, as a share of the tolerance; `environment` records what could explain the result (driver,
    clocks, versions, registers, spills). `made` is plain data on how it was built and launched and the work it does
    (study.planning.made_of), None if not known. `origin` describes a trial of another tool: its `format`, its `file`,
    and its `entry` in that file as JSON text; None for a trial of ours. `generation` counts how often a search of the
    problem has started over, from the first trial that was read.
    """

    configuration: Configuration
    outcome: Outcome
    reason: str = ""
    measurement: Measurement | None = None
    retimed: Measurement | None = None
    max_error: float | None = None
    build_s: float = 0.0
    verify_s: float = 0.0
    time_s: float = 0.0
    build_log: str = field(default="", repr=False)
    binary_hash: str = ""
    driver: str = ""
    device_index: int | None = None
    started: datetime | None = None
    finished: datetime | None = None
    environment: Environment = field(default_factory=dict, repr=False)
    made: Mapping[str, Any] | None = field(default=None, repr=False)
    origin: Mapping[str, str] | None = field(default=None, repr=False)
    generation: int = field(default=0, repr=False, compare=False)

    @property
    def latest(self) -> Measurement:
        """The measurement that ranks this trial: its re-timing, else its first, else one without samples."""
        return self.retimed or self.measurement or Measurement(())

    @property
    def time_ns(self) -> float:
        """The median that ranks this trial; NaN if none."""
        return self.latest.median_ns

    @property
    def paced_ns(self) -> float:
        """The median of the first measurement at the machine's usual pace; infinite if there is none."""
        if self.measurement is None:
            return math.inf
        found = self.environment.get(PACE, 1.0)  # may have been imported
        pace = found if isinstance(found, float) and 1 / _MOST_PACE < found < _MOST_PACE else 1.0
        return self.measurement.median_ns / pace

    @property
    def bounding_ns(self) -> float:
        """The time by which it bounds others: at least its measured time, since `paced_ns` is an estimate."""
        taken = self.measurement.median_ns if self.measurement is not None else math.inf
        return max(taken, self.paced_ns)

    @property
    def standing_ns(self) -> float:
        """The time by which a running search compares it: its re-timed median, else its first at the usual pace."""
        return self.retimed.median_ns if self.retimed is not None else self.paced_ns

    @property
    def verified_runs(self) -> int:
        """How many verified runs it has passed as a finalist; 0 if it was not one."""
        return verified_runs(self.environment)

    @property
    def throttled(self) -> str:
        """Names of what slowed the device down while it was timed; an empty string if nothing is known."""
        found = self.environment.get(THROTTLED, "")  # may have been imported
        return found if isinstance(found, str) else ""

    @property
    def unsteady(self) -> bool:
        """Whether its result was right in one run and wrong in another."""
        return self.reason.startswith((AT_FIRST, AT_TIMES))

    @property
    def unverified(self) -> str:
        """What the reference leaves unwritten or gives as NaN, in a sentence; empty if nothing is known."""
        found = self.environment.get(UNVERIFIED, "")  # may have been imported
        return found if isinstance(found, str) else ""


def in_turns(first: Trial, second: Trial) -> bool:
    """Say whether two trials were timed again in the same turns: their samples are pairs."""
    taken = [trial.retimed.taken if trial.retimed is not None else "" for trial in (first, second)]
    return taken[0] == taken[1] != ""


AT_FIRST, AT_TIMES = "right at first, ", "right in a second run, "
"""How the reason begins if a result was right and then wrong, or the other way round."""

PACE = "pace"
"""Key of a trial's environment: how many times as long as usual everything took when it was timed."""

_MOST_PACE = 100.0

CONTENTION = "contention"
"""Key: the share of the time for which the kernel's threads waited for a core that other programs had."""

ENQUEUE = "enqueue_ns"
"""Key: nanoseconds that the host takes to enqueue a launch."""

THROTTLED = "throttled"
"""Key: names of what slowed the device down when it was timed."""

SETTLE = "settle_s"
"""Key: seconds for which runs went on before their times counted, because the device was at its power limit."""

UNVERIFIED = "unverified"
"""Key: which values of its outputs no reference verifies."""

BUSY_CORES = "busy_cores"
"""The name for a slow-down because other programs used the cores that the device shares."""

_VERIFIED_RUNS, _MOST_VERIFIED_RUNS = "verified_runs", 2**53


def with_retiming(environment: Environment, retimed: Measurement) -> dict[str, str | int | float]:
    """Return the environment of a trial that was timed again: with more verified runs, and the new `throttled`."""
    runs = verified_runs(environment) + retimed.verified_runs
    kept = {name: value for name, value in environment.items() if name != THROTTLED}
    return {**kept, _VERIFIED_RUNS: runs, **({THROTTLED: retimed.throttled} if retimed.throttled else {})}


def with_most_runs(environment: Environment, other: Environment) -> Environment:
    """Return a trial's environment with the verified runs of another record of the same trial, if those are more.

    Which runs both records count is not known, so the larger number is a lower bound.
    """
    runs = verified_runs(other)
    return {**environment, _VERIFIED_RUNS: runs} if runs > verified_runs(environment) else environment


def verified_runs(environment: Environment) -> int:
    """Return the number of verified runs in an environment; 0 if it has none or an impossible number."""
    found = environment.get(_VERIFIED_RUNS, 0)  # may have been imported
    return found if isinstance(found, int) and 0 <= found < _MOST_VERIFIED_RUNS else 0
