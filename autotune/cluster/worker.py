"""`autotune worker`: a Dask worker per device, each under a nanny that starts it again, until a signal comes."""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import signal
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from autotune.cluster.address import Address, SchedulerAway, connect, keep_quiet, require_distributed, security
from autotune.errors import WorkerError
from autotune.model import DeviceInfo
from autotune.pool import lock_folder

RETRY_S = 1.0
"""Pause before another try to reach a scheduler that is gone."""

TRIES = 3
"""How often in a row a process may fail to start before it is given up."""

_BESIDE = 8
"""Tasks beside the trials: claims of other searches, finalists."""

_THREADS = 64 + _BESIDE
"""How many tasks a worker runs at once; its resources say how many trials it wants."""

_QUIET = {"distributed.worker.profile.enabled": False, "distributed.admin.tick.interval": "1s"}
"""By default Dask looks 100 times a second at its threads, and 50 times at its loop. That costs 7 % of a core beside
kernels that are timed, for figures that nobody uses here.
"""


def serve(address: Address, devices: Sequence[DeviceInfo], say: Callable[[str], None]) -> None:
    """Offer devices to a cluster until SIGINT, SIGTERM or SIGHUP comes; wait for a scheduler that goes away.

    Raises SetupError if distributed is missing, the scheduler is not one of ours or AUTOTUNE_LOCKS is not a folder,
    WorkerError if no device is left whose process starts.
    """
    require_distributed()
    lock_folder()  # each search locks the device there: an error is reported here, not to the users of the searches
    asyncio.run(_serve(address, devices, say))


async def _serve(address: Address, devices: Sequence[DeviceInfo], say: Callable[[str], None]) -> None:
    keep_quiet()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # ignored under `nohup` and in background jobs
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
    posts = [asyncio.create_task(_keep(address, device, len(devices), say)) for device in devices]
    ending = asyncio.create_task(stop.wait())
    await _any_serves(ending, posts, say)
    for task in (ending, *posts):
        task.cancel()
    for post in posts:
        with suppress(asyncio.CancelledError):
            await post


async def _any_serves(ending: asyncio.Task[Any], posts: list[asyncio.Task[None]], say: Callable[[str], None]) -> None:
    """Return when it is to end, or when an error of one device is one of all; drop a device that is lost."""
    while True:
        await asyncio.wait([ending, *posts], return_when=asyncio.FIRST_COMPLETED)
        over = [post for post in posts if post.done()]
        lost = [error for post in over if isinstance(error := post.exception(), WorkerError)]
        if ending.done() or len(lost) < len(over) or len(over) == len(posts):
            return
        for error in lost:
            say(f"{error}; the other devices go on")
        posts[:] = [post for post in posts if post not in over]


async def _keep(address: Address, device: DeviceInfo, share: int, say: Callable[[str], None]) -> None:
    """Have one device served, again and again; ends with an error or when cancelled.

    Raises WorkerError if its process fails to start TRIES times in a row while the scheduler is there.
    """
    waits, failed = False, 0
    while True:
        try:
            client = await connect(address)  # checks the versions: a worker that does not match is refused here
            await client.close()
            nanny = await _started(address, device, share)
        except (OSError, RuntimeError, TimeoutError, SchedulerAway) as error:
            if not waits:
                say(f"waiting for the scheduler: {_said(error)}")
            waits, failed = True, 0
        except WorkerError as error:
            failed += 1
            if failed == TRIES:
                raise
            say(f"{error}; trying again")
        else:
            waits, failed = False, 0
            say(f"{device.name} ({device.fingerprint}) serves {address}")
            try:
                await nanny.finished()
            except asyncio.CancelledError:
                await nanny.close()
                raise
            say(f"{device.name}: the scheduler at {address} has gone")
        await asyncio.sleep(RETRY_S)


async def _started(address: Address, device: DeviceInfo, share: int) -> Any:
    """Return a nanny whose worker serves. Raises WorkerError if it does not start, and the errors of the network."""
    from distributed.comm import CommClosedError

    try:
        nanny = _nanny(address, device, share)
        await nanny
    except (OSError, RuntimeError) as error:
        causes: list[BaseException] = [error]
        while (before := causes[-1].__cause__) is not None:
            causes.append(before)
        for one in causes:  # all of them: the error of a closed connection has a cause too
            if isinstance(one, CommClosedError | ConnectionError | TimeoutError):  # the scheduler has just gone
                raise one from None
        cause = causes[-1]
        raise WorkerError(f"the process for {device.name} does not start: {_said(cause)}") from error
    return nanny


def _said(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _nanny(address: Address, device: DeviceInfo, share: int) -> Any:
    import dask.config
    from distributed import Nanny

    from autotune.cluster.post import Post

    dask.config.set(_QUIET)  # for good: the nanny passes its settings on whenever it starts its worker
    return Nanny(
        str(address),
        name=f"{platform.node()}-{device.number}-{os.getpid()}",
        host=address.near(),
        nthreads=_THREADS,
        resources={device.fingerprint: 1},
        memory_limit=0,  # the data of a search has a fixed size: to pause or end the worker would not help
        local_directory=tempfile.gettempdir(),
        dashboard=False,
        dashboard_address="127.0.0.1:0",  # Dask's HTTP server has no authentication, and cannot be turned off
        security=security(address, "worker"),
        silence_logs=logging.CRITICAL,
        plugins=(Post(device, share),),
    )
