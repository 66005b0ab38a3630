"""What fails between machines: an error as an answer, and back; what Dask raises if a machine is gone."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from autotune import errors, store
from autotune.errors import AutotuneError, StoreError, WorkerError
from autotune.model import Configuration, Measurement, Outcome, Trial, identity, with_retiming
from autotune.store import UNSOUND


def refused(error: AutotuneError) -> dict[str, Any]:
    """Return the answer for an error, as plain data."""
    told = {"what": error.what, "where": error.where, "hint": error.hint, "detail": error.detail}
    return {"refused": {"kind": type(error).__name__, **told}}


def heard(answer: Mapping[str, Any], place: str) -> AutotuneError:
    """Return the error in an answer, as it happened at a place. May raise one of UNSOUND."""
    told = answer["refused"]
    what, where, hint, detail = (str(told[name]) for name in ("what", "where", "hint", "detail"))
    kind = getattr(errors, str(told["kind"]), WorkerError)
    if not (isinstance(kind, type) and issubclass(kind, AutotuneError)):
        kind = WorkerError
    error: AutotuneError = kind(what, where=f"{place}: {where}" if where else place, hint=hint, detail=detail)
    return error


def signed(answer: Any) -> Mapping[str, Any]:
    """Return a worker's answer. Raises WorkerError if it does not name its worker: then it is not one of ours."""
    if not isinstance(answer, Mapping) or not isinstance(answer.get("worker"), str):
        raise WorkerError("a worker answers what none of autotune does", hint="install the same on every machine")
    return answer


def claimed(answer: Any) -> Mapping[str, Any]:
    """Return a worker's answer to a claim. Raises WorkerError for an answer that no worker of autotune gives."""
    if not isinstance(answer, Mapping) or not any(kind in answer and of(answer[kind]) for kind, of in _CLAIMED.items()):
        raise WorkerError(f"it answered a claim with {answer!r:.60}", hint="install the same version there")
    return answer


_MOST_SLOTS = 2**16

_CLAIMED: Mapping[str, Callable[[Any], bool]] = {
    "slots": lambda told: type(told) is int and 0 < told <= _MOST_SLOTS,
    "lacks": lambda told: isinstance(told, list) and all(isinstance(one, str) for one in told),
    "refused": lambda told: isinstance(told, Mapping),
    "busy": lambda told: isinstance(told, str),
    "gone": bool,
}
"""The possible answers to a claim (tasks.claim), with a check of each."""


def vetted(answer: Mapping[str, Any], name: str, believed: Callable[[Any, Any], Any], asked: Any) -> Mapping[str, Any]:
    """Return a worker's answer with its value of this name checked by `believed`; if that fails, a refusal."""
    try:
        if "refused" in answer:
            heard(answer, "")
        return {**answer, name: believed(answer[name], asked)} if name in answer else answer
    except (StoreError, WorkerError) as error:
        wrong = error.what
    except UNSOUND as error:
        wrong = f"{type(error).__name__}: {error}"
    hint = "look at that machine's clock and driver, and install the same version there"
    return {
        **refused(WorkerError(f"its answer is invalid: {wrong}", hint=hint)),
        "worker": answer["worker"],
    }


def believed_trial(told: Any, configuration: Configuration) -> Trial:
    """Return a worker's trial of a configuration, as it can be stored and read again.

    Raises WorkerError, StoreError or one of UNSOUND if it is no such trial.
    """
    if not isinstance(told, Trial) or identity(told.configuration) != identity(configuration):
        raise WorkerError("another trial than it was asked for")
    found = store.entered(told)
    if not found.outcome.ended:
        raise WorkerError("a trial that has not ended")
    if found.outcome is Outcome.OK and not (found.measurement and found.measurement.samples_ns):
        raise WorkerError("no time of a trial that passed")
    return replace(found, configuration=configuration, device_index=None, origin=None)


def believed_usage(told: Any, _: Any) -> dict[str, float]:
    """Return a worker's seconds of each step. Raises as `believed_trial`."""
    found = {str(step): float(seconds) for step, seconds in told.items()}
    if not all(0 <= seconds < math.inf for seconds in found.values()):
        raise WorkerError("seconds that nothing takes")
    return found


def believed_times(told: Any, configurations: Sequence[Configuration]) -> list[Measurement | Trial | None]:
    """Return a worker's result for each of the finalists. Raises as `believed_trial`."""
    if not isinstance(told, list | tuple) or len(told) != len(configurations):
        raise WorkerError("other finalists' times than it was asked for")
    return [_retimed(one, configuration) for one, configuration in zip(told, configurations, strict=True)]


def _retimed(told: Any, configuration: Configuration) -> Measurement | Trial | None:
    if not isinstance(told, Measurement):
        return None if told is None else believed_trial(told, configuration)
    facts = with_retiming({}, told)  # they are stored among the facts of its trial
    found = believed_trial(Trial(configuration, Outcome.OK, measurement=told, environment=facts), configuration)
    return replace(found.latest, verified_runs=found.verified_runs, throttled=found.throttled)


def lost() -> tuple[type[BaseException], ...]:
    """Return the errors that mean that a connection or the client has closed, or that a request was given up."""
    from distributed.client import ClosedClientError, FutureCancelledError, FuturesCancelledError
    from distributed.scheduler import NoValidWorkerError, NoWorkerError

    # CommClosedError is an OSError.
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
    """Close a client, whatever is left of its connection."""
    if client is not None:
        try:
            await asyncio.wait_for(client.close(), within_s)
        except lost():
            return
