"""Runs the queued searches: one queue per device, one search at a time in each, each in a process of its own."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from autotune.errors import AutotuneError, SetupError, StoreError, WorkerError, ending
from autotune.service.answers import for_others, in_words
from autotune.service.config import Config
from autotune.service.feeds import END, PROGRESS, STATE, Feeds
from autotune.service.machine import Machine
from autotune.service.process import STOP_S, Child, started
from autotune.store import (
    DONE,
    FAILED,
    OPEN,
    QUEUED,
    RUNNING,
    STOPPED,
    STOPPING,
    ConnectionLost,
    ReadsOnly,
    ServerStore,
    Submission,
)

ATTEMPTS = 10
"""How often a search that makes no progress is begun: one that crashes the server each time must not begin again."""

GRACE_S = 900.0
"""Seconds beyond its budget that a search has to build its space, to wait for its device and to finish."""

LOOK_S = 2.0
"""How often, in seconds, to look whether a running search was stopped through another server of the same database."""

AGAIN_S = 1.0
"""Seconds before a failed operation of the database is tried again."""

_AWAY = (ConnectionLost.__name__, ReadsOnly.__name__)
"""Errors of a search whose database is away or locked, or has failed over to a server that only reads."""

log = logging.getLogger(__name__)


class Ending(NamedTuple):
    """How a search ended, or that it is queued again: what `Submissions.end` puts on record."""

    state: str
    reason: str
    result: Mapping[str, Any] | None = None
    exit_code: int | None = None


class Runner:
    """The queues of a server. Use it from the server's event loop; `describe` gives what events say of a submission.

    `require_alone` raises AutotuneError if another server has begun to work on the same queues.
    """

    def __init__(
        self,
        store: ServerStore,
        config: Config,
        machine: Machine,
        feeds: Feeds,
        describe: Callable[[str], Mapping[str, Any]],
        require_alone: Callable[[], None],
    ) -> None:
        self._store = store
        self._config = config
        self._machine = machine
        self._feeds = feeds
        self._describe = describe
        self._require_alone = require_alone
        self._running: dict[str, Child] = {}
        self._stopping: set[str] = set()
        self._wake: dict[str, asyncio.Event] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._closing = False
        self._telling = asyncio.Lock()

    async def start(self) -> None:
        """Queue again what the last server left running, and begin."""
        lost = await asyncio.to_thread(self._store.recover, self._config.name, ATTEMPTS)
        for submission in lost:
            log.warning("search %s has taken the server down %d times: not begun again", submission.uuid, ATTEMPTS)
        self.attend()

    def attend(self) -> None:
        """Work on the queues of all devices that are here; those of a cluster come and go."""
        for queue in self._machine.queues():
            if queue not in self._wake:
                self._wake[queue] = asyncio.Event()
                self._tasks.append(asyncio.create_task(self._work(queue), name=f"queue {queue}"))
            self.wake(queue)

    async def close(self) -> None:
        """End the running searches, in order; they are queued again."""
        self._closing = True
        for event in self._wake.values():
            event.set()
        for child in self._running.values():
            child.signal()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=STOP_S)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def wake(self, queue: str) -> None:
        """Tell a queue that something was added."""
        if queue in self._wake:
            self._wake[queue].set()

    async def stop(self, submission: Submission) -> None:
        """Stop a search on somebody's request, in order; its state says so when it has ended."""
        child = self._running.get(submission.uuid)
        if submission.state == STOPPING and submission.server == self._config.name:
            self._stopping.add(submission.uuid)
            if child is not None:
                child.signal()
            self.wake(submission.queue)  # if nothing runs there, it is a stray
        await self._tell(submission.uuid, END if submission.state == STOPPED else STATE)

    async def _work(self, queue: str) -> None:
        while not self._closing:
            self._wake[queue].clear()
            try:
                for stray in await asyncio.to_thread(self._strays, queue):
                    self._stopping.discard(stray.uuid)
                    await self._tell(stray.uuid, STATE if stray.state in OPEN else END)
                is_here = queue in self._machine.queues()
                submission = await asyncio.to_thread(self._claimed, queue) if is_here else None
                if submission is not None:
                    await self._run(submission)
                    continue
            except AutotuneError as error:  # of the database, for example: what is queued stays queued
                log.warning("%s", error)
                await asyncio.sleep(AGAIN_S)
                continue
            except Exception:  # whatever it is, the next searches are begun
                log.exception("the queue %s goes on after an error", queue)
                await asyncio.sleep(AGAIN_S)
                continue
            await self._wake[queue].wait()

    def _strays(self, queue: str) -> list[Submission]:
        """Correct the submissions that are stored as running on a queue while nothing runs there, and return them.

        The answer to a claim was lost, or an error came before the end was on record.
        """
        self._require_alone()
        at_work = self._store.submitted(states=(RUNNING, STOPPING), server=self._config.name)
        names = [one.uuid for one in at_work if one.queue == queue]
        if not names:
            return []
        self._store.recover(self._config.name, ATTEMPTS, queue)
        return list(self._store.named(names).values())

    def _claimed(self, queue: str) -> Submission | None:
        self._require_alone()
        return self._store.claim(self._config.name, queue)

    async def _run(self, submission: Submission) -> None:
        """Run one search to its end, whatever happens to its process, and put the end on record."""
        await self._tell(submission.uuid, STATE)
        try:
            ending = await self._child(submission)
        except OSError as error:
            reason = f"its process could not be started: {error.strerror}"
            ending = Ending(FAILED, reason, exit_code=WorkerError.exit_code)
        except Exception as error:  # whatever it is, it ends this search and not the queue
            log.warning("search %s: %s", submission.uuid, error, exc_info=not isinstance(error, AutotuneError))
            told = for_others(error) if isinstance(error, AutotuneError) else error
            reason = f"the server could not follow it: {told}"[:500]
            ending = Ending(FAILED, reason, exit_code=WorkerError.exit_code)
        finally:
            if (child := self._running.pop(submission.uuid, None)) is not None:
                await child.gone()
        await self._record(submission.uuid, ending)
        self._stopping.discard(submission.uuid)
        await self._tell(submission.uuid, STATE if ending.state == QUEUED else END)
        await asyncio.to_thread(self._store.sweep)
        if ending.state == QUEUED:
            await asyncio.sleep(AGAIN_S)

    async def _record(self, search: str, ending: Ending) -> None:
        """Put on record how a search ended, and retry for as long as the database does not accept it.

        Raises StoreError if the server ends meanwhile: its next start corrects what is left.
        """
        said = False
        while True:
            try:
                return await asyncio.to_thread(self._store.end, search, *ending)
            except StoreError as error:
                if self._closing:
                    raise
                if not said:
                    log.warning("search %s has ended, which is tried again until it is stored: %s", search, error)
                said = True
                await asyncio.sleep(AGAIN_S)

    async def _child(self, submission: Submission) -> Ending:
        """Run the search in a process of its own and return how it ended."""
        child = self._running[submission.uuid] = Child(await started("search"))
        answer: dict[str, Any] = {}
        await child.ask(self._asked(submission))
        if self._closing:  # meanwhile
            child.signal()
        looking = asyncio.create_task(self._stop_for_others(submission.uuid, child))
        seconds = submission.request["budget"]["seconds"] + GRACE_S
        overdue = asyncio.get_running_loop().call_later(seconds, child.kill)
        try:
            async for line in child.lines():
                with suppress(ValueError):
                    told = json.loads(line)
                    if "progress" in told:
                        self._feeds.of(submission.uuid).tell(PROGRESS, told["progress"])
                    else:
                        answer = told
            code = await child.ended()
        finally:
            looking.cancel()
            overdue.cancel()
        return await self._ending(submission, answer, code, child.last_words)

    async def _stop_for_others(self, search: str, child: Child) -> None:
        """Ask a process to end once its search is to be stopped: requests at other servers are only in the database."""
        while not await self._is_stopping(search):
            await asyncio.sleep(LOOK_S)
        child.signal()
        await self._tell(search, STATE)

    async def _ending(self, submission: Submission, answer: Mapping[str, Any], code: int, last_words: str) -> Ending:
        stopping = await self._is_stopping(submission.uuid)
        result = answer.get("result")
        if result is not None:
            failed, failure = result["failed"], result["failure"]
            result = {name: value for name, value in result.items() if name != "failed"}
            result |= {"failure": in_words(failure) if failure else None}
            if result["reason"] != "interrupted":
                reason, exit_code = (result["reason"], None) if failed is None else failed
                return Ending(DONE if failed is None else FAILED, in_words(reason), result, exit_code)
        if stopping:
            return Ending(STOPPED, "stopped", result)
        if self._closing:
            return Ending(QUEUED, "the server ended; it goes on at its next start")
        if "error" in answer:
            what, where, hint, _, kind, exit_code = answer["error"]
            if kind in _AWAY and submission.attempts < ATTEMPTS:
                return Ending(QUEUED, "the database was away or locked; it goes on from what is stored")
            of_database = where == self._store.where
            error = (StoreError if of_database else AutotuneError)(what, where=where, hint=hint)
            if of_database:  # a fault of the server, not of the request
                exit_code = SetupError.exit_code
            return Ending(FAILED, str(for_others(error)), exit_code=exit_code)
        if result is not None:
            return Ending(STOPPED, "somebody ended its process", result)
        died = f"{'was killed by' if code < 0 else 'ended with'} {ending(code)}"
        return Ending(FAILED, f"its process {died}{last_words}"[:500], exit_code=WorkerError.exit_code)

    async def _is_stopping(self, search: str) -> bool:
        """Whether somebody wants a search stopped; while the database is away, only as far as this server knows."""
        if search in self._stopping:
            return True
        with suppress(StoreError):
            now = await asyncio.to_thread(self._store.submission, search)
            return now is not None and now.state in (STOPPING, STOPPED)
        return False

    def _asked(self, submission: Submission) -> dict[str, Any]:
        return {
            **submission.request,
            "study": submission.study,
            "upload": submission.upload,
            "submission": submission.uuid,
            "asked_by": submission.asked_by,
            "queue": submission.queue,
            "on": self._config.on,
            "database": self._config.database,
            "allow_python": self._config.allow_python,
            "space": self._config.limits.space,
        }

    async def _tell(self, search: str, kind: str) -> None:
        """Send an event to everyone who watches a search; while the database is away, the next beat shows the change.

        One at a time, so that events keep their order. In a thread, because describing a search may read its study, and
        a database may hang.
        """
        async with self._telling:
            with suppress(StoreError):
                self._feeds.of(search).tell(kind, await asyncio.to_thread(self._describe, search))
