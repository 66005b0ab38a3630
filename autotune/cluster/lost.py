"""What Dask raises where a connection, or whoever was at its other end, is gone; it is named where it is waited for."""

from __future__ import annotations

import asyncio
from typing import Any


def lost() -> tuple[type[BaseException], ...]:
    """Return the errors that say so: the connection has closed, the client has, or what was asked for was given up."""
    from distributed.client import ClosedClientError, FutureCancelledError, FuturesCancelledError
    from distributed.scheduler import NoValidWorkerError, NoWorkerError

    # OSError has CommClosedError below it.
    return (
        OSError,
        TimeoutError,
        ClosedClientError,
        NoValidWorkerError,
        NoWorkerError,
        FutureCancelledError,
        FuturesCancelledError,
    )


async def close(client: Any, within_s: float) -> None:
    """Close a client, whatever there still is of its connection."""
    if client is not None:
        try:
            await asyncio.wait_for(client.close(), within_s)
        except lost():
            return
