"""Runs what is queued: one queue per device, one search at a time in each, each in a process of its own."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from typing import Any

from autotune.errors import AutotuneError
from autotune.service.answers import Refused
from autotune.service.config import Config
from autotune.service.feeds import END, PROGRESS, STATE, Feeds
from autotune.service.machine import Machine
from autotune.store import DONE, FAILED, QUEUED, STOPPED, STOPPING, ServerStore, Submission

ATTEMPTS = 10
"""How often a search is begun that gets nowhere: one that takes the server down each time is not begun again."""

STOP_S = 30.0
"""Seconds that a search has to end in order, before its process is killed."""

GRACE_S = 900.0
"""Seconds beyond its budget that a search has to build its space, to wait for its device and to settle."""

_LINE = 2**22
_SAID = 40

log = logging.getLogger(__name__)


class Runner:
    """The queues of a server. To be used from its event loop; `describe` gives what events say of a submission.

    `require_alone` raises AutotuneError where another server has come to work the same queues.
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
        self._running: dict[str, asyncio.subprocess.Process] = {}
        self._wake: dict[str, asyncio.Event] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._closing = False

    async def start(self) -> None:
        """Queue again what the last server left, and begin."""
        lost = await asyncio.to_thread(self._store.recover, self._config.name, ATTEMPTS)
        for submission in lost:
            log.warning("search %s has taken the server down %d times: not begun again", submission.uuid, ATTEMPTS)
        self.attend()

    def attend(self) -> None:
        """Work the queues of all devices that are here; those of a cluster come and go."""
        for queue in self._machine.queues():
            if queue not in self._wake:
                self._wake[queue] = asyncio.Event()
                self._tasks.append(asyncio.create_task(self._work(queue), name=f"queue {queue}"))
            self.wake(queue)

    async def close(self) -> None:
        """End what runs, in order; it is queued again."""
        self._closing = True
        for event in self._wake.values():
            event.set()
        for process in self._running.values():
            _signal(process)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=STOP_S)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def wake(self, queue: str) -> None:
        """Say that something is queued."""
        if queue in self._wake:
            self._wake[queue].set()

    def stop(self, submission: Submission) -> None:
        """End a search that somebody wants stopped, in order; its state says so when it has ended."""
        process = self._running.get(submission.uuid)
        self._tell(submission.uuid, END if submission.state == STOPPED else STATE)
        if process is not None and submission.state == STOPPING:
            _signal(process)

    async def _work(self, queue: str) -> None:
        while not self._closing:
            self._wake[queue].clear()
            try:
                is_here = queue in self._machine.queues()
                submission = await asyncio.to_thread(self._claimed, queue) if is_here else None
                if submission is not None:
                    await self._run(submission)
                    continue
            except AutotuneError as error:  # the database, say: what is queued stays so
                log.warning("%s", error)
                await asyncio.sleep(1.0)
                continue
            except Exception:  # whatever it is, the next are begun
                log.exception("the queue %s goes on after an error", queue)
                await asyncio.sleep(1.0)
                continue
            await self._wake[queue].wait()

    def _claimed(self, queue: str) -> Submission | None:
        self._require_alone()
        return self._store.claim(self._config.name, queue)

    async def _run(self, submission: Submission) -> None:
        """Run one search to its end, whatever becomes of its process, and put that on record."""
        self._tell(submission.uuid, STATE)
        result: Mapping[str, Any] | None = None
        try:
            state, reason, result = await self._child(submission)
        except OSError as error:
            state, reason = FAILED, f"its process could not be started: {error.strerror}"
        except Exception as error:  # whatever it is, it is this search's end and not the queue's
            log.warning("search %s: %s", submission.uuid, error, exc_info=not isinstance(error, AutotuneError))
            state, reason = FAILED, f"the server could not follow it: {error}"[:500]
        finally:
            await _gone(self._running.pop(submission.uuid, None))
        await asyncio.to_thread(self._store.end, submission.uuid, state, reason, result)
        await asyncio.to_thread(self._store.sweep)
        self._tell(submission.uuid, STATE if state == QUEUED else END)

    async def _child(self, submission: Submission) -> tuple[str, str, Mapping[str, Any] | None]:
        """Run the search in a process of its own; return its state, the reason and its result."""
        process = await _started("search")
        self._running[submission.uuid] = process
        said: deque[str] = deque(maxlen=_SAID)
        listening = asyncio.create_task(_listen(process, said))
        answer: dict[str, Any] = {}
        await _ask(process, self._asked(submission))
        now = await asyncio.to_thread(self._store.submission, submission.uuid)
        if self._closing or (now is not None and now.state == STOPPING):  # meanwhile
            _signal(process)
        overdue = asyncio.get_running_loop().call_later(
            submission.request["budget"]["seconds"] + GRACE_S, _kill, process
        )
        async for line in _lines(process):
            with suppress(ValueError):
                told = json.loads(line)
                if "progress" in told:
                    self._feeds.of(submission.uuid).tell(PROGRESS, told["progress"])
                else:
                    answer = told
        code = await process.wait()
        overdue.cancel()
        await listening
        return await self._outcome(submission, answer, code, said)

    async def _outcome(
        self, submission: Submission, answer: Mapping[str, Any], code: int, said: deque[str]
    ) -> tuple[str, str, Mapping[str, Any] | None]:
        now = await asyncio.to_thread(self._store.submission, submission.uuid)
        stopping = now is not None and now.state == STOPPING
        result = answer.get("result")
        if result is not None and result["reason"] != "interrupted":
            failed = bool(result["failure"]) or result["best"] is None
            reason = result["failure"] or ("no configuration passed" if failed else result["reason"])
            return FAILED if failed else DONE, reason, result
        if stopping:
            return STOPPED, "stopped", result
        if self._closing:
            return QUEUED, "the server ended; it goes on at its next start", None
        if "error" in answer:
            what, where, hint, *_ = answer["error"]
            return FAILED, str(Refused(422, what, where=where, hint=hint)), None
        if result is not None:
            return STOPPED, "somebody ended its process", result
        last = f": {said[-1]}" if said else ""
        died = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        return FAILED, f"its process {died}{last}"[:500], None

    def _asked(self, submission: Submission) -> dict[str, Any]:
        return {
            **submission.request,
            "study": submission.study,
            "upload": submission.upload,
            "submission": submission.uuid,
            "asked_by": submission.asked_by,
            "queue": submission.queue,
            "attempt": submission.attempts,
            "on": self._config.on,
            "database": self._config.database,
            "allow_python": self._config.allow_python,
            "space": self._config.limits.space,
        }

    def _tell(self, search: str, kind: str) -> None:
        self._feeds.of(search).tell(kind, self._describe(search))


async def work(name: str, asked: Mapping[str, Any], seconds: float) -> Mapping[str, Any]:
    """Have a short piece of work done in a process of its own and return its result.

    Raises Refused with what it says is wrong, or where it takes longer or dies.
    """
    process = await _started(name)
    said: deque[str] = deque(maxlen=_SAID)
    listening = asyncio.create_task(_listen(process, said))
    answer: dict[str, Any] = {}
    try:
        async with asyncio.timeout(seconds):
            await _ask(process, asked)
            async for line in _lines(process):
                answer = json.loads(line)
            await process.wait()
    except TimeoutError:
        raise Refused(422, f"it takes more than {seconds:g} s to find out", hint="make it smaller") from None
    finally:
        await _gone(process)
        await listening
    if "error" in answer:
        what, where, hint, detail, _ = answer["error"]
        raise Refused(422, what, where=where, hint=hint, detail=detail)
    if "result" not in answer:
        last = f": {said[-1]}" if said else ""
        raise Refused(422, f"its process ended without an answer{last}"[:500], hint="make it smaller")
    return dict(answer["result"])


async def _started(name: str) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    words = (sys.executable, "-m", "autotune.service", name, str(os.getpid()))
    return await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe, stderr=pipe, limit=_LINE)


async def _ask(process: asyncio.subprocess.Process, asked: Mapping[str, Any]) -> None:
    assert process.stdin is not None
    with suppress(BrokenPipeError, ConnectionResetError):  # it has died: its code tells
        process.stdin.write(json.dumps(asked).encode())
        await process.stdin.drain()
        process.stdin.close()


async def _lines(process: asyncio.subprocess.Process) -> AsyncIterator[bytes]:
    """Yield what a process tells. Raises Refused for a line that is longer than any should be."""
    assert process.stdout is not None
    try:
        async for line in process.stdout:
            yield line
    except ValueError:
        raise Refused(422, f"its process told more than {_LINE // 2**20} MiB in one line") from None


async def _listen(process: asyncio.subprocess.Process, said: deque[str]) -> None:
    """Keep the last of what a process says on stderr, whatever it is."""
    assert process.stderr is not None
    while data := await process.stderr.read(2**16):
        said.extend(line for line in data.decode(errors="replace").splitlines() if line.strip())


def _signal(process: asyncio.subprocess.Process) -> None:
    """Ask a process to end in order, and see to it that it does."""
    with suppress(ProcessLookupError):
        process.terminate()
    asyncio.get_running_loop().call_later(STOP_S, _kill, process)


def _kill(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()


async def _gone(process: asyncio.subprocess.Process | None) -> None:
    """See a process out: one that still runs, since nobody listens any more, is killed."""
    if process is not None and process.returncode is None:
        _kill(process)
        assert process.stdout is not None
        await process.stdout.read()  # a pipe that is not read to its end is waited for
        await process.wait()
