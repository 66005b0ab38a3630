"""Search a problem once per seed; then time the winners, the peers and the limit in turns, and make rows of that."""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from autotune import tuner
from autotune.model import Configuration
from autotune.pool import DeviceEvaluator
from autotune.study import Problem, input_data
from autotune.tuner import Budget, Request

from .accuracy import ERRORS, Array, Arrays
from .limits import Limit
from .peers import Peer
from .queued import Planned, QueuedSession, Run, Table, interleave, ratio
from .report import Row
from .targets import verdicts

Say = Callable[[str], None]


@dataclass(frozen=True)
class Entrant:
    """A problem under a name, with the winner of each seed's search (None: nothing passed)."""

    kind: str
    label: str
    problem: Problem
    winners: tuple[Configuration | None, ...]
    searched: str


def search(kind: str, label: str, problem: Problem, seeds: Sequence[int], trials: int, say: Say) -> Entrant:
    """Search a problem once per seed with the default sampler, each time from an empty database.

    The seeds share one evaluator, so that its processes, data and expected outputs are made once.
    """
    began = time.monotonic()
    winners, counts = [], []
    with DeviceEvaluator(problem, [problem.device]) as evaluator:
        for seed in seeds:
            with tempfile.TemporaryDirectory() as folder:
                database = str(Path(folder) / "search.db")
                request = Request(problem, database=database, seed=seed, budget=Budget(trials=trials))
                found = tuner.run(request, evaluator=evaluator)
            counts.append(found.trials)
            winners.append(found.best.configuration if found.best else None)
            best = f"{found.best.time_ns / 1e3:.1f} us" if found.best else "nothing passed"
            failed = sum(found.failures.values())
            say(f"{label}, seed {seed}: {best}, {found.trials} trials ({failed} failed) in {found.elapsed_s:.0f} s")
    searched = f"{len(seeds)} x {max(counts)} of {len(problem.space):,}, {time.monotonic() - began:.0f} s"
    return Entrant(kind, label, problem, tuple(winners), searched)


@dataclass(frozen=True)
class Contest:
    """Entrants with equal inputs and work at one size, and what each is compared with.

    `work` is what one run does, in `unit` * s. `against` has, for an entrant's label, the labels of other entrants by
    the name of the ratio. `limit` is None if no limit of ours applies (integers, tensor cores).
    """

    size: str
    entrants: Sequence[Entrant]
    unit: str
    work: float
    limit: Limit | None
    against: Mapping[str, Mapping[str, str]]

    def run(self, session: QueuedSession, peers: Callable[[Arrays], Mapping[str, Peer]]) -> list[Row]:
        """Time all in turns; return the entrants' rows and then the peers'."""
        inputs = input_data(self.entrants[0].problem)
        planned = self._plans(session, inputs)
        rivals = peers(inputs)
        alone = {name: peer for name, peer in rivals.items() if "host" in name and session.info.kind != "cpu"}
        runs: dict[str, Run] = {**planned, **{name: peer for name, peer in rivals.items() if name not in alone}}
        if self.limit is not None:
            runs["limit"] = self.limit.run
        times = interleave(runs)
        for name, peer in alone.items():  # takes seconds, and does not affect the device's clock
            times[name] = interleave({name: peer}, rounds=3)[name]
        limit = self.limit.raised(times["limit"]) if self.limit is not None else None
        outputs = {name: self._error(inputs, peer.product()) for name, peer in rivals.items()}
        rows = [self._entrant_row(one, planned, inputs, times, limit, list(rivals)) for one in self.entrants]
        return rows + [self._peer_row(name, times[name], limit, outputs[name]) for name in rivals]

    def _plans(self, session: QueuedSession, inputs: Arrays) -> dict[str, Planned]:
        """Every distinct winner, by its key."""
        table = Table(session, inputs)
        return {
            _key(entrant, winner): Planned(table, entrant.problem.plan(winner))
            for entrant in self.entrants
            for winner in entrant.winners
            if winner is not None
        }

    def _entrant_row(
        self,
        entrant: Entrant,
        planned: Mapping[str, Planned],
        inputs: Arrays,
        times: Mapping[str, Sequence[float]],
        limit: Limit | None,
        rivals: Sequence[str],
    ) -> Row:
        rates = [self._rate(times.get(_key(entrant, winner))) for winner in entrant.winners]
        ratios = {}
        for name, other in self.against.get(entrant.label, {}).items():
            rival = next(one for one in self.entrants if one.label == other)
            ratios[name] = [_ratio(times, _key(entrant, w), _key(rival, rival.winners[min(i, len(rival.winners) - 1)]))
                            for i, w in enumerate(entrant.winners)]  # fmt: skip
        for name in rivals:
            ratios[_first_word(name)] = [_ratio(times, _key(entrant, winner), name) for winner in entrant.winners]
        shares = [rate / limit.rate for rate in rates] if limit is not None else []
        middle = _middle(entrant.winners, rates)
        error = None
        if middle is not None:
            (output,) = entrant.problem.outputs
            error = self._error(inputs, planned[_key(entrant, middle)].output(output))
        measured = {**ratios, **({"limit": shares} if shares else {})}
        kind = entrant.problem.device.kind
        return Row(
            entrant.label, self.size, self.unit, rates, limit.name if limit else "", shares, ratios, error,
            middle, entrant.searched, verdicts(entrant.kind, self.size, kind, measured),
        )  # fmt: skip

    def _peer_row(self, name: str, times: Sequence[float], limit: Limit | None, error: float) -> Row:
        rate = self._rate(times)
        if limit is None or "host" in name:
            return Row(name, self.size, self.unit, [rate], error=error)
        return Row(name, self.size, self.unit, [rate], limit.name, [rate / limit.rate], error=error)

    def _rate(self, times: Sequence[float] | None) -> float:
        return self.work / statistics.median(times) if times else math.nan

    def _error(self, inputs: Arrays, found: Array) -> float:
        return ERRORS[self.entrants[0].problem.study.name](inputs, found)


def _key(entrant: Entrant, winner: Configuration | None) -> str:
    return f"{entrant.label}: {winner}"


def _first_word(name: str) -> str:
    return name.split()[0].rstrip(",")


def _ratio(times: Mapping[str, Sequence[float]], mine: str, other: str) -> float:
    if mine not in times or other not in times:
        return math.nan
    if len(times[mine]) != len(times[other]):  # timed alone
        return statistics.median(times[other]) / statistics.median(times[mine])
    return ratio(times[mine], times[other])


def _middle(winners: Sequence[Configuration | None], rates: Sequence[float]) -> Configuration | None:
    """The winner of the seed with the median rate (the lower one of two)."""
    found = sorted((rate, i) for i, rate in enumerate(rates) if not math.isnan(rate))
    return winners[found[(len(found) - 1) // 2][1]] if found else None
