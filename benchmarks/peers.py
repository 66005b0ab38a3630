"""Kernel Tuner's strategies on a recorded space, in its own simulation mode (extra `[bench]`)."""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
import time
import warnings
from functools import lru_cache
from pathlib import Path
from typing import Any

from recording import Recording

from autotune.errors import SetupError
from autotune.model import Outcome, Trial

STRATEGIES = ("adaptive_tabu_greywolf", "hybrid_vndx", "genetic_algorithm", "pso", "simulated_annealing")

_FAILED = {Outcome.COMPILE_ERROR: "CompilationFailedConfig", Outcome.LAUNCH_ERROR: "RuntimeFailedConfig"}
_FOLDER = tempfile.TemporaryDirectory(prefix="autotune-peers-")


@lru_cache(maxsize=64)
def _cache(recording: Recording) -> str:
    """Write the recorded space as a cache file of Kernel Tuner."""
    space = recording.space
    entries = {}
    for trial in map(recording.trial, range(len(space))):
        time_ms: float | str = _FAILED.get(trial.outcome) or trial.time_ns / 1e6
        entries[_key(trial)] = dict(trial.configuration) | {"time": time_ms}
    path = Path(_FOLDER.name) / f"{recording.name}.json"
    contents = {
        "device_name": "Simulation",
        "kernel_name": recording.kernel,
        "problem_size": [1],
        "tune_params_keys": list(space.names),
        "tune_params": dict(zip(space.names, map(list, space.values), strict=True)),
        "objective": "time",
        "cache": entries,
    }
    path.write_text(json.dumps(contents))
    return str(path)


def _key(trial: Trial) -> str:
    return ",".join(str(value) for value in trial.configuration.values())


def search_with_kernel_tuner(recording: Recording, strategy: str, seed: int, budget: int) -> tuple[list[Trial], float]:
    """The distinct configurations that a strategy tried, in order, and its CPU milliseconds for each."""
    try:
        from constraint import FunctionConstraint
        from kernel_tuner import tune_kernel
    except ImportError as error:
        raise SetupError("kernel-tuner is not installed", hint="pip install '.[bench]'") from error
    space = recording.space
    recorded = _rows(recording)
    cache = _cache(recording)
    began = time.process_time()
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        results, _ = tune_kernel(
            recording.kernel,
            "",
            1,
            [],
            dict(zip(space.names, map(list, space.values), strict=True)),
            # What was recorded is valid; so the language of the constraints does not matter.
            restrictions=[FunctionConstraint(lambda *values: values in recorded)],
            lang="C",
            cache=cache,
            simulation_mode=True,
            strategy=strategy,
            strategy_options={"max_fevals": budget},
            quiet=True,
            seed=seed,
        )
    elapsed_ms = (time.process_time() - began) * 1000
    trials = [recording.trial(row) for row in dict.fromkeys(recorded[_values(space.names, r)] for r in results)]
    return trials, elapsed_ms / max(1, len(trials))


@lru_cache(maxsize=64)
def _rows(recording: Recording) -> dict[tuple[Any, ...], int]:
    space = recording.space
    return {tuple(space.configuration(row).values()): row for row in range(len(space))}


def _values(names: tuple[str, ...], result: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(result[name] for name in names)
