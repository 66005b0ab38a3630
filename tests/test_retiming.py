"""Finalists: all builders build what this search has not built, before a device's worker times them."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import pytest

from autotune.bench import Report
from autotune.errors import WorkerError
from autotune.model import Measurement, Outcome
from autotune.pool import DeviceEvaluator, Settings
from autotune.pool.keeper import Keeper
from autotune.pool.pause import Pause
from autotune.pool.retiming import Retiming
from autotune.pool.tasks import Finalists, Task
from autotune.study import GENERIC_DEVICE, Plan, Problem
from tests.devices import device_here
from tests.studies import study

TIMED = Measurement((5, 6, 7), (), "warm")


class Crew:
    """Idle builders. Each waits with its first build until all have begun one, and then `fails` or not."""

    def __init__(self, count: int, fails: Exception | None = None) -> None:
        self.built: list[Plan] = []
        self.wanted = 0
        self._idle = [self] * count
        self._fails = fails
        self._begun = threading.Barrier(max(count, 1))
        self._own = threading.local()

    def have(self, device: object, count: int) -> None:
        self.wanted = count

    @contextmanager
    def borrowed(self, _: object, most: int) -> Iterator[list[Any]]:
        yield [self] * len(self._idle[:most])

    def attempt(self, job: Any, limit_s: float) -> Report:
        if not hasattr(self._own, "begun"):
            self._own.begun = self._begun.wait(60.0)
        self.built.append(job.plan)
        if self._fails is not None:
            raise self._fails
        return Report(Outcome.OK)


class Timing:
    """A device's worker that records what was built before it was asked."""

    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        self.found: list[Plan] = []

    def retime(self, plans: Sequence[Plan], *_: object) -> list[Measurement]:
        self.found = list(self._crew.built)
        return [TIMED] * len(plans)


def timed(crew: Crew, problem: Problem, built: int, count: int) -> tuple[list[Plan], list[Plan]]:
    """Have finalists timed, of which the first were `built`; return their plans, and the plans built before."""
    some = [problem.space.configuration(row) for row in range(count)]
    retiming = Retiming(problem, cast("Any", None), cast("Any", crew), Pause(), 1.0)
    for configuration in some[:built]:
        retiming.note_built(configuration)
    worker = Timing(crew)
    for _ in range(2):  # the second time all are
        request = Finalists([Task(configuration) for configuration in some], 1.0)
        retiming.answer(request, cast("Keeper", worker), GENERIC_DEVICE, None)
        assert request.answer.result(0) == [TIMED] * count
    return [problem.plan(configuration) for configuration in some], worker.found


@pytest.mark.parametrize(("built", "builders", "again"), [(0, 2, 6), (2, 4, 4), (5, 4, 0), (6, 4, 0), (0, 1, 0)])
def test_what_was_not_built_here_is_built_by_several_at_once(
    problem: Problem, built: int, builders: int, again: int
) -> None:
    crew = Crew(builders)
    plans, found = timed(crew, problem, built, 6)
    assert sorted(map(plans.index, found)) == [*range(6 - again, 6)]
    assert crew.wanted == (6 - built if built < 5 else 0)


def test_a_builder_that_is_lost_costs_no_finalist(problem: Problem) -> None:
    _, found = timed(Crew(2, WorkerError("lost")), problem, 0, 6)
    assert len(found) == 2


@pytest.mark.device
def test_on_a_device_they_are_built_by_the_builders(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, attempt, roles = Problem(study(), device=device_here()), Keeper.attempt, list[str]()

    def noted(keeper: Keeper, *given: Any, **more: Any) -> Report:
        roles.append(keeper.role)
        return attempt(keeper, *given, **more)

    monkeypatch.setattr(Keeper, "attempt", noted)
    some = [problem.space.configuration(row) for row in range(3)]
    with DeviceEvaluator(problem, [problem.device], Settings(builders=2, trials=1)) as runs:
        assert len(runs._builders.begun) == 1
        assert all(isinstance(one, Measurement) for one in runs.retime(some, 0.1))
        assert len(runs._builders.begun) == 2
    assert roles == ["builder"] * 3
