"""The Evaluator over a cluster: devices of many machines run what a search submits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any

from autotune import text
from autotune.cluster.address import Address, connect, require_distributed
from autotune.cluster.fleet import Fleet
from autotune.cluster.travel import pack
from autotune.errors import AutotuneError
from autotune.model import Configuration, Measurement, Trial
from autotune.pool import Delivering, Settings, Stopped
from autotune.study import Problem
from autotune.tuner import ProgressCallback, ReplayEvaluator, Request, Result, afforded
from autotune.tuner import run as run_search

_POLL_S = 0.2
"""How often, in seconds, a wait checks whether it should end."""

_CLOSE_S = 10.0


def _say(said: str) -> None:
    text.say(f"autotune: {said}")


class ClusterEvaluator(Delivering):
    """Runs the configurations of a problem on every device of its model in a cluster, and on those that join.

    The constructor waits until this search holds its first device (and says what it waits for); if `stop` is set
    meanwhile, it raises Stopped. `most`: the most devices that it takes. `settings.builders` counts per device. Raises
    AutotuneError if no device can serve. Close it, or use it as a context manager.
    """

    capacity = 0

    def __init__(
        self,
        problem: Problem,
        address: Address,
        settings: Settings | None = None,
        stop: threading.Event | None = None,
        *,
        most: int | None = None,
        say: Callable[[str], None] = _say,
        client: Callable[[], Awaitable[Any]] | None = None,
    ) -> None:
        require_distributed()
        super().__init__()
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="autotune-fleet", daemon=True)
        self._thread.start()
        self._fleet = Fleet(
            client or (lambda: connect(address)),
            problem.device,
            pack(problem, settings or Settings()),
            deliver=self.deliver,
            say=say,
            changed=self._count,
            most=most,
        )
        self._keeping = asyncio.run_coroutine_threadsafe(self._fleet.keep(), self._loop)
        try:
            self._wait(stop)
        except BaseException:
            self.close()
            raise

    @property
    def best_ns(self) -> float | None:
        """The time that bounds early stop; it is sent with each trial."""
        return self._fleet.flights.bound[1]

    @best_ns.setter
    def best_ns(self, best_ns: float | None) -> None:
        epoch, known = self._fleet.flights.bound
        if best_ns != known:
            self._fleet.flights.bound = epoch + 1, best_ns

    @property
    def devices(self) -> int:
        """How many devices serve the search now."""
        return len(self._fleet.claims.members)

    def submit(self, configuration: Configuration) -> None:
        """Begin a trial; returns at once."""
        self._loop.call_soon_threadsafe(self._fleet.flights.submit, configuration)

    def retime(
        self, configurations: Sequence[Configuration], budget_s: float = 5.0, stop: threading.Event | None = None
    ) -> Sequence[Measurement | Trial | None]:
        """Time configurations interleaved, all on one device; a configuration that fails gives a failed Trial."""
        asked = asyncio.run_coroutine_threadsafe(self._fleet.flights.retime(configurations, budget_s), self._loop)
        try:
            return self.wait_for(asked, stop)
        finally:
            asked.cancel()  # no effect on one that was answered

    def withdraw(self, leave: int = 0, *, building: bool = False) -> Sequence[Configuration]:
        """Take back what no device has begun, except the oldest `leave`.

        A worker that does not answer has begun nothing.
        """
        taken: list[Configuration] = self._in_loop(self._fleet.flights.withdraw(leave, building))
        return taken

    def usage(self) -> Mapping[str, float]:
        """Return seconds of wall time of all devices together: build, verify, time, finalists, idle."""
        known = dict.fromkeys(("build", "verify", "time", "finalists", "idle"), 0.0)
        return known | self._fleet.claims.usage()

    def close(self) -> None:
        """Release the devices: their evaluators end."""
        self._keeping.cancel()
        with suppress(Exception):
            self._in_loop(self._fleet.close(), _CLOSE_S)
        self._in_loop(_cancel_all(), _CLOSE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CLOSE_S)
        if not self._thread.is_alive():
            self._loop.close()

    def _in_loop(self, step: Coroutine[Any, Any, Any], timeout_s: float | None = None) -> Any:
        return asyncio.run_coroutine_threadsafe(step, self._loop).result(timeout_s)

    def _wait(self, stop: threading.Event | None) -> None:
        """Wait for the first device. Raises Stopped, or the error that keeps all devices from serving."""
        while not self._ready.wait(_POLL_S):
            if stop is not None and stop.is_set():
                raise Stopped
        if self._failure is not None:
            raise self._failure

    def _count(self, wanted: int) -> None:
        self.capacity = wanted or self.capacity
        if wanted:
            self._ready.set()

    def deliver(self, found: Trial | AutotuneError) -> None:
        """Hand on what the cluster answers; an error also ends the wait for the first device."""
        super().deliver(found)
        if isinstance(found, AutotuneError):
            self._ready.set()


async def _cancel_all() -> None:
    """End the tasks that are left in the loop."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.wait(left, timeout=1) if left else None


def run(
    request: Request,
    stop: threading.Event | None = None,
    *,
    on_progress: ProgressCallback | None = None,
    address: Address,
    most: int | None = None,
) -> Result:
    """Search as `tuner.run` does, on a cluster: `request.problem.device` comes from `choose`, and no other is named.

    Raises what `tuner.run` raises, and SetupError, DeviceError if the cluster has no device for it.
    """
    stop = stop or threading.Event()
    try:
        evaluator: ClusterEvaluator | ReplayEvaluator = ClusterEvaluator(
            request.problem, address, afforded(request.settings, request.budget), stop, most=most
        )
    except Stopped:  # while it waited for a device: the evaluator gets no requests
        evaluator = ReplayEvaluator(())
    with evaluator:
        return run_search(request, stop, on_progress=on_progress, evaluator=evaluator)
