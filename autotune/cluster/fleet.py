"""The search's side of a cluster: stays connected, and follows which devices there are.

All state belongs to the event loop of one thread.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

from autotune.cluster.address import SchedulerAway
from autotune.cluster.claims import Claims
from autotune.cluster.failures import close, lost
from autotune.cluster.flights import Deliver, Flights
from autotune.cluster.roster import read
from autotune.cluster.travel import Packed
from autotune.errors import AutotuneError, WorkerError
from autotune.model import DeviceInfo

_POLL_S = 0.5
"""How often, in seconds, it checks which devices have joined or left."""

_POLL_SHARE_S = 0.002
"""Seconds added to that for each worker of the cluster, because the scheduler has to describe each."""

PATIENCE_S = 600.0
"""Seconds to wait for a scheduler that is gone, or for a device if all have left."""

_LOOK_S = 60.0
"""Seconds that a scheduler may take to list its workers."""

_CLOSE_S = 5.0


class Fleet:
    """Uses the devices of a model in a cluster for one search: `claims` are those it holds, `flights` what they run.

    `connect` returns a client of the scheduler; `deliver` gets trials, or the error that ends the search; `say` lines
    for the user; `changed` the wanted number of trials in flight. At most `most` devices are claimed.
    Everything but the constructor runs in one event loop.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[Any]],
        device: DeviceInfo,
        packed: Packed,
        *,
        deliver: Deliver,
        say: Callable[[str], None],
        changed: Callable[[int], None],
        most: int | None,
    ) -> None:
        self._connect = connect
        self._deliver = deliver
        self._say = say
        self.claims = Claims(
            device, packed, fail=deliver, say=say, changed=changed, left=lambda worker: self.flights.left(worker),
            most=most,
        )  # fmt: skip
        self.flights = Flights(self.claims, device.driver, deliver, say)

    async def keep(self) -> None:
        """Stay connected and claim devices that join, until cancelled; wait for a scheduler that is gone."""
        try:
            self.claims.client = await self._connect()
            while True:
                try:
                    await self._attend(self.claims.client)
                except lost():
                    pass
                closing = asyncio.create_task(close(self._lose(), _CLOSE_S))
                self._say("the scheduler has gone; waiting for it (what is finished is stored)")
                self.claims.client = await self._reach()
                self._say("the scheduler is back")
                await closing
        except AutotuneError as error:
            self._deliver(error)
        except Exception as error:  # if it were not delivered, the search would wait for ever
            what = f"the thread of the cluster failed: {type(error).__name__}: {error}"
            self._deliver(WorkerError(what, detail=traceback.format_exc()))

    async def close(self) -> None:
        """Release every device, and the connection."""
        self.flights.cancel()
        await close(self._lose(), _CLOSE_S)

    def _lose(self) -> Any:
        """Return the connection, which is no longer used; what is in flight waits for another connection."""
        client = self.claims.lose()
        self.flights.call_back()
        return client

    async def _reach(self) -> Any:
        """Return a new client of a scheduler that was there before. Raises WorkerError if it does not come back."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return await self._connect()
            except SchedulerAway as error:
                if time.monotonic() > deadline:
                    hint = "stored trials are kept; type the same again once it is back"
                    raise WorkerError(f"the scheduler has not come back: {error.what}", hint=hint) from None
            await asyncio.sleep(_POLL_S)

    async def _attend(self, client: Any) -> None:
        """Follow which devices there are until the connection is lost. Raises AutotuneError or one of `lost`."""
        alone_since = time.monotonic()
        while client.status == "running":
            found = read(await asyncio.wait_for(client.scheduler.identity(n_workers=-1), _LOOK_S))
            self.claims.muster(found)
            if not self.claims.waits:
                alone_since = time.monotonic()
            elif (refusal := self.claims.refusal(found)) is not None:
                raise refusal
            if time.monotonic() - alone_since > PATIENCE_S:
                hint = "stored trials are kept; start a worker and type the same again"
                raise WorkerError("no worker of the cluster is left", hint=hint)
            await asyncio.sleep(_POLL_S + _POLL_SHARE_S * len(found))
