"""The progress of a search on stderr: a live display on a terminal, a few plain lines anywhere else."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from autotune import text
from autotune.model import Configuration, Outcome, Trial
from autotune.tuner import standing

if TYPE_CHECKING:
    from autotune.tuner import Progress

EVERY_S = 15.0
"""Seconds between two plain lines; a new best may come after a third of that."""

Flops = Callable[[Configuration], float | None]
Report = Callable[["Progress"], None]


@contextmanager
def show(console: Console, flops: Flops, *, clock: Callable[[], float] = time.monotonic) -> Iterator[Report]:
    """Yield the function that a search calls with its progress; `flops` of a configuration is for GFLOPS."""
    if not console.is_terminal:
        yield _Lines(console, flops, clock)
        return
    display = _Display(flops, clock)
    with Live(display, console=console, refresh_per_second=8, transient=True):
        yield display


class _Display:
    """Draws the latest progress; its clock continues between two reports."""

    def __init__(self, flops: Flops, clock: Callable[[], float]) -> None:
        self._flops = flops
        self._clock = clock
        self._progress: Progress | None = None
        self._at = 0.0
        self._spinner = Spinner("dots")

    def __call__(self, progress: Progress) -> None:
        self._progress, self._at = progress, self._clock()

    def __rich__(self) -> RenderableType:
        if self._progress is None:
            return _line(f"{self._frame()} starting: device, data, the first configuration", "")
        return self._drawn(self._progress, self._clock() - self._at)

    def _drawn(self, progress: Progress, since_s: float) -> Group:
        top = Table.grid(padding=(0, 2), expand=True)
        top.add_column(no_wrap=True)
        top.add_column(ratio=1)
        for _ in range(3):
            top.add_column(no_wrap=True)
        bar = ProgressBar(total=1.0, completed=_done(progress, since_s))
        top.add_row(
            _line(f"{self._frame()} {progress.phase}", "bold"),
            bar,
            _count(progress),
            _rate(progress),
            _left(progress, since_s),
        )
        lines: list[RenderableType] = [top, _line(_best(progress.best, self._flops), "green")]
        if progress.best is not None:
            lines.append(_line("  " + text.pairs(progress.best.configuration), "dim"))
        failures = _failures(progress.failures)
        if failures:
            lines.append(_line(failures, "yellow"))
        return Group(*lines)

    def _frame(self) -> str:
        return str(self._spinner.render(self._clock()))


def _line(text: str, style: str) -> Text:
    return Text(text, style, no_wrap=True, overflow="ellipsis")


class _Lines:
    """Prints a line for a new phase, for a new best and from time to time, not for every trial."""

    def __init__(self, console: Console, flops: Flops, clock: Callable[[], float]) -> None:
        self._console = console
        self._flops = flops
        self._clock = clock
        self._at = -float("inf")
        self._phase = ""
        self._best: float | None = None

    def __call__(self, progress: Progress) -> None:
        now = self._clock()
        best = progress.best.standing_ns if progress.best else None
        wait = EVERY_S / 3 if best != self._best else EVERY_S
        if progress.phase == self._phase and now - self._at < wait:
            return
        self._at, self._phase, self._best = now, progress.phase, best
        parts = [
            f"{progress.phase}: {_count(progress)}",
            _best(progress.best, self._flops),
            _failures(progress.failures),
            _rate(progress),
            _left(progress),
        ]
        self._console.print(", ".join(part for part in parts if part), highlight=False, markup=False, soft_wrap=True)


def _done(progress: Progress, since_s: float) -> float:
    """The share of the search that is done, by trials or by time, whichever is larger."""
    shares = [progress.done / progress.total] if progress.total else []
    if progress.left_s is not None and progress.elapsed_s + progress.left_s > 0:
        shares.append((progress.elapsed_s + since_s) / (progress.elapsed_s + progress.left_s))
    return min(1.0, max(shares, default=0.0))


def _count(progress: Progress) -> str:
    total = f"/{progress.total}" if progress.total else ""
    return f"{progress.done}{total} trial{'' if (progress.total or progress.done) == 1 else 's'}"


def _rate(progress: Progress) -> str:
    return f"{progress.rate:.1f} configurations/s" if progress.rate else ""


def _left(progress: Progress, since_s: float = 0.0) -> str:
    if progress.left_s is None:
        return ""
    return f"{text.duration(math.ceil(max(0.0, progress.left_s - since_s)))} left"


def _best(best: Trial | None, flops: Flops) -> str:
    if best is None:
        return "no verified configuration yet"
    rate = text.rate(flops(best.configuration), best.standing_ns)
    return f"best {standing(best)}" + (f" ({rate})" if rate else "")


def _failures(failures: Mapping[Outcome, int]) -> str:
    named = [f"{count} {outcome.value}" for outcome, count in failures.items() if count]
    return "failed: " + ", ".join(named) if named else ""
