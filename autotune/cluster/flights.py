"""What a search has sent to the devices of a cluster: trials, finalists, the anchor; and the answers.

Dask schedules: a claimed device offers places for trials as a resource with the search's own name. A trial goes to a
free place, and to another one if its worker is lost.
"""

from __future__ import annotations

import asyncio
import logging
import pickle
import traceback
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from autotune.cluster import tasks
from autotune.cluster.anchor import LEAST, Anchors
from autotune.cluster.claims import Claims, Member
from autotune.cluster.failures import believed_times, believed_trial, believed_usage, heard, lost, signed, vetted
from autotune.errors import AutotuneError, WorkerError
from autotune.model import Configuration, Identity, Measurement, Outcome, Trial, identity

_AGAIN_S = 0.2
"""Pause before a request is sent again that a device has refused, or that was lost."""

_RAISED = 3
"""How often a request may raise an error on a worker before it counts as failed: a worker that ends may raise any."""

_ANSWER_S = 5.0
"""Seconds for workers to say what they have begun."""

_ANCHOR_S = 0.3
"""Seconds for which a device times the anchor."""

log = logging.getLogger(__name__)

Deliver = Callable[[Trial | AutotuneError], None]


@dataclass(eq=False)
class Flight:
    """A request that was sent: a trial, or finalists. `future` is Dask's, `waiting` the wait for it, if there."""

    configuration: Configuration
    started: datetime = field(default_factory=lambda: datetime.now(UTC))
    future: Any = None
    waiting: asyncio.Future[Any] | None = None
    task: asyncio.Task[None] | None = None
    raised: int = 0

    def call_back(self) -> None:
        """Have the request sent again."""
        if self.waiting is not None:
            self.waiting.cancel()


class Flights:
    """Sends what a search submits to the devices that it holds, again if necessary, and delivers each trial once.

    `bound` is a counter of how often the best time was set, and that time. Everything runs in one event loop.
    """

    def __init__(self, claims: Claims, driver: str, deliver: Deliver, say: Callable[[str], None]) -> None:
        self.bound: tuple[int, float | None] = (0, None)
        self._claims = claims
        self._driver = driver
        self._deliver = deliver
        self._flights: dict[Identity, Flight] = {}
        self._finale = Flight({})
        self._judge = ""  # the worker whose device times the finalists
        self._silent: set[str] = set()  # workers that did not answer last: no finalist is sent there
        self._named: set[str] = set()  # the workers that may get the finalists; empty: any
        self._anchors = Anchors(say)
        self._landed = 0
        self._sending = asyncio.Event()  # not while trials are taken back
        self._sending.set()

    def submit(self, configuration: Configuration) -> None:
        """Begin a trial."""
        flight = Flight(configuration)
        self._flights[identity(configuration)] = flight
        flight.task = asyncio.create_task(self._fly(flight))
        flight.task.add_done_callback(self._ended)

    def call_back(self) -> None:
        """Have everything sent again: the connection is lost."""
        for flight in (*self._flights.values(), self._finale):
            flight.call_back()

    def cancel(self) -> None:
        """Stop waiting for all requests."""
        for flight in (*self._flights.values(), self._finale):
            if flight.task is not None:
                flight.task.cancel()

    def left(self, worker: str) -> None:
        """Handle that a device has left; Dask sends its trials elsewhere."""
        if worker == self._judge:
            self._judge = ""
        if worker in self._named:
            self._named.remove(worker)
            if not self._named:  # otherwise Dask sends the finalists to another of them
                self._finale.call_back()

    async def withdraw(self, leave: int, building: bool) -> list[Configuration]:
        """Take back what no device has begun, except the oldest `leave`.

        A worker that does not answer has begun nothing.
        """
        keep = list(self._flights)[:leave]
        request = pickle.dumps({"search": self._claims.search, "keep": keep, "building": building})
        self._sending.clear()  # a device that answers early gives trials back, which must not go to the others
        try:
            answers = await asyncio.gather(*(self._begun(worker, request) for worker in self._claims.members))
            await self._arrivals()
            begun, taken = set(keep).union(*answers), []
            for name, flight in list(self._flights.items()):
                arrived = flight.future is not None and flight.future.status == "finished"
                if name not in begun and not arrived and flight.task is not None:
                    del self._flights[name]
                    flight.task.cancel()
                    taken.append(flight.configuration)
            return taken
        finally:
            self._sending.set()

    async def _begun(self, worker: str, request: bytes) -> frozenset[Identity]:
        """Have a device give back what it has not begun; return what it has begun, or nothing if it does not answer.

        Each is asked separately: in a common request, one that hangs would keep back all answers.
        """
        try:
            asked = self._claims.client.run(tasks.withdraw, request, workers=[worker], on_error="ignore")
            begun = frozenset((await asyncio.wait_for(asked, _ANSWER_S))[worker])
            self._silent.discard(worker)
            return begun
        except Exception as error:  # it hangs or has gone, or the connection has gone, or its answer is invalid
            log.debug("%s does not say what it has begun: %r", worker, error)
            self._silent.add(worker)
            return frozenset()

    async def _arrivals(self) -> None:
        """Wait for answers that Dask already has: only they tell whether a trial was run or given back."""
        arrived = [one for one in self._flights.values() if one.future is not None and one.future.status == "finished"]
        if waiting := {flight.waiting for flight in arrived if flight.waiting is not None}:
            await asyncio.wait(waiting, timeout=_ANSWER_S)

    async def retime(self, configurations: Sequence[Configuration], budget_s: float) -> list[Measurement | Trial]:
        """Time configurations interleaved, all on one device: the same as before, as long as it is there."""
        self._finale.raised = 0
        while True:
            await self._claims.there.wait()
            where: dict[str, Any] = {"resources": {self._claims.search: 1}}
            silent = self._claims.members.keys() & self._silent
            self._named = {self._judge} if self._judge else self._claims.members.keys() - silent if silent else set()
            if self._named:
                where["workers"] = list(self._named)
            request = {"configurations": configurations, "budget_s": budget_s}
            answer = await self._ask(self._finale, tasks.retime, request, **where)
            if isinstance(answer, AutotuneError):
                raise answer
            answer = vetted(answer, "times", believed_times, configurations)
            if "times" in answer:
                self._judge = answer["worker"]
                return list(answer["times"])
            await self._excuse(answer)

    async def _fly(self, flight: Flight) -> None:
        """Send a trial, again if necessary, until its answer is here."""
        while True:
            await self._sending.wait()
            await self._claims.there.wait()
            request = {"configuration": flight.configuration}
            answer = await self._ask(flight, tasks.trial, request, resources={self._claims.search: 1})
            if isinstance(answer, AutotuneError):
                self._land(flight, self._crashed(flight, str(answer)))
                return
            answer = vetted(answer, "trial", believed_trial, flight.configuration)
            answer = vetted(answer, "usage", believed_usage, None)
            if "trial" in answer:
                self._land(flight, self._noted(answer))
                return
            await self._excuse(answer)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Deliver an error of this side: otherwise the search would wait for ever."""
        if not task.cancelled() and (error := task.exception()) is not None:
            what, detail = f"a trial was lost here: {type(error).__name__}: {error}", traceback.format_exception(error)
            self._deliver(error if isinstance(error, AutotuneError) else WorkerError(what, detail="".join(detail)))

    async def _ask(self, flight: Flight, task: Any, request: Mapping[str, Any], **where: Any) -> Any:
        """Return the answer to a request: empty if the request was lost, an error if too many workers died of it."""
        from distributed import KilledWorker

        client = self._claims.client
        if client is None:  # lost after a device joined, before this request's turn
            return {}
        known = {"search": self._claims.search, "bound": self.bound, **request}
        key = f"autotune-{task.__name__}-{uuid.uuid4().hex}"
        future = None
        try:
            future = client.submit(task, pickle.dumps(known), key=key, pure=False, **where)
            flight.future, flight.waiting = future, asyncio.ensure_future(_result(future))
            return signed(await flight.waiting)
        except KilledWorker as error:
            return WorkerError(f"lost with {error.allowed_failures + 1} workers of the cluster, one after the other")
        except lost():
            return {}
        except asyncio.CancelledError:
            task_here = asyncio.current_task()
            if task_here is not None and task_here.cancelling():
                raise
            return {}  # called back
        except Exception as error:  # raised on a worker; an error of this side is raised again
            if future is None or future.status != "error":
                raise
            flight.raised += 1
            what = f"{type(error).__name__}: {error}"
            return WorkerError(f"raised on {_RAISED} workers: {what}") if flight.raised >= _RAISED else {}
        finally:
            flight.future = flight.waiting = None
            if future is not None:
                future.release()

    async def _excuse(self, answer: Mapping[str, Any]) -> None:
        """Handle an answer that is not a result; the request is sent again."""
        member = self._claims.members.get(answer.get("worker", ""))
        if member is not None and "refused" in answer:
            self._claims.refuse(member.found, heard(answer, member.found.host))
        await asyncio.sleep(_AGAIN_S)

    def _land(self, flight: Flight, trial: Trial) -> None:
        """Deliver a trial; its time bounds the trials after it."""
        del self._flights[identity(flight.configuration)]
        epoch, best_ns = self.bound
        if trial.outcome is Outcome.OK and (best_ns is None or trial.bounding_ns < best_ns):
            self.bound = epoch, trial.bounding_ns
        self._landed += 1
        self._deliver(trial)
        self._weigh(trial)

    def _noted(self, answer: Mapping[str, Any]) -> Trial:
        trial: Trial = answer["trial"]
        member = self._claims.members.get(answer["worker"])
        if member is not None:
            member.usage = answer.get("usage", {})
        anchor_ns = self._anchors.of(answer["worker"])
        if anchor_ns is None:
            return trial
        return replace(trial, environment={**trial.environment, "anchor_ns": round(anchor_ns)})

    def _crashed(self, flight: Flight, reason: str) -> Trial:
        return Trial(
            flight.configuration,
            Outcome.CRASH,
            reason,
            driver=self._driver,
            started=flight.started,
            finished=datetime.now(UTC),
        )

    def _weigh(self, trial: Trial) -> None:
        """Have each device time the anchor, once there is one; a single device has no other to compare with."""
        members = self._claims.members
        if len(members) < 2:
            return
        if self._anchors.configuration is None and self._landed >= LEAST * len(members):
            self._anchors.configuration = trial.configuration if self.bound[1] == trial.bounding_ns else None
        for worker, member in members.items() if self._anchors.configuration is not None else ():
            if member.anchor is None and worker not in self._anchors:
                member.anchor = asyncio.create_task(self._anchor(member))

    async def _anchor(self, member: Member) -> None:
        worker = member.found.worker
        asked = [self._anchors.configuration]
        request = {"configurations": asked, "budget_s": _ANCHOR_S}
        answer = await self._ask(Flight({}), tasks.retime, request, workers=[worker])
        if isinstance(answer, AutotuneError):
            return
        for told in vetted(answer, "times", believed_times, asked).get("times", ()):
            if isinstance(told, Measurement):
                self._anchors.add(worker, member.found.place, told)


async def _result(future: Any) -> Any:
    return await future
