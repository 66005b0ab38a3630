"""The open state of one server: routes and pages take it as `service: Opened` (depends.py)."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from contextlib import suppress

from fastapi import Request

from autotune.errors import AutotuneError, DeviceError, SetupError
from autotune.model import DeviceInfo
from autotune.service import views
from autotune.service.callers import Callers
from autotune.service.config import Config
from autotune.service.feeds import Feeds
from autotune.service.lookups import Lookups
from autotune.service.machine import Machine
from autotune.service.process import work
from autotune.service.runner import Runner
from autotune.service.studies import Studies
from autotune.store import ServerStore

LOOK_S = 60.0
"""How often, in seconds, a cluster's devices are listed; for a device that is asked for and not known, at once."""

KEEP_S = 2.0
"""How often, in seconds, a hold that was lost with its connection is taken again; it shows others that this server
works.
"""

_LATELY_S = 2.0

log = logging.getLogger(__name__)


class Service:
    """A server's store, its callers, its queues and what it knows of its machine.

    `ending` is set when it is told to end; `storing` holds the imports that threads are working on.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.store = opened(config)
        self.callers = Callers(self.store, config)
        self.feeds = Feeds()
        self.machine = Machine()
        self.studies = Studies(self.store, config)
        self.lookups = Lookups(config, self.studies, self.machine)
        self.runner: Runner | None = None
        self.checking = asyncio.Semaphore(2)
        self.ending = threading.Event()
        self.storing: set[asyncio.Future[int]] = set()
        self._hold = self.store.hold(config.name)
        self._looking = asyncio.Lock()
        self._looked = 0.0
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """List the devices, and begin to run the queue. Raises UsageError if another server of its name does."""
        if self.config.read_only:
            return
        await asyncio.to_thread(self._hold.keep)
        await self._look()
        self.runner = Runner(
            self.store, self.config, self.machine, self.feeds, lambda name: views.search(self, name), self._hold.keep
        )
        await self.runner.start()
        self._tasks.append(asyncio.create_task(self._keep()))
        if self.config.on is not None:
            self._tasks.append(asyncio.create_task(self._watch()))

    def end(self) -> None:
        """Tell the server to end: streams of events end, and imports that take long are given up."""
        self.ending.set()
        self.feeds.close()

    async def close(self) -> None:
        """End what runs, in order, and release everything."""
        self.end()
        if self.storing:
            await asyncio.wait(self.storing)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.runner is not None:
            await self.runner.close()
        self.studies.close()
        self._hold.close()
        self.store.close()

    def is_at_work(self, name: str) -> bool:
        """Whether a server works on the queues of that name: this one, even while its hold is lost, or another."""
        return (self.runner is not None and name == self.config.name) or self.store.is_at_work(name)

    async def device(self, selector: str | None) -> DeviceInfo:
        """Return one device to search on, as Machine.require; a cluster's device may have been added a moment ago."""
        try:
            return self.machine.require(selector)
        except (DeviceError, SetupError):
            if self.config.on is None:
                raise
            await self._look()
            return self.machine.require(selector)

    async def _look(self) -> None:
        """List the devices, and start to work on the queues of new ones."""
        async with self._looking:
            if self._looked and time.monotonic() - self._looked < _LATELY_S:
                return
            try:
                self.machine.update(await work("devices", {"on": self.config.on}, 120.0))
            except Exception as error:  # a driver failed, or the scheduler is away: keep what was known
                said = str(error) if isinstance(error, AutotuneError) else f"the devices cannot be listed: {error}"
                log.warning("%s", said)
                self.machine.amiss = [said]
            self._looked = time.monotonic()
        if self.runner is not None:
            self.runner.attend()

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(KEEP_S)
            with suppress(AutotuneError):  # it is reported when the next search is claimed
                await asyncio.to_thread(self._hold.keep)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            await self._look()


def opened(config: Config) -> ServerStore:
    """Open the database of a server; a server that only shows results accepts a file that it may only read."""
    if config.read_only:
        return ServerStore.to_read(config.database, make=True)
    return ServerStore.open(config.database)


def service_of(request: Request) -> Service:
    """Return the server that received a request."""
    service: Service = request.app.state.service
    return service
