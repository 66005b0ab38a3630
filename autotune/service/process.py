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

SAID = 40
"""How many lines of a process's stderr are kept."""

_LINE = 2**22


async def work(name: str, asked: Mapping[str, Any], seconds: float) -> Mapping[str, Any]:
    """Have a short piece of work done in a process of its own and return its result.

    Raises Refused with the error that it reports, or if it takes too long or dies.
    """
    process = await started(name)
    said: deque[str] = deque(maxlen=SAID)
    listening = asyncio.create_task(listen(process, said))
    answer: dict[str, Any] = {}
    try:
        async with asyncio.timeout(seconds):
            await ask(process, asked)
            async for line in lines(process):
                answer = json.loads(line)
            await _code(process)
    except TimeoutError:
        raise Refused(422, f"it takes more than {seconds:g} s to find out", hint="make it smaller") from None
    finally:
        await gone(process)
        await ended(process, listening)
    if "error" in answer:
        what, where, hint, detail, *_ = answer["error"]
        raise Refused(422, what, where=where, hint=hint, detail=detail)
    if "result" not in answer:
        last = f": {said[-1]}" if said else ""
        raise Refused(422, f"its process ended without an answer{last}"[:500], hint="make it smaller")
    return dict(answer["result"])


async def started(name: str) -> asyncio.subprocess.Process:
    """Start a process for a piece of work (a name of child.py), which begins when it is asked."""
    pipe = asyncio.subprocess.PIPE
    words = command_of("autotune.service", name, str(os.getpid()))
    return await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe, stderr=pipe, limit=_LINE)


async def ask(process: asyncio.subprocess.Process, asked: Mapping[str, Any]) -> None:
    """Tell a process what to do."""
    assert process.stdin is not None
    with suppress(BrokenPipeError, ConnectionResetError):  # it has died: its exit code says why
        process.stdin.write(json.dumps(asked).encode())
        await process.stdin.drain()
        process.stdin.close()


async def lines(process: asyncio.subprocess.Process) -> AsyncIterator[bytes]:
    """Yield the lines that a process writes. Raises Refused for a line that is longer than any should be."""
    assert process.stdout is not None
    try:
        async for line in process.stdout:
            yield line
    except ValueError:
        raise Refused(422, f"its process told more than {_LINE // 2**20} MiB in one line") from None


async def listen(process: asyncio.subprocess.Process, said: deque[str]) -> None:
    """Keep the last lines that a process writes to stderr, whatever they are."""
    assert process.stderr is not None
    while data := await process.stderr.read(2**16):
        said.extend(line for line in data.decode(errors="replace").splitlines() if line.strip())


def signal(process: asyncio.subprocess.Process) -> None:
    """Ask a process to end in order, and kill it if it does not."""
    with suppress(ProcessLookupError):
        process.terminate()
    asyncio.get_running_loop().call_later(STOP_S, kill, process)


def kill(process: asyncio.subprocess.Process) -> None:
    """Kill a process that has not ended."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()


async def ended(process: asyncio.subprocess.Process, listening: asyncio.Task[None]) -> int:
    """Return the exit code of a process once it has ended and its last output is read."""
    code = await _code(process)
    if (await asyncio.wait({listening}, timeout=LAST_S))[1]:
        listening.cancel()
        process._transport.close()  # type: ignore[attr-defined]
    return code


async def _code(process: asyncio.subprocess.Process) -> int:
    """Return the exit code of a process once it has ended; `wait` would also wait for its pipes."""
    while process.returncode is None:
        await asyncio.sleep(_LOOK_S)
    return process.returncode


async def gone(process: asyncio.subprocess.Process | None) -> None:
    """Kill a process that still runs, since nothing listens to it any more, and wait for its end."""
    if process is not None and process.returncode is None:
        kill(process)
        assert process.stdout is not None
        await process.stdout.read()
        await _code(process)
