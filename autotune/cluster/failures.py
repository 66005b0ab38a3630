"""What fails between machines: an error as an answer that travels, and back; what Dask raises where one is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autotune import errors
from autotune.errors import AutotuneError, WorkerError
from autotune.model import Configuration, Measurement, Outcome, Trial, identity


def refused(error: AutotuneError) -> dict[str, Any]:
    """Return the answer that tells an error, plain data."""
    told = {"what": error.what, "where": error.where, "hint": error.hint, "detail": error.detail}
    return {"refused": {"kind": type(error).__name__, **told}}


def heard(answer: Mapping[str, Any], place: str) -> AutotuneError:
    """Return the error that the answer tells, as happened at a place."""
    told = answer["refused"]
    kind = getattr(errors, told["kind"], WorkerError)
    if not (isinstance(kind, type) and issubclass(kind, AutotuneError)):
        kind = WorkerError
    where = f"{place}: {told['where']}" if told["where"] else place
    error: AutotuneError = kind(told["what"], where=where, hint=told["hint"], detail=told["detail"])
    return error


def vetted(
    answer: Mapping[str, Any], name: str, require: Callable[[object, Any], None], asked: Any
) -> Mapping[str, Any]:
    """Return a worker's answer; where what it told under this name cannot be, as that of one that refuses."""
    try:
        if name in answer:
            require(answer[name], asked)
    except WorkerError as error:
        return {"worker": answer.get("worker", ""), **refused(error)}
    return answer


def require_trial(told: object, configuration: Configuration) -> None:
    """Raise WorkerError where what a worker told is no trial of a configuration that can be stored."""
    if not isinstance(told, Trial) or identity(told.configuration) != identity(configuration):
        raise WorkerError("it answered with another trial than it was asked for")
    if told.outcome is Outcome.OK and not (told.measurement and told.measurement.samples_ns):
        raise WorkerError("it told no time of a trial that passed")
    if told.measurement is not None:  # of one that was stopped early the store takes one without samples
        _require_times(told.measurement)


def require_retimed(told: object, configurations: Sequence[Configuration]) -> None:
    """Raise WorkerError where what a worker told is no answer for each of the finalists."""
    if not isinstance(told, list | tuple) or len(told) != len(configurations):
        raise WorkerError("it told other finalists' times than it was asked for")
    for one, configuration in zip(told, configurations, strict=True):
        if isinstance(one, Measurement):
            if not one.samples_ns:
                raise WorkerError("it told no time of a finalist")
            _require_times(one)
        elif one is not None:
            require_trial(one, configuration)


def _require_times(told: Measurement) -> None:
    """Raise WorkerError for times that none can be, as of a broken clock: stored, they would damage a database."""
    times = (*told.samples_ns, *told.warmup_ns)
    if not all(isinstance(ns, int) and 0 <= ns < 2**63 for ns in times) or told.median_ns <= 0:
        raise WorkerError("it told times that none can be", hint="look at that machine's clock and driver")


def lost() -> tuple[type[BaseException], ...]:
    """Return the errors that say that a connection has closed, or the client, or that what was asked was given up."""
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
