"""The processes that do a server's work: how they are started, asked, listened to and ended."""

from __future__ import annotations

import asyncio
import json
import os
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any

from autotune.pool import command_of
from autotune.service.answers import Refused

STOP_S = 30.0
"""Seconds that a search has to end in order, before its process is killed."""

LAST_S = 5.0
"""Seconds to wait for the last output of an ended process: processes that it started and left may keep stderr open."""

_LOOK_S = 0.02

_SAID = 40
"""How many lines of a process's stderr are kept."""

_LINE = 2**22


async def work(name: str, asked: Mapping[str, Any], seconds: float) -> Mapping[str, Any]:
    """Have a short piece of work done in a process of its own and return its result.

    Raises Refused with the error that it reports, or if it takes too long or dies.
    """
    child = Child(await started(name))
    answer: dict[str, Any] = {}
    try:
        async with asyncio.timeout(seconds):
            await child.ask(asked)
            async for line in child.lines():
                answer = json.loads(line)
            await child.code()
    except TimeoutError:
        raise Refused(422, f"it takes more than {seconds:g} s to check", hint="make it smaller") from None
    finally:
        await child.gone()
        await child.ended()
    if "error" in answer:
        what, where, hint, detail, *_ = answer["error"]
        raise Refused(422, what, where=where, hint=hint, detail=detail)
    if "result" not in answer:
        what = f"its process ended without an answer{child.last_words}"
        raise Refused(422, what[:500], hint="make it smaller")
    return dict(answer["result"])


async def started(name: str) -> asyncio.subprocess.Process:
    """Start a process for a piece of work (a name of child.py), which begins when it is asked."""
    pipe = asyncio.subprocess.PIPE
    words = command_of("autotune.service", name, str(os.getpid()))
    return await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe, stderr=pipe, limit=_LINE)


class Child:
    """A process that was `started`; what it writes to stderr is read from now on."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._said: deque[str] = deque(maxlen=_SAID)
        self._listening = asyncio.create_task(self._listen())

    async def ask(self, asked: Mapping[str, Any]) -> None:
        """Tell it what to do."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError, ConnectionResetError):  # it has died: its exit code says why
            self._process.stdin.write(json.dumps(asked).encode())
            await self._process.stdin.drain()
            self._process.stdin.close()

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield the lines that it writes. Raises Refused for a line that is longer than any should be."""
        assert self._process.stdout is not None
        try:
            async for line in self._process.stdout:
                yield line
        except ValueError:
            raise Refused(422, f"its process wrote more than {_LINE // 2**20} MiB in one line") from None

    async def _listen(self) -> None:
        """Keep the last lines that it writes to stderr, whatever they are."""
        assert self._process.stderr is not None
        while data := await self._process.stderr.read(2**16):
            self._said.extend(line for line in data.decode(errors="replace").splitlines() if line.strip())

    @property
    def last_words(self) -> str:
        """The last line of its stderr, to follow what is said of its end: `: KeyError: 'x'`; "" if there is none."""
        return f": {self._said[-1]}" if self._said else ""

    def signal(self) -> None:
        """Ask it to end in order, and kill it if it does not."""
        with suppress(ProcessLookupError):
            self._process.terminate()
        asyncio.get_running_loop().call_later(STOP_S, self.kill)

    def kill(self) -> None:
        """Kill it if it has not ended."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()

    async def ended(self) -> int:
        """Return its exit code once it has ended and its last output is read."""
        code = await self.code()
        if (await asyncio.wait({self._listening}, timeout=LAST_S))[1]:
            self._listening.cancel()
            self._process._transport.close()  # type: ignore[attr-defined]
        return code

    async def code(self) -> int:
        """Return its exit code once it has ended; `wait` of its process would also wait for its pipes."""
        while self._process.returncode is None:
            await asyncio.sleep(_LOOK_S)
        return self._process.returncode

    async def gone(self) -> None:
        """Kill it if it still runs, since nothing listens to it any more, and wait for its end."""
        if self._process.returncode is None:
            self.kill()
            assert self._process.stdout is not None
            await self._process.stdout.read()
            await self.code()
