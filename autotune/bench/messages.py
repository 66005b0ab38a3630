"""Messages between the search and its worker processes: plain data, pickled."""

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

    `inputs` and `expected` name .npy files by buffer; a builder needs neither. If `expected` is empty, the device
    worker runs `reference` and saves its outputs in `folder`.
    """

    folder: str
    inputs: Mapping[str, str]
    expected: Mapping[str, str]
    reference: Plan | None
    rules: Rules
    limits: Limits


@dataclass(frozen=True, slots=True)
class Ready:
    """The worker's answer to Setup: the files of the expected outputs."""

    expected: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Probe:
    """To a worker at any time: build and run a kernel that is known to be good. Answered by Sound.

    A new `salt`, 0 to 2**31 - 1, makes it a kernel that is in no cache.
    """

    salt: int


@dataclass(frozen=True, slots=True)
class Sound:
    """The answer to Probe: `reason` is empty if that kernel gave the right result; `detail` is a build log."""

    reason: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Job:
    """To a device worker: run this plan. To a builder: build it. Answered by a Report.

    If `asks`, a device worker sends Turn and waits for any message before it runs what it has built.
    """

    plan: Plan
    best_ns: float | None = None
    built_ahead: bool = False
    asks: bool = False


@dataclass(frozen=True, slots=True)
class Turn:
    """From a worker that waits for permission before it runs a kernel or times finalists."""


@dataclass(frozen=True, slots=True)
class Batches:
    """How a plan's batches are made up: the number of runs, the device's time for a run, the host's for a command.

    Both times are nanoseconds.
    """

    runs: int
    run_ns: float
    command_ns: float


@dataclass(frozen=True, slots=True)
class Visited:
    """What is known of a finalist: nanoseconds of a run on each session, how many runs were verified, the failure.

    `batches` says how its batches are made up, if it is timed in batches.
    """

    visits: tuple[tuple[int, ...], ...] = ()
    verified: int = 0
    throttled: str = ""
    failure: Report | None = None
    batches: Batches | None = None


@dataclass(frozen=True, slots=True)
class Retime:
    """To a device worker: time these plans interleaved, or decide which is fastest by what others have `visited`.

    Answered by a list with a Measurement for each plan, or a Report if it failed; by one Report if the device is lost;
    by Onward if other workers must visit the plans.
    """

    plans: tuple[Plan, ...]
    best_ns: float | None
    budget_s: float
    visited: tuple[Visited, ...] = ()


@dataclass(frozen=True, slots=True)
class Onward:
    """The answer to Retime if times depend too much on the session: ask other workers.

    If `doubted`, a few visits show whether they do. It is also the answer to Visit: `visited` is then empty if there
    was no room on the device.
    """

    visited: tuple[Visited, ...]
    doubted: bool = False


@dataclass(frozen=True, slots=True)
class Visit:
    """To a worker of any role: time these plans once each, or a single one thoroughly, on a session that is new.

    `setup` is that of the device's worker; `known` tells how long the plans' batches are and what has failed. The
    worker prepares the plans, sends Turn, and waits for the number of seconds that it may take; if it is 0, it times
    nothing. Answered by Onward.
    """

    setup: Setup
    plans: tuple[Plan, ...]
    best_ns: float | None
    known: tuple[Visited, ...]


@dataclass(frozen=True, slots=True)
class Use:
    """To a worker of the role `once`, after its DeviceInfo: use a verified plan from scratch, then once more.

    Answered by EndToEnd, or a Report if that fails.
    """

    plan: Plan


@dataclass(frozen=True, slots=True)
class EndToEnd:
    """Seconds of wall time of a plan that is used from scratch.

    `setup`: driver, context, queue, allocation; `build`: source to kernel; `transfer`: inputs to the device; `kernel`:
    from the first launch to the end of the last; `read_back`: outputs to the host.

    `next_use` is what a second use costs, in a program that already has its context and its kernels: transfer, kernel
    and read back. Compilation at the first launch is counted as build.
    """

    setup: float
    build: float
    transfer: float
    kernel: float
    read_back: float
    next_use: float

    @property
    def total(self) -> float:
        """The first use, in seconds: all fields except `next_use`."""
        return self.setup + self.build + self.transfer + self.kernel + self.read_back


@dataclass(frozen=True, slots=True)
class Keep:
    """To a worker of the role `once`, after its DeviceInfo: build a plan. Answered by Kept, or a Report."""

    plan: Plan


@dataclass(frozen=True, slots=True)
class Kept:
    """What a build gave: the log, and the binary with the suffix for its file, if it built and the driver gives it."""

    log: str
    binary: bytes = b""
    suffix: str = ""


@dataclass(frozen=True, slots=True)
class Inspect:
    """To a worker of the role `once`, after its DeviceInfo: compile a source and say what is in it.

    `names` may be macros. Answered by Inspected, or a Report with the log if it does not build.
    """

    source: str
    options: tuple[str, ...]
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Inspected:
    """What the compiler tells: each kernel's arguments, and each macro's text. Names of no macro are missing."""

    signatures: dict[str, tuple[KernelArgument, ...]]
    macros: dict[str, str]


@dataclass(frozen=True, slots=True)
class Phase:
    """From a worker: what it does now, and within how many seconds it will send its next message.

    `place` is the index of the current plan among the plans that are timed interleaved; `hints` say what may be wrong
    with it.
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
"""Phase names, and what a worker did in each, in words."""
