"""The search's side of a cluster: claims devices, sends trials, takes in what comes back.

Dask schedules: a claimed device offers places for trials under the search's own name as a resource, a trial goes where
one is free, and elsewhere when its worker is lost. All state is one thread's, which runs an event loop.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import platform
import time
import traceback
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from autotune.cluster import tasks
from autotune.cluster.anchor import LEAST, Anchors
from autotune.cluster.roster import OTHER, Found, fits, read
from autotune.cluster.travel import heard, versions
from autotune.errors import AutotuneError, SetupError, SpaceError, StudyError, WorkerError
from autotune.model import Configuration, DeviceInfo, Identity, Measurement, Outcome, Trial, identity

_POLL_S = 0.5
"""How often it is looked who has joined or left."""

_POLL_SHARE_S = 0.002
"""And for each worker of the cluster, which the scheduler has to describe."""

_AGAIN_S = 0.2
"""Pause before a trial is sent again that a device has refused."""

_BUSY_S = 1.0
"""Pause before a device is asked again that another search has."""

PATIENCE_S = 600.0
"""How long a scheduler that is gone is waited for, and a device where all have left."""

_LOOK_S = 60.0
"""How long a scheduler may take to tell who is there."""

_ANSWER_S = 5.0
"""How long workers may take to say what has begun."""

_ANCHOR_S = 0.3
"""Seconds for which a device times the anchor."""

Deliver = Callable[[Trial | AutotuneError], None]


@dataclass(eq=False)
class Flight:
    """A request on its way: a trial, or finalists. `future` is Dask's, `waiting` the wait for it, while it is there."""

    configuration: Configuration
    started: datetime = field(default_factory=lambda: datetime.now(UTC))
    future: Any = None
    waiting: asyncio.Future[Any] | None = None
    task: asyncio.Task[None] | None = None

    def call_back(self) -> None:
        """Have the request sent anew."""
        if self.waiting is not None:
            self.waiting.cancel()


@dataclass
class Member:
    """A device that serves this search; it is claimed as long as the token is held."""

    found: Found
    token: Any
    slots: int
    usage: Mapping[str, float] = field(default_factory=dict)
    anchor: asyncio.Task[None] | None = None


class Fleet:
    """Uses the devices of a model in a cluster for one search.

    `connect` returns a client of the scheduler; `deliver` is given trials, or the error that ends it all; `say` lines
    for the user; `changed` the number of trials that are wanted in flight. At most `most` devices are claimed.
    Everything but the constructor runs in one event loop.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[Any]],
        device: DeviceInfo,
        packed: bytes,
        *,
        deliver: Deliver,
        say: Callable[[str], None],
        changed: Callable[[int], None],
        most: int | None = None,
    ) -> None:
        self.search = f"autotune-{uuid.uuid4().hex[:12]}"
        self.members: dict[str, Member] = {}
        self.bound: tuple[int, float | None] = (0, None)
        self._connect = connect
        self._device = device
        self._packed = packed
        self._deliver = deliver
        self._say = say
        self._changed = changed
        self._most = most
        self._client: Any = None
        self._claiming: dict[str, asyncio.Task[None]] = {}
        self._refused: dict[str, AutotuneError] = {}
        self._busy: set[str] = set()  # devices that another search has
        self._there = asyncio.Event()  # set while a device serves the search
        self._flights: dict[Identity, Flight] = {}
        self._finale = Flight({})
        self._judge = ""  # the worker whose device times the finalists
        self._anchors = Anchors(say)
        self._landed = 0
        self._spent: dict[str, float] = {}  # usage of devices that have left
        self._said: set[str] = set()

    # -- who is there ---------------------------------------------------------------------------

    async def keep(self) -> None:
        """Stay connected and claim what joins, until cancelled; a scheduler that is gone is waited for."""
        try:
            self._client = await self._connect()
            while True:
                with suppress(OSError, TimeoutError):
                    await self._attend(self._client)
                lost = asyncio.create_task(_close(self._lose()))
                self._say("the scheduler has gone; waiting for it (what is finished is stored)")
                self._client = await self._reach()
                self._say("the scheduler is back")
                await lost
        except AutotuneError as error:
            self._deliver(error)
        except Exception as error:  # unsaid, the search would wait for ever
            what = f"the thread of the cluster failed: {type(error).__name__}: {error}"
            self._deliver(WorkerError(what, detail=traceback.format_exc()))

    async def close(self) -> None:
        """Let go of every device, and of the connection."""
        for flight in (*self._flights.values(), self._finale):
            if flight.task is not None:
                flight.task.cancel()
        await _close(self._lose())

    async def _reach(self) -> Any:
        """Return a new client of a scheduler that was there before. Raises WorkerError where it does not come back."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return await self._connect()
            except SetupError as error:
                if time.monotonic() > deadline:
                    hint = "what is stored remains; type the same again once it is back"
                    raise WorkerError(f"the scheduler has not come back: {error.what}", hint=hint) from None
            await asyncio.sleep(_POLL_S)

    async def _attend(self, client: Any) -> None:
        """Look who is there until the connection is lost. Raises OSError, TimeoutError then."""
        alone_since = time.monotonic()
        while client.status == "running":
            found = read(await asyncio.wait_for(client.scheduler.identity(n_workers=-1), _LOOK_S))
            self._muster(found)
            if self.members or self._claiming:
                alone_since = time.monotonic()
            refusals = [self._refused[worker] for worker in found if worker in self._refused]
            if not self.members and not self._claiming and refusals:
                raise refusals[-1]
            if time.monotonic() - alone_since > PATIENCE_S:
                hint = "what is stored remains; start a worker and type the same again"
                raise WorkerError("no worker of the cluster is left", hint=hint)
            await asyncio.sleep(_POLL_S + _POLL_SHARE_S * len(found))

    def _muster(self, found: Mapping[str, Found]) -> None:
        """Let go of who has left, and claim who may serve and does not yet."""
        for worker in [worker for worker in self.members if worker not in found]:
            gone = self._dismiss(worker)
            self._say(f"{gone.found.place} has left; {_count(len(self.members))} left")
        for worker, one in found.items():
            if worker in self.members or worker in self._claiming or worker in self._refused:
                continue
            if self._most is not None and len(self.members) + len(self._claiming) >= self._most:
                return
            reason = fits(one, self._device)
            if reason and reason != OTHER:
                self._say_once(f"{one.place} is left out: {reason}")
            if not reason:
                self._claiming[worker] = asyncio.create_task(self._claim(one))

    async def _claim(self, found: Found) -> None:
        """Have a device open an evaluator for this search; the answer comes once it has."""
        token = f"{self.search}-claim-{uuid.uuid4().hex[:8]}"
        request = {
            "token": token,
            "search": self.search,
            "owner": f"process {os.getpid()} of {platform.node()}",
            "versions": versions(),
            "problem": self._packed,
        }
        held = None
        try:
            held = self._client.submit(
                tasks.claim, pickle.dumps(request), key=token, workers=[found.worker], pure=False
            )
            answer = await held
            if "slots" in answer:
                self._enlist(found, held, int(answer["slots"]))
                held = None
            elif "refused" in answer:
                self._refuse(found, heard(answer["refused"], found.host))
            else:
                self._busy.add(found.worker)
                if not self.members and "busy" in answer:
                    self._say_once(f"{found.place} is in use by another search ({answer['busy']}); waiting")
                await asyncio.sleep(_BUSY_S)
        except Exception as error:  # lost meanwhile, as the next look will tell
            if "deserialization" in str(error):
                self._deliver(SetupError("the scheduler has no autotune", hint="install the same version there"))
            await asyncio.sleep(_AGAIN_S)
        finally:
            self._busy.discard(found.worker)
            self._claiming.pop(found.worker, None)
            if held is not None:
                held.release()

    def _enlist(self, found: Found, token: Any, slots: int) -> None:
        self.members[found.worker] = Member(found, token, slots)
        self._there.set()
        self._count()

    def _dismiss(self, worker: str) -> Member:
        """Let go of a device."""
        member = self.members.pop(worker)
        member.token.release()
        if member.anchor is not None:
            member.anchor.cancel()
        for name, seconds in member.usage.items():
            self._spent[name] = self._spent.get(name, 0.0) + seconds
        if worker == self._judge:
            self._judge = ""
            self._finale.call_back()
        if not self.members:
            self._there.clear()
        self._count()
        return member

    def _refuse(self, found: Found, error: AutotuneError) -> None:
        """Do without a device whose machine is at fault; what is wrong with the study is so on each."""
        if found.worker in self.members:
            self._dismiss(found.worker)
        self._refused[found.worker] = error
        if isinstance(error, StudyError | SpaceError):
            self._deliver(error)
        else:
            self._say_once(f"{found.place} is left out: {error}")

    def _lose(self) -> Any:
        """Forget what was known through the connection, and return it; what is in flight waits for another."""
        client, self._client = self._client, None
        for worker in list(self.members):
            self._dismiss(worker)
        for task in self._claiming.values():
            task.cancel()
        self._refused.clear()
        for flight in (*self._flights.values(), self._finale):
            flight.call_back()
        return client

    def _count(self) -> None:
        self._changed(sum(member.slots for member in self.members.values()))

    def _say_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._say(text)

    # -- trials ---------------------------------------------------------------------------------

    def submit(self, configuration: Configuration) -> None:
        """Begin a trial."""
        flight = Flight(configuration)
        self._flights[identity(configuration)] = flight
        flight.task = asyncio.create_task(self._fly(flight))

    async def withdraw(self, leave: int, building: bool) -> list[Configuration]:
        """Take back what no device has begun, but for the oldest `leave`; what does not answer has not begun."""
        keep = list(self._flights)[:leave]
        begun = set(keep)
        request = pickle.dumps({"search": self.search, "keep": keep, "building": building})
        with suppress(Exception):
            asked = self._client.run(tasks.withdraw, request, workers=list(self.members), on_error="ignore")
            for answer in (await asyncio.wait_for(asked, _ANSWER_S)).values() if self.members else ():
                begun.update(answer)
        taken = []
        for name, flight in list(self._flights.items()):
            arrived = flight.future is not None and flight.future.status == "finished"
            if name not in begun and not arrived and flight.task is not None:
                del self._flights[name]
                flight.task.cancel()
                taken.append(flight.configuration)
        return taken

    async def retime(self, configurations: Sequence[Configuration], budget_s: float) -> list[Measurement | Trial]:
        """Time configurations interleaved, all on one device: the same as before, as long as it is there."""
        while True:
            await self._there.wait()
            where: dict[str, Any] = {"resources": {self.search: 1}}
            if self._judge:
                where["workers"] = [self._judge]
            request = {"configurations": configurations, "budget_s": budget_s}
            answer = await self._ask(self._finale, tasks.retime, request, **where)
            if isinstance(answer, AutotuneError):
                raise answer
            if "times" in answer:
                self._judge = answer["worker"]
                return list(answer["times"])
            await self._excuse(answer)

    def usage(self) -> dict[str, float]:
        """Return the seconds that devices spent, by what on."""
        total = dict(self._spent)
        for member in self.members.values():
            for name, seconds in member.usage.items():
                total[name] = total.get(name, 0.0) + seconds
        return total

    async def _fly(self, flight: Flight) -> None:
        """Send a trial as often as it takes, until its answer is here."""
        while True:
            await self._there.wait()
            request = {"configuration": flight.configuration}
            answer = await self._ask(flight, tasks.trial, request, resources={self.search: 1})
            if isinstance(answer, AutotuneError):
                self._land(flight, self._crashed(flight, str(answer)))
                return
            if "trial" in answer:
                self._land(flight, self._noted(answer))
                return
            await self._excuse(answer)

    async def _ask(self, flight: Flight, task: Any, request: Mapping[str, Any], **where: Any) -> Any:
        """Return the answer to a request: empty where it was lost, an error where it took too many workers down."""
        from distributed import KilledWorker

        known = {"search": self.search, "bound": self.bound, **request}
        key = f"autotune-{task.__name__}-{uuid.uuid4().hex}"
        future = None
        try:
            future = flight.future = self._client.submit(task, pickle.dumps(known), key=key, pure=False, **where)
            flight.waiting = asyncio.ensure_future(_result(future))
            return await flight.waiting
        except KilledWorker as error:
            return WorkerError(f"lost with {error.allowed_failures + 1} workers of the cluster, one after the other")
        except asyncio.CancelledError:
            task_here = asyncio.current_task()
            if task_here is not None and task_here.cancelling():
                raise
            return {}  # called back
        except Exception:  # the connection is lost
            return {}
        finally:
            flight.future = flight.waiting = None
            if future is not None:
                future.release()

    async def _excuse(self, answer: Mapping[str, Any]) -> None:
        """Deal with an answer that is no result; what was asked is sent again."""
        member = self.members.get(answer.get("worker", ""))
        if member is not None and "refused" in answer:
            self._refuse(member.found, heard(answer["refused"], member.found.host))
        await asyncio.sleep(_AGAIN_S)

    def _land(self, flight: Flight, trial: Trial) -> None:
        """Hand a trial over; what follows is bounded by it."""
        del self._flights[identity(flight.configuration)]
        epoch, best_ns = self.bound
        if trial.outcome is Outcome.OK and (best_ns is None or trial.time_ns < best_ns):
            self.bound = epoch, trial.time_ns
        self._landed += 1
        self._deliver(trial)
        self._weigh(trial)

    def _noted(self, answer: Mapping[str, Any]) -> Trial:
        trial: Trial = answer["trial"]
        member = self.members.get(answer["worker"])
        if member is not None:
            member.usage = answer["usage"]
        anchor_ns = self._anchors.of(answer["worker"])
        if anchor_ns is None:
            return trial
        return replace(trial, environment={**trial.environment, "anchor_ns": round(anchor_ns)})

    def _crashed(self, flight: Flight, reason: str) -> Trial:
        return Trial(
            flight.configuration,
            Outcome.CRASH,
            reason,
            driver=self._device.driver,
            started=flight.started,
            finished=datetime.now(UTC),
        )

    # -- the anchor -----------------------------------------------------------------------------

    def _weigh(self, trial: Trial) -> None:
        """Have each device time the anchor, once there is one; a device alone has none to differ from."""
        if len(self.members) < 2:
            return
        if self._anchors.configuration is None and self._landed >= LEAST * len(self.members):
            self._anchors.configuration = trial.configuration if self.bound[1] == trial.time_ns else None
        for worker, member in self.members.items() if self._anchors.configuration is not None else ():
            if member.anchor is None and worker not in self._anchors:
                member.anchor = asyncio.create_task(self._anchor(member))

    async def _anchor(self, member: Member) -> None:
        worker = member.found.worker
        request = {"configurations": [self._anchors.configuration], "budget_s": _ANCHOR_S}
        answer = await self._ask(Flight({}), tasks.retime, request, workers=[worker])
        times = answer.get("times", [None]) if isinstance(answer, Mapping) else [None]
        if isinstance(times[0], Measurement):
            self._anchors.add(worker, member.found.place, times[0])


async def _close(client: Any) -> None:
    if client is not None:
        with suppress(Exception):
            await asyncio.wait_for(client.close(), _ANSWER_S)


async def _result(future: Any) -> Any:
    return await future


def _count(devices: int) -> str:
    return "no device" if not devices else f"{devices} device{'s' if devices > 1 else ''}"
