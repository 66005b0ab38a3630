"""What the search and its worker processes say to each other: plain data, pickled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autotune.bench.report import Report
from autotune.bench.timing import Limits, Rules
from autotune.devices import KernelArgument
from autotune.study import Plan


@dataclass(frozen=True, slots=True)
class Setup:
    """Second message to a worker, after its DeviceInfo.

    `inputs` and `expected` name .npy files by buffer; a builder needs neither. Where `expected` is empty, the
    device worker runs `reference` and leaves its outputs in `folder`.
    """

    folder: str
    inputs: Mapping[str, str]
    expected: Mapping[str, str]
    reference: Plan | None
    rules: Rules
    limits: Limits


@dataclass(frozen=True, slots=True)
class Ready:
    """The worker's answer to Setup: the expected outputs as they now are on disk."""

    expected: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Probe:
    """To a worker at any time: build and run a kernel that is known to be good. Answered by Sound.

    A new `salt`, 0 to 2**31 - 1, makes it one that no cache holds.
    """

    salt: int


@dataclass(frozen=True, slots=True)
class Sound:
    """The answer to Probe: `reason` is empty where that kernel gave what it should; `detail` a build log."""

    reason: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Job:
    """To a device worker: run this plan; answered by a Report. To a builder: build it; answered likewise.

    Where it `asks`, a device worker sends Turn and waits for any message before it runs what it has built.
    """

    plan: Plan
    best_ns: float | None = None
    built_ahead: bool = False
    asks: bool = False


@dataclass(frozen=True, slots=True)
class Turn:
    """From a worker that asks before it runs a kernel, or times some."""


@dataclass(frozen=True, slots=True)
class Batches:
    """How a plan's batches are made up: so many runs, each of which takes the device and each command the host so long.

    Both times are nanoseconds.
    """

    runs: int
    run_ns: float
    command_ns: float


@dataclass(frozen=True, slots=True)
class Visited:
    """What is known of a finalist: nanoseconds of a run on each session, how many runs were verified, the failure.

    `batches` says how its batches are made up, where it is timed in such.
    """

    visits: tuple[tuple[int, ...], ...] = ()
    verified: int = 0
    throttled: str = ""
    failure: Report | None = None
    batches: Batches | None = None


@dataclass(frozen=True, slots=True)
class Retime:
    """To a device worker: time these plans interleaved; or say which is the fastest, by what others have `visited`.

    Answered by a list of Measurements and, for those that failed, Reports; by one Report where the
    device is lost; by Onward where others are to visit.
    """

    plans: tuple[Plan, ...]
    best_ns: float | None
    budget_s: float
    visited: tuple[Visited, ...] = ()


@dataclass(frozen=True, slots=True)
class Onward:
    """The answer to Retime where what a session meets by chance decides too much: ask others. `doubted`: whether it
    does, a few of them show. That to Visit: none of the plans is `visited` where there was no room.
    """

    visited: tuple[Visited, ...]
    doubted: bool = False


@dataclass(frozen=True, slots=True)
class Visit:
    """To a worker of any role: time these plans once each, on a session on which nothing has run; one alone thoroughly.

    `setup` is that of the device's worker, `known` how long their batches are and what has failed. The worker prepares
    them, sends Turn, and waits for the seconds that it has; without any it times nothing. Answered by Onward.
    """

    setup: Setup
    plans: tuple[Plan, ...]
    best_ns: float | None
    known: tuple[Visited, ...]


@dataclass(frozen=True, slots=True)
class Use:
    """To a worker of the role `once`, after its DeviceInfo: use a verified plan from nothing, twice.

    Answered by EndToEnd, or a Report where that fails.
    """

    plan: Plan


@dataclass(frozen=True, slots=True)
class EndToEnd:
    """Seconds of wall time. `setup`: driver, context, queue, allocation; `build`: source to kernel; `transfer`:
    inputs to the device; `kernel`: from the first launch to the end of the last; `read_back`: outputs to the host.

    `next_use` is what the same costs once more, in the program that has its context and its kernels by now:
    transfer, kernel and read back. What is compiled at the first launch is counted as build.
    """

    setup: float
    build: float
    transfer: float
    kernel: float
    read_back: float
    next_use: float

    @property
    def total(self) -> float:
        """The first use, in seconds: all but `next_use`."""
        return self.setup + self.build + self.transfer + self.kernel + self.read_back


@dataclass(frozen=True, slots=True)
class Keep:
    """To a worker of the role `once`, after its DeviceInfo: build a plan. Answered by Kept, or a Report."""

    plan: Plan


@dataclass(frozen=True, slots=True)
class Kept:
    """What a build gave: the log and, if it did and the driver gives it away, the binary in a file of that suffix."""

    log: str
    binary: bytes = b""
    suffix: str = ""


@dataclass(frozen=True, slots=True)
class Inspect:
    """To a worker of the role `once`, after its DeviceInfo: compile a text and say what is in it.

    `names` may be macros. Answered by Inspected, or a Report with the log where it does not build.
    """

    source: str
    options: tuple[str, ...]
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Inspected:
    """What the compiler tells: each kernel's arguments, and what each macro stands for, as text; others lack."""

    signatures: dict[str, tuple[KernelArgument, ...]]
    macros: dict[str, str]


@dataclass(frozen=True, slots=True)
class Phase:
    """From a worker: what it does now, and within how many seconds it will say the next thing.

    `place` is that of the plan at work among those to be timed interleaved; `hints` say what may be amiss with it.
    """

    name: str
    limit_s: float
    place: int = 0
    hints: tuple[str, ...] = ()


DOING = {
    "start": "started",
    "probe": "ran a kernel that is known to be good",
    "idle": "waited",
    "build": "built the kernel",
    "launch": "compiled or first ran the kernel",
    "run": "ran the kernel for the first time",
    "verify": "verified the outputs",
    "time": "timed the kernel",
}
"""What a worker says it does, by the name of the phase."""
