"""Finalists timed again by a device's worker. All builders build them first, and visit them if sessions may differ."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue

from autotune.bench import Job, Onward, Retime, Visited
from autotune.model import Configuration, DeviceInfo, Identity, identity
from autotune.pool.builders import Builders
from autotune.pool.data import Setups
from autotune.pool.keeper import Keeper
from autotune.pool.pause import Pause
from autotune.pool.tasks import Finalists
from autotune.study import Plan, Problem

log = logging.getLogger(__name__)


class Retiming:
    """Answers the requests for the finalists of one search. `limit_s` is the limit of a build."""

    def __init__(self, problem: Problem, setups: Setups, builders: Builders, pause: Pause, limit_s: float) -> None:
        self._problem = problem
        self._setups = setups
        self._builders = builders
        self._pause = pause
        self._limit_s = limit_s
        self._built: set[Identity] = set()

    def note_built(self, configuration: Configuration) -> None:
        """Record that a configuration was run, and so built, in this search: the driver has it in its cache."""
        self._built.add(identity(configuration))

    def answer(self, request: Finalists, keeper: Keeper, device: DeviceInfo, best_ns: float | None) -> None:
        """Let a device's worker time the finalists. Raises what `Keeper.retime` raises."""
        until = time.monotonic() + request.budget_s
        plans = [self._problem.plan(task.configuration) for task in request.tasks]
        pairs = zip(plans, request.tasks, strict=True)
        self._build([plan for plan, task in pairs if identity(task.configuration) not in self._built], device)
        for task in request.tasks:
            self.note_built(task.configuration)

        def visit(asked: Retime, home: Onward) -> tuple[Visited, ...]:
            from autotune.pool.visits import Tour, most_visitors  # not imported when a search starts

            with self._builders.borrowed(device, most_visitors(asked.plans, device.memory)) as idle:
                return Tour(asked, home, self._setups.known(), self._limit_s).visited(idle or [keeper])

        with self._pause.held():
            left_s = max(0.0, until - time.monotonic())
            found = keeper.retime(plans, best_ns, left_s, self._limit_s, visit)
        request.finish(found, device)

    def _build(self, plans: Sequence[Plan], device: DeviceInfo) -> None:
        """Build several plans at once that this search has not built; the device's worker would build one by one.

        Failures are ignored here: the device's worker builds each plan again and reports its outcome.
        """
        if len(plans) < 2:
            return
        from concurrent.futures import ThreadPoolExecutor  # not imported when a search starts

        waiting = SimpleQueue[Plan]()
        for plan in plans:
            waiting.put(plan)

        def build(keeper: Keeper) -> None:
            with suppress(Empty):
                while True:
                    keeper.attempt(Job(waiting.get_nowait()), self._limit_s)

        self._builders.have(device, len(plans))
        with self._builders.borrowed(device, len(plans)) as idle:
            if len(idle) < 2:
                return
            with ThreadPoolExecutor(len(idle), "autotune-finalists") as threads:
                lost = [done.exception() for done in [threads.submit(build, keeper) for keeper in idle]]
        for error in filter(None, lost):  # closing, or no worker can be started
            log.info("a builder of finalists is lost: %s", error)
