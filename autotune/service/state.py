"""What one server has open: the one thing that routes and pages take from `request.app.state.service`."""

from __future__ import annotations

import asyncio
import logging

from fastapi import Request

from autotune.service import views
from autotune.service.callers import Callers
from autotune.service.config import Config
from autotune.service.feeds import Feeds
from autotune.service.lookups import Lookups
from autotune.service.machine import Machine
from autotune.service.runner import Runner, work
from autotune.service.studies import Studies
from autotune.store import ServerStore

log = logging.getLogger(__name__)


class Service:
    """A server's store, its callers, its queues and what it knows of its machine."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.store = ServerStore.open(config.database)
        self.callers = Callers(self.store, config)
        self.feeds = Feeds()
        self.machine = Machine()
        self.studies = Studies(self.store, config)
        self.lookups = Lookups(config, self.studies, self._machine)
        self.runner: Runner | None = None
        self.checking = asyncio.Semaphore(2)

    async def start(self) -> None:
        """Look at the machine, and begin to run what is queued."""
        if self.config.read_only:
            return
        try:
            self.machine = Machine(await work("devices", {}, 120.0))
        except Exception as error:  # a driver's doing: looking up goes without
            log.warning("the devices cannot be listed: %s", error)
        self.runner = Runner(self.store, self.config, self.machine, self.feeds, lambda name: views.search(self, name))
        await self.runner.start()

    async def close(self) -> None:
        """End what runs, in order, and give everything back."""
        self.feeds.close()
        if self.runner is not None:
            await self.runner.close()
        self.studies.close()
        self.store.close()

    def _machine(self) -> Machine:
        return self.machine


def service_of(request: Request) -> Service:
    """Return the server that a request came to: `service: Service = Depends(service_of)`."""
    service: Service = request.app.state.service
    return service
