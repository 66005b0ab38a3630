"""A device's side: one search at a time holds the device, with a whole evaluator beside the GPU.

Builders, buffers, reference and compile caches stay there from trial to trial. The hold lasts as long as Dask keeps the
result of the claim: until the search releases it, or until Dask does because the search's connection is gone.
"""

from __future__ import annotations

import asyncio
import platform
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from distributed import Status, Worker, WorkerPlugin

from autotune.cluster.address import hush
from autotune.cluster.failures import refused
from autotune.cluster.luggage import Depot
from autotune.cluster.travel import KEY, difference, facts_of, unpack, versions
from autotune.errors import AutotuneError, SetupError, WorkerError
from autotune.model import Configuration, DeviceInfo, Identity, Trial, identity
from autotune.pool import (
    DeviceEvaluator,
    RunFolder,
    Settings,
    Stopped,
    count_builders,
    count_cores,
    find_holder,
)
from autotune.text import clean

AHEAD = 2
"""Trials that wait at the device beyond what its evaluator wants, so that the next ones are there when one is done."""

_POLL_S = 0.5
_REMEMBERED = 1000

_KEPT = ("waiting", "ready", "constrained", "executing", "long-running", "resumed", "memory", "fetch", "flight")
"""States of a claim's key in which the hold continues."""

GONE = {"gone": True}
"""The answer if the search has released the device meanwhile."""

Bound = tuple[int, float | None]
"""A number that grows whenever the best time was set, not merely lowered, and the best known time in nanoseconds."""


class Post(WorkerPlugin):  # type: ignore[misc]
    """The plugin of a Dask worker that serves one device. `share`: how many devices of this machine share its cores."""

    name = KEY

    def __init__(self, device: DeviceInfo, share: int) -> None:
        self.device = device
        self._share = share
        self._hold: Hold | None = None
        self._left: set[str] = set()

    def setup(self, worker: Worker) -> None:
        """Have the worker describe its device when it registers."""
        hush()  # this is another process, in which `require_distributed` was not called
        self._worker = worker
        self.depot = Depot(Path(worker.local_directory) / "autotune-files")
        facts = {"versions": versions(), "host": platform.node(), "device": facts_of(self.device)}
        worker.startup_information[KEY] = lambda _: facts

    async def teardown(self, worker: Worker) -> None:
        """Release the device; the worker ends."""
        if self._hold is not None:
            await asyncio.to_thread(self._hold.close)
        self.depot.close()

    def transition(self, key: Any, start: str, finish: str, **_: Any) -> None:
        """Release the device if nobody wants the claim any more."""
        hold = self._hold
        if hold is not None and key == hold.token and finish not in _KEPT:
            hold.stop.set()
            if hold.opened:
                self._worker.loop.add_callback(self._leave, hold)

    async def claim(
        self, token: str, search: str, owner: str, versions: Mapping[str, str], problem: str, luggage: Sequence[str]
    ) -> Any:
        """Open an evaluator for a search; the claim's own key is the token. tasks.claim describes the answers."""
        if wrong := difference(versions):
            return refused(SetupError(f"the search has other versions: {wrong}"))
        if self._hold is not None:
            return {"busy": self._hold.owner}
        try:
            if (outside := find_holder(self.device)) is not None:
                return {"busy": f"process {outside} of {platform.node()}"}
        except SetupError as error:
            return refused(error)
        if lacks := self.depot.lacks(luggage):
            return {"lacks": lacks}
        self._forget()
        hold = self._hold = Hold(token, search, owner, self.device, asyncio.get_running_loop())
        try:
            self.depot.keep_only(luggage)
            await asyncio.to_thread(hold.open, problem, self.depot, self._share)
            if hold.stop.is_set():
                raise Stopped
            await self._worker.set_resources(**{search: hold.slots})
            # Dask tries tasks that have found no worker again when a worker is no longer paused.
            self._worker.status = Status.paused
            self._worker.status = Status.running
        except Stopped:
            await self._leave(hold)
            return GONE
        except AutotuneError as error:
            await self._leave(hold)
            return refused(error)
        except BaseException:
            await self._leave(hold)
            raise
        return {"slots": hold.slots}

    async def trial(self, search: str, configuration: Configuration, bound: Bound) -> Any:
        """Run a trial of a search that holds the device."""
        hold = self._of(search)
        return self._signed(GONE if hold is None else await hold.trial(configuration, bound))

    async def retime(self, search: str, configurations: Sequence[Configuration], budget_s: float, bound: Bound) -> Any:
        """Time configurations of a search that holds the device."""
        hold = self._of(search)
        return self._signed(GONE if hold is None else await hold.retime(configurations, budget_s, bound))

    def withdraw(self, search: str, keep: Sequence[Identity], building: bool) -> list[Identity]:
        """Take back what has not begun, except some; return what has begun."""
        hold = self._of(search)
        return hold.withdraw(keep, building) if hold is not None else []

    def _signed(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        return {**answer, "worker": self._worker.address}

    def _of(self, search: str) -> Hold | None:
        hold = self._hold
        return hold if hold is not None and hold.search == search and hold.opened else None

    async def _leave(self, hold: Hold) -> None:
        if hold.left:
            return
        hold.left = True
        with suppress(Exception):  # the scheduler may be gone, and with it what it knows of this worker
            await self._worker.set_resources(**{hold.search: 0})
        self._left.add(hold.search)
        await asyncio.to_thread(hold.close)
        if self._hold is hold:
            self._hold = None

    def _forget(self) -> None:
        """Drop the places of searches that have left, except those that a task may still give back: Dask needs them."""
        state = self._worker.state
        needed = {search for task in state.tasks.values() for search in task.resource_restrictions or ()}
        for search in self._left - needed:
            state.total_resources.pop(search, None)
            state.available_resources.pop(search, None)
        self._left &= needed


class Hold:
    """A search's evaluator at its device, and the requests that wait. Its methods run in the worker's event loop."""

    def __init__(
        self, token: str, search: str, owner: str, device: DeviceInfo, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.token, self.search, self.owner = token, search, owner
        self.stop = threading.Event()
        self.opened = self.left = False
        self.slots = 0
        self._device = device
        self._loop = loop
        self._evaluator: DeviceEvaluator | None = None
        self._folder: RunFolder | None = None
        self._failure: AutotuneError | None = None
        self._epoch = -1
        self._waiting: dict[Identity, asyncio.Future[Any]] = {}
        self._done: deque[Identity] = deque(maxlen=_REMEMBERED)
        self._closing = threading.Lock()

    def open(self, packed: str, depot: Depot, share: int) -> None:
        """Make the evaluator, as soon as no other search has the device; run it in a thread of its own.

        Raises Stopped, and AutotuneError if this machine cannot serve.
        """
        self._folder = RunFolder()
        problem, settings = unpack(packed, depot, self._folder.path)
        settings = replace(settings, builders=_builders(self._device, settings, share))
        try:
            self._evaluator = DeviceEvaluator(problem, [self._device], settings, self.stop)
        except (AutotuneError, Stopped):
            raise
        except Exception as error:
            raise WorkerError(f"no evaluator can be made: {type(error).__name__}: {error}") from error
        self.slots = self._evaluator.most + AHEAD
        threading.Thread(target=self._collect, args=(self._evaluator,), name="autotune-collect", daemon=True).start()
        self.opened = True

    def close(self) -> None:
        """End the evaluator and answer waiting requests. From any thread, any number of times."""
        self.stop.set()
        with self._closing:
            evaluator, self._evaluator = self._evaluator, None
            folder, self._folder = self._folder, None
        if evaluator is not None:
            evaluator.close()
        if folder is not None:
            folder.remove()
        self._in_loop(self._answer_all, GONE)

    async def trial(self, configuration: Configuration, bound: Bound) -> Any:
        """Run a trial, or wait for it if it runs already."""
        if (evaluator := self._following(bound)) is None:
            return GONE if self._failure is None else refused(self._failure)
        name = identity(configuration)
        if name not in self._waiting:
            self._waiting[name] = self._loop.create_future()
            evaluator.submit(configuration)
        return await asyncio.shield(self._waiting[name])

    async def retime(self, configurations: Sequence[Configuration], budget_s: float, bound: Bound) -> Any:
        """Time configurations interleaved."""
        if (evaluator := self._following(bound)) is None:
            return GONE if self._failure is None else refused(self._failure)
        try:
            found = await asyncio.to_thread(evaluator.retime, configurations, budget_s, self.stop)
        except Stopped:
            return GONE
        except AutotuneError as error:
            return refused(error)
        return {"times": [self._placed(answer) if isinstance(answer, Trial) else answer for answer in found]}

    def withdraw(self, keep: Sequence[Identity], building: bool) -> list[Identity]:
        """Take back what has not begun, except as many as are to be kept; return what has begun, or is done."""
        evaluator = self._evaluator
        if evaluator is not None:
            leave = sum(name in self._waiting for name in keep)
            for configuration in evaluator.withdraw(leave, building=building):
                self._answer(identity(configuration), {"withdrawn": True})
        return [*self._waiting, *self._done]

    def _following(self, bound: Bound) -> DeviceEvaluator | None:
        """Return the evaluator with the best time that the search knows, or None if it no longer exists.

        Within one epoch, a time can only lower the evaluator's.
        """
        evaluator, (epoch, best_ns) = self._evaluator, bound
        if evaluator is None or self._failure is not None:
            return None
        known = evaluator.best_ns
        if epoch > self._epoch:
            self._epoch, evaluator.best_ns = epoch, best_ns
        elif epoch == self._epoch and best_ns is not None and (known is None or best_ns < known):
            evaluator.best_ns = best_ns
        return evaluator

    def _collect(self, evaluator: DeviceEvaluator) -> None:
        """Pass on the trials that the evaluator finishes, in a thread of its own."""
        while not self.stop.is_set():
            try:
                trial = evaluator.collect(_POLL_S)
            except TimeoutError:
                continue
            except AutotuneError as error:
                self._in_loop(self._fail, error)
                return
            self._in_loop(self._arrived, trial, dict(evaluator.usage()))

    def _in_loop(self, step: Any, *arguments: Any) -> None:
        with suppress(RuntimeError):  # the loop has ended, and nothing waits any more
            self._loop.call_soon_threadsafe(step, *arguments)

    def _arrived(self, trial: Trial, usage: Mapping[str, float]) -> None:
        name = identity(trial.configuration)
        self._done.append(name)
        self._answer(name, {"trial": self._placed(trial), "usage": usage})

    def _placed(self, trial: Trial) -> Trial:
        """Return the trial with the place where it ran: a device's index says nothing among many machines."""
        device = self._device
        place = {"host": clean(platform.node()), "gpu": clean(device.uuid or device.pci or device.number)}
        return replace(trial, device_index=None, environment={**trial.environment, **place})

    def _fail(self, error: AutotuneError) -> None:
        self._failure = error
        self._answer_all(refused(error))

    def _answer_all(self, answer: Any) -> None:
        for name in list(self._waiting):
            self._answer(name, answer)

    def _answer(self, name: Identity, answer: Any) -> None:
        future = self._waiting.pop(name, None)
        if future is not None and not future.done():
            future.set_result(answer)


def _builders(device: DeviceInfo, settings: Settings, share: int) -> int:
    """Return how many processes build ahead: the device's share of the cores that this process may use."""
    wanted = count_builders([device], settings.builders)
    if settings.builders is not None or not wanted:
        return wanted
    return max(1, min(wanted, count_cores() // share))
