"""The functions that Dask runs on its workers: each passes a packed request to the device's post.

The scheduler reads which function is meant, so this file imports next to nothing; requests and answers stay packed
there. All run in the worker's event loop and wait there for the device.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distributed import Worker


def _post(worker: Worker | None = None) -> Any:
    from distributed import get_worker

    return (worker or get_worker()).plugins["autotune"]


async def claim(request: bytes) -> dict[str, Any]:
    """Take the device for a search; the answer says how many trials it wants, or why it cannot serve.

    The reason is another search that has it, contents of the search that it lacks, or an error.
    """
    answer: dict[str, Any] = await _post().claim(**pickle.loads(request))
    return answer


async def trial(request: bytes) -> dict[str, Any]:
    """Run one trial."""
    answer: dict[str, Any] = await _post().trial(**pickle.loads(request))
    return answer


async def retime(request: bytes) -> dict[str, Any]:
    """Time configurations interleaved."""
    answer: dict[str, Any] = await _post().retime(**pickle.loads(request))
    return answer


async def keep(request: bytes, dask_worker: Worker) -> dict[str, Any]:
    """Store a piece of what a search needs there. Runs beside the tasks, outside the queue."""
    answer: dict[str, Any] = await _post(dask_worker).depot.keep(pickle.loads(request))
    return answer


async def withdraw(request: bytes, dask_worker: Worker) -> list[Any]:
    """Take back what the device has not begun; return what it has begun. Runs beside the tasks, outside the queue."""
    begun: list[Any] = _post(dask_worker).withdraw(**pickle.loads(request))
    return begun
