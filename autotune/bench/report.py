"""How a trial ends: its report, and the fault that ends it early."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from autotune.errors import AutotuneError
from autotune.model import Measurement, Outcome


@dataclass(frozen=True, slots=True)
class Report:
    """What became of a plan; the fields are those of a Trial. `fatal`: the worker can no longer be used.

    `place` is the index of the current plan, if several are timed interleaved. `phase` is what the worker did last, if
    it was lost.
    """

    outcome: Outcome
    reason: str = ""
    measurement: Measurement | None = None
    max_error: float | None = None
    build_s: float = 0.0
    verify_s: float = 0.0
    time_s: float = 0.0
    busy_s: float = 0.0
    build_log: str = ""
    binary_hash: str = ""
    environment: Mapping[str, str | int | float] = field(default_factory=dict)
    fatal: bool = False
    place: int = 0
    phase: str = ""


class Fault(AutotuneError):
    """A trial that ends here, with its outcome and reason."""

    def __init__(self, outcome: Outcome, reason: str, *, detail: str = "", fatal: bool = False) -> None:
        self.outcome = outcome
        self.fatal = fatal
        super().__init__(reason, detail=detail)


def too_large(items: int, entry: str, most: int) -> str:
    """Return the reason why a launch is not tried: the driver reports a lower limit for the kernel."""
    return f"work-group of {items} is too large: {entry} allows {most} here"


def is_too_large(reason: str) -> bool:
    """Say whether a trial ended without a launch, because of a limit that the driver reports."""
    return re.match(r"work-group of \d+ is too large: .* allows \d+ here$", reason) is not None


def located(log: str, source: str) -> str:
    """Return a build log with file and line, even if the compiler ignores the `#line`s of the source.

    NVIDIA's compiler says `<kernel>:35`, Mesa's `input.cl:35`.
    """

    def place(match: re.Match[str]) -> str:
        name, number = match[1], 0
        for line in source.splitlines()[: int(match[2])]:
            directive = re.match(r'#line (\d+) "([^"]+)"', line)
            number, name = (int(directive[1]) - 1, directive[2]) if directive else (number + 1, name)
        return f"{name}:{number}"

    given = "<kernel>" if ' "input.cl"' in source else r"<kernel>|\binput\.cl"
    return re.sub(rf"({given}):(\d+)", place, log)


def undeclared(log: str) -> str:
    """Return the first undeclared identifier that a build log names, or "" if there is none."""
    found = re.search(r"undeclared identifier '(\w+)'|identifier \"(\w+)\" is undefined", log)
    return (found[1] or found[2]) if found else ""


def first_error(log: str) -> str:
    """Return the first line of a build log that tells of an error, or else its first line.

    If that line ends with a colon after a word other than `error`, the next line is appended.
    """
    log = re.sub(r"(?<!\S)\S*/tempfile_\w+\.cl", "kernel", log)  # where PoCL keeps the source for a moment
    log = re.sub(r" <Spelling=/[^<>\n]*>", "", log)  # where a header defines a macro of OpenCL's own
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    failure = re.compile(r"\berror(s|\b)|invalid|fatal|unrecognized build", re.IGNORECASE)
    told = (n for n, line in enumerate(lines) if failure.search(line))
    first = next(told, 0)
    more = re.search(r"[a-z](?<!error):$", "".join(lines[first : first + 1])) is not None
    return " ".join(lines[first : first + 1 + more])
