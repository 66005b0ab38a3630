"""Results and stored trials, as programs read them: the same from the command line and from a server."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from autotune import text
from autotune.model import ENQUEUE, SETTLE, Trial
from autotune.ranking import confidence, median_interval

if TYPE_CHECKING:
    from autotune.store import StoredTrial
    from autotune.study import Problem
    from autotune.tuner import Result


def result_json(result: Result) -> dict[str, Any]:
    """The result as one JSON object; times in nanoseconds, spent time in seconds.

    `speedup` is how many times as fast as the default the best is, with its interval and the per cent of cases in which
    that holds the truth; null if they were not timed in turns. `against_default` says the same for people, `noise` is
    the width of the best's interval as a share of its median. `default_moved` has, by parameter, the study's own value
    and its replacement if the former is not valid. An example of failures is `unsteady` if it was right at another
    time. `wrong_with` are the values, by parameter, with which all results were wrong, and no others.
    """
    problem, gain = result.problem, result.gain
    return {
        **problem_json(problem),
        "reason": result.reason,
        "trials": result.trials,
        "reused": result.reused,
        "reused_wrong": result.reused_wrong,
        "valid_configurations": len(problem.space),
        "elapsed_s": result.elapsed_s,
        "best": trial_json(problem, result.best),
        "default": trial_json(problem, result.default),
        "default_chosen": problem.study.chose_default,
        "default_moved": problem.moved,
        "why_no_default": result.why_no_default,
        "speedup": gain and gain[0],
        "speedup_interval": gain and gain[1:],
        "speedup_confidence": gain and result.confidence,
        "against_default": result.against_default,
        "noise": result.noise,
        "ranked": result.is_ranked,
        "ties": [trial.configuration for trial in result.ties],
        "failures": {
            outcome.value: {"count": count, "example": _example(result.examples.get(outcome))}
            for outcome, count in result.failures.items()
        },
        "wrong_with": result.wrong_with,
        "usage_s": result.usage,
    }


def problem_json(problem: Problem) -> dict[str, Any]:
    """The problem of a search."""
    return {
        "study": problem.study.name,
        "device": problem.device.fingerprint,
        "size": problem.size,
        "choices": problem.choices,
    }


def _example(trial: Trial | None) -> dict[str, Any] | None:
    if trial is None:
        return None
    return {"configuration": trial.configuration, "reason": trial.reason, "unsteady": trial.unsteady}


def trial_json(problem: Problem, trial: Trial | None) -> dict[str, Any] | None:
    """A trial with its time, the interval that holds it in `confidence` per cent of cases, and its rates.

    `enqueue_run_ns` is the time that the host needed to enqueue a run, in Python; null if that is not known.
    `at_power_limit`: the device had lowered its clock, to stay within its power limit.
    """
    if trial is None:
        return None
    measurement = trial.latest
    return {
        "configuration": trial.configuration,
        "outcome": trial.outcome.value,
        "reason": trial.reason,
        "time_ns": trial.time_ns,
        "interval_ns": median_interval(measurement.samples_ns),
        "confidence": confidence(len(measurement.samples_ns)),
        "runs": len(measurement.samples_ns),
        "cache": measurement.cache,
        "verified_runs": trial.verified_runs,
        "enqueue_run_ns": _enqueue_run_ns(problem, trial),
        "throttled": trial.throttled,
        "at_power_limit": SETTLE in trial.environment,
        "unverified": trial.unverified,
        "gflops": text.giga_rate(problem.flops(trial.configuration), trial.time_ns),
        "gbytes_per_s": text.giga_rate(problem.bytes(trial.configuration), trial.time_ns),
    }


def _enqueue_run_ns(problem: Problem, trial: Trial) -> float | None:
    of_one = trial.environment.get(ENQUEUE)
    if not isinstance(of_one, int | float) or not 0 < of_one < math.inf:  # an imported trial may have any value
        return None
    return of_one * len(problem.plan(trial.configuration).sequence)


def row_json(row: StoredTrial) -> dict[str, Any]:
    """A stored trial with what it belongs to; times in nanoseconds."""
    trial = row.trial
    measurement = trial.retimed or trial.measurement
    return {
        "study": row.key.study,
        "size": row.key.size,
        "choices": row.key.choices,
        "device": row.key.device,
        "device_name": row.device_name,
        "driver": trial.driver,
        "sampler": row.sampler,
        "origin": None if trial.origin is None else trial.origin["format"],
        "configuration": trial.configuration,
        "outcome": trial.outcome.value,
        "reason": trial.reason,
        "time_ns": trial.time_ns,
        "interval_ns": median_interval(measurement.samples_ns) if measurement else None,
        "samples_ns": measurement.samples_ns if measurement else (),
        "started": trial.started.isoformat() if trial.started else None,
        "finished": trial.finished.isoformat() if trial.finished else None,
        "kernel_hash": row.key.kernel_hash,
        "study_hash": row.key.study_hash,
    }
