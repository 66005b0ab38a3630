"""A finalist: a plan that is timed again and verified in many runs, and what is known of it so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from autotune.bench.clock import Clock
from autotune.bench.messages import Batches, Visited
from autotune.bench.pace import CONTENDED
from autotune.bench.report import Report
from autotune.bench.timing import Rules
from autotune.model import BUSY_CORES, Measurement
from autotune.study import Plan


class Taken(NamedTuple):
    """The median of a turn; what throttled the device at its end; the share of its time that threads waited."""

    ns: int = 0
    throttled: str = ""
    waited: float = 0.0

    @property
    def contended(self) -> bool:
        """Whether other programs used the device's cores meanwhile."""
        return self.waited > CONTENDED

    @property
    def slowed(self) -> str:
        """The name of what slowed it down, or an empty string if nothing is known to have."""
        return BUSY_CORES if self.contended else self.throttled


@dataclass
class Finalist:
    """A plan that is timed again: its times, the runs verified, and what went wrong.

    `visits`: its times on each bench, in nanoseconds of one run. `turns_ns`: the turns that count on the current bench,
    timed by `clock` and judged by `rules`; `usual`: its batches on another bench. `first_ns`: the time of its first
    run. `turn`: its last turn. `aside`: turns that count only if there are too few others. `throttled`: what slowed
    down any turn that counts. `verified`: the number of verified runs. `run_s`: seconds of a verified run with launches
    and checks, 0 while unknown. `series`: how many series of runs were verified. `disturbed`: it was verified on
    changed leftovers of earlier runs.
    """

    place: int
    plan: Plan
    visits: list[tuple[int, ...]] = field(default_factory=list)
    turns_ns: list[int] = field(default_factory=list)
    rules: Rules = field(default_factory=Rules)
    clock: Clock | None = None
    usual: Batches | None = None
    first_ns: int = 0
    turn: Taken = field(default_factory=Taken)
    aside: list[Taken] = field(default_factory=list)
    throttled: str = ""
    verified: int = 0
    run_s: float = 0.0
    series: int = 0
    disturbed: bool = False
    failure: Report | None = None

    @property
    def samples(self) -> tuple[int, ...]:
        """Its times on all benches, in the order of the rounds."""
        return tuple(ns for visit in self.visits for ns in visit)

    def begin(self) -> None:
        """Begin on a bench."""
        self.clock, self.aside = None, []

    def take(self, turns: Sequence[Taken]) -> None:
        """Count these turns."""
        for turn in turns:
            self.turns_ns.append(turn.ns)
            self.throttled = turn.slowed or self.throttled

    def times(self, count: int) -> tuple[int, ...]:
        """Return the first `count` times taken on the current bench."""
        runs = self.clock.runs if self.clock else 1
        return tuple(max(1, round(ns / runs)) for ns in self.turns_ns[:count])

    def end(self, count: int) -> None:
        """Keep the first `count` times taken on the current bench, and leave it."""
        self.visits.append(self.times(count))
        self.usual, self.clock = self.clock.batches if self.clock else None, None

    def resume(self, known: Visited) -> None:
        """Continue from what is known so far."""
        self.visits, self.verified, self.usual = list(known.visits), known.verified, known.batches
        self.throttled, self.failure = known.throttled, known.failure

    def visited(self) -> Visited:
        """Return what is known so far, as a message to other workers."""
        return Visited(tuple(self.visits), self.verified, self.throttled, self.failure, self.usual)

    def answer(self) -> Measurement | Report:
        """Return the report of its failure, or else the measurement."""
        return self.failure or Measurement(self.samples, (), self.plan.cache, self.verified, self.throttled)


def sound(finalists: Sequence[Finalist]) -> list[Finalist]:
    """Return the finalists that have not failed."""
    return [finalist for finalist in finalists if finalist.failure is None]
