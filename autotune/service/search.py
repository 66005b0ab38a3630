"""The work of a child process for one search; asked.py has the checks of studies."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from autotune import cluster, devices, tuner
from autotune.bench import BUILD_S, FIRST_S, Limits
from autotune.cluster import Address, SchedulerAway
from autotune.errors import AutotuneError, DeviceError, StudyError
from autotune.model import DeviceInfo, Trial
from autotune.pool import Settings, lock_key
from autotune.reports import result_json
from autotune.samplers import DEFAULT_SAMPLER
from autotune.service.asked import bounded, problem_of, study_of
from autotune.tuner import Budget, Progress, Request, Result

PATIENCE_S = 600.0
"""Seconds to wait for a scheduler that is gone, or for the first device of a model in a cluster."""

_AGAIN_S = 1.0


def run(asked: Mapping[str, Any], tell: Callable[[Mapping[str, Any]], None], stop: threading.Event) -> dict[str, Any]:
    """Run the search that `asked` describes and return its result as in JSON. Raises AutotuneError.

    `failed` in it is the reason of a failure with its exit code, or None.
    """
    address = None if asked["on"] is None else Address.parse(asked["on"])
    device = _device(asked) if address is None else _of_cluster(address, asked, stop)
    with study_of(asked) as study:
        problem = problem_of(study, asked, device)
        bounded(problem, asked)
        request = Request(
            problem,
            database=asked["database"],
            sampler=asked.get("sampler") or DEFAULT_SAMPLER,
            seed=asked.get("seed"),
            budget=Budget(**asked["budget"]),
            start=asked.get("start") or (),
            retry_failed=bool(asked.get("retry_failed")),
            fresh=bool(asked.get("fresh")),
            cold=bool(asked.get("cold")),
            settings=Settings(
                limits=Limits(build_s=asked.get("build_limit") or BUILD_S, first_s=asked.get("run_limit") or FIRST_S),
                allow_python=asked["allow_python"],
            ),
            submission=asked["submission"],
            asked_by=asked["asked_by"],
        )
        for configuration in request.start:
            problem.plan(configuration)
        run = tuner.run if address is None else partial(cluster.run, address=address)
        result = run(request, stop, on_progress=lambda progress: tell({"progress": progress_json(progress)}))
        return {
            **result_json(result),
            "failure": str(result.failure) if result.failure else None,
            "failed": _failed(result),
        }


def _failed(result: Result) -> tuple[str, int] | None:
    """Return why a search failed, with the exit code, or None if it did not fail."""
    if result.failure is not None:
        return str(result.failure), result.failure.exit_code
    if result.unbuilt is not None:
        return f"no configuration builds: {result.unbuilt.reason}", StudyError.exit_code
    return None if result.best is not None else ("no configuration passed", AutotuneError.exit_code)


def _device(asked: Mapping[str, Any]) -> DeviceInfo:
    """Return the device that the queue is for, even if its number has changed."""
    found = [info for info in devices.list_devices() if lock_key(info) == asked["queue"]]
    wanted = [info for info in found if info.fingerprint == asked["fingerprint"]]
    same = [info for info in wanted if info.platform == asked["platform"]]
    if not wanted:
        raise DeviceError(f"{asked['fingerprint']} is not here any more", hint="GET /v1/devices lists those that are")
    device = (same or wanted)[0]
    devices.require_usable(device)
    return device


def _of_cluster(address: Address, asked: Mapping[str, Any], stop: threading.Event) -> DeviceInfo:
    """Return the stand-in for a model in a cluster, as soon as it has a worker, as it had when it was asked for."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return cluster.choose_one(address, asked["fingerprint"], stop)
        except (DeviceError, SchedulerAway):
            if stop.wait(_AGAIN_S) or time.monotonic() > deadline:
                raise


def progress_json(progress: Progress) -> dict[str, Any]:
    """Return the progress of a search, as events show it; times in nanoseconds, the rest in seconds.

    The best is compared by its `standing_ns`: its `time_ns`, or about what that would be at the usual pace.
    """
    best = progress.best
    return {
        "search": progress.search,
        "phase": progress.phase,
        "done": progress.done,
        "total": progress.total,
        "failures": {outcome.value: count for outcome, count in progress.failures.items()},
        "elapsed_s": round(progress.elapsed_s, 3),
        "rate": round(progress.rate, 3),
        "left_s": progress.left_s,
        "best": best and {**_short(best), "standing_ns": best.standing_ns},
        "trial": progress.trial and _short(progress.trial),
    }


def _short(trial: Trial) -> dict[str, Any]:
    return {
        "configuration": dict(trial.configuration),
        "outcome": trial.outcome.value,
        "time_ns": trial.time_ns,
        "reason": trial.reason[:300],
    }
