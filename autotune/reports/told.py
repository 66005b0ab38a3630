"""What was found and what is stored, as programs read it: the same from the command line and from a server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autotune import text
from autotune.model import Trial
from autotune.ranking import median_interval

if TYPE_CHECKING:
    from autotune.store import StoredTrial
    from autotune.study import Problem
    from autotune.tuner import Result


def result_json(result: Result) -> dict[str, Any]:
    """The result as one JSON object; times in nanoseconds, spent time in seconds."""
    problem = result.problem
    return {
        "study": problem.study.name,
        "device": problem.device.fingerprint,
        "size": problem.size,
        "choices": problem.choices,
        "reason": result.reason,
        "trials": result.trials,
        "reused": result.reused,
        "valid_configurations": len(problem.space),
        "elapsed_s": result.elapsed_s,
        "best": trial_json(problem, result.best),
        "default": trial_json(problem, result.default),
        "default_chosen": problem.study.chose_default,
        "why_no_default": result.why_no_default,
        "ranked": result.is_ranked,
        "ties": [trial.configuration for trial in result.ties],
        "failures": {
            outcome.value: {"count": count, "example": _example(result.examples.get(outcome))}
            for outcome, count in result.failures.items()
        },
        "usage_s": result.usage,
    }


def _example(trial: Trial | None) -> dict[str, Any] | None:
    return None if trial is None else {"configuration": trial.configuration, "reason": trial.reason}


def trial_json(problem: Problem, trial: Trial | None) -> dict[str, Any] | None:
    """A trial with its time, interval and rates."""
    if trial is None:
        return None
    measurement = trial.latest
    return {
        "configuration": trial.configuration,
        "outcome": trial.outcome.value,
        "reason": trial.reason,
        "time_ns": trial.time_ns,
        "interval_ns": median_interval(measurement.samples_ns),
        "runs": len(measurement.samples_ns),
        "cache": measurement.cache,
        "verified_runs": trial.verified_runs,
        "throttled": trial.throttled,
        "gflops": text.giga_rate(problem.flops(trial.configuration), trial.time_ns),
        "gbytes_per_s": text.giga_rate(problem.bytes(trial.configuration), trial.time_ns),
    }


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
